//! Models that stand in for one another.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use tokio::time::Instant;

use crate::model::{Chunk, Held, Model, ModelError, ModelErrorKind, ReplyStream, Request};

/// A model with others behind it, which are asked when it fails.
///
/// A model that failed is left alone for a while, by all tasks.
pub struct Fallback {
    models: Vec<Arc<dyn Model>>,
    retries: u32,
    cooldown: Duration,
    cool: Mutex<Vec<Option<Instant>>>,
}

impl Fallback {
    /// A model and its stand-ins, in the order in which they are asked. A failure that may pass is tried `retries` times
    /// on the same model, unless it is a rate limit.
    pub fn new(
        first: Arc<dyn Model>,
        others: impl IntoIterator<Item = Arc<dyn Model>>,
        retries: u32,
        cooldown: Duration,
    ) -> Fallback {
        let models: Vec<_> = std::iter::once(first).chain(others).collect();
        let cool = Mutex::new(vec![None; models.len()]);
        Fallback { models, retries, cooldown, cool }
    }

    /// Those to be asked, in order: the ones that are well, or, if none is, the one that will be well first.
    fn order(&self) -> VecDeque<usize> {
        let cool = self.cool.lock().unwrap_or_else(PoisonError::into_inner);
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

    fn leave_alone(&self, at: usize, error: &ModelError) {
        let time = self.cooldown.max(error.retry_after.unwrap_or_default());
        let mut cool = self.cool.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = cool.get_mut(at) {
            *slot = Some(Instant::now() + time);
        }
        tracing::info!(model = error.model, %error, ?time, "another model is asked instead");
    }

    /// Whether an error is the model's last word for now.
    fn gives_up(&self, error: &ModelError, retry: u32) -> bool {
        let limited = matches!(error.kind, ModelErrorKind::RateLimited(_));
        !error.kind.is_passing() || limited || retry >= self.retries
    }
}

impl Model for Fallback {
    fn name(&self) -> &str {
        self.models.first().map_or("", |model| model.name())
    }

    fn stream<'a>(&'a self, request: Request<'a>) -> ReplyStream<'a> {
        let attempt = Attempt { of: self, request, rest: self.order(), now: None, turned: false };
        stream::unfold(attempt, async |mut attempt| attempt.next().await.map(|item| (item, attempt))).boxed()
    }

    fn window(&self) -> Option<u64> {
        self.models.iter().filter_map(|model| model.window()).min()
    }

    fn unpriced(&self) -> Option<String> {
        self.models.iter().find_map(|model| model.unpriced())
    }
}

impl std::fmt::Debug for Fallback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.models.iter().map(|model| model.name())).finish()
    }
}

struct Attempt<'a> {
    of: &'a Fallback,
    request: Request<'a>,
    rest: VecDeque<usize>,
    now: Option<(usize, ReplyStream<'a>)>,
    /// Whether it is to be told that somebody else is asked now.
    turned: bool,
}

impl Attempt<'_> {
    async fn next(&mut self) -> Option<Result<Chunk, ModelError>> {
        if std::mem::take(&mut self.turned) {
            return Some(Ok(Chunk::Sent));
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
        let Some(next) = next.filter(|_| self.of.gives_up(&error, self.request.retry)) else {
            self.rest.clear();
            return Some(Err(error));
        };
        self.of.leave_alone(at, &error);
        self.turned = true;
        let why = format!("{error}; {} is asked instead", next.name());
        Some(Ok(Chunk::Held(Held { why, left: Some(Duration::ZERO) })))
    }
}
