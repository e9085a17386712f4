use proptest::prelude::*;

use super::*;

const PLENTY: Descriptors = Descriptors { limit: 1 << 20, free: 1 << 20 };

fn free(free: usize) -> Descriptors {
    Descriptors { limit: free, free }
}

/// One reply begins while others wait.
fn answer(limit: &mut ConcurrencyLimit) {
    if limit.on_answer(true) == Growth::AtCeiling {
        limit.raise_ceiling(PLENTY);
        limit.on_answer(true);
    }
}

#[test]
fn it_begins_with_a_quarter_of_the_descriptors_and_at_most_256() {
    for (descriptors, begins) in [(0, 4), (12, 4), (100, 25), (1000, 250), (1024, 256), (1 << 20, 256)] {
        let limit = ConcurrencyLimit::adaptive(free(descriptors));
        assert_eq!(limit.current(), begins, "{descriptors} descriptors");
        assert!(!limit.is_fixed());
    }
}

#[test]
fn fixed_stays_fixed_and_the_smaller_of_two_counts() {
    let mut limit = ConcurrencyLimit::fixed(16);
    for n in 0..100 {
        assert_eq!(limit.on_answer(true), Growth::None);
        limit.on_refusal(16, n, n + 1);
        limit.raise_ceiling(PLENTY);
    }
    assert!(limit.is_fixed());
    assert_eq!(limit.current(), 16);
    limit.fix(32);
    assert_eq!(limit.current(), 16);
    limit.fix(2);
    assert_eq!(limit.current(), 2);
    let mut adaptive = ConcurrencyLimit::adaptive(PLENTY);
    adaptive.fix(1000);
    assert_eq!((adaptive.current(), adaptive.is_fixed()), (1000, true));
    assert_eq!(ConcurrencyLimit::fixed(0).current(), 1);
}

#[test]
fn it_grows_fourfold_in_a_round_of_replies_until_the_provider_refuses_and_then_doubles() {
    let mut limit = ConcurrencyLimit::adaptive(PLENTY);
    let round = |limit: &mut ConcurrencyLimit| (0..limit.current()).for_each(|_| answer(limit));
    for expected in [1024, 4096] {
        round(&mut limit);
        assert_eq!(limit.current(), expected);
    }
    // An outage: only what is answered after it says how much the provider takes.
    limit.on_refusal(4096, 5000, 5001);
    limit.on_refusal(8, 5001, 5002);
    assert_eq!(limit.current(), 4);
    for expected in [8, 16, 32] {
        round(&mut limit);
        assert_eq!(limit.current(), expected);
    }
}

#[test]
fn nothing_grows_while_nobody_waits() {
    let mut limit = ConcurrencyLimit::adaptive(PLENTY);
    for _ in 0..10_000 {
        assert_eq!(limit.on_answer(false), Growth::None);
    }
    assert_eq!(limit.current(), 256);
}

#[test]
fn what_was_running_is_halved_once_for_a_round_trip_and_never_below_one() {
    let mut limit = ConcurrencyLimit::adaptive(PLENTY);
    // The 100 that were admitted are all refused.
    for before in 0..100 {
        limit.on_refusal(100, before, 100);
    }
    assert_eq!(limit.current(), 50);
    // The next one that is admitted is refused too.
    limit.on_refusal(50, 100, 101);
    assert_eq!(limit.current(), 25);
    for before in 101..200 {
        limit.on_refusal(25, before, before + 1);
        assert!(limit.current() >= 1);
    }
    assert_eq!(limit.current(), 1);
}

/// A provider with a limit: what is cut is won back slowly, by an eighth in a round of replies.
#[test]
fn a_halved_limit_recovers() {
    let mut limit = ConcurrencyLimit::adaptive(PLENTY);
    answer(&mut limit);
    limit.on_refusal(200, 0, 1);
    assert_eq!(limit.current(), 100);
    let mut rounds = 0;
    while limit.current() < 200 {
        (0..limit.current()).for_each(|_| answer(&mut limit));
        rounds += 1;
    }
    assert!((5..=7).contains(&rounds), "{rounds} rounds");
}

/// A provider that was down: its refusals do not tell what it takes, so half of what was running is back fast.
#[test]
fn after_an_outage_half_of_what_was_running_is_back_within_a_few_rounds() {
    let mut limit = ConcurrencyLimit::adaptive(PLENTY);
    answer(&mut limit);
    for before in 0..50 {
        limit.on_refusal(limit.current(), before, before + 1);
    }
    assert_eq!(limit.current(), 1);
    let mut rounds = 0;
    while limit.current() < 128 {
        (0..limit.current()).for_each(|_| answer(&mut limit));
        rounds += 1;
    }
    assert_eq!(rounds, 7);
}

/// The ceiling follows the descriptors, is asked for once in a round, and leaves a quarter of them alone.
#[test]
fn it_does_not_grow_beyond_the_descriptors() {
    let mut limit = ConcurrencyLimit::adaptive(free(1024));
    let (mut looks, mut answers) = (0, 0);
    while answers < 100_000 {
        answers += 1;
        if limit.on_answer(true) == Growth::AtCeiling {
            looks += 1;
            limit.raise_ceiling(Descriptors { limit: 1024, free: 1024 - limit.current() });
        }
    }
    assert!((700..=768).contains(&limit.current()), "{}", limit.current());
    assert!(looks < 200, "{looks} looks");
}

proptest! {
    /// Whatever happens: at least one may go, a fixed limit stays, an adaptive one moves by a small step up or at
    /// most to half down.
    #[test]
    fn it_moves_in_small_steps(
        begin in 0..5000usize,
        fixed in prop::option::of(1..500usize),
        steps in prop::collection::vec((any::<bool>(), any::<bool>(), 0..600usize), 1..300),
    ) {
        let mut limit = fixed.map_or_else(|| ConcurrencyLimit::adaptive(free(begin)), ConcurrencyLimit::fixed);
        let mut admitted = 0;
        for (answers, waiting, running) in steps {
            let before = limit.current();
            admitted += 1;
            if answers {
                if limit.on_answer(waiting) == Growth::AtCeiling {
                    limit.raise_ceiling(free(begin));
                }
                prop_assert!(limit.current() == before || (waiting && limit.current() <= before + FIRST_GROWTH));
            } else {
                limit.on_refusal(running, admitted - 1, admitted);
                prop_assert!(limit.current() <= before && limit.current() >= 1);
                prop_assert!(running < before || limit.current() >= before / 2);
            }
            if let Some(fixed) = fixed {
                prop_assert_eq!(limit.current(), fixed);
            }
        }
    }
}
