//! The trees of tasks as lines: grouped, folded, searched, and summed up where they are folded.

use std::collections::{HashMap, HashSet};

use indexmap::{IndexMap, IndexSet};
use jiff::Timestamp;
use longhaul::task::TaskState;
use longhaul::{Status, TaskId};

use crate::view::one_line;

/// What a tree is to whoever watches: the most pressing thing in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum TuiGroup {
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

impl TuiGroup {
    pub(crate) fn title(self) -> &'static str {
        match self {
            TuiGroup::Pinned => "Pinned",
            TuiGroup::NeedsYou => "Needs you",
            TuiGroup::Working => "Working",
            TuiGroup::Waiting => "Waiting",
            TuiGroup::Finished => "Finished",
        }
    }

    /// The group of one task.
    pub(crate) fn for_task(head: &TaskState, now: Timestamp) -> TuiGroup {
        match head.status {
            status if status.is_final() => TuiGroup::Finished,
            _ if !head.asked.is_empty() || is_interrupted(head) => TuiGroup::NeedsYou,
            Status::Running if head.waiting_at(now).is_none() => TuiGroup::Working,
            _ => TuiGroup::Waiting,
        }
    }
}

/// Whether it was begun, and nobody runs it now.
pub(crate) fn is_interrupted(head: &TaskState) -> bool {
    head.status == Status::Pending && head.attempt.0 > 0
}

/// What a task and all below it are together.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct SubtreeTotals {
    /// How many tasks are below it.
    pub(crate) descendants: usize,
    pub(crate) tokens: u64,
    pub(crate) cost: u64,
    /// Replies of which nobody knows what they cost.
    pub(crate) unpriced: u64,
    /// The first below it, or itself, that asks something.
    pub(crate) asking_task: Option<TaskId>,
    group: Option<TuiGroup>,
}

/// A line of the list.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum TuiRow {
    /// The title of a group, and how many trees are in it.
    GroupTitle(TuiGroup, usize),
    /// Nothing.
    Gap,
    /// A task.
    Task(TreePosition),
    /// What the task above this line does.
    Activity(TreePosition),
}

impl TuiRow {
    /// The task of this line.
    pub(crate) fn task(&self) -> Option<TaskId> {
        match self {
            TuiRow::Task(place) | TuiRow::Activity(place) => Some(place.id),
            _ => None,
        }
    }
}

/// Where in its tree a task is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TreePosition {
    pub(crate) id: TaskId,
    pub(crate) depth: u16,
    /// At which levels above it, its own included, more tasks follow.
    pub(crate) open_levels: u32,
    pub(crate) folded: bool,
    /// Whether anything is below it.
    pub(crate) has_children: bool,
}

/// What the lines are made of.
pub(crate) struct TreeViewOptions<'a> {
    pub(crate) tasks: &'a IndexMap<TaskId, TaskState>,
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
pub(crate) struct TaskTreeView {
    pub(crate) rows: Vec<TuiRow>,
    pub(crate) totals: HashMap<TaskId, SubtreeTotals>,
}

