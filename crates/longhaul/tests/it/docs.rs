//! What the documents say about the code is true: the tables of `docs/` are read and tried.
//! (That rooms use only rooms above them is tested in `engine/rooms.rs`.)

use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use longhaul::Status;
use longhaul::entry::{
    AgentSession, CallResult, Entry, ExpectedAnswer, Failure, FailureKind, HookFailure, Letter, LiveTextKind,
    NudgeReason, Order, Outcome, Question, QuestionAnswer, Record, ReleaseReason, SamplingUsage, Sender,
    StopCause, StopRequest, Submission, TeamRef, WaitReason,
};
use longhaul::id::{Attempt, CallId, LetterId, QuestionId, Seq, TaskId, TaskKey, WorkerId};
use longhaul::message::Reply;
use longhaul::task::TaskState;

fn crate_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The table whose header begins with these words: its header and its rows, cell by cell.
fn table(document: &str, header: &str) -> Vec<Vec<String>> {
    let text = read(crate_dir().join("../../docs").join(document));
    let cells =
        |line: &str| line.trim().trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
    let lines =
        text.lines().skip_while(|line| !line.starts_with(header)).take_while(|line| line.starts_with('|'));
    let rows: Vec<Vec<String>> = lines.filter(|line| !line.starts_with("|--")).map(cells).collect();
    assert!(rows.len() > 1, "{document} has a table that begins with {header}");
    rows
}

fn id() -> TaskId {
    TaskKey::named("a task").candidate_ids().next().unwrap()
}

fn call() -> CallId {
    CallId { turn: 1, index: 0 }
}

fn question() -> QuestionId {
    QuestionId { call: call(), nth: 0 }
}

fn finished(outcome: Outcome) -> Entry {
    Entry::Finished(Box::new(outcome))
}

/// An entry of each kind, by the words that the documents have for it.
fn entry(words: &str, attempt: Attempt) -> Entry {
    let stop = StopRequest { cause: StopCause::Person, note: None };
    let partial: Arc<str> = "".into();
    let letter = |ending: Option<TaskId>| {
        let (id, from) = (LetterId::random(), Sender::Person);
        Letter::new(id, from, "hello").ending(ending)
    };
    match words {
        "Submitted" => {
            let (key, team) = (TaskKey::named("a task"), TeamRef::Named("team".into()));
            Entry::Submitted(Box::new(Submission::root(id(), key, Order::new("worker", "do it"), team)))
        }
        "Claimed" => Entry::Claimed { attempt: attempt.next(), worker: WorkerId::from("w") },
        "Letter" => Entry::Letter(Box::new(letter(None))),
        "Letter: a child ended" => Entry::Letter(Box::new(letter(Some(id())))),
        "StopRequested" => Entry::StopRequested(stop),
        "Read" => Entry::Read { letters: Vec::new(), known: Vec::new(), all_ended: None },
        "Replied" => Entry::Replied(Arc::new(Reply::text_only("hello"))),
        "Called" => Entry::Called {
            call: call(),
            tool: "tool".into(),
            arguments: None,
            effects: false,
            foreign: false,
        },
        "Returned" => {
            let (collected, handoff, whole) = (Vec::new(), None, None);
            let returned = CallResult { whole, collected, handoff, ..CallResult::new(call(), "") };
            Entry::Returned(Box::new(returned))
        }
        "Said" => Entry::Said { voice: LiveTextKind::Text, text: "hel".to_owned() },
        "Waiting" => Entry::Waiting { on: WaitReason::Letter, until: None },
        "Nudged" => Entry::Nudged { why: NudgeReason::Empty, text: "well?".into() },
        "Asked" => {
            let asks = Question { text: "may I?".to_owned(), wants: ExpectedAnswer::Words { schema: None } };
            Entry::Asked { question: question(), asks: Box::new(asks), until: None }
        }
        "Answered" => {
            Entry::Answered { question: question(), answer: QuestionAnswer::Given("yes".to_owned()) }
        }
        "Backgrounded" => Entry::Backgrounded,
        "HookFailed" => Entry::HookFailed(Box::new(HookFailure {
            event: "task_end".to_owned(),
            command: "false".to_owned(),
            why: "it exited with 1".to_owned(),
            denied: false,
        })),
        "Granted" => Entry::Granted { pattern: "tool".parse().unwrap(), tool: None },
        "Compacted" => Entry::Compacted {
            summary: "all of it".into(),
            replaces: 1,
            usage: Default::default(),
            cost: None,
        },
        "Sampled" => Entry::Sampled(Box::new(SamplingUsage {
            call: call(),
            model: "m".to_owned(),
            usage: Default::default(),
            cost: None,
        })),
        "Warned" => Entry::Warned { text: "a server did not start".into() },
        "SessionOpened" => {
            let session = AgentSession::new("worker".into(), "s-1", "agent 1.0", "/work".into());
            Entry::SessionOpened(Box::new(session))
        }
        "Prompted" => Entry::Prompted { text: "go on".into(), again: false, held: false },
        "BudgetSet" => Entry::BudgetSet { budget: Default::default() },
        "Denied" => Entry::Denied { call: call(), tool: "tool".into() },
        "Worked" => Entry::Worked { ms: 1500, paused: false },
        "Released" => Entry::Released { attempt, why: ReleaseReason::Drained },
        "Finished" | "Finished: completed" => {
            finished(Outcome::Completed { output: "42".into(), cut_short: None })
        }
        "Finished: failed" => {
            finished(Outcome::Failed { failure: Failure::new(FailureKind::Model, "no"), partial })
        }
        "Finished: cancelled" => finished(Outcome::Cancelled { stop, partial }),
        "Continued" => Entry::Continued { by: id() },
        other => panic!("the documents name an entry '{other}'"),
    }
}

