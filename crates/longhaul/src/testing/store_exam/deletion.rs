//! Questions about what is deleted, and what is not.

use std::time::Duration;

use super::StoreFactory;
use super::setup::{
    ExamSetup, cancelled, claim, completed, edit, hinted, ids, letter, owner, replied, stop, submission,
};
use crate::entry::{CallResult, Entry, EntryKind, TeamRef};
use crate::id::{CallId, Digest, Seq, TaskId};
use crate::store::{BLOB_GRACE, Batch, EntryKinds, Fence, Hint, StoreError, StoredValue, TaskFilter};

impl ExamSetup {
    /// Ends a task that was never claimed.
    async fn ended(&self, task: TaskId) -> TaskId {
        self.write(task, Fence::Anyone, vec![stop(), cancelled()]).await.expect("a pending task is stopped");
        task
    }

    async fn delete(&self, tasks: &[TaskId]) -> Result<(), StoreError> {
        let mut named = Vec::new();
        for task in tasks {
            named.push((*task, self.store.task_state(*task).await?.map_or(Seq(1), |state| state.seq)));
        }
        self.store.delete(named).await
    }
}

/// A tool result whose whole output is a blob.
fn returned(whole: &Digest) -> Entry {
    Entry::Returned(Box::new(CallResult {
        whole: Some(whole.clone()),
        ..CallResult::new(CallId { turn: 1, index: 0 }, "a part")
    }))
}

/// Deletes the journal, state, letters and stored values of a task, and nothing of others. Its id is free
/// again, and its position is not reused.
pub async fn what_is_deleted_is_gone(make: StoreFactory<'_>) {
    let s = ExamSetup::new(make);
    let before = s.task().await;
    let root = s.task().await;
    let child = s.child(root).await;
    let after = s.task().await;
    s.write(root, Fence::Anyone, vec![letter("l")]).await.unwrap();
    for task in [root, child] {
        s.ended(task).await;
    }
    let values = [format!("task:{root}:todo"), format!("tree:{root}:todo"), format!("seen:{child}")];
    let stay = [format!("task:{after}:todo"), "notes".to_owned(), format!("{root}")];
    for name in values.iter().chain(&stay) {
        assert!(s.store.put_stored_value(name, 0, b"x".to_vec()).await.unwrap());
    }
    let (one, two) = (s.journal(before).await, s.journal(after).await);
    s.delete(&[child, root]).await.unwrap();

    assert_eq!(ids(&s.store.list(TaskFilter::default()).await.unwrap()), [before, after]);
    for task in [root, child] {
        assert_eq!(s.store.task_state(task).await.unwrap(), None);
        assert!(s.journal(task).await.is_empty());
        let found = s.store.find(&task.to_string()).await;
        assert!(matches!(found, Err(StoreError::NotFound { .. })), "{found:?}");
        assert!(matches!(s.delete(&[task]).await, Err(StoreError::NoTask(gone)) if gone == task));
    }
    for name in &values {
        assert_eq!(s.store.stored_value(name).await.unwrap(), StoredValue::default(), "{name}");
    }
    for name in &stay {
        assert_eq!(s.store.stored_value(name).await.unwrap().version, 1, "{name}");
    }
    assert_eq!((s.journal(before).await, s.journal(after).await), (one, two));

    s.submit(root, submission(root)).await.unwrap();
    let last = s.task().await;
    s.write(root, Fence::Anyone, vec![letter("l")]).await.unwrap();
    assert_eq!(s.journal(root).await.len(), 2, "it has nothing of the one before it");
    assert_eq!(ids(&s.store.list(TaskFilter::default()).await.unwrap()), [before, after, root, last]);
    assert_eq!(ids(&s.store.list(TaskFilter::tree(root)).await.unwrap()), [root]);
    assert!(s.store.list(TaskFilter::children(root)).await.unwrap().is_empty());
    let claimed = s.claim(claim("w", 9)).await.unwrap();
    assert_eq!(ids(&claimed), [before, after, root, last]);
    s.delete(&[]).await.unwrap();
}

/// Pending and running tasks, and tasks with new entries, are not deleted; then nothing at all is deleted.
pub async fn only_what_has_ended_is_deleted(make: StoreFactory<'_>) {
    let s = ExamSetup::new(make);
    let (running, pending) = (s.running().await, s.task().await);
    let task = s.task().await;
    let ended = s.ended(task).await;
    for open in [running, pending] {
        let refused = s.delete(&[ended, open]).await;
        assert!(matches!(refused, Err(StoreError::NotEnded(task)) if task == open), "{refused:?}");
    }
    let refused = s.store.delete(vec![(ended, Seq(2))]).await;
    assert!(
        matches!(refused, Err(StoreError::JournalMoved { task, seq: Seq(3) }) if task == ended),
        "{refused:?}"
    );
    let nobody = s.fresh_id();
    assert!(matches!(s.delete(&[ended, nobody]).await, Err(StoreError::NoTask(task)) if task == nobody));
    assert_eq!(s.journal(ended).await.len(), 3);
    s.write(running, owner(1), vec![replied("on it goes"), completed()]).await.unwrap();
    s.delete(&[ended, running]).await.unwrap();
    assert_eq!(ids(&s.store.list(TaskFilter::default()).await.unwrap()), [pending]);
}

