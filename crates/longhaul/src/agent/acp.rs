//! An agent that another program runs: which program, and what it gets.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::StreamExt as _;
use indexmap::IndexMap;
use serde_json::{Value, json};

use crate::model::{Model, ModelError, ModelErrorKind, ModelRequest, ReplyStream};
use crate::process::ProcessGuardian;

/// Modes of known agents in which they do everything without asking.
const BYPASS_MODES: [&str; 6] =
    ["bypassPermissions", "yolo", "full-access", "agent-full-access", "danger-full-access", "auto"];

/// A program that speaks the Agent Client Protocol (ACP) on stdin and stdout, such as Claude Code, Codex or
/// Gemini CLI. An agent with one has no model and no tools of its own: the program has them.
///
/// The program runs in its own process group, with the environment and the home directory that are set here
/// and nothing else.
///
/// ```
/// use longhaul::agent::{Agent, AcpAgent};
///
/// let program = AcpAgent::new(["gemini", "--acp"], "/var/lib/longhaul/acp/gemini").env("GEMINI_API_KEY", "…");
/// let fixer = Agent::builder("fixer").description("Fixes bugs.").acp(program).build()?;
/// # Ok::<(), longhaul::agent::TeamError>(())
/// ```
#[derive(Clone)]
pub struct AcpAgent {
    name: String,
    command: Vec<String>,
    env: IndexMap<String, String>,
    home: PathBuf,
    logins: Vec<(PathBuf, PathBuf)>,
    mode: Option<String>,
    /// The modes to use if none is set, the first that there is.
    default_modes: Vec<String>,
    /// The MCP servers that it gets, as the protocol describes them.
    mcp_servers: Vec<Value>,
    /// The command that connects it to the tools of its task.
    task_tools: Vec<String>,
    tells_cost: bool,
    login_hint: Option<String>,
    guardian: ProcessGuardian,
    #[cfg(feature = "toolsets")]
    sandbox: Option<crate::toolset::Sandbox>,
}

impl AcpAgent {
    /// A program, its arguments, and the home directory that it gets. The directory is created.
    pub fn new<S: Into<String>>(command: impl IntoIterator<Item = S>, home: impl Into<PathBuf>) -> AcpAgent {
        let command: Vec<String> = command.into_iter().map(Into::into).collect();
        let name = command.first().map_or("", |program| file_name(program)).to_owned();
        AcpAgent {
            name,
            command,
            env: IndexMap::new(),
            home: home.into(),
            logins: Vec::new(),
            mode: None,
            default_modes: Vec::new(),
            mcp_servers: Vec::new(),
            task_tools: Vec::new(),
            tells_cost: false,
            login_hint: None,
            guardian: ProcessGuardian::new(),
            #[cfg(feature = "toolsets")]
            sandbox: None,
        }
    }

    /// Sets the name that people see. The default is the name of the program.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets an environment variable. Nothing is inherited.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    /// Shares a file or directory with the program: it gets a link to `source` at `path` below its home
    /// directory.
    #[must_use]
    pub fn login(mut self, source: impl Into<PathBuf>, path: impl Into<PathBuf>) -> Self {
        self.logins.push((source.into(), path.into()));
        self
    }

    /// Sets the mode that its sessions run in.
    #[must_use]
    pub fn mode(mut self, mode: impl Into<String>) -> Self {
        self.mode = Some(mode.into());
        self
    }

    /// Adds a mode that its sessions run in if none is set and the program has it.
    #[must_use]
    pub fn default_mode(mut self, mode: impl Into<String>) -> Self {
        self.default_modes.push(mode.into());
        self
    }

    /// Gives its sessions an MCP server that the program starts.
    #[must_use]
    pub fn mcp_command(
        mut self,
        name: &str,
        command: &str,
        args: &[String],
        env: impl IntoIterator<Item = (String, String)>,
    ) -> Self {
        let server = json!({ "name": name, "command": command, "args": args, "env": pairs(env) });
        self.mcp_servers.push(server);
        self
    }

    /// Gives its sessions an MCP server at a URL. Programs that do not support that do not get it.
    #[must_use]
    pub fn mcp_url(
        mut self,
        name: &str,
        url: &str,
        headers: impl IntoIterator<Item = (String, String)>,
    ) -> Self {
        let server = json!({ "type": "http", "name": name, "url": url, "headers": pairs(headers) });
        self.mcp_servers.push(server);
        self
    }

    /// Sets the command that connects the program to the tools of its agent, as an MCP server: `longhaul mcp --task`,
    /// or another one that calls [`forward_task_tools`](super::forward_task_tools). Without it the program has only its own tools, and its agent
    /// can have no tasks of its own.
    #[must_use]
    pub fn task_tools<S: Into<String>>(mut self, command: impl IntoIterator<Item = S>) -> Self {
        self.task_tools = command.into_iter().map(Into::into).collect();
        self
    }

