//! `POST /v1/responses`.

use std::collections::BTreeMap;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::response::{IntoResponse, Response};
use futures::StreamExt as _;
use http::HeaderMap;
use longhaul::{Budget, EventKind, Order, TaskId};

use super::error::ApiError;
use super::models::{self, AgentModel};
use super::reader::{self, BACKGROUND_LABEL, MODEL_LABEL, RequestNotes};
use super::request::{CreateRequest, previous_not_found};
use super::{events, object};
use crate::backend::{Backend, BackendError, NewTask};

/// The longest idempotency key.
const MAX_KEY: usize = 255;

pub(super) async fn create(
    State(backend): State<Backend>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiError> {
    let body = body.map_err(|error| ApiError::new(error.status(), error.body_text()).code("invalid_body"))?;
    let key = idempotency_key(&headers)?;
    let request = CreateRequest::parse(&body)?;
    let task = match request.previous {
        Some(previous) => continue_task(&backend, previous, &request, key).await?,
        None => start_task(&backend, &request, key).await?,
    };
    if request.stream {
        return events(&backend, task, None, request.shown).await;
    }
    if !request.background {
        // If the client leaves, this ends, and the task goes on.
        wait(&backend, task).await?;
    }
    Ok(Json(reader::response(&backend, task, request.shown).await?).into_response())
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let Some(key) = headers.get("idempotency-key") else { return Ok(None) };
    let key = key.to_str().ok().map(str::trim).filter(|key| (1..=MAX_KEY).contains(&key.len()));
    let invalid = || {
        let message = format!("'Idempotency-Key' must have 1 to {MAX_KEY} visible ASCII characters.");
        ApiError::invalid("Idempotency-Key", message)
    };
    // The same key in another interface is another key.
    key.map(|key| Some(format!("responses/{key}"))).ok_or_else(invalid)
}

async fn start_task(
    backend: &Backend,
    request: &CreateRequest,
    key: Option<String>,
) -> Result<TaskId, ApiError> {
    let asked = request.model.as_deref().ok_or_else(|| ApiError::missing("model"))?;
    let model = models::find(backend, asked)?;
    let mut labels = request.metadata.clone();
    labels.insert(MODEL_LABEL.to_owned(), model.name());
    if request.background {
        labels.insert(BACKGROUND_LABEL.to_owned(), "true".to_owned());
    }
    let mut order = Order::new(model.agent.clone(), request.prompt.task.as_str()).labels(labels);
    order.context.clone_from(&request.prompt.context);
    let new = NewTask { team: Some(model.team.name.clone()), order, key, own_dir: false };
    Ok(backend.start(new).await?.task)
}

/// Sends a letter to the task of the previous response. If that has ended, a new task continues it.
async fn continue_task(
    backend: &Backend,
    previous: TaskId,
    request: &CreateRequest,
    key: Option<String>,
) -> Result<TaskId, ApiError> {
    let unknown = |error: ApiError| match error.code.as_deref() {
        Some("response_not_found") => previous_not_found(&object::response_id(previous)),
        _ => error,
    };
    let header = reader::header(backend, previous).await.map_err(unknown)?;
    if let Some(asked) = &request.model {
        same_agent(&models::find(backend, asked)?, &header.model)?;
    }
    let letter = request.prompt.clone().into_letter();
    let sent = match key {
        Some(key) => backend.send_once(previous, &key, &letter).await?,
        None => backend.send(previous, &letter, Budget::default()).await?,
    };
    let is_new = sent.to != previous;
    if is_new || !request.metadata.is_empty() {
        let kept = match is_new {
            true => BTreeMap::new(),
            false => header.metadata,
        };
        let metadata = kept.into_iter().chain(request.metadata.clone()).collect();
        let background = if is_new { request.background } else { header.background };
        reader::put_notes(backend, sent.to, &RequestNotes { metadata, background }).await?;
    }
    Ok(sent.to)
}

/// A conversation stays with its agent.
fn same_agent(model: &AgentModel<'_>, before: &str) -> Result<(), ApiError> {
    if model.name() == before || model.agent.as_str() == before {
        return Ok(());
    }
    let message = format!(
        "The previous response is of '{before}', and a conversation stays with its agent: \
         leave out 'model', or set it to '{before}'."
    );
    Err(ApiError::invalid("model", message).code("model_mismatch"))
}

/// Waits until the task has ended, or needs a person.
async fn wait(backend: &Backend, task: TaskId) -> Result<(), ApiError> {
    let mut events = backend.longhaul().follow_without_live_text(task);
    while let Some(event) = events.next().await {
        let event = event.map_err(BackendError::from)?;
        if matches!(event.kind, EventKind::Asked { .. }) && reader::needs_person(backend, task).await? {
            return Ok(());
        }
    }
    Ok(())
}
