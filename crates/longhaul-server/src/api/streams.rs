//! Events as server-sent events: of a task, of a tree, of all tasks.

use std::collections::HashSet;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use longhaul::TaskId;
use longhaul::journal::descendants;
use longhaul::store::{FeedScope, TaskFilter};
use longhaul::task::TaskState;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::ApiState;
use super::extract::{Id, Params, TaskPath, task_id};
use crate::events::{EventId, StreamEnd, Watch, WatchStart};
use crate::problem::ProblemDocument;
use crate::views::EventView;

/// When a stream of a task ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Until {
    /// When the task has ended.
    Ended,
}

/// Where a stream of a task begins and ends.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct TaskStreamQuery {
    /// The id of the last event that you have; `start` for everything (this is what you get if you leave it out),
    /// `now` for what happens from now on. The header `Last-Event-ID` takes precedence.
    #[param(pattern = "^(start|now|[0-9a-f]{8}\\.[0-9]{1,18}\\.[0-9]{1,18}(-[0-9]{1,9})?)?$")]
    after: Option<String>,
    /// `ended` closes the stream when the task has ended. If it has, and you have everything, the answer is 204,
    /// which keeps a browser from connecting again.
    #[param(inline)]
    until: Option<Until>,
}

/// Where a stream of all tasks begins.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct AllStreamQuery {
    /// The id of the last event that you have; `start` for everything, `now` for what happens from now on (this is
    /// what you get if you leave it out). The header `Last-Event-ID` takes precedence.
    #[param(pattern = "^(start|now|[0-9a-f]{8}\\.[0-9]{1,18}\\.[0-9]{1,18}(-[0-9]{1,9})?)?$")]
    after: Option<String>,
    /// A task: the text of its tree comes while it is written.
    #[param(pattern = "^t-[0-9a-hjkmnp-tv-z]{5,15}$")]
    live: Option<String>,
}

/// The header of a client that connects again, for the API's description.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "handlers read it from the headers")]
struct LastEventId {
    /// The id of the last event.
    #[param(
        rename = "Last-Event-ID",
        nullable = false,
        pattern = "^(start|now|[0-9a-f]{8}\\.[0-9]{1,18}\\.[0-9]{1,18}(-[0-9]{1,9})?)?$"
    )]
    last_event_id: Option<String>,
}

/// Where to begin.
fn start(headers: &HeaderMap, after: Option<&str>, usual: WatchStart) -> Result<WatchStart, ProblemDocument> {
    let last = headers.get("last-event-id").map(|id| id.to_str().unwrap_or("?"));
    let last = start_at("Last-Event-ID", last)?;
    let after = start_at("after", after)?;
    Ok(last.or(after).unwrap_or(usual))
}

fn start_at(name: &str, text: Option<&str>) -> Result<Option<WatchStart>, ProblemDocument> {
    match text {
        None | Some("") => Ok(None),
        Some("start") => Ok(Some(WatchStart::First)),
        Some("now") => Ok(Some(WatchStart::Now)),
        Some(id) => match id.parse::<EventId>() {
            Ok(id) => Ok(Some(WatchStart::After(id))),
            Err(error) => {
                let problem = ProblemDocument::invalid(format!("{name}: {error}"));
                Err(ProblemDocument { code: "unknown_event", ..problem }
                    .with_hint("use the `id` of an event, `start` or `now`"))
            }
        },
    }
}

/// Follow all tasks
///
/// Every event of every task, in one order. Streamed text comes when a reply is complete, unless somebody follows
/// that task.
#[utoipa::path(get, path = "/events", tag = "events",
    params(AllStreamQuery, LastEventId),
    responses((status = 200, description = "The events.", body = EventView, content_type = "text/event-stream")))]
