//! How many requests may run at once: pure arithmetic, without clocks and IO.
//!
//! A limit is fixed, or it follows the provider: it grows while requests wait and replies begin, and is
//! halved when the provider refuses. Both follow TCP's congestion control, which solves the same problem: to
//! find out how much the other side takes, without being told.

/// Where an adaptive limit begins, if there are enough file descriptors.
const INITIAL: usize = 256;
/// Where an adaptive limit begins at least, and up to where it always recovers fast.
const SMALL: usize = 4;
/// By how much a reply raises the limit until the provider refuses for the first time: a thousand requests run after the
/// first round of replies, not after the second.
const FIRST_GROWTH: usize = 3;
/// Above the threshold, this many replies raise the limit by one: by an eighth in a round of replies.
const SLOW_GROWTH: usize = 8;

/// The file descriptors of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Descriptors {
    /// How many it may have.
    pub(super) limit: usize,
    /// How many it can still open.
    pub(super) free: usize,
}

impl Descriptors {
    /// How many more connections may be opened in one go: a quarter of what is free. The last quarter of all
    /// descriptors is left for files and commands.
    fn step(self) -> usize {
        self.free.saturating_sub(self.limit / 4) / 4
    }
}

/// The maximum number of concurrent requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ConcurrencyLimit {
    current: usize,
    adaptive: Option<Adaptive>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Adaptive {
    /// The limit does not grow above this before someone looks how many descriptors are left.
    ceiling: usize,
    /// Below this the limit grows with every reply, above it slowly. It is half of what was running
    /// when the provider last refused after it had answered.
    threshold: usize,
    /// The replies that count towards the next step of slow growth.
    credit: usize,
    /// How many more replies begin before someone looks again how many descriptors are left.
    look_after: usize,
    /// How many requests had been admitted at the last cut.
    last_cut: Option<u64>,
    /// Whether a reply has begun since the last cut.
    answered: bool,
}

/// What a reply that begins does to the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Growth {
    /// It stays, for now.
    None,
    /// It is higher now.
    Grown,
    /// It would grow, but is at its ceiling: measure the descriptors and call
    /// [`raise_ceiling`](ConcurrencyLimit::raise_ceiling).
    AtCeiling,
}

impl ConcurrencyLimit {
    /// A limit that does not change. It is at least 1.
    pub(super) fn fixed(limit: usize) -> ConcurrencyLimit {
        ConcurrencyLimit { current: limit.max(1), adaptive: None }
    }

    /// A limit that follows the provider.
    pub(super) fn adaptive(descriptors: Descriptors) -> ConcurrencyLimit {
        let current = (descriptors.free / 4).clamp(SMALL, INITIAL);
        let adaptive = Adaptive {
            ceiling: current,
            threshold: usize::MAX,
            credit: 0,
            look_after: 0,
            last_cut: None,
            answered: false,
        };
        ConcurrencyLimit { current, adaptive: Some(adaptive) }
    }

    pub(super) fn current(&self) -> usize {
        self.current
    }

    pub(super) fn is_fixed(&self) -> bool {
        self.adaptive.is_none()
    }

    /// Fixes the limit. The smaller one counts if it is fixed already: two models that share an endpoint and
    /// a key may have different ones.
    pub(super) fn fix(&mut self, limit: usize) {
        let limit = if self.is_fixed() { limit.min(self.current) } else { limit };
        *self = ConcurrencyLimit::fixed(limit);
    }

    /// A reply begins. `room` says whether that speaks for more requests at once: others wait, and the reply was
    /// prompt. A limit that is not used up tells nothing about the provider, and a reply that was slow to begin
    /// tells that the provider has a queue of its own.
    pub(super) fn on_answer(&mut self, room: bool) -> Growth {
        let Some(adaptive) = &mut self.adaptive else { return Growth::None };
        adaptive.answered = true;
        if !room {
            return Growth::None;
        }
        if self.current >= adaptive.ceiling {
            let look = adaptive.look_after == 0;
            adaptive.look_after = if look { self.current } else { adaptive.look_after - 1 };
            return if look { Growth::AtCeiling } else { Growth::None };
        }
        adaptive.credit += 1;
        let price = if self.current < adaptive.threshold { 1 } else { self.current.min(SLOW_GROWTH) };
        if adaptive.credit < price {
            return Growth::None;
        }
        adaptive.credit = 0;
        let step = if adaptive.last_cut.is_none() { FIRST_GROWTH } else { 1 };
        self.current = self.current.saturating_add(step).min(adaptive.ceiling);
        Growth::Grown
    }

    /// Raises the ceiling as far as these descriptors allow.
    pub(super) fn raise_ceiling(&mut self, descriptors: Descriptors) {
        if let Some(adaptive) = &mut self.adaptive {
            let ceiling = self.current.saturating_add(descriptors.step());
            if ceiling > adaptive.ceiling {
                (adaptive.ceiling, adaptive.look_after) = (ceiling, 0);
            }
        }
    }

    /// The provider has refused a request while `running` were running. `before` is how many had been admitted
    /// when that request was, `admitted` how many have been by now. What was running is halved, but once for
    /// all requests of a round trip: those that were admitted before the last cut say nothing about the new
    /// limit.
    pub(super) fn on_refusal(&mut self, running: usize, before: u64, admitted: u64) {
        let Some(adaptive) = &mut self.adaptive else { return };
        if adaptive.last_cut.is_some_and(|cut| before < cut) {
            return;
        }
        // A limit of 256 with 10 running is not what the provider has refused.
        self.current = (running.min(self.current) / 2).max(1);
        // A provider that answers nothing at all is down. Its next refusals do not tell how much it takes when
        // it is back.
        if adaptive.answered || adaptive.last_cut.is_none() {
            adaptive.threshold = self.current.max(SMALL);
        }
        (adaptive.credit, adaptive.last_cut, adaptive.answered) = (0, Some(admitted), false);
    }
}

#[cfg(test)]
#[path = "concurrency_limit_tests.rs"]
mod tests;
