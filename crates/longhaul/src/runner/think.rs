//! Asking the model: budgets first, live words as they come, again when the provider fails.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use tokio::time::Instant;

use super::{Halt, Run, heard, overdue};
use crate::agent::{Patience, Shape};
use crate::entry::{Entry, Failure, FailureKind, Voice, Wait};
use crate::id::CallId;
use crate::message::Reply;
use crate::model::{Chunk, Held, Model, ModelError, ModelErrorKind, Request};

impl Run {
    /// Gets a reply and writes it down, together with the calls that begin with it.
    pub(super) async fn think(&mut self, tools: bool) -> Result<(), Halt> {
        self.sit().await?;
        self.ledger.check(&self.head, self.watch.total(), &*self.around.store).await?;
        let model = self.model()?;
        self.ledger.check_price(&*model)?;
        self.make_room(&*model).await?;
        let mut tries = 1;
        let mut shortened = 0;
        let mut failing_since = None;
        let reply = loop {
            let (error, mut words) = match self.ask(&*model, tools, tries - 1).await? {
                Ok(reply) => break reply,
                Err(failed) => failed,
            };
            if error.kind.is_too_long() && shortened < 3 && self.make_room_anyway(&*model).await? {
                shortened += 1;
                continue;
            }
            let patience = &self.habits.patience;
            let pause = pause_before_retry(patience, error.retry_after, tries, self.jitter(tries));
            let failing = failing_since.get_or_insert_with(Instant::now).elapsed();
            if !is_worth_it(patience, &error, tries, failing + pause) {
                self.leave_behind(&mut words).await?;
                let warnings = self.turn.new_warnings(self.memo.take_warnings());
                if !warnings.is_empty() {
                    self.note(warnings).await?;
                }
                let kind = match error.kind {
                    ModelErrorKind::Silent(_) => FailureKind::Silent,
                    _ => FailureKind::Model,
                };
                let times = if tries > 1 { format!(" (tried {tries} times)") } else { String::new() };
                return Err(Halt::Fail(Failure::new(kind, format!("{error}{times}"))));
            }
            self.back_off(&error, pause).await?;
            tries += 1;
        };
        let turn = self.turn.replies() + 1;
        let mut entries = Vec::with_capacity(3);
        // Letters about what was collected would fill the mailbox if nobody took them out.
        let known = self.turn.known_letters();
        if !known.is_empty() {
            entries.push(Entry::Read { letters: Vec::new(), known, all_ended: None });
        }
        entries.extend(self.turn.new_warnings(self.memo.take_warnings()));
        let calls = reply.calls().cloned().collect::<Vec<_>>();
        entries.push(Entry::Replied(Arc::new(reply)));
        if tools {
            self.judged_by = None;
            // Those that somebody has to be asked about begin when they are allowed to.
            let begin = calls.iter().zip(0..).filter(|(call, _)| self.begins_at_once(call));
            let begun = begin.map(|(call, index)| Entry::Called {
                call: CallId { turn, index },
                tool: call.tool.as_str().into(),
                arguments: None,
            });
            entries.extend(begun);
        }
        if calls.is_empty() {
            // What comes next ends the task or is written down anyway.
            self.owe(entries);
            return Ok(());
        }
        self.note(entries).await
    }

    pub(super) fn model(&self) -> Result<Arc<dyn Model>, Halt> {
        let name = self.turn.model().or(self.order.model.as_deref());
        let Some(name) = name else { return Ok(self.agent.model.clone()) };
        self.team.model(name).cloned().ok_or_else(|| {
            let names = self.team.model_names().join(", ");
            let message =
                format!("the task asks for model '{name}', which the team does not have; it has: {names}");
            Halt::Fail(Failure::new(FailureKind::Team, message))
        })
    }

