//! What a store over a network does: answers are lost after the work was done, and a journal loses its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use longhaul::entry::{Entry, EntryCodecError, EntryKind, Letter, ReleaseReason, Sender};
use longhaul::id::{Attempt, LetterId, Seq};
use longhaul::store::{Batch, Clock, Fence, MemoryStore, SqliteStore, Store};
use longhaul::testing::reply;
use longhaul::{Longhaul, Order, Status, Team};
use serde_json::json;
use tokio::time::Instant;

use crate::engine::moody::{Mood, Moody};
use crate::engine::stage::*;

fn clock() -> Clock {
    let (began, zero) = (Instant::now(), Timestamp::now());
    Clock::from_fn(move || zero + began.elapsed())
}

/// A lead that launches a worker and calls a tool that must not be repeated; and how often that ran.
fn calling_team() -> (Team, Arc<AtomicUsize>) {
    let ran = Arc::new(AtomicUsize::new(0));
    let count = ran.clone();
    let once = tool("once", move |_, _| {
        count.fetch_add(1, Ordering::SeqCst);
        async { Ok("written".into()) }
    });
    let model = model(|asked| match (asked.agent.as_str(), asked.turn) {
        ("lead", 0) => launch(reply().call("once", json!({})), "x"),
        _ => reply().text("over"),
    });
    (team(pair(&model).toolset(once)), ran)
}

fn count(journal: &[longhaul::entry::Record], kind: EntryKind) -> usize {
    journal.iter().filter(|record| record.entry.kind() == kind).count()
}

/// Every kind of write of a run loses its answer once, on both stores: nothing is written twice, the call is
/// made at most once, and the task goes on.
async fn nothing_is_written_twice(kind: EntryKind, inner: impl Store) {
    let mood = Arc::<Mood>::default();
    let store = Moody { inner, mood: mood.clone(), hints: true };
    let (team, ran) = calling_team();
    let longhaul = Longhaul::builder(team).store(store).start().await.unwrap();
    mood.lose_appends(kind, 1);
    let id = longhaul.submit(Order::new("lead", "go")).await.unwrap();
    assert_done(&end(&longhaul, id).await);
    let whole = journal(&longhaul, id).await;
    assert_eq!(mood.lost_appends.lock().unwrap().unwrap().1, 0, "{kind:?}: an answer was lost");
    // Between two claims, whatever an attempt has written it has written once.
    for attempt in whole.split(|record| matches!(record.entry, Entry::Claimed { .. })) {
        for pair in attempt.windows(2) {
            let same = pair[0].entry == pair[1].entry && !matches!(pair[0].entry, Entry::Said { .. });
            assert!(!same, "{kind:?}: twice: {whole:#?}");
        }
    }
    assert_eq!(count(&whole, EntryKind::Finished), 1, "{kind:?}: {whole:#?}");
    let once = |entry: &Entry| match entry {
        Entry::Replied(reply) => reply.calls().any(|call| call.tool == "once"),
        Entry::Returned(returned) => returned.call.index == 0,
        _ => false,
    };
    let told: Vec<EntryKind> =
        whole.iter().filter(|record| once(&record.entry)).map(|record| record.entry.kind()).collect();
    assert_eq!(told, [EntryKind::Replied, EntryKind::Returned], "{kind:?}: {whole:#?}");
    assert!(ran.load(Ordering::SeqCst) <= 1, "{kind:?}: the call was repeated");
    let below = children(&longhaul, id).await;
    assert_eq!(below.len(), 1, "{kind:?}");
    assert_eq!(letters(&longhaul, id).await.iter().filter(|l| l.ending == Some(below[0].id)).count(), 1);
    assert!(longhaul.store().task_state(id).await.unwrap().unwrap().settled);
    within(longhaul.shutdown()).await;
}

const KINDS: [EntryKind; 5] =
    [EntryKind::Submitted, EntryKind::Replied, EntryKind::Returned, EntryKind::Read, EntryKind::Finished];

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_lost_writes_nothing_twice() {
    for kind in KINDS {
        nothing_is_written_twice(kind, MemoryStore::with_clock(clock())).await;
    }
}

