//! The worker's own lease, as its runs see it: until when is it sure that their tasks are theirs?
//!
//! The lease is counted from before its renewal was asked for, by a clock that goes on while the machine sleeps, and with a
//! margin before its end. So it is over here before anybody else can take it to be over. Each thing that a run does to
//! the world is preceded by a look at that clock ([`RunLease::is_held`]), because a process that was stopped does not
//! notice: the next thing it does after it was woken up would be to go on.
//!
//! A *term* is a time in which the lease was renewed early enough again and again. When a renewal came too late another
//! term begins, and every run has to make sure, by its journal, that nobody has taken its task in between. When the store
//! cannot be reached the term is lost, and the runs end, before their tasks may be taken.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};

use crate::id::WorkerId;
use crate::store::{Store, StoreError, since_boot};

/// How long the store may take to say whether our tasks are still ours, when we have been asleep.
const CONFIRM: Duration = Duration::from_secs(2);

/// The lease of this process's worker.
pub(crate) struct LeaseKeeper {
    length: Duration,
    zero: (Instant, Duration),
    state: watch::Sender<LeaseState>,
    /// Rings when it should be renewed now.
    hurry: Notify,
    /// Why it was not renewed, the last time.
    why: Mutex<Option<StoreError>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct LeaseState {
    /// Which term it is; 0 before the first.
    term: u64,
    /// Until when the lease surely holds, by our clock.
    until: Duration,
    /// The last term that was lost.
    lost: u64,
}

impl LeaseKeeper {
    pub(crate) fn new(length: Duration) -> LeaseKeeper {
        let zero = (Instant::now(), since_boot());
        let state = watch::Sender::new(LeaseState::default());
        LeaseKeeper { length, zero, state, hurry: Notify::new(), why: Mutex::default() }
    }

    /// The time that has passed here. The runtime's clock is asked too: in tests it is the one that goes on.
    fn now(&self) -> Duration {
        self.zero.0.elapsed().max(since_boot().saturating_sub(self.zero.1))
    }

    /// The term, if the lease surely holds now.
    pub(crate) fn current_term(&self) -> Option<u64> {
        let LeaseState { term, until, .. } = *self.state.borrow();
        (self.now() < until).then_some(term)
    }

    /// Renews it.
    pub(crate) async fn renew(&self, store: &dyn Store, worker: &WorkerId) -> Result<(), StoreError> {
        // From before the store was asked: others count from when it has answered.
        let asked = self.now();
        store.renew_lease(worker.clone(), self.length).await?;
        let done = self.now();
        self.state.send_if_modified(|state| {
            // Others may have taken the tasks in between. Only then there is something to be told: thousands may listen.
            let late = done >= state.until;
            state.term += u64::from(late);
            state.until = state.until.max(asked.saturating_add(self.length - self.length / 6));
            late
        });
        Ok(())
    }

    /// Keeps it for as long as this is polled.
    pub(crate) async fn keep_renewing(&self, store: &dyn Store, worker: &WorkerId) {
        let third = self.length / 3;
        let mut pause = third;
        loop {
            self.due(Instant::now() + pause, third / 5).await;
            let (begun, until) = (self.now(), self.state.borrow().until);
            let awake = begun < until;
            let most = if awake { until - begun } else { CONFIRM };
            let failed = match timeout(most, self.renew(store, worker)).await {
                Ok(Ok(())) => {
                    pause = third;
                    continue;
                }
                Ok(Err(error)) => error,
                Err(_) => {
                    let what = format!("the store did not answer within {most:?}");
                    StoreError::Database { what, transient: true }
                }
            };
            tracing::warn!(error = %failed, "the lease could not be renewed");
            *self.why.lock().unwrap_or_else(PoisonError::into_inner) = Some(failed);
            let now = self.now();
            // Whoever was stopped while waiting for the store asks it once more.
            let overslept = awake && now > until + CONFIRM / 4;
            if now >= until && !overslept {
                self.state.send_if_modified(|state| {
                    let lost = state.lost < state.term;
                    state.lost = state.term;
                    lost
                });
            }
            // Not too late for another try before the end.
            pause = if overslept { Duration::ZERO } else { third / 5 };
        }
    }

