//! Runs a task whose agent is another program, over the Agent Client Protocol.
//!
//! The conversation decides the next step as for every task. What differs is the step "call the model": it is
//! one turn of the program's session. The prompt is in the journal before it is sent. After a crash the session
//! is loaded, and what it replays says whether the prompt has arrived (`prompt`), so none is sent twice. Calls
//! that the program makes are recorded as foreign (`agent_turn`) and never run here.

mod connection;
mod permission;
mod prompt;
mod session;
mod steering;
mod task_calls;
mod task_server;
#[cfg(test)]
mod tests;
mod agent_turn;
mod turn_loop;
mod wire;

use std::sync::Arc;

use super::{Halt, TaskRun};
use crate::agent::AcpAgent;
use crate::conversation::ForeignSession;
use crate::entry::{CallResult, Entry, Failure, FailureKind};
use crate::id::{CallId, Seq};
use crate::journal;
use crate::message::Message;
use prompt::{INTERRUPTED, PromptKind};
use session::{AgentError, AgentProcess, SessionRequest};
use task_server::TaskServer;
use turn_loop::TurnEnd;

/// How often in a row the program may die in one turn.
const DEATHS: u32 = 3;

/// The program that runs a task's agent, while it has a session.
pub(super) struct OpenAgent(Box<AgentProcess>);

impl TaskRun {
    /// One turn of the program that runs the agent.
    pub(super) async fn prompt_agent(&mut self, acp: &AcpAgent) -> Result<(), Halt> {
        let ended = self.prompt_until_replied(acp).await;
        if let Err(Halt::Stop | Halt::Fail(_)) = &ended {
            self.close_interrupted_task_calls().await?;
        }
        ended
    }

    async fn prompt_until_replied(&mut self, acp: &AcpAgent) -> Result<(), Halt> {
        self.take_seat().await?;
        self.ledger.check(&self.state, self.stopwatch.total(), &*self.context.store).await?;
        self.check_told_cost(acp)?;
        let mut deaths = 0;
        loop {
            self.close_interrupted_calls().await?;
            let mut process = match self.open_agent.take() {
                Some(open) => *open.0,
                None => self.open_session(acp).await?,
            };
            let (kind, text) = self.next_prompt(&mut process).await?;
            let text: Arc<str> = text.into();
            self.ensure_lease().await?;
            let again = kind == PromptKind::Again;
            self.append_entries(vec![Entry::Prompted { text: text.clone(), again, held: false }]).await?;
            let ended = match self.run_turn(acp, &mut process, &text).await {
                Ok(ended) => ended,
                Err(halt) => {
                    process.connection.close().await;
                    return Err(halt);
                }
            };
            let how = match ended {
                TurnEnd::Replied => {
                    self.open_agent = Some(OpenAgent(Box::new(process)));
                    return Ok(());
                }
                TurnEnd::Failed(failure) => {
                    process.connection.close().await;
                    return Err(Halt::Fail(failure));
                }
                TurnEnd::Died(how) => how,
            };
            process.connection.close().await;
            deaths += 1;
            if deaths >= DEATHS {
                let text = format!("the agent {} died {deaths} times in one turn: {how}", acp.program_name());
                return Err(Halt::Fail(Failure::new(FailureKind::Tool, text)));
            }
            let text = format!("the agent {} is started again: {how}", acp.program_name());
            let warnings = self.conversation.new_warnings(vec![text]);
            self.append_entries(warnings).await?;
        }
    }

    /// Ends the program, and everything it has started.
    pub(super) async fn close_agent(&mut self) {
        if let Some(OpenAgent(process)) = self.open_agent.take() {
            process.connection.close().await;
        }
    }

    /// Rejects an agent whose cost nobody tells, if the cost is limited.
    fn check_told_cost(&self, acp: &AcpAgent) -> Result<(), Halt> {
        if acp.reports_cost() || !self.ledger.limits_cost() {
            return Ok(());
        }
        let text = format!(
            "the agent {} does not tell what its work costs, so the cost limit cannot be enforced: remove max_cost, \
             and limit max_tokens or max_time instead",
            acp.program_name()
        );
        Err(Halt::Fail(Failure::new(FailureKind::Budget, text)))
    }

