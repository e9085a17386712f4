//! Questions about journals: order, atomicity, letters, and the data beside them.

use std::sync::Arc;

use futures::future::join_all;

use super::StoreFactory;
use super::setup::{
    ExamSetup, cancelled, claim, completed, hinted, letter, owner, released, replied, said, stop, submission,
};
use crate::entry::{Entry, EntryKind, Letter, WaitReason};
use crate::id::{Digest, Seq, TaskId, TaskKey, WorkerId};
use crate::store::{Batch, EntryKinds, Fence, StoreError, StoredValue};
use crate::task::{IllegalTransition, Status, TaskState};

fn seqs(records: &[crate::entry::Record]) -> Vec<u64> {
    records.iter().map(|r| r.seq.0).collect()
}

/// Entries have the numbers 1, 2, 3, … and the store's time, and are read back as they were written.
pub async fn a_journal_is_read_in_the_order_in_which_it_was_written(make: StoreFactory<'_>) {
    let s = ExamSetup::new(make);
    let id = s.running().await;
    s.clock.advance(std::time::Duration::from_secs(7));
    assert_eq!(s.write(id, owner(1), vec![replied("a"), said("b")]).await.unwrap(), Seq(4));
    assert_eq!(s.write(id, Fence::Anyone, vec![letter("c")]).await.unwrap(), Seq(5));
    let journal = s.journal(id).await;
    assert_eq!(seqs(&journal), [1, 2, 3, 4, 5]);
    let entries: Vec<_> = journal.iter().map(|r| r.entry.clone()).collect();
    assert_eq!(entries[0], submission(id));
    assert_eq!(entries[2..], [replied("a"), said("b"), letter("c")]);
    assert_eq!(journal[4].at, s.store.now());
    assert!(journal[1].at < journal[2].at);
}

/// The pages together are the journal.
pub async fn a_journal_is_read_in_pages(make: StoreFactory<'_>) {
    let s = ExamSetup::new(make);
    let id = s.running().await;
    s.write(id, owner(1), (0..8).map(|n| said(&n.to_string())).collect()).await.unwrap();
    let mut pages = Vec::new();
    let mut after = Seq(0);
    loop {
        let page = s.store.read(id, after, 3).await.unwrap();
        assert!(page.len() <= 3);
        let Some(last) = page.last() else { break };
        after = last.seq;
        pages.extend(page);
    }
    assert_eq!(pages, s.journal(id).await);
    assert_eq!(pages.len(), 10);
    assert!(s.store.read(id, Seq(10), 9).await.unwrap().is_empty());
    assert!(s.store.read(id, Seq(u64::MAX), 9).await.unwrap().is_empty());
    assert!(s.store.read(id, Seq(0), 0).await.unwrap().is_empty());
}

/// Reading it returns nothing, and writing to it is rejected.
pub async fn a_task_that_is_not_there_has_no_journal(make: StoreFactory<'_>) {
    let s = ExamSetup::new(make);
    let id = s.fresh_id();
    assert!(s.journal(id).await.is_empty());
    assert_eq!(s.store.task_state(id).await.unwrap(), None);
    for fence in [Fence::Anyone, owner(1)] {
        let refused = s.write(id, fence, vec![letter("l")]).await;
        assert!(matches!(refused, Err(StoreError::NoTask(task)) if task == id), "{refused:?}");
    }
}

/// If one write is rejected, none of the batch is applied, in whatever order; otherwise all are.
pub async fn a_batch_is_all_or_nothing(make: StoreFactory<'_>) {
    let s = ExamSetup::new(make);
    let (a, b) = (s.running().await, s.task().await);
    let c = s.fresh_id();
    let good = || Batch::one(a, owner(1), vec![completed()]).and_write(b, Fence::Anyone, vec![letter("end")]);
    let bad = [
        good().and_write(c, Fence::New, vec![letter("not a beginning")]),
        good().and_write(b, owner(1), vec![replied("not the owner")]),
        Batch::one(c, Fence::New, vec![submission(c)]).and_write(b, Fence::New, vec![submission(b)]),
        good().and_write(a, owner(1), vec![replied("after the end")]),
    ];
    let before = (s.journal(a).await, s.journal(b).await);
    for batch in bad {
        assert!(s.store.append(batch).await.is_err());
        assert_eq!((s.journal(a).await, s.journal(b).await), before);
        assert_eq!(s.store.task_state(c).await.unwrap(), None);
        assert_eq!(s.state(a).await.status, Status::Running);
    }
    assert_eq!(s.store.append(good()).await.unwrap(), [Seq(3), Seq(2)]);
    assert_eq!(s.state(a).await.status, Status::Completed);
    assert_eq!(s.state(b).await.unread, 1);
}

