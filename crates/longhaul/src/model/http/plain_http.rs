//! HTTP/1.1 without TLS, as local model servers and gateways speak it.
//!
//! reqwest gives each connection a task of its own, and every piece of a body passes from that task to the one
//! that reads it: two task switches for each token. Here the task that reads a response also drives the
//! connection, so it takes all the pieces that have arrived in one go.
//!
//! hyper's connection and the body that it feeds wake each other, as if they were in different tasks. Here both wake the
//! task that is polling them at that moment, which would poll it once more for every piece; [`DriverSignal`] prevents
//! that.

use std::collections::HashMap;
use std::error::Error;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use futures::task::AtomicWaker;
use http::header::{ACCEPT, HOST, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri};
use http_body_util::Full;
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::TokioIo;
use reqwest::Url;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::task::coop::has_budget_remaining;
use tokio::time::Instant;
use tower_service::Service as _;

use super::client::{KEEP_ALIVE, POOL_IDLE_TIMEOUT, USER_AGENT_VALUE};
use super::connect_pace::ConnectPace;

type AnyError = Box<dyn Error + Send + Sync>;

/// How much of a response is read at once, and the largest head of a response. By itself hyper takes up to 400 KB for each
/// connection if a response comes fast.
const BUFFER: usize = 16 << 10;
/// How often a connection is driven before other tasks get their turn.
const MOST_ROUNDS: usize = 64;

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
        let path: Uri = uri.path_and_query().map_or("/", |path| path.as_str()).parse()?;
        for (name, value) in [(HOST, &*host), (USER_AGENT, USER_AGENT_VALUE), (ACCEPT, "*/*")] {
            headers.entry(name).or_insert(HeaderValue::from_str(value)?);
        }
        let mut request = Request::new(Full::new(Bytes::from(body)));
        (*request.method_mut(), *request.uri_mut(), *request.headers_mut()) = (method, path, headers);
        loop {
            let (mut connection, reused) = match self.idle.take(&host) {
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
                Ok(response) => {
                    let (connection, idle) = (Some(connection), self.idle.clone());
                    return Ok(response.map(|body| PlainBody { body, connection, host, idle }));
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
        let (requests, driver) = Builder::new().max_buf_size(BUFFER).handshake(stream).await?;
        let signal = Arc::<DriverSignal>::default();
        let waker = Waker::from(signal.clone());
        Ok(PlainConnection { requests, driver: Some(Box::new(driver)), signal, waker })
    }
}

/// A connection that whoever has it drives.
struct PlainConnection {
    requests: SendRequest<Full<Bytes>>,
    driver: Driver,
    signal: Arc<DriverSignal>,
    /// The signal as the driver gets it.
    waker: Waker,
}

/// Tells that the driver has something to do: to the task that drives it, unless that is doing so right now.
#[derive(Default)]
struct DriverSignal {
    task: AtomicWaker,
    is_driven: AtomicBool,
    woken: AtomicBool,
}

impl Wake for DriverSignal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, SeqCst);
        if !self.is_driven.load(SeqCst) {
            self.task.wake();
        }
    }
}

/// Reads and writes. `None` once the connection is closed.
type Driver = Option<Box<Connection<TokioIo<TcpStream>, Full<Bytes>>>>;

/// Reads and writes what is possible now. An error reaches whoever waits for the response or its body.
fn drive(driver: &mut Driver, context: &mut Context<'_>) {
    if let Some(open) = driver
        && Pin::new(open).poll(context).is_ready()
    {
        *driver = None;
    }
}

