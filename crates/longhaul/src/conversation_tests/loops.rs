//! Repeated launches, and models that are in a loop.

use jiff::SignedDuration;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::dispatch::EarlierLaunch;
use crate::entry::{ExpectedAnswer, Question, QuestionAnswer, TaskEnding};
use crate::id::{QuestionId, TaskKey};
use crate::task::Status;

/// In which rounds a model was told something, and why.
type NudgedAt = Vec<(u32, NudgeReason)>;

fn me() -> TaskId {
    task("fixture")
}

fn child(turn: u32, index: u32) -> TaskId {
    TaskKey::for_child(me(), CallId { turn, index }).candidate_ids().next().unwrap()
}

impl ConversationFixture {
    /// A reply that launches these, each `(agent, task)`, and the results of the launches.
    fn launches(&mut self, tasks: &[(&str, &str)]) {
        let calls = tasks.iter().fold(reply(), |reply, (agent, task)| {
            reply.call("launch", json!({"agent": agent, "task": task}))
        });
        self.replies(calls);
        for index in 0..tasks.len() as u32 {
            let id = child(self.turn.replies(), index);
            self.returns(index, &format!("{id} was started"));
        }
    }

    /// The task that this call launched ends, and the letter is read.
    fn ends(&mut self, turn: u32, index: u32) {
        let id = child(turn, index);
        self.letter(&format!("end of {id}"), Delivery::Asap, Some(id));
        self.does();
    }

    fn calls(&mut self, tool: &str, argument: u32, output: &str) {
        self.replies(reply().call(tool, argument.into()));
        self.returns(0, output);
    }

    fn earlier(&self) -> Vec<EarlierLaunch> {
        self.turn.earlier(me(), CallId { turn: self.turn.replies(), index: 0 })
    }

    /// The message for a model in a loop, if there is one; also applies it.
    fn led(&mut self) -> Option<NudgeReason> {
        let NextStep::Nudge { why, text } = self.next() else { return None };
        self.note(Entry::Nudged { why: why.clone(), text });
        Some(why)
    }
}

#[test]
fn an_earlier_launch_is_found_by_its_words_and_its_agent() {
    let table = [
        ("reader", "Read alpha.txt.", Some(true), "the same"),
        ("reader", "  Read\nalpha.txt. ", Some(true), "spaces do not count"),
        ("READER", "Read alpha.txt.", Some(true), "nor how the agent is written"),
        ("reader", "Please read the file alpha.txt", Some(false), "much the same"),
        ("reader", "Read beta.txt.", None, "another file"),
        ("reader", "Read alpha.txt, part 2.", None, "another part"),
        ("writer", "Read alpha.txt.", None, "another agent"),
        (
            "reader",
            "Count the words in alpha.txt and tell me how many begin with a vowel.",
            None,
            "something else",
        ),
    ];
    for (agent, words, same, why) in table {
        let mut fixture = ConversationFixture::new();
        fixture.launches(&[("reader", "Read alpha.txt.")]);
        fixture.ends(1, 0);
        fixture.launches(&[(agent, words)]);
        let found: Vec<bool> = fixture.earlier().iter().map(|earlier| earlier.same).collect();
        assert_eq!(found.first().copied(), same, "{why}");
        let mut results = fixture.earlier().into_iter().map(|earlier| earlier.result.map(|(task, _)| task));
        assert!(results.all(|task| task == Some(child(1, 0))), "{why}");
    }
}

#[test]
fn a_task_without_an_answer_is_not_pointed_out_to_a_similar_one() {
    for (status, is_found) in [(Status::Completed, true), (Status::Failed, false), (Status::Cancelled, false)]
    {
        let mut fixture = ConversationFixture::new();
        fixture.launches(&[("reader", "Read alpha.txt.")]);
        let id = child(1, 0);
        let ended = TaskEnding { task: id, agent: "reader".into(), status };
        let letter = Letter::new(id.to_string().as_str().into(), Sender::Task(id), "It left no output.");
        let letter = letter.ending(Some(id)).ended(Some(Box::new(ended)));
        fixture.note(Entry::Letter(Box::new(letter)));
        fixture.does();
        fixture.launches(&[("reader", "Please read the file alpha.txt")]);
        assert_eq!(fixture.earlier().len(), usize::from(is_found), "{status}");
    }
}

