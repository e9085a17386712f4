//! One connection: sends a request, reads the response. Whoever reads the response does all the work, in its own task.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::buf::Chain;
use bytes::{Buf as _, Bytes};
use futures::FutureExt as _;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, Method, StatusCode};
use tokio::io::{AsyncRead as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::coop::unconstrained;
use tokio::time::timeout;
use tokio_util::io::poll_write_buf;

use super::response_framing::{BodyDecoder, FramingError, ResponseStart};

/// How much is read at once. It is on the stack: a connection that waits holds no buffer.
const READ: usize = 16 << 10;

/// How long to look for the answer of a server that has closed the connection.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Why there is no response, or why it has no end.
#[derive(Debug, thiserror::Error)]
pub(in crate::model::http) enum PlainHttpError {
    #[error("the server closed the connection without a response")]
    NoResponse,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Framing(#[from] FramingError),
}

impl PlainHttpError {
    /// Whether another request would get the same: this is no server for it.
    pub(in crate::model::http) fn is_final(&self) -> bool {
        matches!(self, PlainHttpError::Framing(error) if *error != FramingError::CutOff)
    }
}

/// A request as it is sent: its headers, then its body.
pub(super) type OutgoingRequest = Chain<Bytes, Bytes>;

pub(super) fn write_request(
    method: &Method,
    path: &str,
    headers: &HeaderMap,
    body: Vec<u8>,
) -> OutgoingRequest {
    let mut start = format!("{method} {path} HTTP/1.1\r\n").into_bytes();
    // How the body is framed is said here and nowhere else.
    for (name, value) in
        headers.iter().filter(|(name, _)| ![CONTENT_LENGTH, TRANSFER_ENCODING].contains(name))
    {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            start.extend_from_slice(part);
        }
    }
    if !(body.is_empty() && method == Method::GET) {
        start.extend_from_slice(format!("{CONTENT_LENGTH}: {}\r\n", body.len()).as_bytes());
    }
    start.extend_from_slice(b"\r\n");
    Bytes::from(start).chain(Bytes::from(body))
}

/// A response of which the headers have come, and the connection that its body comes from.
pub(super) struct IncomingResponse {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: IncomingBody,
}

/// A connection on which nothing is under way.
pub(super) struct PlainConnection {
    stream: TcpStream,
}

impl PlainConnection {
    pub(super) fn new(stream: TcpStream) -> PlainConnection {
        PlainConnection { stream }
    }

    /// Whether it can take a request: the server has not closed it, and has sent nothing that nobody asked for.
    pub(super) fn is_idle(&mut self) -> bool {
        let look = poll_fn(|context| poll_read(&mut self.stream, context, |_| ()));
        // A task that has used up its budget would be told that nothing has come.
        unconstrained(look).now_or_never().is_none()
    }

    /// Sends a request and waits for the headers of its response. With an error comes the request, if none of it was sent.
    pub(super) async fn exchange(
        self,
        request: OutgoingRequest,
    ) -> Result<IncomingResponse, (PlainHttpError, Option<OutgoingRequest>)> {
        let size = request.remaining();
        let mut sending = Sending { stream: self.stream, unsent: Some(request) };
        let mut bytes = Vec::new();
        let sent = poll_fn(|context| match sending.poll_send(context) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => poll_start(&mut sending.stream, &mut bytes, context).map(Ok),
        });
        let (start, refused) = match sent.await {
            Ok(start) => (start, false),
            Err(error) => {
                if let Some(unsent) = sending.unsent.take().filter(|unsent| unsent.remaining() == size) {
                    return Err((error.into(), Some(unsent)));
                }
                // The server may have answered and closed the connection before it had all of the request. Then the answer counts.
                // It is there already, but the runtime may learn of it a little later.
                let look = poll_fn(|context| poll_start(&mut sending.stream, &mut bytes, context));
                (timeout(LAST_WORDS, look).await.ok().and_then(Result::ok).ok_or(error.into()), true)
            }
        };
        let ResponseStart { status, headers, body: decoder, keeps_alive } =
            start.map_err(|error| (error, None))?;
        let keeps_alive = keeps_alive && !refused;
        let body = IncomingBody { sending: Some(sending), decoder, keeps_alive, early: bytes };
        Ok(IncomingResponse { status, headers, body })
    }
}

