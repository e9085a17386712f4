//! An HTTP client that connects only to public addresses, unless private ones are allowed.
//!
//! Addresses are checked where they are used: the client's resolver returns only allowed addresses, so a name
//! that resolves differently a moment later gains nothing. IP addresses in a URL need no resolver, so they
//! are checked beforehand, for the first URL and for every redirect.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{ACCEPT, LOCATION};
use reqwest::{Client, Response, Url};

use crate::toolset::http_client::RemoteToolError;
use crate::toolset::own_server::{OwnServer, OwnServerRefused, is_this_machine};

/// How many redirects are followed.
const MOST_HOPS: usize = 10;
/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(10);

/// Returns why an address is refused; `None` if it is allowed.
pub(super) type AddressFilter = fn(IpAddr) -> Option<&'static str>;

/// Looks up the addresses of a name.
pub(in crate::toolset) type DnsLookup =
    Arc<dyn Fn(String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> + Send + Sync>;

/// Looks names up with the system's resolver.
pub(in crate::toolset) fn system_lookup() -> DnsLookup {
    Arc::new(|name| {
        Box::pin(async move {
            let found = tokio::task::spawn_blocking(move || (name.as_str(), 0).to_socket_addrs());
            Ok(found.await.map_err(io::Error::other)??.map(|address| address.ip()).collect())
        })
    })
}

/// The client of a toolset.
#[derive(Clone)]
pub(super) struct FetchClient {
    client: Client,
    /// For requests to a port of the own server: names of this machine are refused.
    guarded: Client,
    address_filter: AddressFilter,
    own_server: OwnServer,
}

impl FetchClient {
    pub(super) fn new(
        address_filter: AddressFilter,
        lookup: DnsLookup,
        own_server: OwnServer,
    ) -> Result<FetchClient, RemoteToolError> {
        let resolver = |refuse_this_machine| FilteringResolver {
            address_filter,
            lookup: lookup.clone(),
            refuse_this_machine,
        };
        let client = FetchClient::build(resolver(false))?;
        let guarded = match own_server.is_empty() {
            true => client.clone(),
            false => FetchClient::build(resolver(true))?,
        };
        Ok(FetchClient { client, guarded, address_filter, own_server })
    }

    fn build(resolver: FilteringResolver) -> Result<Client, RemoteToolError> {
        let tls = crate::model::http::tls_config().map_err(|error| RemoteToolError(error.to_string()))?;
        let client = Client::builder()
            .tls_backend_preconfigured(tls)
            .user_agent(concat!("longhaul/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT)
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            // A proxy would resolve names itself, unchecked.
            .no_proxy()
            // Keep no connections: each request resolves and checks its address again.
            .pool_max_idle_per_host(0)
            .dns_resolver(Arc::new(resolver));
        client.build().map_err(|error| RemoteToolError(error.without_url().to_string()))
    }

    /// Requests a URL and follows its redirects. Returns the response and its final URL.
    pub(super) async fn get(&self, url: Url, accept: &str) -> Result<(Response, Url), RemoteToolError> {
        let mut url = url;
        for hop in 0..=MOST_HOPS {
            self.check(&url).map_err(|why| match hop {
                0 => why,
                _ => RemoteToolError(format!("it redirects to {}, and {why}", shown(&url))),
            })?;
            let client = if self.own_server.has_port_of(&url) { &self.guarded } else { &self.client };
            let sent = client.get(url.clone()).header(ACCEPT, accept).send().await;
            let response = sent.map_err(|error| RemoteToolError(explain_error(&error)))?;
            let next = match response.status().as_u16() {
                301 | 302 | 303 | 307 | 308 => response.headers().get(LOCATION),
                _ => None,
            };
            let Some(next) = next else { return Ok((response, url)) };
            let next = String::from_utf8_lossy(next.as_bytes()).into_owned();
            url = url.join(&next).map_err(|error| {
                RemoteToolError(format!("it redirects to something that is no URL: {error}"))
            })?;
        }
        Err(RemoteToolError(format!("it redirects more than {MOST_HOPS} times")))
    }

    /// Checks whether a URL is allowed, as far as the URL itself shows.
    fn check(&self, url: &Url) -> Result<(), RemoteToolError> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(RemoteToolError(format!(
                "'{}:' is not fetched, only http: and https:",
                url.scheme()
            )));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(RemoteToolError("a URL with a user or a password in it is not fetched".to_owned()));
        }
        let host = url.host_str().unwrap_or_default();
        if host.is_empty() {
            return Err(RemoteToolError("it names no host".to_owned()));
        }
        if self.own_server.is_at(url) {
            return Err(RemoteToolError(OwnServerRefused(host.to_owned()).to_string()));
        }
        let literal = host.trim_start_matches('[').trim_end_matches(']');
        match literal.parse::<IpAddr>().ok().and_then(self.address_filter) {
            Some(why) => Err(RemoteToolError(AddressRefused { host: literal.to_owned(), why }.to_string())),
            None => Ok(()),
        }
    }
}

/// Formats a URL for display, without its query.
fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.to_string()
}

/// A resolver that refuses names with addresses that are not allowed.
struct FilteringResolver {
    address_filter: AddressFilter,
    lookup: DnsLookup,
    refuse_this_machine: bool,
}

impl Resolve for FilteringResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let host = name.as_str().to_owned();
        let (looking, address_filter) = ((self.lookup)(host.clone()), self.address_filter);
        let refuse_this_machine = self.refuse_this_machine;
        Box::pin(async move {
            let found = looking.await?;
            if found.is_empty() {
                return Err(io::Error::other("the name has no address").into());
            }
            // One refused address is enough: do not trust a name that has both kinds.
            if let Some(why) = found.iter().copied().find_map(address_filter) {
                return Err(AddressRefused { host, why }.into());
            }
            if refuse_this_machine && found.iter().copied().any(is_this_machine) {
                return Err(OwnServerRefused(host).into());
            }
            let addresses: Addrs = Box::new(found.into_iter().map(|ip| SocketAddr::new(ip, 0)));
            Ok(addresses)
        })
    }
}

/// The error for a host that is refused.
#[derive(Debug)]
struct AddressRefused {
    host: String,
    why: &'static str,
}

impl fmt::Display for AddressRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}, which is not fetched", self.host, self.why)
    }
}

impl Error for AddressRefused {}

/// Explains an error by its innermost cause, which is the most specific.
fn explain_error(error: &reqwest::Error) -> String {
    let mut cause: &dyn Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
        if let Some(refused) = cause.downcast_ref::<AddressRefused>() {
            return refused.to_string();
        }
        if let Some(refused) = cause.downcast_ref::<OwnServerRefused>() {
            return refused.to_string();
        }
    }
    let what = match error {
        error if error.is_timeout() => "the connection took too long",
        error if error.is_connect() => "it cannot be connected to",
        error if error.is_body() || error.is_decode() => "the answer broke off",
        _ => "it does not answer as it should",
    };
    format!("{what} ({cause})")
}

/// Explains an error while reading the body.
pub(super) fn explain_body_error(error: &reqwest::Error) -> String {
    explain_error(error)
}
