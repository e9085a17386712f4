//! Sorts the events of several tasks into the order in which they happened.

use std::collections::HashMap;

use jiff::Timestamp;

use crate::entry::Sender;
use crate::id::TaskId;
use crate::snapshot::{Event, EventKind};

/// Up to this many events of the same millisecond are sorted by cause. If there are more, they stay grouped
/// by task.
const LOOKED_AT: usize = 64;

/// Sorts events by time. The events of each task keep their order, and within a millisecond a cause comes
/// before its effect: a call before the task that it launched, an end before the letter about it.
pub(super) fn sort_events(events: &mut [Event]) {
    // A clock that was set back must not reorder a task's own events.
    let mut latest = HashMap::new();
    let moment_of = |event: &Event| {
        let at = latest.entry(event.task).or_insert(event.at);
        *at = event.at.max(*at);
        *at
    };
    let moments: Vec<Timestamp> = events.iter().map(moment_of).collect();
    let mut order: Vec<usize> = (0..events.len()).collect();
    order.sort_by_key(|at| moments[*at]);
    let same = |one: &usize, two: &usize| moments[*one] == moments[*two];
    let lengths: Vec<usize> = order.chunk_by(same).map(<[usize]>::len).collect();
    move_into_order(events, order);
    let mut rest = events;
    for length in lengths {
        let (moment, later) = rest.split_at_mut(length);
        sort_by_cause(moment);
        rest = later;
    }
}

/// Moves what is at `order[n]` to `n`. In place: there may be many thousands.
fn move_into_order(events: &mut [Event], mut order: Vec<usize>) {
    // Cycle by cycle; what is in place points to itself.
    for start in 0..events.len() {
        let mut at = start;
        loop {
            let from = std::mem::replace(&mut order[at], at);
            if from == start {
                break;
            }
            events.swap(at, from);
            at = from;
        }
    }
}

/// Sorts events of the same moment by cause.
fn sort_by_cause(moment: &mut [Event]) {
    let alone = moment.iter().all(|event| event.task == moment[0].task);
    if alone || moment.len() > LOOKED_AT {
        return;
    }
    let mut left: Vec<usize> = (0..moment.len()).collect();
    let mut order = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let events: Vec<&Event> = left.iter().map(|at| &moment[*at]).collect();
        let first_of_task = |at: &usize| events[..*at].iter().all(|event| event.task != events[*at].task);
        let next = || (0..events.len()).filter(first_of_task);
        // Prefer a result after the task that its call launched, unless that task waits for a later call.
        let rather =
            |at: &usize| matches!(events[*at].kind, EventKind::Result { .. } | EventKind::Waiting { .. });
        let at = next().find(|at| !waits(events[*at], &events)).or_else(|| next().find(rather)).unwrap_or(0);
        order.push(left.remove(at));
    }
    move_into_order(moment, order);
}