#[test]
fn it_counts_only_while_nothing_has_happened_since() {
    fn touches(fixture: &mut ConversationFixture) {
        fixture.replies(reply().call("shell", json!({})));
        let (call, tool) = (CallId { turn: 2, index: 0 }, "shell".into());
        fixture.note(Entry::Called { call, tool, arguments: None, effects: true, foreign: false });
        fixture.returns(0, "done");
    }
    type Then = fn(&mut ConversationFixture);
    let table: [(Then, Option<bool>, &str); 10] = [
        (|fixture| fixture.ends(1, 0), Some(true), "its result was read"),
        (|_| {}, Some(true), "it still runs"),
        (
            |fixture| fixture.letter("end", Delivery::Asap, Some(child(1, 0))),
            Some(true),
            "nobody has read its result",
        ),
        (touches, None, "it still runs, and the task has changed something itself"),
        (
            |fixture| {
                fixture.letter("Look again.", Delivery::Asap, None);
                fixture.does();
            },
            None,
            "it still runs, and a person has written",
        ),
        (
            |fixture| {
                fixture.replies(reply().call("wait", json!({})));
                let back = CallResult { collected: vec![child(1, 0)], ..returned(2, 0, "all of it") };
                fixture.note(Entry::Returned(Box::new(back)));
            },
            Some(true),
            "it was collected",
        ),
        (
            |fixture| {
                fixture.ends(1, 0);
                fixture.letter("Look again.", Delivery::Asap, None);
                fixture.does();
            },
            Some(false),
            "a person has written",
        ),
        (
            |fixture| {
                fixture.letter("end", Delivery::Asap, Some(child(1, 0)));
                fixture.letter("Look again.", Delivery::Asap, None);
                fixture.does();
            },
            Some(false),
            "a person has written, and both were read together",
        ),
        (
            |fixture| {
                fixture.ends(1, 0);
                touches(fixture);
            },
            Some(false),
            "it has changed something itself",
        ),
        (
            |fixture| {
                fixture.ends(1, 0);
                fixture.calls("read", 1, "x");
            },
            Some(true),
            "it has only read",
        ),
    ];
    for (then, same, why) in table {
        let mut fixture = ConversationFixture::new();
        fixture.launches(&[("reader", "Read alpha.txt.")]);
        then(&mut fixture);
        fixture.launches(&[("reader", "Read alpha.txt.")]);
        assert_eq!(fixture.earlier().first().map(|earlier| earlier.same), same, "{why}");
        // A new owner that has only the journal knows the same.
        let call = CallId { turn: fixture.turn.replies(), index: 0 };
        assert_eq!(fixture.refolded(&fixture.journal).earlier(me(), call), fixture.earlier(), "{why}");
    }
}

#[test]
fn the_same_several_times_in_one_reply_is_meant_and_never_counts() {
    let same = ("reader", "Guess a number.");
    let mut fixture = ConversationFixture::new();
    fixture.launches(&[same, same, same]);
    (0..3).for_each(|index| fixture.ends(1, index));
    fixture.launches(&[same]);
    assert_eq!(fixture.earlier(), [], "after several");
    let mut fixture = ConversationFixture::new();
    fixture.launches(&[same]);
    fixture.ends(1, 0);
    fixture.launches(&[same, same]);
    assert_eq!(fixture.earlier(), [], "several after one");
    // Exactly the same call several times in a row is a different case.
    (fixture.policy.warn_after_repeats, fixture.policy.fail_after_repeats) = (100, 100);
    for _ in 0..10 {
        assert_eq!(fixture.led(), None);
        fixture.launches(&[same, same]);
    }
}

#[test]
fn a_conversation_that_goes_on_begins_anew() {
    let mut fixture = ConversationFixture::new();
    fixture.launches(&[("reader", "Read alpha.txt.")]);
    fixture.ends(1, 0);
    let mut turn = fixture.continued("and now?");
    let call = reply().call("launch", json!({"agent": "reader", "task": "Read alpha.txt."})).build();
    let at = jiff::Timestamp::UNIX_EPOCH;
    turn.apply(&Record { seq: crate::id::Seq(9), at, entry: Entry::Replied(Arc::new(call)) });
    assert_eq!(turn.earlier(me(), CallId { turn: 1, index: 0 }), []);
}

