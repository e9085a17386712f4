//! `longhaul resume`.

use std::collections::HashSet;
use std::io::IsTerminal as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;
use jiff::Timestamp;
use longhaul::agent::Unattended;
use longhaul::entry::TeamRef;
use longhaul::store::{DatabaseHealth, Store, StoreError, TaskFilter};
use longhaul::supervisor::LonghaulBuilder;
use longhaul::task::TaskState;
use longhaul::teamfile::Environment;
use longhaul::worker::TeamLoader as _;
use longhaul::{Budget, Longhaul, TaskId, Team};

use super::CliContext;
use super::run::{bounds, check_prices_known};
use crate::args::{ProviderArgs, ResumeArgs, UnattendedArg};
use crate::background::{self, BackgroundOptions};
use crate::data_dir::DataDir;
use crate::demo::{self, DemoPace};
use crate::exit::{CliError, CliExitCode};
use crate::project::{project_of, project_of_run};
use crate::run_exit_code::exit_code_of_run;
use crate::run_session::{OutputMode, RunSession};
use crate::seen_events;
use crate::team::{self, StoredTeamLoader};
use crate::tree_owner;
use crate::trust::ask_yes_no;
use crate::view::{Ink, one_line, pluralize, sanitize};

pub(super) async fn run(context: &CliContext, args: &ResumeArgs) -> Result<CliExitCode, CliError> {
    let since =
        Timestamp::from_millisecond(Timestamp::now().as_millisecond()).unwrap_or(Timestamp::UNIX_EPOCH);
    let data_dir = context.data_dir()?;
    let more = bounds(args.max_tokens, args.max_cost)?;
    let store = data_dir.open_store().await?;
    let team = demo::demo_team(args.pace).map_err(super::demo::demo_failure)?;
    let known = team.reference().clone();

    let mut damaged = store.find_damaged(TaskFilter::default().live(), true).await?;
    damaged.extend(store.find_damaged(TaskFilter::newest(DatabaseHealth::NEWEST), true).await?);
    let loader =
        StoredTeamLoader::new(args.pace, team::build_environment(context, &args.providers, &data_dir)?);
    let (named, asked) = find_requested(&*store, &args.ids).await?;
    let others = match args.ids.is_empty() && !args.all {
        true => match runs_of_other_projects(context, args, &data_dir, &*store).await? {
            Some(others) => others,
            // The user was asked, and declined.
            None => return Ok(CliExitCode::Success),
        },
        false => HashSet::new(),
    };
    let is_asked =
        |root: &TaskId| asked.as_ref().is_none_or(|asked| asked.contains(root)) && !others.contains(root);
    let owned = trees_run_elsewhere(context, &data_dir, &*store, is_asked).await?;
    let mut roots: Vec<TaskId> = Vec::new();
    let mut open = 0;
    let mut left: IndexMap<TaskId, String> = IndexMap::new();
    for damage in damaged.into_iter().filter(|damage| is_asked(&damage.root)) {
        let reason = format!("{} cannot be loaded: {}. Its tree is left as it is", damage.task, damage.why);
        left.entry(damage.root).or_insert(reason);
    }
    let mut unloadable = !left.is_empty();
    for TaskState { id, root, team, .. } in store.list(TaskFilter::default().live()).await? {
        if !is_asked(&root) || left.contains_key(&root) {
            continue;
        }
        if owned.contains(&root) {
            // The process that runs part of a tree takes care of all of it.
            left.insert(
                root,
                format!(
                    "{root} is run by another process; watch it with:  {}",
                    data_dir.attach_command(root)
                ),
            );
        } else if let Some(why) = why_not_runnable(&*store, &team, &known, &loader).await? {
            unloadable |= team != known && matches!(team, TeamRef::File(_));
            roots.retain(|other| *other != root);
            left.insert(root, format!("{id} {}", sanitize(&why)));
        } else {
            open += 1;
            if !roots.contains(&root) {
                roots.push(root);
            }
        }
    }
    for line in left.values() {
        context.note(line);
    }
    if roots.is_empty() {
        if !args.json {
            context.term.print_line(
                &nothing_to_resume_message(&data_dir, &*store, asked.as_ref(), !left.is_empty(), more)
                    .await?,
            )?;
        }
        // Do not report success for tasks that were not resumed.
        return match asked {
            _ if unloadable => Ok(CliExitCode::Store),
            _ if !left.is_empty() => Ok(CliExitCode::Failed),
            Some(asked) => exit_code_of_ended(store, asked).await,
            None => Ok(CliExitCode::Success),
        };
    }
    let undone = asked.is_some() && !left.is_empty();
    if !more.is_open() {
        let client = Longhaul::client(store.clone()).await?;
        for root in &roots {
            if more.cost.is_some() {
                priced_tree(&*store, *root, &loader).await?;
            }
            client.add_budget(*root, more).await?;
        }
        client.shutdown().await;
    }

    let mut reported_tasks = Vec::new();
    for root in &roots {
        reported_tasks.extend(seen_events::tasks_to_report(
            &store.list(TaskFilter::tree(*root)).await?,
            *root,
            &named,
        ));
    }
    if args.detach {
        let done = start_in_background(context, args, &data_dir, &roots).await;
        return match done? {
            CliExitCode::Success if unloadable => Ok(CliExitCode::Store),
            CliExitCode::Success if undone => Ok(CliExitCode::Failed),
            code => Ok(code),
        };
    }
    let attended = std::io::stdin().is_terminal() && context.term.live && !args.json;
    let people = AttendanceOptions {
        unattended: args.unattended.map(Into::into),
        ask_timeout: args.ask_timeout,
        attended,
    };
    let runner =
        TreeRunner::start(context, &data_dir, store, &roots, &args.providers, team, args.pace, people)
            .await?;
    let which: Vec<String> =
        roots.iter().map(|root| context.term.paint(Ink::Id, &root.to_string())).collect();
    let intro = vec![format!("Resuming {} of {}", pluralize(open, "task"), which.join(", ")), String::new()];
    let mode = if args.json { OutputMode::Json } else { OutputMode::Human };
    let stop_on_question = args.unattended == Some(UnattendedArg::Stop) && !attended;
    let (timeout, fail_on_denied) = (args.timeout, args.fail_on_denied);
    let session = RunSession::new(context, &data_dir, runner.longhaul, roots);
    let session = RunSession {
        since,
        mode,
        intro,
        reported_tasks,
        stop_on_question,
        timeout,
        fail_on_denied,
        ..session
    };
    let done = session.run().await;
    team::close_environment(&runner.environment).await;
    // Do not report success if only some of the requested tasks were resumed.
    match done {
        Ok(CliExitCode::Success) if unloadable => Ok(CliExitCode::Store),
        Ok(CliExitCode::Success) if undone => Ok(CliExitCode::Failed),
        done => done,
    }
}

