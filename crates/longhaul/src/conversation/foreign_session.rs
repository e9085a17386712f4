//! The session of an agent that another program runs, as far as the journal knows it: what was opened, what was
//! sent, and which calls the agent has begun.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::entry::AgentSession;
use crate::id::{AgentName, CallId};

/// The fold of the entries about a session.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct ForeignSession {
    open: Option<AgentSession>,
    /// The prompts of this session, in their order.
    prompts: Vec<Arc<str>>,
    /// How many messages of the conversation the last prompt and those before it covered.
    sent: usize,
    /// Whether the last prompt has no reply yet.
    outstanding: bool,
    /// Whether an agent has worked on the task in an earlier session.
    worked_before: bool,
    /// Calls of the agent that have not returned.
    open_calls: Vec<(CallId, Arc<str>)>,
    /// The index of the next call of the unfinished reply.
    next_call: u32,
}

impl ForeignSession {
    pub(super) fn opened(&mut self, session: &AgentSession) {
        let same = self.open.as_ref().is_some_and(|open| open.id == session.id);
        if !(session.loaded && same) {
            self.worked_before |= !self.prompts.is_empty();
            (self.sent, self.outstanding) = (0, false);
            self.prompts.clear();
        }
        self.open = Some(session.clone());
    }

    pub(super) fn prompted(&mut self, text: &Arc<str>, again: bool, messages: usize) {
        if again {
            self.prompts.pop();
        }
        self.prompts.push(text.clone());
        (self.sent, self.outstanding) = (messages, true);
    }

    pub(super) fn called(&mut self, call: CallId, tool: &Arc<str>) {
        self.next_call = self.next_call.max(call.index.saturating_add(1));
        self.open_calls.push((call, tool.clone()));
    }

    pub(super) fn returned(&mut self, call: CallId) {
        self.open_calls.retain(|(open, _)| *open != call);
    }

    pub(super) fn replied(&mut self) {
        self.outstanding = false;
        self.next_call = 0;
        self.open_calls.clear();
    }

    /// Another task continues the conversation, and with it the session.
    pub(super) fn continued(&mut self) {
        self.replied();
    }

    /// The session of this agent.
    pub(crate) fn of_agent(&self, agent: &AgentName) -> Option<&AgentSession> {
        self.open.as_ref().filter(|open| open.agent == *agent)
    }

    /// The prompts of the session so far.
    pub(crate) fn prompts(&self) -> &[Arc<str>] {
        &self.prompts
    }

    /// How many messages of the conversation were sent.
    pub(crate) fn sent(&self) -> usize {
        self.sent
    }

    /// Whether the last prompt has no reply yet.
    pub(crate) fn is_outstanding(&self) -> bool {
        self.outstanding
    }

    /// Whether the session lacks what was done before it.
    pub(crate) fn lacks_history(&self) -> bool {
        self.prompts.is_empty() && self.worked_before
    }

    /// Calls of the agent that have not returned.
    pub(crate) fn open_calls(&self) -> &[(CallId, Arc<str>)] {
        &self.open_calls
    }

    /// The index of the next call of the unfinished reply.
    pub(crate) fn next_call(&self) -> u32 {
        self.next_call
    }
}
