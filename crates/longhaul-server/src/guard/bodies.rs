//! Bodies with limits: requests that are too large or too slow, and responses that end when their token is
//! revoked or the server drains.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::BoxError;
use axum::body::{Body, HttpBody};
use axum::response::Response;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use hyper::body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::GuardLimits;

/// How much larger than its limit a body may be here. The limit of the router comes first, because its error
/// is a better one.
const SLACK: usize = 64 << 10;

/// Why a body is cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum BodyError {
    #[error("the body is too large")]
    TooLarge,
    #[error("the body did not arrive in time")]
    TooSlow,
    #[error("the response was cut off: the token was revoked, or the server stops")]
    Ended,
}

/// The body of a request, with limits on its size and time.
pub(super) struct LimitedBody {
    inner: Body,
    left: usize,
    pause: std::time::Duration,
    until: Instant,
    timer: Pin<Box<Sleep>>,
}

impl LimitedBody {
    pub(super) fn new(inner: Body, limits: &GuardLimits) -> LimitedBody {
        let (now, pause) = (Instant::now(), limits.body_pause);
        let until = now + limits.body_time;
        let timer = Box::pin(tokio::time::sleep_until((now + pause).min(until)));
        LimitedBody { inner, left: limits.body_bytes + SLACK, pause, until, timer }
    }
}

impl HttpBody for LimitedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(cx) else {
            ready!(self.timer.as_mut().poll(cx));
            return Poll::Ready(Some(Err(BodyError::TooSlow.into())));
        };
        let next = (Instant::now() + self.pause).min(self.until);
        self.timer.as_mut().reset(next);
        let length = match &frame {
            Some(Ok(frame)) => frame.data_ref().map_or(0, Bytes::len),
            _ => 0,
        };
        match self.left.checked_sub(length) {
            Some(left) => self.left = left,
            None => return Poll::Ready(Some(Err(BodyError::TooLarge.into()))),
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// The body of a response of unknown length. It ends with a comment if it is a stream of events, and is cut
/// off otherwise.
pub(super) struct EndingBody {
    inner: Body,
    revoked: Pin<Box<WaitForCancellationFutureOwned>>,
    draining: Pin<Box<WaitForCancellationFutureOwned>>,
    is_events: bool,
    is_over: bool,
}

impl EndingBody {
    /// Wraps the body of a response, unless its length is known: that one is on its way already.
    pub(super) fn wrap(
        response: Response,
        revoked: CancellationToken,
        draining: CancellationToken,
    ) -> Response {
        if response.body().size_hint().exact().is_some() {
            return response;
        }
        let kind = response.headers().get(CONTENT_TYPE);
        let is_events = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        response.map(|inner| {
            Body::new(EndingBody {
                inner,
                revoked: Box::pin(revoked.cancelled_owned()),
                draining: Box::pin(draining.cancelled_owned()),
                is_events,
                is_over: false,
            })
        })
    }

    /// Why the body ends now, if it does.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Option<&'static str> {
        if self.revoked.as_mut().poll(cx).is_ready() {
            return Some(": the token was revoked\n\n");
        }
        self.draining
            .as_mut()
            .poll(cx)
            .is_ready()
            .then_some(": the server is stopping; connect again later\n\n")
    }
}

impl HttpBody for EndingBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        if let Some(comment) = self.poll_end(cx) {
            self.is_over = true;
            let last = match self.is_events {
                true => Ok(Frame::data(Bytes::from_static(comment.as_bytes()))),
                false => Err(BodyError::Ended.into()),
            };
            return Poll::Ready(Some(last));
        }
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.is_over || self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
