//! The conversation state machine, step by step. Random journals are in `random`.

#[path = "conversation_tests/earlier_launches.rs"]
mod earlier_launches;
#[path = "conversation_tests/fixture.rs"]
mod fixture;
#[path = "conversation_tests/launches.rs"]
mod launches;
#[path = "conversation_tests/loops.rs"]
mod loops;
#[path = "conversation_tests/random.rs"]
mod random;
#[path = "conversation_tests/repeated_calls.rs"]
mod repeated_calls;

use fixture::*;

use super::*;
use crate::agent::{AtTurnLimit, CompletionNotice};
use crate::entry::{Delivery, Entry, FailureKind, LiveTextKind, Outcome, Record, Sender, WaitReason};
use crate::message::prompt_tags::tests::{nasty, tags_in};
use crate::testing::reply;

#[test]
fn an_order_is_told_with_all_its_parts_also_to_a_root() {
    let mut order = Order::new("lead", "Compare.").expected_output("A table.");
    order.context = Some("For a blog.".into());
    let fixture = ConversationFixture::with(order);
    let said = fixture.said();
    for part in ["Compare.", "A table.", "For a blog."] {
        assert!(said[0].contains(part), "{said:?}");
    }
    assert_eq!(ConversationFixture::new().said(), ["u:go"], "an order without parts is just its text");
}

proptest::proptest! {
    /// Whatever others write, the number of tags stays the one that the engine wrote.
    #[test]
    fn nobody_closes_or_opens_an_envelope(said in nasty(), more in nasty()) {
        let mut order = Order::new("lead", said.as_str()).expected_output(more.as_str());
        order.context = Some(said.as_str().into());
        proptest::prop_assert_eq!(tags_in(&order_text(&order, true)), 6);
        proptest::prop_assert_eq!(tags_in(&summary_text(&said, std::slice::from_ref(&more))), 2);
        let task = "t-7f3k2".parse().unwrap();
        let letter = |text: &str| Letter::new(LetterId::for_task_end(task), Sender::Task(task), text);
        proptest::prop_assert_eq!(tags_in(&letters_text(&[letter(&said), letter(&more)])), 4);
    }
}

/// A letter from an old journal that already has its tags stays as it is.
#[test]
fn an_old_letter_about_an_end_stays_as_it_is() {
    let text =
        "<task_ended id=\"t-7f3k2\" agent=\"worker\" status=\"completed\">\n<b>x</b> </task>\n</task_ended>";
    let ending = "t-7f3k2".parse().unwrap();
    let letter = Letter::new(LetterId::for_task_end(ending), Sender::Task(ending), text).ending(Some(ending));
    assert_eq!(&*letters_text(&[letter]), text);
}

#[test]
fn letters_are_read_before_the_next_call_or_when_idle_as_they_say() {
    let mut fixture = ConversationFixture::new();
    fixture.replies(reply().call("t", 1.into()));
    fixture.letter("soon", Delivery::Asap, None);
    fixture.letter("later", Delivery::WhenIdle, None);
    fixture.returns(0, "r");
    assert_eq!(fixture.next(), read(&["soon"]), "results first, then what is due");
    fixture.does();
    assert_eq!(fixture.next(), NextStep::CallModel { tools: true });
    fixture.replies(reply().text("hm"));
    assert_eq!(fixture.next(), read(&["later"]));
    fixture.does();
    fixture.replies(reply().text("done"));
    assert_eq!(fixture.next(), NextStep::Idle);
    assert_eq!(fixture.said(), ["u:go", "a:", "t:r", "u:soon", "a:hm", "u:later", "a:done"]);
}

#[test]
fn an_agent_may_read_all_letters_only_when_idle() {
    let mut fixture = ConversationFixture::new();
    fixture.policy.letter_delivery = Delivery::WhenIdle;
    fixture.letter("a", Delivery::Asap, None);
    assert_eq!(fixture.next(), NextStep::CallModel { tools: true });
    fixture.replies(reply().text("x"));
    assert_eq!(fixture.next(), read(&["a"]));
}

