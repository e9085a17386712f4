//! The listener: TCP with or without TLS, limits on connections, and a drain.

mod connection_io;
mod tls;

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use connection_io::ConnectionIo;
pub use tls::TlsFiles;

/// The limits of the listener.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ConnectionLimits {
    /// How many connections there may be. More are answered with 503.
    pub connections: usize,
    /// How long a client may take to send the head of a request, and to complete a TLS handshake.
    pub header_time: Duration,
    /// How large the head of a request may be.
    pub header_bytes: usize,
    /// How many headers a request may have.
    pub headers: usize,
    /// How long a client may not read what it is sent.
    pub write_stall: Duration,
    /// How long connections may take to end when the server drains.
    pub drain: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> ConnectionLimits {
        ConnectionLimits {
            connections: 4_096,
            header_time: Duration::from_secs(10),
            header_bytes: 32 << 10,
            headers: 64,
            write_stall: Duration::from_secs(60),
            drain: Duration::from_secs(5),
        }
    }
}

/// Why the server cannot listen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// Others could read and change what is sent.
    #[error("{0} can be reached from other machines, and without TLS everyone on the way can read the token")]
    NotPrivate(SocketAddr),
    /// The address cannot be used.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The reason.
        source: std::io::Error,
    },
    /// The certificate or its key cannot be used.
    #[error("{what}: {why}")]
    Tls {
        /// The file.
        what: String,
        /// The reason.
        why: String,
    },
}

/// Where and how to listen.
#[derive(Debug, Clone)]
pub struct ListenOptions {
    /// The address; port 0 takes a free one.
    pub address: SocketAddr,
    /// The certificate and its key.
    pub tls: Option<TlsFiles>,
    /// Whether to listen on other addresses than loopback without TLS.
    pub insecure: bool,
    /// The limits.
    pub limits: ConnectionLimits,
}

impl ListenOptions {
    /// Listens on an address, without TLS.
    pub fn new(address: SocketAddr) -> ListenOptions {
        ListenOptions { address, tls: None, insecure: false, limits: ConnectionLimits::default() }
    }
}

/// A socket that clients can connect to, before it is served.
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
    limits: ConnectionLimits,
}

impl Listener {
    /// Opens the socket. Fails if the address can be reached from other machines and there is neither TLS nor
    /// `insecure`.
    pub async fn bind(options: ListenOptions) -> Result<Listener, ListenError> {
        let ListenOptions { address, tls, insecure, limits } = options;
        if tls.is_none() && !insecure && !is_loopback(address.ip()) {
            return Err(ListenError::NotPrivate(address));
        }
        let tls = tls.map(|files| files.acceptor()).transpose()?;
        let cannot = |source| ListenError::Bind { address, source };
        let socket = TcpListener::bind(address).await.map_err(cannot)?;
        let address = socket.local_addr().map_err(cannot)?;
        Ok(Listener { socket, address, tls, limits })
    }

    /// The address, with its port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether it has TLS.
    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// The URL with which a client on this machine reaches it.
    pub fn url(&self) -> String {
        let scheme = if self.is_tls() { "https" } else { "http" };
        let ip = match self.address.ip() {
            ip if !ip.is_unspecified() => ip,
            IpAddr::V4(_) => IpAddr::from([127, 0, 0, 1]),
            IpAddr::V6(_) => IpAddr::from(std::net::Ipv6Addr::LOCALHOST),
        };
        format!("{scheme}://{}", SocketAddr::new(ip, self.address.port()))
    }

    /// Serves until `stop` fires, then drains: no connection is accepted any more, and the open ones get some
    /// seconds to end.
    pub async fn serve(self, app: Router, stop: CancellationToken) {
        let Listener { socket, tls, limits, .. } = self;
        let seats = Arc::new(Semaphore::new(limits.connections));
        let graceful = GracefulShutdown::new();
        let (tasks, abort) = (TaskTracker::new(), CancellationToken::new());
        let server = Arc::new(ConnectionServer { app, tls, http: http_builder(&limits), limits });
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                accepted = socket.accept() => accepted,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    // Too many open files, perhaps: it would fail again at once.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let (server, abort) = (server.clone(), abort.clone());
            let Ok(seat) = seats.clone().try_acquire_owned() else {
                tasks.spawn(async move { turn_away(stream).await });
                continue;
            };
            let watcher = graceful.watcher();
            tasks.spawn(async move {
                tokio::select! {
                    () = server.serve(stream, watcher) => {}
                    () = abort.cancelled() => {}
                }
                drop(seat);
            });
        }
        // 1. The port is free for the next server.
        drop(socket);
        // 2. Connections end after their current request.
        let _ = tokio::time::timeout(server.limits.drain, graceful.shutdown()).await;
        // 3. Those that are left are cut off.
        abort.cancel();
        tasks.close();
        tasks.wait().await;
    }
}

/// Whether only this machine reaches an address.
fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

fn http_builder(limits: &ConnectionLimits) -> auto::Builder<TokioExecutor> {
    let mut http = auto::Builder::new(TokioExecutor::new());
    http.http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_time)
        .max_headers(limits.headers)
        .max_buf_size(limits.header_bytes.max(8_192))
        .keep_alive(true);
    http.http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(128)
        .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX))
        .keep_alive_interval(Duration::from_secs(20))
        .keep_alive_timeout(Duration::from_secs(20));
    http
}

struct ConnectionServer {
    app: Router,
    tls: Option<TlsAcceptor>,
    http: auto::Builder<TokioExecutor>,
    limits: ConnectionLimits,
}

impl ConnectionServer {
    async fn serve(&self, stream: TcpStream, watcher: hyper_util::server::graceful::Watcher) {
        // Small events are sent at once.
        let _ = stream.set_nodelay(true);
        match &self.tls {
            None => self.serve_http(stream, watcher).await,
            Some(tls) => match tokio::time::timeout(self.limits.header_time, tls.accept(stream)).await {
                Ok(Ok(stream)) => self.serve_http(stream, watcher).await,
                Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
                Err(_) => tracing::debug!("a TLS handshake took too long"),
            },
        }
    }

    async fn serve_http<S>(&self, stream: S, watcher: hyper_util::server::graceful::Watcher)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let stream = ConnectionIo::new(stream, self.limits.header_time, self.limits.write_stall);
        let app = self.app.clone();
        let service = tower::service_fn(move |request: http::Request<hyper::body::Incoming>| {
            let app = app.clone();
            async move {
                use tower::ServiceExt as _;
                let answered: Result<_, Infallible> = app.oneshot(request.map(Body::new)).await;
                answered
            }
        });
        let connection = self.http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
        if let Err(error) = watcher.watch(connection).await {
            tracing::debug!(%error, "a connection ended");
        }
    }
}

/// Tells a client that there are too many connections.
async fn turn_away(mut stream: TcpStream) {
    const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    let _ = tokio::time::timeout(Duration::from_secs(1), async {
        stream.write_all(FULL).await?;
        stream.shutdown().await
    })
    .await;
}
