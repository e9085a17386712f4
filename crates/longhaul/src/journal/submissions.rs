//! Caches the submissions of parents while a task below them runs.
//!
//! The first entry of a journal never changes, and every task below needs it: when it is launched, and for
//! the budget of its tree. Each run keeps alive what it needs. So nothing is cached for a deleted task whose
//! id another task may have by now: no tree is deleted while one of its tasks runs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::entry::{Entry, Record, Submission};
use crate::id::{Seq, TaskId};
use crate::store::{Store, StoreError};

/// The cached submissions, as long as a run keeps them alive.
#[derive(Debug, Default)]
pub(crate) struct SubmissionCache(Mutex<HashMap<TaskId, Weak<Submission>>>);

impl SubmissionCache {
    /// The submission of a task.
    pub(crate) async fn get(&self, store: &dyn Store, id: TaskId) -> Result<Arc<Submission>, StoreError> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&id).and_then(Weak::upgrade);
        match known {
            Some(known) => Ok(known),
            None => Ok(self.remember(id, read_submission(store, id).await?)),
        }
    }

    /// Caches the submission of a task, as long as the returned value is kept.
    pub(crate) fn remember(&self, id: TaskId, submitted: Submission) -> Arc<Submission> {
        let submitted = Arc::new(submitted);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() == all.capacity() {
            all.retain(|_, kept| kept.strong_count() > 0);
        }
        all.insert(id, Arc::downgrade(&submitted));
        submitted
    }
}

/// Reads the submission of a task from its journal.
pub(crate) async fn read_submission(store: &dyn Store, id: TaskId) -> Result<Submission, StoreError> {
    submission_in(id, &store.read(id, Seq(0), 1).await?)
}

/// The first entry of a journal.
pub(crate) fn submission_in(id: TaskId, journal: &[Record]) -> Result<Submission, StoreError> {
    match journal.first().map(|r| &r.entry) {
        Some(Entry::Submitted(submitted)) => Ok((**submitted).clone()),
        _ => Err(StoreError::NoTask(id)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Order, TeamRef};
    use crate::id::TaskKey;
    use crate::store::{Batch, Fence, MemoryStore};

    async fn has(store: &MemoryStore, id: TaskId, task: &str) {
        let (key, team) = (TaskKey::random(), TeamRef::Named("team".into()));
        let submitted = Submission::root(id, key, Order::new("worker", task), team);
        let entries = vec![Entry::Submitted(Box::new(submitted))];
        store.append(Batch::one(id, Fence::New, entries)).await.unwrap();
    }

    #[tokio::test]
    async fn only_what_somebody_keeps_is_remembered() {
        let id: TaskId = "t-abcde".parse().unwrap();
        let (one, other) = (MemoryStore::new(), MemoryStore::new());
        has(&one, id, "the first").await;
        has(&other, id, "one of the same name").await;
        let orders = SubmissionCache::default();
        let kept = orders.get(&one, id).await.unwrap();
        assert_eq!(orders.get(&other, id).await.unwrap().order.task, kept.order.task, "not read again");
        drop(kept);
        assert_eq!(&*orders.get(&other, id).await.unwrap().order.task, "one of the same name");
    }

    #[tokio::test]
    async fn what_nobody_keeps_takes_no_room() {
        let (store, orders) = (MemoryStore::new(), SubmissionCache::default());
        for n in 10_000..11_000 {
            let id: TaskId = format!("t-{n}").parse().unwrap();
            has(&store, id, "small").await;
            orders.get(&store, id).await.unwrap();
        }
        assert!(orders.0.lock().unwrap().capacity() < 100);
    }
}