#[test]
fn results_stand_in_the_order_of_the_calls_whatever_the_order_of_returning() {
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [2, 0, 1]] {
        let mut fixture = ConversationFixture::new();
        fixture.replies(reply().call("a", 0.into()).call("b", 1.into()).call("c", 2.into()));
        for index in order {
            assert!(matches!(fixture.next(), NextStep::RunCalls(_)));
            fixture.returns(index, &format!("r{index}"));
        }
        assert_eq!(fixture.said(), ["u:go", "a:", "t:r0", "t:r1", "t:r2"]);
        assert_eq!(fixture.next(), NextStep::CallModel { tools: true });
    }
}

#[test]
fn what_was_collected_is_not_told_again_by_letter() {
    let (child, other) = (task("child"), task("other"));
    let mut fixture = ConversationFixture::new();
    fixture.replies(reply().call("wait", 0.into()));
    fixture.letter("end", Delivery::Asap, Some(child));
    fixture.letter("end2", Delivery::Asap, Some(other));
    fixture.note(Entry::Returned(Box::new(CallResult {
        collected: vec![child],
        ..returned(1, 0, "all of it")
    })));
    let step = NextStep::ReadLetters { letters: vec!["end2".into()], known: vec!["end".into()] };
    assert_eq!(fixture.next(), step);
    fixture.does();
    assert_eq!(fixture.turn.known_letters(), [], "what is known is done with");
    fixture.replies(reply().text("ok"));
    assert_eq!(fixture.next(), NextStep::Idle);
}

#[test]
fn a_letter_that_tells_only_what_is_known_wakes_nobody() {
    let child = task("child");
    let mut fixture = ConversationFixture::new();
    fixture.replies(reply().call("wait", 0.into()));
    fixture.note(Entry::Returned(Box::new(CallResult { collected: vec![child], ..returned(1, 0, "x") })));
    fixture.replies(reply().text("ok"));
    fixture.letter("end", Delivery::Asap, Some(child));
    assert_eq!(fixture.next(), NextStep::Idle);
    assert!(!fixture.turn.has_new_endings_only());
}

#[test]
fn an_empty_answer_is_reminded_once_and_then_a_failure_that_keeps_what_was_said() {
    let mut fixture = ConversationFixture::new();
    fixture.replies(reply().text("first find").call("t", 0.into()));
    fixture.returns(0, "r");
    fixture.replies(reply().text("  "));
    assert!(matches!(fixture.next(), NextStep::Nudge { why: NudgeReason::Empty, .. }));
    fixture.does();
    fixture.replies(reply());
    assert_eq!(fixture.failure(), Some(FailureKind::NoAnswer));
    assert_eq!(&*fixture.turn.partial_output(), "first find");
}

#[test]
fn a_reminder_may_help_and_a_new_word_earns_a_new_one() {
    let mut fixture = ConversationFixture::interactive();
    fixture.replies(reply());
    fixture.does();
    fixture.replies(reply().text("here"));
    assert_eq!(fixture.next(), NextStep::Idle);
    fixture.letter("more", Delivery::Asap, None);
    fixture.does();
    fixture.replies(reply());
    assert!(matches!(fixture.next(), NextStep::Nudge { why: NudgeReason::Empty, .. }));
}

#[test]
fn at_the_turn_limit_the_last_word_is_said_without_tools_and_marked() {
    let mut fixture = ConversationFixture::new();
    fixture.policy.max_turns = 1;
    fixture.replies(reply().text("so far").call("t", 0.into()));
    fixture.returns(0, "r");
    assert!(matches!(fixture.next(), NextStep::Nudge { why: NudgeReason::LastWord(_), .. }));
    fixture.does();
    assert_eq!(fixture.next(), NextStep::CallModel { tools: false });
    fixture.replies(reply().text("what I have").call("t", 1.into()));
    assert_eq!(fixture.next(), NextStep::Idle, "calls made with tools off are not run");
    let Outcome::Completed { output, cut_short } = fixture.turn.answer(None) else { panic!() };
    assert_eq!((&*output, cut_short.as_deref()), ("what I have", Some("the limit of 1 turns")));
    fixture.assert_no_call_is_left_without_result();
}

#[test]
fn an_empty_last_word_is_a_failure_without_another_reminder() {
    let mut fixture = ConversationFixture::new();
    fixture.policy.max_turns = 1;
    fixture.replies(reply().call("t", 0.into()));
    fixture.returns(0, "r");
    fixture.does();
    fixture.replies(reply().text(" "));
    assert_eq!(fixture.failure(), Some(FailureKind::NoAnswer));
}

