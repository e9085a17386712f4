//! Opens a session with another program's agent: starts it, says hello, makes or loads a session.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::connection::{Connection, ConnectionLost};
use super::prompt::{Arrival, arrival};
use super::task_server::TaskServer;
use super::wire::{self, AgentAbout, AgentMessage, Modes, RpcError, Steering, Update};
use crate::agent::AcpAgent;
use crate::entry::{AgentSession, Failure, FailureKind};
use crate::id::AgentName;

/// How long the first answer may take: `npx` fetches the program first.
const STARTING: Duration = Duration::from_secs(300);
/// How long a session may take to open.
const OPENING: Duration = Duration::from_secs(120);
/// How many lines that are no messages an agent may send before its first answer.
const NOISE: u32 = 10_000;
/// How much of what a loaded session replays is kept.
const REPLAYED: usize = 8 << 20;

/// An agent with an open session.
pub(super) struct AgentProcess {
    pub(super) connection: Connection,
    pub(super) session: AgentSession,
    /// Whether the last prompt without a reply has arrived; only after the session was loaded.
    pub(super) arrival: Option<Arrival>,
    /// The cost of the session so far, as far as it is accounted for.
    pub(super) cost: u64,
    /// The server with the tools of the task, and its name.
    pub(super) server: Option<TaskServer>,
    pub(super) server_name: Option<&'static str>,
    pub(super) steering: Steering,
    next_id: u64,
}