impl TaskTreeView {
    /// Makes the lines.
    pub(crate) fn build(plan: &TreeViewOptions<'_>) -> TaskTreeView {
        let mut children: HashMap<TaskId, Vec<&TaskState>> = HashMap::new();
        let mut tops: Vec<&TaskState> = Vec::new();
        for head in plan.tasks.values() {
            match head.parent.filter(|parent| plan.tasks.contains_key(parent)) {
                Some(parent) => children.entry(parent).or_default().push(head),
                None => tops.push(head),
            }
        }
        let mut sums = HashMap::with_capacity(plan.tasks.len());
        for top in &tops {
            subtree_totals(top, &children, plan.now, &mut sums);
        }
        let words: Vec<String> = plan.search.split_whitespace().map(str::to_lowercase).collect();
        let hits = (!words.is_empty()).then(|| matching_tasks(plan.tasks, &words));
        // The newest first.
        tops.reverse();
        let mut trees: Vec<(TuiGroup, &TaskState)> = tops
            .into_iter()
            .filter(|top| hits.as_ref().is_none_or(|hits| hits.contains(&top.id)))
            .map(|top| {
                let pinned = plan.pinned.contains(&top.id);
                let group = sums.get(&top.id).and_then(|sum| sum.group).unwrap_or(TuiGroup::Finished);
                (if pinned { TuiGroup::Pinned } else { group }, top)
            })
            .collect();
        if plan.grouped {
            trees.sort_by_key(|(group, _)| *group);
        } else {
            trees.sort_by_key(|(group, _)| *group != TuiGroup::Pinned);
        }
        let mut grower =
            TreeRowBuilder { options: plan, children: &children, matching: hits.as_ref(), rows: Vec::new() };
        let mut last = None;
        for (group, top) in &trees {
            if plan.grouped && last != Some(*group) {
                if plan.gaps && last.is_some() {
                    grower.rows.push(TuiRow::Gap);
                }
                let many = trees.iter().filter(|(other, _)| other == group).count();
                grower.rows.push(TuiRow::GroupTitle(*group, many));
                last = Some(*group);
            }
            grower.push_subtree(top, 0, 0);
        }
        TaskTreeView { rows: grower.rows, totals: sums }
    }

    /// Where a task's line is.
    pub(crate) fn line_of(&self, id: TaskId) -> Option<usize> {
        self.rows.iter().position(|row| matches!(row, TuiRow::Task(place) if place.id == id))
    }
}

struct TreeRowBuilder<'a> {
    options: &'a TreeViewOptions<'a>,
    children: &'a HashMap<TaskId, Vec<&'a TaskState>>,
    matching: Option<&'a HashSet<TaskId>>,
    rows: Vec<TuiRow>,
}

impl TreeRowBuilder<'_> {
    fn push_subtree(&mut self, head: &TaskState, depth: u16, more: u32) {
        let none = Vec::new();
        let all = self.children.get(&head.id).unwrap_or(&none);
        let shown: Vec<&&TaskState> =
            all.iter().filter(|child| self.matching.is_none_or(|hits| hits.contains(&child.id))).collect();
        // What is searched for is not hidden.
        let folded = !all.is_empty() && self.matching.is_none() && self.options.folded.contains(&head.id);
        let place =
            TreePosition { id: head.id, depth, open_levels: more, folded, has_children: !all.is_empty() };
        self.rows.push(TuiRow::Task(place));
        if !head.status.is_final() || head.status == Status::Failed {
            self.rows.push(TuiRow::Activity(place));
        }
        if folded {
            return;
        }
        for (index, child) in shown.iter().enumerate() {
            let bit = if depth < 31 { 1 << depth } else { 0 };
            let more = if index + 1 < shown.len() { more | bit } else { more & !bit };
            self.push_subtree(child, depth + 1, more);
        }
    }
}

fn subtree_totals(
    head: &TaskState,
    children: &HashMap<TaskId, Vec<&TaskState>>,
    now: Timestamp,
    sums: &mut HashMap<TaskId, SubtreeTotals>,
) -> SubtreeTotals {
    let mut whole = SubtreeTotals {
        descendants: 0,
        tokens: head.usage.total(),
        cost: head.cost,
        unpriced: head.unpriced.into(),
        asking_task: (!head.status.is_final() && !head.asked.is_empty()).then_some(head.id),
        group: Some(TuiGroup::for_task(head, now)),
    };
    for child in children.get(&head.id).into_iter().flatten() {
        let part = subtree_totals(child, children, now, sums);
        whole.descendants += 1 + part.descendants;
        whole.tokens = whole.tokens.saturating_add(part.tokens);
        whole.cost = whole.cost.saturating_add(part.cost);
        whole.unpriced += part.unpriced;
        whole.asking_task = whole.asking_task.or(part.asking_task);
        whole.group = whole.group.min(part.group);
    }
    sums.insert(head.id, whole);
    whole
}

/// The tasks in which all words occur, and those above them.
fn matching_tasks(heads: &IndexMap<TaskId, TaskState>, words: &[String]) -> HashSet<TaskId> {
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
#[path = "tree_tests.rs"]
mod tests;
