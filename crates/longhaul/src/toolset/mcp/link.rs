//! A connection to a server that runs, and who is using it.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rmcp::{Peer, RoleClient};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::calls::Calls;

/// A connection. It is over once it is [`gone`](Link::gone); then the next who needs one makes another.
pub(super) struct Link {
    pub(super) peer: Peer<RoleClient>,
    pub(super) calls: Arc<Calls>,
    pub(super) since: Instant,
    usage: Mutex<Usage>,
    unused: Notify,
    gone: CancellationToken,
    why: OnceLock<String>,
}

struct Usage {
    users: usize,
    since: Instant,
    closed: bool,
}

impl Link {
    pub(super) fn new(peer: Peer<RoleClient>, calls: Arc<Calls>) -> Arc<Link> {
        let since = Instant::now();
        Arc::new(Link {
            peer,
            calls,
            since,
            usage: Mutex::new(Usage { users: 0, since, closed: false }),
            unused: Notify::new(),
            gone: CancellationToken::new(),
            why: OnceLock::new(),
        })
    }

    fn usage(&self) -> MutexGuard<'_, Usage> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Uses it, until what is returned is dropped; not, if it is over.
    pub(super) fn enter(self: &Arc<Self>) -> Option<InUse> {
        let mut usage = self.usage();
        if usage.closed {
            return None;
        }
        usage.users += 1;
        Some(InUse(self.clone()))
    }

    /// When nobody has used it for so long. Nobody can any more, then.
    pub(super) async fn idle(&self, longest: Option<Duration>) {
        let Some(longest) = longest else { return std::future::pending().await };
        loop {
            let unused = self.unused.notified();
            let due = {
                let mut usage = self.usage();
                match usage.users {
                    0 if usage.since.elapsed() >= longest => {
                        usage.closed = true;
                        return;
                    }
                    0 => usage.since.checked_add(longest),
                    _ => None,
                }
            };
            match due {
                Some(due) => tokio::time::sleep_until(due).await,
                None => unused.await,
            }
        }
    }

    /// It is over, for this reason.
    pub(super) fn end(&self, why: String) {
        self.usage().closed = true;
        let _ = self.why.set(why);
        self.gone.cancel();
    }

    /// Until it is over; answers why.
    pub(super) async fn gone(&self) -> &str {
        self.gone.cancelled().await;
        self.why.get().map_or("it ended", String::as_str)
    }
}

/// A use of a connection.
pub(super) struct InUse(Arc<Link>);

impl std::ops::Deref for InUse {
    type Target = Link;

    fn deref(&self) -> &Link {
        &self.0
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        let mut usage = self.0.usage();
        usage.users -= 1;
        usage.since = Instant::now();
        drop(usage);
        self.0.unused.notify_one();
    }
}
