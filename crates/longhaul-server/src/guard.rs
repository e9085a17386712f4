//! What every request passes before it reaches an interface, and every response before it leaves.
//!
//! The guard is the outermost layer of the [app](crate::app): a path that does not exist is refused without a
//! token just as one that does. In order, a request needs a known Host, no foreign Origin, a valid credential,
//! and a scope that covers what it does. No rule depends on the address of the client: behind a proxy every
//! client has the same one.

mod bodies;
mod credentials;
mod hosts;
mod pages;
mod rate_limit;
mod scopes;
mod security_headers;
mod sign_in;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, UPGRADE, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode};
use tokio_util::sync::CancellationToken;

use crate::access::{Access, AccessControl};
use crate::problem::{MEDIA_TYPE, Problem};
use bodies::{EndingBody, LimitedBody};
use credentials::{CredentialError, Credentials};
use rate_limit::RateLimits;

pub use hosts::{AllowedHosts, HostError};
pub use scopes::required_scope;

/// The limits of the guard.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct GuardLimits {
    /// The largest body of a request.
    pub body_bytes: usize,
    /// How long a client may take to send the next part of a body.
    pub body_pause: Duration,
    /// How long a client may take to send a whole body.
    pub body_time: Duration,
    /// How many requests a token may send per second, on average.
    pub requests_per_second: f64,
    /// How many requests a token may send at once.
    pub request_burst: f64,
    /// How many wrong tokens are answered per second, on average; all others get 429.
    pub wrong_tokens_per_second: f64,
    /// How many wrong tokens are answered at once.
    pub wrong_token_burst: f64,
    /// How long requests may still take once the server drains.
    pub drain: Duration,
}

impl Default for GuardLimits {
    fn default() -> GuardLimits {
        GuardLimits {
            body_bytes: 4 << 20,
            body_pause: Duration::from_secs(15),
            body_time: Duration::from_secs(120),
            requests_per_second: 2_000.0,
            request_burst: 10_000.0,
            wrong_tokens_per_second: 2.0,
            wrong_token_burst: 100.0,
            drain: Duration::from_secs(1),
        }
    }
}

/// Decides which requests are let through. Clones share their state.
#[derive(Clone)]
pub struct Guard(Arc<GuardInner>);

struct GuardInner {
    access: AccessControl,
    hosts: AllowedHosts,
    limits: GuardLimits,
    rates: RateLimits,
    cookie: String,
    draining: CancellationToken,
}

/// What the guard does with a request.
enum Admission {
    /// The request goes on, with this access.
    Pass(Access),
    /// The guard answers by itself.
    Page(pages::Page),
    /// A browser signs in with a one-time code.
    SignIn,
}

impl Guard {
    /// Creates a guard. When `draining` fires, streams end and requests are answered with 503.
    pub fn new(
        access: AccessControl,
        hosts: AllowedHosts,
        limits: GuardLimits,
        draining: CancellationToken,
    ) -> Guard {
        let cookie = format!("longhaul-{}", hosts.port());
        let rates = RateLimits::new(&limits);
        Guard(Arc::new(GuardInner { access, hosts, limits, rates, cookie, draining }))
    }

    /// The largest body of a request.
    pub fn body_limit(&self) -> usize {
        self.0.limits.body_bytes
    }

    /// The name of the cookie with a browser's session.
    pub fn cookie_name(&self) -> &str {
        &self.0.cookie
    }

    /// Fires when the server begins to drain.
    pub fn draining(&self) -> &CancellationToken {
        &self.0.draining
    }

    fn admit(&self, parts: &Parts) -> Result<Admission, Problem> {
        let inner = &*self.0;
        inner.hosts.check_host(parts)?;
        refuse_upgrade(parts)?;
        inner.hosts.check_origin(parts)?;
        scopes::check_path(parts.uri.path())?;
        if let Some(page) = pages::page(&parts.method, parts.uri.path()) {
            return Ok(Admission::Page(page));
        }
        if sign_in::is_sign_in(parts) {
            return Ok(Admission::SignIn);
        }
        let access = match Credentials::of(parts, &inner.cookie).and_then(|found| found.check(&inner.access))
        {
            Ok(access) => access,
            Err(error) => return Err(self.credential_problem(error)),
        };
        inner.rates.take_request(&access.token)?;
        let needed = required_scope(&parts.method, parts.uri.path());
        if access.scope < needed {
            return Err(Problem::new(
                StatusCode::FORBIDDEN,
                "scope_missing",
                "The token does not allow that",
                format!(
                    "this needs a token with the scope '{needed}'; '{}' has the scope '{}'",
                    access.token, access.scope
                ),
            )
            .with_hint(format!("create one: `longhaul token create NAME --scope {needed}`")));
        }
        Ok(Admission::Pass(access))
    }

    /// Counts wrong credentials, so that nobody can try many.
    fn credential_problem(&self, error: CredentialError) -> Problem {
        match error.is_guess().then(|| self.0.rates.take_wrong_token()) {
            Some(Err(throttled)) => throttled,
            _ => error.into(),
        }
    }
}

