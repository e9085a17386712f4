//! A connection to a server that runs, and who is using it.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rmcp::{Peer, RoleClient};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::running_calls::McpRunningCalls;

/// A connection. It is over once it is [`gone`](McpConnection::gone); then the next who needs one makes another.
pub(super) struct McpConnection {
    pub(super) peer: Peer<RoleClient>,
    pub(super) calls: Arc<McpRunningCalls>,
    pub(super) since: Instant,
    usage: Mutex<ConnectionUsage>,
    unused: Notify,
    ended: CancellationToken,
    why: OnceLock<String>,
}

struct ConnectionUsage {
    users: usize,
    since: Instant,
    closed: bool,
}

impl McpConnection {
    pub(super) fn new(peer: Peer<RoleClient>, calls: Arc<McpRunningCalls>) -> Arc<McpConnection> {
        let since = Instant::now();
        Arc::new(McpConnection {
            peer,
            calls,
            since,
            usage: Mutex::new(ConnectionUsage { users: 0, since, closed: false }),
            unused: Notify::new(),
            ended: CancellationToken::new(),
            why: OnceLock::new(),
        })
    }

    fn usage(&self) -> MutexGuard<'_, ConnectionUsage> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Uses it, until what is returned is dropped; not, if it is over.
    pub(super) fn acquire(self: &Arc<Self>) -> Option<ConnectionGuard> {
        let mut usage = self.usage();
        if usage.closed {
            return None;
        }
        usage.users += 1;
        Some(ConnectionGuard(self.clone()))
    }

    /// When nobody has used it for so long, or nobody does and nobody should. Nobody can any more, then.
    pub(super) async fn until_idle(&self, longest: Option<Duration>) {
        loop {
            let unused = self.unused.notified();
            let due = {
                let mut usage = self.usage();
                let due = longest.and_then(|longest| usage.since.checked_add(longest));
                if usage.users == 0 && (usage.closed || due.is_some_and(|due| due <= Instant::now())) {
                    usage.closed = true;
                    return;
                }
                due.filter(|_| usage.users == 0)
            };
            let over = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = over => {}
                () = unused => {}
            }
        }
    }

    /// Something is wrong with it: who uses it may go on, and the next one gets another.
    pub(super) fn retire(&self) {
        self.usage().closed = true;
        self.unused.notify_one();
    }

    /// It is over, in this way: what the server did, in words that follow its name.
    pub(super) fn mark_ended(&self, why: String) {
        self.usage().closed = true;
        let _ = self.why.set(why);
        self.ended.cancel();
    }

    /// Until it is over; answers how that came.
    pub(super) async fn until_ended(&self) -> &str {
        self.ended.cancelled().await;
        self.why.get().map_or("ended", String::as_str)
    }
}

/// A use of a connection.
pub(super) struct ConnectionGuard(Arc<McpConnection>);

impl std::ops::Deref for ConnectionGuard {
    type Target = McpConnection;

    fn deref(&self) -> &McpConnection {
        &self.0
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        let mut usage = self.0.usage();
        usage.users -= 1;
        usage.since = Instant::now();
        drop(usage);
        self.0.unused.notify_one();
    }
}
