//! Tools for a remote agent that speaks the Agent2Agent (A2A) protocol: one tool per skill.

use std::sync::Arc;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use reqwest::{Method, Url};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::fn_tool::non_blank;
use super::http_client::{
    RemoteToolError, SecretHeaders, ToolHttpClient, display_url, parse_web_url, sanitize_tool_name,
    unique_name,
};
use super::own_server::OwnServer;
use super::text::truncate;
use super::{OpenFuture, Toolset, ToolsetContext, ToolsetError};
use crate::id::Digest;
use crate::model::ToolSpec;
use crate::model::wire::sse::SseParser;
use crate::permission::ToolIdentity;
use crate::tool::{
    CallContext, CallFuture, DynTool, ToolEffects, ToolError, ToolOutput, arguments_schema,
    identity_from_spec, parse_arguments,
};
use agent_card::{A2aSkill, AgentCard, check_headers_allowed};
use wire::{A2aMessage, A2aMethod, A2aReply, A2aTaskState, A2aVersion};

mod agent_card;
mod wire;

/// How long reading a card or polling a task may take, and how many bytes of either are read.
const TIME: Duration = Duration::from_secs(30);
const MOST: usize = 8 << 20;
/// The overall time limit of a remote task.
const LONGEST: Duration = Duration::from_secs(3600);
/// The first and the longest pause between two polls of a task.
const FIRST_LOOK: Duration = Duration::from_millis(300);
const LAST_LOOK: Duration = Duration::from_secs(10);
/// How many polls in a row may fail.
const MOST_FAILED: u32 = 5;
/// How long a request to cancel a remote task may take.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);

/// The toolset `a2a`: a remote agent.
pub struct A2a {
    url: String,
    name: Option<String>,
    headers: SecretHeaders,
    /// Whether to offer one tool for the whole agent instead of one per skill.
    single_tool: bool,
    own_server: OwnServer,
    /// The agent, connected on first use: its card is read only once.
    agent: OnceCell<Arc<RemoteAgent>>,
}

impl A2a {
    /// Creates a toolset for the agent at `url`; its card is below that URL, at
    /// `/.well-known/agent-card.json`. `headers` are sent with every request to the agent.
    pub fn new(url: impl Into<String>, headers: SecretHeaders) -> Self {
        A2a {
            url: url.into(),
            name: None,
            headers,
            single_tool: false,
            own_server: OwnServer::default(),
            agent: OnceCell::new(),
        }
    }

    /// Sets a prefix for the names of its tools.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = non_blank(Some(name.into()));
        self
    }

    /// Offers one tool for the whole agent, named after the toolset, instead of one per skill.
    pub fn single_tool(mut self) -> Self {
        self.single_tool = true;
        self
    }

    /// Sets the server that this process is. Its agents may not call it.
    pub fn own_server(mut self, server: OwnServer) -> Self {
        self.own_server = server;
        self
    }

    async fn connect(&self) -> Result<Arc<RemoteAgent>, RemoteToolError> {
        let url = parse_web_url(&self.url).map_err(|why| RemoteToolError(format!("url: {why}")))?;
        let client = ToolHttpClient::new(&self.headers, &self.own_server)
            .map_err(|why| RemoteToolError(format!("headers: {why}")))?;
        let named =
            |why: RemoteToolError| RemoteToolError(client.scrub(format!("{}: {why}", display_url(&url))));
        let card = fetch_card(&client, &url).await.map_err(named)?;
        if !self.headers.is_empty() {
            check_headers_allowed(&url, &card.url).map_err(named)?;
        }
        let toolset = format!("a2a:{}", &Digest::of_bytes(self.url.as_bytes()).as_str()[..8]);
        Ok(Arc::new(RemoteAgent { card, client, toolset, place: display_url(&url) }))
    }
}

impl std::fmt::Debug for A2a {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let url = parse_web_url(&self.url).map_or_else(|_| String::new(), |url| display_url(&url));
        f.debug_struct("A2a").field("url", &url).field("headers", &self.headers).finish_non_exhaustive()
    }
}

