//! Calls the model: checks budgets, streams text, retries when the provider fails.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _};
use tokio::time::Instant;

use super::{Halt, TaskRun, deadline_passed, journal_may_have_changed};
use crate::agent::{OutputSchema, RetryPolicy};
use crate::conversation::repeated_calls;
use crate::entry::{Entry, Failure, FailureKind, LiveTextKind, WaitReason};
use crate::id::CallId;
use crate::message::Reply;
use crate::model::{Model, ModelError, ModelErrorKind, ModelRequest, ReplyChunk, RequestDelay, TextDelay};
use crate::store::Store;

impl TaskRun {
    /// Gets a reply and records it, together with the calls that start with it.
    pub(super) async fn call_model(&mut self, tools: bool) -> Result<(), Halt> {
        self.take_seat().await?;
        self.ledger.check(&self.state, self.stopwatch.total(), &*self.context.store).await?;
        let model = self.model()?;
        self.ledger.check_price(&*model)?;
        self.compact_if_needed(&*model).await?;
        let mut tries = 1;
        let mut shortened = 0;
        let mut failing_since = None;
        let reply = loop {
            let (error, mut words) = match self.stream_reply(&*model, tools, tries - 1).await? {
                Ok(reply) => break reply,
                Err(failed) => failed,
            };
            if error.kind.is_context_overflow() && shortened < 3 && self.force_compact(&*model).await? {
                shortened += 1;
                continue;
            }
            let retry = &self.policy.retry;
            let pause = backoff(retry, error.retry_after, tries, self.jitter(tries));
            let failing = failing_since.get_or_insert_with(Instant::now).elapsed();
            if !should_retry(retry, &error, tries, failing + pause) {
                self.flush_live_text(&mut words).await?;
                let warnings = self.conversation.new_warnings(self.memo.take_warnings());
                if !warnings.is_empty() {
                    self.append_entries(warnings).await?;
                }
                let kind = match error.kind {
                    ModelErrorKind::TimedOut(_) => FailureKind::Silent,
                    _ => FailureKind::Model,
                };
                let times = if tries > 1 { format!(" (tried {tries} times)") } else { String::new() };
                return Err(Halt::Fail(Failure::new(kind, format!("{error}{times}"))));
            }
            self.back_off(&error, pause).await?;
            tries += 1;
        };
        let turn = self.conversation.replies() + 1;
        let mut entries = Vec::with_capacity(3);
        // Letters about collected results would fill the mailbox if they were never read.
        let known = self.conversation.known_letters();
        if !known.is_empty() {
            entries.push(Entry::Read { letters: Vec::new(), known, all_ended: None });
        }
        entries.extend(self.conversation.new_warnings(self.memo.take_warnings()));
        let calls = reply.calls().cloned().collect::<Vec<_>>();
        let repeated = repeated_calls(&reply);
        entries.push(Entry::Replied(Arc::new(reply)));
        if tools {
            self.previous_tools = None;
            // Calls that need approval start when they are approved.
            let begin = calls.iter().zip(0..).zip(repeated).filter(|((call, _), repeated)| {
                // A call that the reply repeats because the model could not stop is made once.
                !repeated && self.starts_without_approval(call)
            });
            let begun = begin.map(|((call, index), _)| Entry::Called {
                call: CallId { turn, index },
                tool: call.tool.as_str().into(),
                arguments: None,
                effects: self.has_effects(&call.tool),
                foreign: false,
            });
            entries.extend(begun);
        }
        if calls.is_empty() {
            // The next step ends the task or writes anyway.
            self.defer(entries);
            return Ok(());
        }
        self.append_entries(entries).await
    }

    pub(super) fn model(&self) -> Result<Arc<dyn Model>, Halt> {
        let name = self.conversation.model().or(self.order.model.as_deref());
        let Some(name) = name else { return Ok(self.agent.model.clone()) };
        self.team.model(name).cloned().ok_or_else(|| {
            let names = self.team.model_names().join(", ");
            let message =
                format!("the task asks for model '{name}', which the team does not have; it has: {names}");
            Halt::Fail(Failure::new(FailureKind::Team, message))
        })
    }

