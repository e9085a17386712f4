//! The table of tasks, and the summary of a run.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use longhaul::TaskId;
use longhaul::task::TaskState;
use longhaul::transcript::Activity;

use super::text_format::{
    format_ago, format_clock, format_count, format_duration, format_price, format_short_count,
};
use super::text_table::{TableCell, TableColumn, format_table};
use super::{Ink, TerminalOutput, one_line, status_label};

/// Returns the tasks in tree order, each with its branch prefix.
fn trees(states: &[TaskState]) -> Vec<(String, &TaskState)> {
    let here: HashSet<TaskId> = states.iter().map(|state| state.id).collect();
    let mut children: HashMap<TaskId, Vec<&TaskState>> = HashMap::new();
    let mut open = Vec::new();
    for state in states {
        match state.parent.filter(|parent| here.contains(parent)) {
            Some(parent) => children.entry(parent).or_default().push(state),
            None => open.push((String::new(), "", state)),
        }
    }
    // The next task to draw is at the end.
    open.reverse();
    let mut drawn = Vec::with_capacity(states.len());
    while let Some((indent, branch, state)) = open.pop() {
        let deeper = match branch {
            "" => String::new(),
            "└─ " => format!("{indent}   "),
            _ => format!("{indent}│  "),
        };
        drawn.push((format!("{indent}{branch}"), state));
        let below = children.remove(&state.id).unwrap_or_default();
        for (index, child) in below.into_iter().rev().enumerate() {
            open.push((deeper.clone(), if index == 0 { "└─ " } else { "├─ " }, child));
        }
    }
    drawn
}

/// Formats the elapsed time of a task, as every view shows it: `–` if it has not started. For a task that no
/// process runs, it ends with the last event.
pub(crate) fn time_of(state: &TaskState, now: Timestamp) -> String {
    if state.started.is_some() { format_duration(state.elapsed(now)) } else { "–".to_owned() }
}

/// How to lay out tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TaskLayout {
    /// Children below their parents.
    Tree,
    /// A flat list, in order of submission.
    Table,
}

/// Returns the table of `longhaul tasks`.
pub(crate) fn task_table(
    states: &[TaskState],
    term: TerminalOutput,
    now: Timestamp,
    layout: TaskLayout,
) -> Vec<String> {
    let priced = states.iter().any(|state| state.cost > 0 || state.unpriced > 0);
    let flat = layout == TaskLayout::Table;
    let mut columns =
        vec![TableColumn::text("TASK", 0), TableColumn::text("STATUS", 0), TableColumn::text("AGENT", 1)];
    columns.push(TableColumn::elastic("WHAT", 12).prefer_width(28));
    if flat {
        columns.push(TableColumn::text("PARENT", 7));
    }
    columns.extend([
        TableColumn::number("ELAPSED", 2),
        TableColumn::number("TURNS", 6),
        TableColumn::number("TOOLS", 5),
        TableColumn::number("TOKENS", 4),
    ]);
    if priced {
        columns.push(TableColumn::number("COST", 4));
    }
    columns.push(TableColumn::text("AGE", 3));
    let row = |(branch, state): (String, &TaskState)| {
        let (sign, word, ink) = status_label(state);
        let mut row = vec![
            TableCell::with_branch(branch, Ink::Id, state.id.to_string()),
            TableCell::new(ink, format!("{sign} {word}")),
            TableCell::new(Ink::Strong, one_line(state.agent.as_str())),
            TableCell::new(Ink::Plain, task_description(state, now)),
        ];
        if flat {
            let parent = state.parent.map_or_else(|| "–".to_owned(), |parent| parent.to_string());
            row.push(TableCell::new(Ink::Faint, parent));
        }
        row.extend([
            TableCell::new(Ink::Plain, time_of(state, now)),
            TableCell::new(Ink::Plain, format_count(state.turns.into())),
            TableCell::new(Ink::Plain, format_count(state.calls.into())),
            TableCell::new(Ink::Plain, format_short_count(state.usage.total())),
        ]);
        if priced {
            row.push(TableCell::new(Ink::Plain, format_price(state.cost, state.unpriced.into())));
        }
        row.push(TableCell::new(Ink::Faint, format_ago(state.created, now)));
        row
    };
    let rows: Vec<Vec<TableCell>> = match layout {
        TaskLayout::Tree => trees(states).into_iter().map(row).collect(),
        TaskLayout::Table => states.iter().map(|state| row((String::new(), state))).collect(),
    };
    format_table(&columns, &rows, term, term.size().0)
}