/// Fetches the card from its current location, or else from the one used before A2A 0.3.
async fn fetch_card(client: &ToolHttpClient, url: &Url) -> Result<AgentCard, RemoteToolError> {
    let mut first = None;
    for name in ["agent-card.json", "agent.json"] {
        let mut at = url.clone();
        at.set_query(None);
        at.set_fragment(None);
        at.set_path(&format!("{}/.well-known/{name}", url.path().trim_end_matches('/')));
        let request = client.request(Method::GET, at.clone()).header("accept", "application/json");
        let reply = client.send(request, MOST, TIME).await?;
        match reply.status {
            200 => return AgentCard::parse(&reply.text, &at),
            status => {
                let why = format!("it has no agent card: status {status} at {}", at.path());
                first.get_or_insert(RemoteToolError(why));
            }
        }
    }
    Err(first.unwrap_or_else(|| RemoteToolError("it has no agent card".to_owned())))
}

impl Toolset for A2a {
    fn name(&self) -> &str {
        "a2a"
    }

    fn open<'a>(&'a self, _context: &'a ToolsetContext) -> OpenFuture<'a> {
        Box::pin(async {
            let agent = self.agent.get_or_try_init(|| self.connect()).await;
            let agent =
                agent.map_err(|why| ToolsetError { toolset: "a2a".to_owned(), why: why.to_string() })?;
            let whole = A2aSkill {
                id: agent.card.name.clone(),
                name: agent.card.name.clone(),
                description: agent.card.description.clone(),
            };
            let skills = if self.single_tool || agent.card.skills.is_empty() {
                vec![whole]
            } else {
                agent.card.skills.clone()
            };
            let mut tools: Vec<Arc<dyn DynTool>> = Vec::new();
            let mut names: Vec<String> = Vec::new();
            for skill in skills {
                let id = if skill.id.is_empty() { &skill.name } else { &skill.id };
                let typed = match &self.name {
                    Some(name) if self.single_tool => name.clone(),
                    Some(name) => format!("{name}_{id}"),
                    None => id.clone(),
                };
                let name = match sanitize_tool_name(&typed).to_ascii_lowercase() {
                    name if name.is_empty() => "agent".to_owned(),
                    name => name,
                };
                let name = unique_name(&name, |other| names.iter().any(|taken| taken == other));
                names.push(name.clone());
                tools.push(Arc::new(A2aSkillTool { name, skill, agent: agent.clone() }));
            }
            Ok(tools)
        })
    }

    fn prefix(&self) -> Option<&str> {
        self.name.as_deref().filter(|_| !self.single_tool)
    }

    fn instruction(&self, _context: &ToolsetContext) -> Option<String> {
        let card = &self.agent.get()?.card;
        Some(format!("{} is another agent, elsewhere. {}", card.name, card.description).trim().to_owned())
    }
}

/// A remote agent whose card has been read.
struct RemoteAgent {
    card: AgentCard,
    client: ToolHttpClient,
    /// The name of the toolset, and the URL of the card.
    toolset: String,
    place: String,
}

struct A2aSkillTool {
    name: String,
    skill: A2aSkill,
    agent: Arc<RemoteAgent>,
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct A2aSkillArgs {
    /// What the agent is to do, with all that it needs to know: it sees nothing of this conversation.
    message: String,
    /// Only to answer a question of the agent: the task that it asked about.
    task_id: Option<String>,
    /// To go on with an earlier conversation: its id.
    context_id: Option<String>,
}

impl DynTool for A2aSkillTool {
    fn spec(&self) -> ToolSpec {
        let A2aSkill { name, description, .. } = &self.skill;
        let described = match *name == self.agent.card.name {
            true => format!("Asks the agent {name}. {description}"),
            false => format!("Asks the agent {} for its skill '{name}'. {description}", self.agent.card.name),
        };
        let description = described.trim().to_owned();
        ToolSpec { name: self.name.clone(), description, parameters: arguments_schema::<A2aSkillArgs>() }
    }

    fn effects(&self) -> ToolEffects {
        ToolEffects::default()
    }