    /// One request. The outer error ends the run; the inner one may be worth a retry.
    async fn stream_reply(
        &mut self,
        model: &dyn Model,
        tools: bool,
        retry: u32,
    ) -> Result<Result<Reply, (ModelError, LiveTextBuffer)>, Halt> {
        self.ensure_lease().await?;
        let (conversation, open_tools, agent) =
            (self.conversation.messages(), self.tools.clone(), self.agent.clone());
        let system = self.system.clone();
        let memo = self.memo.clone();
        let view = (self.conversation.in_short()).or_else(|| {
            self.conversation.visible_messages(self.policy.history_items, self.policy.old_output_tokens)
        });
        if view.is_some() {
            // The visible part of the conversation differs each time.
            memo.clear();
        }
        let (store, root) = (self.context.store.clone(), self.state.root);
        let holds_text = Arc::new(AtomicBool::new(false));
        let delay = TextDelay::new({
            let holds_text = holds_text.clone();
            move || {
                holds_text.store(true, Relaxed);
                if store.is_read_live(root) { Duration::ZERO } else { LiveTextBuffer::HELD_BACK }
            }
        });
        let mut stream = model.stream(ModelRequest {
            task: self.state.id,
            root: self.state.root,
            depth: self.state.depth,
            agent: &agent.name,
            system: &system,
            messages: view.as_deref().unwrap_or(&conversation),
            tools: if tools { &open_tools.specs } else { &[] },
            output: agent.output_schema.as_deref().map(OutputSchema::structured_output),
            turn: self.conversation.replies(),
            retry,
            wire_cache: &memo,
            text_delay: Some(&delay),
        });
        // From here on its request counts at the gate.
        self.start_ticket = None;
        let failed = |kind| ModelError { model: model.name().to_owned(), kind, retry_after: None };
        let mut words = LiveTextBuffer::default();
        let mut silent_at = Instant::now().checked_add(self.policy.inactivity_timeout);
        // Nothing has been sent yet, so a drain loses nothing.
        let mut held = false;
        // Set up once, not for every chunk: a reply has hundreds.
        let subscription = self.subscription.clone();
        let mut wake = pin!(subscription.next_wake());
        let lease = self.lease.clone();
        let mut doubted = pin!(lease.wait_for_new_term());
        let mut alarm = pin!(tokio::time::sleep_until(self.recheck_at));
        let halt = loop {
            let due = [words.due, silent_at, self.stopwatch.deadline(), self.deferred.due()]
                .into_iter()
                .flatten()
                .fold(self.recheck_at, Instant::min);
            // If the timer fires too early, set it again: its deadline moves with every chunk.
            if due < alarm.deadline() || alarm.is_elapsed() {
                alarm.as_mut().reset(due);
            }
            tokio::select! {
                biased;
                () = doubted.as_mut() => {
                    self.catch_up().await?;
                    doubted.set(lease.wait_for_new_term());
                }
                chunk = stream.next() => {
                    silent_at = Instant::now().checked_add(self.policy.inactivity_timeout);
                    let is_watched = || self.context.store.is_read_live(self.state.root);
                    match chunk {
                        Some(Ok(ReplyChunk::Done(reply))) => return Ok(Ok(*reply)),
                        Some(Ok(ReplyChunk::Text(text))) => words.push(LiveTextKind::Text, text, is_watched),
                        Some(Ok(ReplyChunk::Reasoning(text))) => words.push(LiveTextKind::Reasoning, text, is_watched),
                        Some(Ok(ReplyChunk::Delayed(RequestDelay { reason, remaining }))) => {
                            (held, words) = (true, LiveTextBuffer::default());
                            silent_at = silent_at.and_then(|at| at.checked_add(remaining.unwrap_or_default()));
                            self.wait_on_provider(reason, remaining).await?;
                        }
                        Some(Ok(ReplyChunk::Resumed)) => held = false,
                        Some(Err(error)) => return Ok(Err((error, words))),
                        None => return Ok(Err((failed(ModelErrorKind::Truncated(String::new())), words))),
                    }
                    if words.is_enough() {
                        self.append_entries(words.take()).await?;
                    }
                }
                _ = wake.as_mut() => {
                    wake.set(subscription.next_wake());
                    self.catch_up().await?;
                    if self.state.stop.is_some() {
                        break Halt::Stop;
                    }
                }
                () = self.context.drain.cancelled(), if held => break Halt::Drain,
                () = alarm.as_mut() => {
                    let now = Instant::now();
                    let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
                    if is_due(words.due) || is_due(self.deferred.due()) {
                        // Both in one write, though only one is due.
                        self.append_entries(words.take()).await?;
                    }
                    if is_due(silent_at) {
                        return Ok(Err((failed(ModelErrorKind::TimedOut(self.policy.inactivity_timeout)), words)));
                    }
                    if self.recheck_at <= now {
                        self.catch_up().await?;
                        if self.state.stop.is_some() {
                            break Halt::Stop;
                        }
                    }
                    if is_due(self.stopwatch.deadline()) {
                        break self.timeout_halt();
                    }
                }
            }
        };
        // What the model has said and the stream has held back. A stream that has not begun is not polled: that
        // could send the request.
        while holds_text.load(Relaxed)
            && let Some(Some(Ok(chunk))) = stream.next().now_or_never()
        {
            match chunk {
                ReplyChunk::Text(text) => words.push(LiveTextKind::Text, text, || false),
                ReplyChunk::Reasoning(text) => words.push(LiveTextKind::Reasoning, text, || false),
                _ => break,
            }
        }
        drop(stream);
        self.flush_live_text(&mut words).await?;
        Err(halt)
    }

