//! Making room: when a conversation grows too long for its model, its older part becomes a summary.

use futures::StreamExt as _;
use tokio::time::Instant;

use super::{Halt, Run, heard, overdue};
use crate::entry::Entry;
use crate::message::envelope::escape_tags;
use crate::message::{Message, Reply};
use crate::model::wire::Memo;
use crate::model::{Chunk, Model, Request};
use crate::store::Filter;
use crate::turn::summary_text;

/// What the model is told when it is asked for a summary.
const ASK: &str = "You write summaries of conversations of an agent with its tools, so that the agent can go on with its \
                   task from the summary alone. Keep what was found out, decided and done, what failed and why, names, \
                   paths, numbers and ids exactly as they are, and what is still to be done. Leave out pleasantries and \
                   repetition. Answer with the summary and nothing else.";

/// What is assumed of a model that found the conversation too long and of which nothing else is known, in tokens.
const SMALL_WINDOW: u64 = 16_000;
/// How long a summary may be where the model could not make one, in bytes.
const FALLBACK: usize = 6_000;

impl Run {
    /// Makes the conversation shorter if it has become too long for the model.
    pub(super) async fn make_room(&mut self, model: &dyn Model) -> Result<(), Halt> {
        let limit = self.habits.compact_at.or_else(|| model.window().map(|window| window / 5 * 4));
        match limit {
            Some(limit) if self.turn.tokens() >= limit => self.compact(model, limit).await.map(drop),
            _ => Ok(()),
        }
    }

    /// Makes the conversation shorter because the provider says that it is too long. Answers whether it could.
    pub(super) async fn make_room_anyway(&mut self, model: &dyn Model) -> Result<bool, Halt> {
        let window = model.window().or(self.habits.compact_at).unwrap_or(SMALL_WINDOW);
        // The provider counts otherwise than we do: what we think that the conversation has is more than it can have.
        let limit = window.min(self.turn.tokens()) / 2;
        self.compact(model, limit).await
    }

    async fn compact(&mut self, model: &dyn Model, limit: u64) -> Result<bool, Halt> {
        self.pay().await?;
        let most = usize::try_from(limit.saturating_mul(3)).unwrap_or(usize::MAX);
        // What was said last stays as it is, as far as there is room for it; all of it may be one huge output.
        let old = self.turn.condensable(limit / 3, most).or_else(|| self.turn.condensable(0, most));
        let Some(old) = old else { return Ok(false) };
        tracing::debug!(task = %self.head.id, replaces = old.replaces, "making the conversation shorter");
        let reply = self.summarise(model, &old.transcript).await?;
        let (summary, usage, cost) = match reply {
            Some(reply) => (reply.text(), reply.usage, reply.cost),
            None => (crate::turn::middle_out(&old.transcript, FALLBACK), Default::default(), None),
        };
        let open = self.open_tasks().await?;
        let summary = summary_text(&summary, &open);
        self.note(vec![Entry::Compacted { summary, replaces: old.replaces, usage, cost }]).await?;
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
        let memo = Memo::default();
        self.be_sure().await?;
        let mut stream = model.stream(Request {
            task: self.head.id,
            agent: &agent.name,
            system: ASK,
            messages: &messages,
            tools: &[],
            output: None,
            turn: self.turn.replies(),
            retry: 0,
            memo: &memo,
        });
        let mut silent_at = Instant::now().checked_add(self.habits.inactivity);
        loop {
            tokio::select! {
                biased;
                chunk = stream.next() => match chunk {
                    Some(Ok(Chunk::Done(reply))) => return Ok(Some(*reply).filter(|reply| !reply.text().trim().is_empty())),
                    Some(Ok(_)) => silent_at = Instant::now().checked_add(self.habits.inactivity),
                    Some(Err(error)) => {
                        tracing::warn!(task = %self.head.id, %error, "no summary could be had; the conversation is cut instead");
                        return Ok(None);
                    }
                    None => return Ok(None),
                },
                () = overdue(silent_at) => return Ok(None),
                () = heard(&self.bell, self.look_at, &self.tenure) => {
                    self.catch_up().await?;
                    if self.head.stop.is_some() {
                        return Err(Halt::Stop);
                    }
                }
                () = overdue(self.watch.deadline()) => return Err(self.too_late()),
            }
        }
    }

    /// The tasks that it has launched and that have not ended, as the summary names them.
    async fn open_tasks(&self) -> Result<Vec<String>, Halt> {
        if !self.may_launch {
            return Ok(Vec::new());
        }
        let tree = self.around.store.list(Filter::tree(self.head.root)).await?;
        let open = tree.iter().filter(|task| task.parent == Some(self.head.id) && !task.status.is_final());
        Ok(open.map(|task| format!("- {} ({}): {}", task.id, task.agent, task.headline)).collect())
    }
}
