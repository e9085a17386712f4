//! The whole application: all interfaces behind one guard.

use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Router};
use http::{Method, StatusCode, Uri};

use crate::guard::{Guard, guard};
use crate::problem::ProblemDocument;

/// Fires when the server begins to drain. Handlers of streams find it in the extensions of a request, to send a
/// last event of their own; the guard ends their response in any case.
#[derive(Debug, Clone)]
pub struct Draining(pub tokio_util::sync::CancellationToken);

/// Builds the application from the routers of its interfaces. The guard is around everything, also around paths
/// that do not exist.
pub fn app(interfaces: impl IntoIterator<Item = Router>, with: Guard) -> Router {
    let all = interfaces.into_iter().fold(Router::new(), Router::merge);
    let all = all
        .fallback(unknown_path)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(DefaultBodyLimit::max(with.body_limit()))
        .layer(Extension(Draining(with.draining().clone())));
    // As the fallback of a router without routes, nothing can be found past the guard.
    Router::new().fallback_service(all).layer(from_fn_with_state(with, guard))
}

async fn unknown_path(method: Method, uri: Uri) -> Response {
    ProblemDocument::not_found("unknown_path", format!("there is nothing at {method} {}", shown(&uri)))
        .with_hint("docs/serve.md lists what there is")
        .into_response()
}

async fn method_not_allowed(method: Method, uri: Uri) -> Response {
    let detail = format!("{} does not have the method {method}", shown(&uri));
    let title = "The path does not have this method";
    ProblemDocument::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", title, detail).into_response()
}

/// The path, not too long, and without the query: there may be a secret in it.
fn shown(uri: &Uri) -> String {
    uri.path().chars().take(200).collect()
}
