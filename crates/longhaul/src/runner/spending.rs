//! What the trees with a budget have used so far.
//!
//! Adding up a tree before each model call would cost more the larger the tree is. So the tasks that run in
//! this process report what they have used, and the tree is read only once, and again from time to time:
//! other processes may run tasks of it too.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio::time::Instant;

use crate::id::TaskId;
use crate::journal;
use crate::store::{Store, StoreError};
use crate::task::TaskState;

/// How often a tree is read again, at most.
const AGAIN: Duration = Duration::from_secs(5);
/// It is read again after this many times the time that reading takes: at most one percent.
const SHARE: u32 = 100;

/// The totals of all trees with a budget that tasks of this process are in.
#[derive(Default)]
pub(crate) struct TreeSpending(Mutex<HashMap<TaskId, Weak<TreeTotal>>>);

/// What a task and everything below it have used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Spent {
    pub(super) tokens: u64,
    /// In millionths of a dollar.
    pub(super) cost: u64,
    /// Replies whose cost is unknown.
    pub(super) unpriced: u32,
}

/// The total of one tree.
#[derive(Default)]
pub(super) struct TreeTotal {
    first: OnceCell<()>,
    sum: Mutex<TreeSum>,
}

#[derive(Default)]
struct TreeSum {
    tasks: HashMap<TaskId, Spent>,
    total: Spent,
    due: Option<Instant>,
}

impl TreeSpending {
    /// The total of the tree below `top`.
    pub(super) fn total(&self, top: TaskId) -> Arc<TreeTotal> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get(&top).and_then(Weak::upgrade) {
            return known;
        }
        all.retain(|_, total| total.strong_count() > 0);
        let total = Arc::new(TreeTotal::default());
        all.insert(top, Arc::downgrade(&total));
        total
    }
}

impl TreeTotal {
    /// What the tree has used, as far as is known.
    pub(super) async fn spent(&self, store: &dyn Store, top: &TaskState) -> Result<Spent, StoreError> {
        self.first.get_or_try_init(|| self.read(store, top)).await?;
        if self.take_turn() {
            self.read(store, top).await?;
        }
        Ok(self.lock().total)
    }

    /// Reports what a task of the tree has used in all.
    pub(super) fn report(&self, task: &TaskState) {
        self.lock().set(task);
    }

    async fn read(&self, store: &dyn Store, top: &TaskState) -> Result<(), StoreError> {
        let begun = Instant::now();
        let below = journal::tasks_below(store, top).await?;
        let mut sum = self.lock();
        below.iter().chain([top]).for_each(|task| sum.set(task));
        sum.due = Some(Instant::now() + AGAIN.max(begun.elapsed() * SHARE));
        Ok(())
    }

    /// Whether it is time to read the tree again. Only one caller is told so.
    fn take_turn(&self) -> bool {
        let mut sum = self.lock();
        let is_due = sum.due.is_some_and(|due| due <= Instant::now());
        if is_due {
            // Not never: this read may fail, or be dropped halfway.
            sum.due = Some(Instant::now() + AGAIN);
        }
        is_due
    }

    fn lock(&self) -> MutexGuard<'_, TreeSum> {
        self.sum.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TreeSum {
    /// A task never uses less than before, so an older report changes nothing.
    fn set(&mut self, task: &TaskState) {
        let now = Spent { tokens: task.usage.total(), cost: task.cost, unpriced: task.unpriced };
        let had = self.tasks.entry(task.id).or_default();
        let (tokens, cost) = (now.tokens.saturating_sub(had.tokens), now.cost.saturating_sub(had.cost));
        let unpriced = now.unpriced.saturating_sub(had.unpriced);
        for spent in [had, &mut self.total] {
            spent.tokens = spent.tokens.saturating_add(tokens);
            spent.cost = spent.cost.saturating_add(cost);
            spent.unpriced = spent.unpriced.saturating_add(unpriced);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::entry::{Entry, Order, Submission, TeamRef};
    use crate::id::{Attempt, TaskKey, WorkerId};
    use crate::message::{Reply, Usage};
    use crate::store::{Batch, ClaimRequest, Fence, MemoryStore};

    #[tokio::test(start_paused = true)]
    async fn what_other_processes_use_counts_after_a_while_and_nothing_counts_twice() {
        let (store, key, team) = (MemoryStore::new(), TaskKey::random(), TeamRef::Named("team".into()));
        let id = key.candidate_ids().last().unwrap();
        let first = Submission::root(id, key, Order::new("worker", "go"), team.clone());
        let first = Entry::Submitted(Box::new(first));
        store.append(Batch::one(id, Fence::New, vec![first])).await.unwrap();
        let worker = WorkerId::from("w");
        let claim = ClaimRequest {
            worker,
            teams: vec![team],
            roots: None,
            fresh_only: false,
            except: vec![],
            max: 1,
        };
        store.claim(claim).await.unwrap();
        let replies = async || {
            let usage = Usage { input: 60, output: 40, ..Usage::default() };
            let reply = Entry::Replied(Arc::new(Reply { usage, ..Reply::default() }));
            store.append(Batch::one(id, Fence::Attempt(Attempt(1)), vec![reply])).await.unwrap();
            journal::state(&store, id).await.unwrap()
        };
        let spending = TreeSpending::default();
        let total = spending.total(id);
        let tokens = async |top: &TaskState| total.spent(&store, top).await.unwrap().tokens;
        let own = replies().await;
        assert_eq!(tokens(&own).await, 100);
        total.report(&own);
        assert_eq!(tokens(&own).await, 100, "a report of what was read changes nothing");
        // Written by another process: nobody reports it.
        let other = replies().await;
        for _ in 0..2 {
            tokio::time::advance(AGAIN).await;
            assert_eq!(tokens(&other).await, 200);
        }
    }
}
