//! What was wrong with a connection, as whoever read it found out: the reason that is told instead of its consequences.

use std::sync::{Arc, OnceLock};

use tokio_util::sync::CancellationToken;

/// A handle: clones are of the same connection.
#[derive(Clone, Default)]
pub(super) struct ConnectionFault(Arc<FaultState>);

#[derive(Default)]
struct FaultState {
    /// What made it useless.
    fatal: OnceLock<String>,
    raised: CancellationToken,
}

impl ConnectionFault {
    /// The connection is of no use any more.
    pub(super) fn raise(&self, why: impl Into<String>) {
        let _ = self.0.fatal.set(why.into());
        self.0.raised.cancel();
    }

    /// Until it is of no use any more; answers why.
    pub(super) async fn until_raised(&self) -> String {
        self.0.raised.cancelled().await;
        self.0.fatal.get().cloned().unwrap_or_default()
    }

    /// Why it is of no use any more, if that is so.
    pub(super) fn reason(&self) -> Option<&str> {
        self.0.fatal.get().map(String::as_str)
    }
}
