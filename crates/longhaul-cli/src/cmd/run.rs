//! `longhaul run`.

use std::collections::{HashSet, VecDeque};
use std::io::{IsTerminal as _, Read as _};
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use longhaul::dispatch::TaskLimits;
use longhaul::entry::TeamRef;
use longhaul::store::{Store, StoreError};
use longhaul::supervisor::LonghaulBuilder;
use longhaul::task::TaskState;
use longhaul::teamfile::Environment;
use longhaul::{Budget, Longhaul, Order, TaskId, Team};

use super::CliContext;
use super::resume::{AttendanceOptions, priced_tree, why_not_runnable};
use crate::args::{OnFinishArg, RunArgs, UnattendedArg};
use crate::background::{self, BackgroundOptions, SessionLock};
use crate::data_dir::DataDir;
use crate::demo::{self, DemoPace};
use crate::exit::{CliError, CliExitCode};
use crate::notify::Notifier;
use crate::run_session::{OutputMode, RunSession};
use crate::team::{self, StoredTeamLoader};
use crate::tree_owner;
use crate::trust::TeamFileTrust;
use crate::view::{Ink, OutputStream, TerminalOutput, sanitize};

pub(super) async fn run(context: &CliContext, args: &RunArgs) -> Result<CliExitCode, CliError> {
    let dir = team::resolve_working_dir(args.working_dir.as_deref())?;
    let data_dir = context.data_dir()?;
    let environment = team::build_environment(context, &args.providers, &data_dir)?;
    let RunPositionals { team: file, prompt } = RunPositionals::from_args(args);
    let Some(file) = file else {
        return continue_without_file(context, args, &data_dir, &environment, prompt).await;
    };
    let made = team::assemble_team(context, &environment, args, file, &dir)?.bound_to_this_machine(&data_dir);
    // Ask before anything from the file is started or contacted.
    TeamFileTrust::new(&data_dir, file, &made.bundle).ask_for_trust(context, args.trust)?;
    let mut prompts = prompts(args, prompt, &made.commands)?;
    let agent = match &args.agent {
        None => made.team.root().clone(),
        Some(name) => {
            team::check_agent_exists(&made.team, name, "--agent", file)?;
            name.as_str().into()
        }
    };
    let budget = budget(args, made.budget)?;
    team::check_auto_model(&made.team, &environment).await?;
    if budget.cost.is_some() {
        check_prices_known(&made.team)?;
    }
    let store = data_dir.open_store().await?;
    let team = made.save_to(&*store).await?;
    let run = RunInvocation { context, args, data_dir: &data_dir, environment: &environment };
    if let Some(session) = &args.session {
        let done = run.continue_session(team, made.limits, store, session, prompts).await;
        team::close_environment(&environment).await;
        return done;
    }
    let first = prompts.pop_front().unwrap_or_default();
    let mut order = Order::new(agent, first).working_dir(&dir).tree_budget(budget);
    if let Some(timeout) = args.timeout {
        order = order.timeout(timeout);
    }
    if let Some(policy) = args.on_finish {
        order = order.on_finish(policy.into());
    }
    if args.yolo {
        order = order.approve_all();
    }
    if args.detach {
        return run
            .start_detached(Longhaul::client(store).await?, team.reference().clone(), order, &prompts)
            .await;
    }
    let since = now();
    let longhaul = run.builder(team, made.limits).shared_store(store).start().await?;
    let next = Some(prompts).filter(|more| !more.is_empty());
    if next.is_some() {
        order = order.interactive();
    }
    let root = longhaul.submit(order).await?;
    let done = run.run_until_end(longhaul, root, since, next).await;
    team::close_environment(&environment).await;
    done
}

/// The positional arguments. With `--session` the team may be left out, and the first is the prompt.
struct RunPositionals<'a> {
    team: Option<&'a Path>,
    prompt: Option<&'a str>,
}

impl RunPositionals<'_> {
    fn from_args(args: &RunArgs) -> RunPositionals<'_> {
        let (team, prompt) = (args.team.as_deref(), args.prompt.as_deref());
        let alone = team.filter(|team| args.session.is_some() && prompt.is_none() && !team.is_file());
        match alone.and_then(Path::to_str) {
            Some(prompt) => RunPositionals { team: None, prompt: Some(prompt) },
            None => RunPositionals { team, prompt },
        }
    }
}

