//! Which launches are taken for one that was made before.

use proptest::prelude::*;
use serde_json::json;

use super::launches::*;
use super::*;
use crate::dispatch::EarlierLaunch;
use crate::entry::TaskEnding;
use crate::task::Status;

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