/// A small model that is told that tools are off calls one anyway, or writes the call as text.
#[test]
fn a_call_is_no_last_word_and_is_told_so_once() {
    let written = reply().text("```json\n{\"name\": \"t\", \"arguments\": {\"a\": 1}}\n```");
    for call in [written, reply().call("t", 1.into())] {
        let mut fixture = ConversationFixture::new();
        fixture.policy.max_turns = 1;
        fixture.replies(reply().call("t", 0.into()));
        fixture.returns(0, "r");
        fixture.does();
        fixture.replies(call.clone());
        let NextStep::Nudge { why: NudgeReason::Empty, text } = fixture.next() else {
            panic!("{:?}", fixture.next())
        };
        assert!(text.starts_with("Tools are off"), "{text}");
        fixture.does();
        assert_eq!(fixture.next(), NextStep::CallModel { tools: false });
        let mut again = fixture.clone();
        fixture.replies(reply().text("in words"));
        let Outcome::Completed { output, cut_short } = fixture.turn.answer(None) else { panic!() };
        assert_eq!((&*output, cut_short.is_some()), ("in words", true));
        again.replies(call);
        assert_eq!(again.failure(), Some(FailureKind::NoAnswer), "a call is never shown as an answer");
        again.assert_no_call_is_left_without_result();
    }
}

/// JSON that names a tool it has never called may be the requested answer.
#[test]
fn json_that_is_no_call_of_its_own_is_a_last_word() {
    let mut fixture = ConversationFixture::new();
    fixture.policy.max_turns = 1;
    fixture.replies(reply().call("t", 0.into()));
    fixture.returns(0, "r");
    fixture.does();
    fixture.replies(reply().text("{\"name\": \"other\", \"arguments\": {}}"));
    assert_eq!(fixture.next(), NextStep::Idle);
}

#[test]
fn the_turn_limit_can_be_a_failure_and_zero_is_none() {
    let mut fixture = ConversationFixture::new();
    fixture.policy.at_turn_limit = AtTurnLimit::Fail;
    fixture.policy.max_turns = 2;
    for turn in 0..2 {
        assert_eq!(fixture.next(), NextStep::CallModel { tools: true });
        fixture.replies(reply().call("t", turn.into()));
        fixture.returns(0, "r");
    }
    assert_eq!(fixture.failure(), Some(FailureKind::TurnLimit));
    fixture.policy.max_turns = 0;
    assert_eq!(fixture.next(), NextStep::CallModel { tools: true });
}

#[test]
fn a_persons_new_word_gives_a_session_its_turns_back() {
    let mut fixture = ConversationFixture::interactive();
    fixture.policy.max_turns = 1;
    fixture.replies(reply().call("t", 0.into()));
    fixture.returns(0, "r");
    fixture.does();
    fixture.replies(reply().text("cut"));
    fixture.letter("go on", Delivery::Asap, None);
    fixture.does();
    assert_eq!(fixture.next(), NextStep::CallModel { tools: true });
    fixture.replies(reply().text("whole"));
    assert!(matches!(fixture.turn.answer(None), Outcome::Completed { cut_short: None, .. }));
}

#[test]
fn the_same_call_is_told_at_five_and_fails_at_eight_and_looking_does_not_count() {
    for (tool, counts, changes) in [("t", true, true), ("t", true, false), ("look", false, false)] {
        let mut fixture = ConversationFixture::new();
        if tool == "look" {
            // There is something to look at.
            fixture.replies(reply().call("launch", serde_json::json!({"agent": "reader", "task": "Read."})));
            fixture.returns(0, "t-1 was started");
        }
        for times in 1..=8 {
            assert_eq!(fixture.next(), NextStep::CallModel { tools: true }, "{tool} {times}");
            fixture.replies(reply().call(tool, 1.into()));
            fixture.returns(0, &if changes { format!("{times} %") } else { "same".to_owned() });
            let nudge = |fixture: &mut ConversationFixture, expected: NudgeReason| {
                let NextStep::Nudge { why, .. } = fixture.next() else { panic!("{:?}", fixture.next()) };
                assert_eq!(why, expected, "{times}");
                fixture.does();
            };
            match (counts, times) {
                (true, 5) => nudge(&mut fixture, NudgeReason::Repeating),
                // What returns the same each time has nothing more to give.
                (true, 6) if !changes => {
                    nudge(&mut fixture, NudgeReason::ToolsOff);
                    assert_eq!(fixture.next(), NextStep::CallModel { tools: false });
                    break;
                }
                (true, 8) => assert_eq!(fixture.failure(), Some(FailureKind::Repeating)),
                _ => assert_eq!(fixture.next(), NextStep::CallModel { tools: true }),
            }
        }
    }
}

