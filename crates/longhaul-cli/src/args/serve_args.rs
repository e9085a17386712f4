//! Arguments of `serve`, `token` and `open`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::ProviderArgs;

/// Arguments of `serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// A team file to serve; its name without the extension is the team's name
    #[arg(long = "team", value_name = "FILE", required = true, num_args = 1..)]
    pub(crate) teams: Vec<PathBuf>,
    /// The directory that tasks work in [default: the current directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// The address to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:4670", value_parser = parse_address)]
    pub(crate) listen: SocketAddr,
    /// Also answer to this host name, such as that of a reverse proxy
    #[arg(long, value_name = "NAME[:PORT]")]
    pub(crate) allow_host: Vec<String>,
    /// The TLS certificate, as a PEM file
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The private key of the TLS certificate, as a PEM file
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Listen on other addresses than loopback without TLS
    ///
    /// Everyone on the way can then read the token and everything else. Use it only in a network that you trust, or
    /// behind a proxy on the same host.
    #[arg(long, conflicts_with = "tls_cert")]
    pub(crate) insecure_http: bool,
    /// Use another model: `provider/model` for all agents, or `agent=provider/model`
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Vec<String>,
    /// Trust what the team files start, read and contact, and remember it
    #[arg(long)]
    pub(crate) trust: bool,
    #[command(flatten)]
    pub(crate) providers: ProviderArgs,
    /// Print the address and the token's file as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `token`.
#[derive(Debug, Args)]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    pub(crate) command: TokenCommand,
}

/// What to do with tokens.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Create a token and print it; this is the only time it is shown
    Create {
        /// Its name: letters, digits, '-', '_' and '.'
        name: String,
        /// What it allows; each includes the ones before it
        #[arg(long, value_enum, default_value_t = ScopeArg::Run)]
        scope: ScopeArg,
    },
    /// List the tokens
    List {
        /// Print one JSON object per token
        #[arg(long)]
        json: bool,
    },
    /// Revoke a token at once; its open streams end
    Revoke {
        /// Its name
        name: String,
    },
}

/// What a token allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ScopeArg {
    /// Read tasks, events and results
    Read,
    /// Start, answer, message and stop tasks
    Run,
    /// Change what is served
    Admin,
}

impl From<ScopeArg> for longhaul_server::access::Scope {
    fn from(scope: ScopeArg) -> Self {
        match scope {
            ScopeArg::Read => longhaul_server::access::Scope::Read,
            ScopeArg::Run => longhaul_server::access::Scope::Run,
            ScopeArg::Admin => longhaul_server::access::Scope::Admin,
        }
    }
}

/// Arguments of `open`.
#[derive(Debug, Args)]
pub(crate) struct OpenArgs {
    /// Sign in with the scope of this token
    #[arg(long, value_name = "NAME", default_value = longhaul_server::access::DEFAULT_TOKEN)]
    pub(crate) token: String,
}

fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let local = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    local.as_deref().unwrap_or(text).parse().map_err(|_| {
        "write an IP address and a port, such as 127.0.0.1:4670, [::1]:4670 or 0.0.0.0:443".to_owned()
    })
}
