//! A conversation under test: entries in, steps out, without a runner.

use super::*;
pub(super) use crate::entry::CallResult;
use crate::entry::TeamRef;
use crate::id::{Seq, TaskKey, WorkerId};
use crate::testing::ReplyBuilder;
use crate::tool::ToolEffects;

#[derive(Clone)]
pub(super) struct ConversationFixture {
    pub(super) turn: Conversation,
    /// When the next entry is written.
    pub(super) now: jiff::Timestamp,
    pub(super) policy: Policy,
    pub(super) journal: Vec<Record>,
    pub(super) submitted: Submission,
    attempt: Attempt,
}

pub(super) fn task(words: &str) -> TaskId {
    TaskKey::named(words).candidate_ids().next().unwrap()
}

pub(super) fn returned(turn: u32, index: u32, output: &str) -> CallResult {
    CallResult::new(CallId { turn, index }, output)
}

pub(super) fn read(letters: &[&str]) -> NextStep {
    NextStep::ReadLetters {
        letters: letters.iter().map(|id| LetterId::from(*id)).collect(),
        known: Vec::new(),
    }
}

pub(super) fn effects(tool: &str) -> ToolEffects {
    match tool {
        "look" => ToolEffects::POLLS_TASKS,
        "job" => ToolEffects::POLLS_TASKS.internal(false),
        "launch" | "launch_agent" => ToolEffects::LAUNCHES,
        "stop" => ToolEffects::STOPS_TASKS,
        "read" | "status" | "clock" => ToolEffects::READ_ONLY,
        _ => ToolEffects::default(),
    }
}

impl ConversationFixture {
    pub(super) fn new() -> ConversationFixture {
        ConversationFixture::with(Order::new("lead", "go"))
    }

    pub(super) fn interactive() -> ConversationFixture {
        ConversationFixture::with(Order::new("lead", "go").interactive())
    }

    pub(super) fn with(order: Order) -> ConversationFixture {
        let (key, team) = (TaskKey::named("bench"), TeamRef::Named("team".into()));
        let submitted = Submission::root(task("bench"), key, order, team);
        let turn = Conversation::begin(&submitted, &"lead".into());
        let mut fixture = ConversationFixture {
            turn,
            now: jiff::Timestamp::UNIX_EPOCH,
            policy: Policy::default(),
            journal: Vec::new(),
            submitted,
            attempt: Attempt(0),
        };
        fixture.note(Entry::Submitted(Box::new(fixture.submitted.clone())));
        fixture.claim();
        fixture
    }

    /// Folds the same journal again.
    pub(super) fn refolded(&self, journal: &[Record]) -> Conversation {
        let mut turn = Conversation::begin(&self.submitted, &"lead".into());
        journal.iter().for_each(|record| turn.apply(record));
        turn
    }

    pub(super) fn continued(&self, text: &str) -> Conversation {
        let mut submitted = self.submitted.clone();
        submitted.order.task = text.into();
        self.turn.clone().continue_with(&submitted)
    }

    pub(super) fn note(&mut self, entry: Entry) {
        let seq = Seq(self.journal.len() as u64 + 1);
        let record = Record { seq, at: self.now, entry };
        self.turn.apply(&record);
        self.journal.push(record);
    }

    pub(super) fn claim(&mut self) {
        self.attempt = self.attempt.next();
        self.note(Entry::Claimed { attempt: self.attempt, worker: WorkerId::from("w") });
    }

    pub(super) fn letter(&mut self, text: &str, deliver: Delivery, ending: Option<TaskId>) {
        let from = ending.map_or(Sender::Person, Sender::Task);
        let letter = Letter::new(text.into(), from, text).deliver(deliver).ending(ending);
        self.note(Entry::Letter(Box::new(letter)));
    }

    /// The end of a task that may have changed something.
    pub(super) fn letter_of_effects(&mut self, ending: TaskId) {
        let text = format!("end of {ending}");
        let letter =
            Letter::new(text.as_str().into(), Sender::Task(ending), text).ending(Some(ending)).effects(true);
        self.note(Entry::Letter(Box::new(letter)));
    }

    pub(super) fn replies(&mut self, reply: ReplyBuilder) {
        self.note(Entry::Replied(Arc::new(reply.build())));
    }

    pub(super) fn returns(&mut self, index: u32, output: &str) {
        let turn = self.turn.replies();
        self.note(Entry::Returned(Box::new(returned(turn, index, output))));
    }

    pub(super) fn next(&self) -> NextStep {
        self.turn.next_step(&self.policy, effects, true)
    }

    pub(super) fn failure(&self) -> Option<FailureKind> {
        match self.next() {
            NextStep::Fail(failure) => Some(failure.kind),
            _ => None,
        }
    }

    /// Does the next step, if it only has to be recorded.
    pub(super) fn does(&mut self) {
        match self.next() {
            NextStep::ReadLetters { letters, known } => {
                self.note(Entry::Read { letters, known, all_ended: None })
            }
            NextStep::Nudge { why, text } => self.note(Entry::Nudged { why, text }),
            other => panic!("{other:?}"),
        }
    }

    /// The conversation, as one short text per message.
    pub(super) fn said(&self) -> Vec<String> {
        let short = |message: &Message| match message {
            Message::User(text) => format!("u:{text}"),
            Message::Assistant(reply) => format!("a:{}", reply.text()),
            Message::Tool(result) => format!("t:{}", result.output),
        };
        self.turn.messages().iter().map(short).collect()
    }

    /// Every call is followed by its result before anything else, as providers require.
    pub(super) fn assert_no_call_is_left_without_result(&self) {
        let conversation = self.turn.messages();
        let mut due: Vec<String> = Vec::new();
        for message in conversation.iter() {
            match message {
                Message::Tool(result) => {
                    assert_eq!(due.first().map(String::as_str), Some(&*result.call), "{:?}", self.said());
                    due.remove(0);
                }
                _ if !due.is_empty() => panic!("{due:?} have no result: {:?}", self.said()),
                Message::Assistant(reply) => due = reply.calls().map(|call| call.id.clone()).collect(),
                Message::User(_) => {}
            }
        }
        assert!(due.is_empty() || matches!(self.next(), NextStep::RunCalls(_)), "{due:?}: {:?}", self.said());
    }
}
