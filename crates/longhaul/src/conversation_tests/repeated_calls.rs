//! Models that read or look at the same again and again, or write calls as text.

use serde_json::json;

use super::launches::*;
use super::*;

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
