//! Questions about fences and limits: who may write what, and when.

use std::sync::Arc;

use futures::future::join_all;

use super::StoreFactory;
use super::setup::{
    ExamSetup, cancelled, claim, completed, edit, letter, owner, released, replied, said, stop, submission,
};
use crate::entry::{Entry, EntryKind, ExpectedAnswer, Question, QuestionAnswer, WaitReason};
use crate::id::{AgentName, Attempt, CallId, QuestionId, Seq, WorkerId};
use crate::store::{Batch, CountCondition, Fence, JournalWrite, StoreError, TaskFilter};
use crate::task::{IllegalTransition, Status};

fn superseded<T: std::fmt::Debug>(answer: Result<T, StoreError>) {
    assert!(matches!(answer, Err(StoreError::Superseded { .. })), "{answer:?}");
}

fn illegal<T: std::fmt::Debug>(answer: Result<T, StoreError>) {
    assert!(matches!(answer, Err(StoreError::Illegal { .. })), "{answer:?}");
}

/// The owner writes with the fence of its attempt; no one writes with that of another attempt.
pub async fn only_the_owner_writes_as_owner(make: StoreFactory<'_>) {
    let s = ExamSetup::new(make);
    let pending = s.task().await;
    superseded(s.write(pending, owner(0), vec![replied("r")]).await);
    let id = s.running().await;
    for wrong in [0, 2, u32::MAX] {
        superseded(s.write(id, owner(wrong), vec![replied("r")]).await);
    }
    s.write(id, owner(1), vec![replied("r"), letter("to itself"), stop()]).await.unwrap();
}

/// An owner whose task was released or claimed again is rejected.
pub async fn an_attempt_that_is_over_writes_nothing(make: StoreFactory<'_>) {
    let s = ExamSetup::new(make);
    let id = s.running().await;
    let wrong = s.write(id, owner(1), vec![released(2)]).await;
    assert!(
        matches!(wrong, Err(StoreError::Illegal { why: IllegalTransition::WrongAttempt { .. }, .. })),
        "{wrong:?}"
    );
    s.write(id, owner(1), vec![released(1)]).await.unwrap();
    superseded(s.write(id, owner(1), vec![replied("r")]).await);
    s.claim(super::setup::claim("v", 9)).await.unwrap();
    superseded(s.write(id, owner(1), vec![completed()]).await);
    s.write(id, owner(2), vec![completed()]).await.unwrap();
}

/// Others may write in place of an owner only when its lease has ended.
pub async fn only_a_dead_owner_is_abandoned(make: StoreFactory<'_>) {
    let s = ExamSetup::new(make);
    let id = s.running().await;
    let abandoned = |n| Fence::Abandoned(Attempt(n));
    superseded(s.write(id, abandoned(1), vec![released(1)]).await);
    s.advance_watching(31).await;
    superseded(s.write(id, abandoned(2), vec![released(2)]).await);
    s.write(id, abandoned(1), vec![released(1)]).await.unwrap();
    superseded(s.write(id, abandoned(1), vec![released(1)]).await);
    assert_eq!(s.state(id).await.status, Status::Pending);
}

/// Entries of the owner are rejected from anyone else, even while the task runs.
pub async fn anyone_writes_only_what_anyone_may(make: StoreFactory<'_>) {
    let s = ExamSetup::new(make);
    let id = s.running().await;
    let call = CallId { turn: 1, index: 0 };
    let question = QuestionId { call, nth: 0 };
    let asks = Question { text: "?".into(), wants: ExpectedAnswer::Words { schema: None } };
    let asked = Entry::Asked { question, asks: Box::new(asks), until: None };
    let owned = [
        replied("r"),
        said("…"),
        completed(),
        cancelled(),
        released(1),
        Entry::Read { letters: vec![], known: vec![], all_ended: None },
        Entry::Called { call, tool: "t".into(), arguments: None, effects: false, foreign: false },
        Entry::Waiting { on: WaitReason::Letter, until: None },
        asked.clone(),
        Entry::Compacted { summary: "s".into(), replaces: 1, usage: Default::default(), cost: None },
        Entry::Claimed { attempt: Attempt(2), worker: WorkerId::from("v") },
        submission(id),
    ];
    for entry in owned {
        illegal(s.write(id, Fence::Anyone, vec![entry]).await);
    }
    let pending = s.task().await;
    let claimed = Entry::Claimed { attempt: Attempt(1), worker: WorkerId::from("v") };
    illegal(s.write(pending, Fence::Anyone, vec![claimed]).await);
    let answered = || Entry::Answered { question, answer: QuestionAnswer::Given("!".into()) };
    // Only an open question can be answered, and only once.
    illegal(s.write(id, Fence::Anyone, vec![answered()]).await);
    s.write(id, Fence::Attempt(Attempt(1)), vec![asked]).await.unwrap();
    let granted = Entry::Granted { pattern: "t".parse().unwrap(), tool: None };
    s.write(id, Fence::Anyone, vec![letter("l"), answered(), granted, stop()]).await.unwrap();
    illegal(s.write(id, Fence::Anyone, vec![answered()]).await);
}

