//! Health, readiness, metrics, and the description of the API.

use std::fmt::Write as _;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use longhaul::store::TaskFilter;
use longhaul::task::Status;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::ApiState;
use crate::problem::ProblemDocument;
use crate::views::{HealthView, needs_you};

/// `/healthz`, `/readyz` and `/metrics`.
pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(healthz)).routes(routes!(readyz)).routes(routes!(metrics))
}

pub(super) async fn openapi(State(api): State<ApiState>) -> Response {
    let mut response = api.0.openapi.clone().into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Whether the server is alive
#[utoipa::path(get, path = "/healthz", tag = "operation",
    responses((status = 204, description = "It is.")))]
async fn healthz() -> StatusCode {
    StatusCode::NO_CONTENT
}

/// Whether the server takes requests
///
/// Fails with 503 while the server drains, or if its store does not work.
#[utoipa::path(get, path = "/readyz", tag = "operation",
    responses((status = 200, description = "It does.", body = HealthView)))]
async fn readyz(State(api): State<ApiState>) -> Result<Json<HealthView>, ProblemDocument> {
    let not_ready = |detail: String| {
        ProblemDocument::new(StatusCode::SERVICE_UNAVAILABLE, "not_ready", "The server is not ready", detail)
    };
    if api.hub().draining().is_cancelled() {
        return Err(not_ready("the server is shutting down".to_owned()));
    }
    let read = match api.store().file_lost() {
        Some(error) => Err(error),
        None => api.store().count(TaskFilter::newest(1)).await.map(drop),
    };
    match read {
        Ok(()) => {
            let version = env!("CARGO_PKG_VERSION").to_owned();
            Ok(Json(HealthView { status: "ok".to_owned(), version }))
        }
        Err(error) => {
            tracing::error!(%error, "the store does not work");
            Err(not_ready("the store does not work; see the server's log".to_owned()))
        }
    }
}

/// Metrics for Prometheus
#[utoipa::path(get, path = "/metrics", tag = "operation",
    responses((status = 200, description = "The metrics.", body = String, content_type = "text/plain")))]
async fn metrics(State(api): State<ApiState>) -> Result<Response, ProblemDocument> {
    let mut text = String::new();
    let mut family = |name: &str, kind: &str, help: &str, rows: &[(String, u64)]| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in rows {
            let _ = writeln!(text, "{name}{labels} {value}");
        }
    };
    let plain = |value: u64| [(String::new(), value)];
    let mut tasks = Vec::new();
    for status in Status::ALL {
        let count = api.store().count(TaskFilter::default().status(vec![status])).await?;
        tasks.push((format!("{{status=\"{status}\"}}"), number(count)));
    }
    family("longhaul_tasks", "gauge", "Tasks in the store.", &tasks);
    let open = api.longhaul().list(TaskFilter::default().live()).await?;
    let asking = open.iter().filter(|state| needs_you(state)).count();
    family(
        "longhaul_tasks_needing_a_person",
        "gauge",
        "Tasks with an open question.",
        &plain(number(asking)),
    );
    let interrupted =
        open.iter().filter(|state| state.status == Status::Pending && state.attempt.0 > 0).count();
    let help = "Tasks that have started and that no process runs.";
    family("longhaul_tasks_interrupted", "gauge", help, &plain(number(interrupted)));
    let hub = api.hub().stats();
    family("longhaul_event_watchers", "gauge", "Open event streams.", &plain(number(hub.watchers)));
    family(
        "longhaul_event_ring_bytes",
        "gauge",
        "Bytes of events in memory.",
        &plain(number(hub.ring_bytes)),
    );
    family("longhaul_events_total", "counter", "Events since the server started.", &plain(hub.events));
    let help = "Event streams that were closed because their reader was too slow.";
    family("longhaul_event_watchers_lagged_total", "counter", help, &plain(hub.lagged));
    let version = format!("{{version=\"{}\"}}", env!("CARGO_PKG_VERSION"));
    family("longhaul_build_info", "gauge", "The version of Longhaul.", &[(version, 1)]);
    let mut response = text.into_response();
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    Ok(response)
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
