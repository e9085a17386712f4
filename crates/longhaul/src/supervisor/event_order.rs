//! Sorts the events of several tasks into the order in which they happened.

use std::collections::HashMap;

use crate::entry::Sender;
use crate::id::TaskId;
use crate::snapshot::{Event, EventKind};

/// Up to this many events of the same millisecond are sorted by cause. If there are more, they stay grouped
/// by task.
const LOOKED_AT: usize = 64;

/// Sorts events by time. The events of each task keep their order, and within a millisecond a cause comes
/// before its effect: a call before the task that it launched, an end before the letter about it.
pub(super) fn sort_events(mut events: Vec<Event>) -> Vec<Event> {
    // A clock that was set back must not reorder a task's own events.
    let mut latest = HashMap::new();
    let mut keyed: Vec<_> = events
        .drain(..)
        .map(|event| {
            let at = latest.entry(event.task).or_insert(event.at);
            *at = event.at.max(*at);
            (*at, event)
        })
        .collect();
    keyed.sort_by_key(|(at, _)| *at);
    let mut sorted = Vec::with_capacity(keyed.len());
    for moment in keyed.chunk_by(|(one, _), (two, _)| one == two) {
        let moment: Vec<&Event> = moment.iter().map(|(_, event)| event).collect();
        sorted.extend(by_cause(&moment).into_iter().cloned());
    }
    sorted
}

/// Sorts events of the same moment by cause.
fn by_cause<'a>(moment: &[&'a Event]) -> Vec<&'a Event> {
    let alone = moment.iter().all(|event| event.task == moment[0].task);
    if alone || moment.len() > LOOKED_AT {
        return moment.to_vec();
    }
    let mut left = moment.to_vec();
    let mut sorted = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let first_of_task = |at: &usize| left[..*at].iter().all(|event| event.task != left[*at].task);
        let next = || (0..left.len()).filter(first_of_task);
        // Prefer a result after the task that its call launched, unless that task waits for a later call.
        let rather =
            |at: &usize| matches!(left[*at].kind, EventKind::Result { .. } | EventKind::Waiting { .. });
        let at = next().find(|at| !waits(left[*at], &left)).or_else(|| next().find(rather)).unwrap_or(0);
        sorted.push(left.remove(at));
    }
    sorted
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

    fn words(events: Vec<Event>) -> Vec<String> {
        let word =
            |what: &EventKind| serde_json::to_value(what).unwrap()["event"].as_str().unwrap().to_owned();
        sort_events(events).iter().map(|event| format!("{} {}", event.task, word(&event.kind))).collect()
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
    fn a_clock_that_was_set_back_does_not_turn_a_task_around() {
        let sorted = words(vec![event(P, 9, call()), event(P, 3, result()), event(P, 4, used())]);
        assert_eq!(sorted, [(P, "call"), (P, "result"), (P, "usage")].map(joined));
    }

    fn joined((task, what): (&str, &str)) -> String {
        format!("{task} {what}")
    }
}
