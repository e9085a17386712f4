//! An HTTP client for servers that the user has configured: secret headers, and responses of bounded size.
//!
//! A model chooses the URLs of [`fetch`](super::fetch), so those are restricted. The user chooses these, so
//! they may lead anywhere, including to this machine.

use std::fmt;
use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue, LOCATION};
use reqwest::redirect::{Attempt, Policy};
use reqwest::{Client, RequestBuilder, Response, Url};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;

use super::fetch::system_lookup;
use super::own_server::{OwnServer, OwnServerRefused, OwnServerResolver};
use super::text::{group_digits, truncate};

/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(10);
/// How many redirects are followed. They are followed only within one host.
const MOST_HOPS: usize = 5;

/// Why a server cannot be used, or a request to it failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct RemoteToolError(pub(super) String);

/// Headers that are sent with every request. Their values are secrets and are never shown.
#[derive(Clone, Default)]
pub struct SecretHeaders(Vec<(String, SecretString)>);

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for SecretHeaders {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(headers: I) -> Self {
        let secret = |(name, value): (N, V)| (name.into(), SecretString::from(value.into()));
        SecretHeaders(headers.into_iter().map(secret).collect())
    }
}

impl fmt::Debug for SecretHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

impl SecretHeaders {
    /// Adds a header.
    pub fn push(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.0.push((name.into(), SecretString::from(value.into())));
    }

    /// Iterates over names and values.
    pub(super) fn exposed(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.expose_secret()))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn to_header_map(&self) -> Result<HeaderMap, RemoteToolError> {
        let mut map = HeaderMap::new();
        for (name, value) in &self.0 {
            let key = HeaderName::try_from(name.trim()).map_err(|_| {
                RemoteToolError(format!("'{}' is not the name of a header", truncate(name, 60)))
            })?;
            let mut value = HeaderValue::from_str(value.expose_secret().trim()).map_err(|_| {
                RemoteToolError(format!("the value of the header '{name}' cannot be sent; is it one line?"))
            })?;
            value.set_sensitive(true);
            map.insert(key, value);
        }
        Ok(map)
    }

    /// Redacts the values in a text: each whole value, and also the part after a scheme such as `Bearer`.
    pub(super) fn scrub(&self, mut text: String) -> String {
        for (_, value) in &self.0 {
            let whole = value.expose_secret().trim();
            let token = whole.split_once(' ').map_or(whole, |(_, token)| token.trim());
            text = redact_secret(redact_secret(text, whole), token);
        }
        text
    }
}

pub(super) fn redact_secret(text: String, secret: &str) -> String {
    // A shorter value is not a secret, and may be an ordinary word of the text.
    if secret.len() >= 8 && text.contains(secret) { text.replace(secret, "[secret]") } else { text }
}

/// An HTTP client. Each toolset has its own: no cookies, no proxies, nothing shared.
#[derive(Clone)]
pub(super) struct ToolHttpClient {
    client: Client,
    /// For requests to a port of the own server: names of this machine are refused.
    guarded: Client,
    own_server: OwnServer,
    map: HeaderMap,
    headers: SecretHeaders,
}

/// A response.
pub(super) struct HttpReply {
    pub(super) status: u16,
    pub(super) text: String,
}

impl ToolHttpClient {
    pub(super) fn new(
        headers: &SecretHeaders,
        own_server: &OwnServer,
    ) -> Result<ToolHttpClient, RemoteToolError> {
        let client = ToolHttpClient::builder(own_server)?;
        let guarded = ToolHttpClient::builder(own_server)?;
        let guarded = guarded.dns_resolver(std::sync::Arc::new(OwnServerResolver(system_lookup())));
        let built = |client: reqwest::ClientBuilder| {
            client.build().map_err(|error| RemoteToolError(error.without_url().to_string()))
        };
        let client = built(client)?;
        let guarded = if own_server.is_empty() { client.clone() } else { built(guarded)? };
        let (own_server, map) = (own_server.clone(), headers.to_header_map()?);
        Ok(ToolHttpClient { client, guarded, own_server, map, headers: headers.clone() })
    }

