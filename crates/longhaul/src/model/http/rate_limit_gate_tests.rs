use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt as _;

use super::*;

/// Waits at the gate like a runner: keeps waiting, whatever is reported.
async fn pass(ticket: &mut GateTicket) -> RequestPermit {
    loop {
        if let GateStep::Proceed(permit) = ticket.next_step().await {
            return permit;
        }
    }
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[tokio::test(start_paused = true)]
async fn no_more_than_may_be_are_under_way() {
    let gate = RateLimitGate::new(2);
    let first = pass(&mut gate.enqueue(false, 0.0)).await;
    let _second = pass(&mut gate.enqueue(false, 0.0)).await;
    let mut third = gate.enqueue(false, 0.0);
    let GateStep::Wait(delay) = third.next_step().await else { panic!("there is no free permit") };
    assert!(delay.reason.contains("2 requests") && delay.remaining.is_none(), "{delay:?}");
    let began = Instant::now();
    let GateStep::Wait(_) = third.next_step().await else { panic!("there is no free permit") };
    assert_eq!(began.elapsed(), REPORT_INTERVAL, "a wait without a known end is reported again");
    drop(first);
    assert!(pass(&mut third).now_or_never().is_some());
}

#[tokio::test(start_paused = true)]
async fn places_are_given_in_the_order_of_coming_and_back_when_nobody_wants_them() {
    let gate = RateLimitGate::new(1);
    let only = pass(&mut gate.enqueue(false, 0.0)).await;
    let (mut a, mut b) = (gate.enqueue(false, 0.0), gate.enqueue(false, 0.0));
    assert!(matches!(a.next_step().await, GateStep::Wait(_)));
    assert!(matches!(b.next_step().await, GateStep::Wait(_)));
    drop(only);
    assert!(pass(&mut b).now_or_never().is_none(), "it is not its turn");
    drop(a);
    assert!(pass(&mut b).now_or_never().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_wish_holds_for_all_and_nobody_comes_before_its_time() {
    let gate = RateLimitGate::new(64);
    let began = Instant::now();
    gate.pause_for(seconds(2));
    gate.pause_for(seconds(1));
    let passed = Arc::new(AtomicUsize::new(0));
    let waiting = (0..16).map(|n| {
        let (gate, passed) = (gate.clone(), passed.clone());
        async move {
            let mut ticket = gate.enqueue(n % 2 == 0, f64::from(n) / 16.0);
            let GateStep::Wait(delay) = ticket.next_step().await else { panic!("it is closed") };
            assert!(delay.remaining.unwrap() >= seconds(2) && delay.remaining.unwrap() <= seconds(3));
            let permit = pass(&mut ticket).await;
            passed.fetch_add(1, Ordering::Relaxed);
            assert!(began.elapsed() >= seconds(2) && began.elapsed() <= seconds(3));
            permit
        }
    });
    let permits = futures::future::join_all(waiting).await;
    assert_eq!((permits.len(), passed.load(Ordering::Relaxed)), (16, 16));
    assert!(gate.pause_remaining().is_none());
    let mut late = gate.enqueue(false, 0.9);
    assert!(pass(&mut late).now_or_never().is_some(), "who comes after it does not wait");
}

#[tokio::test(start_paused = true)]
async fn a_wish_that_is_heard_while_waiting_for_a_place_counts_too() {
    let gate = RateLimitGate::new(1);
    let only = pass(&mut gate.enqueue(false, 0.0)).await;
    let mut ticket = gate.enqueue(false, 0.0);
    assert!(matches!(ticket.next_step().await, GateStep::Wait(_)));
    let began = Instant::now();
    gate.pause_for(seconds(30));
    drop(only);
    let _permit = pass(&mut ticket).await;
    assert!(began.elapsed() >= seconds(30));
}

/// During an outage, the budget and then one retry every few seconds go through, however many tasks wait.
#[tokio::test(start_paused = true)]
async fn an_outage_meets_a_trickle() {
    let gate = RateLimitGate::new(64);
    let tries = Arc::new(AtomicUsize::new(0));
    let waiting = (0..200).map(|n| {
        let (gate, tries) = (gate.clone(), tries.clone());
        async move {
            loop {
                drop(pass(&mut gate.enqueue(true, f64::from(n) / 200.0)).await);
                tries.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        }
    });
    let all = futures::future::join_all(waiting).map(|_: Vec<()>| ());
    assert!(tokio::time::timeout(seconds(60), all).await.is_err());
    let tries = tries.load(Ordering::Relaxed);
    assert!((20..=22).contains(&tries), "{tries} tries in a minute");
}

/// Each answer lets two more requests through: after an outage, all are back within a few rounds.
#[tokio::test(start_paused = true)]
async fn after_an_outage_all_come_back_soon() {
    let gate = RateLimitGate::new(64);
    while gate.take_retry().is_ok() {}
    let began = Instant::now();
    let waiting = (0..200).map(|_| {
        let gate = gate.clone();
        async move {
            let permit = pass(&mut gate.enqueue(true, 0.0)).await;
            // The round trip.
            tokio::time::sleep(Duration::from_millis(300)).await;
            gate.on_answer();
            drop(permit);
        }
    });
    futures::future::join_all(waiting).await;
    assert!(began.elapsed() < seconds(9), "{:?}", began.elapsed());
    assert!(gate.with_state(|state| state.queue) == 0);
}

#[tokio::test(start_paused = true)]
async fn first_tries_are_never_charged_and_idle_time_earns_no_more_than_the_budget() {
    let gate = RateLimitGate::new(4);
    for _ in 0..100 {
        drop(pass(&mut gate.enqueue(false, 0.0)).await);
    }
    tokio::time::sleep(seconds(3600)).await;
    let mut tries = 0;
    while gate.take_retry().is_ok() {
        tries += 1;
    }
    assert_eq!(tries, 10);
    let mut ticket = gate.enqueue(true, 0.0);
    let GateStep::Wait(delay) = ticket.next_step().await else { panic!("nothing is left") };
    assert_eq!(delay.remaining, Some(RETRY_REFILL_TIME));
    gate.pause_for(Duration::ZERO);
    assert!(pass(&mut ticket).now_or_never().is_some(), "an invited retry costs no budget");
}
