//! The numbers of events, for random journals, random cuts and lost entries.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use longhaul::entry::{
    CallResult, Entry, Failure, FailureKind, Letter, LiveTextKind, NudgeReason, Order, Outcome, Record,
    ReleaseReason, Sender, StopCause, StopRequest, Submission, TeamRef, WaitReason,
};
use longhaul::id::{Attempt, CallId, LetterId, Seq, TaskKey, WorkerId};
use longhaul::message::{Block, Call, Reply};
use proptest::prelude::*;

use super::object::is_streamed;
use super::projection::{
    Change, EventOrder, Item, ItemBody, ItemStatus, NumberedEvent, ResponseProjection, Step,
};
use super::request::Shown;

fn records(entries: &[Entry]) -> Vec<Record> {
    let at = jiff::Timestamp::UNIX_EPOCH;
    (1..).zip(entries).map(|(seq, entry)| Record { seq: Seq(seq), at, entry: entry.clone() }).collect()
}

fn submitted() -> Entry {
    let key = TaskKey::named("x");
    let id = key.candidate_ids().next().unwrap();
    Entry::Submitted(Box::new(Submission::root(id, key, Order::new("a", "x"), TeamRef::Named("t".into()))))
}

fn claimed(attempt: u32) -> Entry {
    Entry::Claimed { attempt: Attempt(attempt), worker: WorkerId::from("w") }
}

fn said(text: &str) -> Entry {
    Entry::Said { voice: LiveTextKind::Text, text: text.to_owned() }
}

fn replied(text: &str, reasoning: &str, calls: usize) -> Entry {
    let mut blocks =
        vec![Block::Reasoning { text: reasoning.to_owned(), opaque: None }, Block::Text(text.to_owned())];
    let call =
        || Block::Call(Call { id: "c".to_owned(), tool: "look".to_owned(), arguments: "{}".to_owned() });
    blocks.extend((0..calls).map(|_| call()));
    Entry::Replied(Arc::new(Reply { blocks, ..Reply::default() }))
}

fn finished(output: &str) -> Entry {
    Entry::Finished(Box::new(Outcome::Completed { output: output.into(), cut_short: None }))
}

/// The events that a client gets, and the items after the journal.
fn stream(journal: &[Entry], after: Option<u64>, shown: Shown) -> (Vec<NumberedEvent>, ResponseProjection) {
    let (mut projection, mut order) = (ResponseProjection::default(), EventOrder::new(shown.reasoning));
    let mut events = Vec::new();
    for record in records(journal) {
        let new = projection.apply(&record);
        let new = order.next(&projection, new).into_iter().filter_map(|event| event.after(after));
        events.extend(new.filter(|event| match event.change {
            Change::Item { at, .. } => is_streamed(&projection.items[at], shown),
            _ => true,
        }));
    }
    (events, projection)
}

/// What a client knows: the texts of the items, by the number that identifies an item.
#[derive(Debug, Default, Clone, PartialEq)]
struct Client {
    last: Option<u64>,
    added: HashSet<u64>,
    done: HashSet<u64>,
    texts: BTreeMap<u64, String>,
    ends: usize,
    /// Whether there was a power failure.
    lossy: bool,
}

impl Client {
    fn read(&mut self, events: &[NumberedEvent], items: &[Item]) {
        for event in events {
            assert!(
                self.last.is_none_or(|last| event.number > last),
                "{} after {:?}",
                event.number,
                self.last
            );
            self.last = Some(event.number);
            match &event.change {
                Change::Item { at, step } => {
                    let item = items[*at].number;
                    match step {
                        Step::Added => assert!(self.added.insert(item), "an item is added once"),
                        Step::Done => {
                            let is_first = self.done.insert(item);
                            // The entry that withdrew it may be lost: then it is withdrawn again.
                            let again = self.lossy && items[*at].status == ItemStatus::Withdrawn;
                            assert!(is_first || again, "an item is done once");
                        }
                        Step::Text(text) => self.texts.entry(item).or_default().push_str(text),
                        _ => {}
                    }
                }
                Change::Ended => self.ends += 1,
                _ => {}
            }
        }
    }

