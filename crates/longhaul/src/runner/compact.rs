//! Compaction: when a conversation grows too long for its model, a summary replaces its older part.

use futures::StreamExt as _;
use tokio::time::Instant;

use super::{Halt, TaskRun, deadline_passed, journal_may_have_changed};
use crate::conversation::summary_text;
use crate::entry::Entry;
use crate::message::prompt_tags::escape_tags;
use crate::message::{Message, Reply};
use crate::model::wire::WireCache;
use crate::model::{Model, ModelRequest, ReplyChunk};
use crate::store::TaskFilter;

/// The system prompt for the summary.
const SUMMARY_INSTRUCTION: &str = "You write summaries of conversations of an agent with its tools, so that the agent can go on with its \
                   task from the summary alone. Keep what was found out, decided and done, what failed and why, names, \
                   paths, numbers and ids exactly as they are, and what is still to be done. Leave out pleasantries and \
                   repetition. Answer with the summary and nothing else.";

/// The context window assumed for a model that rejected the conversation as too long and about which nothing
/// else is known, in tokens.
const SMALL_WINDOW: u64 = 16_000;
/// The maximum length of the fallback summary, if the model could not write one, in bytes.
const FALLBACK: usize = 6_000;

impl TaskRun {
    /// Compacts the conversation if it has become too long for the model.
    pub(super) async fn compact_if_needed(&mut self, model: &dyn Model) -> Result<(), Halt> {
        let limit = self.policy.compact_at.or_else(|| model.context_window().map(|window| window / 5 * 4));
        match limit {
            Some(limit) if self.conversation.tokens() >= limit => self.compact(model, limit).await.map(drop),
            _ => Ok(()),
        }
    }

    /// Compacts the conversation because the provider rejected it as too long. Returns whether that was
    /// possible.
    pub(super) async fn force_compact(&mut self, model: &dyn Model) -> Result<bool, Halt> {
        let window = model.context_window().or(self.policy.compact_at).unwrap_or(SMALL_WINDOW);
        // The provider counts differently: our estimate of the conversation is more than it accepts.
        let limit = window.min(self.conversation.tokens()) / 2;
        self.compact(model, limit).await
    }

    async fn compact(&mut self, model: &dyn Model, limit: u64) -> Result<bool, Halt> {
        self.flush().await?;
        let most = usize::try_from(limit.saturating_mul(3)).unwrap_or(usize::MAX);
        // The latest messages stay as far as there is room for them; all of it may be one huge output.
        let old = self
            .conversation
            .compaction_input(limit / 3, most)
            .or_else(|| self.conversation.compaction_input(0, most));
        let Some(old) = old else { return Ok(false) };
        tracing::debug!(task = %self.state.id, replaces = old.replaces, "compacting the conversation");
        let reply = self.summarise(model, &old.transcript).await?;
        let (summary, usage, cost) = match reply {
            Some(reply) => (reply.text(), reply.usage, reply.cost),
            None => {
                (crate::conversation::truncate_middle(&old.transcript, FALLBACK), Default::default(), None)
            }
        };
        let open = self.open_tasks().await?;
        let summary = summary_text(&summary, &open);
        self.append_entries(vec![Entry::Compacted { summary, replaces: old.replaces, usage, cost }]).await?;
        Ok(true)
    }

    /// A summary written by the model; `None` if it fails, because a task must not fail for lack of a
    /// summary.
    async fn summarise(&mut self, model: &dyn Model, transcript: &str) -> Result<Option<Reply>, Halt> {
        let task = self.order.task.clone();
        let text = format!(
            "<task>\n{}\n</task>\n\n<conversation>\n{}\n</conversation>\n\nSummarise the conversation.",
            escape_tags(&task, &["task", "conversation"]),
            // The transcript contains the engine's own tags, and they stay.
            escape_tags(transcript, &["conversation"]),
        );
        let messages = [Message::User(text.into())];
        let agent = self.agent.clone();
        let memo = WireCache::default();
        self.ensure_lease().await?;
        let mut stream = model.stream(ModelRequest {
            task: self.state.id,
            root: self.state.root,
            depth: self.state.depth,
            agent: &agent.name,
            system: SUMMARY_INSTRUCTION,
            messages: &messages,
            tools: &[],
            output: None,
            turn: self.conversation.replies(),
            retry: 0,
            wire_cache: &memo,
            text_delay: None,
        });
        let mut silent_at = Instant::now().checked_add(self.policy.inactivity_timeout);
        loop {
            tokio::select! {
                biased;
                chunk = stream.next() => match chunk {
                    Some(Ok(ReplyChunk::Done(reply))) => return Ok(Some(*reply).filter(|reply| !reply.text().trim().is_empty())),
                    Some(Ok(_)) => silent_at = Instant::now().checked_add(self.policy.inactivity_timeout),
                    Some(Err(error)) => {
                        tracing::warn!(task = %self.state.id, %error, "the model wrote no summary; the conversation is cut instead");
                        return Ok(None);
                    }
                    None => return Ok(None),
                },
                () = deadline_passed(silent_at) => return Ok(None),
                () = journal_may_have_changed(&self.subscription, self.recheck_at, &self.lease) => {
                    self.catch_up().await?;
                    if self.state.stop.is_some() {
                        return Err(Halt::Stop);
                    }
                }
                () = deadline_passed(self.stopwatch.deadline()) => return Err(self.timeout_halt()),
            }
        }
    }

    /// The unfinished tasks that it has launched, as the summary lists them.
    async fn open_tasks(&self) -> Result<Vec<String>, Halt> {
        if !self.may_launch {
            return Ok(Vec::new());
        }
        let open = self.context.store.list(TaskFilter::children(self.state.id).live()).await?;
        Ok(open.iter().map(|task| format!("- {} ({}): {}", task.id, task.agent, task.headline)).collect())
    }
}