/// A new task starts with its submission; a letter may come with it.
pub async fn a_new_task_begins_with_its_submission(make: StoreFactory<'_>) {
    let s = ExamSetup::new(make);
    let id = s.fresh_id();
    let refused = s.write(id, Fence::New, vec![letter("l")]).await;
    let Err(StoreError::Illegal { why, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(why, IllegalTransition::NotASubmission(EntryKind::Letter));
    let claimed = Entry::Claimed { attempt: Attempt(1), worker: WorkerId::from("v") };
    illegal(s.write(id, Fence::New, vec![submission(id), claimed]).await);
    illegal(s.write(id, Fence::New, vec![submission(id), submission(id)]).await);
    assert_eq!(s.store.task_state(id).await.unwrap(), None);
    assert_eq!(s.write(id, Fence::New, vec![submission(id), letter("l")]).await.unwrap(), Seq(2));
    let again = s.write(id, Fence::New, vec![submission(id)]).await;
    assert!(matches!(again, Err(StoreError::Exists(task)) if task == id), "{again:?}");
}

/// A pending task that is stopped has ended, and any process records its end: once.
pub async fn a_stop_of_a_pending_task_is_settled_by_anyone(make: StoreFactory<'_>) {
    let s = ExamSetup::new(make);
    let id = s.task().await;
    illegal(s.write(id, Fence::Anyone, vec![cancelled()]).await);
    s.write(id, Fence::Anyone, vec![stop()]).await.unwrap();
    assert!(s.claim(claim("w", 9)).await.unwrap().is_empty());
    let state = s.state(id).await;
    assert_eq!((state.status, state.settled), (Status::Cancelled, false));
    illegal(s.write(id, Fence::Anyone, vec![completed()]).await);
    s.write(id, Fence::Anyone, vec![cancelled()]).await.unwrap();
    illegal(s.write(id, Fence::Anyone, vec![cancelled()]).await);
    assert!(s.state(id).await.settled);
}

/// A write that names the end of the journal is rejected if the journal ends elsewhere.
pub async fn a_writer_can_insist_that_nothing_came_between(make: StoreFactory<'_>) {
    let s = ExamSetup::new(make);
    let id = s.running().await;
    let write = |after, entry| {
        let write = JournalWrite { task: id, fence: owner(1), after: Some(Seq(after)), entries: vec![entry] };
        s.store.append(Batch { writes: vec![write], only_if: Arc::default() })
    };
    s.write(id, Fence::Anyone, vec![letter("l")]).await.unwrap();
    for wrong in [0, 2, 4] {
        let moved = write(wrong, completed()).await;
        assert!(matches!(moved, Err(StoreError::JournalMoved { seq: Seq(3), .. })), "{moved:?}");
    }
    assert_eq!(write(3, replied("r")).await.unwrap(), [Seq(4)]);
    assert_eq!(s.journal(id).await.len(), 4);
}

/// A write without entries is rejected where a write with entries would be, and changes nothing.
pub async fn a_write_without_entries_only_asks(make: StoreFactory<'_>) {
    let s = ExamSetup::new(make);
    let id = s.running().await;
    assert_eq!(s.write(id, owner(1), vec![]).await.unwrap(), Seq(2));
    superseded(s.write(id, owner(2), vec![]).await);
    assert!(s.store.append(Batch::default()).await.unwrap().is_empty());
    assert_eq!(s.journal(id).await.len(), 2);
}

fn limited(s: &ExamSetup, filter: TaskFilter, limit: u32) -> Batch {
    let id = s.fresh_id();
    let entry = edit(submission(id), |submitted| submitted.root = filter.root.unwrap_or(id));
    let mut batch = Batch::one(id, Fence::New, vec![entry]);
    batch.only_if = Arc::new([CountCondition { filter, limit, or_fewer: None, what: "tasks" }]);
    batch
}

/// Fifty tasks are submitted at once where twenty are allowed: twenty are accepted.
pub async fn limits_hold_though_many_submit(make: StoreFactory<'_>) {
    let s = ExamSetup::new(make);
    let root = s.task().await;
    let submitted = (0..50).map(|_| {
        let (store, batch) = (s.store.clone(), limited(&s, TaskFilter::tree(root).live(), 20));
        tokio::spawn(async move { store.append(batch).await })
    });
    let mut refused = 0;
    for answer in join_all(submitted).await {
        match answer.unwrap() {
            Ok(_) => {}
            Err(StoreError::Limit { limit: 20, what: "tasks" }) => refused += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(refused, 31);
    assert_eq!(s.store.list(TaskFilter::tree(root)).await.unwrap().len(), 20);
}

/// A task that exists is reported as such, whatever the limits are, so repeating a submission is harmless.
pub async fn limits_do_not_refuse_what_is_there_already(make: StoreFactory<'_>) {
    let s = ExamSetup::new(make);
    let batch = limited(&s, TaskFilter::default(), 1);
    s.store.append(batch.clone()).await.unwrap();
    let again = s.store.append(batch).await;
    assert!(matches!(again, Err(StoreError::Exists(_))), "{again:?}");
    let other = s.store.append(limited(&s, TaskFilter::default(), 1)).await;
    assert!(matches!(other, Err(StoreError::Limit { .. })), "{other:?}");
}

/// Limits count by each field of their filter, including the latest changes.
pub async fn limits_count_what_they_say(make: StoreFactory<'_>) {
    let s = ExamSetup::new(make);
    let root = s.task().await;
    let child = s.child(root).await;
    s.running().await;
    let pending = TaskFilter { status: vec![Status::Pending], ..TaskFilter::default() };
    let counts = [
        (TaskFilter::default(), 3),
        (TaskFilter::default().live(), 3),
        (pending.clone(), 2),
        (TaskFilter::tree(root), 2),
        (TaskFilter::children(root), 1),
        (TaskFilter::children(root).live(), 1),
        (TaskFilter { roots: true, ..TaskFilter::default() }, 2),
        (TaskFilter { agents: vec![AgentName::from("worker")], ..TaskFilter::default() }, 3),
        (TaskFilter { agents: vec![AgentName::from("nobody")], ..TaskFilter::default() }, 0),
        (TaskFilter { status: vec![Status::Running], ..TaskFilter::default() }, 1),
        (TaskFilter { status: vec![Status::Cancelled], root: Some(root), ..TaskFilter::default() }, 0),
    ];
    let ask = |filter: &TaskFilter, limit| {
        let mut batch = Batch::one(root, Fence::Anyone, vec![]);
        batch.only_if =
            Arc::new([CountCondition { filter: filter.clone(), limit, or_fewer: None, what: "tasks" }]);
        s.store.append(batch)
    };
    for (filter, count) in counts {
        ask(&filter, count + 1).await.unwrap_or_else(|e| panic!("{filter:?}: {e}"));
        let refused = ask(&filter, count).await;
        assert!(matches!(refused, Err(StoreError::Limit { .. })), "{filter:?}: {refused:?}");
    }
    // Either of two is enough.
    for (or_fewer, holds) in [((pending.clone(), 2), false), ((TaskFilter::default().live(), 4), true)] {
        let mut batch = Batch::one(root, Fence::Anyone, vec![]);
        let (filter, or_fewer) = (pending.clone(), Some(or_fewer));
        batch.only_if = Arc::new([CountCondition { filter, limit: 2, or_fewer, what: "tasks" }]);
        assert_eq!(s.store.append(batch).await.is_ok(), holds);
    }
    s.write(child, Fence::Anyone, vec![stop()]).await.unwrap();
    ask(&pending, 2).await.unwrap();
}
