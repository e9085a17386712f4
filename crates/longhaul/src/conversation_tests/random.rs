//! Random journals: whatever happens, a new owner continues where the old one was.

use proptest::prelude::*;

use super::*;

/// What happens next, where the conversation allows a choice.
#[derive(Debug, Clone)]
enum Chance {
    Replies { text: bool, calls: Vec<(u8, u8)>, stop: u8 },
    Returns { which: usize, collects: Option<u8>, hands_off: bool },
    Letter { idle: bool },
    Ending(u8),
    Said,
    ProviderFails,
    Crash,
    Compact(u8),
}

fn chance() -> impl Strategy<Value = Chance> {
    prop_oneof![
        4 => (any::<bool>(), proptest::collection::vec((0..3u8, 0..2u8), 0..4), 0..8u8)
            .prop_map(|(text, calls, stop)| Chance::Replies { text, calls, stop }),
        4 => (0..4usize, proptest::option::of(0..6u8), proptest::bool::weighted(0.1))
            .prop_map(|(which, collects, hands_off)| Chance::Returns { which, collects, hands_off }),
        2 => any::<bool>().prop_map(|idle| Chance::Letter { idle }),
        2 => (0..6u8).prop_map(Chance::Ending),
        1 => Just(Chance::Said),
        1 => Just(Chance::ProviderFails),
        1 => Just(Chance::Crash),
        1 => (0..3u8).prop_map(Chance::Compact),
    ]
}

/// Runs a task: does the next step with the given choices. Stops where the task would end.
fn play(fixture: &mut ConversationFixture, chances: &[Chance]) {
    let mut letters = 0;
    for chance in chances {
        let mut retry = 20;
        while matches!(fixture.next(), NextStep::ReadLetters { .. } | NextStep::Nudge { .. }) {
            fixture.does();
            retry -= 1;
            assert!(retry > 0, "the turn talks to itself without end");
        }
        match (fixture.next(), chance) {
            (_, Chance::Letter { idle }) => {
                letters += 1;
                let deliver = if *idle { Delivery::WhenIdle } else { Delivery::Asap };
                fixture.letter(&format!("l{letters}"), deliver, None);
            }
            (_, Chance::Ending(child)) => {
                let id = format!("e{child}");
                if !fixture
                    .journal
                    .iter()
                    .any(|r| matches!(&r.entry, Entry::Letter(l) if l.id.as_str() == id))
                {
                    fixture.letter(&id, Delivery::Asap, Some(task(&child.to_string())));
                }
            }
            (_, Chance::Crash) => fixture.claim(),
            (NextStep::Fail(_), _) => return,
            (NextStep::CallModel { tools }, Chance::Replies { text, calls, stop }) => {
                let stop = match stop {
                    0 => Some(StopReason::Length),
                    1 => Some(StopReason::Refused),
                    _ => None,
                };
                let mut answer = if *text { reply().text("words") } else { reply() };
                for (tool, argument) in calls {
                    answer = answer.call(["a", "b", "look"][usize::from(*tool)], (*argument).into());
                }
                let began = calls.len() as u32;
                fixture.replies(match stop {
                    Some(stop) => answer.stop(stop),
                    None => answer,
                });
                for index in (0..began).filter(|_| tools) {
                    let call = CallId { turn: fixture.turn.replies(), index };
                    fixture.note(Entry::Called {
                        call,
                        tool: "t".into(),
                        arguments: None,
                        effects: false,
                        foreign: false,
                    });
                }
            }
            (NextStep::CallModel { .. }, Chance::Said) => {
                fixture.note(Entry::Said { voice: LiveTextKind::Text, text: "live ".into() });
            }
            (NextStep::CallModel { .. }, Chance::ProviderFails) => {
                fixture.note(Entry::Waiting { on: WaitReason::Provider("429".into()), until: None });
            }
            (NextStep::CallModel { .. }, Chance::Compact(replaces)) => {
                // Only complete exchanges are compacted: here, all or none.
                let replaces = if *replaces == 0 { 1000 } else { 0 };
                if replaces > 0 {
                    fixture.note(Entry::Compacted {
                        summary: "short".into(),
                        replaces,
                        usage: Default::default(),
                        cost: None,
                    });
                }
            }
            (NextStep::RunCalls(acts), Chance::Returns { which, collects, hands_off }) => {
                let act = &acts[which % acts.len()];
                let mut back = returned(act.id.turn, act.id.index, "result");
                back.collected = collects.iter().map(|child| task(&child.to_string())).collect();
                back.handoff = hands_off.then(|| "other".into());
                fixture.note(Entry::Returned(Box::new(back)));
            }
            _ => {}
        }
    }
}