    /// Every message that is complete has arrived whole.
    fn check(&self, projection: &ResponseProjection) {
        assert_eq!(self.ends, usize::from(projection.outcome.is_some()));
        for item in &projection.items {
            let ItemBody::Message { text } = &item.body else { continue };
            assert!(self.added.contains(&item.number));
            if matches!(item.status, ItemStatus::Completed | ItemStatus::Incomplete) {
                assert_eq!(self.texts.get(&item.number), Some(text));
            }
            assert_eq!(self.done.contains(&item.number), item.status != ItemStatus::InProgress);
        }
    }
}

/// A step of a random task.
#[derive(Debug, Clone)]
enum Doing {
    /// A reply: its text in pieces, how many of them were journaled while they streamed, reasoning, calls.
    Reply(Vec<String>, usize, String, usize),
    /// A reply that is not what was streamed.
    Other(String, String),
    /// A try that failed at the provider after this text.
    Failed(String),
    /// A crash, after this text.
    Crash(String),
    Letter,
    Nudge,
}

fn words() -> impl Strategy<Value = String> {
    prop_oneof!["[a-c ]{0,6}", "[äöü→🦀x]{0,4}", Just(String::new())]
}

fn doing() -> impl Strategy<Value = Doing> {
    prop_oneof![
        4 => (proptest::collection::vec(words(), 0..5), 0..6_usize, words(), 0..3_usize)
            .prop_map(|(pieces, live, reasoning, calls)| Doing::Reply(pieces, live, reasoning, calls)),
        1 => (words(), words()).prop_map(|(live, whole)| Doing::Other(live, whole)),
        1 => words().prop_map(Doing::Failed),
        1 => words().prop_map(Doing::Crash),
        1 => Just(Doing::Letter),
        1 => Just(Doing::Nudge),
    ]
}

#[derive(Debug, Clone)]
enum End {
    None,
    Same,
    Note(String),
    Other(String),
    Failed(String),
    Cancelled(String),
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![
        Just(End::None),
        Just(End::Same),
        words().prop_map(End::Note),
        words().prop_map(End::Other),
        words().prop_map(End::Failed),
        words().prop_map(End::Cancelled),
    ]
}

/// Writes journals of tasks.
struct Writer {
    entries: Vec<Entry>,
    attempt: u32,
    turn: u32,
    last: String,
    /// Whether the text of a reply is journaled while it streams.
    live: bool,
}

impl Writer {
    fn begin(live: bool) -> Writer {
        Writer { entries: vec![submitted(), claimed(1)], attempt: 1, turn: 0, last: String::new(), live }
    }

    fn reclaim(&mut self) {
        let released = Entry::Released { attempt: Attempt(self.attempt), why: ReleaseReason::Lost };
        self.attempt += 1;
        self.entries.extend([released, claimed(self.attempt)]);
    }

    fn write(&mut self, doing: &Doing) {
        // The engine asks for another reply only if there is something new to say.
        let answered =
            |entry: &Entry| matches!(entry, Entry::Replied(reply) if reply.calls().next().is_none());
        if self.entries.last().is_some_and(answered) {
            self.entries.push(Entry::Nudged { why: NudgeReason::Empty, text: "go on".into() });
        }
        match doing {
            Doing::Reply(pieces, live, reasoning, calls) => {
                let live = if self.live { *live } else { 0 };
                for (at, piece) in pieces.iter().take(live).enumerate() {
                    if at == 1 {
                        self.letter();
                    }
                    self.entries.push(said(piece));
                    let progress = Entry::Said { voice: LiveTextKind::Progress, text: "…".to_owned() };
                    self.entries.push(progress);
                }
                self.reply(&pieces.concat(), reasoning, *calls);
            }
            Doing::Other(live, whole) => {
                self.entries.push(said(live));
                self.reply(whole, "", 0);
            }
            Doing::Failed(text) => {
                let waiting = Entry::Waiting { on: WaitReason::Provider("busy".to_owned()), until: None };
                self.entries.extend([said(text), waiting]);
            }
            Doing::Crash(text) => {
                self.entries.push(said(text));
                self.reclaim();
            }
            Doing::Letter => self.letter(),
            Doing::Nudge => {
                self.entries.push(Entry::Nudged { why: NudgeReason::Empty, text: "go on".into() })
            }
        }
    }

