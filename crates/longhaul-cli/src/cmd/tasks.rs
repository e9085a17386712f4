//! `longhaul tasks`.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use jiff::Timestamp;
use longhaul::store::{Filter, Health};
use longhaul::task::Head;
use longhaul::{Longhaul, Status, TaskId};

use super::Desk;
use crate::args::{State, TasksArgs};
use crate::exit::{Code, Trouble};
use crate::view::{self, Ink, Layout, many, one_line, standing};

mod watch;

/// How old an ended task may be to be shown where nobody says what is to be shown.
const RECENT: Duration = Duration::from_secs(24 * 60 * 60);
/// How far tasks that are not shown are counted.
const COUNTED: usize = 1_000;

pub(super) async fn run(desk: &Desk, args: &TasksArgs) -> Result<Code, Trouble> {
    let longhaul = desk.client().await?;
    let wanted = Wanted::of(&longhaul, args).await?;
    if args.watch {
        return watch::run(desk, &longhaul, &wanted).await;
    }
    let now = Timestamp::now();
    let code = unloadable(desk, &longhaul, &wanted.filters(now)).await?;
    let heads = wanted.list(&longhaul, now).await?;
    if args.json {
        heads.iter().try_for_each(|head| desk.term.json(head))?;
        return Ok(code);
    }
    if heads.is_empty() {
        desk.term.line(&desk.term.wrapped(&wanted.nothing(&longhaul).await?))?;
        return Ok(code);
    }
    for line in view::tasks(&heads, desk.term, now, wanted.layout()) {
        desk.term.line(&line)?;
    }
    let older = wanted.older(&longhaul, now).await?;
    for (ink, line) in wanted.footer(&heads, older) {
        desk.term.line(&desk.term.paint(ink, &desk.term.wrapped(&line)))?;
    }
    Ok(code)
}

/// Names the tasks that cannot be shown, and why: of those that are to be shown, of the open ones and of the newest.
async fn unloadable(desk: &Desk, longhaul: &Longhaul, wanted: &[Filter]) -> Result<Code, Trouble> {
    let mut damaged = HashSet::new();
    let others = [Filter::default().live(), Filter::newest(Health::NEWEST)];
    for which in wanted.iter().chain(&others) {
        for damage in longhaul.store().check(which.clone(), false).await? {
            if damaged.insert(damage.task) {
                desk.note(&format!("warning: {} cannot be loaded: {}", damage.task, damage.why));
            }
        }
    }
    Ok(if damaged.is_empty() { Code::Fine } else { Code::Store })
}

/// Which tasks are wanted.
struct Wanted<'a> {
    args: &'a TasksArgs,
    /// The trees, if only some are.
    roots: Vec<TaskId>,
}

