//! How tasks that have others below them came to be, remembered as long as one of those runs.
//!
//! The first entry of a journal never changes, and every task below asks for it: when it is launched, and for the budget
//! of its tree. Whoever runs keeps what it needs. So nothing is remembered of a task that is gone and whose id another may
//! have by now: no tree is deleted while a task of it runs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::load_task::submission_in;
use crate::entry::Submission;
use crate::id::{Seq, TaskId};
use crate::store::{Store, StoreError};

/// What is remembered, as long as somebody keeps it.
#[derive(Debug, Default)]
pub(crate) struct SubmissionCache(Mutex<HashMap<TaskId, Weak<Submission>>>);

impl SubmissionCache {
    /// How a task came to be.
    pub(crate) async fn get(&self, store: &dyn Store, id: TaskId) -> Result<Arc<Submission>, StoreError> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&id).and_then(Weak::upgrade);
        match known {
            Some(known) => Ok(known),
            None => Ok(self.remember(id, read_submission(store, id).await?)),
        }
    }

    /// Remembers how a task came to be, as long as what this returns is kept.
    pub(super) fn remember(&self, id: TaskId, submitted: Submission) -> Arc<Submission> {
        let submitted = Arc::new(submitted);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() == all.capacity() {
            all.retain(|_, kept| kept.strong_count() > 0);
        }
        all.insert(id, Arc::downgrade(&submitted));
        submitted
    }
}

/// How a task came to be, as its journal says.
pub(crate) async fn read_submission(store: &dyn Store, id: TaskId) -> Result<Submission, StoreError> {
    submission_in(id, &store.read(id, Seq(0), 1).await?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Entry, Order, TeamRef};
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
