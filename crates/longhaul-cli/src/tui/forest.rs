//! The trees of tasks as lines: grouped, folded, searched, and summed up where they are folded.

use std::collections::{HashMap, HashSet};

use indexmap::{IndexMap, IndexSet};
use jiff::Timestamp;
use longhaul::task::Head;
use longhaul::{Status, TaskId};

use crate::view::one_line;

/// What a tree is to whoever watches: the most pressing thing in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Group {
    /// A person has pinned it.
    Pinned,
    /// It asks something, or nobody runs it.
    NeedsYou,
    /// Something happens in it.
    Working,
    /// All in it waits.
    Waiting,
    /// All in it has ended.
    Finished,
}

impl Group {
    pub(crate) fn title(self) -> &'static str {
        match self {
            Group::Pinned => "Pinned",
            Group::NeedsYou => "Needs you",
            Group::Working => "Working",
            Group::Waiting => "Waiting",
            Group::Finished => "Finished",
        }
    }

    /// The group of one task.
    pub(crate) fn of(head: &Head, now: Timestamp) -> Group {
        match head.status {
            status if status.is_final() => Group::Finished,
            _ if !head.asked.is_empty() || is_interrupted(head) => Group::NeedsYou,
            Status::Running if head.waits_at(now).is_none() => Group::Working,
            _ => Group::Waiting,
        }
    }
}

/// Whether it was begun, and nobody runs it now.
pub(crate) fn is_interrupted(head: &Head) -> bool {
    head.status == Status::Pending && head.attempt.0 > 0
}

/// What a task and all below it are together.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Sum {
    /// How many tasks are below it.
    pub(crate) below: usize,
    pub(crate) tokens: u64,
    pub(crate) cost: u64,
    /// Replies of which nobody knows what they cost.
    pub(crate) unpriced: u64,
    /// The first below it, or itself, that asks something.
    pub(crate) asks: Option<TaskId>,
    group: Option<Group>,
}

/// A line of the list.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Row {
    /// The title of a group, and how many trees are in it.
    Title(Group, usize),
    /// Nothing.
    Gap,
    /// A task.
    Task(Place),
    /// What the task above this line does.
    Doing(Place),
}

impl Row {
    /// The task of this line.
    pub(crate) fn task(&self) -> Option<TaskId> {
        match self {
            Row::Task(place) | Row::Doing(place) => Some(place.id),
            _ => None,
        }
    }
}

/// Where in its tree a task is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Place {
    pub(crate) id: TaskId,
    pub(crate) depth: u16,
    /// At which levels above it, its own included, more tasks follow.
    pub(crate) more: u32,
    pub(crate) folded: bool,
    /// Whether anything is below it.
    pub(crate) parent: bool,
}

/// What the lines are made of.
pub(crate) struct Plan<'a> {
    pub(crate) heads: &'a IndexMap<TaskId, Head>,
    pub(crate) folded: &'a HashSet<TaskId>,
    pub(crate) pinned: &'a IndexSet<TaskId>,
    pub(crate) grouped: bool,
    pub(crate) gaps: bool,
    /// Only tasks in which these words occur, and those above them.
    pub(crate) search: &'a str,
    pub(crate) now: Timestamp,
}

/// The lines, and what tasks are together with those below them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Forest {
    pub(crate) rows: Vec<Row>,
    pub(crate) sums: HashMap<TaskId, Sum>,
}