/// Returns the trees that other processes run. Waits for those that may become free.
async fn trees_run_elsewhere(
    context: &CliContext,
    data_dir: &DataDir,
    store: &dyn Store,
    is_asked: impl Fn(&TaskId) -> bool,
) -> Result<HashSet<TaskId>, CliError> {
    let owned = tree_owner::owned_trees(store).await?;
    let wanted: HashSet<TaskId> = owned.iter().copied().filter(is_asked).collect();
    if wanted.is_empty() {
        return Ok(owned);
    }
    let still = tree_owner::wait_until_free(store, data_dir, &wanted, |text| context.note(text)).await?;
    Ok(owned.into_iter().filter(|root| !wanted.contains(root) || still.contains(root)).collect())
}

/// Returns the exit code for trees that have already ended.
async fn exit_code_of_ended(store: Arc<dyn Store>, roots: HashSet<TaskId>) -> Result<CliExitCode, CliError> {
    let longhaul = Longhaul::client(store).await?;
    let roots: Vec<TaskId> = roots.into_iter().collect();
    let mut states = Vec::new();
    for root in &roots {
        states.extend(longhaul.list(TaskFilter::tree(*root)).await?);
    }
    let verdict = exit_code_of_run(&longhaul, &states, &roots).await;
    longhaul.shutdown().await;
    Ok(verdict?.0)
}

