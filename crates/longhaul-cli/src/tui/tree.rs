//! The task trees as lines: grouped, folded, filtered, with totals where folded.

use std::collections::{HashMap, HashSet};

use indexmap::{IndexMap, IndexSet};
use jiff::Timestamp;
use longhaul::task::TaskState;
use longhaul::transcript::Standing;
use longhaul::{Status, TaskId};

use crate::view::one_line;

/// The group of a tree, by the most urgent state in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum TuiGroup {
    /// Pinned by the user.
    Pinned,
    /// It asks something, or no process runs it.
    NeedsYou,
    /// Something in it is running.
    Working,
    /// Everything in it waits.
    Waiting,
    /// Everything in it has ended.
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

    pub(crate) fn for_task(state: &TaskState, now: Timestamp) -> TuiGroup {
        match state.status {
            status if status.is_final() => TuiGroup::Finished,
            _ if !state.asked.is_empty() || is_interrupted(state) => TuiGroup::NeedsYou,
            Status::Running if state.waiting_at(now).is_none() => TuiGroup::Working,
            _ => TuiGroup::Waiting,
        }
    }
}

/// Returns whether a task has started, but no process runs it now.
pub(crate) fn is_interrupted(state: &TaskState) -> bool {
    Standing::of(state) == Standing::Interrupted
}

/// The totals of a task and everything below it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct SubtreeTotals {
    /// The number of tasks below it.
    pub(crate) descendants: usize,
    pub(crate) tokens: u64,
    pub(crate) cost: u64,
    /// Replies with unknown cost.
    pub(crate) unpriced: u64,
    /// The first task that asks something: itself, or one below it.
    pub(crate) asking_task: Option<TaskId>,
    group: Option<TuiGroup>,
}

/// A line of the list.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum TuiRow {
    /// The title of a group, and how many trees are in it.
    GroupTitle(TuiGroup, usize),
    /// An empty line.
    Gap,
    /// A task.
    Task(TreePosition),
    /// The activity of the task above.
    Activity(TreePosition),
}

impl TuiRow {
    /// Returns the task of this line.
    pub(crate) fn task(&self) -> Option<TaskId> {
        match self {
            TuiRow::Task(position) | TuiRow::Activity(position) => Some(position.id),
            _ => None,
        }
    }
}

/// The position of a task in its tree.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TreePosition {
    pub(crate) id: TaskId,
    pub(crate) depth: u16,
    /// A bit per level, its own included: set if more tasks follow on that level.
    pub(crate) open_levels: u32,
    pub(crate) folded: bool,
    pub(crate) has_children: bool,
}

/// The input of the tree view.
pub(crate) struct TreeViewOptions<'a> {
    pub(crate) tasks: &'a IndexMap<TaskId, TaskState>,
    pub(crate) folded: &'a HashSet<TaskId>,
    pub(crate) pinned: &'a IndexSet<TaskId>,
    pub(crate) grouped: bool,
    pub(crate) gaps: bool,
    /// If not empty: show only matching tasks and their ancestors.
    pub(crate) search: &'a str,
    pub(crate) now: Timestamp,
}

/// The lines, and the totals of subtrees.
#[derive(Debug, Clone, Default)]
pub(crate) struct TaskTreeView {
    pub(crate) rows: Vec<TuiRow>,
    pub(crate) totals: HashMap<TaskId, SubtreeTotals>,
}

