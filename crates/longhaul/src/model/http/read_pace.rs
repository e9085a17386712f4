//! When a response is read next: pure, without clocks and IO.
//!
//! With a thousand replies that come word by word, most of the time would go into reading single words: each takes a wake and a
//! system call. While nobody watches, all but the first few are read with pauses, and each read takes what has come
//! in the meantime. Network cards do the same with their interrupts, for the same reason.

use std::time::Duration;

/// So many responses are read as they come. Each has a number among those that are read at the same time.
const READ_AT_ONCE: usize = 64;
/// A response that makes its reader wait this long comes slowly.
const SLOW: Duration = Duration::from_millis(8);
/// How long a pause is: a person would not notice it.
pub(super) const READ_PAUSE: Duration = Duration::from_millis(50);

/// How fast a response comes.
#[derive(Debug)]
pub(super) struct ReadPace {
    slot: usize,
    /// Whether the reader has paused before this read.
    paused: bool,
}

impl ReadPace {
    /// For a response that has this number among those that are read at the same time.
    pub(super) fn new(slot: usize) -> ReadPace {
        ReadPace { slot, paused: false }
    }

    /// Whether a response comes so slowly that its reader may pause: it has just waited so long for the last pieces, and
    /// they were few.
    pub(super) fn comes_slowly(&mut self, waited: Duration, few: bool) -> bool {
        // After a pause there is no wait, however slowly the pieces come.
        let paused = std::mem::take(&mut self.paused);
        self.slot >= READ_AT_ONCE && few && (paused || waited >= SLOW)
    }

    /// The reader pauses.
    pub(super) fn pauses(&mut self) {
        self.paused = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_many_that_comes_slowly_is_read_with_pauses() {
        const SOON: Duration = Duration::from_millis(1);
        for (slot, reads, expected) in [
            // Few bytes after a wait, and then what has come during each pause, until much comes at once.
            (
                64,
                &[(SLOW, true), (SOON, true), (SOON, true), (SOON, false), (SOON, true)][..],
                &[true, true, true, false, false][..],
            ),
            (64, &[(SOON, true), (SOON, true)], &[false, false]),
            (64, &[(SLOW, false)], &[false]),
            (63, &[(SLOW, true), (SLOW, true)], &[false, false]),
        ] {
            let mut pace = ReadPace::new(slot);
            for ((waited, few), expected) in reads.iter().zip(expected) {
                let slowly = pace.comes_slowly(*waited, *few);
                assert_eq!(slowly, *expected, "{slot} {waited:?} {few}");
                if slowly {
                    pace.pauses();
                }
            }
        }
    }
}
