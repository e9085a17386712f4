//! The HTTP client for logins. The server chooses the URLs, so they may not reach further than the server
//! itself: into a private network, or to this machine, only if the server is there too.

use std::error::Error;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use reqwest::{Client, Url};
use rmcp::transport::auth::{OAuthHttpClientError, OAuthHttpClientFuture, OAuthHttpRedirectPolicy};
use rmcp::transport::{AuthError, OAuthHttpClient, OAuthHttpRequest};

use super::link_check::is_loopback;
use super::{error_text, limits};
use crate::toolset::fetch::{system_lookup, why_private};
use crate::toolset::http_client::{describe_error, follow_same_host};
use crate::toolset::text::{group_digits, truncate};

/// How long a request during a login may take.
const TIME: Duration = Duration::from_secs(30);

/// A request that was refused or failed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct OAuthRequestError(String);

/// Why a request was refused, if one was. The library's own error does not carry the reason.
#[derive(Clone, Default)]
pub(super) struct RefusalReason(Arc<Mutex<Option<String>>>);

impl RefusalReason {
    fn note(&self, why: String) -> OAuthRequestError {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(why.clone());
        OAuthRequestError(why)
    }

    /// Explains why a login failed: the refusal, if there was one, or else the error and its causes.
    pub(super) fn explain(&self, error: &AuthError) -> String {
        let refused = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        truncate(&refused.unwrap_or_else(|| error_text::error_chain(error)), 300)
    }
}

/// The HTTP client of a login.
pub(super) struct OAuthClient {
    follows: Client,
    stays: Client,
    address_policy: LoginAddressPolicy,
    pub(super) refusal: RefusalReason,
}

impl OAuthClient {
    /// Creates a client for logins to this server.
    pub(super) async fn new(server: &Url) -> Result<OAuthClient, OAuthRequestError> {
        let policy = LoginAddressPolicy::for_server(server).await;
        let build = |redirects: Policy| {
            let tls =
                crate::model::http::tls_config().map_err(|error| OAuthRequestError(error.to_string()))?;
            Client::builder()
                .tls_backend_preconfigured(tls)
                .user_agent(concat!("longhaul/", env!("CARGO_PKG_VERSION")))
                .timeout(TIME)
                .redirect(redirects)
                .referer(false)
                .no_proxy()
                // Keep no connections: each request resolves and checks its address again.
                .pool_max_idle_per_host(0)
                .dns_resolver(Arc::new(policy.clone()))
                .build()
                .map_err(|error| OAuthRequestError(describe_error(error)))
        };
        Ok(OAuthClient {
            follows: build(Policy::custom(follow_same_host))?,
            stays: build(Policy::none())?,
            address_policy: policy,
            refusal: RefusalReason::default(),
        })
    }

    async fn send(&self, asked: OAuthHttpRequest) -> Result<http::Response<Vec<u8>>, OAuthHttpClientError> {
        let client = match asked.redirect_policy {
            OAuthHttpRedirectPolicy::Follow => &self.follows,
            _ => &self.stays,
        };
        let request = reqwest::Request::try_from(asked.request)?;
        self.address_policy.check(request.url()).map_err(|why| self.refusal.note(why.0))?;
        let mut response = client.execute(request).await.map_err(|error| self.explain_error(error))?;
        let mut answer = http::Response::builder().status(response.status());
        for (name, value) in response.headers() {
            answer = answer.header(name, value);
        }
        let mut body = Vec::new();
        while let Some(chunk) =
            response.chunk().await.map_err(|error| OAuthRequestError(describe_error(error)))?
        {
            if body.len() + chunk.len() > limits::LOGIN_BODY {
                let most = group_digits(limits::LOGIN_BODY as u64);
                let why = format!("an answer of the login is longer than {most} bytes, which is the limit");
                return Err(self.refusal.note(why).into());
            }
            body.extend_from_slice(&chunk);
        }
        Ok(answer.body(body)?)
    }

    /// Explains an error. If we refused the request, records the reason.
    fn explain_error(&self, error: reqwest::Error) -> OAuthRequestError {
        let mut cause: &dyn Error = &error;
        while let Some(deeper) = cause.source() {
            cause = deeper;
            if let Some(refused) = cause.downcast_ref::<OAuthRequestError>() {
                return self.refusal.note(refused.to_string());
            }
        }
        OAuthRequestError(describe_error(error))
    }
}

impl OAuthHttpClient for OAuthClient {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        Box::pin(self.send(request))
    }
}

/// Which addresses a login may use, depending on where the server is.
#[derive(Clone, Debug)]
struct LoginAddressPolicy {
    host: Option<String>,
    /// The kinds of private addresses that the server itself has.
    kinds: Vec<&'static str>,
}

