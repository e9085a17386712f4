//! Error texts of the protocol for people and models. The errors of `rmcp` name its own types, and some print
//! a whole message.

use rmcp::service::{ClientInitializeError, ServiceError};
use rmcp::transport::DynamicTransportError;
use rmcp::transport::streamable_http_client::StreamableHttpError;

use super::legacy_sse::LegacySseError;
use super::streamable_http::McpHttpError;
use super::wire::is_unreadable;
use crate::toolset::text::truncate;

/// Explains why a request to a server failed.
pub(super) fn service_error_text(error: &ServiceError) -> String {
    match error {
        ServiceError::McpError(error) if is_unreadable(error) => {
            format!("its answer cannot be read: {}", error.message)
        }
        ServiceError::McpError(error) => {
            format!("it refused: {} (error {})", truncate(&error.message, 300), error.code.0)
        }
        ServiceError::TransportSend(error) => transport(error),
        ServiceError::TransportClosed => "it closed the connection".to_owned(),
        ServiceError::UnexpectedResponse => "it sent an unexpected kind of answer".to_owned(),
        ServiceError::Cancelled { .. } => "the request was cancelled".to_owned(),
        ServiceError::Timeout { timeout } => format!("there was no answer within {timeout:?}"),
        _ => "it does not speak MCP as expected".to_owned(),
    }
}

/// Explains why a connection to a server failed.
pub(super) fn connect_error_text(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => connect_error_text(fallback),
        ClientInitializeError::TransportError { error, .. } => transport(error),
        ClientInitializeError::JsonRpcError(error) if is_unreadable(error) => {
            format!("its answer cannot be read: {}", error.message)
        }
        ClientInitializeError::JsonRpcError(error) => {
            format!("it refused to initialize: {} (error {})", truncate(&error.message, 300), error.code.0)
        }
        ClientInitializeError::ConnectionClosed(_) => "it closed the connection".to_owned(),
        ClientInitializeError::NoCompatibleProtocolVersion { server_supported, .. } => {
            let versions: Vec<_> =
                server_supported.iter().take(5).map(|version| truncate(version.as_str(), 30)).collect();
            format!("no common protocol version: it supports only {}", versions.join(", "))
        }
        ClientInitializeError::Cancelled => "the connection was cancelled".to_owned(),
        _ => "its answer to `initialize` is invalid".to_owned(),
    }
}

/// If connecting failed because of an unreadable message, returns what is wrong with that message.
pub(super) fn unreadable_text(error: &ClientInitializeError) -> Option<String> {
    match error {
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => unreadable_text(fallback),
        ClientInitializeError::JsonRpcError(said) if is_unreadable(said) => Some(connect_error_text(error)),
        _ => None,
    }
}

fn transport(error: &DynamicTransportError) -> String {
    let error = &*error.error;
    if let Some(error) = error.downcast_ref::<StreamableHttpError<McpHttpError>>() {
        return http(error);
    }
    if let Some(error) = error.downcast_ref::<LegacySseError>() {
        return error.to_string();
    }
    match error.downcast_ref::<std::io::Error>() {
        Some(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {
            "it no longer reads its input".to_owned()
        }
        Some(error) => format!("it cannot be written to: {error}"),
        None => "the connection failed".to_owned(),
    }
}

fn http(error: &StreamableHttpError<McpHttpError>) -> String {
    match error {
        StreamableHttpError::Client(error) => error.to_string(),
        StreamableHttpError::HttpStatus(error) => format!("it answered HTTP {}", error.status),
        StreamableHttpError::UnexpectedServerResponse(why) => truncate(why, 400),
        StreamableHttpError::UnexpectedContentType(Some(found)) => {
            format!(
                "it answered with '{found}' where JSON or a stream of events is expected: is this the URL of an MCP server?"
            )
        }
        StreamableHttpError::UnexpectedContentType(None) => "its answer has no `Content-Type`".to_owned(),
        StreamableHttpError::AuthRequired(_) => "it asks for a login".to_owned(),
        StreamableHttpError::InsufficientScope(_) => "the login does not allow this".to_owned(),
        StreamableHttpError::Auth(error) => {
            format!("its login cannot be used: {}", truncate(&error_chain(error), 300))
        }
        StreamableHttpError::SessionExpired => "the session has expired".to_owned(),
        StreamableHttpError::SessionRecoveryTimeout => {
            "the session has expired, and it did not start a new one in time".to_owned()
        }
        StreamableHttpError::ReinitializationFailed(error) => {
            format!("the session has expired, and it refused a new one: {}", truncate(&error.message, 300))
        }
        StreamableHttpError::MissingSessionIdInResponse => "it started a session without an id".to_owned(),
        StreamableHttpError::ReservedHeaderConflict(name) => {
            format!("the header '{name}' is the protocol's own: remove it from `headers`")
        }
        StreamableHttpError::ControlRequestTimeout => "it did not take an answer in time".to_owned(),
        StreamableHttpError::Deserialize(_) => "its answer is not a JSON-RPC message".to_owned(),
        _ => "the connection broke".to_owned(),
    }
}

/// Formats an error with all its causes.
pub(super) fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(deeper) = cause {
        let said = deeper.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = deeper.source();
    }
    text
}