/// Whether an event that is still left caused this one.
fn waits(event: &Event, left: &[&Event]) -> bool {
    let of = |task: TaskId| left.iter().filter(move |other| other.task == task).map(|other| &other.kind);
    match &event.kind {
        EventKind::Submitted { parent: Some(parent), .. } => {
            of(*parent).any(|what| matches!(what, EventKind::Call { .. }))
        }
        EventKind::Letter { from: Sender::Task(child), .. } => {
            of(*child).any(|what| matches!(what, EventKind::Finished { .. }))
        }
        EventKind::Result { .. } | EventKind::Waiting { .. } => left.iter().any(
            |other| matches!(other.kind, EventKind::Submitted { parent, .. } if parent == Some(event.task)),
        ),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{CallId, LetterId, Seq};
    use crate::message::Usage;
    use crate::task::Status;
    use jiff::Timestamp;

    fn id(name: &str) -> TaskId {
        name.parse().unwrap()
    }

    fn event(task: &str, at: i64, what: EventKind) -> Event {
        Event { task: id(task), seq: Seq(1), at: Timestamp::from_millisecond(at).unwrap(), kind: what }
    }

    fn submitted(parent: Option<&str>) -> EventKind {
        let agent = "a".into();
        EventKind::Submitted { agent, headline: String::new(), parent: parent.map(id), continues: None }
    }

    fn call() -> EventKind {
        EventKind::Call { call: CallId { turn: 1, index: 0 }, tool: "t".into(), arguments: String::new() }
    }

    fn result() -> EventKind {
        EventKind::Result {
            call: CallId { turn: 1, index: 0 },
            tool: "t".into(),
            output: "".into(),
            is_error: false,
        }
    }

    fn finished() -> EventKind {
        EventKind::Finished { status: Status::Completed, output: "".into(), error: None, cut_short: None }
    }

    fn letter(from: &str) -> EventKind {
        let letter = LetterId::for_task_end(id(from));
        EventKind::Letter { letter, from: Sender::Task(id(from)), text: "".into(), ended: None }
    }

    fn used() -> EventKind {
        EventKind::Usage { usage: Usage::default(), cost: None, model: String::new() }
    }

    fn words(mut events: Vec<Event>) -> Vec<String> {
        let word =
            |what: &EventKind| serde_json::to_value(what).unwrap()["event"].as_str().unwrap().to_owned();
        sort_events(&mut events);
        events.iter().map(|event| format!("{} {}", event.task, word(&event.kind))).collect()
    }

    const P: &str = "t-00000";
    const C: &str = "t-11111";

    #[test]
    fn time_goes_before_the_order_of_reading() {
        let sorted = words(vec![
            event(C, 5, submitted(Some(P))),
            event(C, 9, finished()),
            event(P, 1, submitted(None)),
            event(P, 4, call()),
            event(P, 6, result()),
            event(P, 9, letter(C)),
        ]);
        let expected =
            ["0 submitted", "0 call", "1 submitted", "0 result", "1 finished", "0 letter"].map(|words| {
                let (task, what) = words.split_once(' ').unwrap();
                format!("t-{} {what}", task.repeat(5))
            });
        assert_eq!(sorted, expected);
    }

    #[test]
    fn in_one_moment_causes_come_first() {
        let sorted = words(vec![
            event(C, 5, submitted(Some(P))),
            event(P, 5, result()),
            event(P, 5, used()),
            event(P, 5, call()),
        ]);
        assert_eq!(sorted, [(P, "result"), (P, "usage"), (P, "call"), (C, "submitted")].map(joined));
        let sorted = words(vec![
            event(P, 5, letter(C)),
            event(P, 5, used()),
            event(C, 5, used()),
            event(C, 5, finished()),
        ]);
        assert_eq!(sorted, [(C, "usage"), (C, "finished"), (P, "letter"), (P, "usage")].map(joined));
        let sorted = words(vec![event(P, 5, call()), event(P, 5, result()), event(C, 5, submitted(Some(P)))]);
        assert_eq!(sorted, [(P, "call"), (C, "submitted"), (P, "result")].map(joined));
    }

    #[test]
    fn many_events_are_sorted_as_a_stable_sort_does() {
        let mut random = 7u64;
        let mut events: Vec<Event> = (0..500)
            .map(|n| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let at = i64::try_from(random >> 60).unwrap();
                Event { seq: Seq(n), ..event(&format!("t-{n:05}"), at, used()) }
            })
            .collect();
        let mut expected = events.clone();
        expected.sort_by_key(|event| event.at);
        sort_events(&mut events);
        assert_eq!(events, expected);
    }

    #[test]
    fn a_clock_that_was_set_back_does_not_turn_a_task_around() {
        let sorted = words(vec![event(P, 9, call()), event(P, 3, result()), event(P, 4, used())]);
        assert_eq!(sorted, [(P, "call"), (P, "result"), (P, "usage")].map(joined));
    }

    fn joined((task, what): (&str, &str)) -> String {
        format!("{task} {what}")
    }
}