/// Refuses what would turn the connection into something else: there are no WebSockets here, and a proxy's
/// CONNECT has no business here. An offer of HTTP/2 without TLS is ignored, as HTTP allows.
fn refuse_upgrade(parts: &Parts) -> Result<(), Problem> {
    let offers: Vec<_> = parts.headers.get_all(UPGRADE).iter().collect();
    let harmless = |value: &&HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"h2c");
    let is_upgrade = !offers.iter().all(harmless);
    // The `:protocol` of HTTP/2 comes with CONNECT.
    if parts.method == Method::CONNECT || is_upgrade {
        let detail = "connections cannot be upgraded: there are no WebSockets here";
        return Err(Problem::new(
            StatusCode::BAD_REQUEST,
            "upgrade_refused",
            "The request is not valid",
            detail,
        )
        .with_hint("events come as server-sent events over plain HTTP"));
    }
    Ok(())
}

/// The middleware.
pub(crate) async fn guard(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let https = guard.0.hosts.is_https(&parts);
    let mut response = match guard.admit(&parts).and_then(|admission| {
        check_length(&parts, guard.0.limits.body_bytes)?;
        Ok(admission)
    }) {
        Err(problem) => refusal(problem),
        Ok(Admission::Page(page)) => page.into_response(),
        Ok(Admission::SignIn) => {
            let body = Body::new(LimitedBody::new(body, &guard.0.limits));
            sign_in::sign_in(&guard, body, https).await.unwrap_or_else(refusal)
        }
        Ok(Admission::Pass(access)) if sign_in::is_session_path(parts.uri.path()) => {
            sign_in::session(&guard, &parts, &access)
        }
        Ok(Admission::Pass(access)) => {
            let mut request = Request::from_parts(parts, Body::new(LimitedBody::new(body, &guard.0.limits)));
            request.extensions_mut().insert(access.clone());
            pass(&guard, access, request, next).await
        }
    };
    security_headers::apply(response.headers_mut(), https);
    response
}

/// Runs the handler. Ends its response when the token is revoked or the server drains.
async fn pass(guard: &Guard, access: Access, request: Request, next: Next) -> Response {
    let draining = guard.0.draining.clone();
    let drained = async {
        draining.cancelled().await;
        tokio::time::sleep(guard.0.limits.drain).await;
    };
    let response = tokio::select! {
        biased;
        response = next.run(request) => response,
        () = access.revoked.cancelled() => return refusal(CredentialError::Wrong.into()),
        () = drained => return refusal(stopping()),
    };
    let response = as_problem(response).await;
    EndingBody::wrap(response, access.revoked, draining)
}

fn stopping() -> Problem {
    let detail = "the server is stopping; its tasks go on when it runs again";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", "The server is stopping", detail)
        .with_hint("try again in a few seconds")
}

/// Answers with a problem, and closes the connection: whoever was refused does not get to keep one.
fn refusal(problem: Problem) -> Response {
    let (status, code) = (problem.status, problem.code);
    tracing::debug!(status, code, "a request was refused");
    let mut response = problem.into_response();
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    match status {
        401 => {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"longhaul\""));
        }
        429 | 503 => {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        _ => {}
    }
    response
}

fn check_length(parts: &Parts, most: usize) -> Result<(), Problem> {
    let length = parts.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    match length {
        Some(length) if length > most as u64 => Err(too_large(most)),
        _ => Ok(()),
    }
}

fn too_large(most: usize) -> Problem {
    let detail = format!("the body of a request may have at most {most} bytes");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", "The request is too large", detail)
}

/// Turns errors that are no problem document yet (of the router, or of an extractor) into one.
async fn as_problem(response: Response) -> Response {
    let status = response.status();
    let is_error = status.is_client_error() || status.is_server_error();
    let kind = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !is_error || kind.contains("json") || kind.starts_with("text/event-stream") {
        return response;
    }
    let is_text = kind.starts_with("text/plain");
    let (mut parts, body) = response.into_parts();
    let said = match is_text && !status.is_server_error() {
        true => axum::body::to_bytes(body, 2_048).await.ok(),
        false => None,
    };
    let said = said.and_then(|bytes| String::from_utf8(bytes.to_vec()).ok()).filter(|text| !text.is_empty());
    let (code, title) = match status {
        StatusCode::NOT_FOUND => ("unknown_path", "There is no such thing"),
        StatusCode::METHOD_NOT_ALLOWED => ("method_not_allowed", "The path does not have this method"),
        StatusCode::PAYLOAD_TOO_LARGE => ("too_large", "The request is too large"),
        StatusCode::UNSUPPORTED_MEDIA_TYPE => ("unsupported_media_type", "The content type is not supported"),
        status if status.is_client_error() => ("invalid_request", "The request is not valid"),
        _ => ("internal", "The server failed"),
    };
    let detail = said.unwrap_or_else(|| title.to_lowercase());
    let (more, body) = Problem::new(status, code, title, detail).into_response().into_parts();
    parts.headers.remove(CONTENT_LENGTH);
    parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    if let Some(length) = more.headers.get(CONTENT_LENGTH) {
        parts.headers.insert(CONTENT_LENGTH, length.clone());
    }
    Response::from_parts(parts, body)
}
