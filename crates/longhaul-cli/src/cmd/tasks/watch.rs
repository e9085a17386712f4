//! `longhaul tasks --watch`: redraws when the store hints that something has changed. In a pipe, prints the
//! changes.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use longhaul::entry::EntryKind;
use longhaul::store::{EntryKinds, Hint, HintStream};
use longhaul::task::TaskState;
use longhaul::{Longhaul, Status, TaskId};

use super::TaskSelection;
use crate::cmd::CliContext;
use crate::exit::{CliError, CliExitCode};
use crate::view::{
    self, Ink, StyledLine, align_left, display_width, format_clock, one_line, pluralize, status_label,
    truncate,
};

/// Changes within this time are handled together.
const CHANGE_DEBOUNCE: Duration = Duration::from_millis(150);
/// Elapsed times advance even if nothing happens.
const TICK: Duration = Duration::from_secs(1);
/// Hints may be lost, and a process that dies sends none.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Watches until Ctrl-C.
pub(super) async fn run(
    context: &CliContext,
    longhaul: &Longhaul,
    wanted: &TaskSelection<'_>,
) -> Result<CliExitCode, CliError> {
    let drawn = context.term.live && !wanted.args.json;
    // Subscribe before the first read, so that no change is missed.
    let mut hints = longhaul.store().hints();
    let mut seen = PrintedStates::default();
    let gone = tokio::signal::ctrl_c();
    tokio::pin!(gone);
    let mut states = list_tasks(longhaul, wanted).await?;
    loop {
        if drawn {
            draw(context, wanted, &states)?;
        } else {
            seen.print_changes(context, wanted, &states)?;
        }
        let busy = drawn && states.0.iter().any(|state| state.status == Status::Running);
        tokio::select! {
            () = wait_for_change(&mut hints) => states = list_tasks(longhaul, wanted).await?,
            () = tokio::time::sleep(POLL_INTERVAL), if !busy => states = list_tasks(longhaul, wanted).await?,
            () = tokio::time::sleep(TICK), if busy => {
                if states.1.elapsed() >= POLL_INTERVAL {
                    states = list_tasks(longhaul, wanted).await?;
                }
            }
            _ = &mut gone => return Ok(CliExitCode::Success),
        }
    }
}

/// The tasks, when they were read, and how many older ones there are.
struct TaskListing(Vec<TaskState>, std::time::Instant, usize);

async fn list_tasks(longhaul: &Longhaul, wanted: &TaskSelection<'_>) -> Result<TaskListing, CliError> {
    let now = Timestamp::now();
    let states = wanted.list(longhaul, now).await?;
    let older = wanted.count_older(longhaul, now).await?;
    Ok(TaskListing(states, std::time::Instant::now(), older))
}

/// Waits for a change, and a little longer for others that come with it.
async fn wait_for_change(hints: &mut HintStream) {
    // Streamed text changes nothing that is shown here.
    let said = EntryKinds::from_kinds([EntryKind::Said]);
    loop {
        match hints.next().await {
            Some(Hint::Task { kinds, .. }) if kinds == said => {}
            Some(_) => break,
            None => std::future::pending().await,
        }
    }
    tokio::time::sleep(CHANGE_DEBOUNCE).await;
}

fn draw(
    context: &CliContext,
    wanted: &TaskSelection<'_>,
    TaskListing(states, _, older): &TaskListing,
) -> Result<(), CliError> {
    let (term, now) = (context.term, Timestamp::now());
    let (columns, rows) = term.size();
    let footer = wanted.footer(states, *older);
    // Leave room for the titles, the line about hidden tasks, and the cursor.
    let room = rows.saturating_sub(footer.len() + 3).max(1);
    let shown = most_relevant(states, room);
    let mut lines = match states.is_empty() {
        true => vec![term.paint(Ink::Faint, &truncate("nothing to show yet", columns))],
        false => view::task_table(&shown, term, now, wanted.layout()),
    };
    if shown.len() < states.len() {
        let more = format!("… and {}", pluralize(states.len() - shown.len(), "more task"));
        lines.push(term.paint(Ink::Faint, &truncate(&more, columns)));
    }
    lines.extend(footer.iter().map(|(ink, text)| term.paint(*ink, &truncate(text, columns))));
    let lines: Vec<StyledLine> =
        lines.into_iter().map(|text| StyledLine { width: styled_width(&text), text }).collect();
    Ok(context.screen.draw(&lines, columns)?)
}

