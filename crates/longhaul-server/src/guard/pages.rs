//! The few answers that need no token, because they say nothing about this server or its tasks: the page with
//! which a browser signs in, and the sign of life.

use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, StatusCode};

/// An answer that is the same for everyone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OpenPage {
    /// The page that turns the one-time code of its URL into a session.
    Start,
    /// Its script.
    Script,
    /// Its style.
    Style,
    /// That the server runs, without a word.
    Alive,
}

/// The page at a path, if it is one of these.
pub(super) fn page(method: &Method, path: &str) -> Option<OpenPage> {
    if method != Method::GET && method != Method::HEAD {
        return None;
    }
    match path {
        "/" => Some(OpenPage::Start),
        "/sign-in.js" => Some(OpenPage::Script),
        "/sign-in.css" => Some(OpenPage::Style),
        "/healthz" => Some(OpenPage::Alive),
        _ => None,
    }
}

pub(super) fn is_start_page(method: &Method, path: &str) -> bool {
    page(method, path) == Some(OpenPage::Start)
}

impl IntoResponse for OpenPage {
    fn into_response(self) -> Response {
        let (kind, text) = match self {
            OpenPage::Start => ("text/html; charset=utf-8", include_str!("sign_in.html")),
            OpenPage::Script => ("text/javascript; charset=utf-8", include_str!("sign_in.js")),
            OpenPage::Style => ("text/css; charset=utf-8", include_str!("sign_in.css")),
            OpenPage::Alive => return StatusCode::NO_CONTENT.into_response(),
        };
        ([(CONTENT_TYPE, HeaderValue::from_static(kind))], text).into_response()
    }
}
