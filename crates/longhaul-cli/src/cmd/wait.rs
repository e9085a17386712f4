//! `longhaul wait`.

use jiff::Timestamp;
use longhaul::Status;
use longhaul::task::TaskState;

use super::CliContext;
use crate::args::WaitArgs;
use crate::exit::{CliError, CliExitCode};
use crate::view;

pub(super) async fn run(context: &CliContext, args: &WaitArgs) -> Result<CliExitCode, CliError> {
    let longhaul = context.client().await?;
    let mut wait = longhaul.wait(super::resolve_ids(&longhaul, &args.ids).await?);
    if args.any {
        wait = wait.any();
    }
    if let Some(timeout) = args.timeout {
        wait = wait.timeout(timeout);
    }
    let waited = wait.await?;
    let states: Vec<TaskState> = waited.tasks.into_iter().map(|task| task.state).collect();
    for state in &states {
        super::mark_read(&longhaul, state.id).await;
    }
    if args.json {
        states.iter().try_for_each(|state| context.term.print_json(state))?;
    } else {
        view::task_table(&states, context.term, Timestamp::now(), view::TaskLayout::Tree)
            .iter()
            .try_for_each(|line| context.term.print_line(line))?;
    }
    if waited.timed_out {
        context.note("the time is up; the tasks go on");
        return Ok(CliExitCode::TimedOut);
    }
    let any = |status| states.iter().any(|state| state.status == status);
    Ok(match () {
        () if any(Status::Failed) => CliExitCode::Failed,
        () if any(Status::Cancelled) => CliExitCode::Cancelled,
        () => CliExitCode::Success,
    })
}
