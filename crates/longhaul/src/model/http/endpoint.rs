//! The address of a provider, and how requests authenticate.

use std::fmt;
use std::time::Duration;

use reqwest::Url;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

use super::HttpError;
use super::api_keys::{self, ApiKey};

/// How requests carry the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Auth {
    /// `authorization: Bearer …`.
    Bearer,
    /// `x-api-key`, with the version of the protocol in a second header.
    Anthropic,
    /// `x-goog-api-key`.
    Google,
    /// `api-key`.
    Azure,
    /// No key is sent.
    None,
}

impl Auth {
    fn header(self) -> Option<HeaderName> {
        match self {
            Auth::Bearer => Some(AUTHORIZATION),
            Auth::Anthropic => Some(HeaderName::from_static("x-api-key")),
            Auth::Google => Some(HeaderName::from_static("x-goog-api-key")),
            Auth::Azure => Some(HeaderName::from_static("api-key")),
            Auth::None => None,
        }
    }
}

/// A base URL and the fingerprint of a key.
pub(super) type EndpointId = (String, [u8; 32]);

/// The base URL of a provider, with the headers of every request.
#[derive(Clone)]
pub struct Endpoint {
    base: Url,
    key: Option<ApiKey>,
    headers: HeaderMap,
    pub(super) first_byte_timeout: Option<Duration>,
    pub(super) max_concurrent: Option<usize>,
}

impl Endpoint {
    /// An endpoint below a URL, such as `https://api.openai.com/v1`. Fails if the URL is not HTTP or holds
    /// credentials, or if the key cannot be sent in a header.
    pub fn new(base_url: &str, auth: Auth, key: Option<ApiKey>) -> Result<Endpoint, HttpError> {
        let wrong = |why: &str| HttpError::BaseUrl(why.to_owned());
        let base = Url::parse(base_url.trim()).map_err(|error| wrong(&error.to_string()))?;
        if !matches!(base.scheme(), "http" | "https") || base.host_str().is_none_or(str::is_empty) {
            return Err(wrong("it must begin with http:// or https:// and a host"));
        }
        if !base.username().is_empty() || base.password().is_some() {
            return Err(wrong("it contains a user or a password; use token_key"));
        }
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if auth == Auth::Anthropic {
            headers.insert("anthropic-version", HeaderValue::from_static("2023-06-01"));
        }
        if let (Some(name), Some(key)) = (auth.header(), &key) {
            let prefix = if auth == Auth::Bearer { "Bearer " } else { "" };
            let mut value =
                HeaderValue::from_str(&format!("{prefix}{}", key.expose())).map_err(|_| HttpError::BadKey)?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Ok(Endpoint { base, key, headers, first_byte_timeout: None, max_concurrent: None })
    }

    /// Adds a header to every request.
    pub fn with_header(self, name: &'static str, value: &'static str) -> Self {
        self.insert_header(HeaderName::from_static(name), HeaderValue::from_static(value))
    }

    pub(super) fn insert_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// Sets the timeout for the first byte of a response.
    pub fn with_first_byte_timeout(mut self, time: Duration) -> Self {
        self.first_byte_timeout = Some(time);
        self
    }

    /// Fixes the maximum number of concurrent requests to this endpoint with this key. It applies to all models
    /// that share both, and the smallest counts.
    pub fn with_max_concurrent(mut self, limit: usize) -> Self {
        self.max_concurrent = Some(limit);
        self
    }

    /// The URL of a path, which may have its own query.
    pub(super) fn url(&self, path: &str) -> Url {
        let mut url = self.base.clone();
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        url.set_path(&format!("{}{path}", self.base.path().trim_end_matches('/')));
        if !query.is_empty() {
            let both = self.base.query().map(|old| format!("{old}&{query}"));
            url.set_query(Some(both.as_deref().unwrap_or(query)));
        }
        url
    }

    pub(super) fn headers(&self) -> HeaderMap {
        self.headers.clone()
    }

    /// Host and port: the only parts of a URL that are safe to show.
    pub(super) fn host(&self) -> String {
        let host = self.base.host_str().unwrap_or_default();
        self.base.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }

    /// Identifies the gate of this endpoint.
    pub(super) fn endpoint_id(&self) -> EndpointId {
        let place = format!("{}://{}{}", self.base.scheme(), self.host(), self.base.path());
        (place, self.key.as_ref().map(ApiKey::fingerprint).unwrap_or_default())
    }

    /// Removes the key and the query values of the URL from a text.
    pub(super) fn redact(&self, text: String) -> String {
        api_keys::scrub(text, &self.secrets())
    }

    /// The secrets: the key and the query values, raw and percent-encoded.
    pub(super) fn secrets(&self) -> Vec<ApiKey> {
        let raw = self.base.query().unwrap_or_default().split('&');
        let raw = raw.map(|pair| ApiKey::new(pair.split_once('=').map_or(pair, |(_, value)| value)));
        let decoded = self.base.query_pairs().map(|(_, value)| ApiKey::new(&value));
        raw.chain(decoded).chain(self.key.clone()).collect()
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("host", &self.host()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_queries_are_put_below_the_base() {
        let url =
            |base: &str, path: &str| Endpoint::new(base, Auth::None, None).unwrap().url(path).to_string();
        assert_eq!(url("https://a.b/v1/", "/chat/completions"), "https://a.b/v1/chat/completions");
        assert_eq!(url("http://a.b:8080", "/x?alt=sse"), "http://a.b:8080/x?alt=sse");
        assert_eq!(url("https://a.b/o?api-version=1", "/x?alt=sse"), "https://a.b/o/x?api-version=1&alt=sse");
    }

    #[test]
    fn what_is_no_url_is_refused_and_what_is_shown_has_no_key() {
        for base in ["", "api.openai.com", "ftp://a.b", "https://me:secret@a.b", "http://"] {
            assert!(Endpoint::new(base, Auth::None, None).is_err(), "{base}");
        }
        assert!(Endpoint::new("http://a", Auth::Bearer, Some(ApiKey::new("two\nlines"))).is_err());
        let key = Some(ApiKey::new("sk-very-secret"));
        let endpoint = Endpoint::new("https://a.b/v1?token=also-secret", Auth::Bearer, key).unwrap();
        assert!(!format!("{endpoint:?} {:?}", endpoint.headers()).contains("secret"));
        assert_eq!(endpoint.redact("sk-very-secret, also-secret".into()), "[key], [key]");
        let endpoint = Endpoint::new("https://a.b/v1?t=one%2Ftwo%2Bthree=four", Auth::None, None).unwrap();
        let shown = format!("{} one/two+three=four one%2Ftwo%2Bthree%3Dfour", endpoint.url("/x"));
        assert_eq!(endpoint.redact(shown), "https://a.b/v1/x?t=[key] [key] [key]");
    }
}
