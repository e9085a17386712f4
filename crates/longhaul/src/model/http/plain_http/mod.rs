//! HTTP/1.1 without TLS, as local model servers and gateways speak it.
//!
//! reqwest gives each connection a task of its own and buffers of about 50 KB, and every piece of a body passes from that
//! task to the one that reads it. Here the task that reads a response reads from the socket, and a connection that waits
//! holds nothing (docs/decisions/0012-plain-http-has-a-client-of-its-own.md).

use std::error::Error;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, HOST, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Response, Uri};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::proxy::matcher::Matcher;
use reqwest::Url;
use tower_service::Service as _;

mod connection;
mod idle_connections;
mod response_framing;

pub(super) use self::connection::PlainHttpError;
use self::connection::{IncomingBody, IncomingResponse, PlainConnection, write_request};
use self::idle_connections::IdleConnections;
use super::client::{KEEP_ALIVE, USER_AGENT_VALUE};
use super::connect_pace::ConnectPace;

type AnyError = Box<dyn Error + Send + Sync>;

/// Sends requests to `http://` URLs, and keeps connections to use them again.
pub(super) struct PlainHttpClient {
    connector: HttpConnector,
    /// Which URLs go through a proxy. Those are not for this client.
    proxies: Option<Matcher>,
    pace: ConnectPace,
    idle: Arc<IdleConnections>,
}

impl PlainHttpClient {
    pub(super) fn new(connect_timeout: Duration, system_proxy: bool) -> PlainHttpClient {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(connect_timeout));
        connector.set_keepalive(Some(KEEP_ALIVE));
        connector.set_nodelay(true);
        let proxies = system_proxy.then(Matcher::from_system);
        PlainHttpClient { connector, proxies, pace: ConnectPace::default(), idle: Arc::default() }
    }

    /// The URL in the form that [`send`](Self::send) takes, or `None` if it needs TLS, a proxy or a login.
    pub(super) fn accepts(&self, url: &Url) -> Option<Uri> {
        if url.scheme() != "http" || !url.username().is_empty() || url.password().is_some() {
            return None;
        }
        let uri = url.as_str().parse().ok()?;
        let proxied = self.proxies.as_ref().is_some_and(|proxies| proxies.intercept(&uri).is_some());
        (!proxied).then_some(uri)
    }

    /// Sends a request and waits for the status and the headers of the response.
    pub(super) async fn send(
        &self,
        method: Method,
        uri: Uri,
        mut headers: HeaderMap,
        body: Vec<u8>,
    ) -> Result<Response<PlainBody>, AnyError> {
        let host = uri.authority().ok_or("the URL has no host")?.as_str().to_owned();
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        for (name, value) in [(HOST, &*host), (USER_AGENT, USER_AGENT_VALUE), (ACCEPT, "*/*")] {
            headers.entry(name).or_insert(HeaderValue::from_str(value)?);
        }
        let mut request = write_request(&method, path, &headers, body);
        drop(headers);
        loop {
            let (connection, reused) = match self.idle.take(&host) {
                Some(connection) => (connection, true),
                None => {
                    self.pace.wait().await;
                    // One may have become free in the meantime.
                    match self.idle.take(&host) {
                        Some(connection) => (connection, true),
                        None => (self.connect(uri.clone()).await?, false),
                    }
                }
            };
            match connection.exchange(request).await {
                Ok(IncomingResponse { status, headers, body }) => {
                    let mut response = Response::new(PlainBody { body, host, idle: self.idle.clone() });
                    (*response.status_mut(), *response.headers_mut()) = (status, headers);
                    return Ok(response);
                }
                // The server closed an idle connection before any of the request was sent on it.
                Err((_, Some(unsent))) if reused => request = unsent,
                // Perhaps the server has got it: it is not sent again behind the back of whoever counts requests.
                Err((error, _)) => return Err(error.into()),
            }
        }
    }

    async fn connect(&self, uri: Uri) -> Result<PlainConnection, AnyError> {
        let stream = self.connector.clone().call(uri).await?;
        Ok(PlainConnection::new(stream.into_inner()))
    }
}

/// The body of a response. Dropping it before its end closes the connection.
pub(super) struct PlainBody {
    body: IncomingBody,
    host: String,
    idle: Arc<IdleConnections>,
}

impl PlainBody {
    /// The next data, or `None` at the end.
    pub(super) fn poll_chunk(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, PlainHttpError>> {
        let polled = self.body.poll_data(context);
        if let Poll::Ready(Ok(None)) = polled
            && let Some(connection) = self.body.take_connection()
        {
            // For the next request, if the server keeps it too.
            self.idle.put(&self.host, connection);
        }
        polled
    }
}

#[cfg(test)]
mod tests;