    fn builder(own_server: &OwnServer) -> Result<reqwest::ClientBuilder, RemoteToolError> {
        let own_server = own_server.clone();
        let follow = move |attempt: Attempt<'_>| {
            let from_other_port = attempt.previous().last().is_none_or(|from| !own_server.has_port_of(from));
            match own_server.is_at(attempt.url())
                || (from_other_port && own_server.has_port_of(attempt.url()))
            {
                true => attempt.stop(),
                false => follow_same_host(attempt),
            }
        };
        let tls = crate::model::http::tls_config().map_err(|error| RemoteToolError(error.to_string()))?;
        Ok(Client::builder()
            .tls_backend_preconfigured(tls)
            .user_agent(concat!("longhaul/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT)
            .tcp_keepalive(Duration::from_secs(30))
            .redirect(Policy::custom(follow))
            .referer(false)
            .no_proxy())
    }

    /// Returns the client for a URL, which does not send the headers. Fails if the URL leads to the own server.
    #[cfg(feature = "mcp")]
    pub(super) fn client_for(&self, url: &Url) -> Result<Client, RemoteToolError> {
        self.check(url)?;
        Ok(self.choose_client(url).clone())
    }

    fn choose_client(&self, url: &Url) -> &Client {
        if self.own_server.has_port_of(url) { &self.guarded } else { &self.client }
    }

    fn check(&self, url: &Url) -> Result<(), RemoteToolError> {
        match self.own_server.is_at(url) {
            true => Err(RemoteToolError(
                OwnServerRefused(url.host_str().unwrap_or_default().to_owned()).to_string(),
            )),
            false => Ok(()),
        }
    }

    /// Starts building a request with the headers.
    pub(super) fn request(&self, method: reqwest::Method, url: Url) -> RequestBuilder {
        self.choose_client(&url).request(method, url).headers(self.map.clone())
    }

    /// Sends a request and returns the response once its headers have arrived.
    pub(super) async fn start(&self, request: RequestBuilder) -> Result<Response, RemoteToolError> {
        let (client, request) = request.build_split();
        let request = request.map_err(|error| self.explain_error(error))?;
        self.check(request.url())?;
        let response = client.execute(request).await.map_err(|error| self.explain_error(error))?;
        if response.status().is_redirection()
            && let Some(location) = response.headers().get(LOCATION)
        {
            let to = String::from_utf8_lossy(location.as_bytes()).into_owned();
            let host = response.url().join(&to).ok().and_then(|url| url.host_str().map(str::to_owned));
            return Err(RemoteToolError(self.scrub(format!(
                "it redirects to another server ({}), which is not given the headers: name that one instead",
                truncate(&host.unwrap_or(to), 100)
            ))));
        }
        Ok(response)
    }

    /// Sends a request and reads up to `most` bytes of the response.
    pub(super) async fn send(
        &self,
        request: RequestBuilder,
        most: usize,
        time: Duration,
    ) -> Result<HttpReply, RemoteToolError> {
        let sending = async {
            let mut response = self.start(request).await?;
            let status = response.status().as_u16();
            let (mut bytes, mut cut) = (Vec::new(), false);
            while let Some(chunk) = response.chunk().await.map_err(|error| self.explain_error(error))? {
                let room = most - bytes.len();
                bytes.extend_from_slice(&chunk[..chunk.len().min(room)]);
                if chunk.len() > room {
                    cut = true;
                    break;
                }
            }
            let mut text = self.scrub(String::from_utf8_lossy(&bytes).into_owned());
            if cut {
                text += &format!("\n[… only the first {} bytes were read …]", group_digits(most as u64));
            }
            Ok(HttpReply { status, text })
        };
        match tokio::time::timeout(time, sending).await {
            Ok(reply) => reply,
            Err(_) => Err(RemoteToolError(format!("no complete answer within {time:?}"))),
        }
    }

    /// Redacts the secrets in a text.
    pub(super) fn scrub(&self, text: String) -> String {
        self.headers.scrub(text)
    }

    pub(super) fn explain_error(&self, error: reqwest::Error) -> RemoteToolError {
        RemoteToolError(self.scrub(describe_error(error)))
    }
}

impl fmt::Debug for ToolHttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolHttpClient").field("headers", &self.headers).finish_non_exhaustive()
    }
}

/// Explains why a request failed, without showing its URL.
pub(super) fn describe_error(error: reqwest::Error) -> String {
    let what = match &error {
        error if error.is_timeout() => "the connection took too long",
        error if error.is_connect() => "it cannot be connected to",
        error if error.is_body() || error.is_decode() => "the answer broke off",
        _ => "the request failed",
    };
    let error = error.without_url();
    let mut cause: &dyn std::error::Error = &error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    format!("{what} ({cause})")
}

/// Redirects carry the headers, so follow them only within one host, and never from HTTPS to plain HTTP.
pub(super) fn follow_same_host(attempt: Attempt<'_>) -> reqwest::redirect::Action {
    let from = attempt.previous().last();
    let to = attempt.url();
    let same = from.is_some_and(|from| {
        let ports = from.port_or_known_default() == to.port_or_known_default();
        let upgrade =
            from.scheme() == "http" && to.scheme() == "https" && from.port().is_none() && to.port().is_none();
        from.host_str() == to.host_str() && ((from.scheme() == to.scheme() && ports) || upgrade)
    });
    if same && attempt.previous().len() <= MOST_HOPS { attempt.follow() } else { attempt.stop() }
}

