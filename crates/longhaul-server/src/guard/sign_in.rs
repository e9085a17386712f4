//! `/api/v1/session`: a browser signs in with a one-time code, asks who it is, and signs out.

use axum::Json;
use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use http::header::SET_COOKIE;
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode};
use serde::Deserialize;
use serde_json::json;

use super::Guard;
use super::credentials::{CredentialError, session_cookie};
use crate::access::{Access, SESSION_LIFETIME};
use crate::problem::ProblemDocument;

const PATH: &str = "/api/v1/session";

/// The largest body of a request that signs in.
const MOST_BYTES: usize = 1_024;

#[derive(Deserialize)]
struct SignIn {
    code: String,
}

pub(super) fn is_session_path(path: &str) -> bool {
    path == PATH
}

/// Whether a request signs in. Without the header it is no page of ours, and needs a token as any other.
pub(super) fn is_sign_in(parts: &Parts) -> bool {
    parts.method == Method::POST
        && is_session_path(parts.uri.path())
        && parts.headers.get("x-longhaul").is_some_and(|value| value == "1")
}

/// Turns a one-time code into a cookie.
pub(super) async fn sign_in(guard: &Guard, body: Body, https: bool) -> Result<Response, ProblemDocument> {
    let body = axum::body::to_bytes(body, MOST_BYTES).await;
    let body = body.map_err(|_| ProblemDocument::invalid("the body cannot be read"))?;
    let form: SignIn = serde_json::from_slice(&body)
        .map_err(|_| ProblemDocument::invalid("the body has to be a JSON object with a `code`"))?;
    let Some((secret, access)) = guard.0.access.sign_in(&form.code) else {
        guard.0.rates.take_wrong_token()?;
        return Err(ProblemDocument::new(
            StatusCode::UNAUTHORIZED,
            "code_not_valid",
            "The code is not valid",
            "the code was used before, has expired or is wrong",
        )
        .with_hint("`longhaul open` prints a link with a new one"));
    };
    let mut response = who_am_i(&access).into_response();
    let age = SESSION_LIFETIME.as_secs();
    set_cookie(&mut response, guard, &format!("{secret}; Max-Age={age}"), https);
    Ok(response)
}

/// Answers requests of someone who is signed in, or has a token.
pub(super) fn session(guard: &Guard, parts: &Parts, access: &Access) -> Response {
    match parts.method {
        Method::GET | Method::HEAD => who_am_i(access).into_response(),
        Method::DELETE => {
            let Ok(Some(session)) = session_cookie(&parts.headers, &guard.0.cookie) else {
                return super::refusal(CredentialError::Missing.into());
            };
            guard.0.access.sign_out(session);
            let mut response = StatusCode::NO_CONTENT.into_response();
            set_cookie(&mut response, guard, "; Max-Age=0", guard.0.hosts.is_https(parts));
            response
        }
        _ => super::refusal(ProblemDocument::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "method_not_allowed",
            "The path does not have this method",
            "a session is created with POST and `X-Longhaul: 1`, read with GET and ended with DELETE",
        )),
    }
}

fn who_am_i(access: &Access) -> Json<serde_json::Value> {
    Json(json!({ "token": access.token, "scope": access.scope }))
}

fn set_cookie(response: &mut Response, guard: &Guard, value: &str, https: bool) {
    let secure = if https { "; Secure" } else { "" };
    let cookie = format!("{}={value}; Path=/; HttpOnly; SameSite=Strict{secure}", guard.0.cookie);
    // Hex digits and fixed words: always a valid header.
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(SET_COOKIE, cookie);
    }
}