impl Forest {
    /// Makes the lines.
    pub(crate) fn grow(plan: &Plan<'_>) -> Forest {
        let mut children: HashMap<TaskId, Vec<&Head>> = HashMap::new();
        let mut tops: Vec<&Head> = Vec::new();
        for head in plan.heads.values() {
            match head.parent.filter(|parent| plan.heads.contains_key(parent)) {
                Some(parent) => children.entry(parent).or_default().push(head),
                None => tops.push(head),
            }
        }
        let mut sums = HashMap::with_capacity(plan.heads.len());
        for top in &tops {
            sum(top, &children, plan.now, &mut sums);
        }
        let words: Vec<String> = plan.search.split_whitespace().map(str::to_lowercase).collect();
        let hits = (!words.is_empty()).then(|| hits(plan.heads, &words));
        // The newest first.
        tops.reverse();
        let mut trees: Vec<(Group, &Head)> = tops
            .into_iter()
            .filter(|top| hits.as_ref().is_none_or(|hits| hits.contains(&top.id)))
            .map(|top| {
                let pinned = plan.pinned.contains(&top.id);
                let group = sums.get(&top.id).and_then(|sum| sum.group).unwrap_or(Group::Finished);
                (if pinned { Group::Pinned } else { group }, top)
            })
            .collect();
        if plan.grouped {
            trees.sort_by_key(|(group, _)| *group);
        } else {
            trees.sort_by_key(|(group, _)| *group != Group::Pinned);
        }
        let mut grower = Grower { plan, children: &children, hits: hits.as_ref(), rows: Vec::new() };
        let mut last = None;
        for (group, top) in &trees {
            if plan.grouped && last != Some(*group) {
                if plan.gaps && last.is_some() {
                    grower.rows.push(Row::Gap);
                }
                let many = trees.iter().filter(|(other, _)| other == group).count();
                grower.rows.push(Row::Title(*group, many));
                last = Some(*group);
            }
            grower.grow(top, 0, 0);
        }
        Forest { rows: grower.rows, sums }
    }

    /// Where a task's line is.
    pub(crate) fn line(&self, id: TaskId) -> Option<usize> {
        self.rows.iter().position(|row| matches!(row, Row::Task(place) if place.id == id))
    }
}

struct Grower<'a> {
    plan: &'a Plan<'a>,
    children: &'a HashMap<TaskId, Vec<&'a Head>>,
    hits: Option<&'a HashSet<TaskId>>,
    rows: Vec<Row>,
}

impl Grower<'_> {
    fn grow(&mut self, head: &Head, depth: u16, more: u32) {
        let none = Vec::new();
        let all = self.children.get(&head.id).unwrap_or(&none);
        let shown: Vec<&&Head> =
            all.iter().filter(|child| self.hits.is_none_or(|hits| hits.contains(&child.id))).collect();
        // What is searched for is not hidden.
        let folded = !all.is_empty() && self.hits.is_none() && self.plan.folded.contains(&head.id);
        let place = Place { id: head.id, depth, more, folded, parent: !all.is_empty() };
        self.rows.push(Row::Task(place));
        if !head.status.is_final() || head.status == Status::Failed {
            self.rows.push(Row::Doing(place));
        }
        if folded {
            return;
        }
        for (index, child) in shown.iter().enumerate() {
            let bit = if depth < 31 { 1 << depth } else { 0 };
            let more = if index + 1 < shown.len() { more | bit } else { more & !bit };
            self.grow(child, depth + 1, more);
        }
    }
}

fn sum(
    head: &Head,
    children: &HashMap<TaskId, Vec<&Head>>,
    now: Timestamp,
    sums: &mut HashMap<TaskId, Sum>,
) -> Sum {
    let mut whole = Sum {
        below: 0,
        tokens: head.usage.total(),
        cost: head.cost,
        unpriced: head.unpriced.into(),
        asks: (!head.status.is_final() && !head.asked.is_empty()).then_some(head.id),
        group: Some(Group::of(head, now)),
    };
    for child in children.get(&head.id).into_iter().flatten() {
        let part = sum(child, children, now, sums);
        whole.below += 1 + part.below;
        whole.tokens = whole.tokens.saturating_add(part.tokens);
        whole.cost = whole.cost.saturating_add(part.cost);
        whole.unpriced += part.unpriced;
        whole.asks = whole.asks.or(part.asks);
        whole.group = whole.group.min(part.group);
    }
    sums.insert(head.id, whole);
    whole
}

/// The tasks in which all words occur, and those above them.
fn hits(heads: &IndexMap<TaskId, Head>, words: &[String]) -> HashSet<TaskId> {
    let mut hits = HashSet::new();
    for head in heads.values() {
        let text = format!("{} {} {} {}", head.id, head.agent, one_line(&head.headline), head.status);
        let text = text.to_lowercase();
        if !words.iter().all(|word| text.contains(word)) {
            continue;
        }
        let mut at = Some(head);
        while let Some(head) = at {
            if !hits.insert(head.id) {
                break;
            }
            at = head.parent.and_then(|parent| heads.get(&parent));
        }
    }
    hits
}

#[cfg(test)]
#[path = "forest_tests.rs"]
mod tests;