    fn identity(&self) -> ToolIdentity {
        ToolIdentity {
            toolset: self.agent.toolset.clone(),
            server: Some(self.agent.place.clone()),
            setting: Some(format!("at {}", display_url(&self.agent.card.url))),
            ..identity_from_spec(&self.spec(), self.effects())
        }
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a CallContext) -> CallFuture<'a> {
        Box::pin(async move {
            let args: A2aSkillArgs = parse_arguments(arguments)?;
            if args.message.trim().is_empty() {
                return Err(ToolError::Retry(
                    "the message is empty: say in `message` what the agent is to do".into(),
                ));
            }
            let id = Digest::of_bytes(
                format!("{}:{}:{}", context.caller.task, context.call, args.message).as_bytes(),
            );
            let said = A2aMessage {
                id: id.as_str()[..32].to_owned(),
                text: args.message,
                task: non_blank(args.task_id),
                context: non_blank(args.context_id),
            };
            let exchange = A2aExchange { agent: &self.agent, reply: Mutex::default(), context };
            let ended = tokio::select! {
                ended = tokio::time::timeout(LONGEST, exchange.run(&said)) => ended,
                () = context.cancel.cancelled() => {
                    exchange.cancel().await;
                    return Err(ToolError::Failed("the task is being stopped".to_owned()));
                }
            };
            match ended {
                Ok(Ok(())) => Ok(exchange.output()),
                Ok(Err(why)) => Err(ToolError::Failed(
                    self.agent.client.scrub(format!("{}: {why}", self.agent.card.name)),
                )),
                Err(_) => {
                    exchange.cancel().await;
                    let name = &self.agent.card.name;
                    Err(ToolError::Failed(format!(
                        "{name}: it did not end within {LONGEST:?}, and was called off"
                    )))
                }
            }
        })
    }
}

/// One message to the agent, and the replies to it.
struct A2aExchange<'a> {
    agent: &'a RemoteAgent,
    reply: Mutex<A2aReply>,
    context: &'a CallContext,
}

impl A2aExchange<'_> {
    fn reply(&self) -> std::sync::MutexGuard<'_, A2aReply> {
        self.reply.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        self.reply().state != A2aTaskState::Working
    }

    fn apply(&self, result: &Value) {
        let mut reply = self.reply();
        reply.apply(result);
        if let Some(progress) = reply.progress() {
            self.context.progress(truncate(progress, 300));
        }
    }

    /// Sends the message and collects the replies until the remote task has ended.
    async fn run(&self, said: &A2aMessage) -> Result<(), RemoteToolError> {
        let params = self.agent.card.version.message(said);
        match self.agent.card.streaming {
            true => self.stream(params).await?,
            false => {
                let result = self.agent.ask(A2aMethod::Send, params, LONGEST).await?;
                self.apply(&result);
            }
        }
        // A stream may break off early, so poll the task until it has ended.
        let mut pause = FIRST_LOOK;
        let mut failed = 0;
        while !self.is_over() {
            let Some(task) = self.reply().task.clone() else {
                return Err(RemoteToolError("it answered with neither a message nor a task".to_owned()));
            };
            tokio::time::sleep(pause).await;
            pause = (pause * 3 / 2).min(LAST_LOOK);
            match self.agent.ask(A2aMethod::Get, json!({"id": task}), TIME).await {
                Ok(result) => {
                    failed = 0;
                    self.apply(&result);
                }
                Err(why) if failed + 1 == MOST_FAILED => {
                    return Err(RemoteToolError(format!("its task {task} was lost: {why}")));
                }
                Err(_) => failed += 1,
            }
        }
        Ok(())
    }

    /// Reads a stream until it ends. A broken stream is an error only while the task has no id: with one, the
    /// task can be polled.
    async fn stream(&self, params: Value) -> Result<(), RemoteToolError> {
        let agent = self.agent;
        let request = agent.rpc(A2aMethod::Stream, params).header("accept", "text/event-stream");
        let mut response = agent.client.start(request).await?;
        if response.status().as_u16() >= 400 {
            return Err(RemoteToolError(format!("status {}", response.status().as_u16())));
        }
        let mut sse = SseParser::with_max_event(16 << 20);
        let mut wrong = None;
        let mut each = |data: &str| match result_of(data) {
            Ok(result) => self.apply(&result),
            Err(why) => wrong = wrong.take().or(Some(why)),
        };
        let broken = loop {
            match response.chunk().await {
                Ok(Some(chunk)) => {
                    let fed = sse.feed(&chunk, |event| {
                        each(event.data);
                        Ok(())
                    });
                    if fed.is_err() {
                        break Some(RemoteToolError("it sent an event that is too long".to_owned()));
                    }
                }
                Ok(None) => break None,
                Err(error) => break Some(agent.client.explain_error(error)),
            }
        };
        let _ = sse.finish(|event| {
            each(event.data);
            Ok(())
        });
        let named = self.reply().task.is_some();
        match wrong.or(broken) {
            Some(why) if !named && !self.is_over() => Err(why),
            _ => Ok(()),
        }
    }

    /// Cancels the remote task, if it is still running.
    async fn cancel(&self) {
        let task = if self.is_over() { None } else { self.reply().task.clone() };
        if let Some(task) = task {
            let _ = self.agent.ask(A2aMethod::Cancel, json!({"id": task}), CANCEL_TIMEOUT).await;
        }
    }

    fn output(&self) -> ToolOutput {
        let reply = self.reply();
        let text = self.agent.client.scrub(reply.text());
        let names = |what: &str| match (&reply.task, &reply.context) {
            (Some(task), Some(context)) => {
                format!("{what} with task_id \"{task}\" and context_id \"{context}\"")
            }
            (Some(task), None) => format!("{what} with task_id \"{task}\""),
            _ => what.to_owned(),
        };
        let (note, is_error) = match reply.state {
            A2aTaskState::Completed | A2aTaskState::Working if text.trim().is_empty() => {
                (Some("The agent has finished and said nothing.".to_owned()), false)
            }
            A2aTaskState::Completed | A2aTaskState::Working => (None, false),
            A2aTaskState::InputRequired => {
                (Some(format!("The agent waits for an answer: {}.", names("call it again"))), false)
            }
            A2aTaskState::AuthRequired => {
                (Some("The agent wants to be given more rights, which only the user can do.".into()), true)
            }
            A2aTaskState::Failed => (Some("The agent has failed.".to_owned()), true),
            A2aTaskState::Canceled => (Some("The agent's task was cancelled.".to_owned()), true),
            A2aTaskState::Rejected => (Some("The agent would not do it.".to_owned()), true),
        };
        let text = match note {
            Some(note) if text.trim().is_empty() => note,
            Some(note) => format!("{text}\n\n[{note}]"),
            None => text,
        };
        ToolOutput { is_error, ..text.into() }
    }
}