/// Returns the width of a line with colour codes.
fn styled_width(text: &str) -> usize {
    display_width(&view::sanitize(text))
}

/// Returns as many tasks as fit: open tasks with all their ancestors, then the newest.
fn most_relevant(states: &[TaskState], room: usize) -> Vec<TaskState> {
    if states.len() <= room {
        return states.to_vec();
    }
    let at: HashMap<TaskId, usize> =
        states.iter().enumerate().map(|(index, state)| (state.id, index)).collect();
    let mut chosen = vec![false; states.len()];
    let mut left = room;
    let open = states.iter().enumerate().filter(|(_, state)| !state.status.is_final());
    let ended = states.iter().enumerate().rev().filter(|(_, state)| state.status.is_final());
    for (index, _) in open.chain(ended) {
        let mut line = Vec::new();
        let mut next = Some(index);
        while let Some(index) = next.filter(|index| !chosen[*index]) {
            line.push(index);
            next = states[index].parent.and_then(|parent| at.get(&parent).copied());
        }
        if line.len() <= left {
            left -= line.len();
            line.into_iter().for_each(|index| chosen[index] = true);
        }
    }
    states.iter().zip(chosen).filter(|(_, chosen)| *chosen).map(|(state, _)| state.clone()).collect()
}

/// What was last printed about each task.
#[derive(Default)]
struct PrintedStates(HashMap<TaskId, (&'static str, String)>);

impl PrintedStates {
    fn print_changes(
        &mut self,
        context: &CliContext,
        wanted: &TaskSelection<'_>,
        TaskListing(states, ..): &TaskListing,
    ) -> Result<(), CliError> {
        let now = Timestamp::now();
        for state in states {
            let (sign, word, _) = status_label(state);
            let stands = (word, view::task_description(state, now));
            if self.0.get(&state.id) == Some(&stands) {
                continue;
            }
            if wanted.args.json {
                context.term.print_json(state)?;
            } else {
                let (at, agent) = (format_clock(state.active), one_line(state.agent.as_str()));
                let what = &stands.1;
                context.term.print_line(&format!(
                    "{at}  {}  {sign} {}  {}  {what}",
                    state.id,
                    align_left(word, 11),
                    align_left(&agent, 12)
                ))?;
            }
            self.0.insert(state.id, stands);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul::entry::{Entry, Order, Record, Submission, TeamRef};
    use longhaul::id::{Seq, TaskKey};

    fn task(name: &str, parent: Option<&TaskState>, status: Status) -> TaskState {
        let id = TaskKey::named(name).candidate_ids().next().unwrap();
        let submitted = Submission {
            parent: parent.map(|parent| parent.id),
            ..Submission::root(
                parent.map_or(id, |parent| parent.root),
                TaskKey::named(name),
                Order::new("a", name),
                TeamRef::Named("t".into()),
            )
        };
        let entry = Entry::Submitted(Box::new(submitted));
        let mut state =
            TaskState::begin(id, &Record { seq: Seq(1), at: Timestamp::UNIX_EPOCH, entry }).unwrap();
        state.status = status;
        state
    }

    #[test]
    fn where_there_is_little_room_the_open_ones_stay_with_those_above_them() {
        let done: Vec<TaskState> =
            (0..9).map(|n| task(&format!("done {n}"), None, Status::Completed)).collect();
        let root = task("root", None, Status::Completed);
        let child = task("child", Some(&root), Status::Running);
        let mut states = done.clone();
        states.insert(3, root.clone());
        states.insert(4, child.clone());
        let ids = |room| most_relevant(&states, room).iter().map(|state| state.id).collect::<Vec<_>>();
        assert_eq!(ids(2), [root.id, child.id]);
        assert_eq!(ids(3), [root.id, child.id, done[8].id]);
        assert_eq!(ids(99).len(), 11);
        assert_eq!(ids(1), [done[8].id], "an open one for which there is no room with its parent gives way");
    }
}
