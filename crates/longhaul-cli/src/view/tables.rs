//! The tables: what there is, and what has been done.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use longhaul::TaskId;
use longhaul::task::Head;

use super::clean::one_line;
use super::grid::{Cell, Column, grid};
use super::tell::waits_for;
use super::words::{ago, clock, count, elapsed, price, short};
use super::{Ink, Term, standing};

/// Tasks in the order of trees: each with what is drawn before it.
fn trees(heads: &[Head]) -> Vec<(String, &Head)> {
    let here: HashSet<TaskId> = heads.iter().map(|head| head.id).collect();
    let mut children: HashMap<TaskId, Vec<&Head>> = HashMap::new();
    let mut open = Vec::new();
    for head in heads {
        match head.parent.filter(|parent| here.contains(parent)) {
            Some(parent) => children.entry(parent).or_default().push(head),
            None => open.push((String::new(), "", head)),
        }
    }
    // What is to be drawn next is at the end.
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

/// How long a task has been there, as every view shows it; of one that nobody runs, until anything last happened to it.
pub(crate) fn time_of(head: &Head, now: Timestamp) -> String {
    if head.started.is_some() { elapsed(head.elapsed(now)) } else { "–".to_owned() }
}

/// How tasks are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Children below their parents.
    Tree,
    /// One after another, in order of submission.
    Table,
}

/// `longhaul tasks`.
pub(crate) fn tasks(heads: &[Head], term: Term, now: Timestamp, layout: Layout) -> Vec<String> {
    let priced = heads.iter().any(|head| head.cost > 0 || head.unpriced > 0);
    let flat = layout == Layout::Table;
    let mut columns = vec![Column::words("TASK", 0), Column::words("STATUS", 0), Column::words("AGENT", 1)];
    columns.push(Column::elastic("WHAT", 12).wishes(28));
    if flat {
        columns.push(Column::words("PARENT", 7));
    }
    columns.extend([
        Column::numbers("ELAPSED", 2),
        Column::numbers("TURNS", 6),
        Column::numbers("TOOLS", 5),
        Column::numbers("TOKENS", 4),
    ]);
    if priced {
        columns.push(Column::numbers("COST", 4));
    }
    columns.push(Column::words("AGE", 3));
    let row = |(branch, head): (String, &Head)| {
        let (sign, word, ink) = standing(head);
        let mut row = vec![
            Cell::below(branch, Ink::Id, head.id.to_string()),
            Cell::new(ink, format!("{sign} {word}")),
            Cell::new(Ink::Strong, one_line(head.agent.as_str())),
            Cell::new(Ink::Plain, what(head)),
        ];
        if flat {
            let parent = head.parent.map_or_else(|| "–".to_owned(), |parent| parent.to_string());
            row.push(Cell::new(Ink::Faint, parent));
        }
        row.extend([
            Cell::new(Ink::Plain, time_of(head, now)),
            Cell::new(Ink::Plain, count(head.turns.into())),
            Cell::new(Ink::Plain, count(head.calls.into())),
            Cell::new(Ink::Plain, short(head.usage.total())),
        ]);
        if priced {
            row.push(Cell::new(Ink::Plain, price(head.cost, head.unpriced.into())));
        }
        row.push(Cell::new(Ink::Faint, ago(head.created, now)));
        row
    };
    let rows: Vec<Vec<Cell>> = match layout {
        Layout::Tree => trees(heads).into_iter().map(row).collect(),
        Layout::Table => heads.iter().map(|head| row((String::new(), head))).collect(),
    };
    grid(&columns, &rows, term, term.size().0)
}

/// What a task is about, and first of all what keeps it.
pub(crate) fn what(head: &Head) -> String {
    let headline = one_line(&head.headline);
    match (head.asked.first(), &head.waiting, &head.error) {
        (Some(asked), _, _) => {
            let until = asked.until.map(|until| format!(" (until {})", clock(until))).unwrap_or_default();
            format!("{}{until} · {headline}", one_line(&asked.text))
        }
        (None, Some(waiting), _) => format!("for {} · {headline}", waits_for(&waiting.on)),
        (None, None, Some(error)) => format!("{} · {headline}", one_line(error)),
        (None, None, None) => headline,
    }
}

/// What a tree has done, in the end.
pub(crate) fn summary(heads: &[Head], term: Term, now: Timestamp) -> Vec<String> {
    const COLUMNS: [Column; 8] = [
        Column::words("TASK", 0),
        Column::elastic("AGENT", 6),
        Column::words("STATUS", 0),
        Column::numbers("ELAPSED", 2),
        Column::numbers("TURNS", 5),
        Column::numbers("TOOLS", 4),
        Column::numbers("TOKENS", 3),
        Column::numbers("COST", 1),
    ];
    let priced = heads.iter().any(|head| head.cost > 0 || head.unpriced > 0);
    // Where nothing was paid there is no column; where nobody knows what was paid there is.
    let shown = if priced { 8 } else { 7 };
    let mut rows: Vec<Vec<Cell>> = trees(heads)
        .into_iter()
        .map(|(branch, head)| {
            let (sign, word, ink) = standing(head);
            vec![
                Cell::below(branch, Ink::Id, head.id.to_string()),
                Cell::new(Ink::Strong, one_line(head.agent.as_str())),
                Cell::new(ink, format!("{sign} {word}")),
                Cell::new(Ink::Plain, time_of(head, now)),
                Cell::new(Ink::Plain, count(head.turns.into())),
                Cell::new(Ink::Plain, count(head.calls.into())),
                Cell::new(Ink::Plain, count(head.usage.total())),
                Cell::new(Ink::Plain, price(head.cost, head.unpriced.into())),
            ]
        })
        .collect();
    if heads.len() > 1 {
        let sum = |of: fn(&Head) -> u64| count(heads.iter().map(of).sum());
        let first = heads.iter().filter_map(|head| head.started).min();
        let last = heads.iter().map(|head| head.ended.unwrap_or(now)).max();
        let whole =
            first.zip(last).map(|(first, last)| std::time::Duration::try_from(last.duration_since(first)));
        rows.push(vec![
            Cell::new(Ink::Strong, format!("{} tasks", heads.len())),
            Cell::new(Ink::Plain, ""),
            Cell::new(Ink::Plain, ""),
            Cell::new(Ink::Strong, whole.and_then(Result::ok).map_or_else(String::new, elapsed)),
            Cell::new(Ink::Strong, sum(|head| head.turns.into())),
            Cell::new(Ink::Strong, sum(|head| head.calls.into())),
            Cell::new(Ink::Strong, sum(|head| head.usage.total())),
            Cell::new(
                Ink::Strong,
                price(
                    heads.iter().map(|head| head.cost).sum(),
                    heads.iter().map(|head| u64::from(head.unpriced)).sum(),
                ),
            ),
        ]);
    }
    grid(&COLUMNS[..shown], &rows, term, term.size().0)
}
