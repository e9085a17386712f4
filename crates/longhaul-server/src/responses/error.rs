//! Errors in the form of the OpenAI API.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode};
use longhaul::LonghaulError;
use longhaul::store::StoreError;
use serde_json::json;

use crate::backend::BackendError;
use crate::problem::Problem;

/// An error as OpenAI's SDKs expect it: `{"error": {message, type, param, code}}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ApiError {
    pub(super) status: StatusCode,
    pub(super) message: String,
    /// The field, parameter or header that is wrong.
    pub(super) param: Option<String>,
    pub(super) code: Option<String>,
}

impl ApiError {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> ApiError {
        ApiError { status, message: message.into(), param: None, code: None }
    }

    /// A field with a value that is not accepted.
    pub(super) fn invalid(param: impl Into<String>, message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, message).param(param).code("invalid_value")
    }

    /// A field that Longhaul cannot honour.
    pub(super) fn unsupported(param: impl Into<String>, message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, message).param(param).code("unsupported_parameter")
    }

    /// A field that is missing.
    pub(super) fn missing(param: &str) -> ApiError {
        let message = format!("Missing required parameter: '{param}'.");
        ApiError::new(StatusCode::BAD_REQUEST, message).param(param).code("missing_required_parameter")
    }

    /// A response that does not exist.
    pub(super) fn no_response(id: &str) -> ApiError {
        let id: String = id.chars().take(64).collect();
        ApiError::new(StatusCode::NOT_FOUND, format!("Response with id '{id}' not found."))
            .param("response_id")
            .code("response_not_found")
    }

    pub(super) fn param(mut self, param: impl Into<String>) -> ApiError {
        self.param = Some(param.into());
        self
    }

    pub(super) fn code(mut self, code: impl Into<String>) -> ApiError {
        self.code = Some(code.into());
        self
    }

    fn kind(&self) -> &'static str {
        match self.status {
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_client_error() => "invalid_request_error",
            _ => "server_error",
        }
    }

    /// The error object.
    pub(super) fn json(&self) -> serde_json::Value {
        json!({ "message": self.message, "type": self.kind(), "param": self.param, "code": self.code })
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(json!({ "error": self.json() }))).into_response();
        // The SDKs send a request again after 408, 409, 429 and 5xx. A conflict stays one.
        if self.status == StatusCode::CONFLICT {
            let header = HeaderName::from_static("x-should-retry");
            response.headers_mut().insert(header, HeaderValue::from_static("false"));
        }
        response
    }
}

impl From<Problem> for ApiError {
    fn from(problem: Problem) -> ApiError {
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let message = match problem.hint {
            Some(hint) => format!("{} ({hint})", problem.detail),
            None => problem.detail,
        };
        ApiError::new(status, message).code(problem.code)
    }
}

impl From<BackendError> for ApiError {
    fn from(error: BackendError) -> ApiError {
        let param = match &error {
            BackendError::UnknownTeam { .. }
            | BackendError::UnknownAgent { .. }
            | BackendError::NoTeam { .. } => Some("model"),
            BackendError::KeyUsed { .. } => Some("Idempotency-Key"),
            BackendError::Engine(LonghaulError::Empty(_) | LonghaulError::TooLong { .. }) => Some("input"),
            _ => None,
        };
        ApiError { param: param.map(str::to_owned), ..Problem::from(error).into() }
    }
}

impl From<LonghaulError> for ApiError {
    fn from(error: LonghaulError) -> ApiError {
        BackendError::Engine(error).into()
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> ApiError {
        LonghaulError::Store(error).into()
    }
}
