//! Detects the expired leases of other workers.
//!
//! Processes do not compare clocks. A watcher observes the row of a lease: if it was not renewed for the
//! length of the lease, by the watcher's own clock, it has expired. The owner counts from before it requested
//! the renewal, so it has stopped by then. A process that has just started therefore takes no task away for
//! one lease, unless the store can prove that the owner is dead.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::id::WorkerId;

/// The assumed length of a lease without one: an earlier version of Longhaul wrote it.
pub(super) const ASSUMED_LENGTH: Duration = Duration::from_secs(15);
/// A lease that was not checked for this long is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(3600);

/// The visible part of a lease. It changes with every renewal, and only then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LeaseRenewal {
    /// How often it was renewed.
    pub(super) count: i64,
    /// When it ends, by its owner's clock, in milliseconds since 1970: the only part that earlier versions of
    /// Longhaul change.
    pub(super) until: i64,
    /// How long it is.
    pub(super) length: Duration,
}

#[derive(Debug)]
struct WatchedLease {
    renewal: LeaseRenewal,
    /// When it was last checked.
    last: Duration,
    /// How long it was watched without a renewal.
    watched: Duration,
}

/// Watches the leases of other workers.
#[derive(Debug, Default)]
pub(super) struct LeaseWatch(Mutex<HashMap<WorkerId, WatchedLease>>);

impl LeaseWatch {
    /// Checks a lease, and returns whether it has expired. It has to be checked repeatedly: the time between
    /// two checks counts for at most a third of the lease, however long it was. This process may have been
    /// asleep, and the owner too.
    ///
    /// `before` and `now` are the times before and after the check: between the end of one check and the
    /// start of the next, there was certainly no other renewal.
    pub(super) fn has_run_out(
        &self,
        worker: &WorkerId,
        renewal: LeaseRenewal,
        before: Duration,
        now: Duration,
    ) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() > 256 {
            all.retain(|_, seen| now.saturating_sub(seen.last) < FORGOTTEN);
        }
        let fresh = || WatchedLease { renewal, last: now, watched: Duration::ZERO };
        let seen = all.entry(worker.clone()).or_insert_with(fresh);
        if seen.renewal != renewal {
            *seen = fresh();
        }
        // Rounded up, so that three checks are enough.
        let most = renewal.length / 3 + Duration::from_nanos(1);
        seen.watched = seen.watched.saturating_add(before.saturating_sub(seen.last).min(most));
        seen.last = seen.last.max(before);
        seen.watched >= renewal.length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(15);

    fn renewal(count: i64) -> LeaseRenewal {
        LeaseRenewal { count, until: 0, length: LEASE }
    }

    #[test]
    fn a_lease_has_run_out_when_it_was_watched_for_its_whole_length() {
        let (watch, w) = (LeaseWatch::default(), WorkerId::from("w"));
        let look = |count, at| {
            watch.has_run_out(&w, renewal(count), Duration::from_secs(at), Duration::from_secs(at))
        };
        assert!((0..15).all(|second| !look(1, second)));
        assert!(look(1, 15));
        assert!(!look(2, 16), "it was only late");
        assert!((16..31).all(|second| !look(2, second)));
        assert!(look(2, 31));
        let (other, late) = (WorkerId::from("v"), Duration::from_secs(1_000_000));
        assert!(!watch.has_run_out(&other, renewal(1), late, late), "it was never seen before");
    }

    #[test]
    fn who_was_asleep_has_not_watched() {
        let (watch, w) = (LeaseWatch::default(), WorkerId::from("w"));
        let look = |count, at| {
            watch.has_run_out(&w, renewal(count), Duration::from_secs(at), Duration::from_secs(at))
        };
        // The owner was alive five seconds ago, and then the machine slept for an hour.
        assert!(!look(1, 0));
        assert!(!look(1, 5));
        assert!(!look(1, 3600), "it may be about to renew");
        assert!(look(1, 3605));
    }

    /// A process that is suspended during a check does not know what happened after it had read.
    #[test]
    fn a_look_that_takes_long_proves_nothing() {
        let (watch, w) = (LeaseWatch::default(), WorkerId::from("w"));
        let look = |before, now| {
            watch.has_run_out(&w, renewal(1), Duration::from_secs(before), Duration::from_secs(now))
        };
        assert!(!look(0, 9), "it may have been renewed until then");
        assert!(!look(10, 100));
        assert!(!look(13, 13) && !look(17, 17) && !look(20, 20) && !look(23, 23));
        assert!(look(24, 24));
    }
}