#[tokio::test]
async fn an_answer_that_is_lost_writes_nothing_twice_on_disk() {
    for kind in KINDS {
        let dir = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(dir.path().join("longhaul.db")).unwrap();
        nothing_is_written_twice(kind, store).await;
    }
}

/// A release whose answer is lost is a release: the task is claimed again, and nobody is told that another
/// process has it.
#[tokio::test(start_paused = true)]
async fn a_release_whose_answer_is_lost_is_one() {
    let mood = Arc::<Mood>::default();
    let (gate, model) = gated(move |gate, _| async move {
        gate.pass().await;
        reply().text("x")
    });
    let store: Arc<dyn Store> =
        Arc::new(Moody { inner: MemoryStore::with_clock(clock()), mood: mood.clone(), hints: true });
    let build = || Longhaul::builder(team(agent("solo", &model))).shared_store(store.clone()).start();
    let first = build().await.unwrap();
    let id = first.submit(Order::new("solo", "go")).await.unwrap();
    gate.came(1).await;
    mood.lose_appends(EntryKind::Released, 1);
    within(first.shutdown()).await;
    let state = store.task_state(id).await.unwrap().unwrap();
    assert_eq!((state.status, state.attempt), (Status::Pending, Attempt(1)));
    let journal = store.read(id, Seq(0), 99).await.unwrap();
    assert_eq!(count(&journal, EntryKind::Released), 1, "{journal:#?}");
    let second = build().await.unwrap();
    gate.open(9);
    assert_done(&end(&second, id).await);
}

/// The tasks of a claim whose answer was lost are ours, and we do not know: nobody else may take them.
#[tokio::test(start_paused = true)]
async fn a_claim_whose_answer_is_lost_is_given_back_and_made_again() {
    let mood = Arc::<Mood>::default();
    let store = Moody { inner: MemoryStore::with_clock(clock()), mood: mood.clone(), hints: true };
    let model = model(|_| reply().text("x"));
    let longhaul = Longhaul::builder(team(agent("solo", &model))).store(store).start().await.unwrap();
    mood.lost_claims.store(1, Ordering::SeqCst);
    let began = Instant::now();
    let id = longhaul.submit(Order::new("solo", "go")).await.unwrap();
    let done = end(&longhaul, id).await;
    assert_eq!((done.state.status, done.state.attempt), (Status::Completed, Attempt(2)));
    assert!(began.elapsed() < Duration::from_secs(15), "within a lease: {:?}", began.elapsed());
    within(longhaul.shutdown()).await;
}

/// A database that fails over may lose what did not wait for the disk. The attempt that wrote it ends, and
/// the next one reads what is there.
#[tokio::test(start_paused = true)]
async fn a_run_whose_journal_became_shorter_ends_and_the_task_is_claimed_anew() {
    // Nobody has written in its place; one has; three have, so that the numbers fit again.
    for others in [0, 1, 3] {
        let gate = Gate::new();
        let heard = Log::default();
        let log = heard.clone();
        let model = model(move |asked| {
            log.note(&asked);
            match asked.turn {
                0 => reply().call("wait", json!({})),
                _ => reply().text("over"),
            }
        });
        let at = gate.clone();
        let wait = tool("wait", move |_, context| {
            let gate = at.clone();
            async move {
                // Live entries, which do not wait for the disk.
                context.progress("one");
                gate.pass().await;
                Ok("waited".into())
            }
        });
        let store = Arc::new(MemoryStore::with_clock(clock()));
        let team = team(agent("solo", &model).toolset(wait));
        let longhaul = Longhaul::builder(team).shared_store(store.clone()).start().await.unwrap();
        let id = longhaul.submit(Order::new("solo", "go")).await.unwrap();
        gate.came(1).await;
        until(&longhaul, id, |state| state.progress.is_some()).await;
        let whole = journal(&longhaul, id).await;
        let live = whole.last().unwrap();
        assert!(live.entry.is_live(), "{live:?}");
        store.lose_entries_after(id, Seq(live.seq.0 - 1)).unwrap();
        for nth in 0..others {
            let letter = Letter::new(LetterId::random(), Sender::Person, format!("letter {nth}"));
            let entry = Entry::Letter(Box::new(letter));
            store.append(Batch::one(id, Fence::Anyone, vec![entry])).await.unwrap();
        }
        gate.open(9);
        let done = end(&longhaul, id).await;
        assert_done(&done);
        assert_eq!(done.state.attempt, Attempt(2), "{others}: {:#?}", journal(&longhaul, id).await);
        let last = heard.all().pop().unwrap();
        for nth in 0..others {
            assert_eq!(last.times(&format!("letter {nth}")), 1, "{others}: {last:?}");
        }
        assert_eq!(done.state.unread, 0);
        within(longhaul.shutdown()).await;
    }
}

