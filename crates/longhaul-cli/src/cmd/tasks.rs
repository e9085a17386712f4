//! `longhaul tasks`.

use jiff::{SignedDuration, Timestamp};
use longhaul::store::Filter;
use longhaul::task::Head;
use longhaul::{Longhaul, Status, TaskId};

use super::Desk;
use crate::args::{State, TasksArgs};
use crate::exit::{Code, Trouble};
use crate::view::{self, Ink, Layout, many, one_line, standing};

mod watch;

/// How old an ended task may be to be shown where nobody says what is to be shown.
const RECENT: SignedDuration = SignedDuration::from_hours(24);

pub(super) async fn run(desk: &Desk, args: &TasksArgs) -> Result<Code, Trouble> {
    let longhaul = desk.client().await?;
    let wanted = Wanted::of(&longhaul, args).await?;
    if args.watch {
        return watch::run(desk, &longhaul, &wanted).await;
    }
    let now = Timestamp::now();
    let code = unloadable(desk, &longhaul).await?;
    let all = longhaul.snapshots(wanted.filter()).await?;
    let heads: Vec<Head> = all.iter().filter(|head| wanted.fits(head, now)).cloned().collect();
    if args.json {
        heads.iter().try_for_each(|head| desk.term.json(head))?;
        return Ok(code);
    }
    if heads.is_empty() {
        desk.term.line(&desk.term.wrapped(&wanted.nothing(&all)))?;
        return Ok(code);
    }
    for line in view::tasks(&heads, desk.term, now, wanted.layout()) {
        desk.term.line(&line)?;
    }
    for (ink, line) in wanted.footer(&heads, all.len()) {
        desk.term.line(&desk.term.paint(ink, &desk.term.wrapped(&line)))?;
    }
    Ok(code)
}

/// Names the tasks that cannot be shown, and why.
async fn unloadable(desk: &Desk, longhaul: &Longhaul) -> Result<Code, Trouble> {
    let damaged = longhaul.store().check(false).await?;
    for damage in &damaged {
        desk.note(&format!("warning: {} cannot be loaded: {}", damage.task, damage.why));
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

    /// What the store can leave out already.
    fn filter(&self) -> Filter {
        match self.roots[..] {
            [root] => Filter::tree(root),
            _ => Filter::default(),
        }
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

    fn fits(&self, head: &Head, now: Timestamp) -> bool {
        let TasksArgs { state, agent, since, older_than, .. } = self.args;
        if !self.is_said() {
            return !head.status.is_final() || now.duration_since(head.active) < RECENT;
        }
        let age = std::time::Duration::try_from(now.duration_since(head.created)).unwrap_or_default();
        (state.is_empty() || state.iter().any(|state| stands(head, *state)))
            && (agent.is_empty() || agent.iter().any(|name| name == head.agent.as_str()))
            && (self.roots.is_empty() || self.roots.contains(&head.root))
            && since.is_none_or(|since| age <= since)
            && older_than.is_none_or(|older| age > older)
    }

    /// What to say where there is nothing to show.
    fn nothing(&self, all: &[Head]) -> String {
        if all.is_empty() {
            return "There are no tasks yet. `longhaul demo` makes some.".to_owned();
        }
        let known = |name: &String| all.iter().any(|head| head.agent.as_str() == name);
        if let Some(unknown) = self.args.agent.iter().find(|name| !known(name)) {
            let mut agents: Vec<String> = all.iter().map(|head| one_line(head.agent.as_str())).collect();
            agents.sort();
            agents.dedup();
            return format!(
                "No task is of an agent '{}'. There are tasks of: {}.",
                one_line(unknown),
                agents.join(", ")
            );
        }
        match self.is_said() {
            true => format!("None of {} fits.", many(all.len(), "task")),
            false => "No task is open, and none ended in the last day. `longhaul tasks --all` shows all."
                .to_owned(),
        }
    }

    /// What is said below the tasks: who needs somebody, and what is not shown.
    fn footer(&self, heads: &[Head], all: usize) -> Vec<(Ink, String)> {
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
        if heads.len() < all && !self.is_said() {
            footer.push((
                Ink::Faint,
                format!("{} older: longhaul tasks --all", many(all - heads.len(), "task")),
            ));
        }
        footer
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
