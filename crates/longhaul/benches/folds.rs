//! What the pure rooms cost: `cargo bench -p longhaul`.

#![expect(clippy::expect_used, reason = "a bench may panic")]

use std::sync::Arc;

use divan::{Bencher, black_box};
use jiff::Timestamp;
use longhaul::entry::{CallResult, Entry, FORMAT, Order, Record, Submission, TeamRef};
use longhaul::id::{AgentName, Attempt, CallId, Seq, TaskId, TaskKey, WorkerId};
use longhaul::message::{Block, Call, Reply};
use longhaul::snapshot::Snapshot;
use longhaul::task::TaskState;

fn main() {
    divan::main();
}

fn id() -> TaskId {
    TaskKey::named("bench").candidate_ids().next().expect("a key has candidates")
}

fn submitted() -> Submission {
    let order = Order::new("worker", "Find out what there is to find out.");
    Submission::root(id(), TaskKey::named("bench"), order, TeamRef::Named("bench".into()))
}

/// A task of so many turns, with one tool call a turn.
fn journal(turns: u32) -> Vec<Record> {
    let mut entries = vec![
        Entry::Submitted(Box::new(submitted())),
        Entry::Claimed { attempt: Attempt(1), worker: WorkerId::from("w") },
    ];
    for turn in 1..=turns {
        let call = CallId { turn, index: 0 };
        let asked =
            Call { id: format!("call_{turn}"), tool: "look".into(), arguments: format!("{{\"at\":{turn}}}") };
        let blocks = vec![Block::Text("I look again.".into()), Block::Call(asked)];
        entries.push(Entry::Replied(Arc::new(Reply { blocks, ..Reply::default() })));
        entries.push(Entry::Called {
            call,
            tool: "look".into(),
            arguments: None,
            effects: false,
            foreign: false,
        });
        entries.push(Entry::Returned(Box::new(CallResult::new(
            call,
            "There is something there, and it is not much.",
        ))));
    }
    let record = |(entry, n)| Record { seq: Seq(n), at: Timestamp::UNIX_EPOCH, entry };
    entries.into_iter().zip(1..).map(record).collect()
}

#[divan::bench(args = [3, 50])]
fn task_state(bencher: Bencher<'_, '_>, turns: u32) {
    let journal = journal(turns);
    bencher.bench(|| TaskState::from_journal(id(), black_box(&journal)));
}

#[divan::bench(args = [3, 50])]
fn turn(bencher: Bencher<'_, '_>, turns: u32) {
    let journal = journal(turns);
    let (submitted, agent) = (submitted(), AgentName::from("worker"));
    bencher.bench(|| longhaul::testing::fold_conversation(&submitted, &agent, black_box(&journal)));
}

#[divan::bench(args = [3, 50])]
fn snapshot(bencher: Bencher<'_, '_>, turns: u32) {
    let journal = journal(turns);
    bencher.bench(|| Snapshot::from_journal(id(), black_box(&journal)));
}

#[divan::bench]
fn encode_a_turn(bencher: Bencher<'_, '_>) {
    let journal = journal(1);
    bencher.bench(|| journal[2..].iter().map(|r| r.entry.encode().map(|b| b.len())).collect::<Vec<_>>());
}

#[divan::bench]
fn decode_a_turn(bencher: Bencher<'_, '_>) {
    let encoded: Vec<_> = journal(1)[2..].iter().filter_map(|r| r.entry.encode().ok()).collect();
    bencher.bench(|| encoded.iter().map(|bytes| Entry::decode(FORMAT, bytes)).collect::<Vec<_>>());
}