const WORK: [&str; 15] = [
    "Read",
    "Replied",
    "Called",
    "Returned",
    "Said",
    "Waiting",
    "Nudged",
    "Asked",
    "Compacted",
    "Sampled",
    "Worked",
    "Denied",
    "Warned",
    "SessionOpened",
    "Prompted",
];

fn take(task: &mut TaskState, words: &str) -> bool {
    let (seq, attempt) = (Seq(task.seq.0 + 1), task.attempt);
    task.apply(&Record { seq, at: Timestamp::UNIX_EPOCH, entry: entry(words, attempt) }).is_ok()
}

/// A task in a state that the documents name; while it can, it asks something.
fn in_state(state: &str) -> TaskState {
    let path: &[&str] = match state {
        "pending" => &["Claimed", "Asked", "Released"],
        "running" => &["Claimed", "Asked"],
        "running, stopping" => &["Claimed", "Asked", "StopRequested"],
        "cancelled, unsettled" => &["StopRequested"],
        "completed" => &["Claimed", "Finished: completed"],
        "failed" => &["Claimed", "Finished: failed"],
        "cancelled" => &["Claimed", "Finished: cancelled"],
        other => panic!("the documents name a state '{other}'"),
    };
    let first = Record { seq: Seq(1), at: Timestamp::UNIX_EPOCH, entry: entry("Submitted", Attempt(0)) };
    let mut task = TaskState::begin(id(), &first).unwrap();
    for words in path {
        assert!(take(&mut task, words), "{state}: {words}");
    }
    assert_eq!(state_of(&task), state);
    task
}

fn state_of(task: &TaskState) -> String {
    match task.status {
        Status::Running if task.stop.is_some() => "running, stopping".to_owned(),
        Status::Cancelled if !task.settled => "cancelled, unsettled".to_owned(),
        status => status.to_string(),
    }
}

const STATES: usize = 7;

