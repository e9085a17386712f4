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
    /// How many of the prompts have a reply.
    #[serde(default)]
    answered: usize,
    /// Messages for the turn that has no reply yet, which it did not take.
    #[serde(default)]
    held: Vec<Arc<str>>,
    /// Calls of tools of the task in the turn that has no reply yet.
    #[serde(default)]
    task_calls: Vec<TaskCall>,
}

/// A call of a tool of the task, which Longhaul itself runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct TaskCall {
    call: CallId,
    tool: Arc<str>,
    arguments: String,
    returned: bool,
    /// Whether another process of the program has made it.
    earlier: bool,
}

/// How many calls of tools of the task are remembered for one turn.
const TASK_CALLS: usize = 1000;

/// The kinds that agents of other programs give to their calls. Every other name is a tool of the task.
pub(crate) const CALL_KINDS: [&str; 10] =
    ["read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"];

impl ForeignSession {
    pub(super) fn opened(&mut self, session: &AgentSession) {
        let same = self.open.as_ref().is_some_and(|open| open.id == session.id);
        if !(session.loaded && same) {
            self.worked_before |= !self.prompts.is_empty();
            (self.sent, self.outstanding, self.answered) = (0, false, 0);
            self.prompts.clear();
        }
        self.task_calls.iter_mut().for_each(|call| call.earlier = true);
        self.open = Some(session.clone());
    }

    pub(super) fn prompted(&mut self, text: &Arc<str>, again: bool, messages: usize) {
        if again {
            self.prompts.pop();
        }
        self.prompts.push(text.clone());
        (self.sent, self.outstanding) = (messages, true);
    }

    pub(super) fn called(&mut self, call: CallId, tool: &Arc<str>, arguments: Option<&str>) {
        self.next_call = self.next_call.max(call.index.saturating_add(1));
        if CALL_KINDS.contains(&&**tool) {
            self.open_calls.push((call, tool.clone()));
        } else {
            let arguments = arguments.unwrap_or_default().to_owned();
            if self.task_calls.len() >= TASK_CALLS
                && let Some(oldest) = self.task_calls.iter().position(|call| call.returned)
            {
                self.task_calls.remove(oldest);
            }
            let tool = tool.clone();
            self.task_calls.push(TaskCall { call, tool, arguments, returned: false, earlier: false });
        }
    }

    pub(super) fn returned(&mut self, call: CallId) {
        self.open_calls.retain(|(open, _)| *open != call);
        self.task_calls.iter_mut().filter(|open| open.call == call).for_each(|open| open.returned = true);
    }

    /// A message for the current turn was not taken: it is no prompt of this turn.
    pub(super) fn hold(&mut self, text: &Arc<str>) {
        if self.prompts.last() == Some(text) {
            self.prompts.pop();
        }
        self.held.push(text.clone());
    }

    /// The turn has a reply. Returns what it did not take.
    pub(super) fn replied(&mut self) -> Vec<Arc<str>> {
        self.outstanding = false;
        self.answered = self.prompts.len();
        self.next_call = 0;
        self.open_calls.clear();
        self.task_calls.clear();
        std::mem::take(&mut self.held)
    }

    /// Another task continues the conversation, and with it the session.
    pub(super) fn continued(&mut self) {
        let _ = self.replied();
    }

    /// The session of this agent.
    pub(crate) fn of_agent(&self, agent: &AgentName) -> Option<&AgentSession> {
        self.open.as_ref().filter(|open| open.agent == *agent)
    }

    /// The prompts of the session so far.
    pub(crate) fn prompts(&self) -> &[Arc<str>] {
        &self.prompts
    }

    /// The prompts without a reply. There are several if messages were sent to a turn.
    pub(crate) fn unanswered(&self) -> &[Arc<str>] {
        self.prompts.get(self.answered.min(self.prompts.len())..).unwrap_or_default()
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

    /// Calls of tools of the task that have not returned.
    pub(crate) fn open_task_calls(&self) -> impl Iterator<Item = (CallId, &Arc<str>)> {
        self.task_calls.iter().filter(|call| !call.returned).map(|open| (open.call, &open.tool))
    }

    /// The same call of the unfinished turn by an earlier process, which may not have got the result; and whether it
    /// has returned. None of those that are `taken`.
    pub(crate) fn find_task_call(
        &self,
        tool: &str,
        arguments: &str,
        taken: impl Fn(CallId) -> bool,
    ) -> Option<(CallId, bool)> {
        let same = |had: &&TaskCall| {
            had.earlier && &*had.tool == tool && had.arguments == arguments && !taken(had.call)
        };
        self.task_calls.iter().find(same).map(|had| (had.call, had.returned))
    }

    /// The index of the next call of the unfinished reply.
    pub(crate) fn next_call(&self) -> u32 {
        self.next_call
    }
}
