//! The HTTP API below `/api/v1`, its description as OpenAPI, and the probes for operators.

mod actions;
mod description;
mod diff;
mod extract;
mod list;
mod probes;
mod questions;
mod reads;
mod streams;
mod submit;
mod timeline;
mod transcript;
mod usage;
mod waiting;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::response::IntoResponse as _;
use axum::routing::get;
use http::{Method, StatusCode, Uri};
use utoipa::OpenApi as _;
use utoipa::openapi::{ContentBuilder, OpenApi, Ref, RefOr, ResponseBuilder};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::backend::Backend;
use crate::events::EventHub;
use crate::problem::{MEDIA_TYPE, ProblemDocument};
use crate::views::Namer;
pub use usage::UsageKey;

/// The most bytes of a request's body. A task has at most 1 MiB of text, which JSON may spell longer.
const MOST_BODY: usize = 4 << 20;

/// What the handlers work on. Clones share it.
#[derive(Clone)]
pub(crate) struct ApiState(Arc<ApiStateInner>);

struct ApiStateInner {
    backend: Backend,
    hub: EventHub,
    names: Namer,
    asked: questions::AskedCache,
    timelines: timeline::TimelineCache,
    diffs: diff::DiffTurns,
    openapi: axum::body::Bytes,
}

impl ApiState {
    fn backend(&self) -> &Backend {
        &self.0.backend
    }

    fn longhaul(&self) -> &longhaul::Longhaul {
        self.0.backend.longhaul()
    }

    fn store(&self) -> &Arc<dyn longhaul::store::Store> {
        self.longhaul().store()
    }

    fn hub(&self) -> &EventHub {
        &self.0.hub
    }

    fn names(&self) -> &Namer {
        &self.0.names
    }
}

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Longhaul",
        description = "Background agents that survive: start tasks, follow them, answer their questions, message and stop them.",
    ),
    tags(
        (name = "teams", description = "What can be asked to do something."),
        (name = "tasks", description = "Start, list and read tasks."),
        (name = "actions", description = "Message, answer, stop, resume and retry tasks."),
        (name = "events", description = "What happens, as server-sent events."),
        (name = "operation", description = "Health, metrics and usage."),
    ),
    components(schemas(ProblemDocument))
)]
struct Description;

/// The routes below `/api/v1`, and their description.
fn described() -> (Router<ApiState>, OpenApi) {
    let (router, api) = OpenApiRouter::<ApiState>::new()
        .routes(routes!(reads::list_teams))
        .routes(routes!(list::list_tasks, submit::submit_task))
        .routes(routes!(reads::get_task))
        .routes(routes!(reads::get_tree))
        .routes(routes!(reads::get_result))
        .routes(routes!(reads::get_journal))
        .routes(routes!(transcript::get_transcript))
        .routes(routes!(timeline::get_timeline))
        .routes(routes!(diff::get_diff))
        .routes(routes!(actions::send_letter))
        .routes(routes!(actions::answer_question))
        .routes(routes!(actions::stop_task))
        .routes(routes!(actions::stop_tree))
        .routes(routes!(actions::resume_task))
        .routes(routes!(actions::retry_task))
        .routes(routes!(questions::list_questions))
        .routes(routes!(waiting::wait_for_tasks))
        .routes(routes!(usage::get_usage))
        .routes(routes!(streams::all_events))
        .routes(routes!(streams::task_events))
        .routes(routes!(streams::tree_events))
        .split_for_parts();
    let (probes, operation) = probes::routes().split_for_parts();
    drop(probes);
    let mut api = Description::openapi().nest("/api/v1", api).merge_from(operation);
    api.info.version = env!("CARGO_PKG_VERSION").to_owned();
    api.info.license = None;
    add_problems(&mut api);
    (router, api)
}

/// Every operation may be answered with a problem.
fn add_problems(api: &mut OpenApi) {
    let schema = RefOr::Ref(Ref::from_schema_name("ProblemDocument"));
    let problem = ResponseBuilder::new()
        .description("A problem document (RFC 9457): what is wrong, and what to do.")
        .content(MEDIA_TYPE, ContentBuilder::new().schema(Some(schema)).build())
        .build();
    for path in api.paths.paths.values_mut() {
        for operation in [&mut path.get, &mut path.post].into_iter().flatten() {
            operation.responses.responses.insert("default".to_owned(), RefOr::T(problem.clone()));
        }
    }
}

/// The OpenAPI 3.1 description of the API.
pub fn openapi() -> serde_json::Value {
    description::as_json(&described().1)
}

/// The router: everything below `/api/v1`, and `/healthz`, `/readyz` and `/metrics`. Whoever mounts it decides
/// who may use it.
pub fn router(backend: Backend, hub: EventHub) -> Router {
    let (routes, description) = described();
    let openapi = description::as_json(&description).to_string().into();
    let names = Namer::new(backend.teams());
    let (asked, timelines) = (questions::AskedCache::default(), timeline::TimelineCache::default());
    let diffs = diff::DiffTurns::default();
    let api = ApiState(Arc::new(ApiStateInner { backend, hub, names, asked, timelines, diffs, openapi }));
    let below = routes
        .route("/openapi.json", get(probes::openapi))
        .layer(DefaultBodyLimit::max(MOST_BODY))
        .fallback(not_found)
        .method_not_allowed_fallback(not_allowed);
    let (probes, _) = probes::routes().split_for_parts();
    Router::new()
        .nest("/api/v1", below)
        .merge(probes.method_not_allowed_fallback(not_allowed))
        .with_state(api)
}

/// For paths below `/api/v1`, which `uri` does not have.
async fn not_found(uri: Uri) -> ProblemDocument {
    let path: String = uri.path().chars().take(200).collect();
    ProblemDocument::not_found("unknown_route", format!("there is nothing at /api/v1{path}"))
        .with_hint("see /api/v1/openapi.json for what there is")
}

async fn not_allowed(method: Method, uri: Uri) -> axum::response::Response {
    let path: String = uri.path().chars().take(200).collect();
    let detail = format!("{path} does not take {method}");
    let title = "The method is not allowed";
    ProblemDocument::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", title, detail).into_response()
}