pub(super) async fn all_events(
    State(api): State<ApiState>,
    headers: HeaderMap,
    end: Option<Extension<StreamEnd>>,
    Params(query): Params<AllStreamQuery>,
) -> Result<Response, ProblemDocument> {
    let start = start(&headers, query.after.as_deref(), WatchStart::Now)?;
    let live = match query.live.as_deref().map(task_id).transpose()? {
        Some(id) => Some(api.longhaul().state(id).await?.root),
        None => None,
    };
    let watch = Watch {
        scope: FeedScope::All,
        below: None,
        known_below: HashSet::new(),
        live,
        start,
        until_end_of: None,
        end: end.map(|Extension(StreamEnd(token))| token),
    };
    Ok(stream(&api, watch))
}

/// Follow a task
///
/// The events of one task: from its start, unless the request says otherwise.
#[utoipa::path(get, path = "/tasks/{id}/events", tag = "events",
    params(TaskPath, TaskStreamQuery, LastEventId),
    responses(
        (status = 200, description = "The events.", body = EventView, content_type = "text/event-stream"),
        (status = 204, description = "The task has ended, and you have everything."),
    ))]
pub(super) async fn task_events(
    State(api): State<ApiState>,
    Id(id): Id,
    headers: HeaderMap,
    end: Option<Extension<StreamEnd>>,
    Params(query): Params<TaskStreamQuery>,
) -> Result<Response, ProblemDocument> {
    let state = api.longhaul().state(id).await?;
    let watch = Watch { scope: FeedScope::Task(id), ..watch(&state, &headers, end, &query)? };
    respond(&api, &state, watch).await
}

/// Follow a task and everything below it
#[utoipa::path(get, path = "/tasks/{id}/tree/events", tag = "events",
    params(TaskPath, TaskStreamQuery, LastEventId),
    responses(
        (status = 200, description = "The events.", body = EventView, content_type = "text/event-stream"),
        (status = 204, description = "The task has ended, and you have everything."),
    ))]
pub(super) async fn tree_events(
    State(api): State<ApiState>,
    Id(id): Id,
    headers: HeaderMap,
    end: Option<Extension<StreamEnd>>,
    Params(query): Params<TaskStreamQuery>,
) -> Result<Response, ProblemDocument> {
    let state = api.longhaul().state(id).await?;
    let mut watch = Watch { scope: FeedScope::Tree(state.root), ..watch(&state, &headers, end, &query)? };
    if state.root != id {
        let tree = api.store().list(TaskFilter::tree(state.root)).await?;
        watch.known_below = descendants(&tree, &[id]).map(|task| task.id).collect();
        watch.below = Some(id);
    }
    respond(&api, &state, watch).await
}

fn watch(
    state: &TaskState,
    headers: &HeaderMap,
    end: Option<Extension<StreamEnd>>,
    query: &TaskStreamQuery,
) -> Result<Watch, ProblemDocument> {
    let until: Option<TaskId> = query.until.map(|Until::Ended| state.id);
    Ok(Watch {
        scope: FeedScope::Task(state.id),
        below: None,
        known_below: HashSet::new(),
        live: (!state.status.is_final()).then_some(state.root),
        start: start(headers, query.after.as_deref(), WatchStart::First)?,
        until_end_of: until,
        end: end.map(|Extension(StreamEnd(token))| token),
    })
}

async fn respond(api: &ApiState, state: &TaskState, watch: Watch) -> Result<Response, ProblemDocument> {
    // A stream that would wait for an end that the client has already seen.
    if watch.until_end_of.is_some() && state.status.is_final() {
        let has_all = match watch.start {
            WatchStart::First => false,
            WatchStart::Now => true,
            WatchStart::After(id) => api.hub().has_seen_end(state.id, id).await?,
        };
        if has_all {
            return Ok(StatusCode::NO_CONTENT.into_response());
        }
    }
    Ok(stream(api, watch))
}

fn stream(api: &ApiState, watch: Watch) -> Response {
    let mut response = Body::from_stream(api.hub().watch(watch)).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Proxies must not hold events back.
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response
}
