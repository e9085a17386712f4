//! What a store reads the time from.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

/// Where a store gets the time from; tests bring their own.
///
/// It is two clocks. The one on the wall dates entries; somebody may set it, and two processes may disagree about it. The
/// other only counts how much time passes; leases are judged by it.
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

    /// A clock that is a function, and never goes back: it also says how much time passes.
    pub fn from_fn(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        let wall: Arc<dyn Fn() -> Timestamp + Send + Sync> = Arc::new(now);
        let same = wall.clone();
        let elapsed =
            move || Duration::from_millis(u64::try_from(same().as_millisecond()).unwrap_or_default());
        Clock { wall, elapsed: Arc::new(elapsed) }
    }

    /// Two functions: one for the time of day, and one for the time that has passed since some moment, whatever the first
    /// says. The second never goes back.
    pub fn with_elapsed(
        now: impl Fn() -> Timestamp + Send + Sync + 'static,
        elapsed: impl Fn() -> Duration + Send + Sync + 'static,
    ) -> Self {
        Clock { wall: Arc::new(now), elapsed: Arc::new(elapsed) }
    }

    /// The time in whole milliseconds, which is how journals keep it.
    pub fn now(&self) -> Timestamp {
        let now = (self.wall)();
        Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now)
    }

    /// The time that has passed since some moment: only differences mean anything, and only within this process.
    pub fn elapsed(&self) -> Duration {
        (self.elapsed)()
    }
}

/// The time that has passed since the machine was started, while it was asleep too, where the system can tell.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn since_boot() -> Duration {
    use nix::time::{ClockId, clock_gettime};
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or_else(|_| since_start(), Duration::from)
}

/// On these systems this clock goes on while the machine is asleep.
#[cfg(all(unix, not(any(target_os = "linux", target_os = "android"))))]
pub(crate) fn since_boot() -> Duration {
    use nix::time::{ClockId, clock_gettime};
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or_else(|_| since_start(), Duration::from)
}

/// The time that has passed since this was first asked; a machine that sleeps may not count that.
#[cfg(not(unix))]
pub(crate) fn since_boot() -> Duration {
    since_start()
}

fn since_start() -> Duration {
    static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    START.get_or_init(std::time::Instant::now).elapsed()
}