    fn letter(&mut self) {
        self.entries.push(Entry::Letter(Box::new(Letter::new(LetterId::from("l"), Sender::Person, "hm"))));
    }

    fn reply(&mut self, text: &str, reasoning: &str, calls: usize) {
        self.turn += 1;
        text.clone_into(&mut self.last);
        self.entries.push(replied(text, reasoning, calls));
        for index in 0..calls {
            let call = CallId { turn: self.turn, index: u32::try_from(index).unwrap() };
            self.entries.push(Entry::Called {
                call,
                tool: "look".into(),
                arguments: None,
                effects: false,
                foreign: false,
            });
            self.entries.push(Entry::Returned(Box::new(CallResult::new(call, "seen"))));
        }
    }

    fn end(&mut self, end: &End) {
        let outcome = match end {
            End::None => return,
            End::Same => return self.entries.push(finished(&self.last)),
            End::Note(note) => return self.entries.push(finished(&format!("{}\n\n{note}", self.last))),
            End::Other(text) => return self.entries.push(finished(text)),
            End::Failed(text) => {
                self.entries.push(said(text));
                Outcome::Failed { failure: Failure::new(FailureKind::Model, "no"), partial: "".into() }
            }
            End::Cancelled(text) => {
                self.entries.push(said(text));
                let stop = StopRequest { cause: StopCause::Person, note: None };
                Outcome::Cancelled { stop, partial: "".into() }
            }
        };
        self.entries.push(Entry::Finished(Box::new(outcome)));
    }
}

fn journal(doings: &[Doing], end: &End, live: bool) -> Vec<Entry> {
    let mut writer = Writer::begin(live);
    doings.iter().for_each(|doing| writer.write(doing));
    writer.end(end);
    writer.entries
}