#[test]
fn who_only_launches_the_same_is_told_what_it_has_and_then_has_no_tools_for_one_turn() {
    let mut fixture = ConversationFixture::new();
    let ask = [("reader", "Which port is in server.conf?")];
    fixture.launches(&ask);
    fixture.ends(1, 0);
    assert_eq!(fixture.led(), None);
    fixture.launches(&ask);
    assert_eq!(fixture.led(), None, "twice may happen");
    fixture.launches(&[("reader", "Find the port in server.conf.")]);
    assert_eq!(fixture.led(), Some(NudgeReason::Launching));
    let told = fixture.said().pop().unwrap();
    assert!(told.contains(&child(1, 0).to_string()) && told.contains("u:You have started"), "{told}");
    assert_eq!(fixture.next(), NextStep::CallModel { tools: true });
    fixture.launches(&ask);
    assert_eq!(fixture.led(), Some(NudgeReason::ToolsOff));
    assert_eq!(fixture.next(), NextStep::CallModel { tools: false });
    let short = fixture.turn.in_short().unwrap();
    assert_eq!(short.len(), 2, "the order, and what it has: {short:?}");
    // A call that is made anyway, or written as text, does not count; the model is asked once more, without
    // tools.
    fixture.replies(reply().text("```json\n{\"name\": \"grep\", \"arguments\": {}}\n```"));
    assert_eq!(fixture.led(), Some(NudgeReason::Empty));
    assert_eq!(fixture.next(), NextStep::CallModel { tools: false });
    fixture.replies(reply().text("The port is 4173."));
    assert_eq!(fixture.next(), NextStep::Idle);
    let Outcome::Completed { output, cut_short } = fixture.turn.answer(None) else { panic!() };
    assert_eq!(
        (&*output, cut_short.as_deref()),
        ("The port is 4173.", Some("a loop: its tools were turned off"))
    );
    assert_eq!(fixture.turn.in_short(), None);
    fixture.assert_no_call_is_left_without_result();
}

#[test]
fn tools_are_back_after_that_turn() {
    let mut fixture = ConversationFixture::interactive();
    for _ in 0..9 {
        fixture.calls("read", 1, "the same");
        if fixture.led() == Some(NudgeReason::ToolsOff) {
            break;
        }
    }
    assert_eq!(fixture.next(), NextStep::CallModel { tools: false });
    assert_eq!(fixture.turn.in_short(), None, "a session sees all that was said");
    fixture.replies(reply().text("This is it."));
    assert!(matches!(fixture.turn.answer(None), Outcome::Completed { cut_short: Some(_), .. }));
    fixture.letter("Go on.", Delivery::Asap, None);
    fixture.does();
    assert_eq!(fixture.next(), NextStep::CallModel { tools: true });
    fixture.calls("read", 1, "the same");
    assert_eq!(fixture.next(), NextStep::CallModel { tools: true });
    fixture.replies(reply().text("This is all of it."));
    assert!(matches!(fixture.turn.answer(None), Outcome::Completed { cut_short: None, .. }));
}