/// Continues an earlier run without its team file, with the team from the store.
async fn continue_without_file(
    context: &CliContext,
    args: &RunArgs,
    data_dir: &DataDir,
    environment: &Environment,
    prompt: Option<&str>,
) -> Result<CliExitCode, CliError> {
    let session = args.session.as_deref().unwrap_or_default();
    if !args.model.is_empty() {
        return Err(CliError::new(CliExitCode::Usage, "--model with --session also needs the team file")
            .with_hint("longhaul run TEAM --session ID --model MODEL PROMPT"));
    }
    let demo = demo::demo_team(DemoPace::default()).map_err(super::demo::demo_failure)?;
    let store = data_dir.open_store().await?;
    let id = store.find(session).await?;
    let state = store.task_state(id).await?.ok_or(StoreError::NoTask(id))?;
    let loader = StoredTeamLoader::new(DemoPace::default(), environment.clone());
    if let Some(why) = why_not_runnable(&*store, &state.team, demo.reference(), &loader).await? {
        return Err(CliError::new(CliExitCode::Failed, format!("--session: {id} {}", sanitize(&why)))
            .with_hint("name the team file: longhaul run TEAM --session ID PROMPT"));
    }
    if args.max_cost.is_some() {
        priced_tree(&*store, state.root, &loader).await?;
    }
    let prompts = prompts(args, prompt, &team::stored_team_commands(&*store, &state.team).await?)?;
    let limits = team::stored_team_limits(&*store, &state.team, environment).await?.unwrap_or_default();
    let run = RunInvocation { context, args, data_dir, environment };
    let done = run.continue_session(demo, limits, store, session, prompts).await;
    team::close_environment(environment).await;
    done
}

/// Returns the time, with the precision of journals.
fn now() -> Timestamp {
    Timestamp::from_millisecond(Timestamp::now().as_millisecond()).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// A run that is being started.
struct RunInvocation<'a> {
    context: &'a CliContext,
    args: &'a RunArgs,
    data_dir: &'a DataDir,
    environment: &'a Environment,
}

