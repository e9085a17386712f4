//! A dispatcher for calls that need no other tasks.

use std::time::Duration;

use crate::dispatch::{
    Caller, DispatchError, DispatchFuture, Dispatcher, LetterContent, SendReceipt, WaitMode, WaitResult,
};
use crate::entry::Order;
use crate::id::{CallId, TaskId};
use crate::snapshot::Snapshot;
use crate::task::TaskState;

/// A dispatcher that refuses everything.
pub struct NoDispatcher;

fn refused<'a, T: Send + 'a>() -> DispatchFuture<'a, T> {
    Box::pin(async { Err(DispatchError::Stopping) })
}

impl Dispatcher for NoDispatcher {
    fn submit<'a>(&'a self, _: &'a Caller, _: CallId, _: Order) -> DispatchFuture<'a, TaskId> {
        refused()
    }

    fn list<'a>(&'a self, _: &'a Caller) -> DispatchFuture<'a, Vec<TaskState>> {
        refused()
    }

    fn view<'a>(&'a self, _: &'a Caller, _: &'a str) -> DispatchFuture<'a, Snapshot> {
        refused()
    }

    fn wait<'a>(
        &'a self,
        _: &'a Caller,
        _: &'a [String],
        _: WaitMode,
        _: Option<Duration>,
    ) -> DispatchFuture<'a, WaitResult> {
        refused()
    }

    fn stop<'a>(&'a self, _: &'a Caller, _: &'a str) -> DispatchFuture<'a, TaskState> {
        refused()
    }

    fn send<'a>(
        &'a self,
        _: &'a Caller,
        _: CallId,
        _: &'a str,
        _: LetterContent,
    ) -> DispatchFuture<'a, SendReceipt> {
        refused()
    }

    fn broadcast<'a>(
        &'a self,
        _: &'a Caller,
        _: CallId,
        _: LetterContent,
    ) -> DispatchFuture<'a, Vec<TaskId>> {
        refused()
    }
}