impl TaskTreeView {
    /// Builds the lines.
    pub(crate) fn build(options: &TreeViewOptions<'_>) -> TaskTreeView {
        let mut children: HashMap<TaskId, Vec<&TaskState>> = HashMap::new();
        let mut tops: Vec<&TaskState> = Vec::new();
        for state in options.tasks.values() {
            match state.parent.filter(|parent| options.tasks.contains_key(parent)) {
                Some(parent) => children.entry(parent).or_default().push(state),
                None => tops.push(state),
            }
        }
        let mut totals = HashMap::with_capacity(options.tasks.len());
        for top in &tops {
            subtree_totals(top, &children, options.now, &mut totals);
        }
        let words: Vec<String> = options.search.split_whitespace().map(str::to_lowercase).collect();
        let hits = (!words.is_empty()).then(|| matching_tasks(options.tasks, &words));
        // Newest first.
        tops.reverse();
        let mut trees: Vec<(TuiGroup, &TaskState)> = tops
            .into_iter()
            .filter(|top| hits.as_ref().is_none_or(|hits| hits.contains(&top.id)))
            .map(|top| {
                let pinned = options.pinned.contains(&top.id);
                let group = totals.get(&top.id).and_then(|sum| sum.group).unwrap_or(TuiGroup::Finished);
                (if pinned { TuiGroup::Pinned } else { group }, top)
            })
            .collect();
        if options.grouped {
            trees.sort_by_key(|(group, _)| *group);
        } else {
            trees.sort_by_key(|(group, _)| *group != TuiGroup::Pinned);
        }
        let mut grower =
            TreeRowBuilder { options, children: &children, matching: hits.as_ref(), rows: Vec::new() };
        let mut last = None;
        for (group, top) in &trees {
            if options.grouped && last != Some(*group) {
                if options.gaps && last.is_some() {
                    grower.rows.push(TuiRow::Gap);
                }
                let many = trees.iter().filter(|(other, _)| other == group).count();
                grower.rows.push(TuiRow::GroupTitle(*group, many));
                last = Some(*group);
            }
            grower.push_subtree(top, 0, 0);
        }
        TaskTreeView { rows: grower.rows, totals }
    }

    pub(crate) fn line_of(&self, id: TaskId) -> Option<usize> {
        self.rows.iter().position(|row| matches!(row, TuiRow::Task(position) if position.id == id))
    }
}

struct TreeRowBuilder<'a> {
    options: &'a TreeViewOptions<'a>,
    children: &'a HashMap<TaskId, Vec<&'a TaskState>>,
    matching: Option<&'a HashSet<TaskId>>,
    rows: Vec<TuiRow>,
}

impl TreeRowBuilder<'_> {
    fn push_subtree(&mut self, state: &TaskState, depth: u16, more: u32) {
        let none = Vec::new();
        let all = self.children.get(&state.id).unwrap_or(&none);
        let shown: Vec<&&TaskState> =
            all.iter().filter(|child| self.matching.is_none_or(|hits| hits.contains(&child.id))).collect();
        // A search shows folded tasks.
        let folded = !all.is_empty() && self.matching.is_none() && self.options.folded.contains(&state.id);
        let position =
            TreePosition { id: state.id, depth, open_levels: more, folded, has_children: !all.is_empty() };
        self.rows.push(TuiRow::Task(position));
        if !state.status.is_final() || state.status == Status::Failed {
            self.rows.push(TuiRow::Activity(position));
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
    state: &TaskState,
    children: &HashMap<TaskId, Vec<&TaskState>>,
    now: Timestamp,
    totals: &mut HashMap<TaskId, SubtreeTotals>,
) -> SubtreeTotals {
    let mut whole = SubtreeTotals {
        descendants: 0,
        tokens: state.usage.total(),
        cost: state.cost,
        unpriced: state.unpriced.into(),
        asking_task: (!state.status.is_final() && !state.asked.is_empty()).then_some(state.id),
        group: Some(TuiGroup::for_task(state, now)),
    };
    for child in children.get(&state.id).into_iter().flatten() {
        let part = subtree_totals(child, children, now, totals);
        whole.descendants += 1 + part.descendants;
        whole.tokens = whole.tokens.saturating_add(part.tokens);
        whole.cost = whole.cost.saturating_add(part.cost);
        whole.unpriced += part.unpriced;
        whole.asking_task = whole.asking_task.or(part.asking_task);
        whole.group = whole.group.min(part.group);
    }
    totals.insert(state.id, whole);
    whole
}

/// Returns the tasks that contain all words, and their ancestors.
fn matching_tasks(states: &IndexMap<TaskId, TaskState>, words: &[String]) -> HashSet<TaskId> {
    let mut hits = HashSet::new();
    for state in states.values() {
        let text = format!("{} {} {} {}", state.id, state.agent, one_line(&state.headline), state.status);
        let text = text.to_lowercase();
        if !words.iter().all(|word| text.contains(word)) {
            continue;
        }
        let mut at = Some(state);
        while let Some(state) = at {
            if !hits.insert(state.id) {
                break;
            }
            at = state.parent.and_then(|parent| states.get(&parent));
        }
    }
    hits
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
