//! The gate: one per endpoint and key, shared by all tasks of the process.
//!
//! It bounds how many requests are under way, and knows until when the provider wants to be left alone: a wish that one
//! task heard holds for all. Who tries again after a failure nobody asked it to repeat pays from a budget: there are a
//! few such tries to begin with, every answer pays for two more, and time for one every few seconds. So an outage meets
//! a trickle of requests, however many tasks wait for its end, and when it is over they come back twice as many each
//! round. The gate repeats nothing by itself: it only says when.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::model::Held;

/// Uninvited retries that may happen at once.
const BUDGET: f64 = 10.0;
/// What an answer pays for.
const PER_ANSWER: f64 = 2.0;
/// How long one retry takes to be earned by waiting.
const EARNED_IN: Duration = Duration::from_secs(5);
/// How long a full house is not worth telling.
const SOON: Duration = Duration::from_secs(1);
/// How often somebody who waits without an end in sight is heard of.
const STILL_HERE: Duration = Duration::from_secs(60);
/// Over how long at most those are spread who wait for the same moment.
const SPREAD: Duration = Duration::from_secs(1);

/// How soon somebody goes whose time has come.
const PROMPT: Duration = Duration::from_millis(50);

/// The gate of one endpoint and key.
#[derive(Debug)]
pub(super) struct Gate {
    places: usize,
    seats: Arc<Semaphore>,
    state: Mutex<State>,
    earned: Notify,
}

#[derive(Debug)]
struct State {
    closed: Option<Closed>,
    budget: f64,
    counted: Instant,
    /// How many wait for the budget.
    queue: usize,
}

/// A provider that wants to be left alone.
#[derive(Debug, Clone, Copy)]
struct Closed {
    /// Nothing is sent before this.
    until: Instant,
    /// Over how long those are spread out who wait for it.
    spread: Duration,
    /// When it was said.
    heard: Instant,
}

impl Gate {
    pub(super) fn new(places: usize) -> Arc<Gate> {
        let places = places.clamp(1, Semaphore::MAX_PERMITS);
        let state = State { closed: None, budget: BUDGET, counted: Instant::now(), queue: 0 };
        let seats = Arc::new(Semaphore::new(places));
        Arc::new(Gate { places, seats, state: Mutex::new(state), earned: Notify::new() })
    }

    /// Stands in line. `jitter`, in 0..1, spreads out those who wait for the same moment.
    pub(super) fn line_up(self: &Arc<Self>, retry: bool, jitter: f64) -> Ticket {
        Ticket { gate: self.clone(), paid: !retry, jitter, told: None, due: None, seat: None, queued: false }
    }

    /// The provider answered.
    pub(super) fn answered(&self) {
        self.pay(PER_ANSWER);
    }

    /// The provider wants to be left alone for so long. It invites a retry with that, so the budget need not pay.
    pub(super) fn close(&self, wish: Duration) {
        let heard = Instant::now();
        let closed = Closed { until: heard + wish, spread: (wish / 2).min(SPREAD), heard };
        self.with(|state| {
            if state.closed.is_none_or(|old| old.until < closed.until) {
                state.closed = Some(closed);
            }
        });
        self.pay(1.0);
    }

    /// For how long it is still closed.
    pub(super) fn left(&self) -> Option<Duration> {
        self.closed().map(|closed| closed.until.saturating_duration_since(Instant::now()))
    }

    fn closed(&self) -> Option<Closed> {
        let now = Instant::now();
        self.with(|state| state.closed).filter(|closed| closed.until > now)
    }

    fn pay(&self, tries: f64) {
        self.with(|state| {
            state.budget = (state.budget + tries).min(BUDGET + state.queue as f64);
        });
        for _ in 0..tries as usize {
            self.earned.notify_one();
        }
    }

    /// Takes one retry from the budget, or says when there will be one.
    fn take(&self) -> Result<(), Instant> {
        let now = Instant::now();
        self.with(|state| {
            let earned = now.saturating_duration_since(state.counted).as_secs_f64() / EARNED_IN.as_secs_f64();
            state.budget = (state.budget + earned).min(BUDGET.max(state.budget));
            state.counted = now;
            // The clock has no fractions below a nanosecond; a try that is missing less is there.
            if state.budget >= 1.0 - 1e-6 {
                state.budget = (state.budget - 1.0).max(0.0);
                return Ok(());
            }
            Err(now + EARNED_IN.mul_f64(1.0 - state.budget))
        })
    }

    fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Somebody at the gate.
pub(super) struct Ticket {
    gate: Arc<Gate>,
    paid: bool,
    jitter: f64,
    told: Option<(Why, Instant)>,
    /// When its time came, if it waited for one.
    due: Option<Instant>,
    seat: Option<BoxFuture<'static, Option<OwnedSemaphorePermit>>>,
    queued: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    Closed,
    Budget,
    Full,
}

/// What comes next for somebody at the gate.
#[derive(Debug)]
pub(super) enum Next {
    /// It waits; ask again.
    Held(Held),
    /// It may send now, and is counted until this is dropped.
    Go(Seat),
}

/// A place among the requests under way.
#[derive(Debug)]
pub(super) struct Seat {
    _permit: Option<OwnedSemaphorePermit>,
}

impl Ticket {
    /// Waits at the gate. Returns once the request may be sent, and before that whenever there is something new to
    /// tell about the wait.
    pub(super) async fn next(&mut self) -> Next {
        loop {
            if let Some(closed) = self.heeds() {
                let until = closed.until + closed.spread.mul_f64(self.jitter);
                if let Some(held) = self.tell(Why::Closed, Some(until), until) {
                    return Next::Held(held);
                }
                sleep_until(until).await;
                self.due = Some(until);
                continue;
            }
            if !self.paid {
                if let Some(held) = self.pay().await {
                    return Next::Held(held);
                }
                continue;
            }
            match self.sit().await {
                Ok(_) if self.heeds().is_some() => {}
                Ok(seat) => return Next::Go(seat),
                Err(held) => return Next::Held(held),
            }
        }
    }

    /// The wish of the provider that it has to heed. Whose time had come before the wish was heard goes: with those it
    /// waited with, which are under way already, and not one by one, each to be told the same.
    fn heeds(&self) -> Option<Closed> {
        let closed = self.gate.closed()?;
        let goes = |due: Instant| due <= closed.heard && due.elapsed() < PROMPT;
        (!self.due.is_some_and(goes)).then_some(closed)
    }

    async fn pay(&mut self) -> Option<Held> {
        let Err(at) = self.gate.take() else {
            (self.paid, self.queued) = (true, self.unqueue());
            return None;
        };
        if !std::mem::replace(&mut self.queued, true) {
            self.gate.with(|state| state.queue += 1);
        }
        if let Some(held) = self.tell(Why::Budget, Some(at), Instant::now() + STILL_HERE) {
            return Some(held);
        }
        tokio::select! {
            () = self.gate.earned.notified() => {}
            () = sleep_until(at) => {}
        }
        None
    }

    fn unqueue(&mut self) -> bool {
        if std::mem::take(&mut self.queued) {
            self.gate.with(|state| state.queue = state.queue.saturating_sub(1));
        }
        false
    }

    async fn sit(&mut self) -> Result<Seat, Held> {
        if self.seat.is_none() {
            if let Ok(permit) = self.gate.seats.clone().try_acquire_owned() {
                return Ok(Seat { _permit: Some(permit) });
            }
            let seats = self.gate.seats.clone();
            self.seat = Some(Box::pin(async move { seats.acquire_owned().await.ok() }));
        }
        let heard_at = match self.told {
            Some((Why::Full, at)) => at,
            _ => Instant::now() + SOON,
        };
        let Some(waiting) = &mut self.seat else { return Ok(Seat { _permit: None }) };
        match timeout_at(heard_at, Pin::new(waiting)).await {
            Ok(permit) => {
                self.seat = None;
                Ok(Seat { _permit: permit })
            }
            Err(_) => {
                self.told = None;
                let held = self.tell(Why::Full, None, Instant::now() + STILL_HERE);
                Err(held.unwrap_or_else(|| self.held(Why::Full, None)))
            }
        }
    }

    /// What to tell, unless it was told and nothing has changed. It is told again after `again`.
    fn tell(&mut self, why: Why, until: Option<Instant>, again: Instant) -> Option<Held> {
        match self.told {
            // A moment that moved by less than this is the same moment.
            Some((old, at)) if old == why && again <= at + Duration::from_secs(1) => return None,
            Some((Why::Budget, at)) if why == Why::Budget && Instant::now() < at => return None,
            _ => self.told = Some((why, again)),
        }
        Some(self.held(why, until))
    }

    fn held(&self, why: Why, until: Option<Instant>) -> Held {
        let why = match why {
            Why::Closed => "the provider wants to be left alone for a while".to_owned(),
            Why::Budget => "the provider does not answer; tries are made only now and then".to_owned(),
            Why::Full => format!("{} requests are under way, which is as many as may be", self.gate.places),
        };
        Held { why, left: until.map(|until| until.saturating_duration_since(Instant::now())) }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.unqueue();
    }
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
