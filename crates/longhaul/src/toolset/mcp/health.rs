//! When a server that has died, or would not start, is tried again. Time is a parameter.

use std::time::Duration;

use tokio::time::Instant;

/// A server that has run for so long was well.
const WELL: Duration = Duration::from_secs(60);
/// The longest time between two tries.
const LONGEST: Duration = Duration::from_secs(30);

/// How a server has behaved.
#[derive(Debug, Default)]
pub(super) struct Health {
    deaths: u32,
    refusals: u32,
    not_before: Option<Instant>,
    why: Option<String>,
}

/// Whether it is tried now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Now,
    /// Wait until then: it has died too often.
    At(Instant),
    /// It would not start a moment ago, for this reason.
    Refused(String),
}

impl Health {
    pub(super) fn turn(&self, now: Instant) -> Turn {
        match (self.not_before.filter(|at| *at > now), &self.why) {
            (None, _) => Turn::Now,
            (Some(_), Some(why)) => Turn::Refused(why.clone()),
            (Some(at), None) => Turn::At(at),
        }
    }

    pub(super) fn started(&mut self) {
        (self.refusals, self.why) = (0, None);
    }

    /// It would not start.
    pub(super) fn refused(&mut self, now: Instant, why: &str) {
        self.refusals += 1;
        self.not_before = Some(now + doubled(Duration::from_secs(1), self.refusals));
        self.why = Some(why.to_owned());
    }

    /// It has died. After the first time it is started again at once.
    pub(super) fn died(&mut self, now: Instant, started: Instant) {
        if now.duration_since(started) >= WELL {
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
        let mut health = Health::default();
        assert_eq!(health.turn(begun), Turn::Now);
        let mut waits = Vec::new();
        for _ in 0..10 {
            health.died(begun, begun);
            waits.push(match health.turn(begun) {
                Turn::At(at) => (at - begun).as_millis(),
                other => {
                    assert_eq!(other, Turn::Now);
                    0
                }
            });
            health.started();
        }
        assert_eq!(waits, [0, 250, 500, 1000, 2000, 4000, 8000, 16000, 30000, 30000]);
        health.died(begun + WELL, begun);
        assert_eq!(health.turn(begun + WELL), Turn::Now, "it was well in between");
    }

    #[test]
    fn whoever_would_not_start_is_not_tried_by_each_who_asks() {
        let begun = Instant::now();
        let mut health = Health::default();
        health.refused(begun, "no such command");
        assert_eq!(health.turn(begun), Turn::Refused("no such command".to_owned()));
        assert_eq!(health.turn(begun + Duration::from_secs(1)), Turn::Now);
        health.refused(begun, "no such command");
        assert_eq!(
            health.turn(begun + Duration::from_millis(1999)),
            Turn::Refused("no such command".to_owned())
        );
        health.started();
        assert_eq!(health.turn(begun + Duration::from_secs(2)), Turn::Now);
    }
}
