//! The gate: one per endpoint and key, shared by all tasks of the process.
//!
//! It limits how many requests run at once, and holds every task back while the provider asks to wait,
//! whichever task was told. [`Admission`] decides how many may run and who goes next; the gate tells it what
//! happens, and wakes whoever was admitted. A retry that the provider did not invite takes one unit from a
//! budget: the budget starts with a few retries, every answer adds two, and waiting adds one every few
//! seconds. So an outage sees a trickle of requests, however many tasks wait, and after it the number of
//! requests doubles each round. The gate retries nothing itself: it only decides when a request may go.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::admission::{Admission, Admitted};
use super::concurrency_limit::{ConcurrencyLimit, Growth};
use super::descriptors;
use super::fair_queue::QueuePlace;
use crate::id::TaskId;
use crate::model::{ModelErrorKind, RequestDelay, StartTicket};

/// The size of the budget for uninvited retries.
const RETRY_BUDGET: f64 = 10.0;
/// How many retries an answer adds to the budget.
const RETRIES_PER_ANSWER: f64 = 2.0;
/// How long one retry takes to refill.
const RETRY_REFILL_TIME: Duration = Duration::from_secs(5);
/// How long a request may wait for a permit before the wait is reported.
const UNREPORTED_WAIT: Duration = Duration::from_secs(1);
/// How often a wait without a known end is reported.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);
/// The longest time over which requests that wait for the same moment are spread.
const MAX_SPREAD: Duration = Duration::from_secs(1);

/// A reply that takes longer to begin does not speak for more requests at once.
const PROMPT_ANSWER: Duration = Duration::from_secs(30);

/// How late a request may start and still count as part of its wave.
const SAME_WAVE: Duration = Duration::from_millis(50);

/// The gate of one endpoint and key.
#[derive(Debug)]
pub(super) struct RateLimitGate {
    state: Mutex<GateState>,
    retry_earned: Notify,
}

#[derive(Debug)]
struct GateState {
    admission: Admission,
    /// Those that wait to be admitted, by their arrival.
    waiters: HashMap<u64, oneshot::Sender<RequestPermit>>,
    /// Tasks that wait to begin, by their arrival.
    starters: HashMap<u64, oneshot::Sender<()>>,
    pause: Option<RateLimitPause>,
    budget: f64,
    counted: Instant,
    /// How many requests wait for the budget.
    queue: usize,
}

/// A pause that the provider asked for.
#[derive(Debug, Clone, Copy)]
struct RateLimitPause {
    /// Nothing is sent before this.
    until: Instant,
    /// The time over which the waiting requests are spread.
    spread: Duration,
    /// When the pause was requested.
    since: Instant,
}

impl RateLimitGate {
    pub(super) fn new(limit: ConcurrencyLimit) -> Arc<RateLimitGate> {
        let state = GateState {
            admission: Admission::new(limit),
            waiters: HashMap::new(),
            starters: HashMap::new(),
            pause: None,
            budget: RETRY_BUDGET,
            counted: Instant::now(),
            queue: 0,
        };
        Arc::new(RateLimitGate { state: Mutex::new(state), retry_earned: Notify::new() })
    }

    /// Fixes the number of concurrent requests; the smallest counts if this is called more than once.
    pub(super) fn fix_limit(self: &Arc<Self>, limit: usize) {
        self.change(|state| state.admission.fix(limit));
    }

    /// A request of a task arrives. `jitter`, in 0..1, spreads requests that wait for the same moment.
    pub(super) fn enqueue(
        self: &Arc<Self>,
        root: TaskId,
        depth: u32,
        retry: bool,
        jitter: f64,
    ) -> GateTicket {
        let place = self.with_state(|state| {
            state.admission.enter(root);
            state.admission.arrive(root, depth)
        });
        GateTicket {
            gate: self.clone(),
            place,
            retry_granted: !retry,
            jitter,
            reported: None,
            due: None,
            permit: None,
            queued: false,
            waits: true,
        }
    }

