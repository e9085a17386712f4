//! When somebody else's lease has run out.
//!
//! Nobody compares clocks with anybody. Whoever wants to know watches the row of a lease: when it was not renewed for as
//! long as the lease is, by the watcher's own clock, it has run out. The owner, who counts from before it asked for the
//! renewal, has stopped by then. A process that has just started therefore takes nothing away for one lease, unless the
//! store can prove that the owner is dead.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::id::WorkerId;

/// The length that is assumed of a lease which does not say it: what an earlier Longhaul wrote.
pub(super) const ASSUMED_LENGTH: Duration = Duration::from_secs(15);
/// What was not looked at for so long is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(3600);

/// What can be seen of a lease. It changes with every renewal, and with nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LeaseRenewal {
    /// How often it was renewed.
    pub(super) count: i64,
    /// Until when it lasts, by its owner's clock, in milliseconds since 1970: what an earlier Longhaul changes.
    pub(super) until: i64,
    /// How long it is.
    pub(super) length: Duration,
}

#[derive(Debug)]
struct WatchedLease {
    renewal: LeaseRenewal,
    /// When it was looked at last.
    last: Duration,
    /// For how long it has been watched without a renewal.
    watched: Duration,
}

/// Whoever watches the leases of others.
#[derive(Debug, Default)]
pub(super) struct LeaseWatch(Mutex<HashMap<WorkerId, WatchedLease>>);

impl LeaseWatch {
    /// Looks at a lease, and says whether it has run out. It has to be looked at again and again: what passes between two
    /// looks counts for no more than a third of the lease, however long it was. We may have been asleep ourselves, and
    /// its owner with us.
    ///
    /// `before` and `now` are the times before and after the look: it is sure that there was no other renewal from the end
    /// of one look to the beginning of the next.
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
        // Rounded up, so that three looks are enough.
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
        // The owner lived five seconds ago, and then everybody slept for an hour.
        assert!(!look(1, 0));
        assert!(!look(1, 5));
        assert!(!look(1, 3600), "it may be about to renew");
        assert!(look(1, 3605));
    }

    /// Whoever is stopped in the middle of a look does not know what happened after it had looked.
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