impl<'a> Wanted<'a> {
    async fn of(longhaul: &Longhaul, args: &'a TasksArgs) -> Result<Wanted<'a>, Trouble> {
        let mut roots = Vec::new();
        for typed in &args.root {
            let id = longhaul.find(typed).await?;
            roots.extend(longhaul.store().head(id).await?.map(|head| head.root));
        }
        Ok(Wanted { args, roots })
    }

    fn layout(&self) -> Layout {
        if self.args.table { Layout::Table } else { Layout::Tree }
    }

    /// What the store is asked for: a filter for each tree, if only some are wanted. Only finer words for open tasks are left to
    /// [`fits`](Self::fits).
    fn filters(&self, now: Timestamp) -> Vec<Filter> {
        let TasksArgs { state, agent, since, older_than, .. } = self.args;
        let ago = |time: Duration| now.saturating_sub(time).unwrap_or(Timestamp::MIN);
        let filter = match self.is_said() {
            false => Filter { active_since: Some(ago(RECENT)), ..Filter::default() },
            true => Filter {
                status: Status::ALL
                    .into_iter()
                    .filter(|status| state.iter().any(|state| may_stand(*status, *state)))
                    .collect(),
                agents: agent.iter().map(|name| name.as_str().into()).collect(),
                since: since.map(ago),
                before: older_than.map(ago),
                ..Filter::default()
            },
        };
        match self.roots.is_empty() {
            true => vec![filter],
            false => self.roots.iter().map(|root| Filter { root: Some(*root), ..filter.clone() }).collect(),
        }
    }

    /// The tasks that are wanted.
    async fn list(&self, longhaul: &Longhaul, now: Timestamp) -> Result<Vec<Head>, Trouble> {
        let mut heads = Vec::new();
        for filter in self.filters(now) {
            heads.extend(longhaul.snapshots(filter).await?);
        }
        if self.roots.len() > 1 {
            heads.sort_by_key(|head: &Head| head.created);
        }
        heads.retain(|head| self.fits(head));
        Ok(heads)
    }

    /// How many are left out because nothing has happened to them for long.
    async fn older(&self, longhaul: &Longhaul, now: Timestamp) -> Result<usize, Trouble> {
        if self.is_said() {
            return Ok(0);
        }
        let before = now.saturating_sub(RECENT).unwrap_or(Timestamp::MIN);
        let older = Filter { quiet_before: Some(before), ..Filter::newest(COUNTED + 1) };
        Ok(longhaul.store().count(older).await?)
    }

    /// Whether it was said which are wanted.
    fn is_said(&self) -> bool {
        let TasksArgs { all, state, agent, root, since, older_than, .. } = self.args;
        *all || !state.is_empty()
            || !agent.is_empty()
            || !root.is_empty()
            || since.is_some()
            || older_than.is_some()
    }

    /// Whether it stands as is wanted; all else the store has looked at.
    fn fits(&self, head: &Head) -> bool {
        let state = &self.args.state;
        state.is_empty() || state.iter().any(|state| stands(head, *state))
    }

    /// What to say where there is nothing to show.
    async fn nothing(&self, longhaul: &Longhaul) -> Result<String, Trouble> {
        let store = longhaul.store();
        let all = match self.roots[..] {
            [root] => Filter::tree(root),
            _ => Filter::default(),
        };
        let count = store.count(Filter { limit: Some(COUNTED + 1), ..all.clone() }).await?;
        if count == 0 {
            return Ok("There are no tasks yet. `longhaul demo` makes some.".to_owned());
        }
        for unknown in &self.args.agent {
            let of_it = Filter { agents: vec![unknown.as_str().into()], limit: Some(1), ..all.clone() };
            if store.count(of_it).await? > 0 {
                continue;
            }
            let some = store.list(Filter { limit: Some(COUNTED), ..all }).await?;
            let agents: BTreeSet<String> = some.iter().map(|head| one_line(head.agent.as_str())).collect();
            return Ok(format!(
                "No task is of an agent '{}'. There are tasks of: {}.",
                one_line(unknown),
                agents.into_iter().collect::<Vec<_>>().join(", ")
            ));
        }
        Ok(match self.is_said() {
            true => format!("None of {} fits.", counted(count)),
            false => "No task is open, and none ended in the last day. `longhaul tasks --all` shows all."
                .to_owned(),
        })
    }

    /// What is said below the tasks: who needs somebody, and what is not shown.
    fn footer(&self, heads: &[Head], older: usize) -> Vec<(Ink, String)> {
        let mut footer = Vec::new();
        let asking = heads.iter().filter(|head| !head.asked.is_empty()).count();
        if asking > 0 {
            let ask = if asking == 1 { "1 task asks".to_owned() } else { format!("{asking} tasks ask") };
            footer.push((Ink::Waits, format!("{ask} a person: longhaul show ID, longhaul answer ID …")));
        }
        let left = heads.iter().filter(|head| stands(head, State::Interrupted)).count();
        if left > 0 {
            let left = many(left, "task");
            footer.push((Ink::Faint, format!("{left} interrupted: longhaul resume")));
        }
        if older > 0 {
            footer.push((Ink::Faint, format!("{} older: longhaul tasks --all", counted(older))));
        }
        footer
    }
}

/// So many tasks, or more than were counted.
fn counted(count: usize) -> String {
    match count > COUNTED {
        true => format!("more than {COUNTED} tasks"),
        false => many(count, "task"),
    }
}

/// Whether a task with this status may stand like this. One that runs may be shown as interrupted, and so as pending.
fn may_stand(status: Status, state: State) -> bool {
    match state {
        State::Ended => status.is_final(),
        State::Completed => status == Status::Completed,
        State::Failed => status == Status::Failed,
        State::Cancelled => status == Status::Cancelled,
        State::Open
        | State::Pending
        | State::Running
        | State::Interrupted
        | State::Waiting
        | State::Asks
        | State::Stopping => !status.is_final(),
    }
}

/// Whether a task stands like this.
fn stands(head: &Head, state: State) -> bool {
    let word = || standing(head).1;
    match state {
        State::Open => !head.status.is_final(),
        State::Ended => head.status.is_final(),
        State::Pending => head.status == Status::Pending,
        State::Running => head.status == Status::Running,
        State::Completed => head.status == Status::Completed,
        State::Failed => head.status == Status::Failed,
        State::Cancelled => head.status == Status::Cancelled,
        State::Interrupted => word() == "interrupted",
        State::Waiting => word() == "waiting",
        // Also one that nobody runs just now: it can be answered all the same.
        State::Asks => !head.asked.is_empty() && !head.status.is_final(),
        State::Stopping => word() == "stopping",
    }
}