impl RunInvocation<'_> {
    fn builder(&self, team: Team, limits: TaskLimits) -> LonghaulBuilder {
        let people = AttendanceOptions {
            unattended: Some(self.args.unattended.unwrap_or(UnattendedArg::Deny).into()),
            ask_timeout: self.args.ask_timeout,
            attended: self.is_attended(),
        };
        people.apply_to(super::longhaul_builder(team).limits(limits).own_trees_only())
    }

    /// Returns whether someone is at the terminal to answer questions. In a pipe, answers can only come from
    /// another terminal.
    fn is_attended(&self) -> bool {
        std::io::stdin().is_terminal() && self.context.term.live && !self.args.quiet && !self.args.json
    }

    fn output_mode(&self) -> OutputMode {
        match (self.args.json, self.args.quiet) {
            (true, _) => OutputMode::Json,
            (false, true) => OutputMode::Quiet,
            (false, false) => OutputMode::Human,
        }
    }

    async fn run_until_end(
        &self,
        longhaul: Longhaul,
        root: TaskId,
        since: Timestamp,
        next: Option<VecDeque<String>>,
    ) -> Result<CliExitCode, CliError> {
        let (term, args) = (self.context.term, self.args);
        let intro = vec![
            format!("task    {}", term.paint(Ink::Id, &root.to_string())),
            format!("resume  {}", term.paint(Ink::Strong, &sanitize(&self.data_dir.resume_command(root)))),
            String::new(),
        ];
        let leave_to_background = (args.on_finish == Some(OnFinishArg::Detach)).then_some(&args.providers);
        let notifier = Notifier::new(args.notify, args.notify_after);
        let mode = self.output_mode();
        let session = RunSession::new(self.context, self.data_dir, longhaul, vec![root]);
        let stop_on_question = args.unattended == Some(UnattendedArg::Stop) && !self.is_attended();
        let (timeout, fail_on_denied) = (args.timeout, args.fail_on_denied);
        let session = RunSession {
            since,
            mode,
            intro,
            next_prompts: next,
            leave_to_background,
            notifier,
            stop_on_question,
            ..session
        };
        RunSession { timeout, fail_on_denied, ..session }.run().await
    }

    /// Continues an earlier run: sends each prompt as a letter to it, or to the run that continues it.
    async fn continue_session(
        &self,
        team: Team,
        limits: TaskLimits,
        store: Arc<dyn Store>,
        session: &str,
        mut prompts: VecDeque<String>,
    ) -> Result<CliExitCode, CliError> {
        let mut at = store.find(session).await?;
        // Hold the lock to the end: another process that continues the session is refused, instead of getting
        // the answer to our prompt.
        let first = follow_session(&*store, at, |state| state.continues).await?;
        let _turn = match background::lock_session(self.data_dir, first) {
            SessionLock::HeldElsewhere { process } => {
                let who = process.map(|pid| format!("process {pid}")).unwrap_or("another process".to_owned());
                let what =
                    format!("--session: {who} is already continuing {session}; your prompt was not sent");
                return Err(CliError::new(CliExitCode::Usage, what).with_hint(format!(
                    "try again when that process has ended, or send to the running task: {}",
                    self.data_dir.send_command(at)
                )));
            }
            ours => ours,
        };
        let mut code = CliExitCode::Success;
        let budget = budget(self.args, Budget::default())?;
        while let Some(prompt) = prompts.pop_front() {
            let root = follow_session(&*store, at, |state| state.continued_by).await?;
            let tell = |text: &str| self.context.note(text);
            if tree_owner::owned_trees(&*store).await?.contains(&root)
                && !tree_owner::wait_until_free(&*store, self.data_dir, &HashSet::from([root]), tell)
                    .await?
                    .is_empty()
            {
                let what = format!("--session: {root} is run by another process");
                return Err(CliError::new(CliExitCode::Usage, what).with_hint(format!(
                    "write to it: {}; watch it: {}",
                    self.data_dir.send_command(root),
                    self.data_dir.attach_command(root)
                )));
            }
            let since = now();
            let loader = StoredTeamLoader::new(DemoPace::default(), self.environment.clone());
            let builder = self.builder(team.clone(), limits.clone()).only_tree(root).loader(loader);
            let longhaul = builder.shared_store(store.clone()).start().await?;
            let sent = longhaul.send_with_budget(root, prompt, budget).await?;
            let state = longhaul.state(sent.to).await?;
            at = state.root;
            // An interactive session takes all prompts; other runs are continued one prompt at a time.
            let next = state.interactive.then(|| std::mem::take(&mut prompts));
            code = self.run_until_end(longhaul, at, since, next).await?;
            if code != CliExitCode::Success {
                break;
            }
        }
        Ok(code)
    }

    /// Hands the order to a background process, and prints the id.
    async fn start_detached(
        &self,
        client: Longhaul,
        team: TeamRef,
        order: Order,
        more: &VecDeque<String>,
    ) -> Result<CliExitCode, CliError> {
        let RunInvocation { context, args, data_dir, .. } = self;
        if !more.is_empty() {
            return Err(CliError::new(CliExitCode::Usage, "--detach takes one prompt").with_hint(
                "the next ones can be sent when it has answered: longhaul run TEAM --session ID PROMPT",
            ));
        }
        let root = client.submit_to(team, order).await?;
        let options = BackgroundOptions {
            unattended: args.unattended.unwrap_or(UnattendedArg::Wait),
            ask_timeout: args.ask_timeout,
            timeout: args.timeout,
            ..BackgroundOptions::new(&args.providers)
        };
        background::start(data_dir, root, options).await?;
        if args.json {
            context.term.print_json(&serde_json::json!({ "task": root }))?;
            return Ok(CliExitCode::Success);
        }
        // Print only the id, so that scripts can use it.
        TerminalOutput::for_stream(OutputStream::Stdout).print_line(&root.to_string())?;
        let watch =
            format!("it goes on in the background; watch it with:  {}", data_dir.attach_command(root));
        context.note(&watch);
        Ok(CliExitCode::Success)
    }
}

/// Follows the conversation of a task's root to its end, by `next`, and returns the root there.
async fn follow_session(
    store: &dyn Store,
    task: TaskId,
    next: fn(&TaskState) -> Option<TaskId>,
) -> Result<TaskId, CliError> {
    let mut at = store.task_state(task).await?.map_or(task, |state| state.root);
    while let Some(other) = store.task_state(at).await?.as_ref().and_then(next) {
        at = store.task_state(other).await?.map_or(other, |state| state.root);
    }
    Ok(at)
}

/// Returns all prompts, in order.
fn prompts(
    args: &RunArgs,
    first: Option<&str>,
    commands: &[(String, String)],
) -> Result<VecDeque<String>, CliError> {
    let first = (first.is_some() || args.prompts.is_empty()).then(|| prompt(first));
    let more = args.prompts.iter().map(|typed| prompt(Some(typed)));
    first.into_iter().chain(more).map(|prompt| expand_team_command(&prompt?, commands)).collect()
}