impl LoginAddressPolicy {
    async fn for_server(server: &Url) -> LoginAddressPolicy {
        let host = server.host_str().map(str::to_owned);
        let addresses = match host.as_deref().map(literal) {
            Some(Ok(address)) => vec![address],
            Some(Err(name)) => (system_lookup())(name.to_owned()).await.unwrap_or_default(),
            None => Vec::new(),
        };
        LoginAddressPolicy { host, kinds: addresses.into_iter().filter_map(why_private).collect() }
    }

    /// Returns why an address is refused; `None` if it is allowed.
    fn why_not(&self, address: IpAddr) -> Option<&'static str> {
        why_private(address).filter(|kind| !self.kinds.contains(kind))
    }

    /// Checks whether a URL is allowed, as far as the URL itself shows.
    fn check(&self, url: &Url) -> Result<(), OAuthRequestError> {
        let host = url.host_str().unwrap_or_default();
        let is_own = self.host.as_deref() == Some(host);
        if url.scheme() != "https" && !(url.scheme() == "http" && (is_own || is_loopback(host))) {
            return Err(OAuthRequestError(format!(
                "the login leads to {host} by '{}:', and only https: is safe",
                url.scheme()
            )));
        }
        match literal(host).ok().and_then(|address| self.why_not(address)) {
            Some(kind) => Err(OAuthRequestError(not_there(host, kind))),
            None => Ok(()),
        }
    }
}

fn not_there(host: &str, kind: &str) -> String {
    format!("the login leads to {host}, which is {kind}, and the server is not there")
}

/// Parses the host of a URL as an IP address; otherwise returns the name.
fn literal(host: &str) -> Result<IpAddr, &str> {
    host.trim_start_matches('[').trim_end_matches(']').parse().map_err(|_| host)
}

impl Resolve for LoginAddressPolicy {
    fn resolve(&self, name: Name) -> Resolving {
        let (host, policy) = (name.as_str().to_owned(), self.clone());
        Box::pin(async move {
            let found = (system_lookup())(host.clone()).await?;
            if found.is_empty() {
                return Err(io::Error::other("the name has no address").into());
            }
            // One refused address is enough: do not trust a name that has both kinds.
            if let Some(kind) = found.iter().find_map(|address| policy.why_not(*address)) {
                return Err(OAuthRequestError(not_there(&host, kind)).into());
            }
            let addresses: Addrs = Box::new(found.into_iter().map(|ip| SocketAddr::new(ip, 0)));
            Ok(addresses)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn checked(server: &str, page: &str) -> Result<(), String> {
        let policy = LoginAddressPolicy::for_server(&Url::parse(server).unwrap()).await;
        policy.check(&Url::parse(page).unwrap()).map_err(|why| why.to_string())
    }

    #[tokio::test]
    async fn a_login_leads_only_where_the_server_could_be() {
        for (server, page) in [
            ("https://93.184.216.34/mcp", "https://93.184.216.35/token"),
            ("https://93.184.216.34/mcp", "https://login.example/token"),
            ("http://127.0.0.1:3000/mcp", "http://127.0.0.1:4000/token"),
            ("http://localhost:3000/mcp", "http://127.0.0.1:4000/token"),
            ("http://10.0.0.5/mcp", "http://10.0.0.5/token"),
            ("https://10.0.0.5/mcp", "https://10.9.9.9/token"),
        ] {
            assert_eq!(checked(server, page).await, Ok(()), "{server} {page}");
        }
        for (server, page, why) in [
            ("https://93.184.216.34/mcp", "https://127.0.0.1/x", "a loopback address"),
            ("https://93.184.216.34/mcp", "http://[::1]/x", "a loopback address"),
            ("https://93.184.216.34/mcp", "https://10.0.0.1/x", "a private address"),
            ("https://93.184.216.34/mcp", "https://169.254.169.254/x", "metadata"),
            ("https://10.0.0.5/mcp", "https://127.0.0.1/x", "a loopback address"),
            ("http://127.0.0.1/mcp", "https://192.168.1.1/x", "a private address"),
            ("https://93.184.216.34/mcp", "http://login.example/x", "only https: is safe"),
            ("https://93.184.216.34/mcp", "file:///etc/passwd", "only https: is safe"),
        ] {
            let error = checked(server, page).await.unwrap_err();
            assert!(error.contains(why), "{server} {page}: {error}");
        }
    }

    #[tokio::test]
    async fn nor_does_a_name_lead_elsewhere() {
        let policy = LoginAddressPolicy::for_server(&Url::parse("https://93.184.216.34/mcp").unwrap()).await;
        let refused = policy.resolve("localhost".parse().unwrap()).await.err().unwrap().to_string();
        assert!(refused.contains("a loopback address, and the server is not there"), "{refused}");
    }
}
