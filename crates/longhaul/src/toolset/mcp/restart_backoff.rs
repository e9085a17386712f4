//! Decides when a server that has crashed or failed to start is tried again. Time is a parameter.

use std::time::Duration;

use tokio::time::Instant;

/// A server that has run this long counts as healthy.
const HEALTHY_AFTER: Duration = Duration::from_secs(60);
/// The longest time between two attempts.
const LONGEST: Duration = Duration::from_secs(30);

/// The recent crashes and failed starts of a server.
#[derive(Debug, Default)]
pub(super) struct RestartBackoff {
    deaths: u32,
    refusals: u32,
    not_before: Option<Instant>,
    why: Option<String>,
}

/// Whether to start the server now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RestartDecision {
    Now,
    /// Wait until then: it has crashed too often.
    At(Instant),
    /// It failed to start a moment ago, for this reason.
    FailedRecently(String),
}

impl RestartBackoff {
    pub(super) fn decide(&self, now: Instant) -> RestartDecision {
        match (self.not_before.filter(|at| *at > now), &self.why) {
            (None, _) => RestartDecision::Now,
            (Some(_), Some(why)) => RestartDecision::FailedRecently(why.clone()),
            (Some(at), None) => RestartDecision::At(at),
        }
    }

    pub(super) fn record_start(&mut self) {
        (self.refusals, self.why) = (0, None);
    }

    pub(super) fn record_failed_start(&mut self, now: Instant, why: &str) {
        self.refusals += 1;
        self.not_before = Some(now + doubled(Duration::from_secs(1), self.refusals));
        self.why = Some(why.to_owned());
    }

    /// Records a crash. After the first one, the server restarts at once.
    pub(super) fn record_crash(&mut self, now: Instant, started: Instant) {
        if now.duration_since(started) >= HEALTHY_AFTER {
            self.deaths = 0;
        }
        self.deaths += 1;
        self.why = None;
        self.not_before = match self.deaths {
            1 => None,
            more => Some(now + doubled(Duration::from_millis(250), more - 1)),
        };
    }
}

fn doubled(first: Duration, times: u32) -> Duration {
    first.saturating_mul(1 << (times - 1).min(10)).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_dies_again_and_again_is_started_more_and_more_slowly() {
        let begun = Instant::now();
        let mut backoff = RestartBackoff::default();
        assert_eq!(backoff.decide(begun), RestartDecision::Now);
        let mut waits = Vec::new();
        for _ in 0..10 {
            backoff.record_crash(begun, begun);
            waits.push(match backoff.decide(begun) {
                RestartDecision::At(at) => (at - begun).as_millis(),
                other => {
                    assert_eq!(other, RestartDecision::Now);
                    0
                }
            });
            backoff.record_start();
        }
        assert_eq!(waits, [0, 250, 500, 1000, 2000, 4000, 8000, 16000, 30000, 30000]);
        backoff.record_crash(begun + HEALTHY_AFTER, begun);
        assert_eq!(backoff.decide(begun + HEALTHY_AFTER), RestartDecision::Now, "it was well in between");
    }

    #[test]
    fn whoever_would_not_start_is_not_tried_by_each_who_asks() {
        let begun = Instant::now();
        let mut backoff = RestartBackoff::default();
        backoff.record_failed_start(begun, "no such command");
        assert_eq!(backoff.decide(begun), RestartDecision::FailedRecently("no such command".to_owned()));
        assert_eq!(backoff.decide(begun + Duration::from_secs(1)), RestartDecision::Now);
        backoff.record_failed_start(begun, "no such command");
        assert_eq!(
            backoff.decide(begun + Duration::from_millis(1999)),
            RestartDecision::FailedRecently("no such command".to_owned())
        );
        backoff.record_start();
        assert_eq!(backoff.decide(begun + Duration::from_secs(2)), RestartDecision::Now);
    }
}
