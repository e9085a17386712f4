//! The settings of MCP servers: what to start or connect to, and how.

use std::fmt;
use std::path::PathBuf;

use indexmap::IndexMap;
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};

use crate::toolset::SecretHeaders;
use crate::toolset::http_client::{display_url, parse_web_url, redact_secret};

/// An MCP server. Toolsets that name it with the same settings share it; the `name` does not count.
///
/// ```
/// use longhaul::toolset::McpServer;
///
/// let files = McpServer::command("npx", ["-y", "@modelcontextprotocol/server-filesystem", "."]);
/// let issues = McpServer::remote("https://mcp.example.com/mcp").header("Authorization", "Bearer 123");
/// let search = McpServer::docker("duckduckgo").named("web");
/// ```
#[derive(Debug, Clone)]
pub struct McpServer {
    /// The prefix of its tool names: `name_tool`.
    pub name: Option<String>,
    /// How the server is reached.
    pub endpoint: McpEndpoint,
    /// Whether it may ask the calling agent's model (sampling), a limited number of times per call.
    pub sampling: bool,
}

/// How a server is reached.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum McpEndpoint {
    /// A program that communicates over stdin and stdout.
    Command(McpCommand),
    /// A server on the network.
    Remote(McpRemote),
    /// A server from Docker's catalogue, through `docker mcp gateway run --servers=…`.
    Docker {
        /// Its name in the catalogue: `duckduckgo` for `ref: docker:duckduckgo`.
        server: String,
        /// Environment variables of the gateway.
        env: SecretEnv,
    },
}

/// A program to start.
#[derive(Debug, Clone, Default)]
pub struct McpCommand {
    /// The program.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its environment variables, besides those that the pool gives to every program.
    pub env: SecretEnv,
    /// Its working directory; the pool's default if left out.
    pub cwd: Option<PathBuf>,
}

/// A server on the network.
#[derive(Clone, Default)]
pub struct McpRemote {
    /// Its URL.
    pub url: String,
    /// Its transport.
    pub transport: McpTransport,
    /// Headers that are sent with every request.
    pub headers: SecretHeaders,
}

impl fmt::Debug for McpRemote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let McpRemote { transport, headers, .. } = self;
        let mut shown = f.debug_struct("McpRemote");
        shown
            .field("url", &self.display_url())
            .field("transport", transport)
            .field("headers", headers)
            .finish()
    }
}

impl McpRemote {
    /// Formats the URL without parts that may be secret: a password, and the query.
    pub(super) fn display_url(&self) -> String {
        parse_web_url(&self.url).map_or_else(
            |_| {
                let plain = self.url.split(['?', '#']).next().unwrap_or_default();
                plain.rsplit('@').next().unwrap_or_default().to_owned()
            },
            |url| display_url(&url),
        )
    }
}

/// The transport of a server on the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum McpTransport {
    /// Streamable HTTP.
    #[default]
    Streamable,
    /// HTTP with server-sent events, the transport used until 2025.
    Sse,
}

/// Environment variables. Their values are secrets and are never shown.
#[derive(Clone, Default)]
pub struct SecretEnv(IndexMap<String, SecretString>);

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for SecretEnv {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(vars: I) -> Self {
        SecretEnv(
            vars.into_iter().map(|(name, value)| (name.into(), SecretString::from(value.into()))).collect(),
        )
    }
}

impl fmt::Debug for SecretEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}

impl SecretEnv {
    /// Iterates over names and values.
    pub(super) fn exposed(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.expose_secret()))
    }

    /// Redacts the values in a text.
    fn scrub(&self, text: String) -> String {
        self.exposed().fold(text, |text, (_, secret)| redact_secret(text, secret))
    }
}

impl McpServer {
    /// Creates a server that is a program to start.
    pub fn command<A: Into<String>>(command: impl Into<String>, args: impl IntoIterator<Item = A>) -> Self {
        let args = args.into_iter().map(Into::into).collect();
        McpServer::with_endpoint(McpEndpoint::Command(McpCommand {
            command: command.into(),
            args,
            ..McpCommand::default()
        }))
    }

