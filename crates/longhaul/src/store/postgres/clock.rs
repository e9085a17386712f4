//! The time: the server's, carried on between two answers by this machine's clock.

use std::sync::atomic::{AtomicI64, Ordering};

use jiff::Timestamp;

use crate::store::{Clock, since_boot};

/// The server's time in milliseconds, as SQL. Not `now()`, which stands still in a transaction. The parameter is a time
/// to use instead.
macro_rules! server_ms {
    () => {
        "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
    };
}
pub(super) use server_ms;

/// The clock of a store.
pub(super) struct StoreClock {
    /// A clock instead of the server's.
    given: Option<Clock>,
    /// The server's time minus the time since this machine was started, in milliseconds.
    offset: AtomicI64,
}

impl StoreClock {
    pub(super) fn new(given: Option<Clock>) -> StoreClock {
        StoreClock { given, offset: AtomicI64::new(Timestamp::now().as_millisecond() - uptime()) }
    }

    /// Takes over what the server said the time is.
    pub(super) fn learn(&self, server: i64) {
        self.offset.store(server - uptime(), Ordering::Relaxed);
    }

    /// The time to date something with, of which the server has just said what time it is.
    pub(super) fn date(&self, server: i64) -> i64 {
        self.learn(server);
        self.given.as_ref().map_or(server, |clock| clock.now().as_millisecond())
    }

    /// The time in milliseconds.
    pub(super) fn now_ms(&self) -> i64 {
        match &self.given {
            Some(clock) => clock.now().as_millisecond(),
            None => self.offset.load(Ordering::Relaxed) + uptime(),
        }
    }

    /// The time.
    pub(super) fn now(&self) -> Timestamp {
        Timestamp::from_millisecond(self.now_ms()).unwrap_or_default()
    }

    /// What leases are judged by instead of the server's time, if anything: a clock that nobody sets.
    pub(super) fn lease_ms(&self) -> Option<i64> {
        let clock = self.given.as_ref()?;
        Some(i64::try_from(clock.elapsed().as_millis()).unwrap_or(i64::MAX))
    }

    /// The time that has passed on this machine.
    pub(super) fn elapsed(&self) -> std::time::Duration {
        self.given.as_ref().map_or_else(since_boot, Clock::elapsed)
    }

    /// Whether the server's clock is used.
    pub(super) fn is_servers(&self) -> bool {
        self.given.is_none()
    }
}

fn uptime() -> i64 {
    i64::try_from(since_boot().as_millis()).unwrap_or(i64::MAX)
}
