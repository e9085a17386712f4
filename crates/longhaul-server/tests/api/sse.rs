//! A reader of server-sent events.

use futures::StreamExt as _;
use futures::stream::BoxStream;
use serde_json::Value;

use crate::setup::{Server, within};

/// An event as it was received.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Received {
    pub(crate) id: Option<String>,
    pub(crate) name: String,
    pub(crate) data: Value,
}

/// An open stream.
pub(crate) struct Sse {
    bytes: BoxStream<'static, reqwest::Result<axum::body::Bytes>>,
    buffer: String,
    /// The id to connect again with.
    pub(crate) last_id: Option<String>,
    pub(crate) comments: usize,
}

impl Server {
    /// Opens a stream, after an event.
    pub(crate) async fn follow(&self, path: &str, last_id: Option<&str>) -> Sse {
        let mut request = self.client.get(self.at(path));
        if let Some(id) = last_id {
            request = request.header("last-event-id", id);
        }
        let answer = within(request.send()).await.unwrap();
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.headers()["content-type"], "text/event-stream");
        let mut bytes = answer.bytes_stream().boxed();
        // It begins when its first bytes come, which say where.
        let first = within(bytes.next()).await.and_then(Result::ok).unwrap_or_default();
        let buffer = String::from_utf8(first.to_vec()).expect("whole characters");
        Sse { bytes, buffer, last_id: last_id.map(str::to_owned), comments: 0 }
    }
}

impl Sse {
    /// The next event; `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<Received> {
        loop {
            if let Some((block, rest)) = self.buffer.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.buffer = rest;
                if let Some(event) = self.read(&block) {
                    return Some(event);
                }
                continue;
            }
            match within(self.bytes.next()).await {
                Some(Ok(bytes)) => {
                    self.buffer.push_str(std::str::from_utf8(&bytes).expect("whole characters"))
                }
                Some(Err(_)) | None => return None,
            }
        }
    }

    fn read(&mut self, block: &str) -> Option<Received> {
        let (mut id, mut name, mut data) = (None, String::new(), None);
        for line in block.lines() {
            match line.split_once(": ") {
                Some(("id", value)) => id = Some(value.to_owned()),
                Some(("event", value)) => name = value.to_owned(),
                Some(("data", value)) => data = Some(serde_json::from_str(value).expect("JSON")),
                Some(("", _)) => self.comments += 1,
                _ => {}
            }
        }
        self.last_id = id.clone().or(self.last_id.take());
        Some(Received { id, name, data: data? })
    }

    /// Waits for a comment. There must be no event before it.
    pub(crate) async fn comment(&mut self) {
        let before = self.comments;
        while self.comments == before {
            let bytes = within(self.bytes.next()).await.unwrap().unwrap();
            self.buffer.push_str(std::str::from_utf8(&bytes).unwrap());
            while let Some((block, rest)) = self.buffer.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.buffer = rest;
                assert_eq!(self.read(&block), None);
            }
        }
    }

    /// All events until one of this name, which is the last.
    pub(crate) async fn until(&mut self, name: &str) -> Vec<Received> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            let is_last = event.name == name;
            events.push(event);
            if is_last {
                return events;
            }
        }
        panic!("the stream ended without '{name}': {:?}", names(&events));
    }

    /// All events until the stream ends.
    pub(crate) async fn rest(&mut self) -> Vec<Received> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }
}

pub(crate) fn names(events: &[Received]) -> Vec<&str> {
    events.iter().map(|event| event.name.as_str()).collect()
}
