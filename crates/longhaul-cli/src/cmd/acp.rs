//! `longhaul acp`: an agent for editors over stdio. It runs no task itself.

use std::io::IsTerminal as _;
use std::sync::Arc;

use longhaul::Longhaul;
use longhaul_server::acp::AcpServer;
use longhaul_server::backend::{Backend, ServedTeam};

use super::CliContext;
use super::mcp::{BackgroundCarrier, require_trust, served_dir, team_file};
use crate::args::AcpArgs;
use crate::exit::{CliError, CliExitCode};
use crate::signals::ExitSignals;
use crate::team;

pub(super) async fn run(context: &CliContext, args: &AcpArgs) -> Result<CliExitCode, CliError> {
    let mut signals = ExitSignals::listen()?;
    let data_dir = context.data_dir()?;
    let environment = team::build_environment(context, &args.providers, &data_dir)?;
    let file = team_file(&args.served)?;
    let dir = served_dir(&args.served)?;
    let made = team::assemble_served_team(context, &environment, &args.served.model, &file, &dir)?
        .bound_to_this_machine(&data_dir);
    require_trust(context, &data_dir, &args.served, &file, &made)?;
    if std::io::stdin().is_terminal() {
        context.note("an editor starts this command; docs/acp.md says how to set one up");
    }
    let store = data_dir.open_store().await?;
    let team = made.save_to(&*store).await?;
    let longhaul = Longhaul::client(store).await?;
    let name = file.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let served = ServedTeam { name, team, working_dir: dir, budget: made.budget };
    let carrier = Arc::new(BackgroundCarrier::new(&data_dir, &args.providers));
    let server = AcpServer::new(Backend::new(longhaul.clone(), vec![served], carrier));
    let served = tokio::select! {
        served = server.serve_stdio() => served,
        () = signals.next() => Ok(()),
    };
    longhaul.shutdown().await;
    team::close_environment(&environment).await;
    match served {
        Ok(()) => Ok(CliExitCode::Success),
        Err(error) => Err(CliError::new(CliExitCode::Failed, error.to_string())),
    }
}
