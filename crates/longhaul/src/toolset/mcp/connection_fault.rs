//! Records why a connection became unusable, so that errors name the cause and not its consequences.

use std::sync::{Arc, OnceLock};

use tokio_util::sync::CancellationToken;

/// A handle to the fault of one connection; clones share it.
#[derive(Clone, Default)]
pub(super) struct ConnectionFault(Arc<FaultState>);

#[derive(Default)]
struct FaultState {
    /// The reason, once the connection is unusable.
    fatal: OnceLock<String>,
    raised: CancellationToken,
}

impl ConnectionFault {
    /// Marks the connection as unusable.
    pub(super) fn raise(&self, why: impl Into<String>) {
        let _ = self.0.fatal.set(why.into());
        self.0.raised.cancel();
    }

    /// Waits until the connection is unusable; returns why.
    pub(super) async fn until_raised(&self) -> String {
        self.0.raised.cancelled().await;
        self.0.fatal.get().cloned().unwrap_or_default()
    }

    /// Returns why the connection is unusable, if it is.
    pub(super) fn reason(&self) -> Option<&str> {
        self.0.fatal.get().map(String::as_str)
    }
}
