//! Groups of linked trees: which results are unread, and how to delete a group.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use jiff::Timestamp;

use super::{Longhaul, LonghaulError};
use crate::id::TaskId;
use crate::journal::KnownEnds;
use crate::store::{Store, StoreError, TaskFilter};
use crate::task::{Status, TaskState};

/// How often a wait for the end of tasks checks whether their process is gone.
const LOOK: Duration = Duration::from_secs(1);

/// Trees that are linked because a task of one continues a task of another. A group is kept or deleted as a
/// whole.
#[derive(Debug, Clone)]
pub struct TreeGroup {
    /// Its tasks, in submission order.
    pub tasks: Vec<TaskState>,
}

impl TreeGroup {
    /// Groups tasks, in the order of each group's first task. Only correct if every linked task is included.
    pub fn group(states: Vec<TaskState>) -> Vec<TreeGroup> {
        let mut first: HashMap<TaskId, TaskId> = HashMap::new();
        fn of(first: &HashMap<TaskId, TaskId>, mut tree: TaskId) -> TaskId {
            while let Some(above) = first.get(&tree).filter(|above| **above != tree) {
                tree = *above;
            }
            tree
        }
        let roots: HashMap<TaskId, TaskId> = states.iter().map(|state| (state.id, state.root)).collect();
        for state in &states {
            let links = [Some(state.root), state.continues, state.continued_by];
            let here = of(&first, state.root);
            for other in links.into_iter().flatten().filter_map(|id| roots.get(&id)) {
                let other = of(&first, *other);
                if other != here {
                    first.insert(other, here);
                }
            }
        }
        let mut groups: indexmap::IndexMap<TaskId, Vec<TaskState>> = indexmap::IndexMap::new();
        for state in states {
            groups.entry(of(&first, state.root)).or_default().push(state);
        }
        groups.into_values().map(|tasks| TreeGroup { tasks }).collect()
    }

    /// The tasks that have not ended.
    pub fn open_tasks(&self) -> impl Iterator<Item = &TaskState> {
        self.tasks.iter().filter(|state| !state.status.is_final())
    }

    /// When anything last happened in it.
    pub fn last_active(&self) -> Timestamp {
        self.tasks.iter().map(|state| state.active).max().unwrap_or_default()
    }
}

impl Longhaul {
    /// All groups, in the order of their first tasks. This reads every task; see
    /// [`quiet_trees`](Longhaul::quiet_trees) for less.
    pub async fn tree_groups(&self) -> Result<Vec<TreeGroup>, LonghaulError> {
        Ok(TreeGroup::group(self.list(TaskFilter::default()).await?))
    }

    /// The roots of trees in which nothing may have happened since `before`: ended trees without activity
    /// since then, and those of unfinished tasks. Ended ones are in submission order. Every group that was
    /// [last active](TreeGroup::last_active) before that time has one of them.
    pub async fn quiet_trees(&self, before: Timestamp) -> Result<Vec<TaskId>, LonghaulError> {
        let store = &self.0.service.store;
        let open = store.list(TaskFilter::default().live()).await?.into_iter();
        let ended = TaskFilter { quiet_before: Some(before), roots: true, ..TaskFilter::default() };
        let mut trees: indexmap::IndexSet<TaskId> =
            open.filter(|state| state.active < before).map(|state| state.root).collect();
        trees.extend(store.ids(ended).await?);
        Ok(trees.into_iter().collect())
    }

    /// The group of a task. The cost depends on the size of the group, not on the number of tasks in the
    /// store.
    pub async fn tree_group(&self, id: TaskId) -> Result<TreeGroup, LonghaulError> {
        let service = &self.0.service;
        let mut trees = vec![service.state(id).await?.root];
        let mut known: HashSet<TaskId> = trees.iter().copied().collect();
        let mut tasks = Vec::new();
        while let Some(root) = trees.pop() {
            let tree = service.store.list(TaskFilter::tree(root)).await?;
            for state in &tree {
                let mut others = Vec::new();
                if let Some(old) = state.continues {
                    others.extend(service.store.task_state(old).await?);
                }
                // The link names the first continuation. There may be others, which retry that one.
                if state.continued_by.is_some() {
                    let later = TaskFilter { continues: Some(state.id), ..TaskFilter::default() };
                    others.extend(service.store.list(later).await?);
                }
                trees.extend(others.iter().map(|other| other.root).filter(|root| known.insert(*root)));
            }
            tasks.extend(tree);
        }
        // Trees were found in any order; each tree is in submission order.
        if known.len() > 1 {
            tasks.sort_by_key(|state| state.created);
        }
        Ok(TreeGroup { tasks: service.as_observed(tasks).await? })
    }

