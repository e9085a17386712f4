//! Wraps a future that is joined with one polled far more often: it is only polled when it was woken itself.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures::task::AtomicWaker;

/// A future that is cheap to poll while it has not been woken.
pub(crate) struct PollOnWake<F> {
    future: Pin<Box<F>>,
    bell: Arc<WakeFlag>,
    waker: Waker,
}

struct WakeFlag {
    woken: AtomicBool,
    task: AtomicWaker,
}

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.task.wake();
    }
}

impl<F: Future> PollOnWake<F> {
    pub(crate) fn new(future: F) -> Self {
        let bell = Arc::new(WakeFlag { woken: AtomicBool::new(true), task: AtomicWaker::new() });
        PollOnWake { future: Box::pin(future), waker: Waker::from(bell.clone()), bell }
    }
}

impl<F: Future> Future for PollOnWake<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // Registered before the check, so that a later wake is not missed.
        self.bell.task.register(context.waker());
        if !self.bell.woken.swap(false, Ordering::AcqRel) {
            return Poll::Pending;
        }
        let PollOnWake { future, waker, .. } = &mut *self;
        future.as_mut().poll(&mut Context::from_waker(waker))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use futures::FutureExt as _;
    use tokio_util::sync::CancellationToken;

    use super::*;

    #[tokio::test]
    async fn it_is_polled_when_it_is_woken_and_not_otherwise() {
        let (token, polls) = (CancellationToken::new(), AtomicUsize::new(0));
        let mut cancelled = Box::pin(token.cancelled());
        let counted = futures::future::poll_fn(|context| {
            polls.fetch_add(1, Ordering::Relaxed);
            cancelled.as_mut().poll(context)
        });
        let mut polled = PollOnWake::new(counted);
        for _ in 0..10 {
            assert!((&mut polled).now_or_never().is_none());
        }
        assert_eq!(polls.load(Ordering::Relaxed), 1);
        let cancel = async {
            tokio::task::yield_now().await;
            token.cancel();
        };
        tokio::join!(&mut polled, cancel);
        assert_eq!(polls.load(Ordering::Relaxed), 2);
    }
}