    /// A task arrives that has not begun. It begins when its first request will be sent soon.
    pub(super) fn enqueue_start(self: &Arc<Self>, root: TaskId, depth: u32) -> QueuedStart {
        let (starter, begins) = oneshot::channel();
        let place = self.change(|state| {
            let place = state.admission.arrive_to_start(root, depth);
            state.starters.insert(place.arrival, starter);
            place
        });
        QueuedStart { gate: self.clone(), place, begins, reported: false }
    }

    /// Pauses for as long as the provider asks. The provider invites a retry after that, so it costs no
    /// budget.
    pub(super) fn pause_for(&self, delay: Duration) {
        let now = Instant::now();
        let pause = RateLimitPause { until: now + delay, spread: (delay / 2).min(MAX_SPREAD), since: now };
        self.with_state(|state| {
            if state.pause.is_none_or(|old| old.until < pause.until) {
                state.pause = Some(pause);
            }
        });
        self.add_retries(1.0);
    }

    /// How long the gate stays closed.
    pub(super) fn pause_remaining(&self) -> Option<Duration> {
        self.current_pause().map(|pause| pause.until.saturating_duration_since(Instant::now()))
    }

    fn current_pause(&self) -> Option<RateLimitPause> {
        let now = Instant::now();
        self.with_state(|state| state.pause).filter(|pause| pause.until > now)
    }

    fn add_retries(&self, tries: f64) {
        self.with_state(|state| {
            state.budget = (state.budget + tries).min(RETRY_BUDGET + state.queue as f64);
        });
        for _ in 0..tries as usize {
            self.retry_earned.notify_one();
        }
    }

    /// Takes one retry from the budget, or returns when the next one is available.
    fn take_retry(&self) -> Result<(), Instant> {
        let now = Instant::now();
        self.with_state(|state| {
            let earned =
                now.saturating_duration_since(state.counted).as_secs_f64() / RETRY_REFILL_TIME.as_secs_f64();
            state.budget = (state.budget + earned).min(RETRY_BUDGET.max(state.budget));
            state.counted = now;
            // Allow for rounding: time has no fractions below a nanosecond.
            if state.budget >= 1.0 - 1e-6 {
                state.budget = (state.budget - 1.0).max(0.0);
                return Ok(());
            }
            Err(now + RETRY_REFILL_TIME.mul_f64(1.0 - state.budget))
        })
    }

    /// Joins the queue of those that wait to be admitted.
    fn join(self: &Arc<Self>, place: QueuePlace) -> oneshot::Receiver<RequestPermit> {
        let (waiter, permit) = oneshot::channel();
        self.change(|state| {
            state.waiters.insert(place.arrival, waiter);
            state.admission.join(place);
        });
        permit
    }

    /// Changes the state, and wakes those that may go now.
    fn change<T>(self: &Arc<Self>, work: impl FnOnce(&mut GateState) -> T) -> T {
        let (done, admitted, started) = self.with_state(|state| {
            let done = work(state);
            let mut admitted = Vec::new();
            while let Some((place, request)) = state.admission.admit() {
                admitted.push((state.waiters.remove(&place.arrival), request));
            }
            let mut started = Vec::new();
            while let Some(place) = state.admission.start() {
                started.extend(state.starters.remove(&place.arrival));
            }
            (done, admitted, started)
        });
        for (waiter, request) in admitted {
            let permit = RequestPermit { gate: self.clone(), request, admitted: Instant::now() };
            // If nobody waits for it any more, the permit is dropped, and that admits the next one.
            if let Some(waiter) = waiter {
                let _ = waiter.send(permit);
            }
        }
        for starter in started {
            // One that has gone away says so itself.
            let _ = starter.send(());
        }
        done
    }

    /// Why requests wait while nothing is wrong.
    fn why_full(&self) -> String {
        let (running, limit) =
            self.with_state(|state| (state.admission.running(), state.admission.limit().current()));
        format!("waiting for a free slot: {running} requests are running, and the limit is {limit}")
    }

