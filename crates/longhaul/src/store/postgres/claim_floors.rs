//! Where the search for pending tasks begins.
//!
//! A task that was claimed leaves an entry in the index of pending tasks that the server cannot clean up while a transaction
//! stays open anywhere in its cluster. A search from the beginning would walk over all of them, each time. So it begins
//! after what was claimed a moment ago: whatever was submitted before that is visible by now. A task that is released is
//! pending again at its old place, so a release that is heard of, here or elsewhere, makes the search begin from the beginning,
//! and so does every fifth second, for what was not heard of.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tokio::sync::broadcast;

use crate::entry::EntryKind;
use crate::store::{EntryKinds, Hint};

/// How old a place has to be before it is used: much longer than a transaction takes that submits.
const SETTLED: Duration = Duration::from_millis(500);
/// How often everything is searched.
const WHOLE: Duration = Duration::from_secs(5);

/// The places where searches begin, by the teams that are searched for.
pub(super) struct ClaimFloors {
    hints: broadcast::Receiver<Hint>,
    floors: HashMap<Vec<String>, Floor>,
    /// Whether the last search found nothing.
    pub(super) found_nothing: bool,
}

/// Below each of these numbers nothing was pending: when the search ended that noticed it.
struct Floor {
    /// Used now.
    used: i64,
    /// Used next.
    next: i64,
    newest: i64,
    /// When `next` was taken.
    since: Instant,
    searched_whole: Instant,
}

impl ClaimFloors {
    pub(super) fn new(hints: broadcast::Receiver<Hint>) -> ClaimFloors {
        ClaimFloors { hints, floors: HashMap::new(), found_nothing: false }
    }

    /// Where to begin to search for tasks of these teams: no task before this place has to be looked at.
    pub(super) fn begin(&mut self, teams: &[String], now: Instant) -> i64 {
        if self.is_released() {
            self.forget();
        }
        let Some(floor) = self.floors.get_mut(teams) else {
            let floor = Floor { used: 0, next: 0, newest: 0, since: now, searched_whole: now };
            self.floors.insert(teams.to_vec(), floor);
            return 0;
        };
        if now.duration_since(floor.since) >= SETTLED {
            (floor.used, floor.next, floor.since) = (floor.next, floor.newest, now);
        }
        if now.duration_since(floor.searched_whole) >= WHOLE {
            floor.searched_whole = now;
            return 0;
        }
        floor.used
    }

    /// Takes over that these many tasks, the last one at this place, were claimed, of as many as were asked for.
    pub(super) fn claimed(&mut self, teams: &[String], last: i64, all: bool) {
        let Some(floor) = self.floors.get_mut(teams) else { return };
        let after = last.saturating_add(1);
        if all && after < floor.used {
            // There may be more before the place where the next search would begin.
            (floor.used, floor.next, floor.newest) = (after, after, after);
        }
        floor.newest = floor.newest.max(after);
    }

    /// The next searches begin from the beginning.
    pub(super) fn forget(&mut self) {
        self.floors.clear();
    }

    /// Whether a task was released since this was last asked, or may have been.
    fn is_released(&mut self) -> bool {
        let released = EntryKinds::from_kinds([EntryKind::Released]);
        let mut found = false;
        loop {
            match self.hints.try_recv() {
                Ok(Hint::Task { kinds, .. }) => found |= kinds.intersects(released),
                Ok(Hint::Lagged) => {}
                Err(broadcast::error::TryRecvError::Lagged(_)) => found = true,
                Err(_) => return found,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::TaskKey;

    #[test]
    fn a_search_begins_after_what_was_claimed_a_moment_ago() {
        let (hints, heard) = broadcast::channel(4);
        let mut floors = ClaimFloors::new(heard);
        let (zero, teams) = (Instant::now(), ["team".to_owned()]);
        let at = |ms: u64| zero + Duration::from_millis(ms);
        assert_eq!(floors.begin(&teams, at(0)), 0);
        floors.claimed(&teams, 10, false);
        assert_eq!(floors.begin(&teams, at(400)), 0, "what was submitted before may not be visible yet");
        assert_eq!(floors.begin(&teams, at(500)), 0);
        floors.claimed(&teams, 20, true);
        assert_eq!(floors.begin(&teams, at(1_000)), 11);
        assert_eq!(floors.begin(&["other".to_owned()], at(1_000)), 0);
        assert_eq!(floors.begin(&teams, at(5_000)), 0, "all of it, from time to time");
        assert_eq!(floors.begin(&teams, at(5_100)), 21);
        // An older one was found then, and there may be more.
        floors.claimed(&teams, 5, true);
        assert_eq!(floors.begin(&teams, at(5_200)), 6);
        let task = TaskKey::named("released").candidate_ids().next().unwrap();
        let kinds = EntryKinds::from_kinds([EntryKind::Released]);
        hints.send(Hint::Lagged).unwrap();
        assert_eq!(floors.begin(&teams, at(5_300)), 6);
        hints.send(Hint::Task { task, root: task, kinds }).unwrap();
        assert_eq!(floors.begin(&teams, at(5_400)), 0, "a released task is at its old place");
        floors.claimed(&teams, 30, false);
        floors.begin(&teams, at(5_900));
        assert_eq!(floors.begin(&teams, at(6_400)), 31);
        for _ in 0..6 {
            hints.send(Hint::Lagged).unwrap();
        }
        assert_eq!(floors.begin(&teams, at(6_500)), 0, "hints were lost");
    }
}