/// Polls what the driver feeds, and the driver as long as it has something to do.
fn poll_driven<T>(
    driver: &mut Driver,
    signal: &DriverSignal,
    waker: &Waker,
    context: &Context<'_>,
    mut poll_fed: impl FnMut(&mut Context<'_>) -> Poll<T>,
) -> Poll<T> {
    signal.task.register(context.waker());
    signal.is_driven.store(true, SeqCst);
    let mut rounds = 0;
    let polled = loop {
        // If the driver has called, there is nothing yet for what it feeds.
        if rounds > 0 || !signal.woken.load(SeqCst) {
            let fed = poll_fed(&mut Context::from_waker(waker));
            if fed.is_ready() {
                break fed;
            }
        }
        if rounds > 0 && !signal.woken.load(SeqCst) {
            signal.is_driven.store(false, SeqCst);
            // A wake that came before this store did not reach the task: handle it here.
            if !signal.woken.load(SeqCst) {
                return Poll::Pending;
            }
            signal.is_driven.store(true, SeqCst);
        }
        // Without a budget Tokio's channels and sockets say that they are not ready, whatever they hold.
        if rounds == MOST_ROUNDS || !has_budget_remaining() {
            context.waker().wake_by_ref();
            break Poll::Pending;
        }
        rounds += 1;
        signal.woken.store(false, SeqCst);
        drive(driver, &mut Context::from_waker(waker));
    };
    signal.is_driven.store(false, SeqCst);
    polled
}

impl PlainConnection {
    /// Sends a request and waits for the head of its response. With an error comes the request, if none of it was sent.
    async fn exchange(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, (hyper::Error, Option<Request<Full<Bytes>>>)> {
        let mut response = pin!(self.requests.try_send_request(request));
        let (driver, signal, waker) = (&mut self.driver, &self.signal, &self.waker);
        let answer = poll_fn(|context| {
            poll_driven(driver, signal, waker, context, |context| response.as_mut().poll(context))
        });
        answer.await.map_err(|mut failed| {
            let unsent = failed.take_message();
            (failed.into_error(), unsent)
        })
    }

    /// Whether it can take another request now.
    fn is_ready(&mut self, context: &mut Context<'_>) -> bool {
        drive(&mut self.driver, context);
        self.driver.is_some() && self.requests.is_ready()
    }
}

/// The body of a response. Dropping it before its end closes the connection.
pub(super) struct PlainBody {
    body: Incoming,
    connection: Option<PlainConnection>,
    host: String,
    idle: Arc<IdleConnections>,
}

impl PlainBody {
    /// The next chunk, or `None` at the end.
    pub(super) fn poll_chunk(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, hyper::Error>> {
        let PlainBody { body, connection, .. } = self;
        let mut poll_data = |context: &mut Context<'_>| loop {
            match ready!(Pin::new(&mut *body).poll_frame(context)).transpose()? {
                None => return Poll::Ready(Ok(None)),
                Some(frame) => {
                    // Trailers say nothing that we need.
                    if let Ok(bytes) = frame.into_data() {
                        return Poll::Ready(Ok(Some(bytes)));
                    }
                }
            }
        };
        let polled = match connection {
            Some(PlainConnection { driver, signal, waker, .. }) => {
                poll_driven(driver, signal, waker, context, poll_data)
            }
            None => poll_data(context),
        };
        if let Poll::Ready(Ok(None)) = polled {
            self.keep_connection(context);
        }
        polled
    }

    /// Keeps the connection for the next request, if the server does.
    fn keep_connection(&mut self, context: &mut Context<'_>) {
        if let Some(mut connection) = self.connection.take()
            && connection.is_ready(context)
        {
            self.idle.put(&self.host, connection);
        }
    }
}

/// Connections that wait for the next request, by host and port.
#[derive(Default)]
struct IdleConnections {
    state: Mutex<IdleState>,
}

#[derive(Default)]
struct IdleState {
    by_host: HashMap<String, Vec<(Instant, PlainConnection)>>,
    /// Closes those that nobody has used for long. It runs while there are any.
    sweeper: JoinSet<()>,
}

impl IdleConnections {
    fn lock(&self) -> MutexGuard<'_, IdleState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection that was used last, if it is still open.
    fn take(&self, host: &str) -> Option<PlainConnection> {
        loop {
            let (_, mut connection) = self.lock().by_host.get_mut(host)?.pop()?;
            if connection.is_ready(&mut Context::from_waker(Waker::noop())) {
                return Some(connection);
            }
        }
    }

    fn put(self: &Arc<Self>, host: &str, connection: PlainConnection) {
        let mut state = self.lock();
        let kept = (Instant::now(), connection);
        match state.by_host.get_mut(host) {
            Some(connections) => connections.push(kept),
            None => {
                state.by_host.insert(host.to_owned(), vec![kept]);
            }
        }
        // Those of a runtime that has ended.
        while state.sweeper.try_join_next().is_some() {}
        if state.sweeper.is_empty() {
            let idle = Arc::downgrade(self);
            state.sweeper.spawn(async move {
                loop {
                    tokio::time::sleep(POOL_IDLE_TIMEOUT / 2).await;
                    if idle.upgrade().is_none_or(|idle| !idle.close_unused()) {
                        return;
                    }
                }
            });
        }
    }

    /// Closes what nobody has used for long. Returns whether anything is left.
    fn close_unused(&self) -> bool {
        let mut unused = Vec::new();
        let mut state = self.lock();
        state.by_host.retain(|_, connections| {
            // The one that was used last is at the end.
            let kept = connections.partition_point(|(since, _)| since.elapsed() >= POOL_IDLE_TIMEOUT);
            unused.extend(connections.drain(..kept));
            !connections.is_empty()
        });
        if state.by_host.is_empty() {
            // The next connection that is put here starts another.
            state.sweeper.detach_all();
        }
        !state.by_host.is_empty()
    }
}

#[cfg(test)]
#[path = "plain_http_tests.rs"]
mod tests;