    /// The text so far is part of what the task leaves behind.
    pub(super) async fn flush_live_text(&mut self, words: &mut LiveTextBuffer) -> Result<(), Halt> {
        if words.len() > 0 { self.append_entries(words.take()).await } else { Ok(()) }
    }

    /// Waits before the next try.
    async fn back_off(&mut self, error: &ModelError, pause: Duration) -> Result<(), Halt> {
        self.wait_on_provider(error.to_string(), Some(pause)).await?;
        let again = Instant::now().checked_add(pause);
        loop {
            tokio::select! {
                () = deadline_passed(again) => return Ok(()),
                () = journal_may_have_changed(&self.subscription, self.recheck_at, &self.lease) => {
                    self.catch_up().await?;
                    if self.state.stop.is_some() {
                        return Err(Halt::Stop);
                    }
                }
                () = self.context.drain.cancelled() => return Err(Halt::Drain),
                () = deadline_passed(self.stopwatch.deadline()) => return Err(self.timeout_halt()),
            }
        }
    }

    /// Shows that the task waits for its provider. The text so far is void.
    async fn wait_on_provider(&mut self, why: String, left: Option<Duration>) -> Result<(), Halt> {
        let waits = provider_wait(&*self.context.store, why, left);
        self.append_entries(vec![waits]).await
    }

    /// A number in 0..1 that differs between tasks and tries. It need not be random, only spread out.
    fn jitter(&self, tries: u32) -> f64 {
        use std::hash::{DefaultHasher, Hash as _, Hasher as _};
        let mut hasher = DefaultHasher::new();
        (self.state.id, self.conversation.replies(), tries).hash(&mut hasher);
        (hasher.finish() % 1000) as f64 / 1000.0
    }
}

/// The entry of a task that waits for its provider.
pub(super) fn provider_wait(store: &dyn Store, why: String, left: Option<Duration>) -> Entry {
    let until = left
        .and_then(|left| jiff::SignedDuration::try_from(left).ok())
        .and_then(|left| store.now().checked_add(left).ok());
    Entry::Waiting { on: WaitReason::Provider(why), until }
}

/// Whether to retry, given the time since the first failure. A bad reply is retried a few times. A provider
/// that is down is waited for longer, and one that says when to retry longest.
fn should_retry(retry: &RetryPolicy, error: &ModelError, tries: u32, after: Duration) -> bool {
    match (&error.kind, error.retry_after) {
        (kind, _) if !kind.is_transient() => false,
        (kind, _) if !kind.is_outage() => tries < retry.max_tries,
        (_, Some(_)) => after <= retry.max_requested_wait,
        (_, None) => after <= retry.max_outage,
    }
}

/// How long to wait before the next try; differs between tasks. The pause that a provider asks for is a
/// minimum: it is spread out above that, so that not all clients return at once, and increased if the
/// provider asks again and again. Our own pause is spread over its whole length.
fn backoff(retry: &RetryPolicy, wish: Option<Duration>, tries: u32, jitter: f64) -> Duration {
    let doubled =
        retry.initial_backoff.saturating_mul(1 << tries.saturating_sub(1).min(16)).min(retry.max_backoff);
    match wish {
        Some(wish) => {
            wish.max(doubled / 2).saturating_add(doubled.min(Duration::from_secs(1)).mul_f64(jitter))
        }
        None => doubled.mul_f64(jitter).max(retry.initial_backoff / 10),
    }
}

