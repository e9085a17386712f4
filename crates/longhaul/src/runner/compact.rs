//! Making room: when a conversation grows too long for its model, its older part becomes a summary.

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

/// What the model is told when it is asked for a summary.
const SUMMARY_INSTRUCTION: &str = "You write summaries of conversations of an agent with its tools, so that the agent can go on with its \
                   task from the summary alone. Keep what was found out, decided and done, what failed and why, names, \
                   paths, numbers and ids exactly as they are, and what is still to be done. Leave out pleasantries and \
                   repetition. Answer with the summary and nothing else.";

/// What is assumed of a model that found the conversation too long and of which nothing else is known, in tokens.
const SMALL_WINDOW: u64 = 16_000;
/// How long a summary may be where the model could not make one, in bytes.
const FALLBACK: usize = 6_000;

impl TaskRun {
    /// Makes the conversation shorter if it has become too long for the model.
    pub(super) async fn compact_if_needed(&mut self, model: &dyn Model) -> Result<(), Halt> {
        let limit = self.policy.compact_at.or_else(|| model.context_window().map(|window| window / 5 * 4));
        match limit {
            Some(limit) if self.conversation.tokens() >= limit => self.compact(model, limit).await.map(drop),
            _ => Ok(()),
        }
    }

    /// Makes the conversation shorter because the provider says that it is too long. Answers whether it could.
    pub(super) async fn force_compact(&mut self, model: &dyn Model) -> Result<bool, Halt> {
        let window = model.context_window().or(self.policy.compact_at).unwrap_or(SMALL_WINDOW);
        // The provider counts otherwise than we do: what we think that the conversation has is more than it can have.
        let limit = window.min(self.conversation.tokens()) / 2;
        self.compact(model, limit).await
    }

    async fn compact(&mut self, model: &dyn Model, limit: u64) -> Result<bool, Halt> {
        self.flush().await?;
        let most = usize::try_from(limit.saturating_mul(3)).unwrap_or(usize::MAX);
        // What was said last stays as it is, as far as there is room for it; all of it may be one huge output.
        let old = self
            .conversation
            .compaction_input(limit / 3, most)
            .or_else(|| self.conversation.compaction_input(0, most));
        let Some(old) = old else { return Ok(false) };
        tracing::debug!(task = %self.state.id, replaces = old.replaces, "making the conversation shorter");
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

    /// A summary by the model itself; none if it fails, for a task must not fail for want of a summary.
    async fn summarise(&mut self, model: &dyn Model, transcript: &str) -> Result<Option<Reply>, Halt> {
        let task = self.order.task.clone();
        let text = format!(
            "<task>\n{}\n</task>\n\n<conversation>\n{}\n</conversation>\n\nSummarise the conversation.",
            escape_tags(&task, &["task", "conversation"]),
            // What the agent was told has tags of ours in it, and they stay.
            escape_tags(transcript, &["conversation"]),
        );
        let messages = [Message::User(text.into())];
        let agent = self.agent.clone();
        let memo = WireCache::default();
        self.ensure_lease().await?;
        let mut stream = model.stream(ModelRequest {
            task: self.state.id,
            agent: &agent.name,
            system: SUMMARY_INSTRUCTION,
            messages: &messages,
            tools: &[],
            output: None,
            turn: self.conversation.replies(),
            retry: 0,
            wire_cache: &memo,
        });
        let mut silent_at = Instant::now().checked_add(self.policy.inactivity_timeout);
        loop {
            tokio::select! {
                biased;
                chunk = stream.next() => match chunk {
                    Some(Ok(ReplyChunk::Done(reply))) => return Ok(Some(*reply).filter(|reply| !reply.text().trim().is_empty())),
                    Some(Ok(_)) => silent_at = Instant::now().checked_add(self.policy.inactivity_timeout),
                    Some(Err(error)) => {
                        tracing::warn!(task = %self.state.id, %error, "no summary could be had; the conversation is cut instead");
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

    /// The tasks that it has launched and that have not ended, as the summary names them.
    async fn open_tasks(&self) -> Result<Vec<String>, Halt> {
        if !self.may_launch {
            return Ok(Vec::new());
        }
        let tree = self.context.store.list(TaskFilter::tree(self.state.root)).await?;
        let open = tree.iter().filter(|task| task.parent == Some(self.state.id) && !task.status.is_final());
        Ok(open.map(|task| format!("- {} ({}): {}", task.id, task.agent, task.headline)).collect())
    }
}