    fn with_state<T>(&self, work: impl FnOnce(&mut GateState) -> T) -> T {
        work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A request that waits at the gate.
pub(super) struct GateTicket {
    gate: Arc<RateLimitGate>,
    place: QueuePlace,
    retry_granted: bool,
    jitter: f64,
    reported: Option<(DelayReason, Instant)>,
    /// When its wait was over, if it waited for a moment.
    due: Option<Instant>,
    /// Receives the permit, while it is in the queue.
    permit: Option<oneshot::Receiver<RequestPermit>>,
    /// Whether it waits for the budget.
    queued: bool,
    /// Whether it has no permit yet.
    waits: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DelayReason {
    Closed,
    Budget,
    Full,
}

/// The next step of a waiting request.
#[derive(Debug)]
pub(super) enum GateStep {
    /// It must wait: report this and call `next_step` again.
    Wait(RequestDelay),
    /// It may be sent now, and counts as running until the permit is dropped.
    Proceed(RequestPermit),
}

/// The permit of a running request. Dropping it admits the next one.
#[derive(Debug)]
pub(super) struct RequestPermit {
    gate: Arc<RateLimitGate>,
    request: Admitted,
    admitted: Instant,
}

impl RequestPermit {
    /// The smallest number that no other running request of this gate has.
    pub(super) fn slot(&self) -> usize {
        self.request.slot
    }

    /// Records that the reply begins.
    pub(super) fn on_answer(&self) {
        self.gate.add_retries(RETRIES_PER_ANSWER);
        let prompt = self.admitted.elapsed() <= PROMPT_ANSWER;
        if self.gate.change(|state| state.admission.on_answer(prompt)) == Growth::AtCeiling {
            // Not while the state is locked: this reads a directory.
            let descriptors = descriptors::measure();
            self.gate.with_state(|state| state.admission.raise_ceiling(descriptors));
        }
    }

    /// Records that the request failed before the reply began.
    pub(super) fn on_no_answer(&self, kind: &ModelErrorKind) {
        match kind {
            ModelErrorKind::TimedOut(_) => self.refused(kind),
            kind => self.on_failure(kind),
        }
    }

    /// Records that the request failed.
    pub(super) fn on_failure(&self, kind: &ModelErrorKind) {
        if matches!(kind, ModelErrorKind::RateLimited(_) | ModelErrorKind::Unreachable(_)) {
            self.refused(kind);
        }
    }

    /// The provider takes no more requests: fewer run from now on.
    fn refused(&self, kind: &ModelErrorKind) {
        let (before, after) = self.gate.with_state(|state| {
            let before = state.admission.limit().current();
            state.admission.on_refusal(self.request);
            (before, state.admission.limit().current())
        });
        if after < before {
            tracing::debug!(before, after, %kind, "the provider takes fewer concurrent requests");
        }
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        self.gate.change(|state| state.admission.release(self.request));
    }
}

impl GateTicket {
    /// Waits at the gate. Returns when the request may be sent, and before that whenever the reason for the
    /// wait changes.
    pub(super) async fn next_step(&mut self) -> GateStep {
        loop {
            if let Some(pause) = self.binding_pause() {
                let until = pause.until + pause.spread.mul_f64(self.jitter);
                if let Some(delay) = self.report_delay(DelayReason::Closed, Some(until), until) {
                    return GateStep::Wait(delay);
                }
                // Nobody holds a slot while it sleeps. It keeps its place for when it comes back.
                self.leave_queue();
                sleep_until(until).await;
                self.due = Some(until);
                continue;
            }
            if !self.retry_granted {
                if let Some(delay) = self.acquire_retry().await {
                    return GateStep::Wait(delay);
                }
                continue;
            }
            match self.acquire_permit().await {
                Ok(_) if self.binding_pause().is_some() => {}
                Ok(permit) => {
                    self.exit();
                    return GateStep::Proceed(permit);
                }
                Err(delay) => return GateStep::Wait(delay),
            }
        }
    }

    /// The pause that holds this request back. A request whose wait was over before the pause began goes
    /// ahead with its wave, which is already running: holding each one back would only repeat the same
    /// answer.
    fn binding_pause(&self) -> Option<RateLimitPause> {
        let pause = self.gate.current_pause()?;
        let in_wave = |due: Instant| due <= pause.since && due.elapsed() < SAME_WAVE;
        (!self.due.is_some_and(in_wave)).then_some(pause)
    }

    async fn acquire_retry(&mut self) -> Option<RequestDelay> {
        let Err(at) = self.gate.take_retry() else {
            (self.retry_granted, self.queued) = (true, self.unqueue());
            return None;
        };
        if !std::mem::replace(&mut self.queued, true) {
            self.gate.with_state(|state| state.queue += 1);
        }
        if let Some(delay) =
            self.report_delay(DelayReason::Budget, Some(at), Instant::now() + REPORT_INTERVAL)
        {
            return Some(delay);
        }
        tokio::select! {
            () = self.gate.retry_earned.notified() => {}
            () = sleep_until(at) => {}
        }
        None
    }

    fn unqueue(&mut self) -> bool {
        if std::mem::take(&mut self.queued) {
            self.gate.with_state(|state| state.queue = state.queue.saturating_sub(1));
        }
        false
    }

    fn leave_queue(&mut self) {
        // A permit that is on its way is dropped with its receiver, and goes to the next one.
        if self.permit.take().is_some() {
            self.gate.change(|state| {
                state.admission.leave(self.place);
                state.waiters.remove(&self.place.arrival)
            });
        }
    }

    /// It counts no longer as waiting at the gate.
    fn exit(&mut self) {
        if std::mem::take(&mut self.waits) {
            self.gate.change(|state| state.admission.exit(self.place.root));
        }
    }

    async fn acquire_permit(&mut self) -> Result<RequestPermit, RequestDelay> {
        let report_at = match self.reported {
            Some((DelayReason::Full, at)) => at,
            _ => Instant::now() + UNREPORTED_WAIT,
        };
        loop {
            let waiting = self.permit.get_or_insert_with(|| self.gate.join(self.place));
            match timeout_at(report_at, waiting).await {
                Ok(admitted) => {
                    self.permit = None;
                    if let Ok(permit) = admitted {
                        return Ok(permit);
                    }
                }
                Err(_) => {
                    self.reported = None;
                    let delay = self.report_delay(DelayReason::Full, None, Instant::now() + REPORT_INTERVAL);
                    return Err(delay.unwrap_or_else(|| self.delay(DelayReason::Full, None)));
                }
            }
        }
    }

    /// The delay to report, unless it was reported already and has not changed. It is reported again after
    /// `again`.
    fn report_delay(
        &mut self,
        why: DelayReason,
        until: Option<Instant>,
        again: Instant,
    ) -> Option<RequestDelay> {
        match self.reported {
            // A difference below this does not count as a change.
            Some((old, at)) if old == why && again <= at + Duration::from_secs(1) => return None,
            Some((DelayReason::Budget, at)) if why == DelayReason::Budget && Instant::now() < at => {
                return None;
            }
            _ => self.reported = Some((why, again)),
        }
        Some(self.delay(why, until))
    }

    fn delay(&self, why: DelayReason, until: Option<Instant>) -> RequestDelay {
        let why = match why {
            DelayReason::Closed => "rate limited by the provider".to_owned(),
            DelayReason::Budget => "the provider does not answer; retrying less often".to_owned(),
            DelayReason::Full => self.gate.why_full(),
        };
        RequestDelay {
            reason: why,
            remaining: until.map(|until| until.saturating_duration_since(Instant::now())),
        }
    }
}

impl Drop for GateTicket {
    fn drop(&mut self) {
        self.unqueue();
        self.leave_queue();
        self.exit();
    }
}

/// A task that waits to begin. Until it is dropped, it counts as a request that is about to arrive.
pub(super) struct QueuedStart {
    gate: Arc<RateLimitGate>,
    place: QueuePlace,
    begins: oneshot::Receiver<()>,
    reported: bool,
}

impl StartTicket for QueuedStart {
    fn next_step(&mut self) -> BoxFuture<'_, Option<RequestDelay>> {
        Box::pin(async move {
            let unreported = if self.reported { REPORT_INTERVAL } else { UNREPORTED_WAIT };
            if timeout_at(Instant::now() + unreported, &mut self.begins).await.is_ok() {
                return None;
            }
            self.reported = true;
            Some(RequestDelay::new(self.gate.why_full()))
        })
    }
}

impl Drop for QueuedStart {
    fn drop(&mut self) {
        self.gate.change(|state| {
            state.starters.remove(&self.place.arrival);
            state.admission.end_start(self.place);
        });
    }
}

#[cfg(test)]
#[path = "rate_limit_gate_tests.rs"]
mod tests;
