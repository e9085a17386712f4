//! A connection to a running server, and a count of its users.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rmcp::{Peer, RoleClient};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::running_calls::McpRunningCalls;

/// A connection. Once [`until_ended`](McpConnection::until_ended) returns, it is over, and the next user
/// makes a new one.
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

    /// Registers a user until the guard is dropped. Returns `None` if the connection is closed.
    pub(super) fn acquire(self: &Arc<Self>) -> Option<ConnectionGuard> {
        let mut usage = self.usage();
        if usage.closed {
            return None;
        }
        usage.users += 1;
        Some(ConnectionGuard(self.clone()))
    }

    /// Waits until the connection has been unused for `longest`, or is retired and unused. Then it is closed:
    /// no one can acquire it any more.
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

    /// Lets the current users finish, and makes the next one open a new connection.
    pub(super) fn retire(&self) {
        self.usage().closed = true;
        self.unused.notify_one();
    }

    /// Marks the connection as ended. `why` says what the server did, worded to follow its name.
    pub(super) fn mark_ended(&self, why: String) {
        self.usage().closed = true;
        let _ = self.why.set(why);
        self.ended.cancel();
    }

    /// Waits until the connection has ended; returns why.
    pub(super) async fn until_ended(&self) -> &str {
        self.ended.cancelled().await;
        self.why.get().map_or("ended", String::as_str)
    }
}

/// Keeps a connection in use.
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
