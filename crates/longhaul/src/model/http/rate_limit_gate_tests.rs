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

fn fixed(limit: usize) -> Arc<RateLimitGate> {
    RateLimitGate::new(ConcurrencyLimit::fixed(limit))
}

fn tree(n: u32) -> TaskId {
    format!("t-7f3k{n}").parse().unwrap()
}

/// A request of a task without parent and children.
fn enter(gate: &Arc<RateLimitGate>, retry: bool, jitter: f64) -> GateTicket {
    gate.enqueue(tree(0), 0, retry, jitter)
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[tokio::test(start_paused = true)]
async fn no_more_than_may_be_are_under_way() {
    let gate = fixed(2);
    let first = pass(&mut enter(&gate, false, 0.0)).await;
    let _second = pass(&mut enter(&gate, false, 0.0)).await;
    let mut third = enter(&gate, false, 0.0);
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
    let gate = fixed(1);
    let only = pass(&mut enter(&gate, false, 0.0)).await;
    let (mut a, mut b) = (enter(&gate, false, 0.0), enter(&gate, false, 0.0));
    assert!(matches!(a.next_step().await, GateStep::Wait(_)));
    assert!(matches!(b.next_step().await, GateStep::Wait(_)));
    drop(only);
    assert!(pass(&mut b).now_or_never().is_none(), "it is not its turn");
    drop(a);
    assert!(pass(&mut b).now_or_never().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_wish_holds_for_all_and_nobody_comes_before_its_time() {
    let gate = fixed(64);
    let began = Instant::now();
    gate.pause_for(seconds(2));
    gate.pause_for(seconds(1));
    let passed = Arc::new(AtomicUsize::new(0));
    let waiting = (0..16).map(|n| {
        let (gate, passed) = (gate.clone(), passed.clone());
        async move {
            let mut ticket = enter(&gate, n % 2 == 0, f64::from(n) / 16.0);
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
    let mut late = enter(&gate, false, 0.9);
    assert!(pass(&mut late).now_or_never().is_some(), "who comes after it does not wait");
}

#[tokio::test(start_paused = true)]
async fn a_wish_that_is_heard_while_waiting_for_a_place_counts_too() {
    let gate = fixed(1);
    let only = pass(&mut enter(&gate, false, 0.0)).await;
    let mut ticket = enter(&gate, false, 0.0);
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
    let gate = fixed(64);
    let tries = Arc::new(AtomicUsize::new(0));
    let waiting = (0..200).map(|n| {
        let (gate, tries) = (gate.clone(), tries.clone());
        async move {
            loop {
                drop(pass(&mut enter(&gate, true, f64::from(n) / 200.0)).await);
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
    let gate = fixed(64);
    while gate.take_retry().is_ok() {}
    let began = Instant::now();
    let waiting = (0..200).map(|_| {
        let gate = gate.clone();
        async move {
            let permit = pass(&mut enter(&gate, true, 0.0)).await;
            // The round trip.
            tokio::time::sleep(Duration::from_millis(300)).await;
            permit.on_answer();
            drop(permit);
        }
    });
    futures::future::join_all(waiting).await;
    assert!(began.elapsed() < seconds(9), "{:?}", began.elapsed());
    assert!(gate.with_state(|state| state.queue) == 0);
}

#[tokio::test(start_paused = true)]
async fn first_tries_are_never_charged_and_idle_time_earns_no_more_than_the_budget() {
    let gate = fixed(4);
    for _ in 0..100 {
        drop(pass(&mut enter(&gate, false, 0.0)).await);
    }
    tokio::time::sleep(seconds(3600)).await;
    let mut tries = 0;
    while gate.take_retry().is_ok() {
        tries += 1;
    }
    assert_eq!(tries, 10);
    let mut ticket = enter(&gate, true, 0.0);
    let GateStep::Wait(delay) = ticket.next_step().await else { panic!("nothing is left") };
    assert_eq!(delay.remaining, Some(RETRY_REFILL_TIME));
    gate.pause_for(Duration::ZERO);
    assert!(pass(&mut ticket).now_or_never().is_some(), "an invited retry costs no budget");
}

fn adaptive() -> Arc<RateLimitGate> {
    let plenty = crate::model::http::concurrency_limit::Descriptors { limit: 1 << 20, free: 1 << 20 };
    RateLimitGate::new(ConcurrencyLimit::adaptive(plenty))
}

fn limit(gate: &RateLimitGate) -> usize {
    gate.with_state(|state| state.admission.limit().current())
}

/// A permit that is handed to a request which nobody waits for any more goes to the next one.
#[tokio::test(start_paused = true)]
async fn a_permit_on_its_way_to_someone_who_left_is_not_lost() {
    let gate = fixed(1);
    let only = pass(&mut enter(&gate, false, 0.0)).await;
    let (mut a, mut b) = (enter(&gate, false, 0.0), enter(&gate, false, 0.0));
    assert!(matches!(a.next_step().await, GateStep::Wait(_)));
    assert!(matches!(b.next_step().await, GateStep::Wait(_)));
    drop(only);
    // It is a's turn, but a has not looked yet.
    drop(a);
    let permit = pass(&mut b).now_or_never();
    assert!(permit.is_some());
    drop((permit, b));
    gate.with_state(|state| {
        assert!(state.waiters.is_empty());
        assert_eq!(state.admission.running(), 0);
    });
}

#[tokio::test(start_paused = true)]
async fn who_leaves_the_queue_is_forgotten() {
    let gate = fixed(1);
    let _only = pass(&mut enter(&gate, false, 0.0)).await;
    for _ in 0..100 {
        let mut ticket = enter(&gate, false, 0.0);
        assert!(ticket.next_step().now_or_never().is_none());
    }
    assert!(gate.with_state(|state| state.waiters.is_empty()));
}

/// Waiters are woken when the limit grows, not only when a request ends.
#[tokio::test(start_paused = true)]
async fn an_answer_admits_more_while_others_wait() {
    let gate = adaptive();
    let mut running = Vec::new();
    for _ in 0..256 {
        running.push(pass(&mut enter(&gate, false, 0.0)).await);
    }
    let mut waiting: Vec<GateTicket> = (0..5).map(|_| enter(&gate, false, 0.0)).collect();
    for ticket in &mut waiting {
        assert!(ticket.next_step().now_or_never().is_none());
    }
    // So that what follows does not run into tokio's budget for one poll.
    tokio::task::yield_now().await;
    // The first only finds out that there are more descriptors.
    running[0].on_answer();
    running[1].on_answer();
    assert_eq!(limit(&gate), 259);
    for ticket in &mut waiting[..3] {
        running.push(pass(ticket).now_or_never().unwrap());
    }
    assert!(pass(&mut waiting[3]).now_or_never().is_none());
    // A reply that was slow to begin does not speak for more.
    tokio::time::advance(PROMPT_ANSWER + seconds(1)).await;
    running[2].on_answer();
    assert_eq!(limit(&gate), 259);
    // Without anybody waiting, the limit stays.
    drop(waiting);
    drop(running.pop());
    let last = pass(&mut enter(&gate, false, 0.0)).await;
    last.on_answer();
    assert_eq!(limit(&gate), 259);
}

#[tokio::test(start_paused = true)]
async fn a_rate_limit_and_a_refused_connection_halve_what_runs_and_other_failures_do_not() {
    let gate = adaptive();
    let mut running = Vec::new();
    for _ in 0..32 {
        running.push(pass(&mut enter(&gate, false, 0.0)).await);
    }
    for kind in [
        ModelErrorKind::Server { status: 500, message: String::new() },
        ModelErrorKind::Truncated(String::new()),
        ModelErrorKind::TimedOut(seconds(1)),
        ModelErrorKind::Rejected(String::new()),
    ] {
        running[0].on_failure(&kind);
        assert_eq!(limit(&gate), 256);
    }
    for permit in &running {
        permit.on_failure(&ModelErrorKind::RateLimited(String::new()));
    }
    assert_eq!(limit(&gate), 16, "once for all that were sent together");
    let mut next = enter(&gate, false, 0.0);
    assert!(next.next_step().now_or_never().is_none());
    running.truncate(15);
    let permit = pass(&mut next).await;
    permit.on_no_answer(&ModelErrorKind::Unreachable(String::new()));
    assert_eq!(limit(&gate), 8);
    drop((running, permit));
    // No answer in time: it has more than it can do.
    let permit = pass(&mut enter(&gate, false, 0.0)).await;
    permit.on_no_answer(&ModelErrorKind::TimedOut(seconds(1)));
    assert_eq!(limit(&gate), 1);
}

#[tokio::test(start_paused = true)]
async fn a_fixed_limit_that_comes_later_admits_or_holds_back() {
    let gate = adaptive();
    gate.fix_limit(2);
    let first = pass(&mut enter(&gate, false, 0.0)).await;
    let _second = pass(&mut enter(&gate, false, 0.0)).await;
    let mut third = enter(&gate, false, 0.0);
    assert!(third.next_step().now_or_never().is_none());
    gate.fix_limit(9);
    first.on_failure(&ModelErrorKind::RateLimited(String::new()));
    first.on_answer();
    assert_eq!(limit(&gate), 2);
    drop(first);
    assert!(pass(&mut third).now_or_never().is_some());
}

/// Who sleeps through a pause holds no slot, and does not lose its place in the order of arrival.
#[tokio::test(start_paused = true)]
async fn a_pause_takes_nobodys_place_and_nobody_sleeps_on_a_slot() {
    let gate = fixed(1);
    let only = pass(&mut enter(&gate, false, 0.0)).await;
    let (mut a, mut b) = (enter(&gate, false, 0.0), enter(&gate, false, 0.0));
    assert!(matches!(a.next_step().await, GateStep::Wait(_)));
    assert!(matches!(b.next_step().await, GateStep::Wait(_)));
    gate.pause_for(seconds(30));
    drop(only);
    for ticket in [&mut a, &mut b] {
        assert!(matches!(ticket.next_step().await, GateStep::Wait(_)), "it is closed");
        assert!(ticket.next_step().now_or_never().is_none());
    }
    assert_eq!(gate.with_state(|state| state.admission.running()), 0);
    tokio::time::advance(seconds(31)).await;
    let other = pass(&mut enter(&gate, false, 0.0)).await;
    // They come back in the other order.
    assert!(b.next_step().now_or_never().is_none());
    assert!(a.next_step().now_or_never().is_none());
    drop(other);
    assert!(pass(&mut b).now_or_never().is_none(), "it is not its turn");
    assert!(pass(&mut a).now_or_never().is_some());
}

/// During a pause nothing is sent, so no more tasks begin than can be sent soon after it.
#[tokio::test(start_paused = true)]
async fn few_tasks_begin_while_the_gate_is_closed_and_the_others_after_it() {
    let gate = fixed(2);
    gate.pause_for(seconds(30));
    let mut waiting: Vec<QueuedStart> = (0..10).map(|_| gate.enqueue_start(tree(1), 1)).collect();
    let mut tickets = Vec::new();
    let mut begin = |waiting: &mut Vec<QueuedStart>| {
        // Each that begins sends its request to the gate, and then no longer counts as about to arrive.
        while let Some(at) = waiting.iter_mut().position(|start| start.next_step().now_or_never().is_some()) {
            tickets.push(gate.enqueue(tree(1), 1, false, 0.0));
            let _ = tickets.last_mut().map(|ticket| ticket.next_step().now_or_never());
            waiting.remove(at);
        }
        tickets.len()
    };
    assert_eq!(begin(&mut waiting), 3, "two that may run, and one behind them");
    tokio::time::advance(seconds(31)).await;
    assert_eq!(begin(&mut waiting), 3, "they have not been sent yet");
    let permit = pass(&mut tickets[0]).await;
    drop((permit, tickets));
    let mut begun = 0;
    for start in &mut waiting {
        begun += usize::from(start.next_step().now_or_never().is_some());
    }
    assert_eq!(begun, 3, "the next ones");
}
