//! `longhaul tasks`.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use jiff::Timestamp;
use longhaul::entry::TeamRef;
use longhaul::store::{DatabaseHealth, TaskFilter};
use longhaul::task::TaskState;
use longhaul::transcript::Standing;
use longhaul::{Longhaul, Status, TaskId};

use super::CliContext;
use crate::args::{StateFilter, TasksArgs};
use crate::exit::{CliError, CliExitCode};
use crate::team;
use crate::view::{self, Ink, TaskLayout, one_line, pluralize};

mod watch;

/// How old an ended task may be to appear without a filter.
const RECENT: Duration = Duration::from_secs(24 * 60 * 60);
/// How far to count tasks that are not shown.
const COUNTED: usize = 1_000;

pub(super) async fn run(context: &CliContext, args: &TasksArgs) -> Result<CliExitCode, CliError> {
    let longhaul = context.client().await?;
    let wanted = TaskSelection::new(&longhaul, args).await?;
    if args.watch {
        return watch::run(context, &longhaul, &wanted).await;
    }
    let now = Timestamp::now();
    let code = report_unloadable(context, &longhaul, &wanted.filters(now)).await?;
    let states = wanted.list(&longhaul, now).await?;
    if args.json {
        states.iter().try_for_each(|state| context.term.print_json(state))?;
        return Ok(code);
    }
    if states.is_empty() {
        context.term.print_line(&context.term.wrap(&wanted.empty_message(&longhaul).await?))?;
        return Ok(code);
    }
    for line in view::task_table(&states, context.term, now, wanted.layout()) {
        context.term.print_line(&line)?;
    }
    let older = wanted.count_older(&longhaul, now).await?;
    for (host, tasks) in waiting_for_hosts(&longhaul, &states).await {
        let line = format!("{} for the machine '{host}', which has their directory", waits(tasks));
        context.term.print_line(&context.term.paint(Ink::Faint, &context.term.wrap(&line)))?;
    }
    for (ink, line) in wanted.footer(&states, older) {
        context.term.print_line(&context.term.paint(ink, &context.term.wrap(&line)))?;
    }
    Ok(code)
}

/// Counts the pending tasks that wait for another machine, by its name.
async fn waiting_for_hosts(longhaul: &Longhaul, states: &[TaskState]) -> BTreeMap<String, usize> {
    let mut teams: HashMap<&TeamRef, usize> = HashMap::new();
    for state in states.iter().filter(|state| state.status == Status::Pending) {
        *teams.entry(&state.team).or_default() += 1;
    }
    let mut hosts = BTreeMap::new();
    for (team, tasks) in teams {
        if let Some(host) = team::awaited_host(&**longhaul.store(), team).await {
            *hosts.entry(one_line(&host)).or_default() += tasks;
        }
    }
    hosts
}

fn waits(tasks: usize) -> String {
    format!("{} {}", pluralize(tasks, "task"), if tasks == 1 { "waits" } else { "wait" })
}

/// Reports tasks that cannot be read, and why: among the selected, the open and the newest ones.
async fn report_unloadable(
    context: &CliContext,
    longhaul: &Longhaul,
    wanted: &[TaskFilter],
) -> Result<CliExitCode, CliError> {
    let mut damaged = HashSet::new();
    let others = [TaskFilter::default().live(), TaskFilter::newest(DatabaseHealth::NEWEST)];
    for which in wanted.iter().chain(&others) {
        for damage in longhaul.store().find_damaged(which.clone(), false).await? {
            if damaged.insert(damage.task) {
                context.note(&format!("warning: {} cannot be loaded: {}", damage.task, damage.why));
            }
        }
    }
    Ok(if damaged.is_empty() { CliExitCode::Success } else { CliExitCode::Store })
}

/// Which tasks to list.
struct TaskSelection<'a> {
    args: &'a TasksArgs,
    /// The trees, if limited to some.
    roots: Vec<TaskId>,
}