/// Formats a URL of the user without its user name, query and fragment, which may be secret.
pub(super) fn display_url(url: &Url) -> String {
    let port = url.port().map_or(String::new(), |port| format!(":{port}"));
    format!("{}://{}{port}{}", url.scheme(), url.host_str().unwrap_or_default(), url.path())
}

/// Parses a URL as a user writes it.
pub(super) fn parse_web_url(typed: &str) -> Result<Url, RemoteToolError> {
    let url = Url::parse(typed.trim()).map_err(|error| RemoteToolError(error.to_string()))?;
    match matches!(url.scheme(), "http" | "https") && url.host_str().is_some_and(|host| !host.is_empty()) {
        true => Ok(url),
        false => Err(RemoteToolError("it does not begin with http:// or https:// and a host".to_owned())),
    }
}

/// Percent-encodes a text so that it is literal in any part of a URL.
pub(super) fn percent_encode(text: &str) -> String {
    use fmt::Write as _;
    let mut safe = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                safe.push(char::from(byte))
            }
            byte => _ = write!(safe, "%{byte:02X}"),
        }
    }
    safe
}

/// Formats an argument for a URL or a header.
pub(super) fn value_text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(list) => list.iter().map(value_text).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// Checks whether a path has a `.` or `..` segment. No argument may become one.
pub(super) fn has_dot_segments(path: &str) -> bool {
    path.split(['/', '\\']).any(|part| matches!(part, "." | ".."))
}

/// Converts a name to one that providers accept for tools and arguments: letters, digits and `_`, of limited
/// length.
pub(super) fn sanitize_tool_name(text: &str) -> String {
    let mut name = String::new();
    for c in text.chars() {
        match c {
            '{' | '}' => {}
            c if c.is_ascii_alphanumeric() => name.push(c),
            _ if name.ends_with('_') || name.is_empty() => {}
            _ => name.push('_'),
        }
    }
    name.truncate(64);
    name.trim_end_matches('_').to_owned()
}

/// Returns the name, or the name with the first number that makes it unique.
pub(super) fn unique_name(name: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let mut number = 2;
    let mut candidate = name.to_owned();
    while is_taken(&candidate) {
        let suffix = format!("_{number}");
        candidate = format!("{}{suffix}", &name[..name.len().min(64 - suffix.len())]);
        number += 1;
    }
    candidate
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_show_their_names_only() {
        let headers: SecretHeaders =
            [("Authorization", "Bearer sk-very-secret"), ("X-Short", "yes")].into_iter().collect();
        assert_eq!(format!("{headers:?}"), r#"["Authorization", "X-Short"]"#);
        let own = OwnServer::default();
        let client = ToolHttpClient::new(&headers, &own).unwrap();
        assert!(!format!("{client:?} {:?}", client.map).contains("secret"));
        let said = "no 'Bearer sk-very-secret' and no sk-very-secret, yes";
        assert_eq!(client.scrub(said.to_owned()), "no '[secret]' and no [secret], yes");
        for (name, value) in [("bad name", "x"), ("X-Ok", "very-secret\nline")] {
            let error =
                ToolHttpClient::new(&[(name, value)].into_iter().collect(), &own).unwrap_err().to_string();
            assert!(error.contains(name) && !error.contains("very-secret"), "{error}");
        }
    }

    #[test]
    fn names_are_made_fit_and_unique() {
        assert_eq!(sanitize_tool_name("get_/pets/{petId}/photos.list-all"), "get_pets_petId_photos_list_all");
        assert_eq!(sanitize_tool_name("héllo wörld"), "h_llo_w_rld");
        assert_eq!(sanitize_tool_name(&"x".repeat(100)).len(), 64);
        let taken = ["a".to_owned(), "a_2".to_owned(), "y".repeat(64)];
        let is_taken = |name: &str| taken.iter().any(|other| other == name);
        assert_eq!(unique_name("a", is_taken), "a_3");
        assert_eq!(unique_name(&"y".repeat(64), is_taken), format!("{}_2", "y".repeat(62)));
    }

    #[test]
    fn arguments_mean_only_themselves() {
        assert_eq!(percent_encode("a b/c?d&e=f#g%h..ü"), "a%20b%2Fc%3Fd%26e%3Df%23g%25h..%C3%BC");
        assert_eq!(value_text(&serde_json::json!(["a", 1, true, null])), "a,1,true,");
        assert!(has_dot_segments("/a/../b") && has_dot_segments("/a/.") && !has_dot_segments("/a/.../b..c"));
    }
}
