//! Reads the body of a response in a task of its own.
//!
//! A reply comes in hundreds of small pieces. If the task of the run read them, each would poll everything that
//! the run waits for; here it polls one small future. The run is woken when there is something for it: the end,
//! an error, or text that was held back for as long as the request allows.

use std::any::Any;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::FutureExt as _;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep};

use super::transport::ResponseBody;
use super::unexpected_body;
use crate::message::Reply;
use crate::model::wire::ReplyParser;
use crate::model::{ModelErrorKind, ReplyChunk, TextDelay};

/// How long to wait for the end of a complete reply.
const LAST_BYTES_TIMEOUT: Duration = Duration::from_secs(2);
/// So many bytes of text are passed on before their time.
const ENOUGH: usize = 16 << 10;
/// With so many bytes that nobody takes, reading pauses.
const MOST: usize = 256 << 10;

/// How long a response may be silent.
#[derive(Clone, Copy)]
pub(super) struct SilenceLimits {
    /// Before its first byte.
    pub(super) first_byte: Duration,
    /// Later.
    pub(super) idle: Duration,
}

/// Why a response could not be read to its end.
pub(super) enum ReadFailure {
    Failed(ModelErrorKind),
    /// It is something else than a model's reply.
    NotAReply(&'static str),
    Panicked(Box<dyn Any + Send>),
}

/// A response that is being read. Dropping it closes the connection.
pub(super) struct ResponseReader {
    read: Arc<ReadSoFar>,
    /// The task that reads. It ends when this is dropped.
    _task: JoinSet<()>,
}

/// What was read and not taken yet.
#[derive(Default)]
struct ReadSoFar {
    state: Mutex<Unread>,
    taken: Notify,
}

#[derive(Default)]
struct Unread {
    chunks: Vec<ReplyChunk>,
    end: Option<Result<Reply, ReadFailure>>,
    /// Who waits for it.
    waker: Option<Waker>,
}

impl ResponseReader {
    /// Starts to read.
    pub(super) fn start(
        body: ResponseBody,
        parser: Box<dyn ReplyParser>,
        limits: SilenceLimits,
        delay: Option<TextDelay>,
    ) -> ResponseReader {
        let read = Arc::new(ReadSoFar::default());
        let into = read.clone();
        let mut task = JoinSet::new();
        task.spawn(async move {
            let reader = BodyReader { parser, limits, delay, begun: false, due: None };
            let end = AssertUnwindSafe(reader.read_all(body, &into)).catch_unwind().await;
            into.lock().end = Some(end.unwrap_or_else(|panic| Err(ReadFailure::Panicked(panic))));
            into.wake();
        });
        ResponseReader { read, _task: task }
    }