#[test]
fn who_launches_something_new_each_time_is_told_but_keeps_its_tools() {
    let mut fixture = ConversationFixture::new();
    let mut told = 0;
    for n in 1..=20 {
        fixture.launches(&[("reader", &format!("Read chapter {n}."))]);
        fixture.ends(n, 0);
        match fixture.led() {
            None => {}
            Some(NudgeReason::Launching) => told += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(told, 4, "once in five wakes");
}

#[test]
fn asking_for_the_same_once_more_is_pointed_out_and_keeps_the_tools() {
    let mut fixture = ConversationFixture::new();
    fixture.launches(&[("reader", "Is it up?")]);
    fixture.ends(1, 0);
    let mut led = Vec::new();
    for n in 2..=12 {
        let task = json!({"agent": "reader", "task": "Is it up?", "again": true});
        fixture.replies(reply().call("launch", task));
        let turn = fixture.turn.replies();
        fixture.returns(0, &format!("{} was started", child(turn, 0)));
        fixture.replies(reply().text("I am waiting for the result."));
        fixture.ends(turn, 0);
        led.extend(fixture.led().map(|why| (n, why)));
    }
    assert_eq!(led, [(5, NudgeReason::Launching), (10, NudgeReason::Launching)]);
}

#[test]
fn something_new_is_new_whether_it_is_wanted_again_or_not() {
    let mut fixture = ConversationFixture::new();
    for n in 1..=4 {
        let task = json!({"agent": "reader", "task": format!("Read chapter {n}."), "again": true});
        fixture.replies(reply().call("launch", task));
        fixture.returns(0, &format!("{} was started", child(n, 0)));
        fixture.ends(n, 0);
        assert_eq!(fixture.led(), None, "{n}");
    }
}

#[test]
fn the_same_message_again_and_again_is_a_circle_and_a_conversation_is_not() {
    for (circle, words) in [
        (true, ["It says BADGER."; 8]),
        (false, ["Why?", "Where?", "Who?", "When?", "How?", "What?", "Which?", "Whose?"]),
    ] {
        let mut fixture = ConversationFixture::new();
        fixture.launches(&[("reader", "Read alpha.txt.")]);
        fixture.ends(1, 0);
        let mut led = Vec::new();
        for (words, n) in words.iter().zip(2..) {
            // Each continues the task before it as a new one.
            fixture.replies(reply().call("launch", json!({"task_id": format!("t-{n}"), "message": words})));
            fixture.returns(0, &format!("t-{n} had ended: a new task goes on from there"));
            fixture.ends(fixture.turn.replies(), 0);
            led.extend(fixture.led().map(|why| (n, why)));
        }
        match circle {
            true => assert_eq!(led[..2], [(5, NudgeReason::Launching), (6, NudgeReason::ToolsOff)]),
            false => assert_eq!(led, []),
        }
    }
}

#[test]
fn after_a_second_time_only_something_new_gives_the_tools_back() {
    let message = || reply().call("launch", json!({"task_id": "t-1", "message": "It says BADGER."}));
    for new in [false, true] {
        let mut fixture = ConversationFixture::new();
        fixture.launches(&[("reader", "Read alpha.txt.")]);
        fixture.ends(1, 0);
        let mut sent = 0;
        let mut wakes = 0;
        while wakes < 9 {
            match fixture.next() {
                NextStep::CallModel { tools: true } => {
                    fixture.replies(message());
                    fixture.returns(0, "t-1 had ended: a new task goes on from there");
                    sent += 1;
                }
                // It answers while the task that its last message started still runs; then that ends.
                NextStep::CallModel { tools: false } => {
                    fixture.replies(reply().text("BADGER."));
                    assert_eq!(fixture.next(), NextStep::Idle);
                    wakes += 1;
                    if new && wakes == 5 {
                        fixture.letter("Look again.", Delivery::Asap, None);
                    }
                    fixture.ends(100 + wakes, 0);
                }
                _ => _ = fixture.led(),
            }
        }
        // The first is a conversation. Told after three more, and off after another; once more, and off for
        // good.
        assert_eq!(sent, if new { 11 } else { 6 });
    }
}

#[test]
fn who_stops_what_it_has_launched_and_launches_it_again_is_in_a_circle() {
    let mut fixture = ConversationFixture::new();
    let mut led = Vec::new();
    for n in 1..=4 {
        fixture.launches(&[("reader", "Which port is in server.conf?")]);
        led.extend(fixture.led().map(|why| (n, why)));
        if n == 4 {
            break;
        }
        let id = child(fixture.turn.replies(), 0);
        fixture.replies(reply().call("stop", json!({"task_id": id})));
        fixture.returns(0, &format!("{id} is stopped"));
        assert_eq!(fixture.led(), None, "to stop a task is not a launch");
    }
    assert_eq!(led, [(3, NudgeReason::Launching), (4, NudgeReason::ToolsOff)]);
}

#[test]
fn what_changes_something_is_no_circle() {
    let mut fixture = ConversationFixture::new();
    (fixture.policy.warn_after_repeats, fixture.policy.fail_after_repeats) = (100, 100);
    for n in 1..=10 {
        fixture.launches(&[("coder", "Fix the next failing test in app.rs.")]);
        let id = child(n, 0);
        fixture.letter_of_effects(id);
        fixture.does();
        assert_eq!(fixture.led(), None, "{n}");
    }
}

/// A call that may change something begins.
fn begins_to_write(fixture: &mut ConversationFixture, file: u32) {
    fixture.replies(reply().call("shell", json!({"file": file})));
    let call = CallId { turn: fixture.turn.replies(), index: 0 };
    let (tool, effects, foreign) = ("shell".into(), true, false);
    fixture.note(Entry::Called { call, tool, arguments: None, effects, foreign });
}

#[test]
fn the_same_changes_in_turn_with_the_same_results_are_a_circle() {
    fn writes(fixture: &mut ConversationFixture, file: u32, output: &str) {
        begins_to_write(fixture, file);
        fixture.returns(0, output);
    }
    type Round = fn(&mut ConversationFixture, u32);
    let table: [(Round, NudgedAt, &str); 6] = [
        (
            |fixture, n| {
                begins_to_write(fixture, n % 2);
                fixture.now += SignedDuration::from_secs(if n % 2 == 0 { 30 } else { 1 });
                fixture.returns(0, "still running");
            },
            vec![],
            "a look at a build, and half a minute of sleep",
        ),
        (
            |fixture, n| {
                begins_to_write(fixture, n % 2);
                let question = QuestionId { call: CallId { turn: fixture.turn.replies(), index: 0 }, nth: 0 };
                let asks = Question {
                    text: "Delete the next one?".to_owned(),
                    wants: ExpectedAnswer::Words { schema: None },
                };
                fixture.note(Entry::Asked { question, asks: Box::new(asks), until: None });
                fixture.note(Entry::Answered { question, answer: QuestionAnswer::Given("yes".to_owned()) });
                fixture.returns(0, "deleted");
            },
            vec![],
            "a person says yes to each",
        ),
        (
            |fixture, n| writes(fixture, n % 2, "unchanged"),
            vec![(6, NudgeReason::Unchanged), (9, NudgeReason::ToolsOff)],
            "two files in turn",
        ),
        (|fixture, n| writes(fixture, n % 2, &format!("{n} bytes")), vec![], "the results are new"),
        (
            |fixture, n| writes(fixture, if n % 2 == 0 { n } else { 1 }, "ok"),
            vec![],
            "each second one is new: an edit, and the tests after it",
        ),
        (
            |fixture, n| {
                writes(fixture, n % 2, "unchanged");
                if n % 4 == 0 {
                    fixture.letter("Go on.", Delivery::Asap, None);
                    fixture.does();
                }
            },
            vec![],
            "a person writes",
        ),
    ];
    for (round, expected, why) in table {
        let mut fixture = ConversationFixture::new();
        let mut led = Vec::new();
        for n in 0..14 {
            round(&mut fixture, n);
            led.extend(fixture.led().map(|why| (n, why)));
            if led.len() == 2 {
                break;
            }
        }
        assert_eq!(led, expected, "{why}");
    }
}

#[test]
fn who_launches_again_what_fails_in_the_same_way_is_in_a_circle_whatever_it_changed() {
    for (is_same, led) in [(true, Some(NudgeReason::Launching)), (false, None)] {
        let mut fixture = ConversationFixture::new();
        for n in 1..=4 {
            assert_eq!(fixture.led(), None, "{n}");
            fixture.launches(&[("writer", "Write greeting.txt.")]);
            let id = child(n, 0);
            let text =
                if is_same { "It failed: budget used up.".to_owned() } else { format!("It failed: {n}.") };
            let ended = TaskEnding { task: id, agent: "writer".into(), status: Status::Failed };
            let letter = Letter::new(id.to_string().as_str().into(), Sender::Task(id), text);
            let letter = letter.ending(Some(id)).ended(Some(Box::new(ended))).effects(true);
            fixture.note(Entry::Letter(Box::new(letter)));
            fixture.does();
        }
        assert_eq!(fixture.led(), led, "{is_same}");
    }
}

#[test]
fn calls_that_return_the_same_again_and_again_end_in_words() {
    // In any order, not only one after the other.
    let mut fixture = ConversationFixture::new();
    let mut led = Vec::new();
    for n in 0..8 {
        fixture.calls("read", n % 3, &format!("file {}", n % 3));
        let Some(why) = fixture.led() else { continue };
        led.push((n, why));
        let told = fixture.said().pop().unwrap();
        for part in ["file 0", "file 1", "file 2", "Your task was:\n\ngo"] {
            assert_eq!(told.matches(part).count(), 1, "{told}");
        }
    }
    // Three calls were new, three were not: it is told. Two more were not: it must answer.
    assert_eq!(led, [(5, NudgeReason::Unchanged), (7, NudgeReason::ToolsOff)]);
    // Between the two, one call that returns something new is enough to keep its tools.
    let mut fixture = ConversationFixture::new();
    for n in 0..6 {
        fixture.calls("read", n % 3, "the same");
        fixture.led();
    }
    fixture.calls("read", 0, "the same");
    fixture.calls("read", 4, "something new");
    fixture.calls("read", 0, "the same");
    assert_eq!(fixture.led(), None);
    // A call that returns something else each time is not a loop.
    let mut fixture = ConversationFixture::new();
    for n in 0..4 {
        fixture.calls("status", 1, &format!("{n} %"));
        fixture.calls("clock", 1, &format!("{n} o'clock"));
        assert_eq!(fixture.led(), None);
    }
}

#[test]
fn looking_again_is_no_circle_unless_there_is_nothing_to_be_seen() {
    for (is_error, launched, polls, led) in [
        (false, true, 9, None),
        (false, false, 4, Some("You have started no task yet")),
        (true, false, 3, Some("You have started no task yet")),
        (true, true, 3, Some("Your last calls returned what you already had")),
    ] {
        let mut fixture = ConversationFixture::new();
        if launched {
            fixture.launches(&[("reader", "Read alpha.txt.")]);
        }
        for _ in 0..polls {
            assert_eq!(fixture.led(), None);
            fixture.replies(reply().call("look", 1.into()));
            let turn = fixture.turn.replies();
            fixture.note(Entry::Returned(Box::new(CallResult { is_error, ..returned(turn, 0, "the same") })));
        }
        assert_eq!(fixture.led(), led.map(|_| NudgeReason::Unchanged), "{is_error}");
        let told = fixture.said().pop().unwrap();
        assert!(led.is_none_or(|led| told.contains(led)), "{told}");
    }
}

#[test]
fn looking_again_at_what_has_ended_is_a_circle() {
    /// Looks at these results; `all_ended` says whether tasks still run.
    fn looks(fixture: &mut ConversationFixture, argument: u32, shown: &[TaskId], all_ended: bool) {
        fixture.replies(reply().call("look", argument.into()));
        let result = returned(fixture.turn.replies(), 0, "what came of them");
        let result = CallResult { collected: shown.to_vec(), all_ended, ..result };
        fixture.note(Entry::Returned(Box::new(result)));
    }
    let both = || [child(1, 0), child(1, 1)];
    let circle = vec![(3, NudgeReason::Unchanged), (4, NudgeReason::ToolsOff)];
    type Look = fn(&mut ConversationFixture, u32);
    let table: [(Look, NudgedAt, &str); 5] = [
        (
            |fixture, _| looks(fixture, 1, &[child(1, 0), child(1, 1)], true),
            circle.clone(),
            "the same results",
        ),
        (
            |fixture, n| looks(fixture, n, &[child(1, 0), child(1, 1)][..1 + n as usize % 2], true),
            circle.clone(),
            "now these, now those",
        ),
        (|fixture, _| looks(fixture, 1, &[], true), circle.clone(), "the same list"),
        (|fixture, _| looks(fixture, 1, &[child(1, 0)], false), vec![], "another still runs"),
        (|fixture, n| looks(fixture, n, &[child(1, n)], true), vec![], "another result each time"),
    ];
    for (look, expected, why) in table {
        let mut fixture = ConversationFixture::new();
        fixture.launches(&[("reader", "Read alpha.txt."), ("reader", "Read beta.txt.")]);
        let mut led = Vec::new();
        for n in 1..=6 {
            look(&mut fixture, n);
            led.extend(fixture.led().map(|why| (n, why)));
            if led.len() == 2 {
                break;
            }
        }
        assert_eq!(led, expected, "{why}");
        if !expected.is_empty() && why == "the same results" {
            let told = fixture.said().pop().unwrap();
            assert!(both().iter().all(|task| told.contains(&task.to_string())), "{told}");
        }
    }
}

#[test]
fn a_reply_that_did_not_find_its_end_makes_each_call_once() {
    let cut = |stop| {
        let mut fixture = ConversationFixture::new();
        let same = || json!({"agent": "reader", "task": "Read alpha.txt"});
        fixture.replies(
            reply().call("launch", same()).call("launch", same()).call("launch", 1.into()).stop(stop),
        );
        match fixture.next() {
            NextStep::RunCalls(acts) => acts.iter().map(|act| act.id.index).collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(cut(StopReason::Length), [0, 2]);
    assert_eq!(cut(StopReason::Calls), [0, 1, 2], "elsewhere it is meant");
}

proptest! {
    /// If nothing is repeated, nothing is detected.
    #[test]
    fn what_does_not_repeat_is_left_alone(rounds in proptest::collection::vec((1..4u32, any::<bool>()), 1..6)) {
        let mut fixture = ConversationFixture::new();
        fixture.policy.max_turns = 0;
        for (nth, (many, own)) in rounds.iter().enumerate() {
            let words: Vec<String> = (0..*many).map(|n| format!("Do thing {nth}-{n} of list_{nth}.")).collect();
            let tasks: Vec<(&str, &str)> = words.iter().map(|words| ("reader", words.as_str())).collect();
            fixture.launches(&tasks);
            let turn = fixture.turn.replies();
            prop_assert_eq!(fixture.earlier(), []);
            (0..*many).for_each(|index| fixture.ends(turn, index));
            if *own {
                fixture.calls("read", nth as u32, "x");
            }
            if nth < 4 {
                prop_assert_eq!(fixture.next(), NextStep::CallModel { tools: true });
            }
        }
    }

    /// Spacing does not matter; a launch is found by its words whatever else was launched.
    #[test]
    fn the_same_words_are_always_found(
        words in "[a-z]{3,8}( [a-z0-9.]{2,9}){0,6}",
        others in proptest::collection::vec("[a-z]{3,8}( [a-z]{2,9}){0,4}", 0..5),
        spaces in " {1,3}",
    ) {
        prop_assume!(others.iter().all(|other| *other != words));
        let mut fixture = ConversationFixture::new();
        fixture.policy.max_turns = 0;
        fixture.launches(&[("reader", &words)]);
        fixture.ends(1, 0);
        for other in &others {
            if fixture.led().is_none() {
                fixture.launches(&[("reader", other)]);
            }
        }
        let spaced = words.replace(' ', &spaces);
        fixture.launches(&[("reader", &spaced)]);
        let found = fixture.earlier();
        let is_first = |earlier: &EarlierLaunch| earlier.result.is_some_and(|(task, _)| task == child(1, 0));
        prop_assert!(found.iter().any(|earlier| earlier.same && is_first(earlier)), "{found:?}");
    }
}

#[test]
fn a_result_that_the_same_call_has_just_returned_says_so() {
    let shown = |fixture: &ConversationFixture| match fixture.turn.messages().last() {
        Some(Message::Tool(result)) => result.output.to_string(),
        other => panic!("{other:?}"),
    };
    let mut fixture = ConversationFixture::new();
    fixture.calls("read", 1, "BADGER");
    assert_eq!(shown(&fixture), "BADGER");
    fixture.calls("read", 1, "BADGER");
    assert!(
        shown(&fixture).starts_with("BADGER\n\nNote: you have this result already."),
        "{}",
        shown(&fixture)
    );
    fixture.calls("read", 1, "OTTER");
    assert_eq!(shown(&fixture), "OTTER", "it has changed");
    fixture.calls("read", 2, "OTTER");
    assert_eq!(shown(&fixture), "OTTER", "another call");
    fixture.calls("read", 1, "OTTER");
    assert_ne!(shown(&fixture), "OTTER", "in turns with another call");
    for _ in 0..2 {
        fixture.replies(reply().call("view", json!({"task_id": "t-12345"})));
        fixture.returns(0, "it runs");
    }
    assert_eq!(shown(&fixture), "it runs", "looking at a task");
    for _ in 0..2 {
        fixture.replies(reply().call("read", json!({"path": "tasks.md"})));
        fixture.returns(0, "three tasks");
    }
    assert_ne!(shown(&fixture), "three tasks", "a file about tasks is a file");
    fixture.replies(reply().call("guess", 1.into()).call("guess", 1.into()));
    fixture.returns(0, "7");
    fixture.returns(1, "7");
    assert_eq!(shown(&fixture), "7", "twice in one reply is meant");
}

#[test]
fn a_reminder_shows_a_repeated_result_without_the_note() {
    let mut fixture = ConversationFixture::new();
    for _ in 0..4 {
        fixture.calls("read", 1, "BADGER");
    }
    let NextStep::Nudge { text, .. } = fixture.next() else { panic!("{:?}", fixture.next()) };
    assert!(text.contains("BADGER") && !text.contains("same result"), "{text}");
}

#[test]
fn who_writes_a_call_as_text_is_told_once() {
    let described = "To find the port, call `launch_agent` with the task.";
    for (text, told) in [
        (described, Some("Nothing was called: you have only named launch_agent.")),
        (
            r#"{"task": "read alpha"} {"task": "read beta", "agent": "reader"}"#,
            Some("Nothing was called: your reply is a call"),
        ),
        (
            r#"{"name": "reader", "arguments": {"task": "Find it."}}"#,
            Some("Nothing was called: your reply is a call"),
        ),
        ("The launch of the agent went well.", None),
        ("`read_file` shows it.", None),
        (r#"{"task": "done", "port": 4173}"#, None),
        ("[4173]", None),
        ("4173", None),
    ] {
        let mut fixture = ConversationFixture::new();
        fixture.replies(reply().text(text));
        match (fixture.next(), told) {
            (NextStep::Nudge { text: nudge, .. }, Some(told)) => {
                assert!(nudge.starts_with(told), "{text}: {nudge}");
                fixture.does();
                fixture.replies(reply().text(text));
                assert_eq!(fixture.next(), NextStep::Idle, "{text}: it is its answer");
            }
            (next, told) => assert!(next == NextStep::Idle && told.is_none(), "{text}: {next:?}"),
        }
    }
    let long = format!("{described} {}", "The guide goes on. ".repeat(80));
    type Before = fn(&mut ConversationFixture);
    let table: [(Before, &str, bool, &str); 4] = [
        (|fixture| fixture.launches(&[("reader", "Read it.")]), described, true, "it has launched one"),
        (|fixture| fixture.calls("read", 1, "BADGER"), described, true, "it has used another tool"),
        (|_| {}, &long, true, "it writes about the tool"),
        (|_| {}, described, false, "it has no tool that launches, or JSON is its answer"),
    ];
    for (before, text, delegates, why) in table {
        let mut fixture = ConversationFixture::new();
        before(&mut fixture);
        fixture.replies(reply().text(text));
        let next = fixture.turn.next_step(&fixture.policy, effects, delegates);
        assert_eq!(next, NextStep::Idle, "{why}");
    }
}

#[test]
fn reads_that_fail_one_after_the_other_end_in_words() {
    for (tool, works_at, led) in [
        ("read", None, &[(5, NudgeReason::Unchanged), (10, NudgeReason::ToolsOff)][..]),
        ("read", Some(4), &[(9, NudgeReason::Unchanged)]),
        // It found something after it was told.
        ("read", Some(7), &[(5, NudgeReason::Unchanged), (12, NudgeReason::Unchanged)]),
        // A launch that fails is none: another one may not.
        ("launch", None, &[]),
        // It may change something, and so may the next one.
        ("shell", None, &[]),
    ] {
        let mut fixture = ConversationFixture::new();
        fixture.calls("read", 0, "The code word is BADGER.");
        let mut nudged = Vec::new();
        for n in 1..=12 {
            let letter = char::from(b'a' + n as u8);
            let arguments = match tool {
                "launch" => json!({"agent": "reader", "task": format!("Read {letter}.txt.")}),
                _ => n.into(),
            };
            fixture.replies(reply().call(tool, arguments));
            let (turn, is_error) = (fixture.turn.replies(), works_at != Some(n));
            if tool == "shell" {
                let call = CallId { turn, index: 0 };
                fixture.note(Entry::Called {
                    call,
                    tool: tool.into(),
                    arguments: None,
                    effects: true,
                    foreign: false,
                });
            }
            let output = format!("there is no line {n}");
            fixture.note(Entry::Returned(Box::new(CallResult { is_error, ..returned(turn, 0, &output) })));
            if let NextStep::Nudge { why, text } = fixture.next() {
                assert!(text.contains("BADGER"), "{text}");
                nudged.push((n, why));
                fixture.does();
            }
            if nudged.last().is_some_and(|(_, why)| *why == NudgeReason::ToolsOff) {
                break;
            }
        }
        assert_eq!(nudged, led, "{tool} {works_at:?}");
    }
}

#[test]
fn reading_again_is_no_circle_once_the_earlier_result_may_be_out_of_sight() {
    type Between = fn(&mut ConversationFixture);
    let table: [(Between, Option<NudgeReason>, &str); 3] = [
        (|_| {}, Some(NudgeReason::Unchanged), "it sees what it has read"),
        (
            |fixture| {
                let (summary, usage) = ("in short".into(), Default::default());
                fixture.note(Entry::Compacted { summary, replaces: 3, usage, cost: None });
            },
            None,
            "its conversation was compacted",
        ),
        (
            |fixture| (10..30).for_each(|n| fixture.calls("read", n, &format!("part {n}"))),
            None,
            "it was long ago",
        ),
    ];
    for (between, led, why) in table {
        let mut fixture = ConversationFixture::new();
        (0..3).for_each(|n| fixture.calls("read", n, &format!("part {n}")));
        between(&mut fixture);
        (0..3).for_each(|n| fixture.calls("read", n, &format!("part {n}")));
        let is_noted =
            fixture.said().last().is_some_and(|last| last.contains("you have this result already"));
        assert_eq!(is_noted, led.is_some(), "{why}");
        assert_eq!(fixture.led(), led, "{why}");
    }
}

#[test]
fn looking_at_a_job_is_not_taken_for_looking_at_tasks() {
    for (tool, delegates, led) in [
        ("look", true, Some("You have started no task yet")),
        ("look", false, Some("Your last calls returned what you already had.")),
        ("job", true, None),
    ] {
        let mut fixture = ConversationFixture::new();
        (0..6).for_each(|_| fixture.calls(tool, 0, "still running"));
        let next = fixture.turn.next_step(&fixture.policy, effects, delegates);
        match (next, led) {
            (NextStep::Nudge { text, .. }, Some(led)) => assert!(text.starts_with(led), "{tool}: {text}"),
            (next, led) => assert!(
                led.is_none() && matches!(next, NextStep::CallModel { tools: true }),
                "{tool}: {next:?}"
            ),
        }
    }
}

#[test]
fn a_task_that_failed_under_the_eyes_of_its_parent_has_no_result() {
    for is_error in [false, true] {
        let mut fixture = ConversationFixture::new();
        fixture.replies(reply().call("launch", json!({"agent": "reader", "task": "Read alpha.txt."})));
        let (turn, collected) = (fixture.turn.replies(), vec![child(1, 0)]);
        fixture.note(Entry::Returned(Box::new(CallResult {
            collected,
            is_error,
            ..returned(turn, 0, "came of it")
        })));
        fixture.replies(reply().call("launch", json!({"agent": "reader", "task": "Read alpha.txt."})));
        let results: Vec<_> = fixture.earlier().iter().filter_map(|earlier| earlier.result).collect();
        assert_eq!(results.is_empty(), is_error);
    }
}
