//! Streams the events of a response while its task runs.

use std::convert::Infallible;

use axum::response::sse;
use futures::{Stream, StreamExt as _};
use longhaul::TaskId;
use longhaul::id::Seq;
use longhaul::supervisor::TaskEvents;
use serde_json::{Value, json};

use super::error::ApiError;
use super::object::{self, Header, Surroundings};
use super::projection::{Change, EventOrder, NumberedEvent, Projection};
use super::reader;
use super::request::Shown;
use crate::backend::Backend;

/// How many entries are read at once.
const PAGE: usize = 500;

/// The events of a response after the event `after`, until it is over. Dropping the stream stops no task.
pub(super) async fn follow(
    backend: &Backend,
    task: TaskId,
    after: Option<u64>,
    shown: Shown,
) -> Result<impl Stream<Item = Result<sse::Event, Infallible>> + Send + use<>, ApiError> {
    let header = reader::header(backend, task).await?;
    let follower = Follower {
        backend: backend.clone(),
        header,
        shown,
        after,
        projection: Projection::default(),
        seq: Seq(0),
        order: EventOrder::new(shown.reasoning),
        news: None,
        over: false,
    };
    let batches = futures::stream::unfold(follower, |mut follower| async move {
        if follower.over {
            return None;
        }
        let batch = match follower.next_batch().await {
            Ok(batch) => batch,
            Err(error) => {
                follower.over = true;
                let number = follower.projection.last_number() + 1;
                let (code, message) = (error.code.clone(), error.message);
                vec![
                    json!({ "type": "error", "code": code, "message": message, "param": null, "sequence_number": number }),
                ]
            }
        };
        Some((batch, follower))
    });
    Ok(batches.flat_map(|batch| futures::stream::iter(batch.into_iter().map(|event| Ok(frame(&event))))))
}

/// An event as it goes over the wire.
fn frame(event: &Value) -> sse::Event {
    let kind = event["type"].as_str().unwrap_or("error");
    sse::Event::default().event(kind).data(event.to_string())
}

struct Follower {
    backend: Backend,
    header: Header,
    shown: Shown,
    after: Option<u64>,
    projection: Projection,
    /// The last entry that was applied.
    seq: Seq,
    order: EventOrder,
    /// Wakes the follower when the journal has grown.
    news: Option<TaskEvents>,
    over: bool,
}

impl Follower {
    /// Waits for the next events.
    async fn next_batch(&mut self) -> Result<Vec<Value>, ApiError> {
        let task = self.header.task;
        loop {
            let records = self.backend.longhaul().store().read(task, self.seq, PAGE).await?;
            let mut batch = Vec::new();
            for record in &records {
                self.seq = record.seq;
                let events = self.projection.apply(record);
                for event in self.order.next(&self.projection, events) {
                    self.over |= event.change == Change::Ended;
                    if let Some(event) = event.after(self.after) {
                        batch.extend(self.json(&event).await?);
                    }
                }
            }
            if !batch.is_empty() || self.over {
                return Ok(batch);
            }
            if records.is_empty() {
                self.wait_for_news().await?;
                if self.over {
                    return Ok(Vec::new());
                }
            }
        }
    }

    /// Waits until the journal may have grown.
    async fn wait_for_news(&mut self) -> Result<(), ApiError> {
        let (longhaul, task, seq) = (self.backend.longhaul(), self.header.task, self.seq);
        let news = self.news.get_or_insert_with(|| longhaul.events(task, seq));
        loop {
            match news.next().await {
                Some(Ok(event)) if event.seq <= seq => {}
                Some(Ok(_)) => return Ok(()),
                Some(Err(error)) => return Err(error.into()),
                None => {
                    self.over = true;
                    return Ok(());
                }
            }
        }
    }

    async fn json(&mut self, event: &NumberedEvent) -> Result<Option<Value>, ApiError> {
        let (task, projection) = (self.header.task, &self.projection);
        if let Change::Item { at, .. } = event.change {
            let is_shown = projection.items.get(at).is_some_and(|item| object::is_streamed(item, self.shown));
            return Ok(is_shown.then(|| object::item_event(task, projection, event, self.shown)).flatten());
        }
        let response = match event.change {
            Change::Ended => {
                let surroundings = reader::surroundings(&self.backend, task).await?;
                let output = object::output(task, projection, self.shown);
                object::response(&self.header, projection, &surroundings, output)
            }
            // SDKs replace what they have by the response of such an event.
            Change::InProgress => {
                let question = projection.questions.first_key_value().map(|(id, text)| {
                    object::NeededAnswer { task, question: id.to_string(), text: text.clone() }
                });
                let surroundings = Surroundings { question, ..Surroundings::default() };
                let output = object::streamed_output(task, projection, self.shown);
                object::response(&self.header, projection, &surroundings, output)
            }
            _ => {
                let mut before = object::response(
                    &self.header,
                    &Projection::default(),
                    &Surroundings::default(),
                    Vec::new(),
                );
                before["status"] = json!("queued");
                before
            }
        };
        let kind = match event.change {
            Change::Created => "response.created",
            Change::Queued => "response.queued",
            Change::InProgress => "response.in_progress",
            _ => object::end_event(&response),
        };
        Ok(Some(json!({ "type": kind, "sequence_number": event.number, "response": response })))
    }
}