/// A tree is deleted as a whole, together with the trees that continue it or that it continues.
pub async fn only_what_belongs_together_is_deleted(make: StoreFactory<'_>) {
    let s = ExamSetup::new(make);
    let root = s.task().await;
    let child = s.child(root).await;
    let other = s.task().await;
    for task in [root, child, other] {
        s.ended(task).await;
    }
    // Two tasks continue the same one: the second retries what the first failed to do, and the link names the
    // first.
    let (next, again) = (s.fresh_id(), s.fresh_id());
    let goes_on = |id| edit(submission(id), |s| s.continues = Some(other));
    let batch = Batch::one(next, Fence::New, vec![goes_on(next)]);
    s.store.append(batch.and_write(other, Fence::Anyone, vec![Entry::Continued { by: next }])).await.unwrap();
    s.ended(next).await;
    s.submit(again, goes_on(again)).await.unwrap();
    s.ended(again).await;

    for part in [
        &[root][..],
        &[child],
        &[other],
        &[next],
        &[again],
        &[other, next],
        &[next, again],
        &[root, other, next],
    ] {
        let refused = s.delete(part).await;
        assert!(matches!(refused, Err(StoreError::StillNeeded { .. })), "{part:?}: {refused:?}");
    }
    assert_eq!(s.store.list(TaskFilter::default()).await.unwrap().len(), 5);
    s.delete(&[root, child]).await.unwrap();
    s.delete(&[again, next, other]).await.unwrap();
    assert!(s.store.list(TaskFilter::default()).await.unwrap().is_empty());
}

/// A team is deleted with its last task, a blob with the last journal that refers to it, and both only if
/// they were not stored again for a while: the writer may be about to write the reference.
pub async fn what_is_kept_goes_with_the_last_that_needs_it(make: StoreFactory<'_>) {
    let s = ExamSetup::new(make);
    let keep = async |bytes: &[u8]| s.store.put_blob(bytes.to_vec()).await.unwrap();
    let there = async |digest: &Digest| s.store.blob(digest.clone()).await.unwrap().is_some();
    let (team, output, young) = (keep(b"a team").await, keep(b"an output").await, keep(b"nobody's").await);
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let id = s.fresh_id();
        let of_team = edit(submission(id), |s| s.team = TeamRef::File(team.clone()));
        s.submit(id, of_team).await.unwrap();
        tasks.push(id);
    }
    for id in &tasks {
        let mut claim = claim("w", 1);
        claim.teams = vec![TeamRef::File(team.clone())];
        assert_eq!(ids(&s.claim(claim).await.unwrap()), [*id]);
        s.write(*id, owner(1), vec![returned(&output), completed()]).await.unwrap();
    }
    s.clock.advance(BLOB_GRACE + Duration::from_millis(1));
    assert_eq!(keep(b"nobody's").await, young);
    s.delete(&tasks[..1]).await.unwrap();
    assert!(there(&team).await && there(&output).await, "the other task needs them");
    s.delete(&tasks[1..]).await.unwrap();
    assert!(!there(&team).await && !there(&output).await);
    assert!(there(&young).await, "it was kept a moment ago");
    s.clock.advance(BLOB_GRACE + Duration::from_millis(1));
    let task = s.task().await;
    let last = s.ended(task).await;
    s.delete(&[last]).await.unwrap();
    assert!(!there(&young).await);
}

/// Receivers of hints have to check again, and get hints of later writes as before.
pub async fn others_hear_that_something_was_deleted(make: StoreFactory<'_>) {
    let s = ExamSetup::new(make);
    let (stays, goes) = (s.task().await, s.task().await);
    s.ended(goes).await;
    let mut hints = s.store.hints();
    s.delete(&[goes]).await.unwrap();
    let lagged = async { while hints.next().await.expect("the store is there") != Hint::Lagged {} };
    tokio::time::timeout(Duration::from_secs(5), lagged).await.expect("a deletion is heard of");
    for _ in 0..3 {
        s.write(stays, Fence::Anyone, vec![letter(&s.fresh_id().to_string())]).await.unwrap();
        let hint = hinted(&mut hints, stays, EntryKinds::from_kinds([EntryKind::Letter])).await;
        assert!(matches!(hint, Hint::Task { task, .. } if task == stays));
    }
}
