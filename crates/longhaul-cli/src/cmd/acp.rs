//! `longhaul acp`: an agent for editors over stdio. It runs no task itself.

use longhaul_server::acp::AcpServer;

use super::CliContext;
use super::stdio_server::StdioServer;
use crate::args::AcpArgs;
use crate::exit::{CliError, CliExitCode};

const FOR_A_PERSON: &str = "an editor starts this command; docs/acp.md says how to set one up";

pub(super) async fn run(context: &CliContext, args: &AcpArgs) -> Result<CliExitCode, CliError> {
    let server = StdioServer::open(context, &args.served, &args.providers, FOR_A_PERSON).await?;
    let acp = AcpServer::new(server.backend().clone());
    server.run(acp.serve_stdio()).await
}
