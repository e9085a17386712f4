//! The clock of a store.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

/// Where a store gets the time from; tests use their own.
///
/// It has two clocks. The wall clock dates entries; it may be set, and two processes may disagree about it.
/// The other only measures elapsed time; leases are judged by it.
#[derive(Clone)]
pub struct Clock {
    wall: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    elapsed: Arc<dyn Fn() -> Duration + Send + Sync>,
}

impl Clock {
    /// The clocks of this machine.
    pub fn system() -> Self {
        Clock::with_elapsed(Timestamp::now, since_boot)
    }

    /// A clock from one function that never goes back. It also measures elapsed time.
    pub fn from_fn(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        let wall: Arc<dyn Fn() -> Timestamp + Send + Sync> = Arc::new(now);
        let same = wall.clone();
        let elapsed =
            move || Duration::from_millis(u64::try_from(same().as_millisecond()).unwrap_or_default());
        Clock { wall, elapsed: Arc::new(elapsed) }
    }

    /// A clock from two functions: one for the wall-clock time, one for the time elapsed since some moment.
    /// The second must never go back.
    pub fn with_elapsed(
        now: impl Fn() -> Timestamp + Send + Sync + 'static,
        elapsed: impl Fn() -> Duration + Send + Sync + 'static,
    ) -> Self {
        Clock { wall: Arc::new(now), elapsed: Arc::new(elapsed) }
    }

    /// The wall-clock time in whole milliseconds, as journals keep it.
    pub fn now(&self) -> Timestamp {
        let now = (self.wall)();
        Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now)
    }

    /// The time elapsed since some moment: only differences are meaningful, and only within this process.
    pub fn elapsed(&self) -> Duration {
        (self.elapsed)()
    }
}

/// The time since the machine was started, including sleep where the system can tell.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn since_boot() -> Duration {
    use nix::time::{ClockId, clock_gettime};
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or_else(|_| since_start(), Duration::from)
}

/// On these systems this clock continues while the machine sleeps.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn since_boot() -> Duration {
    use nix::time::{ClockId, clock_gettime};
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or_else(|_| since_start(), Duration::from)
}

fn since_start() -> Duration {
    static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    START.get_or_init(std::time::Instant::now).elapsed()
}