/// A step without what a new attempt changes about it: whether, and by which attempt, a call was started.
fn plain(step: NextStep) -> NextStep {
    match step {
        NextStep::RunCalls(mut acts) => {
            for act in &mut acts {
                act.started = false;
                act.interrupted = false;
            }
            NextStep::RunCalls(acts)
        }
        other => other,
    }
}

fn as_json(turn: &Conversation) -> serde_json::Value {
    let mut json = serde_json::to_value(turn).unwrap();
    // A set has no order.
    if let Some(set) = json["collected"].as_array_mut() {
        set.sort_by_key(ToString::to_string);
    }
    json
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn a_new_owner_goes_on_where_any_cut_leaves_the_journal(
        chances in proptest::collection::vec(chance(), 1..60),
        interactive in any::<bool>(),
        max_turns in 0..12u32,
        max_wakes in 0..5u32,
    ) {
        let mut fixture = if interactive { ConversationFixture::interactive() } else { ConversationFixture::new() };
        fixture.policy = Policy { max_turns, max_wakes, ..Policy::default() };
        play(&mut fixture, &chances);
        for cut in 2..=fixture.journal.len() {
            let mut before = fixture.refolded(&fixture.journal[..cut]);
            let next = before.next_step(&fixture.policy, effects, true);
            let seq = crate::id::Seq(cut as u64 + 1);
            let claimed = Entry::Claimed { attempt: Attempt(1000), worker: "new".into() };
            before.apply(&Record { seq, at: jiff::Timestamp::UNIX_EPOCH, entry: claimed });
            let after = before.next_step(&fixture.policy, effects, true);
            if let NextStep::RunCalls(acts) = &after {
                prop_assert!(acts.iter().all(|act| !act.started), "nothing was begun by the new owner");
            }
            prop_assert_eq!(plain(next), plain(after));
        }
    }

    #[test]
    fn a_turn_is_kept_whole_by_serde(chances in proptest::collection::vec(chance(), 1..40)) {
        let mut fixture = ConversationFixture::new();
        play(&mut fixture, &chances);
        let text = serde_json::to_string(&fixture.turn).unwrap();
        let back: Conversation = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(as_json(&back), as_json(&fixture.turn));
        prop_assert_eq!(back.next_step(&fixture.policy, effects, true), fixture.next());
    }

    #[test]
    fn no_call_is_ever_left_without_a_result_and_no_letter_is_read_twice(
        chances in proptest::collection::vec(chance(), 1..60),
        max_turns in 0..6u32,
        interactive in any::<bool>(),
    ) {
        let mut fixture = if interactive { ConversationFixture::interactive() } else { ConversationFixture::new() };
        fixture.policy.max_turns = max_turns;
        play(&mut fixture, &chances);
        fixture.assert_no_call_is_left_without_result();
        let mut read = std::collections::HashSet::new();
        for record in &fixture.journal {
            if let Entry::Read { letters, known, .. } = &record.entry {
                for id in letters.iter().chain(known) {
                    prop_assert!(read.insert(id.clone()), "{id} was read twice");
                }
            }
        }
        fixture.turn = fixture.continued("more");
        fixture.assert_no_call_is_left_without_result();
        prop_assert!(matches!(fixture.next(), NextStep::CallModel { .. } | NextStep::Nudge { .. }), "{:?}", fixture.next());
    }
}