    /// Creates a server that is reached over the network.
    pub fn remote(url: impl Into<String>) -> Self {
        McpServer::with_endpoint(McpEndpoint::Remote(McpRemote { url: url.into(), ..McpRemote::default() }))
    }

    /// Creates a server from Docker's catalogue.
    pub fn docker(server: impl Into<String>) -> Self {
        McpServer::with_endpoint(McpEndpoint::Docker { server: server.into(), env: SecretEnv::default() })
    }

    fn with_endpoint(endpoint: McpEndpoint) -> Self {
        McpServer { name: None, endpoint, sampling: true }
    }

    /// Sets a name, which becomes the prefix of its tool names.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Adds an environment variable. Affects only a server that is started as a program.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        if let McpEndpoint::Command(McpCommand { env, .. }) | McpEndpoint::Docker { env, .. } =
            &mut self.endpoint
        {
            env.0.insert(name.into(), SecretString::from(value.into()));
        }
        self
    }

    /// Sets the working directory of a program. No effect on other servers.
    pub fn cwd(mut self, dir: impl Into<PathBuf>) -> Self {
        if let McpEndpoint::Command(command) = &mut self.endpoint {
            command.cwd = Some(dir.into());
        }
        self
    }

    /// Adds a header. Affects only a remote server.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        if let McpEndpoint::Remote(remote) = &mut self.endpoint {
            remote.headers.push(name, value);
        }
        self
    }

    /// Sets the transport. Affects only a remote server.
    pub fn transport(mut self, transport: McpTransport) -> Self {
        if let McpEndpoint::Remote(remote) = &mut self.endpoint {
            remote.transport = transport;
        }
        self
    }

    /// Forbids it to ask the agent's model.
    pub fn without_sampling(mut self) -> Self {
        self.sampling = false;
        self
    }

    /// Returns its name for logs and errors.
    pub(super) fn label(&self) -> String {
        if let Some(name) = &self.name {
            return name.clone();
        }
        match &self.endpoint {
            McpEndpoint::Command(command) => {
                let file = |word: &str| word.rsplit('/').next().unwrap_or(word).to_owned();
                let tells = |word: &&String| !word.starts_with('-');
                let starter = ["npx", "uvx", "node", "python", "python3", "bunx", "sh"];
                let first =
                    command.args.iter().find(tells).filter(|_| starter.contains(&&*file(&command.command)));
                first.map_or_else(|| file(&command.command), |word| file(word))
            }
            McpEndpoint::Remote(remote) => remote.display_url(),
            McpEndpoint::Docker { server, .. } => format!("docker:{server}"),
        }
    }

    /// Returns a key that is equal for servers with the same settings. It is a digest, so it reveals no
    /// secret.
    pub(super) fn key(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        let mut add = |text: &str| {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        };
        match &self.endpoint {
            McpEndpoint::Command(McpCommand { command, args, env, cwd }) => {
                add("command");
                add(command);
                add(&args.len().to_string());
                args.iter().for_each(|arg| add(arg));
                add(&cwd.as_ref().map_or(String::new(), |dir| dir.to_string_lossy().into_owned()));
                words(env.exposed()).for_each(&mut add);
            }
            McpEndpoint::Remote(McpRemote { url, transport, headers }) => {
                add(&format!("{transport:?}"));
                add(url);
                words(headers.exposed()).for_each(&mut add);
            }
            McpEndpoint::Docker { server, env } => {
                add("docker");
                add(server);
                words(env.exposed()).for_each(&mut add);
            }
        }
        add(if self.sampling { "sampling" } else { "" });
        hash.finalize().into()
    }

    /// Returns an id that tells it from other servers in a store. It contains too little of the settings'
    /// digest to guess a secret from it.
    pub(super) fn id(&self) -> String {
        let [a, b, c, d, ..] = self.key();
        format!("mcp:{a:02x}{b:02x}{c:02x}{d:02x}")
    }

    /// Returns the program to start, if there is one.
    pub(super) fn program(&self) -> Option<McpCommand> {
        match &self.endpoint {
            McpEndpoint::Command(command) => Some(command.clone()),
            McpEndpoint::Docker { server, env } => Some(McpCommand {
                command: "docker".to_owned(),
                args: ["mcp", "gateway", "run"]
                    .map(str::to_owned)
                    .into_iter()
                    .chain([format!("--servers={server}")])
                    .collect(),
                env: env.clone(),
                cwd: None,
            }),
            McpEndpoint::Remote(_) => None,
        }
    }

    /// Redacts the secrets of the settings in a text.
    pub(super) fn scrub(&self, text: String) -> String {
        match &self.endpoint {
            McpEndpoint::Command(McpCommand { env, .. }) | McpEndpoint::Docker { env, .. } => env.scrub(text),
            McpEndpoint::Remote(remote) => remote.headers.scrub(text),
        }
    }
}

