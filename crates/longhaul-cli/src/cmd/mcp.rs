//! `longhaul mcp`: an MCP server over stdio for the agents of a team. It runs no task itself.

use longhaul_server::mcp::TeamMcpServer;

use super::stdio_server::StdioServer;
use super::{CliContext, mcp_install};
use crate::args::{McpArgs, McpSubcommand};
use crate::exit::{CliError, CliExitCode};

const FOR_A_PERSON: &str =
    "an MCP client starts this command; `longhaul mcp install CLIENT --team FILE` sets one up";

pub(super) async fn run(context: &CliContext, args: &McpArgs) -> Result<CliExitCode, CliError> {
    if let Some(McpSubcommand::Install(install)) = &args.command {
        return mcp_install::run(context, install);
    }
    let server = StdioServer::open(context, &args.served, &args.providers, FOR_A_PERSON).await?;
    let mcp = TeamMcpServer::new(server.backend().clone(), None)
        .map_err(|error| CliError::new(CliExitCode::Failed, error.to_string()))?;
    server.run(mcp.serve_stdio()).await
}