/// Streamed text, collected until there is enough of it or it is old enough.
#[derive(Default)]
pub(super) struct LiveTextBuffer {
    said: Vec<(LiveTextKind, String)>,
    pub(super) due: Option<Instant>,
    /// How many bytes are enough to write them before they are due.
    enough: usize,
    /// How many bytes of this reply have arrived.
    received: usize,
}

impl LiveTextBuffer {
    /// While someone watches.
    const ENOUGH: usize = 2048;
    const OLD: Duration = Duration::from_millis(50);
    /// While no one does.
    const ENOUGH_UNWATCHED: usize = 16 << 10;
    const OLD_UNWATCHED: Duration = Duration::from_millis(500);
    /// How long the model may hold text back while no one watches, before it is collected here.
    const HELD_BACK: Duration = Duration::from_millis(500);
    /// How much of one reply is recorded while it streams, in bytes, in case a reply never ends.
    const MOST: usize = 1 << 20;

    pub(super) fn push(&mut self, voice: LiveTextKind, mut text: String, is_watched: impl FnOnce() -> bool) {
        let room = Self::MOST.saturating_sub(self.received);
        self.received = self.received.saturating_add(text.len());
        if room == 0 {
            return;
        }
        if text.len() > room {
            text.truncate(text.floor_char_boundary(room));
            text.push_str("\n[… what follows is not told live: the reply is too long for that]");
        }
        match self.said.last_mut() {
            Some((last, said)) if *last == voice => said.push_str(&text),
            _ => self.said.push((voice, text)),
        }
        if self.due.is_none() {
            let (enough, old) = match is_watched() {
                true => (Self::ENOUGH, Self::OLD),
                false => (Self::ENOUGH_UNWATCHED, Self::OLD_UNWATCHED),
            };
            (self.enough, self.due) = (enough, Some(Instant::now() + old));
        }
    }

    pub(super) fn is_enough(&self) -> bool {
        self.due.is_some() && self.len() >= self.enough
    }

    pub(super) fn len(&self) -> usize {
        self.said.iter().map(|(_, text)| text.len()).sum()
    }

    pub(super) fn take(&mut self) -> Vec<Entry> {
        self.due = None;
        std::mem::take(&mut self.said).into_iter().map(|(voice, text)| Entry::Said { voice, text }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_retry_comes_before_the_provider_wants_it() {
        let retry = RetryPolicy::default();
        for tries in 1..20 {
            for jitter in [0.0, 0.5, 0.999] {
                let wish = Duration::from_secs(2);
                let pause = backoff(&retry, Some(wish), tries, jitter);
                assert!(pause >= wish && (tries > 4 || pause <= wish + Duration::from_secs(1)));
                assert!(pause <= retry.max_backoff);
                let at_once = backoff(&retry, Some(Duration::ZERO), tries, jitter);
                assert!(
                    tries < 8 || at_once >= retry.max_backoff / 2,
                    "who says 0 for ever is not asked for ever"
                );
                assert!(backoff(&retry, None, tries, jitter) <= retry.max_backoff);
            }
        }
        assert!(backoff(&retry, None, 3, 0.5) > backoff(&retry, None, 1, 0.5));
        assert!(backoff(&retry, None, 9, 0.0) >= Duration::from_millis(50), "never at once");
    }

    #[test]
    fn a_bad_reply_is_tried_a_few_times_and_an_outage_is_waited_for() {
        let retry = RetryPolicy::default();
        let worth = |kind: &ModelErrorKind, wish: Option<u64>, tries, after| {
            let retry_after = wish.map(Duration::from_secs);
            let error = ModelError { model: String::new(), kind: kind.clone(), retry_after };
            should_retry(&retry, &error, tries, Duration::from_secs(after))
        };
        let rejected = ModelErrorKind::Rejected(String::new());
        let cut = ModelErrorKind::Truncated(String::new());
        let down = ModelErrorKind::Unreachable(String::new());
        let limited = ModelErrorKind::RateLimited(String::new());
        assert!(!worth(&rejected, Some(1), 1, 1));
        assert!(worth(&cut, None, 5, 9_999) && !worth(&cut, None, 6, 1));
        assert!(worth(&down, None, 99, 600) && !worth(&down, None, 1, 601));
        assert!(worth(&limited, Some(60), 99, 3600) && !worth(&limited, Some(86_400), 1, 86_400));
    }
}