/// Reads the headers of a response. What comes behind them is left in `bytes`.
fn poll_start(
    stream: &mut TcpStream,
    bytes: &mut Vec<u8>,
    context: &mut Context<'_>,
) -> Poll<Result<ResponseStart, PlainHttpError>> {
    loop {
        let closed = ready!(poll_read(stream, context, |read| {
            bytes.extend_from_slice(read);
            read.is_empty()
        }))?;
        if closed {
            return Poll::Ready(Err(match bytes.is_empty() {
                true => PlainHttpError::NoResponse,
                false => FramingError::CutOff.into(),
            }));
        }
        if let Some(start) = ResponseStart::parse(bytes)? {
            return Poll::Ready(Ok(start));
        }
    }
}

/// A connection on which a request is sent.
struct Sending {
    stream: TcpStream,
    /// What is still to be sent.
    unsent: Option<OutgoingRequest>,
}

impl Sending {
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(unsent) = &mut self.unsent {
            if ready!(poll_write_buf(Pin::new(&mut self.stream), context, unsent))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            if !unsent.has_remaining() {
                self.unsent = None;
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// The body of a response, as it comes.
pub(super) struct IncomingBody {
    /// `None` once the body has ended.
    sending: Option<Sending>,
    decoder: BodyDecoder,
    keeps_alive: bool,
    /// What came together with the headers.
    early: Vec<u8>,
}

impl IncomingBody {
    /// The next data, or `None` at the end.
    pub(super) fn poll_data(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, PlainHttpError>> {
        loop {
            let IncomingBody { sending: Some(sending), decoder, keeps_alive, early } = self else {
                return Poll::Ready(Ok(None));
            };
            if decoder.is_over() {
                return Poll::Ready(Ok(None));
            }
            // A server may begin its response before it has got all of the request. One that reads no more of it is not an
            // error: its response counts.
            if let Poll::Ready(Err(_)) = sending.poll_send(context) {
                (sending.unsent, *keeps_alive) = (None, false);
            }
            let mut decode = |bytes: &mut [u8]| {
                if bytes.is_empty() {
                    return decoder.on_close().map(|()| None);
                }
                let decoded = decoder.decode(bytes)?;
                // More than was announced: nobody knows what it is.
                *keeps_alive &= decoded.used == bytes.len();
                Ok(Some(Bytes::copy_from_slice(&bytes[..decoded.data])))
            };
            let decoded = match std::mem::take(early) {
                mut early if !early.is_empty() => decode(&mut early),
                _ => ready!(poll_read(&mut sending.stream, context, decode))?,
            };
            match decoded? {
                None => self.sending = None,
                Some(data) if data.is_empty() => {}
                Some(data) => return Poll::Ready(Ok(Some(data))),
            }
        }
    }

    /// The connection, if it can be used again. Called after the end.
    pub(super) fn take_connection(&mut self) -> Option<PlainConnection> {
        let sending = self.sending.take()?;
        let mut connection = PlainConnection { stream: sending.stream };
        let reusable = self.keeps_alive && self.early.is_empty() && sending.unsent.is_none();
        (reusable && connection.is_idle()).then_some(connection)
    }
}

/// Reads what has come, at most [`READ`] bytes; none if the server has closed the connection.
fn poll_read<T>(
    stream: &mut TcpStream,
    context: &mut Context<'_>,
    take: impl FnOnce(&mut [u8]) -> T,
) -> Poll<io::Result<T>> {
    let mut space = [const { MaybeUninit::uninit() }; READ];
    let mut buffer = ReadBuf::uninit(&mut space);
    ready!(Pin::new(stream).poll_read(context, &mut buffer))?;
    Poll::Ready(Ok(take(buffer.filled_mut())))
}