/// Why an agent cannot be used.
#[derive(Debug)]
pub(super) enum AgentError {
    NotFound(String),
    NotStarted(String),
    Lost(String),
    Rejected { method: &'static str, error: RpcError },
    Login { logins: Vec<String> },
    TimedOut(&'static str),
    Version(u64),
    NoMode { mode: String, available: Vec<String> },
    Bypass(String),
    NoSession,
}

impl AgentError {
    /// The failure of a task that needs the agent, with what to do about it.
    pub(super) fn into_failure(self, agent: &AcpAgent) -> Failure {
        let name = agent.program_name();
        let (kind, text) = match self {
            AgentError::NotFound(program) => (
                FailureKind::Team,
                format!(
                    "the program '{program}' of the agent {name} was not found: install it, or set `acp.command` \
                     in the team file to its path"
                ),
            ),
            AgentError::NotStarted(why) => {
                (FailureKind::Team, format!("the agent {name} cannot be started: {why}"))
            }
            AgentError::Lost(how) => (FailureKind::Tool, format!("the agent {name} is gone: {how}")),
            AgentError::Rejected { method, error: RpcError { code, message } } => (
                FailureKind::Model,
                format!("the agent {name} answered {method} with error {code}: {message}"),
            ),
            AgentError::Login { logins } => {
                let home = agent.home().display();
                let offered = match logins.is_empty() {
                    true => String::new(),
                    false => format!(" (it offers: {})", logins.join(", ")),
                };
                let hint = agent.login_help().map_or_else(
                    || "name its key under `acp.env`, or its login files under `acp.logins`".to_owned(),
                    str::to_owned,
                );
                let text = format!(
                    "the agent {name} requires a login{offered}. Its home directory is {home}. In the team file, {hint}"
                );
                (FailureKind::Team, text)
            }
            AgentError::TimedOut(method) => {
                (FailureKind::Silent, format!("the agent {name} did not answer {method} in time"))
            }
            AgentError::Version(version) => (
                FailureKind::Team,
                format!(
                    "the agent {name} speaks version {version} of the Agent Client Protocol, and Longhaul speaks \
                     version {}: install another version of it",
                    wire::VERSION
                ),
            ),
            AgentError::NoMode { mode, available } => (
                FailureKind::Team,
                match available.is_empty() {
                    true => {
                        format!("the agent {name} has no modes: remove `acp.mode: {mode}` from the team file")
                    }
                    false => format!(
                        "the agent {name} has no mode '{mode}': set `acp.mode` to one of {}",
                        available.join(", ")
                    ),
                },
            ),
            AgentError::Bypass(mode) => (
                FailureKind::Team,
                format!(
                    "in mode '{mode}' the agent {name} does everything without asking: start the run with --yolo, \
                     or set `acp.mode` to another one"
                ),
            ),
            AgentError::NoSession => {
                (FailureKind::Tool, format!("the agent {name} opened a session and gave it no id"))
            }
        };
        Failure::new(kind, text)
    }
}

/// What to open.
pub(super) struct SessionRequest {
    pub(super) agent: AgentName,
    pub(super) dir: PathBuf,
    /// The session to load.
    pub(super) known: Option<AgentSession>,
    /// The prompts of that session, if the last of them has no reply.
    pub(super) unanswered: Option<Vec<std::sync::Arc<str>>>,
    /// Whether a person has approved everything.
    pub(super) approved: bool,
    /// The cost so far.
    pub(super) cost: u64,
    /// The server with the tools of the task.
    pub(super) server: Option<TaskServer>,
}

/// Starts the program and opens a session. If this is dropped, the program ends.
pub(super) async fn open(acp: &AcpAgent, mut request: SessionRequest) -> Result<AgentProcess, AgentError> {
    if let Some(mode) = acp.wanted_mode().filter(|mode| AcpAgent::is_bypass_mode(mode) && !request.approved) {
        return Err(AgentError::Bypass(mode.to_owned()));
    }
    let program = acp.command().first().cloned().unwrap_or_default();
    let connection = Connection::start(acp, &request.dir).await.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound if request.dir.is_dir() => AgentError::NotFound(program),
        _ => AgentError::NotStarted(error.to_string()),
    })?;
    let session = AgentSession::new(request.agent.clone(), "", acp.program_name(), request.dir.clone());
    let mut process = AgentProcess {
        connection,
        session,
        arrival: None,
        cost: 0,
        server: request.server.take(),
        server_name: None,
        steering: Steering::None,
        next_id: 0,
    };
    let hello = process.request("initialize", wire::initialize(), STARTING, &mut |_| {}).await?;
    let about = wire::parse_about(&hello);
    if about.version != wire::VERSION {
        return Err(AgentError::Version(about.version));
    }
    if let Some(program) = &about.program {
        process.session.program.clone_from(program);
    }
    process.steering = about.steering;
    let mut servers = acp.mcp_servers(about.mcp_http);
    if let Some(server) = &process.server {
        let name = acp.task_server_name();
        servers.push(server.entry(name, acp.task_tools_command()));
        process.server_name = Some(name);
    }
    let modes = match process.load(&about, &request, &servers).await? {
        Some(modes) => modes,
        None => process.create(&about, &request.dir, &servers).await?,
    };
    let usual = acp.default_modes().iter().find(|mode| modes.available.contains(mode));
    let mode = acp.wanted_mode().or(usual.map(String::as_str));
    process.set_mode(mode, &modes, request.approved).await?;
    Ok(process)
}

