//! Seats: how many tasks run at once. A task that only waits gives its seat back.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The seats of a worker.
#[derive(Clone)]
pub(crate) struct Seats {
    free: Arc<Semaphore>,
}

impl Seats {
    pub(crate) fn new(count: usize) -> Self {
        Seats { free: Arc::new(Semaphore::new(count.clamp(1, Semaphore::MAX_PERMITS))) }
    }

    /// Takes up to `most` free seats.
    pub(crate) fn take_free(&self, most: usize) -> Vec<Seat> {
        let take = || self.free.clone().try_acquire_owned().ok();
        std::iter::from_fn(take)
            .take(most)
            .map(|permit| Seat { free: self.free.clone(), permit: Some(permit) })
            .collect()
    }

    /// Waits until a seat is free, without taking it from a task that waits for one.
    pub(crate) async fn wait_for_free(&self) {
        drop(self.free.acquire().await);
    }

    pub(crate) fn any_free(&self) -> bool {
        self.free.available_permits() > 0
    }
}

/// A seat, or the right to take one.
pub(crate) struct Seat {
    free: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Seat {
    /// Gives the seat back until [`Seat::take`].
    pub(crate) fn park(&mut self) {
        self.permit = None;
    }

    pub(crate) fn is_parked(&self) -> bool {
        self.permit.is_none()
    }

    /// Takes a seat if it has none, waiting for a free one.
    pub(crate) async fn take(&mut self) {
        if self.permit.is_none() {
            self.permit = self.free.clone().acquire_owned().await.ok();
        }
    }
}