#[test]
fn other_arguments_are_another_call() {
    let mut fixture = ConversationFixture::new();
    for turn in 0..20 {
        fixture.replies(reply().call("t", (turn % 4 / 2).into()));
        fixture.returns(0, "r");
        assert_eq!(fixture.next(), NextStep::CallModel { tools: true });
    }
}

#[test]
fn wakes_are_bounded() {
    let mut fixture = ConversationFixture::new();
    fixture.policy.max_wakes = 3;
    fixture.replies(reply().text("x"));
    for wake in 0..4 {
        fixture.letter(&format!("e{wake}"), Delivery::Asap, Some(task(&wake.to_string())));
        assert!(matches!(fixture.next(), NextStep::ReadLetters { .. }));
        fixture.does();
        if wake < 3 {
            assert_eq!(fixture.next(), NextStep::CallModel { tools: true });
            fixture.replies(reply().text("x"));
        }
    }
    assert!(matches!(fixture.next(), NextStep::Nudge { why: NudgeReason::LastWord(_), .. }));
}

#[test]
fn a_tired_session_reads_endings_with_the_next_word_of_a_person() {
    let mut fixture = ConversationFixture::interactive();
    fixture.policy.max_wakes = 1;
    fixture.replies(reply().text("x"));
    fixture.letter("e0", Delivery::Asap, Some(task("0")));
    fixture.does();
    fixture.replies(reply().text("y"));
    fixture.letter("e1", Delivery::Asap, Some(task("1")));
    assert_eq!(fixture.next(), NextStep::Idle);
    fixture.letter("hi", Delivery::Asap, None);
    assert_eq!(fixture.next(), read(&["e1", "hi"]));
    fixture.does();
    fixture.replies(reply().text("z"));
    fixture.letter("e2", Delivery::Asap, Some(task("2")));
    assert_eq!(fixture.next(), read(&["e2"]), "a person's word wakes it up again");
}

#[test]
fn quiet_notices_wait_for_something_else_to_read() {
    let mut fixture = ConversationFixture::interactive();
    fixture.policy.completion_notice = CompletionNotice::Quiet;
    fixture.replies(reply().text("x"));
    fixture.letter("e", Delivery::Asap, Some(task("0")));
    assert_eq!(fixture.next(), NextStep::Idle);
    fixture.letter("hi", Delivery::Asap, None);
    assert_eq!(fixture.next(), read(&["e", "hi"]));
}

#[test]
fn a_refusal_is_a_failure_and_a_full_output_is_cut_short() {
    let mut fixture = ConversationFixture::new();
    fixture.replies(reply().text("I cannot.").stop(StopReason::Refused));
    assert_eq!(fixture.failure(), Some(FailureKind::Refused));
    let mut fixture = ConversationFixture::new();
    fixture.replies(reply().text("once upon").stop(StopReason::Length));
    assert_eq!(fixture.next(), NextStep::Idle);
    assert!(matches!(fixture.turn.answer(None), Outcome::Completed { cut_short: Some(_), .. }));
}

#[test]
fn a_call_that_the_output_limit_cut_is_not_the_call_that_was_meant() {
    for (arguments, stop, cut) in [
        ("{\"path\": \"/tmp", StopReason::Length, true),
        ("", StopReason::Length, true),
        ("{}", StopReason::Length, false),
        ("", StopReason::Calls, false),
    ] {
        let mut fixture = ConversationFixture::new();
        fixture.replies(reply().call("whole", 0.into()).raw_call("remove", arguments).stop(stop));
        let NextStep::RunCalls(acts) = fixture.next() else { panic!("{:?}", fixture.next()) };
        assert_eq!(
            acts.iter().map(|act| act.truncated).collect::<Vec<_>>(),
            [false, cut],
            "{arguments} {stop:?}"
        );
    }
}

