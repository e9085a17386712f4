//! Tests of the state machines: a turn, and what is prompted after a crash.

use std::collections::HashMap;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::agent_turn::{AgentTurn, TurnEffect, usage};
use super::prompt::{Arrival, PromptKind, arrival, choose, compose, transcript};
use super::wire::{
    self, AgentMessage, CallStatus, CallUpdate, Update, parse_line, parse_permission, parse_update,
};
use crate::entry::{CallResult, Entry, LiveTextKind, Record};
use crate::id::{CallId, Seq};
use crate::message::{Message, Reply, StopReason, Usage};

fn call(id: &str, status: Option<CallStatus>, input: Option<Value>) -> Update {
    let (title, kind) = (Some("Run".to_owned()), Some("execute".to_owned()));
    Update::Call(CallUpdate { id: id.to_owned(), title, kind, status, input, ..CallUpdate::default() })
}

fn said(text: &str) -> Update {
    Update::Text(text.to_owned(), None)
}

fn reply(turn: AgentTurn) -> Reply {
    turn.into_reply(StopReason::End, Usage::default(), "fake".to_owned(), None)
}

#[test]
fn a_call_is_recorded_when_its_arguments_are_known_and_at_the_latest_when_it_runs() {
    let mut turn = AgentTurn::new(3);
    assert_eq!(
        turn.update(call("a", Some(CallStatus::Pending), Some(json!({ "cwd": "/x" })))),
        [],
        "no command yet"
    );
    let effects = turn.update(call("a", None, Some(json!({ "command": "ls" }))));
    let [TurnEffect::Called { index: 3, tool, arguments, effects: true }] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!(
        (&**tool, wire::text_at(&serde_json::from_str(arguments).unwrap(), "command")),
        ("execute", Some("ls"))
    );
    assert!(turn.is_calling());
    assert!(matches!(
        turn.update(call("b", Some(CallStatus::Running), None))[..],
        [TurnEffect::Called { index: 4, .. }]
    ));
    let done = turn.update(call("a", Some(CallStatus::Done), None));
    assert!(matches!(done[..], [TurnEffect::Returned { index: 3, is_error: false, .. }]), "{done:?}");
    assert_eq!(turn.update(call("a", Some(CallStatus::Failed), None)), [], "it returns once");
    let rest = turn.close_calls("cut");
    assert!(
        matches!(&rest[..], [TurnEffect::Returned { index: 4, is_error: true, output, .. }] if output == "cut")
    );
    assert!(!turn.is_calling());
}

#[test]
fn the_answer_is_what_was_said_after_the_last_call() {
    let mut turn = AgentTurn::new(0);
    turn.update(said("I look. "));
    turn.update(call("a", Some(CallStatus::Done), None));
    turn.update(said("It is "));
    turn.update(Update::Thought("hm".to_owned()));
    turn.update(said("fine."));
    let reply = reply(turn);
    assert_eq!((reply.text(), reply.reasoning()), ("It is fine.".to_owned(), "I look. hm".to_owned()));
}

#[test]
fn a_message_of_its_own_before_the_answer_is_not_the_answer() {
    let mut turn = AgentTurn::new(0);
    turn.update(said("Warning: no metadata.\n\n"));
    for text in ["It is ", "fine."] {
        turn.update(Update::Text(text.to_owned(), Some("m1".to_owned())));
    }
    assert_eq!(reply(turn).text(), "It is fine.");
}

#[test]
fn a_flood_is_kept_only_in_part() {
    let mut turn = AgentTurn::new(0);
    for number in 0..6000 {
        turn.update(said(&"x".repeat(1000)));
        turn.update(call(&number.to_string(), Some(CallStatus::Done), None));
    }
    assert!(turn.warning().unwrap().contains("1000 more calls"));
    assert!(reply(turn).reasoning().len() <= 1 << 20);
}

#[test]
fn a_prompt_has_arrived_if_the_session_replays_it() {
    let first = "Fix\nthe bug.";
    assert_eq!(arrival("Fix the  bug.", &[first]), Arrival::Arrived);
    assert_eq!(arrival("", &[first]), Arrival::Missing);
    assert_eq!(arrival("<x>Fix the bug.</x>", &[first]), Arrival::Arrived, "agents put things around it");
    // The same words again: as many as were sent.
    assert_eq!(arrival("go on", &["go on", "go on"]), Arrival::Missing);
    assert_eq!(arrival("go ongo on", &["go on", "go on"]), Arrival::Arrived);
    assert_eq!(
        arrival("please go on", &["please go on", "go on"]),
        Arrival::Missing,
        "it is part of another"
    );
    assert_eq!(arrival("a summary", &[first, "next"]), Arrival::Unknown, "it does not even replay the first");
}

