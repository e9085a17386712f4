//! Builds MCP toolsets from their configuration: agents with the same settings share one server.

use std::path::Path;
use std::sync::Arc;

use super::{FileAssembly, TeamAssembler, VariableLookup};
use crate::process::ProcessGuardian;
use crate::teamfile::bundle::parent_dir;
use crate::teamfile::reader::join_path;
use crate::teamfile::{McpConfig, ToolsetConfig, ToolsetKind};
use crate::toolset::{FileTokenStore, McpOptions, McpServer, McpTransport, SecretEnv, Toolset};

use super::toolsets::apply_common_options;

/// The prefix of a `ref` to Docker's catalogue.
const DOCKER: &str = "docker:";
/// The directory for login tokens, below the data directory.
const TOKENS: &str = "tokens";
/// Variables that programs need to find their parts, their caches and Docker. None of them is a secret;
/// anything else that a server needs must be in its `env`.
const INHERITED_VARIABLES: [&str; 20] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "DOCKER_HOST",
    "DOCKER_CONFIG",
    "DOCKER_CONTEXT",
];

/// The options for the servers of a process.
pub(super) fn mcp_options(variables: &VariableLookup, data: &Path, guardian: &ProcessGuardian) -> McpOptions {
    let path = ("PATH", "/usr/local/bin:/usr/bin:/bin".to_owned());
    let set = INHERITED_VARIABLES.iter().filter_map(|name| Some((*name, variables(name)?)));
    McpOptions {
        env: SecretEnv::from_iter(std::iter::once(path).chain(set)),
        token_store: Arc::new(FileTokenStore::new(data.join(TOKENS))),
        guardian: guardian.clone(),
        ..McpOptions::default()
    }
}

impl TeamAssembler<'_> {
    /// The tools of a server, from the toolset and from the entry under `mcps` that it refers to.
    pub(super) fn mcp_tools(
        &self,
        job: &mut FileAssembly<'_>,
        part: &ToolsetConfig,
        mcp: &McpConfig,
        path: &str,
    ) -> Arc<dyn Toolset> {
        let name = mcp.reference.as_deref().filter(|word| !word.starts_with(DOCKER));
        let defined = name.and_then(|name| Some((join_path("mcps", name), job.team.mcps.get(name)?.clone())));
        let (mut server, defined) = match defined {
            Some((at, ToolsetConfig { kind: ToolsetKind::Mcp(server), tools, instruction, .. })) => {
                let mut made = self.mcp_server(job, &server, &at);
                for (name, value) in self.fill_all(job, &mcp.env, &format!("{path}.env")) {
                    made = made.env(name, value);
                }
                if let Some(dir) = &mcp.working_dir {
                    made = made.cwd(self.working_dir(job).join(dir));
                }
                made.name = server.name;
                (made, Some((tools, instruction)))
            }
            // The reader has already reported a server that does not exist.
            _ => (self.mcp_server(job, mcp, path), None),
        };
        server.name = mcp.name.clone().or(server.name);
        let mut part = part.clone();
        if let Some((tools, instruction)) = defined {
            part.tools = part.tools.or(tools);
            part.instruction = part.instruction.or(instruction);
        }
        let toolset = self.environment.mcp.toolset(server);
        // An MCP tool has two names, the server's and the model's, so the toolset filters its own tools.
        let toolset = match part.tools.take().filter(|tools| !tools.is_empty()) {
            Some(tools) => toolset.only(tools),
            None => toolset,
        };
        apply_common_options(Arc::new(toolset), &part)
    }

    fn mcp_server(&self, job: &mut FileAssembly<'_>, part: &McpConfig, path: &str) -> McpServer {
        let server = match (&part.command, &part.remote) {
            (Some(command), _) => {
                let dir = self.working_dir(job);
                let dir = part.working_dir.as_ref().map_or(dir.clone(), |below| dir.join(below));
                McpServer::command(command, part.args.iter().cloned()).cwd(dir)
            }
            (None, Some(remote)) => {
                let url = self.fill_one(job, &remote.url, &format!("{path}.remote.url"));
                let headers = self.fill_all(job, &remote.headers, &format!("{path}.remote.headers"));
                let transport = match remote.transport_type.as_deref() {
                    Some("sse") => McpTransport::Sse,
                    _ => McpTransport::Streamable,
                };
                let server = McpServer::remote(url).transport(transport);
                headers.into_iter().fold(server, |server, (name, value)| server.header(name, value))
            }
            (None, None) => {
                let reference = part.reference.as_deref().unwrap_or_default();
                McpServer::docker(reference.strip_prefix(DOCKER).unwrap_or(reference))
            }
        };
        let env = self.fill_all(job, &part.env, &format!("{path}.env"));
        let server = env.into_iter().fold(server, |server, (name, value)| server.env(name, value));
        McpServer { name: part.name.clone(), ..server }
    }

    /// The working directory of a team's programs: the team's, or else the directory of its file.
    fn working_dir(&self, job: &FileAssembly<'_>) -> std::path::PathBuf {
        let beside = || self.bundle.base.join(parent_dir(&job.source.key));
        self.bundle.working_dir.clone().unwrap_or_else(beside)
    }
}