#[test]
fn a_continuation_has_the_whole_conversation_results_for_every_call_and_unread_letters() {
    let mut fixture = ConversationFixture::new();
    fixture.replies(reply().call("a", 0.into()).call("b", 1.into()));
    fixture.returns(0, "r0");
    fixture.letter("unread", Delivery::WhenIdle, None);
    let turn = fixture.continued("go on");
    fixture.turn = turn;
    fixture.assert_no_call_is_left_without_result();
    let said = fixture.said();
    assert_eq!(said[..3], ["u:go", "a:", "t:r0"]);
    assert!(said[3].starts_with("t:The task ended"), "{said:?}");
    assert_eq!(said[4..], ["u:unread", "u:go on"]);
    assert_eq!(fixture.next(), NextStep::CallModel { tools: true });
}

#[test]
fn a_continuation_shows_half_a_reply_where_it_was_said() {
    let mut fixture = ConversationFixture::new();
    fixture.note(Entry::Said { voice: LiveTextKind::Text, text: "half a".into() });
    fixture.letter("unread", Delivery::Asap, None);
    fixture.turn = fixture.continued("go on");
    assert_eq!(fixture.said(), ["u:go", "a:half a", "u:unread", "u:go on"]);
    assert_eq!(&*fixture.turn.partial_output(), "", "what the old task said is not what the new one says");
}

#[test]
fn a_continuation_goes_on_with_the_agent_that_had_the_conversation() {
    let mut fixture = ConversationFixture::new();
    fixture.replies(reply().call("handoff", 0.into()));
    fixture.note(Entry::Returned(Box::new(CallResult {
        handoff: Some("expert".into()),
        ..returned(1, 0, "ok")
    })));
    assert_eq!(fixture.turn.agent(), &AgentName::from("expert"));
    assert_eq!(fixture.continued("more").agent(), &AgentName::from("expert"));
}

#[test]
fn compaction_keeps_the_order_and_what_came_after() {
    let mut fixture = ConversationFixture::new();
    for text in ["one", "two", "three"] {
        fixture.replies(reply().text(text));
        fixture.letter(&format!("after {text}"), Delivery::Asap, None);
        fixture.does();
    }
    fixture.note(Entry::Compacted {
        summary: "in short".into(),
        replaces: 4,
        usage: Default::default(),
        cost: None,
    });
    assert_eq!(fixture.said(), ["u:go", "u:in short", "a:three", "u:after three"]);
    fixture.note(Entry::Compacted {
        summary: "shorter".into(),
        replaces: 99,
        usage: Default::default(),
        cost: None,
    });
    assert_eq!(fixture.said(), ["u:go", "u:shorter"]);
}

#[test]
fn a_call_that_an_earlier_attempt_began_is_interrupted() {
    let mut fixture = ConversationFixture::new();
    fixture.replies(reply().call("a", 0.into()).call("b", 1.into()).call("c", 2.into()));
    fixture.note(Entry::Called {
        call: CallId { turn: 1, index: 0 },
        tool: "a".into(),
        arguments: None,
        effects: false,
        foreign: false,
    });
    fixture.note(Entry::Called {
        call: CallId { turn: 1, index: 1 },
        tool: "b".into(),
        arguments: None,
        effects: false,
        foreign: false,
    });
    fixture.returns(0, "r0");
    fixture.claim();
    let NextStep::RunCalls(acts) = fixture.next() else { panic!() };
    let flags: Vec<_> = acts.iter().map(|act| (act.id.index, act.started, act.interrupted)).collect();
    assert_eq!(flags, [(1, false, true), (2, false, false)], "what returned is not run again");
}

#[test]
fn partial_is_all_that_was_said() {
    let mut fixture = ConversationFixture::new();
    fixture.replies(reply().text("one").call("t", 0.into()));
    fixture.returns(0, "r");
    fixture.note(Entry::Said { voice: LiveTextKind::Text, text: "tw".into() });
    assert_eq!(&*fixture.turn.partial_output(), "one\n\ntw");
    fixture.note(Entry::Waiting { on: WaitReason::Provider("429".into()), until: None });
    assert_eq!(&*fixture.turn.partial_output(), "one", "what a provider said before it failed is void");
}