#[test]
fn what_is_sent_depends_on_what_has_arrived() {
    let send = |has, lacks, outstanding| choose(has, lacks, outstanding);
    assert_eq!(send(false, false, None), PromptKind::First);
    assert_eq!(send(true, false, None), PromptKind::Next);
    assert_eq!(send(true, false, Some(Arrival::Arrived)), PromptKind::Continue);
    assert_eq!(send(true, false, Some(Arrival::Missing)), PromptKind::Again);
    assert_eq!(send(true, false, Some(Arrival::Unknown)), PromptKind::Unsure);
    assert_eq!(send(false, true, None), PromptKind::Restart);
    let text =
        |kind| compose(kind, "Be brief.", Some("the order"), &["a letter"], || "what was done".to_owned());
    assert_eq!(text(PromptKind::First), "<instructions>\nBe brief.\n</instructions>\n\na letter");
    assert_eq!(text(PromptKind::Next), "a letter");
    assert_eq!(text(PromptKind::Again), "the order\n\na letter");
    assert!(
        !text(PromptKind::Continue).contains("the order") && text(PromptKind::Continue).ends_with("a letter")
    );
    assert!(text(PromptKind::Restart).contains("what was done"));
}

#[test]
fn a_transcript_has_the_conversation_and_the_cut_turn() {
    let record = |entry| Record { seq: Seq(1), at: jiff::Timestamp::UNIX_EPOCH, entry };
    let id = CallId { turn: 2, index: 0 };
    let said = |text: &str| Entry::Said { voice: LiveTextKind::Text, text: text.to_owned() };
    let result = CallResult { foreign: Some("execute".into()), ..CallResult::new(id, "two files") };
    let journal = [
        said("before"),
        Entry::Replied(Arc::new(Reply::text_only("first answer"))),
        said("I will "),
        said("list."),
        Entry::Called {
            call: id,
            tool: "execute".into(),
            arguments: Some("{\"command\":\"ls\"}".to_owned()),
            effects: true,
            foreign: true,
        },
        Entry::Returned(Box::new(result)),
    ];
    let journal = journal.map(record);
    let messages =
        [Message::User("the order".into()), Message::Assistant(Arc::new(Reply::text_only("first answer")))];
    let text = transcript(&messages, &journal);
    let parts = ["the order", "first answer", "I will list.", "execute", "ls", "two files"];
    let at: Vec<usize> = parts.iter().map(|part| text.find(part).expect(part)).collect();
    assert!(at.is_sorted() && !text.contains("before"), "{text}");
}

#[test]
fn always_is_never_sent() {
    let options = |kinds: &[&str]| -> Vec<Value> {
        kinds.iter().map(|kind| json!({ "kind": kind, "optionId": kind, "name": kind })).collect()
    };
    let asked = |kinds: &[&str]| {
        let params = json!({ "toolCall": { "toolCallId": "a" }, "options": options(kinds) });
        parse_permission(&params).unwrap()
    };
    let chosen = |kinds: &[&str], allow| asked(kinds).outcome(allow)["outcome"]["optionId"].clone();
    assert_eq!(chosen(&["allow_always", "allow_once", "reject_once"], true), "allow_once");
    assert_eq!(chosen(&["allow_always", "allow_once", "reject_once"], false), "reject_once");
    assert_eq!(
        chosen(&["allow_always", "reject_once"], true),
        "reject_once",
        "no settings of the agent are changed"
    );
    assert_eq!(asked(&["allow_always"]).outcome(true)["outcome"]["outcome"], "cancelled");
}

#[test]
fn a_command_line_is_a_text_for_rules() {
    let line = |input: Value| wire::arguments("execute", "`rm -rf /`", Some(&input), &[])["command"].clone();
    assert_eq!(line(json!({ "command": ["bash", "-lc", "git push"] })), "git push");
    assert_eq!(line(json!({ "command": ["git", "commit", "-m", "a; b"] })), "git commit -m 'a; b'");
    assert_eq!(line(json!({ "command": "ls" })), "ls");
    assert_eq!(line(json!({})), "rm -rf /", "the title, if there is nothing else");
}

