//! The worker's lease, as its runs see it: until when do they certainly own their tasks?
//!
//! The lease is counted from before its renewal was requested, by a clock that continues while the machine
//! sleeps, and with a margin at the end. So it ends here before any other process can consider it expired. A
//! run checks that clock ([`RunLease::is_held`]) before each effect, because a suspended process does not
//! notice that it was suspended: after waking up it would simply continue.
//!
//! A *term* is a period in which the lease was always renewed early enough. A late renewal starts another
//! term, and every run then has to check its journal to make sure that no one has taken its task in between.
//! If the store cannot be reached, the term is lost, and the runs end before their tasks can be taken.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};

use crate::id::WorkerId;
use crate::store::{DatabaseFault, Store, StoreError, since_boot};

/// How long the store may take to confirm our tasks after this process was asleep.
const CONFIRM: Duration = Duration::from_secs(2);

/// The lease of this process's worker.
pub(crate) struct LeaseKeeper {
    length: Duration,
    zero: (Instant, Duration),
    state: watch::Sender<LeaseState>,
    /// Fires when the lease should be renewed now.
    hurry: Notify,
    /// Why the last renewal failed.
    why: Mutex<Option<StoreError>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct LeaseState {
    /// The current term; 0 before the first.
    term: u64,
    /// When it began, by our clock.
    since: Duration,
    /// Until when the lease certainly holds, by our clock.
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

    /// The time that has passed here. This also reads the runtime's clock, because in tests that is the one
    /// that advances.
    fn now(&self) -> Duration {
        self.zero.0.elapsed().max(since_boot().saturating_sub(self.zero.1))
    }

    /// The current term, if the lease certainly holds now.
    pub(crate) fn current_term(&self) -> Option<u64> {
        let LeaseState { term, until, .. } = *self.state.borrow();
        (self.now() < until).then_some(term)
    }

    /// Whether this worker may judge whether others are gone. Not while its own lease is uncertain; and after a
    /// silence of the store, in which everyone looks gone to everyone, not before it has been in touch for one
    /// lease without a break: the others need that time to renew theirs.
    pub(crate) fn may_judge_others(&self) -> bool {
        let LeaseState { term, since, .. } = *self.state.borrow();
        self.current_term().is_some() && (term <= 1 || self.now().saturating_sub(since) >= self.length)
    }

    /// Renews the lease.
    pub(crate) async fn renew(&self, store: &dyn Store, worker: &WorkerId) -> Result<(), StoreError> {
        // Counted from before the request: others count from the store's reply.
        let asked = self.now();
        store.renew_lease(worker.clone(), self.length).await?;
        let done = self.now();
        self.state.send_if_modified(|state| {
            // Others may have taken the tasks in between. Only then notify: there may be thousands of
            // listeners.
            let late = done >= state.until;
            state.term += u64::from(late);
            if late {
                state.since = done;
            }
            state.until = state.until.max(asked.saturating_add(self.length - self.length / 6));
            late
        });
        Ok(())
    }

    /// Renews the lease for as long as this is polled.
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
                    StoreError::Database { what, fault: DatabaseFault::Busy }
                }
            };
            tracing::warn!(error = %failed, "the lease could not be renewed");
            *self.why.lock().unwrap_or_else(PoisonError::into_inner) = Some(failed);
            let now = self.now();
            // If the process was suspended while waiting for the store, ask it once more.
            let overslept = awake && now > until + CONFIRM / 4;
            if now >= until && !overslept {
                self.state.send_if_modified(|state| {
                    let lost = state.lost < state.term;
                    state.lost = state.term;
                    lost
                });
            }
            // Early enough for another try before the end.
            pause = if overslept { Duration::ZERO } else { third / 5 };
        }
    }

    /// Waits until this time, or until a renewal is requested. The runtime's clock may stand still while the
    /// machine sleeps, so this waits in steps, to notice soon that a lease has expired meanwhile.
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

    /// Requests a renewal now.
    pub(crate) fn request_renewal(&self) {
        self.hurry.notify_one();
    }

    /// Why a term was lost.
    fn why(&self) -> StoreError {
        let why = self.why.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let why = why.map(|why| format!(": {why}")).unwrap_or_default();
        let what = format!("the lease on the tasks of this process could not be renewed in time{why}");
        StoreError::Database { what, fault: DatabaseFault::Busy }
    }
}

/// What a run knows about the lease that covers its task. Clones belong to the same run.
#[derive(Clone)]
pub(crate) struct RunLease {
    lease: Arc<LeaseKeeper>,
    /// The last term in which the run was known to own the task.
    term: Arc<watch::Sender<u64>>,
}

impl RunLease {
    /// For a task that was claimed in this term.
    pub(crate) fn new(lease: Arc<LeaseKeeper>, term: u64) -> RunLease {
        RunLease { lease, term: Arc::new(watch::Sender::new(term)) }
    }

    /// Whether the run certainly owns the task now. Check it right before any effect that others can see.
    pub(crate) fn is_held(&self) -> bool {
        self.lease.current_term() == Some(*self.term.borrow())
    }

    /// The term in which the run would own its task, if the journal confirms it from now on.
    pub(super) fn current_term(&self) -> u64 {
        self.lease.state.borrow().term
    }

    /// Records that the journal, read after that term began, confirms that the run owns the task.
    pub(super) fn confirm_term(&self, term: u64) {
        self.term.send_if_modified(|known| std::mem::replace(known, (*known).max(term)) < term);
    }

    /// Waits until the run certainly owns the task. If a new term began, someone has to
    /// [confirm](Self::confirm_term) it.
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

    /// Waits until the lease was renewed: it is not certain now, or another term has begun.
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

    /// Waits until another term has begun, so that the journal has to be read.
    pub(super) async fn wait_for_new_term(&self) {
        let mut state = self.lease.state.subscribe();
        let known = *self.term.borrow();
        let _ = state.wait_for(|state| state.term > known).await;
    }

    /// Waits until the run must end because its task may be taken soon. Returns the reason.
    pub(crate) async fn wait_until_lost(&self) -> StoreError {
        let mut state = self.lease.state.subscribe();
        let _ = state.wait_for(|state| state.lost >= *self.term.borrow()).await;
        self.lease.why()
    }
}
