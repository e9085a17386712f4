//! One open stream of events.

use std::collections::{HashSet, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::body::Bytes;
use futures::Stream;
use longhaul::TaskId;
use longhaul::entry::Entry;
use longhaul::store::{FeedItem, FeedScope, LiveReader, StoreError};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::frame::{self, Audience, EventId, Frame};
use super::hub::{EventHub, HubInner, item_frames};
use super::projection::Projection;
use super::ring::{Entrance, Found};

/// How many entries are read at once from the store: they wait here until they are sent.
const AT_ONCE: usize = 64;
/// How many bytes are taken from the ring at once. They are shared with it.
const BYTES_AT_ONCE: usize = 64 << 10;

/// Ends a single stream, for example because its token was revoked. Put it into the request's extensions.
#[derive(Debug, Clone)]
pub struct StreamEnd(pub CancellationToken);

/// Where a stream begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchStart {
    /// After this event.
    After(EventId),
    /// With the first event that there is.
    First,
    /// With what happens from now on.
    Now,
}

/// What a stream has.
#[derive(Debug, Clone)]
pub struct Watch {
    /// The journals to read.
    pub scope: FeedScope,
    /// Only this task and those below it. The scope has to be its tree.
    pub below: Option<TaskId>,
    /// The tasks that are known to be below it.
    pub known_below: HashSet<TaskId>,
    /// The task whose tree shows streamed text while it is written.
    pub live: Option<TaskId>,
    /// Where it begins.
    pub start: WatchStart,
    /// Whether the stream ends with this task.
    pub until_end_of: Option<TaskId>,
    /// Ends this stream.
    pub end: Option<CancellationToken>,
}

impl EventHub {
    /// Whether a reader that has seen everything up to an event has seen the end of a task that has ended. Not
    /// if the event is unknown: the reader has to be told so.
    pub async fn has_seen_end(&self, task: TaskId, after: EventId) -> Result<bool, StoreError> {
        match self.0.store.read_feed(FeedScope::Task(task), after.read_from(), AT_ONCE).await {
            Ok(page) => Ok(!page.more && after.seen.is_none() && !page.items.iter().any(is_end)),
            Err(StoreError::UnknownPosition(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Opens a stream of events, as the bytes of `text/event-stream`. Dropping it closes it.
    pub fn watch(&self, watch: Watch) -> impl Stream<Item = Result<Bytes, Infallible>> + Send + use<> {
        let notify = self.0.ring().enter(watch.scope);
        self.0.changed.notify_waiters();
        let live = watch.live.map(|root| self.0.store.read_live(root));
        let mut below = watch.known_below;
        below.extend(watch.below);
        let watcher = Watcher {
            ends: watch.end.unwrap_or_default(),
            hub: self.0.clone(),
            scope: watch.scope,
            below: watch.below.map(|_| below),
            until_end_of: watch.until_end_of,
            notify,
            _live: live,
            stage: Stage::Opening(watch.start),
            after: None,
            queue: VecDeque::new(),
        };
        futures::stream::unfold(watcher, |mut watcher| async move {
            let bytes = watcher.next().await?;
            Some((Ok(bytes), watcher))
        })
    }
}

fn is_end(item: &FeedItem) -> bool {
    matches!(item, FeedItem::Entry { record, .. } if matches!(record.entry, Entry::Finished(_)))
}

enum Stage {
    Opening(WatchStart),
    /// Reading from the store.
    Behind(Box<Projection>),
    /// Reading from the ring; this is the next frame.
    Inside(u64),
    Over,
}

struct Watcher {
    hub: Arc<HubInner>,
    scope: FeedScope,
    below: Option<HashSet<TaskId>>,
    until_end_of: Option<TaskId>,
    notify: Arc<Notify>,
    _live: Option<LiveReader>,
    ends: CancellationToken,
    stage: Stage,
    /// The last event that was put into the queue.
    after: Option<EventId>,
    queue: VecDeque<Bytes>,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.hub.ring().leave(self.scope);
        self.hub.changed.notify_waiters();
    }
}

impl Watcher {
    /// The next bytes; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(bytes) = self.queue.pop_front() {
                return Some(bytes);
            }
            if matches!(self.stage, Stage::Over) {
                return None;
            }
            let (hub, ends) = (self.hub.clone(), self.ends.clone());
            let draining = hub.draining();
            tokio::select! {
                biased;
                () = draining.cancelled() => self.finish(frame::bye("the server is shutting down; connect again")),
                () = ends.cancelled() => self.finish(frame::bye("this stream was ended by the server")),
                () = self.step() => {}
            }
        }
    }

    fn finish(&mut self, last: Bytes) {
        self.queue.push_back(last);
        self.stage = Stage::Over;
    }

    /// Does what is next: afterwards the queue has something, or the stage has changed. Can be dropped.
    async fn step(&mut self) {
        match &mut self.stage {
            Stage::Opening(start) => {
                let start = *start;
                self.open(start).await;
            }
            Stage::Behind(_) => self.catch_up().await,
            Stage::Inside(next) => {
                let next = *next;
                self.follow(next).await;
            }
            Stage::Over => {}
        }
    }

