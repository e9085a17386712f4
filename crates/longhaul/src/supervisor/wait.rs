//! Waiting for tasks.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::LonghaulError;
use super::task_service::TaskService;
use crate::dispatch::{WaitMode, WaitResult};
use crate::id::TaskId;

/// A wait for tasks; await it. A timeout does not affect the tasks.
pub struct TaskWait {
    pub(super) service: Arc<TaskService>,
    pub(super) ids: Vec<TaskId>,
    pub(super) mode: WaitMode,
    pub(super) timeout: Option<Duration>,
}

impl TaskWait {
    /// Waits until one of them has ended.
    pub fn any(mut self) -> Self {
        self.mode = WaitMode::Any;
        self
    }

    /// Waits until all of them have ended.
    pub fn all(mut self) -> Self {
        self.mode = WaitMode::All;
        self
    }

    /// Waits at most this long.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }
}

impl IntoFuture for TaskWait {
    type Output = Result<WaitResult, LonghaulError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { Ok(self.service.wait(&self.ids, self.mode, self.timeout).await?) })
    }
}