/// A letter whose id the task already has is skipped: later, in the same write, in the same batch, and in a
/// batch whose other writes count. Another task may have it.
pub async fn a_letter_is_taken_once(make: StoreFactory<'_>) {
    let s = ExamSetup::new(make);
    let (a, b) = (s.task().await, s.task().await);
    assert_eq!(s.write(a, Fence::Anyone, vec![letter("1"), letter("1")]).await.unwrap(), Seq(2));
    assert_eq!(s.write(a, Fence::Anyone, vec![letter("1")]).await.unwrap(), Seq(2));
    let batch = Batch::one(a, Fence::Anyone, vec![letter("2")])
        .and_write(a, Fence::Anyone, vec![letter("2"), letter("3"), letter("1")])
        .and_write(b, Fence::Anyone, vec![letter("1")]);
    assert_eq!(s.store.append(batch).await.unwrap(), [Seq(3), Seq(4), Seq(2)]);
    assert_eq!(seqs(&s.journal(a).await), [1, 2, 3, 4]);
    assert_eq!((s.state(a).await.unread, s.state(b).await.unread), (3, 1));
    s.write(a, Fence::Anyone, vec![stop(), cancelled()]).await.unwrap();
    assert_eq!(s.write(a, Fence::Anyone, vec![letter("2")]).await.unwrap(), Seq(6), "even after the end");
    let refused = s.write(a, Fence::Anyone, vec![letter("new")]).await;
    assert!(matches!(refused, Err(StoreError::Illegal { .. })), "{refused:?}");
}

/// If fifty senders send the same letter at once, it is stored once.
pub async fn a_letter_is_taken_once_though_many_send_it(make: StoreFactory<'_>) {
    let s = ExamSetup::new(make);
    let id = s.task().await;
    let sent = (0..50).map(|_| {
        let s = s.clone();
        tokio::spawn(async move { s.write(id, Fence::Anyone, vec![letter("the same")]).await })
    });
    for sent in join_all(sent).await {
        assert_eq!(sent.unwrap().unwrap(), Seq(2));
    }
    assert_eq!(s.journal(id).await.len(), 2);
}

/// Two megabytes of text, with every kind of character.
pub async fn large_entries_come_back_whole(make: StoreFactory<'_>) {
    let s = ExamSetup::new(make);
    let id = s.running().await;
    let text = "abc \0 \" \\ é 字 🦀 \u{2028}\n".repeat(80_000);
    assert!(text.len() > 2_000_000);
    s.write(id, owner(1), vec![replied(&text)]).await.unwrap();
    assert_eq!(s.journal(id).await[2].entry, replied(&text));
}

/// Whatever was written to the store, each state is the fold of its journal.
pub async fn states_are_the_fold_of_their_journals(make: StoreFactory<'_>) {
    let s = ExamSetup::new(make);
    let mut tasks = Vec::new();
    for _ in 0..4 {
        tasks.push(s.task().await);
    }
    // A simple generator: the same sequence in each run.
    let mut state = 20_261_115_u64;
    let mut draw = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let (mut taken, mut refused) = (0, 0);
    for n in 0..400 {
        let id = tasks[usize::try_from(draw(4)).unwrap()];
        let attempt = s.state(id).await.attempt.0;
        let done = match draw(12) {
            0 | 1 => s.claim(claim("w", 1)).await.map(drop),
            2 => s.write(id, Fence::Anyone, vec![stop()]).await.map(drop),
            3 => s.write(id, owner(attempt), vec![completed()]).await.map(drop),
            4 | 5 => s.write(id, owner(attempt), vec![released(attempt)]).await.map(drop),
            6 => s.write(id, Fence::Anyone, vec![letter(&n.to_string()), letter("known")]).await.map(drop),
            7 => s.write(id, Fence::Anyone, vec![cancelled()]).await.map(drop),
            8 => s.write(id, owner(attempt + 1), vec![replied("too early")]).await.map(drop),
            9 => {
                let other = tasks[usize::try_from(draw(4)).unwrap()];
                let batch = Batch::one(id, owner(attempt), vec![said("…"), replied("r")]);
                s.store.append(batch.and_write(other, Fence::Anyone, vec![letter("both")])).await.map(drop)
            }
            10 if draw(3) == 0 => {
                tasks[0] = s.task().await;
                Ok(())
            }
            _ => s.write(id, owner(attempt), vec![replied("r")]).await.map(drop),
        };
        if done.is_ok() { taken += 1 } else { refused += 1 }
    }
    assert!(taken > 50 && refused > 50, "{taken} taken, {refused} refused: neither is rare");
    for state in s.store.list(Default::default()).await.unwrap() {
        let journal = s.journal(state.id).await;
        assert_eq!(seqs(&journal), (1..=state.seq.0).collect::<Vec<_>>());
        assert_eq!(TaskState::from_journal(state.id, &journal).unwrap(), Some(state.clone()));
        assert_eq!(s.state(state.id).await, state);
    }
}

