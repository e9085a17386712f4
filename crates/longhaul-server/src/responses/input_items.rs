//! `GET /v1/responses/{id}/input_items`: the order of a task and the letters of people to it, as messages.

use axum::Json;
use axum::extract::{Path, State};
use futures::StreamExt as _;
use longhaul::TaskId;
use longhaul::entry::{Entry, Record, Sender};
use longhaul::id::Seq;
use longhaul::journal;
use serde_json::{Value, json};

use super::error::ApiError;
use super::{Pairs, pairs, reader, task_of};
use crate::backend::Backend;

/// Which of the items are wanted.
#[derive(Debug, PartialEq, Eq)]
struct Page {
    after: Option<String>,
    limit: usize,
    ascending: bool,
}

pub(super) async fn list(
    State(backend): State<Backend>,
    Path(id): Path<String>,
    query: Pairs,
) -> Result<Json<Value>, ApiError> {
    let task = task_of(&id)?;
    let page = Page::parse(&pairs(query)?)?;
    reader::submission(&backend, task).await?;
    let mut items = Vec::new();
    let store = backend.longhaul().store();
    let mut journal = std::pin::pin!(journal::pages(&**store, task, Seq(0)));
    while let Some(records) = journal.next().await {
        items.extend(records?.iter().flat_map(|record| messages(task, record)));
    }
    page.cut(items).map(Json)
}

/// The messages of an entry.
fn messages(task: TaskId, record: &Record) -> Vec<Value> {
    let message = |part: &str, role: &str, text: &str| {
        json!({
            "id": format!("msg_{}_{part}{}", task.letters(), record.seq),
            "type": "message", "role": role, "status": "completed",
            "content": [{ "type": "input_text", "text": text }],
        })
    };
    match &record.entry {
        Entry::Submitted(submitted) => {
            let context = submitted.order.context.as_deref().filter(|_| submitted.continues.is_none());
            let context = context.map(|text| message("context", "developer", text));
            context.into_iter().chain([message("in", "user", &submitted.order.task)]).collect()
        }
        Entry::Letter(letter) if letter.from == Sender::Person => vec![message("in", "user", &letter.text)],
        _ => Vec::new(),
    }
}

impl Page {
    fn parse(pairs: &[(String, String)]) -> Result<Page, ApiError> {
        let mut page = Page { after: None, limit: 20, ascending: false };
        for (name, value) in pairs {
            match &**name {
                "after" => page.after = Some(value.clone()),
                "limit" => {
                    let limit = value.parse().ok().filter(|limit| (1..=100).contains(limit));
                    page.limit =
                        limit.ok_or_else(|| ApiError::invalid("limit", "'limit' must be 1 to 100."))?;
                }
                "order" => {
                    page.ascending = match &**value {
                        "asc" => true,
                        "desc" => false,
                        _ => return Err(ApiError::invalid("order", "'order' must be asc or desc.")),
                    }
                }
                _ => {}
            }
        }
        Ok(page)
    }

    fn cut(&self, mut items: Vec<Value>) -> Result<Value, ApiError> {
        if !self.ascending {
            items.reverse();
        }
        if let Some(after) = &self.after {
            let at = items.iter().position(|item| item["id"] == **after);
            let at =
                at.ok_or_else(|| ApiError::invalid("after", "There is no item with the id of 'after'."))?;
            items.drain(..=at);
        }
        let has_more = items.len() > self.limit;
        items.truncate(self.limit);
        let id = |item: Option<&Value>| item.map_or(Value::Null, |item| item["id"].clone());
        let (first, last) = (id(items.first()), id(items.last()));
        Ok(
            json!({ "object": "list", "data": items, "first_id": first, "last_id": last, "has_more": has_more }),
        )
    }
}