impl RemoteAgent {
    fn rpc(&self, method: A2aMethod, params: Value) -> reqwest::RequestBuilder {
        let version = self.card.version;
        let request = self.client.request(Method::POST, self.card.url.clone());
        let request = match version {
            A2aVersion::V0 => request,
            A2aVersion::V1 => request.header("a2a-version", "1.0"),
        };
        request.header("content-type", "application/json").body(version.request(method, params).to_string())
    }

    async fn ask(&self, method: A2aMethod, params: Value, time: Duration) -> Result<Value, RemoteToolError> {
        let request = self.rpc(method, params).header("accept", "application/json");
        let reply = self.client.send(request, MOST, time).await?;
        match result_of(&reply.text) {
            Err(_) if reply.status >= 400 && !reply.text.contains("jsonrpc") => {
                Err(RemoteToolError(format!("status {}: {}", reply.status, truncate(reply.text.trim(), 300))))
            }
            result => result,
        }
    }
}

/// Returns the result in a JSON-RPC response, or its error as text.
fn result_of(text: &str) -> Result<Value, RemoteToolError> {
    let mut answer: Value = serde_json::from_str(text)
        .map_err(|_| RemoteToolError(format!("its answer is not JSON: {}", truncate(text.trim(), 200))))?;
    if answer["error"].is_object() {
        let error = &answer["error"];
        let message = truncate(error["message"].as_str().unwrap_or("no reason given"), 500);
        return Err(RemoteToolError(format!("it answered with the error {}: {message}", error["code"])));
    }
    match answer.get_mut("result").map(Value::take) {
        Some(result) => Ok(result),
        None => Err(RemoteToolError("its answer has neither a result nor an error".to_owned())),
    }
}

#[cfg(test)]
mod tests;