/// The entries that a power failure may lose are streamed text and waits; they too are read back at once.
pub async fn only_live_words_are_live(make: StoreFactory<'_>) {
    let s = ExamSetup::new(make);
    let id = s.running().await;
    let live = vec![said("…"), Entry::Waiting { on: WaitReason::Letter, until: None }];
    let durable = [replied("r"), letter("l"), stop(), completed(), released(1), submission(id)];
    assert!(live.iter().all(Entry::is_live) && !durable.iter().any(Entry::is_live));
    s.write(id, owner(1), live).await.unwrap();
    assert_eq!(s.journal(id).await.len(), 4);
    assert!(s.state(id).await.waiting.is_some());
}

/// A blob is stored once, under its digest.
pub async fn what_is_kept_is_found_by_its_digest(make: StoreFactory<'_>) {
    let s = ExamSetup::new(make);
    for bytes in [&b""[..], b"a team file", &[0, 255, 7].repeat(100_000)] {
        let digest = s.store.put_blob(bytes.to_vec()).await.unwrap();
        assert_eq!(digest, Digest::of_bytes(bytes));
        assert_eq!(s.store.put_blob(bytes.to_vec()).await.unwrap(), digest);
        assert_eq!(s.store.blob(digest).await.unwrap().as_deref(), Some(bytes));
    }
    assert_eq!(s.store.blob(Digest::of_bytes(b"not kept")).await.unwrap(), None);
}

/// A stored value is replaced only by a writer that has read its current version; of many concurrent writers
/// one succeeds.
pub async fn a_stored_value_is_written_by_whoever_has_read_it(make: StoreFactory<'_>) {
    let s = ExamSetup::new(make);
    assert_eq!(s.store.stored_value("a").await.unwrap(), StoredValue::default());
    assert!(!s.store.put_stored_value("a", 1, b"too soon".to_vec()).await.unwrap());
    assert!(s.store.put_stored_value("a", 0, b"one".to_vec()).await.unwrap());
    assert!(!s.store.put_stored_value("a", 0, b"again".to_vec()).await.unwrap());
    assert_eq!(s.store.stored_value("a").await.unwrap(), StoredValue { version: 1, bytes: b"one".to_vec() });
    assert!(s.store.put_stored_value("a", 1, Vec::new()).await.unwrap());
    assert_eq!(s.store.stored_value("a").await.unwrap(), StoredValue { version: 2, bytes: Vec::new() });
    assert_eq!(s.store.stored_value("A").await.unwrap(), StoredValue::default(), "another name");
    let count = |s: ExamSetup| async move {
        loop {
            let stored = s.store.stored_value("count").await.unwrap();
            let sum = stored.bytes.first().copied().unwrap_or(0) + 1;
            if s.store.put_stored_value("count", stored.version, vec![sum]).await.unwrap() {
                return;
            }
        }
    };
    let counting = (0..20).map(|_| tokio::spawn(count(s.clone())));
    join_all(counting).await.into_iter().for_each(|counted| counted.unwrap());
    assert_eq!(s.store.stored_value("count").await.unwrap(), StoredValue { version: 20, bytes: vec![20] });
}