    /// Waits until this time, or until somebody is in a hurry. The runtime's clock may stand still while the machine sleeps: in
    /// steps, so that a lease that ran out meanwhile is noticed soon.
    async fn due(&self, at: Instant, step: Duration) {
        loop {
            let now = Instant::now();
            tokio::select! {
                () = tokio::time::sleep_until(at.min(now + step)) => {}
                () = self.hurry.notified() => return,
            }
            if Instant::now() >= at || self.current_term().is_none() {
                return;
            }
        }
    }

    /// Asks for a renewal now.
    pub(crate) fn request_renewal(&self) {
        self.hurry.notify_one();
    }

    /// Why a term was lost.
    fn why(&self) -> StoreError {
        let why = self.why.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let why = why.map(|why| format!(": {why}")).unwrap_or_default();
        let what = format!("the lease on the tasks of this process could not be renewed in time{why}");
        StoreError::Database { what, transient: true }
    }
}

/// What a run knows of the lease that its task is under. Clones are the same run's.
#[derive(Clone)]
pub(crate) struct RunLease {
    lease: Arc<LeaseKeeper>,
    /// The last term in which the task was known to be the run's.
    term: Arc<watch::Sender<u64>>,
}

impl RunLease {
    /// That of a task that was claimed in this term.
    pub(crate) fn new(lease: Arc<LeaseKeeper>, term: u64) -> RunLease {
        RunLease { lease, term: Arc::new(watch::Sender::new(term)) }
    }

    /// Whether the task surely is the run's now. To be asked right before anything is done that others can see.
    pub(crate) fn is_held(&self) -> bool {
        self.lease.current_term() == Some(*self.term.borrow())
    }

    /// The term that the run's task would be its in, if its journal says so from now on.
    pub(super) fn current_term(&self) -> u64 {
        self.lease.state.borrow().term
    }

    /// The journal, read after that term began, says that the task is the run's.
    pub(super) fn confirm_term(&self, term: u64) {
        self.term.send_if_modified(|known| std::mem::replace(known, (*known).max(term)) < term);
    }

    /// Waits until the task surely is the run's. Somebody has to [confirm](Self::confirm) it if a new term began.
    pub(super) async fn wait_until_held(&self) {
        let (mut state, mut term) = (self.lease.state.subscribe(), self.term.subscribe());
        loop {
            let (mine, lease) = (*term.borrow_and_update(), *state.borrow_and_update());
            if self.is_held() {
                return;
            }
            if lease.term == mine {
                self.lease.request_renewal();
            }
            tokio::select! {
                _ = state.changed() => {}
                _ = term.changed() => {}
            }
        }
    }

    /// Waits until the lease was renewed (it is not sure now, or another term has begun).
    pub(super) async fn wait_for_renewal(&self) {
        let mut state = self.lease.state.subscribe();
        loop {
            state.mark_unchanged();
            if self.lease.current_term().is_some() {
                return;
            }
            self.lease.request_renewal();
            let _ = state.changed().await;
        }
    }

    /// Waits until another term has begun: the journal has to be looked at.
    pub(super) async fn wait_for_new_term(&self) {
        let mut state = self.lease.state.subscribe();
        let known = *self.term.borrow();
        let _ = state.wait_for(|state| state.term > known).await;
    }

    /// Waits until the run must end, for its task may be taken soon. Answers why.
    pub(crate) async fn wait_until_lost(&self) -> StoreError {
        let mut state = self.lease.state.subscribe();
        let _ = state.wait_for(|state| state.lost >= *self.term.borrow()).await;
        self.lease.why()
    }
}