/// Reads the prompt from the argument, a file or stdin.
fn prompt(typed: Option<&str>) -> Result<String, CliError> {
    let nothing = || {
        CliError::new(CliExitCode::Usage, "there is nothing to do: no prompt was given")
            .with_hint("longhaul run TEAM 'what to do'; `-` reads it from standard input, @FILE from a file")
    };
    let text = match typed {
        None if std::io::stdin().is_terminal() => return Err(nothing()),
        None | Some("-") => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).map_err(|error| {
                CliError::new(
                    CliExitCode::Usage,
                    format!("the prompt cannot be read from standard input: {error}"),
                )
            })?;
            text
        }
        Some(typed) => match typed.strip_prefix('@') {
            Some(path) => std::fs::read_to_string(path).map_err(|error| {
                CliError::new(CliExitCode::Usage, format!("the prompt cannot be read from {path}: {error}"))
                    .with_hint(
                        "a prompt that begins with @ names a file; if it is not a file, start the prompt with a space",
                    )
            })?,
            None => typed.to_owned(),
        },
    };
    if text.trim().is_empty() { Err(nothing()) } else { Ok(text) }
}

/// Expands a prompt `/name more` to the instruction of the team's command of that name, followed by `more`.
fn expand_team_command(prompt: &str, commands: &[(String, String)]) -> Result<String, CliError> {
    let Some(typed) = prompt.strip_prefix('/') else { return Ok(prompt.to_owned()) };
    let (name, more) = typed.split_once(char::is_whitespace).unwrap_or((typed, ""));
    let command = commands.iter().find(|(known, _)| known == name);
    match command {
        Some((_, instruction)) if more.trim().is_empty() => Ok(instruction.clone()),
        Some((_, instruction)) => Ok(format!("{}\n\n{}", instruction.trim_end(), more.trim())),
        // A path, or other text with a leading slash.
        None if commands.is_empty() || name.contains('/') => Ok(prompt.to_owned()),
        None => {
            let names: Vec<String> = commands.iter().map(|(name, _)| format!("/{name}")).collect();
            Err(CliError::new(CliExitCode::Usage, format!("the team has no command '/{name}'")).with_hint(
                format!(
                    "it has: {}; if it is not a command, start the prompt with a space",
                    names.join(", ")
                ),
            ))
        }
    }
}

/// Returns the limits of the command line, completed by those of the file.
fn budget(args: &RunArgs, file: Budget) -> Result<Budget, CliError> {
    if args.timeout.is_some_and(|timeout| timeout.is_zero()) {
        return Err(nothing_within("--timeout"));
    }
    Ok(bounds(args.max_tokens, args.max_cost)?.or(file))
}

fn nothing_within(flag: &str) -> CliError {
    CliError::new(CliExitCode::Usage, format!("{flag} must be greater than 0"))
        .with_hint(format!("leave {flag} out for no limit"))
}

/// Returns the limits of the command line.
pub(super) fn bounds(max_tokens: Option<u64>, max_cost: Option<f64>) -> Result<Budget, CliError> {
    if max_tokens == Some(0) {
        return Err(nothing_within("--max-tokens"));
    }
    let cost = match max_cost {
        Some(dollars) if !(dollars > 0.0 && dollars < 1e9) => {
            let what = format!("--max-cost must be a dollar amount above 0, not {dollars}");
            return Err(
                CliError::new(CliExitCode::Usage, what).with_hint("leave --max-cost out for no limit")
            );
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded above")]
        dollars => dollars.map(|dollars| (dollars * 1e6).ceil() as u64),
    };
    let mut budget = Budget::default();
    (budget.tokens, budget.cost) = (max_tokens, cost);
    Ok(budget)
}

/// Checks that the cost of every model is known or reported by its provider; otherwise a cost limit cannot
/// work.
pub(super) fn check_prices_known(team: &Team) -> Result<(), CliError> {
    let Some(name) = team.agents().find_map(|agent| agent.model.unpriced_model()) else { return Ok(()) };
    let what =
        format!("--max-cost (or max_cost of the team) cannot be enforced: the price of {name} is not known");
    Err(CliError::new(CliExitCode::Usage, what).with_hint(format!(
        "give it with --prices FILE, in millionths of a dollar for a million tokens: {{\"{name}\": {{\"input\": …, \
         \"output\": …}}}} (0 and 0 for a model of your own), or leave the limit out"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_of_the_team_is_expanded() {
        let commands = [("fix".to_owned(), "Fix the tests.\n".to_owned())];
        let expanded =
            |prompt: &str| expand_team_command(prompt, &commands).map_err(|error| error.to_string());
        assert_eq!(expanded("/fix"), Ok("Fix the tests.\n".to_owned()));
        assert_eq!(
            expanded("/fix only the slow ones"),
            Ok("Fix the tests.\n\nonly the slow ones".to_owned())
        );
        assert_eq!(expanded("fix"), Ok("fix".to_owned()));
        assert_eq!(expanded("/etc/passwd is what?"), Ok("/etc/passwd is what?".to_owned()));
        assert!(expanded("/fxi").is_err_and(|error| error.contains("it has: /fix")));
    }
}