/// Returns the runs of other projects, which are not resumed. If this project has none, asks at a terminal
/// whether to resume the others (`None` if the user declines), and fails elsewhere with an error that names
/// them.
async fn runs_of_other_projects(
    context: &CliContext,
    args: &ResumeArgs,
    data_dir: &DataDir,
    store: &dyn Store,
) -> Result<Option<HashSet<TaskId>>, CliError> {
    let here = project_of(Path::new("."));
    let mut roots: IndexMap<TaskId, TaskState> = IndexMap::new();
    for state in store.list(TaskFilter::default().live()).await? {
        roots.entry(state.root).or_insert(state);
    }
    let mut others: IndexMap<TaskId, String> = IndexMap::new();
    for (root, state) in &roots {
        let project = project_of_run(store, *root).await;
        if let Some(project) = project.filter(|project| *project != here) {
            let line = format!("{root}  {}  in {}", one_line(&state.headline), project.display());
            others.insert(*root, sanitize(&line));
        }
    }
    let which: HashSet<TaskId> = others.keys().copied().collect();
    let runs = pluralize(others.len(), "run");
    if others.is_empty() {
        return Ok(Some(which));
    }
    let all = data_dir.shell_command("resume --all");
    if others.len() < roots.len() {
        context.note(&format!("{runs} of other projects left as they are; resume all with:  {all}"));
        return Ok(Some(which));
    }
    context.note(&format!("nothing to resume in {}; other projects have:", here.display()));
    others.values().for_each(|line| context.note(&format!("  {line}")));
    let on_terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal() && !args.json;
    if on_terminal && ask_yes_no(&format!("Resume {runs}? [y/N] "))? {
        return Ok(Some(HashSet::new()));
    }
    if !on_terminal {
        let what =
            format!("nothing was resumed: no run of this project is open, and {runs} of other projects are");
        let one = data_dir.shell_command("resume ID");
        return Err(CliError::new(CliExitCode::Usage, what)
            .with_hint(format!("resume one with `{one}`, or all with `{all}`")));
    }
    context.note(&format!("resume one with:  {}", data_dir.shell_command("resume ID")));
    context.note(&format!("or all of them with:  {all}"));
    Ok(None)
}

/// Hands each run to a background process.
async fn start_in_background(
    context: &CliContext,
    args: &ResumeArgs,
    data_dir: &DataDir,
    roots: &[TaskId],
) -> Result<CliExitCode, CliError> {
    for root in roots {
        let options = BackgroundOptions {
            unattended: args.unattended.unwrap_or(UnattendedArg::Wait),
            ask_timeout: args.ask_timeout,
            timeout: args.timeout,
            ..BackgroundOptions::new(&args.providers)
        };
        background::start(data_dir, *root, options).await?;
        if args.json {
            context.term.print_json(&serde_json::json!({ "task": root }))?;
            continue;
        }
        context.term.print_line(&root.to_string())?;
        context.note(&format!(
            "it goes on in the background; watch it with:  {}",
            data_dir.attach_command(*root)
        ));
    }
    Ok(CliExitCode::Success)
}

/// Who answers the questions of tasks, and for how long to wait.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct AttendanceOptions {
    /// What to do if no one is there, unless the agents decide that.
    pub(super) unattended: Option<Unattended>,
    pub(super) ask_timeout: Option<Duration>,
    /// Whether someone is at the terminal.
    pub(super) attended: bool,
}

impl AttendanceOptions {
    pub(super) fn apply_to(self, mut builder: LonghaulBuilder) -> LonghaulBuilder {
        builder = builder.attended(self.attended);
        if let Some(unattended) = self.unattended {
            builder = builder.unattended(unattended);
        }
        match self.ask_timeout {
            Some(time) => builder.ask_timeout(time),
            None => builder,
        }
    }
}

/// Runs trees that other processes left: of any team whose file is in the store, and of the demo.
pub(super) struct TreeRunner {
    pub(super) longhaul: Longhaul,
    pub(super) environment: Environment,
}