/// Describes a task, starting with what blocks it.
pub(crate) fn task_description(state: &TaskState, now: Timestamp) -> String {
    let headline = one_line(&state.headline);
    let until = state.asked.first().and_then(|asked| asked.until);
    match Activity::from_state(state, "", now) {
        Activity::Asking(what) => {
            let until = until.map(|until| format!(" (until {})", format_clock(until))).unwrap_or_default();
            format!("{what}{until} · {headline}")
        }
        Activity::Waiting(what) => format!("for {what} · {headline}"),
        Activity::Failed(why) => format!("{why} · {headline}"),
        Activity::CutShort(limit) => format!("cut short by {limit} · {headline}"),
        _ => headline,
    }
}

/// Returns the summary of a tree after a run.
pub(crate) fn summary_table(states: &[TaskState], term: TerminalOutput, now: Timestamp) -> Vec<String> {
    const COLUMNS: [TableColumn; 8] = [
        TableColumn::text("TASK", 0),
        TableColumn::elastic("AGENT", 6),
        TableColumn::text("STATUS", 0),
        TableColumn::number("ELAPSED", 2),
        TableColumn::number("TURNS", 5),
        TableColumn::number("TOOLS", 4),
        TableColumn::number("TOKENS", 3),
        TableColumn::number("COST", 1),
    ];
    let priced = states.iter().any(|state| state.cost > 0 || state.unpriced > 0);
    // Show the cost column if anything was paid or a cost is unknown.
    let shown = if priced { 8 } else { 7 };
    let mut rows: Vec<Vec<TableCell>> = trees(states)
        .into_iter()
        .map(|(branch, state)| {
            let (sign, word, ink) = status_label(state);
            vec![
                TableCell::with_branch(branch, Ink::Id, state.id.to_string()),
                TableCell::new(Ink::Strong, one_line(state.agent.as_str())),
                TableCell::new(ink, format!("{sign} {word}")),
                TableCell::new(Ink::Plain, time_of(state, now)),
                TableCell::new(Ink::Plain, format_count(state.turns.into())),
                TableCell::new(Ink::Plain, format_count(state.calls.into())),
                TableCell::new(Ink::Plain, format_count(state.usage.total())),
                TableCell::new(Ink::Plain, format_price(state.cost, state.unpriced.into())),
            ]
        })
        .collect();
    if states.len() > 1 {
        let sum = |of: fn(&TaskState) -> u64| format_count(states.iter().map(of).sum());
        let first = states.iter().filter_map(|state| state.started).min();
        let last = states.iter().map(|state| state.ended.unwrap_or(now)).max();
        let whole =
            first.zip(last).map(|(first, last)| std::time::Duration::try_from(last.duration_since(first)));
        rows.push(vec![
            TableCell::new(Ink::Strong, format!("{} tasks", states.len())),
            TableCell::new(Ink::Plain, ""),
            TableCell::new(Ink::Plain, ""),
            TableCell::new(Ink::Strong, whole.and_then(Result::ok).map_or_else(String::new, format_duration)),
            TableCell::new(Ink::Strong, sum(|state| state.turns.into())),
            TableCell::new(Ink::Strong, sum(|state| state.calls.into())),
            TableCell::new(Ink::Strong, sum(|state| state.usage.total())),
            TableCell::new(
                Ink::Strong,
                format_price(
                    states.iter().map(|state| state.cost).sum(),
                    states.iter().map(|state| u64::from(state.unpriced)).sum(),
                ),
            ),
        ]);
    }
    format_table(&COLUMNS[..shown], &rows, term, term.size().0)
}
