//! Spreads new connections out a little.
//!
//! A server takes connections from a queue that often has room for only 128. If a thousand agents start at once and
//! the queue is full, the kernel drops the rest, and they connect a second later.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// So many connections are made at once.
const AT_ONCE: u32 = 64;
/// From then on one in this time.
const STEP: Duration = Duration::from_micros(250);

/// When the next connection may be made.
#[derive(Debug, Default)]
pub(super) struct ConnectPace(Mutex<Option<Instant>>);

impl ConnectPace {
    /// Waits until another connection may be made.
    pub(super) async fn wait(&self) {
        let now = Instant::now();
        let turn = self.next_turn(now);
        if turn > now {
            tokio::time::sleep_until(turn).await;
        }
    }

    fn next_turn(&self, now: Instant) -> Instant {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let burst = STEP * AT_ONCE;
        // What was not used is saved up, as far as for one burst.
        let turn = last.map_or(now, |last| (last + STEP).max(now));
        *last = Some(turn);
        turn.checked_sub(burst).map_or(now, |turn| turn.max(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_first_connect_at_once_and_the_others_one_after_the_other() {
        let (pace, begin) = (ConnectPace::default(), Instant::now());
        let waits: Vec<Duration> = (0..=AT_ONCE + 10).map(|_| pace.next_turn(begin) - begin).collect();
        assert!(waits[..=AT_ONCE as usize].iter().all(Duration::is_zero), "{waits:?}");
        let after: Vec<Duration> = (1..=10).map(|n| STEP * n).collect();
        assert_eq!(waits[AT_ONCE as usize + 1..], after);
        let later = begin + Duration::from_secs(60);
        let waits = (0..=AT_ONCE).map(|_| pace.next_turn(later) - later);
        assert!(
            waits.into_iter().all(|wait| wait.is_zero()),
            "not more than one burst is saved up, nor less"
        );
    }
}
