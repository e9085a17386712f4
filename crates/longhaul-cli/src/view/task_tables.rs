//! The table of tasks, and the summary of a run.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use longhaul::TaskId;
use longhaul::task::TaskState;

use super::text_format::{
    format_ago, format_clock, format_count, format_duration, format_price, format_short_count,
};
use super::text_table::{TableCell, TableColumn, format_table};
use super::{Ink, TerminalOutput, status_label};
use super::{describe_wait, one_line};

/// Returns the tasks in tree order, each with its branch prefix.
fn trees(heads: &[TaskState]) -> Vec<(String, &TaskState)> {
    let here: HashSet<TaskId> = heads.iter().map(|head| head.id).collect();
    let mut children: HashMap<TaskId, Vec<&TaskState>> = HashMap::new();
    let mut open = Vec::new();
    for head in heads {
        match head.parent.filter(|parent| here.contains(parent)) {
            Some(parent) => children.entry(parent).or_default().push(head),
            None => open.push((String::new(), "", head)),
        }
    }
    // The next task to draw is at the end.
    open.reverse();
    let mut drawn = Vec::with_capacity(heads.len());
    while let Some((indent, branch, head)) = open.pop() {
        let deeper = match branch {
            "" => String::new(),
            "└─ " => format!("{indent}   "),
            _ => format!("{indent}│  "),
        };
        drawn.push((format!("{indent}{branch}"), head));
        let below = children.remove(&head.id).unwrap_or_default();
        for (index, child) in below.into_iter().rev().enumerate() {
            open.push((deeper.clone(), if index == 0 { "└─ " } else { "├─ " }, child));
        }
    }
    drawn
}

/// Formats the elapsed time of a task, as every view shows it: `–` if it has not started. For a task that no
/// process runs, it ends with the last event.
pub(crate) fn time_of(head: &TaskState, now: Timestamp) -> String {
    if head.started.is_some() { format_duration(head.elapsed(now)) } else { "–".to_owned() }
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
    heads: &[TaskState],
    term: TerminalOutput,
    now: Timestamp,
    layout: TaskLayout,
) -> Vec<String> {
    let priced = heads.iter().any(|head| head.cost > 0 || head.unpriced > 0);
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
    let row = |(branch, head): (String, &TaskState)| {
        let (sign, word, ink) = status_label(head);
        let mut row = vec![
            TableCell::with_branch(branch, Ink::Id, head.id.to_string()),
            TableCell::new(ink, format!("{sign} {word}")),
            TableCell::new(Ink::Strong, one_line(head.agent.as_str())),
            TableCell::new(Ink::Plain, task_description(head)),
        ];
        if flat {
            let parent = head.parent.map_or_else(|| "–".to_owned(), |parent| parent.to_string());
            row.push(TableCell::new(Ink::Faint, parent));
        }
        row.extend([
            TableCell::new(Ink::Plain, time_of(head, now)),
            TableCell::new(Ink::Plain, format_count(head.turns.into())),
            TableCell::new(Ink::Plain, format_count(head.calls.into())),
            TableCell::new(Ink::Plain, format_short_count(head.usage.total())),
        ]);
        if priced {
            row.push(TableCell::new(Ink::Plain, format_price(head.cost, head.unpriced.into())));
        }
        row.push(TableCell::new(Ink::Faint, format_ago(head.created, now)));
        row
    };
    let rows: Vec<Vec<TableCell>> = match layout {
        TaskLayout::Tree => trees(heads).into_iter().map(row).collect(),
        TaskLayout::Table => heads.iter().map(|head| row((String::new(), head))).collect(),
    };
    format_table(&columns, &rows, term, term.size().0)
}

/// Describes a task, starting with what blocks it.
pub(crate) fn task_description(head: &TaskState) -> String {
    let headline = one_line(&head.headline);
    match (head.asked.first(), &head.waiting, &head.error) {
        (Some(asked), _, _) => {
            let until =
                asked.until.map(|until| format!(" (until {})", format_clock(until))).unwrap_or_default();
            format!("{}{until} · {headline}", one_line(&asked.text))
        }
        (None, Some(waiting), _) => format!("for {} · {headline}", describe_wait(&waiting.on)),
        (None, None, Some(error)) => format!("{} · {headline}", one_line(error)),
        (None, None, None) => headline,
    }
}

/// Returns the summary of a tree after a run.
pub(crate) fn summary_table(heads: &[TaskState], term: TerminalOutput, now: Timestamp) -> Vec<String> {
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
    let priced = heads.iter().any(|head| head.cost > 0 || head.unpriced > 0);
    // Show the cost column if anything was paid or a cost is unknown.
    let shown = if priced { 8 } else { 7 };
    let mut rows: Vec<Vec<TableCell>> = trees(heads)
        .into_iter()
        .map(|(branch, head)| {
            let (sign, word, ink) = status_label(head);
            vec![
                TableCell::with_branch(branch, Ink::Id, head.id.to_string()),
                TableCell::new(Ink::Strong, one_line(head.agent.as_str())),
                TableCell::new(ink, format!("{sign} {word}")),
                TableCell::new(Ink::Plain, time_of(head, now)),
                TableCell::new(Ink::Plain, format_count(head.turns.into())),
                TableCell::new(Ink::Plain, format_count(head.calls.into())),
                TableCell::new(Ink::Plain, format_count(head.usage.total())),
                TableCell::new(Ink::Plain, format_price(head.cost, head.unpriced.into())),
            ]
        })
        .collect();
    if heads.len() > 1 {
        let sum = |of: fn(&TaskState) -> u64| format_count(heads.iter().map(of).sum());
        let first = heads.iter().filter_map(|head| head.started).min();
        let last = heads.iter().map(|head| head.ended.unwrap_or(now)).max();
        let whole =
            first.zip(last).map(|(first, last)| std::time::Duration::try_from(last.duration_since(first)));
        rows.push(vec![
            TableCell::new(Ink::Strong, format!("{} tasks", heads.len())),
            TableCell::new(Ink::Plain, ""),
            TableCell::new(Ink::Plain, ""),
            TableCell::new(Ink::Strong, whole.and_then(Result::ok).map_or_else(String::new, format_duration)),
            TableCell::new(Ink::Strong, sum(|head| head.turns.into())),
            TableCell::new(Ink::Strong, sum(|head| head.calls.into())),
            TableCell::new(Ink::Strong, sum(|head| head.usage.total())),
            TableCell::new(
                Ink::Strong,
                format_price(
                    heads.iter().map(|head| head.cost).sum(),
                    heads.iter().map(|head| u64::from(head.unpriced)).sum(),
                ),
            ),
        ]);
    }
    format_table(&COLUMNS[..shown], &rows, term, term.size().0)
}
