//! Errors as problem documents (RFC 9457): what is wrong, with which field or id, and what to do.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use longhaul::LonghaulError;
use longhaul::store::StoreError;
use serde::Serialize;
use utoipa::ToSchema;

use crate::backend::BackendError;

/// The media type of a problem document.
pub const MEDIA_TYPE: &str = "application/problem+json";

/// A problem document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ProblemDocument {
    /// The HTTP status.
    pub status: u16,
    /// The kind of problem, for programs: `unknown_task`, `invalid_request`, …
    pub code: &'static str,
    /// The kind of problem in words. The same for all problems with this code.
    pub title: &'static str,
    /// What is wrong with this request.
    pub detail: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl ProblemDocument {
    /// Creates a problem.
    pub fn new(
        status: StatusCode,
        code: &'static str,
        title: &'static str,
        detail: impl Into<String>,
    ) -> ProblemDocument {
        ProblemDocument { status: status.as_u16(), code, title, detail: detail.into(), hint: None }
    }

    /// A request that does not have the right form.
    pub fn invalid(detail: impl Into<String>) -> ProblemDocument {
        ProblemDocument::new(StatusCode::BAD_REQUEST, "invalid_request", "The request is not valid", detail)
    }

    /// Something that does not exist.
    pub fn not_found(code: &'static str, detail: impl Into<String>) -> ProblemDocument {
        ProblemDocument::new(StatusCode::NOT_FOUND, code, "There is no such thing", detail)
    }

    /// Something that the current state of a task does not allow.
    pub fn conflict(code: &'static str, detail: impl Into<String>) -> ProblemDocument {
        ProblemDocument::new(StatusCode::CONFLICT, code, "The task does not allow that now", detail)
    }

    /// Adds what to do.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> ProblemDocument {
        self.hint = Some(hint.into());
        self
    }

    /// A failure of the server. The cause goes to the log, not to the client: it may name files.
    fn internal(error: &dyn std::fmt::Display) -> ProblemDocument {
        tracing::error!(%error, "a request failed");
        let detail = "the request could not be completed; see the server's log";
        ProblemDocument::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "The server failed", detail)
    }
}

impl IntoResponse for ProblemDocument {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(self)).into_response();
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        response
    }
}

impl From<BackendError> for ProblemDocument {
    fn from(error: BackendError) -> ProblemDocument {
        let detail = error.to_string();
        match error {
            BackendError::UnknownTeam { .. } => ProblemDocument::not_found("unknown_team", detail),
            BackendError::NoTeam { .. } => ProblemDocument::invalid(detail),
            BackendError::UnknownAgent { .. } => ProblemDocument::not_found("unknown_agent", detail),
            BackendError::UnknownModel { .. } => ProblemDocument::not_found("unknown_model", detail),
            BackendError::UnknownPrice { .. } => {
                ProblemDocument { code: "unknown_price", ..ProblemDocument::invalid(detail) }
                    .with_hint("leave out the cost limit, or give the server the model's price with --prices")
            }
            BackendError::KeyUsed { .. } => ProblemDocument::conflict("key_used", detail),
            BackendError::Engine(error) => error.into(),
            BackendError::NotCarried { error, .. } => {
                let title = "No process runs the task";
                let problem =
                    ProblemDocument::new(StatusCode::SERVICE_UNAVAILABLE, "not_running", title, detail);
                match error.hint {
                    Some(hint) => problem.with_hint(hint),
                    None => problem,
                }
            }
        }
    }
}

impl From<LonghaulError> for ProblemDocument {
    fn from(error: LonghaulError) -> ProblemDocument {
        let detail = error.to_string();
        match error {
            LonghaulError::UnknownAgent { .. } => ProblemDocument::not_found("unknown_agent", detail),
            LonghaulError::UnknownModel { .. } => ProblemDocument::not_found("unknown_model", detail),
            LonghaulError::NotFailed { .. } => ProblemDocument::conflict("not_failed", detail),
            LonghaulError::AlreadyRetried { .. } => ProblemDocument::conflict("already_retried", detail),
            LonghaulError::NotAsking { .. } => ProblemDocument::conflict("not_asking", detail),
            LonghaulError::AmbiguousQuestion { .. } => {
                ProblemDocument::conflict("ambiguous_question", detail)
            }
            LonghaulError::AlreadyAnswered { .. } => ProblemDocument::conflict("already_answered", detail),
            LonghaulError::UnknownQuestion { .. } => ProblemDocument::conflict("unknown_question", detail),
            LonghaulError::BadAnswer(_) | LonghaulError::Empty(_) | LonghaulError::NoTeam => {
                ProblemDocument::invalid(detail)
            }
            LonghaulError::TooLong { .. } => ProblemDocument::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "too_long",
                "The request is too long",
                detail,
            ),
            LonghaulError::Worktree(_) => ProblemDocument::conflict("worktree_unreadable", detail),
            LonghaulError::Store(error) => error.into(),
            error => ProblemDocument::internal(&error),
        }
    }
}

impl From<StoreError> for ProblemDocument {
    fn from(error: StoreError) -> ProblemDocument {
        let detail = error.to_string();
        match error {
            StoreError::NoTask(_) | StoreError::NotFound { .. } => {
                ProblemDocument::not_found("unknown_task", detail)
            }
            StoreError::Ambiguous { .. } => ProblemDocument::invalid(detail),
            StoreError::Illegal { .. } | StoreError::NotEnded(_) => {
                ProblemDocument::conflict("not_allowed", detail)
            }
            StoreError::Limit { .. } => ProblemDocument::new(
                StatusCode::TOO_MANY_REQUESTS,
                "limit_reached",
                "A limit is reached",
                detail,
            ),
            error => ProblemDocument::internal(&error),
        }
    }
}
