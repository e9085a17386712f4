//! `longhaul retry`.

use longhaul::LonghaulError;
use serde_json::json;

use super::CliContext;
use crate::args::RetryArgs;
use crate::exit::{CliError, CliExitCode};
use crate::view::Ink;

pub(super) async fn run(context: &CliContext, args: &RetryArgs) -> Result<CliExitCode, CliError> {
    let longhaul = context.client().await?;
    let (term, data_dir) = (context.term, context.data_dir()?);
    let mut tried = Vec::new();
    for id in super::resolve_ids(&longhaul, &args.ids).await? {
        let again = match longhaul.retry(id).await {
            Err(error @ LonghaulError::NotFailed { .. }) => {
                let state = longhaul.state(id).await?;
                let hint = match state.status.is_final() {
                    true => format!("to go on from its answer, write to it: {}", data_dir.send_command(id)),
                    false if state.worker.is_none() => {
                        format!("to resume it: {}", data_dir.resume_command(state.root))
                    }
                    false => format!("to end it first: {}", data_dir.shell_command(&format!("stop {id}"))),
                };
                return Err(CliError::from(error).with_hint(hint));
            }
            Err(error @ LonghaulError::AlreadyRetried { by, .. }) => {
                let hint = format!("see how it stands: {}", data_dir.shell_command(&format!("show {by}")));
                return Err(CliError::from(error).with_hint(hint));
            }
            again => again?,
        };
        super::mark_read(&longhaul, id).await;
        let state = longhaul.state(again).await?;
        tried.push(again);
        let background = match args.wait {
            true => Ok(false),
            false => super::start_background_process(&longhaul, &data_dir, &state, &args.providers).await,
        };
        if args.json {
            let background = background.unwrap_or_default();
            term.print_json(&json!({
                "task": id, "retried_as": again, "parent": state.parent, "root": state.root, "background": background,
            }))?;
            continue;
        }
        let shown = term.paint(Ink::Id, &again.to_string());
        let below = state.parent.map(|parent| format!(", below {parent}")).unwrap_or_default();
        term.print_line(&format!("{id} is retried as {shown}{below}"))?;
        super::report_who_runs(context, &data_dir, &state, background)?;
    }
    if args.wait {
        super::wait_until_ended(context, &longhaul, tried, &args.providers, args.json).await
    } else {
        Ok(CliExitCode::Success)
    }
}
