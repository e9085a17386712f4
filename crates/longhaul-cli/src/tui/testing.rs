//! Test helpers for the TUI: tasks, journals and rendered screens.

use std::sync::Arc;
use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use jiff::Timestamp;
use longhaul::Order;
use longhaul::approval::{AskedQuestion, QuestionQueue};
use longhaul::entry::{
    CallResult, Entry, ExpectedAnswer, Letter, LiveTextKind, Outcome, Question, Record, Sender, Submission,
    TeamRef,
};
use longhaul::id::{Attempt, CallId, LetterId, QuestionId, Seq, TaskId, TaskKey, WorkerId};
use longhaul::message::{Block, Call, Reply, Usage};
use longhaul::task::TaskState;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::draw::draw;
use super::model::{TuiEffect, TuiMessage, TuiModel};
use super::theme::Theme;
use super::update::update;

pub(super) fn id(number: u32) -> TaskId {
    const DIGITS: &[u8] = b"0123456789abcdefghjkmnpqrstvwxyz";
    let mut name = String::from("t-");
    for place in (0..5).rev() {
        name.push(DIGITS[(number >> (5 * place)) as usize % 32] as char);
    }
    name.parse().unwrap()
}

/// Returns a time, in seconds after the start of the test.
pub(super) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

/// Builds a journal.
#[derive(Clone)]
pub(super) struct TestJournal {
    pub(super) id: TaskId,
    pub(super) records: Vec<Record>,
    now: i64,
    turn: u32,
}

impl TestJournal {
    pub(super) fn new(number: u32, agent: &str, task: &str) -> TestJournal {
        TestJournal::with_parent(number, agent, task, None, id(number), 0)
    }

    pub(super) fn with_parent(
        number: u32,
        agent: &str,
        task: &str,
        parent: Option<TaskId>,
        root: TaskId,
        depth: u32,
    ) -> TestJournal {
        let submitted = Submission {
            parent,
            depth,
            ..Submission::root(
                root,
                TaskKey::named(&number.to_string()),
                Order::new(agent, task),
                TeamRef::Named("test".into()),
            )
        };
        let journal = TestJournal { id: id(number), records: Vec::new(), now: 0, turn: 0 };
        journal.and(Entry::Submitted(Box::new(submitted)))
    }

    pub(super) fn child(&self, number: u32, agent: &str, task: &str) -> TestJournal {
        let state = self.state();
        TestJournal::with_parent(number, agent, task, Some(self.id), state.root, state.depth + 1)
    }

    pub(super) fn and(mut self, entry: Entry) -> TestJournal {
        let seq = Seq(self.records.len() as u64 + 1);
        self.records.push(Record { seq, at: at(self.now), entry });
        self
    }

    /// Advances the time.
    pub(super) fn later(mut self, seconds: i64) -> TestJournal {
        self.now += seconds;
        self
    }

    pub(super) fn claimed(self) -> TestJournal {
        let attempt = self.state().attempt.next();
        self.and(Entry::Claimed { attempt, worker: WorkerId::from("w") })
    }

    pub(super) fn released(self) -> TestJournal {
        let attempt: Attempt = self.state().attempt;
        self.and(Entry::Released { attempt, why: longhaul::entry::ReleaseReason::Lost })
    }

    pub(super) fn said(self, text: &str) -> TestJournal {
        self.and(Entry::Said { voice: LiveTextKind::Text, text: text.to_owned() })
    }

    pub(super) fn replied(mut self, text: &str, calls: &[(&str, &str)]) -> TestJournal {
        self.turn += 1;
        let mut blocks = vec![Block::Text(text.to_owned())];
        blocks.extend(calls.iter().map(|(tool, arguments)| {
            Block::Call(Call {
                id: "c".to_owned(),
                tool: (*tool).to_owned(),
                arguments: (*arguments).to_owned(),
            })
        }));
        let usage = Usage { input: 1200, output: 34, ..Usage::default() };
        let reply = Reply { blocks, usage, model: "m".to_owned(), cost: Some(2_500), ..Reply::default() };
        self.and(Entry::Replied(Arc::new(reply)))
    }

    /// Adds a reply with unknown cost.
    pub(super) fn replied_unpriced(mut self, text: &str) -> TestJournal {
        self.turn += 1;
        let usage = Usage { input: 1200, output: 34, ..Usage::default() };
        let blocks = vec![Block::Text(text.to_owned())];
        self.and(Entry::Replied(Arc::new(Reply { blocks, usage, model: "m".to_owned(), ..Reply::default() })))
    }

    pub(super) fn called(self, index: u32, tool: &str) -> TestJournal {
        let call = CallId { turn: self.turn, index };
        self.and(Entry::Called { call, tool: tool.into(), arguments: None, effects: false, foreign: false })
    }

    pub(super) fn returned(self, index: u32, output: &str) -> TestJournal {
        let call = CallId { turn: self.turn, index };
        self.and(Entry::Returned(Box::new(CallResult::new(call, output))))
    }

    pub(super) fn letter(self, from: Sender, text: &str) -> TestJournal {
        self.and(Entry::Letter(Box::new(Letter::new(LetterId::random(), from, text))))
    }

    pub(super) fn asked(self, wants: ExpectedAnswer, text: &str) -> TestJournal {
        let question = question();
        let asks = Box::new(Question { text: text.to_owned(), wants });
        self.and(Entry::Asked { question, asks, until: None })
    }