    /// Records that calls of an earlier process of the program have no result.
    async fn close_interrupted_calls(&mut self) -> Result<(), Halt> {
        let open = self.conversation.session().open_calls();
        let entries: Vec<Entry> = open
            .iter()
            .map(|(call, tool)| {
                let foreign = Some(tool.clone());
                let result = CallResult { is_error: true, foreign, ..CallResult::new(*call, INTERRUPTED) };
                Entry::Returned(Box::new(result))
            })
            .collect();
        if entries.is_empty() { Ok(()) } else { self.append_entries(entries).await }
    }

    /// Starts the program and opens the task's session: the one it has, or else a new one. Its id is in the
    /// journal when this returns.
    async fn open_session(&mut self, acp: &AcpAgent) -> Result<AgentProcess, Halt> {
        let dir = self.order.working_dir.clone().unwrap_or_else(|| acp.home().to_owned());
        let known = self.conversation.session();
        let request = SessionRequest {
            agent: self.agent.name.clone(),
            dir,
            known: known.of_agent(&self.agent.name).cloned(),
            unanswered: known.is_outstanding().then(|| known.prompts().to_vec()),
            approved: self.order.approved,
            cost: self.state.cost,
            server: self.start_task_server(acp).map_err(|error| Halt::Fail(error.into_failure(acp)))?,
        };
        self.ensure_lease().await?;
        let acp = acp.clone();
        let opening = async move { (session::open(&acp, request).await, acp) };
        let (opened, acp) = Box::pin(self.unless_halted(opening)).await?;
        let process = opened.map_err(|error: AgentError| Halt::Fail(error.into_failure(&acp)))?;
        self.append_entries(vec![Entry::SessionOpened(Box::new(process.session.clone()))]).await?;
        Ok(process)
    }

    /// The MCP server with the tools of the agent, if it has some and can be given them.
    fn start_task_server(&self, acp: &AcpAgent) -> Result<Option<TaskServer>, AgentError> {
        if acp.task_tools_command().is_empty() || self.tools.specs.is_empty() {
            return Ok(None);
        }
        let server = TaskServer::start(acp.home(), &self.state.id.to_string(), &self.tools);
        server.map(Some).map_err(|error| AgentError::NotStarted(format!("the socket of its task: {error}")))
    }

    /// What to send now.
    async fn next_prompt(&mut self, process: &mut AgentProcess) -> Result<(PromptKind, String), Halt> {
        let messages = self.conversation.messages();
        let session: &ForeignSession = self.conversation.session();
        let outstanding = process.arrival.take().filter(|_| session.is_outstanding());
        // A session of another agent of the team had these messages, or none had.
        let lacks = session.lacks_history()
            || (session.prompts().is_empty()
                && messages.iter().any(|message| matches!(message, Message::Assistant(_))));
        let kind = prompt::choose(!session.prompts().is_empty(), lacks, outstanding);
        let steered = session.unanswered().len() > 1;
        // Of several prompts to one turn, some may have arrived.
        let kind = if kind == PromptKind::Again && steered { PromptKind::Unsure } else { kind };
        let last = match steered {
            true => Some(session.unanswered().join("\n\n").into()),
            false => session.prompts().last().cloned(),
        };
        let unsent: Vec<&str> = messages
            .iter()
            .skip(session.sent())
            .filter_map(|message| match message {
                Message::User(text) => Some(&**text),
                _ => None,
            })
            .collect();
        let done = match kind {
            PromptKind::Restart => {
                let journal = journal::read_all(&*self.context.store, self.state.id, Seq(0)).await?;
                prompt::transcript(&messages, &journal)
            }
            _ => String::new(),
        };
        let mut system = self.system.to_string();
        if let Some(name) = &process.server_name {
            system += &format!("\n\nThe tools that are named above are those of the MCP server '{name}'.");
        }
        let system = match self.agent.output_schema.as_deref() {
            None => system,
            Some(schema) => format!(
                "{system}\n\nYour final answer must be nothing but JSON that matches this schema: {}",
                schema.prompt_text()
            ),
        };
        let text = prompt::compose(kind, &system, last.as_deref(), &unsent, || done);
        Ok((kind, text))
    }

    /// The id of a call of the turn that has no reply yet.
    fn foreign_call(&self, index: u32) -> CallId {
        CallId { turn: self.conversation.replies().saturating_add(1), index }
    }
}
