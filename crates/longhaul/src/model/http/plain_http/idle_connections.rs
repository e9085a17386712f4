//! Connections that wait for the next request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::connection::PlainConnection;
use crate::model::http::client::POOL_IDLE_TIMEOUT;

/// Connections that wait for the next request, by host and port.
#[derive(Default)]
pub(super) struct IdleConnections {
    state: Mutex<IdleState>,
}

#[derive(Default)]
pub(super) struct IdleState {
    pub(super) by_host: HashMap<String, Vec<(Instant, PlainConnection)>>,
    /// Closes those that nobody has used for long. It runs while there are any.
    sweeper: JoinSet<()>,
}

impl IdleConnections {
    pub(super) fn lock(&self) -> MutexGuard<'_, IdleState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection that was used last, if it is still open.
    pub(super) fn take(&self, host: &str) -> Option<PlainConnection> {
        loop {
            let (_, mut connection) = self.lock().by_host.get_mut(host)?.pop()?;
            if connection.is_idle() {
                return Some(connection);
            }
        }
    }

    pub(super) fn put(self: &Arc<Self>, host: &str, connection: PlainConnection) {
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