    pub(super) fn completed(self, output: &str) -> TestJournal {
        self.and(Entry::Finished(Box::new(Outcome::Completed { output: output.into(), cut_short: None })))
    }

    pub(super) fn failed(self, why: &str) -> TestJournal {
        let failure = longhaul::entry::Failure::new(longhaul::entry::FailureKind::Model, why);
        self.and(Entry::Finished(Box::new(Outcome::Failed { failure, partial: "".into() })))
    }

    pub(super) fn state(&self) -> TaskState {
        TaskState::from_journal(self.id, &self.records).unwrap().unwrap()
    }
}

/// The id of the only question.
pub(super) fn question() -> QuestionId {
    "1.0.0".parse().unwrap()
}

pub(super) fn leave() -> ExpectedAnswer {
    ExpectedAnswer::approval("write_file", r#"{"path":"notes.txt"}"#)
}

/// Creates a model of this screen size with these tasks.
pub(super) fn screen(size: (u16, u16), journals: &[TestJournal]) -> TuiModel {
    let mut model = TuiModel::new(Theme { color: true }, None, at(100));
    // Tests that are not about it press keys at once.
    model.questions = QuestionQueue::default().with_guard_time(Duration::ZERO);
    update(&mut model, TuiMessage::Resize(size.0, size.1));
    let states = journals.iter().map(TestJournal::state).collect();
    let effects = update(&mut model, TuiMessage::Loaded(states, Vec::new()));
    serve(&mut model, effects, journals);
    model
}

/// Runs reads, and returns the other effects.
pub(super) fn serve(
    model: &mut TuiModel,
    effects: Vec<TuiEffect>,
    journals: &[TestJournal],
) -> Vec<TuiEffect> {
    let mut rest = Vec::new();
    for effect in effects {
        let TuiEffect::ReadJournal { task, after, limit, order } = effect else {
            rest.push(effect);
            continue;
        };
        let journal = journals.iter().find(|journal| journal.id == task).unwrap();
        let records: Vec<Record> =
            journal.records.iter().filter(|record| record.seq > after).take(limit).cloned().collect();
        let order = match &journal.records[0].entry {
            Entry::Submitted(submitted) if order => {
                Some((Box::new(submitted.order.clone()), submitted.team.to_string()))
            }
            _ => None,
        };
        let more = update(model, TuiMessage::Records { task, after, limit, records, order });
        model.prepare_frame();
        rest.extend(serve(model, more, journals));
    }
    model.prepare_frame();
    if let Some(TuiEffect::ReadCalls(wanted)) = model.unknown_calls() {
        let mut summaries = Vec::new();
        for (task, end, ids) in wanted {
            let journal = journals.iter().find(|journal| journal.id == task).unwrap();
            let records = &journal.records[..end.0 as usize];
            let calls = super::running::found(records, &ids).unwrap();
            summaries.extend(calls.into_iter().map(|(id, call)| (task, id, call)));
        }
        update(model, TuiMessage::Calls(summaries));
        model.prepare_frame();
    }
    if let Some(TuiEffect::ReadQuestions(task)) = model.show_question() {
        let journal = journals.iter().find(|journal| journal.id == task).unwrap();
        let asked = journal.records.iter().filter_map(|record| match &record.entry {
            Entry::Asked { question: id, asks, until } => {
                Some(AskedQuestion { task, id: *id, asks: (**asks).clone(), until: *until })
            }
            _ => None,
        });
        update(model, TuiMessage::Questions(asked.collect()));
        model.prepare_frame();
        model.show_question();
    }
    rest
}

/// Presses keys one by one, and returns the effects other than reads.
pub(super) fn press(model: &mut TuiModel, keys: &str, journals: &[TestJournal]) -> Vec<TuiEffect> {
    let mut actions = Vec::new();
    for word in keys.split_whitespace() {
        let codes: Vec<KeyCode> = match word {
            "Enter" => vec![KeyCode::Enter],
            "Esc" => vec![KeyCode::Esc],
            "Tab" => vec![KeyCode::Tab],
            "Up" => vec![KeyCode::Up],
            "Down" => vec![KeyCode::Down],
            "Left" => vec![KeyCode::Left],
            "Right" => vec![KeyCode::Right],
            "Home" => vec![KeyCode::Home],
            "End" => vec![KeyCode::End],
            "PageUp" => vec![KeyCode::PageUp],
            "Space" => vec![KeyCode::Char(' ')],
            typed => typed.chars().map(KeyCode::Char).collect(),
        };
        for code in codes {
            let effects = update(model, TuiMessage::Key(KeyEvent::new(code, KeyModifiers::NONE)));
            actions.extend(serve(model, effects, journals));
        }
    }
    actions
}

/// Renders the screen without colours.
pub(super) fn picture(model: &mut TuiModel) -> String {
    model.prepare_frame();
    let mut terminal = Terminal::new(TestBackend::new(model.size.0, model.size.1)).unwrap();
    terminal.draw(|frame| draw(model, frame)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |row: u16| {
        let mut line = String::new();
        let mut column = 0;
        while column < buffer.area.width {
            let symbol = buffer[(column, row)].symbol();
            line.push_str(symbol);
            // A wide character covers the next cell.
            column += super::graphemes::grapheme_width(symbol).max(1) as u16;
        }
        line.trim_end().to_owned()
    };
    (0..buffer.area.height).map(line).collect::<Vec<_>>().join("\n")
}
