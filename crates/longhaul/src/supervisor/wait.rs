//! Waiting for tasks.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::LonghaulError;
use super::office::Office;
use crate::dispatch::{Join, Waited};
use crate::id::TaskId;

/// A wait to be awaited. A wait that times out harms nothing.
pub struct Waiter {
    pub(super) office: Arc<Office>,
    pub(super) ids: Vec<TaskId>,
    pub(super) join: Join,
    pub(super) timeout: Option<Duration>,
}

impl Waiter {
    /// Until one of them has ended.
    pub fn any(mut self) -> Self {
        self.join = Join::Any;
        self
    }

    /// Until all of them have ended.
    pub fn all(mut self) -> Self {
        self.join = Join::All;
        self
    }

    /// No longer than this.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }
}

impl IntoFuture for Waiter {
    type Output = Result<Waited, LonghaulError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { Ok(self.office.wait(&self.ids, self.join, self.timeout).await?) })
    }
}