/// If many submit the same task at once, one succeeds, and the others get that it exists.
pub async fn a_task_is_submitted_once(make: StoreFactory<'_>) {
    let s = ExamSetup::new(make);
    let id: TaskId = s.fresh_id();
    let submitted = (0..20).map(|_| {
        let s = s.clone();
        tokio::spawn(async move { s.submit(id, submission(id)).await })
    });
    let mut first = 0;
    for answer in join_all(submitted).await {
        match answer.unwrap() {
            Ok(ends) => {
                assert_eq!(ends, [Seq(1)]);
                first += 1;
            }
            Err(StoreError::Exists(task)) => assert_eq!(task, id),
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!((first, s.journal(id).await.len()), (1, 1));
}

/// A completed task accepts nothing more from its owner, and no letter from anyone.
pub async fn nothing_comes_after_the_end(make: StoreFactory<'_>) {
    let s = ExamSetup::new(make);
    let id = s.running().await;
    let refused = s.write(id, owner(1), vec![completed(), replied("more")]).await;
    let Err(StoreError::Illegal { why, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(why, IllegalTransition::NotNow { status: Status::Completed, entry: EntryKind::Replied });
    s.write(id, owner(1), vec![completed()]).await.unwrap();
    let over = s.write(id, owner(1), vec![completed()]).await;
    assert!(matches!(over, Err(StoreError::Superseded { .. })), "{over:?}");
    for entry in [letter("late"), completed(), cancelled()] {
        let refused = s.write(id, Fence::Anyone, vec![entry]).await;
        assert!(matches!(refused, Err(StoreError::Illegal { .. })), "{refused:?}");
    }
    s.write(id, Fence::Anyone, vec![ending("before")]).await.unwrap();
    s.write(id, Fence::Anyone, vec![Entry::Continued { by: s.fresh_id() }]).await.unwrap();
    assert_eq!(s.state(id).await.status, Status::Completed);
    // The end of a child goes to the continuation; writing the same letter again is harmless.
    s.write(id, Fence::Anyone, vec![ending("before")]).await.unwrap();
    let refused = s.write(id, Fence::Anyone, vec![ending("after")]).await;
    assert!(
        matches!(refused, Err(StoreError::Illegal { why: IllegalTransition::NotNow { .. }, .. })),
        "{refused:?}"
    );
}

/// A letter about the end of a child.
fn ending(id: &str) -> Entry {
    match letter(id) {
        Entry::Letter(letter) => {
            let ending = TaskKey::named(id).candidate_ids().next();
            Entry::Letter(Box::new(Letter { ending, ..*letter }))
        }
        entry => entry,
    }
}

/// A receiver that exists before an append gets a hint, with its kinds and its tree.
pub async fn an_append_gives_a_hint(make: StoreFactory<'_>) {
    let s = ExamSetup::new(make);
    let mut hints = s.store.hints();
    let parent = s.task().await;
    let child = s.child(parent).await;
    hinted(&mut hints, parent, EntryKinds::from_kinds([EntryKind::Submitted])).await;
    let hint = hinted(&mut hints, child, EntryKinds::from_kinds([EntryKind::Submitted])).await;
    if let crate::store::Hint::Task { root, kinds, .. } = hint {
        assert_eq!(root, parent);
        assert!(!kinds.intersects(EntryKinds::from_kinds([EntryKind::Letter, EntryKind::Finished])));
    }
    s.write(child, Fence::Anyone, vec![letter("l"), stop()]).await.unwrap();
    hinted(&mut hints, child, EntryKinds::from_kinds([EntryKind::StopRequested])).await;
}

/// So does a receiver that exists before a claim.
pub async fn a_claim_gives_a_hint(make: StoreFactory<'_>) {
    let s = ExamSetup::new(make);
    let id = s.task().await;
    let mut hints = s.store.hints();
    s.claim(claim("w", 1)).await.unwrap();
    hinted(&mut hints, id, EntryKinds::from_kinds([EntryKind::Claimed])).await;
}

/// The store uses the clock it was given.
pub async fn the_time_is_the_clocks(make: StoreFactory<'_>) {
    let s = ExamSetup::new(make);
    let before = s.store.now();
    s.clock.advance(std::time::Duration::from_millis(1234));
    assert_eq!(s.store.now().as_millisecond() - before.as_millisecond(), 1234);
    assert_eq!(Arc::strong_count(&s.store), 1);
    s.store.retire_worker(WorkerId::from("nobody")).await.unwrap();
}