#[test]
fn the_moves_in_the_document_are_those_of_the_code() {
    let rows = table("lifecycle.md", "| state | Claimed |");
    assert_eq!(rows.len(), 1 + STATES, "every state has a row");
    for row in &rows[1..] {
        for (words, expected) in rows[0].iter().zip(row).skip(1) {
            let mut task = in_state(&row[0]);
            let before = task.clone();
            if take(&mut task, words) {
                assert_eq!(state_of(&task), *expected, "{} + {words}", row[0]);
            } else {
                assert_eq!(expected, "–", "{} + {words} is refused", row[0]);
                assert_eq!(task, before, "a refused move changes nothing");
            }
        }
    }
}

#[test]
fn what_else_is_taken_or_refused_is_as_the_document_says() {
    let rows = table("lifecycle.md", "| state | Letter |");
    assert_eq!(rows.len(), 1 + STATES, "every state has a row");
    for row in &rows[1..] {
        for (words, expected) in rows[0].iter().zip(row).skip(1) {
            let kinds: &[&str] = if words == "the owner's work" { &WORK } else { &[words.as_str()] };
            for words in kinds {
                let mut task = in_state(&row[0]);
                let taken = take(&mut task, words);
                assert_eq!(if taken { "yes" } else { "–" }, expected, "{} + {words}", row[0]);
                assert_eq!(state_of(&task), row[0], "{words} does not move a task");
            }
        }
    }
}

#[test]
fn every_state_of_the_table_is_drawn_and_every_move_too() {
    let text = read(crate_dir().join("../../docs/lifecycle.md"));
    let drawn: Vec<(&str, &str)> = text
        .lines()
        .filter_map(|line| line.trim().split_once(" --> "))
        .map(|(from, to)| (from, to.split(':').next().unwrap_or(to)))
        .collect();
    let name = |state: &str| state.split(", ").last().unwrap().to_owned();
    let rows = table("lifecycle.md", "| state | Claimed |");
    let mut moves = 0;
    for row in &rows[1..] {
        for to in row[1..].iter().filter(|to| *to != "–" && **to != row[0]) {
            moves += 1;
            assert!(drawn.contains(&(&name(&row[0]), &name(to))), "{} to {to} is drawn", row[0]);
        }
    }
    // The others are the beginning and the three ends.
    assert_eq!(drawn.len(), moves + 4, "nothing is drawn that is not in the table");
}

#[test]
fn every_entry_is_in_the_table_with_its_durability() {
    let rows = table("journal.md", "| entry |");
    let mut kinds = Vec::new();
    for row in &rows[1..] {
        let entry = entry(row[0].trim_matches('`'), Attempt(1));
        assert_eq!(row[3], if entry.is_live() { "live" } else { "durable" }, "{}", row[0]);
        kinds.push(entry.kind() as u8);
    }
    assert_eq!(kinds, (1..=27).collect::<Vec<u8>>(), "each kind once, in order");
}

/// The rooms, in the order of lib.rs.
fn rooms() -> Vec<String> {
    let lib = read(crate_dir().join("src/lib.rs"));
    let names = lib
        .lines()
        .filter_map(|line| line.trim_start_matches("pub ").strip_prefix("mod ")?.strip_suffix(';'));
    names.filter(|name| *name != "testing").map(str::to_owned).collect()
}

fn room_file(room: &str) -> PathBuf {
    let src = crate_dir().join("src");
    let file = src.join(format!("{room}.rs"));
    if file.exists() { file } else { src.join(room).join("mod.rs") }
}

#[test]
fn the_rooms_in_the_document_are_those_of_the_library() {
    let rows = table("architecture.md", "| module |");
    let told: Vec<&str> = rows[1..].iter().map(|row| row[0].trim_matches('`')).collect();
    assert_eq!(told, rooms());
    for row in &rows[1..] {
        let source = read(room_file(row[0].trim_matches('`')));
        let first = source.lines().next().and_then(|line| line.strip_prefix("//! ")).unwrap_or_default();
        assert_eq!(row[1], first.replace(['[', ']'], ""), "the sentence is the first line of the room");
    }
}
