use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::entry::{Failure, FailureKind, Letter, Order, ReleaseReason, Sender, StopCause};
use crate::id::{LetterId, TaskKey};
use crate::message::Reply;

fn id() -> TaskId {
    TaskKey::named("a task").candidate_ids().next().unwrap()
}

fn record(seq: u64, entry: Entry) -> Record {
    Record {
        seq: Seq(seq),
        at: Timestamp::from_millisecond(1000 * i64::try_from(seq).unwrap()).unwrap(),
        entry,
    }
}

fn submitted() -> Entry {
    let (key, team) = (TaskKey::named("a task"), TeamRef::Named("team".into()));
    Entry::Submitted(Box::new(Submission::root(id(), key, Order::new("worker", "do it"), team)))
}

fn claimed(attempt: u32) -> Entry {
    Entry::Claimed { attempt: Attempt(attempt), worker: WorkerId::from("w") }
}

fn stop(cause: StopCause) -> Entry {
    Entry::StopRequested(StopRequest { cause, note: None })
}

fn released(attempt: u32) -> Entry {
    Entry::Released { attempt: Attempt(attempt), why: ReleaseReason::Drained }
}

fn completed() -> Entry {
    Entry::Finished(Box::new(Outcome::Completed { output: "42".into(), cut_short: None }))
}

fn failed() -> Entry {
    let failure = Failure::new(FailureKind::Model, "no");
    Entry::Finished(Box::new(Outcome::Failed { failure, partial: "".into() }))
}

fn cancelled() -> Entry {
    let stop = StopRequest { cause: StopCause::Person, note: None };
    Entry::Finished(Box::new(Outcome::Cancelled { stop, partial: "".into() }))
}

fn letter(n: u32, ending: bool) -> Entry {
    Entry::Letter(Box::new(
        Letter::new(LetterId::from(format!("l{n}")), Sender::Person, "hello").ending(ending.then(id)),
    ))
}

fn state_after(entries: impl IntoIterator<Item = Entry>) -> TaskState {
    let records: Vec<_> =
        std::iter::once(submitted()).chain(entries).zip(1..).map(|(e, n)| record(n, e)).collect();
    TaskState::from_journal(id(), &records).unwrap().unwrap()
}

