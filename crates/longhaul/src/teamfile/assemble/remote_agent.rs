//! A remote sub-agent: its tasks are passed on to it over A2A, word for word.
//!
//! It is an agent like any other, with one tool that calls the remote agent, and a "model" that passes its
//! messages to the tool and replies with the result. So its tasks are journaled, stopped, approved and
//! resumed like all others.

use std::sync::Arc;

use futures::StreamExt as _;
use serde_json::json;

use super::{AssembleError, FileAssembly, TeamAssembler};
use crate::agent::{Agent, Policy};
use crate::message::prompt_tags::escape;
use crate::message::{Block, Call, Message, Reply, StopReason};
use crate::model::{Model, ModelError, ModelErrorKind, ModelRequest, ReplyChunk, ReplyStream};
use crate::toolset::{A2a, SecretHeaders};

/// How many bytes of the remote agent's answer are kept; no model limits it.
const ANSWER: usize = 1 << 20;

impl TeamAssembler<'_> {
    /// The name in the whole team of the agent at an address. It is added if it does not exist yet.
    pub(super) fn remote_agent(
        &mut self,
        job: &mut FileAssembly<'_>,
        name: &str,
        address: &str,
        path: &str,
    ) -> Result<Option<String>, AssembleError> {
        let full = match &job.prefix {
            None => name.to_owned(),
            Some(prefix) => format!("{prefix}/{name}"),
        };
        let Some(shown) = shown(address) else {
            job.add_error(path, "this is not a URL: write name:https://host/path");
            return Ok(None);
        };
        let relay = RelayModel { name: format!("a2a {shown}") };
        let had = self.agents.iter().find(|agent| agent.name.as_str() == full);
        let taken = had.is_some_and(|had| had.model.name() != relay.name);
        if taken || job.team.agents.contains_key(name) {
            job.add_error(
                path,
                format!("another agent is called '{name}' already: write other-name:{shown}"),
            );
            return Ok(None);
        }
        if had.is_none() {
            let agent = Agent::builder(full.as_str())
                .description(format!("A remote agent at {shown}. It sees only the task."))
                .model(Arc::new(relay))
                .policy(Policy { output_cap: ANSWER, ..Policy::default() })
                .toolset(
                    A2a::new(address, SecretHeaders::default())
                        .name(name)
                        .single_tool()
                        .own_server(self.environment.own_server.clone()),
                )
                .build()?;
            self.agents.push(agent);
        }
        Ok(Some(full))
    }
}

/// An address without the parts that may be secret.
fn shown(address: &str) -> Option<String> {
    let url = reqwest::Url::parse(address).ok()?;
    let port = url.port().map_or(String::new(), |port| format!(":{port}"));
    Some(format!("{}://{}{port}{}", url.scheme(), url.host_str()?, url.path()))
}

/// Passes messages on to the tool, and replies with the result.
struct RelayModel {
    name: String,
}

impl Model for RelayModel {
    fn name(&self) -> &str {
        &self.name
    }

    fn stream<'a>(&'a self, request: ModelRequest<'a>) -> ReplyStream<'a> {
        let next =
            next(&request).map_err(|kind| ModelError { model: self.name.clone(), kind, retry_after: None });
        let done = next.map(|(block, stop)| {
            let reply = Reply {
                blocks: vec![block],
                stop,
                model: self.name.clone(),
                cost: Some(0),
                ..Reply::default()
            };
            ReplyChunk::Done(Box::new(reply))
        });
        futures::stream::iter([done]).boxed()
    }
}

/// The next text or call. The error says why there is none.
fn next(request: &ModelRequest<'_>) -> Result<(Block, StopReason), ModelErrorKind> {
    match request.messages.last() {
        Some(Message::Tool(result)) if result.is_error => {
            Err(ModelErrorKind::Rejected(result.output.to_string()))
        }
        Some(Message::Tool(result)) => Ok((Block::Text(result.output.to_string()), StopReason::End)),
        _ => {
            // If the agent could not be reached, the instruction says why.
            let unreachable = || ModelErrorKind::Rejected(request.system.trim().to_owned());
            let tool = request.tools.first().ok_or_else(unreachable)?;
            let arguments = arguments(request.messages).to_string();
            let id = format!("call_{}", request.turn + 1);
            Ok((Block::Call(Call { id, tool: tool.name.clone(), arguments }), StopReason::Calls))
        }
    }
}

/// The arguments of the call: all messages since the last answer, and the id of the remote task if it asked a
/// question.
fn arguments(messages: &[Message]) -> serde_json::Value {
    let new =
        messages.iter().rposition(|message| !matches!(message, Message::User(_))).map_or(0, |at| at + 1);
    let said: Vec<&str> = messages[new..]
        .iter()
        .filter_map(|message| match message {
            Message::User(text) => Some(&**text),
            _ => None,
        })
        .collect();
    let said = said.join("\n\n");
    let before = messages[..new].iter().rev().find_map(|message| match message {
        Message::Tool(result) => Some(&*result.output),
        _ => None,
    });
    let named = |key: &str| {
        let rest = before?.rsplit_once(&format!("{key} \""))?.1;
        rest.split_once('"').map(|(id, _)| id)
    };
    match (named("task_id"), before) {
        (Some(task), _) => json!({"message": said, "task_id": task, "context_id": named("context_id")}),
        (None, Some(answer)) => {
            // The remote agent keeps nothing of a conversation that has ended.
            let message = format!(
                "You have answered before:\n\n<answer>\n{}\n</answer>\n\nNow:\n\n{said}",
                escape(answer)
            );
            json!({ "message": message })
        }
        (None, None) => json!({ "message": said }),
    }
}
