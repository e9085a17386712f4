//! The OpenAI Responses API: an agent is a model, and a task is a response.
//!
//! | route | does |
//! |---|---|
//! | `POST /v1/responses` | starts a task, or sends a letter to one (`previous_response_id`) |
//! | `GET /v1/responses/{id}` | the response, or its events from any point (`stream`, `starting_after`) |
//! | `POST /v1/responses/{id}/cancel` | stops the task |
//! | `GET /v1/responses/{id}/input_items` | what the task was asked |
//! | `GET /v1/models`, `GET /v1/models/{id}` | the agents |
//!
//! A response has the id of its task: `resp_7f3k2` is task `t-7f3k2`, in every process on the same store.
//! The events of a response are a function of the task's journal; see `projection.rs`.

mod create;
mod error;
mod input_items;
mod models;
mod object;
mod projection;
#[cfg(test)]
mod projection_tests;
mod reader;
mod request;
mod stream;

use std::time::Duration;

use axum::Json;
use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::response::sse::{KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::{HeaderName, HeaderValue, StatusCode};
use longhaul::TaskId;
use serde_json::{Value, json};

use self::error::ApiError;
use self::request::{RetrieveQuery, Shown};
use crate::backend::Backend;

/// How often a stream without events sends a comment, so that proxies and clients keep the connection.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long a cancellation waits for the task to end.
const CANCEL_WAIT: Duration = Duration::from_secs(3);

type Pairs = Result<Query<Vec<(String, String)>>, QueryRejection>;

/// The routes below `/v1`. Put the guard around them: they check neither tokens nor origins.
pub fn router(backend: Backend) -> Router {
    Router::new()
        .route("/v1/responses", post(create::create))
        .route("/v1/responses/{id}", get(retrieve).delete(delete))
        .route("/v1/responses/{id}/cancel", post(cancel))
        .route("/v1/responses/{id}/input_items", get(input_items::list))
        .route("/v1/models", get(models))
        .route("/v1/models/{*id}", get(model))
        .method_not_allowed_fallback(async || {
            ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "This method is not supported here.")
                .code("method_not_allowed")
        })
        .with_state(backend)
}

async fn models(State(backend): State<Backend>) -> Json<Value> {
    Json(json!({ "object": "list", "data": models::list(&backend) }))
}

async fn model(State(backend): State<Backend>, Path(id): Path<String>) -> Result<Json<Value>, ApiError> {
    models::one(&backend, &id).map(Json)
}

async fn retrieve(
    State(backend): State<Backend>,
    Path(id): Path<String>,
    query: Pairs,
) -> Result<Response, ApiError> {
    let task = task_of(&id)?;
    let query = RetrieveQuery::parse(&pairs(query)?)?;
    match query.stream {
        true => events(&backend, task, query.starting_after, query.shown).await,
        false => Ok(Json(reader::response(&backend, task, query.shown).await?).into_response()),
    }
}

async fn cancel(State(backend): State<Backend>, Path(id): Path<String>) -> Result<Json<Value>, ApiError> {
    let task = task_of(&id)?;
    reader::submission(&backend, task).await?;
    backend.longhaul().stop(task).await?;
    // A running task ends by itself; usually that takes milliseconds.
    backend.longhaul().wait([task]).timeout(CANCEL_WAIT).await?;
    Ok(Json(reader::response(&backend, task, Shown::default()).await?))
}

async fn delete(Path(id): Path<String>) -> Result<Response, ApiError> {
    task_of(&id)?;
    let message = "Responses cannot be deleted one by one, because other tasks may need them. \
                   `longhaul prune` deletes old tasks.";
    let error = ApiError::new(StatusCode::METHOD_NOT_ALLOWED, message).code("method_not_allowed");
    let mut response = error.into_response();
    response.headers_mut().insert(http::header::ALLOW, HeaderValue::from_static("GET, HEAD"));
    Ok(response)
}

/// The events of a response as server-sent events.
async fn events(
    backend: &Backend,
    task: TaskId,
    after: Option<u64>,
    shown: Shown,
) -> Result<Response, ApiError> {
    let events = stream::follow(backend, task, after, shown).await?;
    let mut response = Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response();
    // Reverse proxies must not collect events.
    let header = HeaderName::from_static("x-accel-buffering");
    response.headers_mut().insert(header, HeaderValue::from_static("no"));
    Ok(response)
}

fn task_of(id: &str) -> Result<TaskId, ApiError> {
    request::response_task(id).ok_or_else(|| ApiError::no_response(id))
}

fn pairs(query: Pairs) -> Result<Vec<(String, String)>, ApiError> {
    let invalid = |error: QueryRejection| ApiError::new(StatusCode::BAD_REQUEST, error.body_text());
    query.map(|Query(pairs)| pairs).map_err(invalid)
}