fn shown() -> impl Strategy<Value = Shown> {
    (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(commentary, reasoning, tool_calls)| Shown {
        commentary,
        reasoning,
        tool_calls,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn a_stream_continues_at_any_event_without_gap_or_double(
        doings in proptest::collection::vec(doing(), 0..8), end in end(), shown in shown(), cut in any::<prop::sample::Index>(),
    ) {
        let journal = journal(&doings, &end, true);
        let (whole, projection) = stream(&journal, None, shown);
        let mut all = Client::default();
        all.read(&whole, &projection.items);
        if !(shown.reasoning && projection.open().is_some()) {
            all.check(&projection);
        }
        let at = cut.index(whole.len() + 1);
        let mut client = Client::default();
        client.read(&whole[..at], &projection.items);
        client.read(&stream(&journal, client.last, shown).0, &projection.items);
        prop_assert_eq!(client, all);
    }

    #[test]
    fn numbers_do_not_depend_on_how_a_reply_was_journaled(
        doings in proptest::collection::vec(doing(), 0..8), end in end(), shown in shown(), cut in any::<prop::sample::Index>(),
    ) {
        // The first process saw the text of replies while it was written, the second finds only the replies.
        let (live, later) = (journal(&doings, &end, true), journal(&doings, &end, false));
        let (whole, projection) = stream(&live, None, shown);
        let at = cut.index(whole.len() + 1);
        let mut client = Client::default();
        client.read(&whole[..at], &projection.items);
        let (rest, found) = stream(&later, client.last, shown);
        let by_number = |projection: &ResponseProjection| {
            let mut items = projection.items.clone();
            items.sort_by_key(|item| item.number);
            items
        };
        prop_assert_eq!(by_number(&found), by_number(&projection));
        client.read(&rest, &found.items);
        if !(shown.reasoning && found.open().is_some()) {
            client.check(&found);
        }
    }

    #[test]
    fn a_power_failure_that_loses_live_text_neither_repeats_a_number_nor_spoils_a_message(
        before in proptest::collection::vec(doing(), 0..6), after in proptest::collection::vec(doing(), 0..6), end in end(),
        shown in shown(), length in any::<prop::sample::Index>(), cut in any::<prop::sample::Index>(), lost in 0..9_usize,
    ) {
        let mut writer = Writer::begin(true);
        before.iter().for_each(|doing| writer.write(doing));
        let claims = |entries: &[Entry]| entries.iter().filter(|entry| matches!(entry, Entry::Claimed { .. })).count();
        writer.entries.truncate(2 + length.index(writer.entries.len() - 1));
        // A journal does not end between a release and the next claim here: the writer adds both.
        if matches!(writer.entries.last(), Some(Entry::Released { .. })) {
            writer.entries.pop();
        }
        let (seen, was) = stream(&writer.entries, None, shown);
        let mut client = Client::default();
        client.read(&seen[..cut.index(seen.len() + 1)], &was.items);
        // The last entries are gone, as far as they are live.
        for _ in 0..lost {
            if writer.entries.last().is_some_and(Entry::is_live) {
                writer.entries.pop();
            }
        }
        writer.attempt = u32::try_from(claims(&writer.entries)).unwrap();
        writer.reclaim();
        after.iter().for_each(|doing| writer.write(doing));
        writer.end(&end);
        client.lossy = true;
        let (rest, now) = stream(&writer.entries, client.last, shown);
        client.read(&rest, &now.items);
        for item in &now.items {
            let ItemBody::Message { text } = &item.body else { continue };
            if matches!(item.status, ItemStatus::Completed | ItemStatus::Incomplete) {
                prop_assert_eq!(client.texts.get(&item.number), Some(text));
            }
        }
        prop_assert_eq!(client.ends, usize::from(now.outcome.is_some()));
    }
}

/// The events of a journal in short.
fn told(journal: &[Entry], after: Option<u64>) -> Vec<String> {
    let (events, projection) = stream(journal, after, Shown::default());
    let text = |event: &NumberedEvent| match &event.change {
        Change::Item { at, step } => format!("{} {} {step:?}", event.number, projection.items[*at].number),
        change => format!("{} {change:?}", event.number),
    };
    events.iter().map(text).collect()
}

#[test]
fn the_numbers_of_a_short_task_are_these() {
    let journal =
        [submitted(), claimed(1), said("Hel"), said("lo"), replied("Hello.", "", 0), finished("Hello.")];
    // 3 to 8 are reserved for reasoning.
    let whole = [
        "0 Created",
        "1 Queued",
        "2 InProgress",
        "9 9 Added",
        "10 9 PartAdded",
        "13 9 Text(\"Hel\")",
        "15 9 Text(\"lo\")",
        "16 9 Text(\".\")",
        "17 9 TextDone",
        "18 9 PartDone",
        "19 9 Done",
        "20 Ended",
    ];
    assert_eq!(told(&journal, None), whole);
    assert_eq!(told(&journal, Some(13)), whole[6..]);
    assert_eq!(told(&journal, Some(20)), [""; 0]);
    let mut later = journal.to_vec();
    later.retain(|entry| !entry.is_live());
    assert_eq!(told(&later, Some(13))[..2], ["16 9 Text(\"lo.\")", "17 9 TextDone"]);
}

#[test]
fn a_reply_that_was_cut_off_is_withdrawn() {
    let journal =
        [submitted(), claimed(1), said("Hel"), claimed(2), replied("Bye.", "", 0), finished("Bye.")];
    let (_, projection) = stream(&journal, None, Shown::default());
    let [gone, answer] = &projection.items[..] else { panic!("{:?}", projection.items) };
    assert_eq!((gone.status, answer.status), (ItemStatus::Withdrawn, ItemStatus::Completed));
    assert_eq!(projection.answer, Some(1));
    assert!(answer.number > super::projection::RECLAIM_GAP);
}

#[test]
fn the_end_of_a_task_may_add_to_its_answer() {
    let mut journal =
        vec![submitted(), claimed(1), replied("Done.", "", 0), finished("Done.\n\nSee branch x.")];
    let (_, projection) = stream(&journal, None, Shown::default());
    assert_eq!(projection.items.len(), 1);
    assert_eq!(projection.items[0].body, ItemBody::Message { text: "Done.\n\nSee branch x.".to_owned() });
    // After a crash in between, it is a message of its own.
    journal.insert(3, claimed(2));
    let (_, projection) = stream(&journal, None, Shown::default());
    assert_eq!((projection.items.len(), projection.answer), (2, Some(1)));
}