    /// One request. The outer error ends the run, the inner one may be worth another try.
    async fn ask(
        &mut self,
        model: &dyn Model,
        tools: bool,
        retry: u32,
    ) -> Result<Result<Reply, (ModelError, Words)>, Halt> {
        self.be_sure().await?;
        let (conversation, gear, agent) = (self.turn.conversation(), self.gear.clone(), self.agent.clone());
        let system = self.system.clone();
        let memo = self.memo.clone();
        let view = self.turn.view(self.habits.history_items, self.habits.old_outputs);
        if view.is_some() {
            // Another part of the conversation each time.
            memo.forget();
        }
        let mut stream = model.stream(Request {
            task: self.head.id,
            agent: &agent.name,
            system: &system,
            messages: view.as_deref().unwrap_or(&conversation),
            tools: if tools { &gear.specs } else { &[] },
            output: agent.shape.as_deref().map(Shape::asked),
            turn: self.turn.replies(),
            retry,
            memo: &memo,
        });
        let failed = |kind| ModelError { model: model.name().to_owned(), kind, retry_after: None };
        let mut words = Words::default();
        let mut silent_at = Instant::now().checked_add(self.habits.inactivity);
        // Nothing has been sent yet, so nothing is lost by going away.
        let mut held = false;
        // Set up once and not for every word that comes: a reply has hundreds.
        let bell = self.bell.clone();
        let mut rung = pin!(bell.rung());
        let tenure = self.tenure.clone();
        let mut doubted = pin!(tenure.doubted());
        let mut alarm = pin!(tokio::time::sleep_until(self.look_at));
        let halt = loop {
            let due = [words.due, silent_at, self.watch.deadline(), self.owed.due()]
                .into_iter()
                .flatten()
                .fold(self.look_at, Instant::min);
            // One that rings too early is set again; what it is set for moves on with every word.
            if due < alarm.deadline() || alarm.is_elapsed() {
                alarm.as_mut().reset(due);
            }
            tokio::select! {
                biased;
                () = doubted.as_mut() => {
                    self.catch_up().await?;
                    doubted.set(tenure.doubted());
                }
                chunk = stream.next() => {
                    silent_at = Instant::now().checked_add(self.habits.inactivity);
                    match chunk {
                        Some(Ok(Chunk::Done(reply))) => return Ok(Ok(*reply)),
                        Some(Ok(Chunk::Text(text))) => words.hear(Voice::Text, text),
                        Some(Ok(Chunk::Reasoning(text))) => words.hear(Voice::Reasoning, text),
                        Some(Ok(Chunk::Held(Held { why, left }))) => {
                            (held, words) = (true, Words::default());
                            silent_at = silent_at.and_then(|at| at.checked_add(left.unwrap_or_default()));
                            self.wait_on_provider(why, left).await?;
                        }
                        Some(Ok(Chunk::Sent)) => held = false,
                        Some(Err(error)) => return Ok(Err((error, words))),
                        None => return Ok(Err((failed(ModelErrorKind::Cut(String::new())), words))),
                    }
                    if words.len() >= Words::ENOUGH {
                        self.note(words.take()).await?;
                    }
                }
                _ = rung.as_mut() => {
                    rung.set(bell.rung());
                    self.catch_up().await?;
                    if self.head.stop.is_some() {
                        break Halt::Stop;
                    }
                }
                () = self.around.drain.cancelled(), if held => break Halt::Drain,
                () = alarm.as_mut() => {
                    let now = Instant::now();
                    let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
                    if is_due(words.due) {
                        self.note(words.take()).await?;
                    } else if is_due(self.owed.due()) {
                        self.pay().await?;
                    }
                    if is_due(silent_at) {
                        return Ok(Err((failed(ModelErrorKind::Silent(self.habits.inactivity)), words)));
                    }
                    if self.look_at <= now {
                        self.catch_up().await?;
                        if self.head.stop.is_some() {
                            break Halt::Stop;
                        }
                    }
                    if is_due(self.watch.deadline()) {
                        break self.too_late();
                    }
                }
            }
        };
        drop(stream);
        self.leave_behind(&mut words).await?;
        Err(halt)
    }

    /// What had been said by now is part of what the task leaves behind.
    async fn leave_behind(&mut self, words: &mut Words) -> Result<(), Halt> {
        if words.len() > 0 { self.note(words.take()).await } else { Ok(()) }
    }

    /// Waits before the next try.
    async fn back_off(&mut self, error: &ModelError, pause: Duration) -> Result<(), Halt> {
        self.wait_on_provider(error.to_string(), Some(pause)).await?;
        let again = Instant::now().checked_add(pause);
        loop {
            tokio::select! {
                () = overdue(again) => return Ok(()),
                () = heard(&self.bell, self.look_at, &self.tenure) => {
                    self.catch_up().await?;
                    if self.head.stop.is_some() {
                        return Err(Halt::Stop);
                    }
                }
                () = self.around.drain.cancelled() => return Err(Halt::Drain),
                () = overdue(self.watch.deadline()) => return Err(self.too_late()),
            }
        }
    }

    /// Shows that the task waits for its provider. What was said until now is void.
    async fn wait_on_provider(&mut self, why: String, left: Option<Duration>) -> Result<(), Halt> {
        let until = left
            .and_then(|left| jiff::SignedDuration::try_from(left).ok())
            .and_then(|left| self.around.store.now().checked_add(left).ok());
        self.note(vec![Entry::Waiting { on: Wait::Provider(why), until }]).await
    }

