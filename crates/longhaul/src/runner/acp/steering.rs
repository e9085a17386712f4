//! Letters to an agent in the middle of its turn.
//!
//! A letter is read, and its text in the journal as a prompt, before it is sent. So after a crash the session that
//! is loaded says whether it has arrived, as for every prompt. A turn that has just ended may refuse it: that is in
//! the journal too, and it is sent after the reply.

use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::{Halt, TaskRun};
use super::turn_loop::RunningTurn;
use super::wire::{RpcError, Steering, text_at};
use crate::entry::Entry;

/// How long an agent that has ended its turn may take to say whether it took a message.
const ANSWERING: std::time::Duration = std::time::Duration::from_secs(10);

/// The prompts of one turn.
pub(super) struct TurnPrompts {
    /// Those that have no answer yet; the first, and those that were queued.
    open: Vec<u64>,
    /// A message that the agent has not taken yet, and its request.
    steered: Option<(u64, std::sync::Arc<str>)>,
    /// The answer to the last prompt that was answered.
    result: Option<Result<Value, RpcError>>,
    /// Until when a message that was sent is waited for, after the turn.
    until: Option<Instant>,
}

impl TurnPrompts {
    pub(super) fn new(first: u64) -> TurnPrompts {
        TurnPrompts { open: vec![first], steered: None, result: None, until: None }
    }

    /// When to give up waiting.
    pub(super) fn due(&self) -> Option<Instant> {
        self.until
    }

    /// Whether the turn is over, and how it ended.
    pub(super) fn take_end(&mut self) -> Option<Result<Value, RpcError>> {
        let is_over = self.open.is_empty() && self.steered.is_none();
        if is_over { self.result.take() } else { None }
    }

    /// Takes an answer. Returns the message that it refuses.
    fn answered(&mut self, id: u64, result: Result<Value, RpcError>) -> Option<std::sync::Arc<str>> {
        if self.open.contains(&id) {
            self.open.retain(|open| *open != id);
            // What one prompt used counts, though another one ended the turn.
            self.result = Some(match (self.result.take(), result) {
                (Some(Ok(before)), Ok(after)) => Ok(with_usage_of(after, &before)),
                (Some(Err(error)), _) => Err(error),
                (_, after) => after,
            });
            if self.open.is_empty() {
                self.until = Some(Instant::now() + ANSWERING);
            }
            return None;
        }
        let (_, text) = self.steered.take_if(|(steered, _)| *steered == id)?;
        let outcome = result.as_ref().ok().and_then(|result| text_at(result, "outcome"));
        (!matches!(outcome, Some("injected" | "startedNewTurn"))).then_some(text)
    }
}

/// Adds the usage that one answer tells to that of another.
fn with_usage_of(mut after: Value, before: &Value) -> Value {
    let Some(had) = before.get("usage").and_then(Value::as_object) else { return after };
    let Some(fields) = after.as_object_mut() else { return after };
    let usage = fields.entry("usage").or_insert_with(|| json!({}));
    for (key, value) in had {
        let sum = value.as_u64().unwrap_or_default().saturating_add(usage[key].as_u64().unwrap_or_default());
        usage[key] = sum.into();
    }
    after
}

impl TaskRun {
    /// Sends the letters that have come to the turn, if its agent takes them.
    pub(super) async fn steer(&mut self, now: &mut RunningTurn<'_>) -> Result<(), Halt> {
        let steering = now.process.steering;
        let is_busy = now.prompts.steered.is_some() || now.prompts.open.is_empty();
        if now.halt.is_some() || is_busy || steering == Steering::None {
            return Ok(());
        }
        let Some((letters, known, text)) = self.conversation.letters_for_turn(&self.policy) else {
            return Ok(());
        };
        self.ensure_lease().await?;
        let read = Entry::Read { letters, known, all_ended: None };
        let prompted = Entry::Prompted { text: text.clone(), again: false, held: false };
        self.append_entries(vec![read, prompted]).await?;
        let session = now.process.session.id.clone();
        let mut params = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": &*text }] });
        match steering {
            Steering::Queue => {
                let id = now.process.send_request("session/prompt", params);
                now.prompts.open.push(id);
            }
            _ => {
                params["_meta"] = json!({ "steering": { "idleBehavior": "promptRequired" } });
                let id = now.process.send_request("_session/steering", params);
                now.prompts.steered = Some((id, text));
            }
        }
        Ok(())
    }

    /// Takes the answer to a request of the turn.
    pub(super) async fn take_turn_answer(
        &mut self,
        now: &mut RunningTurn<'_>,
        id: u64,
        result: Result<Value, RpcError>,
    ) -> Result<(), Halt> {
        match now.prompts.answered(id, result) {
            Some(text) => self.append_entries(vec![Entry::Prompted { text, again: false, held: true }]).await,
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_ends_when_everything_that_was_sent_to_it_is_answered() {
        let mut prompts = TurnPrompts::new(1);
        prompts.steered = Some((2, "look here".into()));
        assert_eq!(prompts.answered(1, Ok(json!({ "stopReason": "end_turn" }))), None);
        assert!(prompts.take_end().is_none() && prompts.due().is_some());
        let refused = prompts.answered(2, Ok(json!({ "outcome": "promptRequired" })));
        assert_eq!(refused.as_deref(), Some("look here"));
        assert!(prompts.take_end().is_some());
        prompts = TurnPrompts::new(1);
        prompts.steered = Some((2, "look here".into()));
        assert_eq!(prompts.answered(2, Ok(json!({ "outcome": "injected" }))), None);
        assert!(prompts.take_end().is_none());
    }

    #[test]
    fn queued_prompts_are_one_turn_and_their_usage_is_added() {
        let mut prompts = TurnPrompts::new(1);
        prompts.open.push(2);
        prompts.answered(1, Ok(json!({ "usage": { "inputTokens": 10 } })));
        assert!(prompts.take_end().is_none());
        prompts.answered(2, Ok(json!({ "usage": { "inputTokens": 3, "outputTokens": 1 } })));
        let end = prompts.take_end().unwrap().unwrap();
        assert_eq!(end["usage"], json!({ "inputTokens": 13, "outputTokens": 1 }));
    }
}
