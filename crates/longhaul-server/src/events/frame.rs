//! One event as bytes, with what decides who gets it.

use std::fmt;
use std::str::FromStr;

use axum::body::Bytes;
use longhaul::store::{FeedPosition, ParseFeedPositionError};
use longhaul::{Event, EventKind, TaskId};
use serde::Serialize;
use serde_json::{Value, json};

use crate::views::words;

/// The `id:` of an event: how far a reader has come. An entry can be several events; all but the last of them
/// say how many they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventId {
    pub(super) position: FeedPosition,
    /// How many events of the entry at that position were seen; all of them if `None`.
    pub(super) seen: Option<u32>,
}

impl EventId {
    /// Everything up to this position was seen.
    pub fn after(position: FeedPosition) -> EventId {
        EventId { position, seen: None }
    }

    /// Whether the event comes after this id.
    pub(super) fn is_before(self, frame: &Frame) -> bool {
        match frame.position.cmp(&self.position) {
            std::cmp::Ordering::Less => false,
            std::cmp::Ordering::Equal => self.seen.is_some_and(|seen| frame.nth >= seen),
            std::cmp::Ordering::Greater => true,
        }
    }

    /// From where the feed has to be read.
    pub(super) fn read_from(self) -> FeedPosition {
        match self.seen {
            None => self.position,
            Some(_) => self.position.just_before(),
        }
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.seen {
            None => write!(f, "{}", self.position),
            Some(seen) => write!(f, "{}-{seen}", self.position),
        }
    }
}

/// Why a text is not an [`EventId`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not the id of an event")]
pub struct ParseEventIdError(pub String);

impl FromStr for EventId {
    type Err = ParseEventIdError;

    fn from_str(text: &str) -> Result<EventId, ParseEventIdError> {
        let wrong = || ParseEventIdError(text.chars().take(60).collect());
        let (position, seen) = match text.split_once('-') {
            None => (text, None),
            Some((position, seen)) => {
                let digits = seen.bytes().all(|b| b.is_ascii_digit());
                (position, Some(seen.parse().ok().filter(|_| digits).ok_or_else(wrong)?))
            }
        };
        let position = position.parse().map_err(|_: ParseFeedPositionError| wrong())?;
        Ok(EventId { position, seen })
    }
}

/// Who an event is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Audience {
    /// Those who watch this task, or the tree of this root.
    Task {
        task: TaskId,
        root: TaskId,
        /// If this is the start of the task: its parent.
        child_of: Option<TaskId>,
        /// Whether this is the end of the task.
        is_end: bool,
    },
    /// Everyone: tasks were deleted.
    Everyone,
}

/// An event as bytes.
#[derive(Debug, Clone)]
pub(super) struct Frame {
    pub(super) position: FeedPosition,
    /// Which of the entry's events it is, from 0.
    pub(super) nth: u32,
    /// The id that its reader has then.
    pub(super) id: EventId,
    pub(super) audience: Audience,
    pub(super) bytes: Bytes,
}

/// The JSON of an event: that of `--json`, with the root of its tree and its words.
#[derive(Serialize)]
struct EventData<'a> {
    v: u8,
    root: TaskId,
    #[serde(flatten)]
    event: &'a Event,
    #[serde(skip_serializing_if = "Option::is_none")]
    words: Option<Value>,
}

/// The frames of an entry.
pub(super) fn frames(position: FeedPosition, root: TaskId, events: &[Event]) -> Vec<Frame> {
    let count = u32::try_from(events.len()).unwrap_or(u32::MAX);
    let frame = |(nth, event): (u32, &Event)| {
        let seen = (nth + 1 < count).then_some(nth + 1);
        let id = EventId { position, seen };
        let data = EventData { v: 1, root, event, words: words(&event.kind) };
        let data = serde_json::to_value(&data).unwrap_or_default();
        let name = data["event"].as_str().unwrap_or("event").to_owned();
        let child_of = match &event.kind {
            EventKind::Submitted { parent, .. } => *parent,
            _ => None,
        };
        let is_end = matches!(event.kind, EventKind::Finished { .. });
        let audience = Audience::Task { task: event.task, root, child_of, is_end };
        Frame { position, nth, id, audience, bytes: sse(Some(id), &name, &data) }
    };
    (0..count).zip(events).map(frame).collect()
}

/// The frame that tells everyone that tasks were deleted.
pub(super) fn deleted(position: FeedPosition) -> Frame {
    let id = EventId::after(position);
    let bytes = reset(id, "tasks were deleted");
    Frame { position, nth: 0, id, audience: Audience::Everyone, bytes }
}

/// The event after which a reader has to read everything anew.
pub(super) fn reset(id: EventId, why: &str) -> Bytes {
    sse(Some(id), "reset", &json!({ "v": 1, "event": "reset", "why": why }))
}

/// The last event of a reader that is too slow.
pub(super) fn lagging() -> Bytes {
    let why = "you read too slowly; connect again with the id of the last event";
    sse(None, "lagging", &json!({ "v": 1, "event": "lagging", "why": why }))
}

/// The last event of a stream that the server ends.
pub(super) fn bye(why: &str) -> Bytes {
    sse(None, "bye", &json!({ "v": 1, "event": "bye", "why": why }))
}

fn sse(id: Option<EventId>, name: &str, data: &Value) -> Bytes {
    match id {
        Some(id) => format!("id: {id}\nevent: {name}\ndata: {data}\n\n").into(),
        None => format!("event: {name}\ndata: {data}\n\n").into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_back_as_it_was_shown() {
        let position = FeedPosition::new(7, 0, 42);
        for id in [EventId::after(position), EventId { position, seen: Some(3) }] {
            assert_eq!(id.to_string().parse(), Ok(id));
        }
        for wrong in
            ["", "-", "1", "00000007.0.42-", "00000007.0.42-x", "00000007.0.42--1", "00000007.0.42-+1"]
        {
            assert!(wrong.parse::<EventId>().is_err(), "{wrong}");
        }
    }
}
