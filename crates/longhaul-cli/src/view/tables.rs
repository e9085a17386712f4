//! The tables: what there is, and what has been done.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use longhaul::TaskId;
use longhaul::task::Head;

use super::clean::one_line;
use super::grid::{Cell, Column, grid};
use super::tell::waits_for;
use super::words::{ago, count, dollars, elapsed, short};
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

fn time(head: &Head, now: Timestamp) -> String {
    if head.started.is_some() { elapsed(head.elapsed(now)) } else { "–".to_owned() }
}

/// `longhaul tasks`.
pub(crate) fn tasks(heads: &[Head], term: Term, now: Timestamp) -> Vec<String> {
    const COLUMNS: [Column; 9] = [
        Column::words("TASK", 0),
        Column::words("STATUS", 0),
        Column::words("AGENT", 1),
        Column::elastic("WHAT", 12),
        Column::numbers("ELAPSED", 2),
        Column::numbers("TURNS", 6),
        Column::numbers("TOOLS", 5),
        Column::numbers("TOKENS", 4),
        Column::words("AGE", 3),
    ];
    let rows: Vec<Vec<Cell>> = trees(heads)
        .into_iter()
        .map(|(branch, head)| {
            let (sign, word, ink) = standing(head);
            let what = match (&head.waiting, &head.error) {
                _ if !head.asked.is_empty() => {
                    let asked = head.asked.first().map(|asked| one_line(&asked.text)).unwrap_or_default();
                    format!("{asked} · {}", one_line(&head.headline))
                }
                (Some(waiting), _) => {
                    format!("for {} · {}", waits_for(&waiting.on), one_line(&head.headline))
                }
                (None, Some(error)) => format!("{} · {}", one_line(error), one_line(&head.headline)),
                (None, None) => one_line(&head.headline),
            };
            vec![
                Cell::below(branch, Ink::Id, head.id.to_string()),
                Cell::new(ink, format!("{sign} {word}")),
                Cell::new(Ink::Strong, one_line(head.agent.as_str())),
                Cell::new(Ink::Plain, what),
                Cell::new(Ink::Plain, time(head, now)),
                Cell::new(Ink::Plain, count(head.turns.into())),
                Cell::new(Ink::Plain, count(head.calls.into())),
                Cell::new(Ink::Plain, short(head.usage.total())),
                Cell::new(Ink::Faint, ago(head.created, now)),
            ]
        })
        .collect();
    grid(&COLUMNS, &rows, term, term.size().0)
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
    let priced = heads.iter().any(|head| head.cost > 0);
    // What nothing cost, or nobody knows the price of, has no column.
    let shown = if priced { 8 } else { 7 };
    let cost = |cost: u64| if cost > 0 { dollars(cost) } else { "–".to_owned() };
    let mut rows: Vec<Vec<Cell>> = trees(heads)
        .into_iter()
        .map(|(branch, head)| {
            let (sign, word, ink) = standing(head);
            vec![
                Cell::below(branch, Ink::Id, head.id.to_string()),
                Cell::new(Ink::Strong, one_line(head.agent.as_str())),
                Cell::new(ink, format!("{sign} {word}")),
                Cell::new(Ink::Plain, time(head, now)),
                Cell::new(Ink::Plain, count(head.turns.into())),
                Cell::new(Ink::Plain, count(head.calls.into())),
                Cell::new(Ink::Plain, count(head.usage.total())),
                Cell::new(Ink::Plain, cost(head.cost)),
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
            Cell::new(Ink::Strong, cost(heads.iter().map(|head| head.cost).sum())),
        ]);
    }
    grid(&COLUMNS[..shown], &rows, term, term.size().0)
}
