//! Models that launch, stop or write the same in circles.

use jiff::SignedDuration;
use serde_json::json;

use super::launches::*;
use super::*;
use crate::entry::{ExpectedAnswer, Question, QuestionAnswer, TaskEnding};
use crate::id::QuestionId;
use crate::task::Status;

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