    /// A number in 0..1 that differs between tasks and tries. It need not be random, only spread out.
    fn jitter(&self, tries: u32) -> f64 {
        use std::hash::{DefaultHasher, Hash as _, Hasher as _};
        let mut hasher = DefaultHasher::new();
        (self.head.id, self.turn.replies(), tries).hash(&mut hasher);
        (hasher.finish() % 1000) as f64 / 1000.0
    }
}

/// Whether to try again, when that would be so long after the first failure. What is wrong with a reply is tried a
/// few times; a provider that is down is waited for, and one that says when to come back even longer.
fn is_worth_it(patience: &Patience, error: &ModelError, tries: u32, after: Duration) -> bool {
    match (&error.kind, error.retry_after) {
        (kind, _) if !kind.is_passing() => false,
        (kind, _) if !kind.is_outage() => tries < patience.tries,
        (_, Some(_)) => after <= patience.invited,
        (_, None) => after <= patience.outage,
    }
}

/// How long to wait before the next try, never the same for two tasks. A provider's own wish is a least, spread out
/// above so that not all who heard it come back at once, and not taken at its word when it is heard again and again; our
/// own pause is spread over its whole length.
fn pause_before_retry(patience: &Patience, wish: Option<Duration>, tries: u32, jitter: f64) -> Duration {
    let doubled = patience.pause.saturating_mul(1 << tries.saturating_sub(1).min(16)).min(patience.longest);
    match wish {
        Some(wish) => {
            wish.max(doubled / 2).saturating_add(doubled.min(Duration::from_secs(1)).mul_f64(jitter))
        }
        None => doubled.mul_f64(jitter).max(patience.pause / 10),
    }
}

/// Live words, collected until there are enough of them or they are old enough.
#[derive(Default)]
struct Words {
    said: Vec<(Voice, String)>,
    due: Option<Instant>,
    /// How many bytes of this reply were heard.
    heard: usize,
}

impl Words {
    const ENOUGH: usize = 2048;
    const OLD: Duration = Duration::from_millis(50);
    /// How much of one reply is told live: of one that does not end, no more is stored.
    const MOST: usize = 1 << 20;

    fn hear(&mut self, voice: Voice, mut text: String) {
        let room = Self::MOST.saturating_sub(self.heard);
        self.heard = self.heard.saturating_add(text.len());
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
        self.due = self.due.or_else(|| Some(Instant::now() + Self::OLD));
    }

    fn len(&self) -> usize {
        self.said.iter().map(|(_, text)| text.len()).sum()
    }

    fn take(&mut self) -> Vec<Entry> {
        self.due = None;
        std::mem::take(&mut self.said).into_iter().map(|(voice, text)| Entry::Said { voice, text }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_retry_comes_before_the_provider_wants_it() {
        let patience = Patience::default();
        for tries in 1..20 {
            for jitter in [0.0, 0.5, 0.999] {
                let wish = Duration::from_secs(2);
                let pause = pause_before_retry(&patience, Some(wish), tries, jitter);
                assert!(pause >= wish && (tries > 4 || pause <= wish + Duration::from_secs(1)));
                assert!(pause <= patience.longest);
                let at_once = pause_before_retry(&patience, Some(Duration::ZERO), tries, jitter);
                assert!(
                    tries < 8 || at_once >= patience.longest / 2,
                    "who says 0 for ever is not asked for ever"
                );
                assert!(pause_before_retry(&patience, None, tries, jitter) <= patience.longest);
            }
        }
        assert!(pause_before_retry(&patience, None, 3, 0.5) > pause_before_retry(&patience, None, 1, 0.5));
        assert!(pause_before_retry(&patience, None, 9, 0.0) >= Duration::from_millis(50), "never at once");
    }

    #[test]
    fn a_bad_reply_is_tried_a_few_times_and_an_outage_is_waited_for() {
        let patience = Patience::default();
        let worth = |kind: &ModelErrorKind, wish: Option<u64>, tries, after| {
            let retry_after = wish.map(Duration::from_secs);
            let error = ModelError { model: String::new(), kind: kind.clone(), retry_after };
            is_worth_it(&patience, &error, tries, Duration::from_secs(after))
        };
        let rejected = ModelErrorKind::Rejected(String::new());
        let cut = ModelErrorKind::Cut(String::new());
        let down = ModelErrorKind::Unreachable(String::new());
        let limited = ModelErrorKind::RateLimited(String::new());
        assert!(!worth(&rejected, Some(1), 1, 1));
        assert!(worth(&cut, None, 5, 9_999) && !worth(&cut, None, 6, 1));
        assert!(worth(&down, None, 99, 600) && !worth(&down, None, 1, 601));
        assert!(worth(&limited, Some(60), 99, 3600) && !worth(&limited, Some(86_400), 1, 86_400));
    }
}