    /// Marks the end of a task as [read](Longhaul::unread_tasks), if it has ended.
    pub async fn mark_read(&self, id: TaskId) -> Result<(), LonghaulError> {
        let service = &self.0.service;
        if service.state(id).await?.status.is_final() && !is_marked_read(&*service.store, id).await? {
            // If another process was faster, it is marked too.
            service.store.put_stored_value(&read_mark_key(id), 0, b"looked at".to_vec()).await?;
        }
        Ok(())
    }

    /// The tasks of a group whose end is unread: they were not [marked as read](Longhaul::mark_read) or
    /// continued since, and their parent was not notified. A cancelled task below another, or one whose
    /// parent did not complete, does not count.
    pub async fn unread_tasks(&self, group: &TreeGroup) -> Result<Vec<TaskId>, LonghaulError> {
        let store = &*self.0.service.store;
        let by_id: HashMap<TaskId, &TaskState> = group.tasks.iter().map(|state| (state.id, state)).collect();
        let mut known = KnownEnds::default();
        let mut unread = Vec::new();
        for state in
            group.tasks.iter().filter(|state| state.status.is_final() && state.continued_by.is_none())
        {
            if let Some(parent) = state.parent.and_then(|parent| by_id.get(&parent)) {
                // A letter about every end is in the parent's mailbox: a parent without unread letters has
                // read about this one.
                let no_news = state.status == Status::Cancelled || parent.status != Status::Completed;
                if no_news || parent.unread == 0 {
                    continue;
                }
                if known.contains(store, parent.id, state.id).await? {
                    continue;
                }
            }
            if !is_marked_read(store, state.id).await? {
                unread.push(state.id);
            }
        }
        Ok(unread)
    }

    /// Stops the unfinished tasks of a group, and waits until they have ended, at most for `patience`.
    /// Returns the group as it is then.
    pub async fn stop_group(&self, group: &TreeGroup, timeout: Duration) -> Result<TreeGroup, LonghaulError> {
        let open: Vec<TaskId> = group.open_tasks().map(|state| state.id).collect();
        for id in &open {
            self.stop(*id).await?;
        }
        let mut left = timeout;
        loop {
            let step = left.min(LOOK);
            if !self.wait(open.clone()).timeout(step).await?.timed_out || step == left {
                break;
            }
            left -= step;
            // A suspended process is only known to be gone after it was watched for long enough.
            self.0.service.release_abandoned(&open.iter().copied().collect()).await?;
        }
        let mut tasks = Vec::with_capacity(group.tasks.len());
        for state in &group.tasks {
            tasks.push(self.0.service.state(state.id).await?);
        }
        Ok(TreeGroup { tasks })
    }

    /// Deletes a group: journals, letters, stored values, and blobs that only it refers to. Fails, and
    /// deletes nothing, if a task has not ended or has changed since the group was read.
    pub async fn delete_group(&self, group: &TreeGroup) -> Result<(), LonghaulError> {
        let tasks = group.tasks.iter().map(|state| (state.id, state.seq)).collect();
        Ok(self.0.service.store.delete(tasks).await?)
    }
}

fn read_mark_key(id: TaskId) -> String {
    format!("seen:{id}")
}

async fn is_marked_read(store: &dyn Store, id: TaskId) -> Result<bool, StoreError> {
    match store.stored_value(&read_mark_key(id)).await {
        Ok(stored) => Ok(stored.version > 0),
        // A damaged mark counts as unread.
        Err(StoreError::Damaged { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}