impl<'a> TaskSelection<'a> {
    async fn new(longhaul: &Longhaul, args: &'a TasksArgs) -> Result<TaskSelection<'a>, CliError> {
        let mut roots = Vec::new();
        for typed in &args.root {
            let id = longhaul.find(typed).await?;
            roots.extend(longhaul.store().task_state(id).await?.map(|state| state.root));
        }
        Ok(TaskSelection { args, roots })
    }

    fn layout(&self) -> TaskLayout {
        if self.args.table { TaskLayout::Table } else { TaskLayout::Tree }
    }

    /// Returns the filters for the store: one per tree, if limited to some. Only the finer states of open
    /// tasks are left to [`matches_state`](Self::matches_state).
    fn filters(&self, now: Timestamp) -> Vec<TaskFilter> {
        let TasksArgs { state, agent, since, older_than, .. } = self.args;
        let ago = |time: Duration| now.saturating_sub(time).unwrap_or(Timestamp::MIN);
        let filter = match self.has_filter() {
            false => TaskFilter::default().active_since(Some(ago(RECENT))),
            true => TaskFilter::default()
                .status(
                    Status::ALL
                        .into_iter()
                        .filter(|status| state.iter().any(|state| status_may_match(*status, *state)))
                        .collect(),
                )
                .agents(agent.iter().map(|name| name.as_str().into()).collect())
                .since(since.map(ago))
                .before(older_than.map(ago)),
        };
        match self.roots.is_empty() {
            true => vec![filter],
            false => self.roots.iter().map(|root| filter.clone().root(Some(*root))).collect(),
        }
    }

    /// Returns the selected tasks.
    async fn list(&self, longhaul: &Longhaul, now: Timestamp) -> Result<Vec<TaskState>, CliError> {
        let mut states = Vec::new();
        for filter in self.filters(now) {
            states.extend(longhaul.list(filter).await?);
        }
        if self.roots.len() > 1 {
            states.sort_by_key(|state: &TaskState| state.created);
        }
        states.retain(|state| self.matches_state(state));
        Ok(states)
    }

    /// Counts the tasks that are left out because they are too old.
    async fn count_older(&self, longhaul: &Longhaul, now: Timestamp) -> Result<usize, CliError> {
        if self.has_filter() {
            return Ok(0);
        }
        let before = now.saturating_sub(RECENT).unwrap_or(Timestamp::MIN);
        let older = TaskFilter::newest(COUNTED + 1).quiet_before(Some(before));
        Ok(longhaul.store().count(older).await?)
    }

    /// Returns whether any filter was given.
    fn has_filter(&self) -> bool {
        let TasksArgs { all, state, agent, root, since, older_than, .. } = self.args;
        *all || !state.is_empty()
            || !agent.is_empty()
            || !root.is_empty()
            || since.is_some()
            || older_than.is_some()
    }

    /// Returns whether a task matches the state filter. The store has checked everything else.
    fn matches_state(&self, task: &TaskState) -> bool {
        let state = &self.args.state;
        state.is_empty() || state.iter().any(|state| matches_state_filter(task, *state))
    }

    /// Returns the message for an empty list.
    async fn empty_message(&self, longhaul: &Longhaul) -> Result<String, CliError> {
        let store = longhaul.store();
        let all = match self.roots[..] {
            [root] => TaskFilter::tree(root),
            _ => TaskFilter::default(),
        };
        let count = store.count(all.clone().limit(Some(COUNTED + 1))).await?;
        if count == 0 {
            return Ok("There are no tasks yet. `longhaul demo` makes some.".to_owned());
        }
        for unknown in &self.args.agent {
            let of_it = all.clone().agents(vec![unknown.as_str().into()]).limit(Some(1));
            if store.count(of_it).await? > 0 {
                continue;
            }
            let some = store.list(all.limit(Some(COUNTED))).await?;
            let agents: BTreeSet<String> = some.iter().map(|state| one_line(state.agent.as_str())).collect();
            return Ok(format!(
                "No task is of an agent '{}'. There are tasks of: {}.",
                one_line(unknown),
                agents.into_iter().collect::<Vec<_>>().join(", ")
            ));
        }
        Ok(match self.has_filter() {
            true => format!("None of {} fits.", format_task_count(count)),
            false => "No task is open, and none ended in the last day. `longhaul tasks --all` shows all."
                .to_owned(),
        })
    }

    /// Returns the lines below the list: tasks that need input, and what is not shown.
    fn footer(&self, states: &[TaskState], older: usize) -> Vec<(Ink, String)> {
        let mut footer = Vec::new();
        let asking = states.iter().filter(|state| !state.asked.is_empty()).count();
        if asking > 0 {
            let ask = if asking == 1 { "1 task asks".to_owned() } else { format!("{asking} tasks ask") };
            footer.push((Ink::Attention, format!("{ask} a person: longhaul show ID, longhaul answer ID …")));
        }
        let left =
            states.iter().filter(|state| matches_state_filter(state, StateFilter::Interrupted)).count();
        if left > 0 {
            let left = pluralize(left, "task");
            footer.push((Ink::Faint, format!("{left} interrupted: longhaul resume")));
        }
        if older > 0 {
            footer.push((Ink::Faint, format!("{} older: longhaul tasks --all", format_task_count(older))));
        }
        footer
    }
}

/// Formats a number of tasks, or "more than" the counted limit.
fn format_task_count(count: usize) -> String {
    match count > COUNTED {
        true => format!("more than {COUNTED} tasks"),
        false => pluralize(count, "task"),
    }
}

/// Returns whether a task with this status may match a state filter. A running task may be shown as
/// interrupted, and so count as pending.
fn status_may_match(status: Status, state: StateFilter) -> bool {
    match state {
        StateFilter::Ended => status.is_final(),
        StateFilter::Completed => status == Status::Completed,
        StateFilter::Failed => status == Status::Failed,
        StateFilter::Cancelled => status == Status::Cancelled,
        StateFilter::Open
        | StateFilter::Pending
        | StateFilter::Running
        | StateFilter::Interrupted
        | StateFilter::Waiting
        | StateFilter::Asks
        | StateFilter::Stopping => !status.is_final(),
    }
}

/// Returns whether a task matches a state filter.
fn matches_state_filter(task: &TaskState, state: StateFilter) -> bool {
    let standing = Standing::of(task);
    match state {
        StateFilter::Open => !task.status.is_final(),
        StateFilter::Ended => task.status.is_final(),
        StateFilter::Pending => task.status == Status::Pending,
        StateFilter::Running => task.status == Status::Running,
        StateFilter::Completed => task.status == Status::Completed,
        StateFilter::Failed => task.status == Status::Failed,
        StateFilter::Cancelled => task.status == Status::Cancelled,
        StateFilter::Interrupted => standing == Standing::Interrupted,
        StateFilter::Waiting => standing == Standing::Waiting,
        // Also a task that no process runs now: it can be answered anyway.
        StateFilter::Asks => !task.asked.is_empty() && !task.status.is_final(),
        StateFilter::Stopping => standing == Standing::Stopping,
    }
}
