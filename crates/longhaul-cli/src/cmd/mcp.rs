//! `longhaul mcp`: an MCP server over stdio for the agents of a team. It runs no task itself.

use std::path::Path;
use std::process::ExitCode;

use longhaul::agent::{TASK_SECRET, TASK_SOCKET};
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
    if args.task {
        return Err(CliError::new(CliExitCode::Usage, "`mcp --task` takes nothing else"));
    }
    let server = StdioServer::open(context, &args.served, &args.providers, FOR_A_PERSON).await?;
    let mcp = TeamMcpServer::new(server.backend().clone(), None)
        .map_err(|error| CliError::new(CliExitCode::Failed, error.to_string()))?;
    server.run(mcp.serve_stdio()).await
}

/// Passes the calls of an MCP client on to the process that owns the client's task. Knows nothing but its socket and
/// the secret, which come in variables.
pub(crate) fn forward_task_tools() -> ExitCode {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let (socket, secret) = (variable(TASK_SOCKET), variable(TASK_SECRET));
    let forwarded = match (socket, secret.and_then(|secret| secret.into_string().ok())) {
        (Some(socket), Some(secret)) => {
            let (input, output) = (std::io::stdin(), std::io::stdout());
            longhaul::agent::forward_task_tools(Path::new(&socket), &secret, input, output)
                .map_err(|error| format!("the task cannot be reached: {error}"))
        }
        _ => Err(format!(
            "{TASK_SOCKET} and {TASK_SECRET} are not set: Longhaul starts this command itself, for programs that run agents"
        )),
    };
    match forwarded {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
