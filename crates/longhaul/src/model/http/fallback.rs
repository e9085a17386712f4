//! A model with fallbacks.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use tokio::time::Instant;

use crate::id::TaskId;
use crate::model::{
    Model, ModelError, ModelErrorKind, ModelRequest, ReplyChunk, ReplyStream, RequestDelay, StartTicket,
};

/// A model with fallbacks, which are used when it fails.
///
/// A model that failed is skipped by all tasks for a while.
pub struct FallbackModel {
    models: Vec<Arc<dyn Model>>,
    retries: u32,
    cooldown: Duration,
    cooling_until: Mutex<Vec<Option<Instant>>>,
}

impl FallbackModel {
    /// A model and its fallbacks, in the order in which they are tried. A transient error is retried
    /// `retries` times on the same model, unless it is a rate limit.
    pub fn new(
        first: Arc<dyn Model>,
        others: impl IntoIterator<Item = Arc<dyn Model>>,
        retries: u32,
        cooldown: Duration,
    ) -> FallbackModel {
        let models: Vec<_> = std::iter::once(first).chain(others).collect();
        let cool = Mutex::new(vec![None; models.len()]);
        FallbackModel { models, retries, cooldown, cooling_until: cool }
    }

    /// The models to try, in order: those that are not cooling down, or, if all are, the one whose cooldown
    /// ends first.
    fn order(&self) -> VecDeque<usize> {
        let cool = self.cooling_until.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let well = |at: &usize| cool.get(*at).copied().flatten().is_none_or(|until| until <= now);
        let order: VecDeque<usize> = (0..self.models.len()).filter(well).collect();
        match order.is_empty() {
            true => {
                (0..self.models.len()).min_by_key(|at| cool.get(*at).copied().flatten()).into_iter().collect()
            }
            false => order,
        }
    }

    fn start_cooldown(&self, at: usize, error: &ModelError) {
        let time = self.cooldown.max(error.retry_after.unwrap_or_default());
        let mut cool = self.cooling_until.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = cool.get_mut(at) {
            *slot = Some(Instant::now() + time);
        }
        tracing::info!(model = error.model, %error, ?time, "falling back to another model");
    }

    /// Whether to give up on this model for now.
    fn should_fall_back(&self, error: &ModelError, retry: u32) -> bool {
        let limited = matches!(error.kind, ModelErrorKind::RateLimited(_));
        !error.kind.is_transient() || limited || retry >= self.retries
    }
}

impl Model for FallbackModel {
    fn name(&self) -> &str {
        self.models.first().map_or("", |model| model.name())
    }

    fn stream<'a>(&'a self, request: ModelRequest<'a>) -> ReplyStream<'a> {
        let attempt = FallbackStream { of: self, request, rest: self.order(), now: None, turned: false };
        stream::unfold(attempt, async |mut attempt| attempt.next().await.map(|item| (item, attempt))).boxed()
    }

    fn start_ticket(&self, root: TaskId, depth: u32) -> Option<Box<dyn StartTicket>> {
        self.models.get(*self.order().front()?)?.start_ticket(root, depth)
    }

    fn context_window(&self) -> Option<u64> {
        self.models.iter().filter_map(|model| model.context_window()).min()
    }

    fn unpriced_model(&self) -> Option<String> {
        self.models.iter().find_map(|model| model.unpriced_model())
    }
}

impl std::fmt::Debug for FallbackModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.models.iter().map(|model| model.name())).finish()
    }
}

struct FallbackStream<'a> {
    of: &'a FallbackModel,
    request: ModelRequest<'a>,
    rest: VecDeque<usize>,
    now: Option<(usize, ReplyStream<'a>)>,
    /// Whether the next chunk must say that another model is used now.
    turned: bool,
}

impl FallbackStream<'_> {
    async fn next(&mut self) -> Option<Result<ReplyChunk, ModelError>> {
        if std::mem::take(&mut self.turned) {
            return Some(Ok(ReplyChunk::Resumed));
        }
        let (at, stream) = match &mut self.now {
            Some((at, stream)) => (*at, stream),
            None => {
                let at = self.rest.pop_front()?;
                let stream = self.of.models.get(at)?.stream(self.request);
                (at, &mut self.now.insert((at, stream)).1)
            }
        };
        let error = match stream.next().await {
            Some(Err(error)) => error,
            other => return other,
        };
        self.now = None;
        let next = self.rest.front().and_then(|at| self.of.models.get(*at));
        let Some(next) = next.filter(|_| self.of.should_fall_back(&error, self.request.retry)) else {
            self.rest.clear();
            return Some(Err(error));
        };
        self.of.start_cooldown(at, &error);
        self.turned = true;
        let why = format!("{error}; falling back to {}", next.name());
        Some(Ok(ReplyChunk::Delayed(RequestDelay { reason: why, remaining: Some(Duration::ZERO) })))
    }
}