    /// Sets whether the program says what its work costs. If it does not, a cost limit is refused.
    #[must_use]
    pub fn tells_cost(mut self, tells: bool) -> Self {
        self.tells_cost = tells;
        self
    }

    /// Sets what to do if the program says that a login is required.
    #[must_use]
    pub fn login_hint(mut self, hint: impl Into<String>) -> Self {
        self.login_hint = Some(hint.into());
        self
    }

    /// Sets the guardian that ends the program with this process.
    #[must_use]
    pub fn guardian(mut self, guardian: ProcessGuardian) -> Self {
        self.guardian = guardian;
        self
    }

    /// Runs the program in a sandbox. Besides the task's working directory it can write to its home directory and to
    /// the logins that it shares. What it starts is in the same sandbox.
    #[cfg(feature = "toolsets")]
    #[must_use]
    pub fn sandbox(mut self, sandbox: crate::toolset::Sandbox) -> Self {
        self.sandbox = Some(sandbox);
        self
    }

    /// The name that people see.
    pub fn program_name(&self) -> &str {
        &self.name
    }

    /// Whether sessions in this mode do everything without asking.
    pub fn is_bypass_mode(mode: &str) -> bool {
        BYPASS_MODES.iter().any(|bypass| bypass.eq_ignore_ascii_case(mode))
    }

    pub(crate) fn command(&self) -> &[String] {
        &self.command
    }

    pub(crate) fn environment(&self) -> &IndexMap<String, String> {
        &self.env
    }

    pub(crate) fn home(&self) -> &Path {
        &self.home
    }

    pub(crate) fn logins(&self) -> &[(PathBuf, PathBuf)] {
        &self.logins
    }

    pub(crate) fn wanted_mode(&self) -> Option<&str> {
        self.mode.as_deref()
    }

    pub(crate) fn default_modes(&self) -> &[String] {
        &self.default_modes
    }

    /// The MCP servers that its sessions get; with `http`, also those at a URL.
    pub(crate) fn mcp_servers(&self, http: bool) -> Vec<Value> {
        let fits = |server: &&Value| http || server.get("url").is_none();
        self.mcp_servers.iter().filter(fits).cloned().collect()
    }

    pub(crate) fn task_tools_command(&self) -> &[String] {
        &self.task_tools
    }

    /// A name for the MCP server of a task that no other server has.
    pub(crate) fn task_server_name(&self) -> &'static str {
        let is_taken = |name: &&&str| self.mcp_servers.iter().any(|server| server["name"] == **name);
        ["longhaul", "longhaul_task", "longhaul_own"]
            .iter()
            .find(|name| !is_taken(name))
            .unwrap_or(&"longhaul_tools")
    }

    pub(crate) fn reports_cost(&self) -> bool {
        self.tells_cost
    }

    pub(crate) fn login_help(&self) -> Option<&str> {
        self.login_hint.as_deref()
    }

    /// The sandbox, with what the program may write to in it.
    #[cfg(feature = "toolsets")]
    pub(crate) fn open_sandbox(&self) -> Option<crate::toolset::Sandbox> {
        let logins = self.logins.iter().map(|(source, _)| source).filter(|source| source.exists());
        let writable = std::iter::once(&self.home).chain(logins);
        Some(writable.fold(self.sandbox.clone()?, |sandbox, path| sandbox.allow_write(path)))
    }

    pub(crate) fn process_guardian(&self) -> &ProcessGuardian {
        &self.guardian
    }

    /// The model of an agent that has none: its name is shown, and it is never called.
    pub(super) fn model(&self) -> Arc<dyn Model> {
        Arc::new(NoModel { name: format!("acp {}", self.name), tells_cost: self.tells_cost })
    }
}

fn pairs(all: impl IntoIterator<Item = (String, String)>) -> Vec<Value> {
    all.into_iter().map(|(name, value)| json!({ "name": name, "value": value })).collect()
}

fn file_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// Names the variables and not their values, which may be secret.
impl fmt::Debug for AcpAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let variables: BTreeSet<&String> = self.env.keys().collect();
        f.debug_struct("AcpAgent")
            .field("name", &self.name)
            .field("command", &self.command)
            .field("env", &variables)
            .field("home", &self.home)
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}

struct NoModel {
    name: String,
    tells_cost: bool,
}

impl Model for NoModel {
    fn name(&self) -> &str {
        &self.name
    }

    fn stream<'a>(&'a self, _: ModelRequest<'a>) -> ReplyStream<'a> {
        let kind = ModelErrorKind::Rejected("another program runs this agent: it has no model".to_owned());
        let error = ModelError { model: self.name.clone(), kind, retry_after: None };
        futures::stream::iter([Err(error)]).boxed()
    }

    fn unpriced_model(&self) -> Option<String> {
        (!self.tells_cost).then(|| self.name.clone())
    }
}
