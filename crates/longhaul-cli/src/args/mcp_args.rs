//! Arguments of `mcp` and `acp`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::ProviderArgs;

/// Arguments of `mcp`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct McpArgs {
    /// Pass calls on to the task that a program works for
    ///
    /// Longhaul gives this command to programs that run agents (docs/acp.md). It has no use elsewhere.
    #[arg(long, exclusive = true)]
    pub(crate) task: bool,
    #[command(flatten)]
    pub(crate) served: ServedTeamArgs,
    #[command(flatten)]
    pub(crate) providers: ProviderArgs,
    #[command(subcommand)]
    pub(crate) command: Option<McpSubcommand>,
}

/// Arguments of `acp`.
#[derive(Debug, Args)]
pub(crate) struct AcpArgs {
    #[command(flatten)]
    pub(crate) served: ServedTeamArgs,
    #[command(flatten)]
    pub(crate) providers: ProviderArgs,
}

/// The team that is served, and where it works.
#[derive(Debug, Args)]
pub(crate) struct ServedTeamArgs {
    /// The team file
    #[arg(long, value_name = "FILE", required = true)]
    pub(crate) team: Option<PathBuf>,
    /// The directory that tasks work in [default: the current directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Use another model: `provider/model` for all agents, or `agent=provider/model`
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Vec<String>,
    /// Trust what the team file starts, reads and contacts, and remember it
    #[arg(long)]
    pub(crate) trust: bool,
}

/// The commands of `mcp`.
#[derive(Debug, Subcommand)]
pub(crate) enum McpSubcommand {
    /// Add the team to the configuration of an MCP client
    ///
    /// Keeps everything else in the file, and saves the previous version beside it as FILE.bak.
    Install(McpInstallArgs),
}

/// Arguments of `mcp install`.
#[derive(Debug, Args)]
pub(crate) struct McpInstallArgs {
    /// The client
    #[arg(value_enum)]
    pub(crate) client: McpClient,
    #[command(flatten)]
    pub(crate) served: ServedTeamArgs,
    #[command(flatten)]
    pub(crate) providers: ProviderArgs,
    /// Print the configuration instead of writing it
    #[arg(long)]
    pub(crate) print: bool,
    /// The name of the server in the client [default: longhaul]
    #[arg(long, value_name = "NAME", default_value = "longhaul", hide_default_value = true)]
    pub(crate) name: String,
    /// Write to the configuration of this project instead of the user's
    #[arg(long, value_name = "DIR")]
    pub(crate) project: Option<PathBuf>,
}

/// MCP clients that `mcp install` knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum McpClient {
    /// Claude Code
    Claude,
    /// Codex
    Codex,
    /// Cursor
    Cursor,
    /// opencode
    Opencode,
    /// VS Code
    Vscode,
}