    async fn open(&mut self, start: WatchStart) {
        let store = &self.hub.store;
        let id = match start {
            WatchStart::After(id) => Ok(id),
            WatchStart::First => store.feed_start().await.map(EventId::after),
            WatchStart::Now => store.feed_end().await.map(EventId::after),
        };
        match id {
            Ok(id) => {
                // Without data it is no event, but a client that loses the connection now knows where it was.
                let retry = self.hub.options.retry.as_millis();
                self.queue.push_back(format!("retry: {retry}\nid: {id}\n\n").into());
                self.after = Some(id);
                self.stage = Stage::Behind(Box::default());
            }
            Err(error) => self.fail(&error),
        }
    }

    /// Reads the next entries from the store, unless it is inside the ring.
    async fn catch_up(&mut self) {
        let Some(after) = self.after else { return };
        let hub = self.hub.clone();
        let mut changed = std::pin::pin!(hub.changed.notified());
        changed.as_mut().enable();
        let entrance = hub.ring().entrance(after);
        match entrance {
            // Also refuses a position that the store does not have.
            Entrance::At(next) if self.is_known(after).await => self.stage = Stage::Inside(next),
            Entrance::NotYet if self.is_known(after).await => changed.await,
            _ => self.read_store(after).await,
        }
    }

    /// Whether the position is one that the store has. A client may send any.
    async fn is_known(&self, after: EventId) -> bool {
        let end = self.hub.store.feed_end().await;
        end.is_ok_and(|end| end.store() == after.position.store() && after.position <= end)
    }

    async fn read_store(&mut self, after: EventId) {
        let page = self.hub.store.read_feed(self.scope, after.read_from(), AT_ONCE).await;
        let page = match page {
            Ok(page) => page,
            Err(StoreError::UnknownPosition(_)) => return self.reset().await,
            Err(error) => return self.fail(&error),
        };
        let hub = self.hub.clone();
        let mut frames = Vec::new();
        if let Stage::Behind(projection) = &mut self.stage {
            for item in page.items {
                frames.extend(item_frames(&*hub.store, projection, item).await);
            }
        }
        for frame in frames {
            if after.is_before(&frame) {
                self.take(&frame).await;
            }
        }
        // Also past what is not for this watcher.
        if !matches!(self.stage, Stage::Over) {
            self.after = Some(EventId::after(page.position));
        }
    }

    /// Waits for the next events in the ring.
    async fn follow(&mut self, next: u64) {
        let notify = self.notify.clone();
        let news = notify.notified();
        let mut news = std::pin::pin!(news);
        news.as_mut().enable();
        let Some(after) = self.after else { return };
        let found = self.hub.ring().read(self.scope, next, BYTES_AT_ONCE, |frame| after.is_before(frame));
        match found {
            Found::Lagging => {
                self.hub.lagged.fetch_add(1, Ordering::Relaxed);
                self.finish(frame::lagging());
            }
            Found::Frames(frames, next) => {
                self.stage = Stage::Inside(next);
                let had_some = !frames.is_empty();
                for frame in frames {
                    self.take(&frame).await;
                }
                if !had_some && tokio::time::timeout(self.hub.options.heartbeat, news).await.is_err() {
                    self.queue.push_back(Bytes::from_static(b": still here\n\n"));
                }
            }
        }
    }

    /// Puts an event into the queue, if it is for this watcher.
    async fn take(&mut self, frame: &Frame) {
        if matches!(self.stage, Stage::Over) {
            return;
        }
        match frame.audience {
            Audience::Everyone => {
                if self.scope == FeedScope::All {
                    self.push(frame);
                } else if self.is_deleted().await {
                    self.finish(frame.bytes.clone());
                }
            }
            Audience::Task { task, child_of, is_end, .. } => {
                if let Some(below) = &mut self.below {
                    if child_of.is_some_and(|parent| below.contains(&parent)) {
                        below.insert(task);
                    }
                    if !below.contains(&task) {
                        return;
                    }
                }
                self.push(frame);
                if is_end && self.until_end_of == Some(task) {
                    self.finish(frame::bye("the task has ended"));
                }
            }
        }
    }

    fn push(&mut self, frame: &Frame) {
        self.queue.push_back(frame.bytes.clone());
        self.after = Some(frame.id);
    }

    /// Whether the watched task is gone.
    async fn is_deleted(&self) -> bool {
        let (FeedScope::Task(task) | FeedScope::Tree(task)) = self.scope else { return false };
        matches!(self.hub.store.task_state(task).await, Ok(None))
    }

    /// Tells the client to read everything anew, and goes on from now.
    async fn reset(&mut self) {
        match self.hub.store.feed_end().await {
            Ok(end) => {
                let id = EventId::after(end);
                self.queue.push_back(frame::reset(id, "the event that you came from is not known here"));
                self.after = Some(id);
            }
            Err(error) => self.fail(&error),
        }
    }

    fn fail(&mut self, error: &StoreError) {
        tracing::error!(%error, "an event stream ends: the store cannot be read");
        self.finish(frame::bye("the store cannot be read; connect again"));
    }
}
