//! `longhaul stop`.

use longhaul::store::TaskFilter;

use super::CliContext;
use crate::args::StopArgs;
use crate::exit::{CliError, CliExitCode};
use crate::view::{Ink, pluralize};

pub(super) async fn run(context: &CliContext, args: &StopArgs) -> Result<CliExitCode, CliError> {
    let longhaul = context.client().await?;
    let term = context.term;
    if args.json {
        let ids = if args.all {
            longhaul.stop_all().await?
        } else {
            super::resolve_ids(&longhaul, &args.ids).await?
        };
        for id in ids {
            longhaul.stop(id).await?;
            term.print_json(&longhaul.state(id).await?)?;
        }
        return Ok(CliExitCode::Success);
    }
    if args.all {
        let stopped = longhaul.stop_all().await?;
        term.print_line(&match stopped.len() {
            0 => "no task is open".to_owned(),
            count => format!("stopping {}", pluralize(count, "task")),
        })?;
        return Ok(CliExitCode::Success);
    }
    for id in super::resolve_ids(&longhaul, &args.ids).await? {
        let before = longhaul.state(id).await?;
        let shown = term.paint(Ink::Id, &id.to_string());
        if before.status.is_final() {
            term.print_line(&format!("{shown} had ended already ({})", before.status))?;
            continue;
        }
        longhaul.stop(id).await?;
        let below = longhaul.list(TaskFilter::children(id)).await?.len();
        let below = if below == 0 { String::new() } else { " and everything below it".to_owned() };
        term.print_line(&format!("stopping {shown}{below}"))?;
    }
    Ok(CliExitCode::Success)
}