#[test]
fn usage_counts_what_the_cache_gave_as_input() {
    let told = json!({ "usage": { "inputTokens": 10, "outputTokens": 5, "cachedReadTokens": 100, "thoughtTokens": 2 } });
    assert_eq!(usage(&told), Usage { input: 110, cached: 100, cache_written: 0, output: 5, reasoning: 2 });
}

#[test]
fn lines_are_read_whatever_they_are() {
    let noise: [&[u8]; 6] =
        [b"", b"running 1 test", b"[]", b"{\"id\":", b"\xff\xfe", b"{\"id\":\"x\",\"result\":1}"];
    assert!(noise.iter().all(|line| parse_line(line) == AgentMessage::Noise));
    let error = parse_line(br#"{"id":1,"error":{"code":-32000,"message":"Authentication required"}}"#);
    assert!(matches!(error, AgentMessage::Response { id: 1, result: Err(error) } if error.needs_login()));
    assert_eq!(parse_update(&json!({ "update": { "sessionUpdate": "of the future" } })), Update::Other);
}

fn any_update() -> impl Strategy<Value = Update> {
    let status = prop_oneof![
        Just(None),
        Just(Some(CallStatus::Pending)),
        Just(Some(CallStatus::Running)),
        Just(Some(CallStatus::Done)),
        Just(Some(CallStatus::Failed)),
    ];
    prop_oneof![
        "[a-z ]{0,9}".prop_map(|text| said(&text)),
        "[a-z ]{0,9}".prop_map(Update::Thought),
        (0..6u8, status, any::<bool>()).prop_map(|(id, status, known)| {
            call(&id.to_string(), status, known.then(|| json!({ "command": "ls" })))
        }),
        Just(Update::Other),
    ]
}

proptest! {
    /// Whatever an agent sends: each call is recorded once, returns once, after it was recorded, and none is left open.
    #[test]
    fn calls_begin_and_return_once(updates in prop::collection::vec(any_update(), 0..60), cut in any::<bool>()) {
        let mut turn = AgentTurn::new(7);
        let mut effects: Vec<TurnEffect> = Vec::new();
        let mut said = String::new();
        for update in updates {
            if let Update::Text(text, _) = &update {
                said.push_str(text);
            }
            effects.extend(turn.update(update));
        }
        if cut {
            effects.extend(turn.asked(CallUpdate { id: "asked".to_owned(), ..CallUpdate::default() }).0);
        }
        effects.extend(turn.close_calls("cut"));
        let mut calls: HashMap<u32, bool> = HashMap::new();
        let mut live = String::new();
        for effect in effects {
            match effect {
                TurnEffect::Called { index, .. } => {
                    prop_assert!(index >= 7 && calls.insert(index, false).is_none());
                }
                TurnEffect::Returned { index, .. } => prop_assert_eq!(calls.insert(index, true), Some(false)),
                TurnEffect::Say(LiveTextKind::Text, text) => live.push_str(&text),
                _ => {}
            }
        }
        prop_assert!(calls.values().all(|returned| *returned) && !turn.is_calling());
        prop_assert_eq!(live, said.clone());
        // Whoever has said anything has an answer.
        prop_assert_eq!(reply(turn).text().trim().is_empty(), said.trim().is_empty());
    }

    /// A session that was sent prompts, of which the last may be missing, always says so.
    #[test]
    fn arrival_is_known_from_a_whole_replay(prompts in prop::collection::vec("[ab ]{0,3}x", 1..6), arrived in any::<bool>()) {
        let shown = if arrived { &prompts[..] } else { &prompts[..prompts.len() - 1] };
        let expected = if arrived { Arrival::Arrived } else { Arrival::Missing };
        prop_assert_eq!(arrival(&shown.concat(), &prompts), expected);
    }

    #[test]
    fn no_line_is_too_strange(line in prop::collection::vec(any::<u8>(), 0..200)) {
        parse_line(&line);
    }

    #[test]
    fn no_update_is_too_strange(text in "\\PC*", number in any::<i64>()) {
        for kind in ["tool_call", "agent_message_chunk", "plan", "usage_update", "current_mode_update"] {
            for value in [json!(text), json!(number), json!([text]), json!({ "type": text, "text": number })] {
                let update = json!({ "sessionUpdate": kind, "toolCallId": text, "content": value, "rawInput": value,
                    "locations": value, "entries": value, "cost": value, "status": value });
                parse_update(&json!({ "update": update }));
            }
        }
    }
}