/// Sorts names and values into a fixed order.
fn words<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> impl Iterator<Item = &'a str> {
    let mut pairs: Vec<_> = pairs.collect();
    pairs.sort_unstable();
    pairs.into_iter().flat_map(|(name, value)| [name, value])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_settings_are_the_same_server_whatever_it_is_called() {
        let server = || McpServer::command("npx", ["a", "b"]).env("X", "1").env("Y", "2").cwd("/tmp");
        assert_eq!(server().key(), server().named("other").key());
        assert_eq!(
            server().key(),
            McpServer::command("npx", ["a", "b"]).env("Y", "2").env("X", "1").cwd("/tmp").key()
        );
        let others = [
            McpServer::command("npx", ["a"]),
            McpServer::command("npx", ["ab"]).env("X", "1").env("Y", "2").cwd("/tmp"),
            server().env("X", "2"),
            server().cwd("/"),
            server().without_sampling(),
            McpServer::docker("npx"),
            McpServer::remote("npx"),
            McpServer::remote("npx").header("X", "1"),
            McpServer::remote("npx").transport(McpTransport::Sse),
        ];
        let keys: std::collections::HashSet<_> =
            others.iter().map(McpServer::key).chain([server().key()]).collect();
        assert_eq!(keys.len(), others.len() + 1);
    }

    #[test]
    fn nothing_shows_a_secret() {
        let server = McpServer::command("npx", [""]).env("TOKEN", "hunter2-hunter2");
        assert!(format!("{server:?}").contains("TOKEN") && !format!("{server:?}").contains("hunter2"));
        assert_eq!(server.scrub("it says hunter2-hunter2!".to_owned()), "it says [secret]!");
        let server = McpServer::remote("http://x").header("Authorization", "Bearer hunter2-hunter2");
        assert!(
            format!("{server:?}").contains("Authorization") && !format!("{server:?}").contains("hunter2")
        );
        assert_eq!(server.scrub("it says hunter2-hunter2!".to_owned()), "it says [secret]!");
        for url in
            ["https://me:hunter2@x.example.com/mcp?key=hunter2", "me:hunter2@x.example.com/mcp?key=hunter2"]
        {
            let server = McpServer::remote(url);
            let shown = format!("{server:?} {}", server.label());
            assert!(shown.contains("x.example.com/mcp") && !shown.contains("hunter2"), "{shown}");
        }
    }

    #[test]
    fn a_server_is_called_what_people_would_call_it() {
        for (server, label) in [
            (McpServer::command("npx", ["-y", "@scope/server-x", "."]), "server-x"),
            (McpServer::command("/usr/bin/thing", ["--stdio"]), "thing"),
            (McpServer::command("uvx", ["mcp-server-time"]), "mcp-server-time"),
            (McpServer::remote("https://u:p@mcp.example.com/mcp?key=1"), "https://mcp.example.com/mcp"),
            (McpServer::docker("duckduckgo"), "docker:duckduckgo"),
            (McpServer::docker("duckduckgo").named("web"), "web"),
        ] {
            assert_eq!(server.label(), label);
        }
    }

    #[test]
    fn dockers_gateway_is_told_which_server() {
        let program = McpServer::docker("x").env("A", "b").program().unwrap();
        assert_eq!(
            (program.command.as_str(), program.args.join(" ").as_str()),
            ("docker", "mcp gateway run --servers=x")
        );
        assert_eq!(program.env.exposed().collect::<Vec<_>>(), [("A", "b")]);
    }
}
