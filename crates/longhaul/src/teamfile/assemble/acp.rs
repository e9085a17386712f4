//! Builds agents that other programs run, over the Agent Client Protocol.

use std::path::{Component, Path};

use super::{FileAssembly, TeamAssembler};
use crate::agent::AcpAgent;
use crate::id::Digest;
use crate::teamfile::reader::shorten;
use crate::teamfile::suggestions::nearest;
use crate::teamfile::{AcpConfig, AgentConfig, HooksConfig, ToolsetKind};

/// The directory of their home directories, below the data directory.
const HOMES: &str = "acp";
/// Variables that programs need to start and that hold no secrets. `HOME` is their own.
const INHERITED: [&str; 13] = [
    "PATH",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "npm_config_registry",
];

/// A program that is known by a short name.
struct KnownProgram {
    name: &'static str,
    command: &'static [&'static str],
    env: &'static [(&'static str, &'static str)],
    /// What to do in the team file if it requires a login.
    login: &'static str,
    tells_cost: bool,
    /// Whether letters reach it in the middle of a turn.
    steers: bool,
    /// The mode to use if none is set: the one in which it asks.
    mode: Option<&'static str>,
}

const fn known(name: &'static str, command: &'static [&'static str], login: &'static str) -> KnownProgram {
    KnownProgram { name, command, env: &[], login, tells_cost: false, steers: false, mode: None }
}

const KEY_OR_LOGIN: &str = "name its key under `acp.env`, or its login files under `acp.logins`";

/// The programs that are known by a short name. The first four were tried with kill and resume.
static KNOWN: [KnownProgram; 19] = [
    KnownProgram {
        // Our own background tasks take the place of its own, which block its permission requests.
        env: &[("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "1")],
        tells_cost: true,
        steers: true,
        ..known(
            "claude-code",
            &["npx", "-y", "@agentclientprotocol/claude-agent-acp"],
            "write `env: {ANTHROPIC_API_KEY: $ANTHROPIC_API_KEY}` or `logins: [.claude, .claude.json]` under `acp`",
        )
    },
    KnownProgram {
        // In its own default mode, a model decides what a person is asked about.
        mode: Some("read-only"),
        steers: true,
        ..known(
            "codex",
            &["npx", "-y", "@agentclientprotocol/codex-acp"],
            "write `env: {OPENAI_API_KEY: $OPENAI_API_KEY}` or `logins: [.codex/auth.json]` under `acp`",
        )
    },
    known(
        "gemini",
        &["gemini", "--acp"],
        "write `env: {GEMINI_API_KEY: $GEMINI_API_KEY}` or `logins: [.gemini]` under `acp`",
    ),
    known("opencode", &["opencode", "acp"], "write `logins: [.local/share/opencode/auth.json]` under `acp`"),
    known("goose", &["goose", "acp"], "write `logins: [.config/goose]` under `acp`"),
    known("cursor", &["cursor-agent", "acp"], KEY_OR_LOGIN),
    known("copilot", &["copilot", "--acp", "--stdio"], KEY_OR_LOGIN),
    known("qwen", &["qwen", "--acp"], KEY_OR_LOGIN),
    known("kimi", &["kimi", "acp"], KEY_OR_LOGIN),
    known("droid", &["droid", "exec", "--output-format", "acp"], KEY_OR_LOGIN),
    known("cline", &["cline", "--acp"], KEY_OR_LOGIN),
    known("auggie", &["auggie", "--acp"], KEY_OR_LOGIN),
    known("junie", &["junie", "--acp=true"], KEY_OR_LOGIN),
    known("grok", &["grok", "agent", "stdio"], KEY_OR_LOGIN),
    known("devin", &["devin", "acp"], KEY_OR_LOGIN),
    known("kiro", &["kiro-cli-chat", "acp"], KEY_OR_LOGIN),
    known("qoder", &["qodercli", "--acp"], KEY_OR_LOGIN),
    known("kilocode", &["npx", "-y", "@kilocode/cli", "acp"], KEY_OR_LOGIN),
    known("pi", &["npx", "-y", "pi-acp"], KEY_OR_LOGIN),
];

/// The command of an agent, if it has one: its own, or that of a program that is known by its name.
pub(in crate::teamfile) fn acp_command(acp: &AcpConfig) -> Vec<String> {
    if !acp.command.is_empty() {
        return acp.command.clone();
    }
    let known = known_program(acp).into_iter().flat_map(|known| known.command);
    known.map(|word| (*word).to_owned()).collect()
}

fn known_program(acp: &AcpConfig) -> Option<&'static KnownProgram> {
    let name = acp.program.as_deref()?;
    KNOWN.iter().find(|known| known.name == name)
}

fn known_names() -> Vec<&'static str> {
    KNOWN.iter().map(|known| known.name).collect()
}

impl TeamAssembler<'_> {
    /// Whether this is a `harness` that only another runtime knows. Warns of it: the agent runs with its model. A type that is
    /// misspelt is an error, and so is a type that Longhaul's own key `acp` names.
    pub(super) fn skips_harness(&mut self, job: &FileAssembly<'_>, acp: &AcpConfig, path: &str) -> bool {
        let key = job.team.acp_key(path);
        let Some(name) = acp.program.as_deref().filter(|_| acp_command(acp).is_empty()) else { return false };
        if !key.ends_with(".harness") || nearest(name, known_names()).is_some() {
            return false;
        }
        let message =
            format!("there is no harness of type '{}': the agent runs with its model", shorten(name));
        self.warn(job, &format!("{key}.type"), message, &format!("types: {}", known_names().join(", ")));
        true
    }

    /// The program that runs an agent. Reports what is wrong with it, and what it cannot do.
    pub(super) fn acp_agent(
        &mut self,
        job: &mut FileAssembly<'_>,
        part: &AgentConfig,
        acp: &AcpConfig,
        path: &str,
    ) -> Option<AcpAgent> {
        let known = known_program(acp);
        let command = acp_command(acp);
        let key = job.team.acp_key(path);
        let Some(program) = command.first() else {
            let names = known_names().join(", ");
            let message = match &acp.program {
                Some(name) => {
                    let meant = match nearest(name, known_names()) {
                        Some(near) => format!("did you mean '{near}'? Use"),
                        None => "use".to_owned(),
                    };
                    let name = shorten(name);
                    format!("no program is known as '{name}': {meant} one of {names}, or set `command`")
                }
                None => format!("name the program: `acp: claude-code` (or {names}), or set `command`"),
            };
            job.add_error(&key, message);
            return None;
        };
        self.warn_of_unused_keys(job, part, path);
        if !known.is_some_and(|known| known.tells_cost) {
            let mut named = part.budgets.iter().filter_map(|name| job.team.budgets.get(name));
            let limited = [
                (format!("{path}.budget.max_cost"), part.budget.max_cost.is_some()),
                (format!("{path}.budgets"), named.any(|budget| budget.max_cost.is_some())),
                ("budget.max_cost".to_owned(), job.team.budget.max_cost.is_some()),
            ];
            for (path, _) in limited.into_iter().filter(|(_, is_limited)| *is_limited) {
                let message = format!(
                    "{program} does not tell what its work costs, so max_cost cannot be kept: use max_tokens or max_time"
                );
                job.add_error(&path, message);
            }
        }
        let name =
            acp.program.clone().unwrap_or_else(|| program.rsplit('/').next().unwrap_or(program).to_owned());
        // Programs with the same name and another command do not share a home.
        let home = match acp.command.is_empty() {
            true => name.clone(),
            false => format!("{name}-{:.8}", Digest::of_bytes(command.join("\0").as_bytes()).as_str()),
        };
        let home = home.replace(|c: char| !(c.is_alphanumeric() || matches!(c, '-' | '_' | '.')), "_");
        let mut agent = AcpAgent::new(command, self.environment.data_dir.join(HOMES).join(home))
            .name(name)
            .guardian(self.environment.guardian.clone())
            .tells_cost(known.is_some_and(|known| known.tells_cost))
            .login_hint(known.map_or(KEY_OR_LOGIN, |known| known.login));
        let variables = &self.environment.variables;
        let inherited = INHERITED.iter().filter_map(|name| Some(((*name).to_owned(), variables(name)?)));
        let path_variable = ("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned());
        let own = known.into_iter().flat_map(|known| known.env);
        let own = own.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let named = self.fill_all(job, &acp.env, &format!("{key}.env"));
        for (name, value) in std::iter::once(path_variable).chain(inherited).chain(own).chain(named) {
            agent = agent.env(name, value);
        }
        if let Some(mode) = known.and_then(|known| known.mode) {
            agent = agent.default_mode(mode);
        }
        for (index, login) in acp.logins.iter().enumerate() {
            let path = format!("{key}.logins[{index}]");
            let below = Path::new(login);
            let plain = below.components().all(|part| matches!(part, Component::Normal(_)));
            match variables("HOME") {
                Some(home) if plain && !login.is_empty() => {
                    agent = agent.login(Path::new(&home).join(below), below)
                }
                Some(_) => {
                    job.add_error(&path, "write a path below your home directory, such as .codex/auth.json")
                }
                None => job.add_error(&path, "HOME is not set, so there is no login to share"),
            }
        }
        agent = self.mcp_servers_of(job, part, agent, path);
        if let Some(helper) = self.environment.sandbox_helper.as_ref().and_then(|helper| helper.to_str()) {
            agent = agent.task_tools([helper, "mcp", "--task"]);
        }
        match self.sandbox(acp.sandbox.as_ref(), Some(acp.network.unwrap_or(true))) {
            Some(sandbox) => {
                agent = agent.sandbox(sandbox);
                if acp.network == Some(false) {
                    let help = "leave it out unless its models are on this machine, behind a socket in the file system";
                    let message = "without network it cannot reach its models";
                    self.warn(job, &format!("{path}.acp.network"), message.to_owned(), help);
                }
            }
            None if acp.network.is_some() => {
                let message = "'network' has no effect without a sandbox".to_owned();
                self.warn(job, &format!("{path}.acp.network"), message, "set `sandbox: on` beside it");
            }
            None => {}
        }
        if let Some(mode) = &acp.mode {
            agent = agent.mode(mode);
            if AcpAgent::is_bypass_mode(mode) {
                let help = "its tasks fail unless the run is started with --yolo";
                self.warn(job, &format!("{key}.mode"), format!("in mode '{mode}' it asks for nothing"), help);
            }
        }
        Some(agent)
    }

    /// Gives a program the MCP servers of its agent.
    fn mcp_servers_of(
        &self,
        job: &mut FileAssembly<'_>,
        part: &AgentConfig,
        mut agent: AcpAgent,
        path: &str,
    ) -> AcpAgent {
        for (index, toolset) in part.toolsets.iter().enumerate() {
            let ToolsetKind::Mcp(own) = &toolset.kind else { continue };
            let path = format!("{path}.toolsets[{index}]");
            let known = own.reference.as_ref().and_then(|name| job.team.mcps.get(name)).cloned();
            let (server, more) = match known.map(|known| known.kind) {
                Some(ToolsetKind::Mcp(known)) => (known, Some(&own.env)),
                _ => (own.clone(), None),
            };
            let named = own.name.clone().or_else(|| own.reference.clone()).or_else(|| server.name.clone());
            let name = named.unwrap_or_else(|| format!("server-{index}"));
            let mut env = self.fill_all(job, &server.env, &format!("{path}.env"));
            if let Some(more) = more {
                env.extend(self.fill_all(job, more, &format!("{path}.env")));
            }
            agent = match (&server.command, &server.remote, server.reference.as_deref()) {
                (Some(command), _, _) => agent.mcp_command(&name, command, &server.args, env),
                (None, Some(remote), _) => {
                    let url = self.fill_one(job, &remote.url, &format!("{path}.remote.url"));
                    let headers = self.fill_all(job, &remote.headers, &format!("{path}.remote.headers"));
                    agent.mcp_url(&name, &url, headers)
                }
                (None, None, Some(docker)) => {
                    let docker = docker.strip_prefix("docker:").unwrap_or(docker);
                    let args = ["mcp", "gateway", "run"].map(str::to_owned);
                    let args: Vec<String> = args.into_iter().chain([format!("--servers={docker}")]).collect();
                    agent.mcp_command(&name, "docker", &args, env)
                }
                (None, None, None) => agent,
            };
        }
        agent
    }

    /// Warns of keys that mean nothing for an agent that another program runs.
    fn warn_of_unused_keys(&mut self, job: &FileAssembly<'_>, part: &AgentConfig, path: &str) {
        let hooks = HooksConfig {
            pre_tool_use: part.hooks.pre_tool_use.clone(),
            post_tool_use: part.hooks.post_tool_use.clone(),
            ..HooksConfig::default()
        };
        let is_passed_on =
            |kind: &ToolsetKind| matches!(kind, ToolsetKind::Mcp(_) | ToolsetKind::BackgroundAgents(_));
        let has_other_tools = part.toolsets.iter().any(|toolset| !is_passed_on(&toolset.kind));
        let unused = [
            ("model", !part.model.is_empty(), "set the model in the program's own settings, or by `acp.env`"),
            ("fallback", part.fallback.is_some(), "the program calls its models itself"),
            (
                "toolsets",
                has_other_tools,
                "the program has its own tools; only MCP servers and background_agents are passed on",
            ),
            ("use_toolsets", !part.use_toolsets.is_empty(), "the program has its own tools"),
            ("skills", part.skills.is_some(), "the program has its own skills"),
            ("handoffs", !part.handoffs.is_empty(), "the program cannot hand its conversation over"),
            (
                "hooks",
                hooks != HooksConfig::default(),
                "hooks for tools do not run for the program's own calls",
            ),
            (
                "readonly",
                part.readonly,
                "deny `edit`, `execute`, `delete` and `move` under permissions instead",
            ),
            ("redact_secrets", part.redact_secrets, "the program reads its own results"),
            ("num_history_items", part.num_history_items.is_some(), "the program keeps its own history"),
            (
                "max_consecutive_tool_calls",
                part.max_consecutive_tool_calls.is_some(),
                "limit its time instead",
            ),
        ];
        for (key, _, why) in unused.into_iter().filter(|(_, is_set, _)| *is_set) {
            let message = format!("'{key}' has no effect on an agent that another program runs");
            self.warn(job, &format!("{path}.{key}"), message, why);
        }
        let steers = part.acp.as_ref().and_then(known_program).is_some_and(|known| known.steers);
        if part.background.letters == Some(crate::entry::Delivery::Asap) && !steers {
            let message = "letters to this program wait until its turn ends";
            self.warn(job, &format!("{path}.background.letters"), message, "use letters: when_idle");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_are_unique_and_have_a_command() {
        for (index, known) in KNOWN.iter().enumerate() {
            assert!(!known.command.is_empty() && !known.login.is_empty());
            assert!(KNOWN[..index].iter().all(|other| other.name != known.name), "{}", known.name);
        }
    }
}