/// The table of docs/lifecycle.md, row by row: the state after each entry, `None` if the entry is rejected.
#[test]
fn the_table() {
    use Status::{Cancelled, Completed, Failed, Pending, Running};
    let person = || stop(StopCause::Person);
    type Row = (&'static str, Vec<Entry>, [Option<(Status, bool)>; 6]);
    let rows: Vec<Row> = vec![
        // state, how to get there,             Claimed(2 or 1)         StopRequested            completed              failed                 cancelled               Released
        ("pending", vec![], [Some((Running, false)), Some((Cancelled, true)), None, None, None, None]),
        (
            "running",
            vec![claimed(1)],
            [
                None,
                Some((Running, true)),
                Some((Completed, false)),
                Some((Failed, false)),
                Some((Cancelled, false)),
                Some((Pending, false)),
            ],
        ),
        (
            "running+stop",
            vec![claimed(1), person()],
            [
                None,
                Some((Running, true)),
                Some((Completed, true)),
                Some((Failed, true)),
                Some((Cancelled, true)),
                Some((Cancelled, true)),
            ],
        ),
        (
            "completed",
            vec![claimed(1), completed()],
            [None, Some((Completed, false)), None, None, None, None],
        ),
        ("failed", vec![claimed(1), failed()], [None, Some((Failed, false)), None, None, None, None]),
        (
            "cancelled",
            vec![claimed(1), cancelled()],
            [None, Some((Cancelled, false)), None, None, None, None],
        ),
        // Cancelled by a stop request alone, with its end not recorded yet: that one entry is still to come.
        (
            "cancelled, unsettled",
            vec![person()],
            [None, Some((Cancelled, true)), None, None, Some((Cancelled, true)), None],
        ),
    ];
    for (name, path, expected) in rows {
        let start = state_after(path);
        let attempt = start.attempt.0;
        let moves = [claimed(attempt + 1), person(), completed(), failed(), cancelled(), released(attempt)];
        for (entry, expected) in moves.into_iter().zip(expected) {
            let mut state = start.clone();
            let got =
                state.apply(&record(9, entry.clone())).ok().map(|()| (state.status, state.stop.is_some()));
            assert_eq!(got, expected, "{name} + {entry:?}");
            if got.is_none() {
                assert_eq!(state, start, "a refused move changes nothing");
            }
        }
    }
}

#[test]
fn a_stop_that_meets_a_release_cancels() {
    let state = state_after([claimed(1), stop(StopCause::Agent), released(1)]);
    assert_eq!((state.status, state.settled), (Status::Cancelled, false));
}

#[test]
fn the_strongest_stop_wins_whatever_the_order() {
    for causes in [[StopCause::Person, StopCause::ParentEnded], [StopCause::ParentEnded, StopCause::Person]] {
        let state = state_after(std::iter::once(claimed(1)).chain(causes.map(stop)));
        assert_eq!(state.stop.unwrap().cause, StopCause::Person);
    }
}

#[test]
fn two_tools_at_once_are_two_tools() {
    let call = |index| Entry::Called {
        call: CallId { turn: 1, index },
        tool: Arc::from("t"),
        arguments: None,
        effects: false,
        foreign: false,
    };
    let mut state = state_after([claimed(1), Entry::Replied(Arc::new(Reply::default())), call(0), call(1)]);
    assert_eq!(state.calling.len(), 2);
    state
        .apply(&record(
            9,
            Entry::Returned(Box::new(crate::entry::CallResult::new(CallId { turn: 1, index: 0 }, ""))),
        ))
        .unwrap();
    assert_eq!(*state.calling, [(CallId { turn: 1, index: 1 }, Arc::from("t"))]);
}

#[test]
fn a_full_mailbox_refuses_letters_but_not_endings() {
    let mut state = state_after((0..MAILBOX).map(|n| letter(n, false)));
    assert_eq!(state.apply(&record(999, letter(999, false))), Err(IllegalTransition::MailboxFull));
    state.apply(&record(1000, letter(1000, true))).unwrap();
}

#[test]
fn a_finished_task_takes_no_letter_but_hears_of_its_children() {
    let mut state = state_after([claimed(1), completed()]);
    assert!(state.apply(&record(9, letter(1, false))).is_err());
    state.apply(&record(9, letter(2, true))).unwrap();
    assert_eq!(state.status, Status::Completed);
}

#[test]
fn elapsed_stops_at_the_end() {
    let state = state_after([claimed(1), completed()]);
    assert_eq!(state.elapsed(Timestamp::MAX), std::time::Duration::from_secs(1));
}

fn any_move() -> impl Strategy<Value = Entry> {
    prop_oneof![
        3 => (0u32..6).prop_map(claimed),
        2 => prop_oneof![Just(StopCause::ParentEnded), Just(StopCause::Agent), Just(StopCause::Person)].prop_map(stop),
        1 => Just(completed()),
        1 => Just(failed()),
        1 => Just(cancelled()),
        3 => (0u32..6).prop_map(released),
        1 => (0u32..99, any::<bool>()).prop_map(|(n, e)| letter(n, e)),
        1 => Just(Entry::Replied(Arc::new(Reply::default()))),
        1 => Just(submitted()),
        1 => Just(Entry::Continued { by: id() }),
        1 => Just(Entry::Said { voice: LiveTextKind::Text, text: "…".into() }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(250))]

    #[test]
    fn whatever_is_thrown_at_it(moves in proptest::collection::vec(any_move(), 0..60)) {
        let mut state = state_after([]);
        let mut finished = 0;
        let mut journal = vec![record(1, submitted())];
        for (n, entry) in moves.into_iter().enumerate() {
            let before = state.clone();
            let record = record(n as u64 + 2, entry.clone());
            if state.apply(&record).is_err() {
                prop_assert_eq!(&state, &before);
                continue;
            }
            journal.push(record);
            if before.status.is_final() {
                prop_assert_eq!(state.status, before.status, "final states are never left");
                prop_assert!(state.ended == before.ended);
            }
            if matches!(entry, Entry::Finished(_)) {
                finished += 1;
            }
            prop_assert!(finished <= 1, "one Finished");
            prop_assert!(state.attempt >= before.attempt, "attempts only grow");
            prop_assert!(state.stop.as_ref().map(|s| s.cause) >= before.stop.as_ref().map(|s| s.cause), "a stop is never forgotten");
            prop_assert!(!(state.status == Status::Pending && state.stop.is_some()), "a stopped task is never claimable");
            prop_assert_eq!(state.worker.is_some(), state.status == Status::Running);
            prop_assert_eq!(state.ended.is_some(), state.status.is_final());
        }
        prop_assert_eq!(TaskState::from_journal(id(), &journal).unwrap().unwrap(), state, "the state is the fold of the journal");
    }
}

#[test]
fn the_time_of_a_task_that_nobody_runs_stands_still() {
    let later = Timestamp::from_millisecond(1_000_000).unwrap();
    let mut journal = vec![record(1, submitted()), record(2, claimed(1)), record(5, released(1))];
    for (seq, record) in (1..).zip(&mut journal) {
        record.seq = Seq(seq);
    }
    let state = TaskState::from_journal(id(), &journal).unwrap().unwrap();
    assert_eq!(state.elapsed(later), Duration::from_secs(3));
    // A task whose process is gone is the same, although the journal does not say so.
    let state = TaskState::from_journal(id(), &journal[..2]).unwrap().unwrap();
    assert_eq!(state.elapsed(later), Duration::from_secs(998));
    assert_eq!(state.into_interrupted().elapsed(later), Duration::ZERO);
}