impl AgentProcess {
    /// Loads the known session. Returns `None` if there is none, or the agent no longer has it.
    async fn load(
        &mut self,
        about: &AgentAbout,
        request: &SessionRequest,
        servers: &[Value],
    ) -> Result<Option<Modes>, AgentError> {
        let Some(known) = &request.known else { return Ok(None) };
        // Only a session that is replayed tells whether a prompt has arrived.
        let replays = about.loads && (request.unanswered.is_some() || !about.resumes);
        let method = match (replays, about.resumes) {
            (true, _) => "session/load",
            (false, true) => "session/resume",
            (false, false) => return Ok(None),
        };
        let params = json!({ "sessionId": known.id, "cwd": request.dir, "mcpServers": servers });
        let mut replayed = String::new();
        let mut keep = |update| {
            if let Update::UserText(text) = update
                && replayed.len() < REPLAYED
            {
                replayed.push_str(&text);
            }
        };
        let loaded = match self.request(method, params, OPENING, &mut keep).await {
            Ok(loaded) => loaded,
            // It may have been deleted, or never stored: some agents store a session after its first answer.
            Err(AgentError::Rejected { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        self.session.id = known.id.clone();
        self.session.loaded = true;
        self.cost = request.cost;
        self.arrival = request.unanswered.as_ref().map(|prompts| match replays {
            true => arrival(&replayed, prompts),
            false => Arrival::Unknown,
        });
        Ok(Some(wire::parse_modes(&loaded)))
    }

    async fn create(
        &mut self,
        about: &AgentAbout,
        dir: &Path,
        servers: &[Value],
    ) -> Result<Modes, AgentError> {
        let params = json!({ "cwd": dir, "mcpServers": servers });
        let opened = match self.request("session/new", params, OPENING, &mut |_| {}).await {
            Err(AgentError::Login { .. }) => return Err(AgentError::Login { logins: about.logins.clone() }),
            opened => opened?,
        };
        let id = wire::text_at(&opened, "sessionId").ok_or(AgentError::NoSession)?;
        self.session.id = id.into();
        Ok(wire::parse_modes(&opened))
    }

    async fn set_mode(
        &mut self,
        wanted: Option<&str>,
        modes: &Modes,
        approved: bool,
    ) -> Result<(), AgentError> {
        let session = self.session.id.clone();
        let Some(mode) = wanted else {
            // Its own settings must not turn approvals off either.
            let current = modes.current.as_deref().filter(|mode| AcpAgent::is_bypass_mode(mode));
            return match current.filter(|_| !approved) {
                Some(mode) => Err(AgentError::Bypass(mode.to_owned())),
                None => Ok(()),
            };
        };
        if modes.current.as_deref() == Some(mode) {
            return Ok(());
        }
        if !modes.available.iter().any(|available| available == mode) {
            return Err(AgentError::NoMode { mode: mode.to_owned(), available: modes.available.clone() });
        }
        match &modes.option {
            Some(option) => {
                let params = json!({ "sessionId": session, "configId": option, "value": mode });
                self.request("session/set_config_option", params, OPENING, &mut |_| {}).await?
            }
            None => {
                let params = json!({ "sessionId": session, "modeId": mode });
                self.request("session/set_mode", params, OPENING, &mut |_| {}).await?
            }
        };
        Ok(())
    }

    /// Sends a request, and returns its id.
    pub(super) fn send_request(&mut self, method: &str, params: Value) -> u64 {
        self.next_id += 1;
        self.connection.send(&wire::request(self.next_id, method, params));
        self.next_id
    }

    /// Sends a request and waits for its answer. What the agent asks meanwhile is refused.
    async fn request(
        &mut self,
        method: &'static str,
        params: Value,
        time: Duration,
        updates: &mut (dyn FnMut(Update) + Send),
    ) -> Result<Value, AgentError> {
        let wanted = self.send_request(method, params);
        let until = Instant::now() + time;
        let mut noise = 0;
        loop {
            let message = timeout_at(until, self.connection.receive()).await;
            match message.map_err(|_| AgentError::TimedOut(method))?? {
                AgentMessage::Response { id, result } if id == wanted => {
                    return result.map_err(|error| match error.needs_login() {
                        true => AgentError::Login { logins: Vec::new() },
                        false => AgentError::Rejected { method, error },
                    });
                }
                AgentMessage::Request { id, method, .. } => {
                    self.connection.send(&wire::not_offered(&id, &method));
                }
                AgentMessage::Notification { method, params } if method == "session/update" => {
                    updates(wire::parse_update(&params));
                }
                AgentMessage::Noise => {
                    noise += 1;
                    if noise > NOISE {
                        let why = "it prints other things than messages of the protocol".to_owned();
                        return Err(AgentError::NotStarted(why));
                    }
                }
                _ => {}
            }
        }
    }
}

impl From<ConnectionLost> for AgentError {
    fn from(lost: ConnectionLost) -> AgentError {
        AgentError::Lost(lost.to_string())
    }
}