impl TreeRunner {
    #[expect(clippy::too_many_arguments, reason = "what a process is made of, said once")]
    pub(super) async fn start(
        context: &CliContext,
        data_dir: &DataDir,
        store: Arc<dyn Store>,
        roots: &[TaskId],
        providers: &ProviderArgs,
        demo: Team,
        pace: DemoPace,
        people: AttendanceOptions,
    ) -> Result<TreeRunner, CliError> {
        let environment = team::build_environment(context, providers, data_dir)?;
        let mut builder =
            super::longhaul_builder(demo).loader(StoredTeamLoader::new(pace, environment.clone()));
        for root in roots {
            builder = builder.only_tree(*root);
        }
        // Limits apply per process, not per tree: several trees get the defaults.
        if let [root] = roots
            && let Some(state) = store.task_state(*root).await?
            && let Some(limits) = team::stored_team_limits(&*store, &state.team, &environment).await?
        {
            builder = builder.limits(limits);
        }
        builder = people.apply_to(builder);
        let longhaul = builder.shared_store(store).start().await?;
        Ok(TreeRunner { longhaul, environment })
    }
}

/// Checks that a cost limit works for the team of a tree.
pub(super) async fn priced_tree(
    store: &dyn Store,
    root: TaskId,
    loader: &StoredTeamLoader,
) -> Result<(), CliError> {
    let Some(TaskState { team: TeamRef::File(digest), .. }) = store.task_state(root).await? else {
        return Ok(());
    };
    let Some(file) = store.blob(digest).await? else { return Ok(()) };
    // If the team does not load, the process that runs it reports that.
    loader.load(&file).map_or(Ok(()), |team| check_prices_known(&team))
}

/// Returns why this program cannot run the tasks of a team, or `None` if it can: it runs the demo, and teams
/// whose file or script is in the store.
pub(super) async fn why_not_runnable(
    store: &dyn Store,
    team: &TeamRef,
    demo: &TeamRef,
    loader: &StoredTeamLoader,
) -> Result<Option<String>, CliError> {
    let TeamRef::File(digest) = team else {
        return Ok(
            (team != demo).then(|| format!("cannot be run here: this program does not know its {team}"))
        );
    };
    let name = team::name(store, team).await;
    Ok(match store.blob(digest.clone()).await {
        Ok(Some(file)) if !StoredTeamLoader::recognizes(&file) => {
            Some(format!("cannot be run here: this program does not know its {name}"))
        }
        Ok(Some(file)) if team::other_host(&file).is_some() => team::other_host(&file).map(|host| {
            format!("cannot be run here: it works in a directory of the machine '{host}', and waits for that")
        }),
        Ok(Some(file)) => loader
            .load(&file)
            .err()
            .map(|error| format!("cannot be run here: its {name} does not load: {error}")),
        Ok(None) => Some(format!("cannot be loaded: its team ({team}) is not in the database")),
        Err(error @ StoreError::Damaged { .. }) => Some(format!("cannot be loaded: {error}")),
        Err(error) => return Err(error.into()),
    })
}

/// Returns the requested tasks and their trees, or all if `None`.
async fn find_requested(
    store: &dyn Store,
    ids: &[String],
) -> Result<(Vec<TaskId>, Option<HashSet<TaskId>>), CliError> {
    if ids.is_empty() {
        return Ok((Vec::new(), None));
    }
    let (mut named, mut roots) = (Vec::new(), HashSet::new());
    for typed in ids {
        let id = store.find(typed).await?;
        named.push(id);
        roots.extend(store.task_state(id).await?.map(|state| state.root));
    }
    Ok((named, Some(roots)))
}

/// Explains why there is nothing to resume.
async fn nothing_to_resume_message(
    data_dir: &DataDir,
    store: &dyn Store,
    asked: Option<&HashSet<TaskId>>,
    some: bool,
    more: Budget,
) -> Result<String, CliError> {
    if some {
        return Ok("There is nothing that this process can resume.".to_owned());
    }
    let Some(asked) = asked else {
        return Ok("There is nothing to resume: every task has ended.".to_owned());
    };
    let mut lines = Vec::new();
    for root in asked {
        if let Some(TaskState { id, status, headline, .. }) = store.task_state(*root).await? {
            lines.push(format!("{id} has ended ({status}): {}", one_line(&headline)));
            lines.push(match more.is_open() {
                true => format!("To continue it, write to it: {}", data_dir.send_command(id)),
                false => {
                    let command = data_dir
                        .shell_command(&format!("run --session {id} PROMPT --max-tokens N --max-cost N"));
                    format!("To continue it with another limit: {command}")
                }
            });
        }
    }
    Ok(lines.join("\n"))
}