/// After a silence of the store no worker has renewed: who is back first must not take from the others.
#[tokio::test(start_paused = true)]
async fn after_a_silence_a_worker_takes_nothing_before_it_was_in_touch_for_a_lease() {
    let mood = Arc::<Mood>::default();
    let store: Arc<dyn Store> =
        Arc::new(Moody { inner: MemoryStore::with_clock(clock()), mood: mood.clone(), hints: true });
    let (gate, model) = gated(move |gate, _| async move {
        gate.pass().await;
        reply().text("x")
    });
    let build = || Longhaul::builder(team(agent("solo", &model))).shared_store(store.clone()).start();
    let first = build().await.unwrap();
    let id = first.submit(Order::new("solo", "go")).await.unwrap();
    gate.came(1).await;
    let owner = store.task_state(id).await.unwrap().unwrap().worker;
    let second = build().await.unwrap();
    tokio::time::sleep(Duration::from_secs(20)).await;
    mood.away.store(true, Ordering::SeqCst);
    mood.is_full(true);
    // Everyone's runs end, and no one can say so.
    tokio::time::sleep(Duration::from_secs(60)).await;
    // The second is back at once, and the owner 14 seconds later.
    *mood.cut_off.lock().unwrap() = owner;
    mood.away.store(false, Ordering::SeqCst);
    mood.is_full(false);
    tokio::time::sleep(Duration::from_secs(14)).await;
    *mood.cut_off.lock().unwrap() = None;
    gate.open(9);
    assert_done(&end(&second, id).await);
    let whole = journal(&second, id).await;
    let taken = |entry: &Entry| matches!(entry, Entry::Released { why: ReleaseReason::Lost, .. });
    assert!(!whole.iter().any(|record| taken(&record.entry)), "it was taken away: {whole:#?}");
    within(first.shutdown()).await;
}

/// What a newer Longhaul has written is left to it: the task does not fail, and is not claimed again and again.
#[tokio::test(start_paused = true)]
async fn a_task_with_an_entry_of_a_newer_format_is_given_back_and_left_alone() {
    let (mood, gate) = (Arc::<Mood>::default(), Gate::new());
    let model = gate.model(move |gate, asked| async move {
        if asked.order == "go" {
            gate.pass().await;
        }
        reply().text("never said")
    });
    let store = Moody { inner: MemoryStore::with_clock(clock()), mood: mood.clone(), hints: true };
    let longhaul = Longhaul::builder(team(agent("solo", &model))).store(store).start().await.unwrap();
    let id = longhaul.submit(Order::new("solo", "go")).await.unwrap();
    gate.came(1).await;
    *mood.garbled.lock().unwrap() = Some(EntryCodecError::NewerFormat { format: 99 });
    let letter = Letter::new(LetterId::random(), Sender::Person, "what makes it look");
    let batch = Batch::one(id, Fence::Anyone, vec![Entry::Letter(Box::new(letter))]);
    longhaul.store().append(batch).await.unwrap();
    tokio::time::sleep(Duration::from_secs(300)).await;
    let state = longhaul.store().task_state(id).await.unwrap().unwrap();
    assert_eq!((state.status, state.error), (Status::Pending, None));
    assert_eq!(mood.claims.lock().unwrap().iter().filter(|task| **task == id).count(), 1);
    // Others are run as before.
    *mood.garbled.lock().unwrap() = None;
    assert_done(&ask(&longhaul, Order::new("solo", "another")).await);
    within(longhaul.shutdown()).await;
}
