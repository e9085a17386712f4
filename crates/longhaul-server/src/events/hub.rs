//! The one reader of the feed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use longhaul::store::{FeedItem, FeedPosition, FeedScope, HintStream, Store, StoreError};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::frame::{self, Frame};
use super::projection::Projection;
use super::ring::Ring;

/// How many entries are read at once.
const AT_ONCE: usize = 500;
/// How often to look even without a hint: hints may be lost.
const RECHECK: Duration = Duration::from_secs(5);
/// How long to wait after a read that failed.
const PAUSE: Duration = Duration::from_secs(1);
/// How long a reader that finds many entries at once waits for more of them.
const BUSY: Duration = Duration::from_millis(20);
/// How many entries are many.
const MANY: usize = 32;

/// How much the hub keeps, and how it treats watchers.
#[derive(Debug, Clone)]
pub struct HubOptions {
    /// How many bytes of events are kept in memory.
    pub ring_bytes: usize,
    /// How long a stream may be silent before a comment is sent.
    pub heartbeat: Duration,
    /// How long a client waits before it connects again.
    pub retry: Duration,
}

impl Default for HubOptions {
    fn default() -> HubOptions {
        HubOptions { ring_bytes: 8 << 20, heartbeat: Duration::from_secs(15), retry: Duration::from_secs(2) }
    }
}

/// Reads what happens to all tasks, while anyone watches. Clones share it.
#[derive(Clone)]
pub struct EventHub(pub(super) Arc<HubInner>);

pub(super) struct HubInner {
    pub(super) store: Arc<dyn Store>,
    pub(super) options: HubOptions,
    ring: Mutex<Ring>,
    /// A watcher came or went, or the hub began to read.
    pub(super) changed: Notify,
    draining: CancellationToken,
    tasks: TaskTracker,
    events: AtomicU64,
    pub(super) lagged: AtomicU64,
}

/// Figures about a hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HubStats {
    /// Open streams.
    pub watchers: usize,
    /// Bytes of events in memory.
    pub ring_bytes: usize,
    /// Events so far.
    pub events: u64,
    /// Streams that were closed because their reader was too slow.
    pub lagged: u64,
}

impl EventHub {
    /// Starts a hub. It ends, and all streams with it, when `draining` is cancelled.
    pub fn start(store: Arc<dyn Store>, options: HubOptions, draining: CancellationToken) -> EventHub {
        let ring = Mutex::new(Ring::new(options.ring_bytes));
        let hub = EventHub(Arc::new(HubInner {
            store,
            options,
            ring,
            changed: Notify::new(),
            draining,
            tasks: TaskTracker::new(),
            events: AtomicU64::new(0),
            lagged: AtomicU64::new(0),
        }));
        let reader = hub.0.clone();
        hub.0.tasks.spawn(async move {
            let draining = reader.draining.clone();
            tokio::select! {
                () = draining.cancelled() => {}
                () = reader.run() => {}
            }
        });
        hub.0.tasks.close();
        hub
    }

    /// Cancelled when the server drains.
    pub fn draining(&self) -> &CancellationToken {
        &self.0.draining
    }

    /// Waits until the hub has ended.
    pub async fn ended(&self) {
        self.0.tasks.wait().await;
    }

    /// Figures about it.
    pub fn stats(&self) -> HubStats {
        let ring = self.0.ring();
        HubStats {
            watchers: ring.watchers(),
            ring_bytes: ring.bytes(),
            events: self.0.events.load(Ordering::Relaxed),
            lagged: self.0.lagged.load(Ordering::Relaxed),
        }
    }
}

impl HubInner {
    pub(super) fn draining(&self) -> &CancellationToken {
        &self.draining
    }

    /// Nothing is left half-done under the lock.
    pub(super) fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn run(&self) {
        loop {
            self.wait_for_watchers(true).await;
            let hints = self.store.hints();
            match self.store.feed_end().await {
                Ok(position) => {
                    self.ring().begin(position);
                    self.changed.notify_waiters();
                    tokio::select! {
                        () = self.read(position, hints) => return,
                        () = self.wait_for_watchers(false) => {}
                    }
                    // Whoever comes later reads from the store what nobody has watched.
                    let mut ring = self.ring();
                    ring.clear();
                    ring.wake_all();
                }
                Err(error) => {
                    tracing::warn!(%error, "the events cannot be read; trying again");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Waits until there are watchers, or until there are none.
    async fn wait_for_watchers(&self, some: bool) {
        loop {
            let changed = self.changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            if (self.ring().watchers() > 0) == some {
                return;
            }
            changed.await;
        }
    }

    /// Reads until the store is closed.
    async fn read(&self, mut position: FeedPosition, mut hints: HintStream) {
        let mut projection = Projection::default();
        loop {
            match self.store.read_feed(FeedScope::All, position, AT_ONCE).await {
                Ok(page) => {
                    let (count, more) = (page.items.len(), page.more);
                    position = page.position;
                    let frames = self.frames(&mut projection, page.items).await;
                    self.events.fetch_add(frames.len() as u64, Ordering::Relaxed);
                    if !frames.is_empty() {
                        self.ring().append(frames);
                    }
                    if more {
                        continue;
                    }
                    if count >= MANY {
                        // Reading much now and then costs less than reading a little all the time.
                        tokio::time::sleep(BUSY).await;
                    }
                }
                Err(StoreError::UnknownPosition(_)) => {
                    // The store has lost its latest entries; its readers find out.
                    let Ok(end) = self.store.feed_end().await else { continue };
                    position = end;
                    let mut ring = self.ring();
                    ring.begin(end);
                    ring.append(vec![frame::deleted(end)]);
                }
                Err(StoreError::Closed) => return,
                Err(error) => {
                    tracing::warn!(%error, "the events cannot be read; trying again");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            }
            tokio::select! {
                hint = hints.next() => if hint.is_none() { return },
                () = tokio::time::sleep(RECHECK) => {}
            }
            // One read is enough for all hints up to now.
            while let Some(Some(_)) = hints.next().now_or_never() {}
        }
    }

    async fn frames(&self, projection: &mut Projection, items: Vec<FeedItem>) -> Vec<Frame> {
        let mut frames = Vec::with_capacity(items.len());
        for item in items {
            frames.extend(item_frames(&*self.store, projection, item).await);
        }
        frames
    }
}

/// The frames of an item of the feed.
pub(super) async fn item_frames(
    store: &dyn Store,
    projection: &mut Projection,
    item: FeedItem,
) -> Vec<Frame> {
    match item {
        FeedItem::Deleted { position } => vec![frame::deleted(position)],
        FeedItem::Entry { position, task, root, record } => {
            match projection.project(store, task, &record).await {
                Ok(events) => frame::frames(position, root, &events),
                Err(error) => {
                    tracing::warn!(%task, %error, "the events of an entry are left out: its journal cannot be read");
                    Vec::new()
                }
            }
        }
    }
}