    /// Waits for more and moves it to `ready`, or returns how the response ended. Text that is held back is
    /// moved as well.
    pub(super) fn poll_next(
        &mut self,
        context: &Context<'_>,
        ready: &mut VecDeque<ReplyChunk>,
    ) -> Poll<Option<Result<Reply, ReadFailure>>> {
        let mut unread = self.read.lock();
        if !unread.chunks.is_empty() {
            if text_bytes(&unread.chunks) > MOST {
                self.read.taken.notify_one();
            }
            ready.extend(unread.chunks.drain(..));
            return Poll::Ready(None);
        }
        if let Some(end) = unread.end.take() {
            return Poll::Ready(Some(end));
        }
        match &mut unread.waker {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}

impl ReadSoFar {
    fn lock(&self) -> MutexGuard<'_, Unread> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        let waker = self.lock().waker.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The state of the task that reads.
struct BodyReader {
    parser: Box<dyn ReplyParser>,
    limits: SilenceLimits,
    delay: Option<TextDelay>,
    begun: bool,
    /// Until when the text that was read is held back.
    due: Option<Instant>,
}

impl BodyReader {
    async fn read_all(mut self, mut body: ResponseBody, read: &ReadSoFar) -> Result<Reply, ReadFailure> {
        // Created once, not for every piece.
        let mut alarm = pin!(tokio::time::sleep(LAST_BYTES_TIMEOUT));
        loop {
            let more = self.read_pieces(&mut body, alarm.as_mut(), read).await;
            let unread = self.pass_on(read);
            if !more? {
                return self.parser.finish().map_err(ReadFailure::Failed);
            }
            if unread > MOST {
                read.taken.notified().await;
            }
        }
    }

    /// Waits for pieces of the body and parses them. Returns `false` at its end.
    async fn read_pieces(
        &mut self,
        body: &mut ResponseBody,
        mut alarm: Pin<&mut Sleep>,
        read: &ReadSoFar,
    ) -> Result<bool, ReadFailure> {
        let over = self.parser.is_complete();
        let limit = match (over, self.begun) {
            // The reply is complete. Wait for the end of the body so that the connection can be reused.
            (true, _) => LAST_BYTES_TIMEOUT,
            (false, true) => self.limits.idle,
            (false, false) => self.limits.first_byte,
        };
        let silent_at = Instant::now().checked_add(limit);
        loop {
            let next = self.due.into_iter().chain(silent_at).min();
            // A timer that fires too early is set again: what it is for moves with every piece.
            if let Some(next) = next
                && (next < alarm.deadline() || alarm.is_elapsed())
            {
                alarm.as_mut().reset(next);
            }
            tokio::select! {
                biased;
                more = poll_fn(|context| self.poll_pieces(body, read, context)) => return more,
                () = alarm.as_mut(), if next.is_some() => {}
            }
            let now = Instant::now();
            if self.due.is_some_and(|due| due <= now) {
                self.due = None;
                read.wake();
            }
            if silent_at.is_some_and(|at| at <= now) {
                return if over {
                    Ok(false)
                } else {
                    Err(ReadFailure::Failed(ModelErrorKind::TimedOut(limit)))
                };
            }
        }
    }

    /// Parses the pieces that have come, all in one go.
    fn poll_pieces(
        &mut self,
        body: &mut ResponseBody,
        read: &ReadSoFar,
        context: &mut Context<'_>,
    ) -> Poll<Result<bool, ReadFailure>> {
        let mut parsed = 0;
        while parsed < ENOUGH {
            let bytes = match body.poll_chunk(context) {
                Poll::Pending if parsed == 0 => return Poll::Pending,
                Poll::Pending => break,
                Poll::Ready(Ok(Some(bytes))) => bytes,
                Poll::Ready(Ok(None)) => return Poll::Ready(Ok(false)),
                Poll::Ready(Err(_)) if self.parser.is_complete() => return Poll::Ready(Ok(false)),
                Poll::Ready(Err(kind)) => return Poll::Ready(Err(ReadFailure::Failed(kind))),
            };
            if !std::mem::replace(&mut self.begun, true)
                && let Some(what) = unexpected_body::detect_by_first_bytes(&bytes)
            {
                return Poll::Ready(Err(ReadFailure::NotAReply(what)));
            }
            let mut unread = read.lock();
            if unread.chunks.is_empty() {
                // Whoever took the text before was in time.
                self.due = None;
            }
            // What belongs together is merged there: most pieces are a word.
            self.parser.feed(&bytes, &mut unread.chunks).map_err(ReadFailure::Failed)?;
            parsed += bytes.len().max(1);
        }
        Poll::Ready(Ok(true))
    }

    /// Wakes whoever waits for what was parsed, unless it can be held back. Returns how many bytes nobody has taken.
    fn pass_on(&mut self, read: &ReadSoFar) -> usize {
        let unread = read.lock();
        if unread.chunks.is_empty() {
            return 0;
        }
        let bytes = text_bytes(&unread.chunks);
        let hurry = unread.chunks.iter().any(|chunk| text_of(chunk).is_none());
        drop(unread);
        if self.due.is_none() {
            let delay = self.delay.as_ref().map(TextDelay::get).unwrap_or_default();
            self.due = Instant::now().checked_add(delay).filter(|_| !delay.is_zero());
        }
        if hurry || bytes > ENOUGH || self.due.is_none_or(|due| due <= Instant::now()) {
            self.due = None;
            read.wake();
        }
        bytes
    }
}

fn text_of(chunk: &ReplyChunk) -> Option<&str> {
    match chunk {
        ReplyChunk::Text(text) | ReplyChunk::Reasoning(text) => Some(text),
        _ => None,
    }
}

/// The size of their text.
fn text_bytes(chunks: &[ReplyChunk]) -> usize {
    chunks.iter().filter_map(text_of).map(str::len).sum()
}
