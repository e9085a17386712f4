//! `longhaul wait`.

use jiff::Timestamp;
use longhaul::Status;
use longhaul::task::TaskState;

use super::CliContext;
use crate::args::WaitArgs;
use crate::exit::{CliError, CliExitCode};
use crate::view;

pub(super) async fn run(desk: &CliContext, args: &WaitArgs) -> Result<CliExitCode, CliError> {
    let longhaul = desk.client().await?;
    let mut ids = Vec::new();
    for typed in &args.ids {
        ids.push(longhaul.find(typed).await?);
    }
    let mut wait = longhaul.wait(ids);
    if args.any {
        wait = wait.any();
    }
    if let Some(timeout) = args.timeout {
        wait = wait.timeout(timeout);
    }
    let waited = wait.await?;
    let heads: Vec<TaskState> = waited.tasks.into_iter().map(|task| task.state).collect();
    for head in &heads {
        super::mark_read(&longhaul, head.id).await;
    }
    if args.json {
        heads.iter().try_for_each(|head| desk.term.print_json(head))?;
    } else {
        view::task_table(&heads, desk.term, Timestamp::now(), view::TaskLayout::Tree)
            .iter()
            .try_for_each(|line| desk.term.print_line(line))?;
    }
    if waited.timed_out {
        desk.note("the time is up; the tasks go on");
        return Ok(CliExitCode::TimedOut);
    }
    let any = |status| heads.iter().any(|head| head.status == status);
    Ok(match () {
        () if any(Status::Failed) => CliExitCode::Failed,
        () if any(Status::Cancelled) => CliExitCode::Cancelled,
        () => CliExitCode::Success,
    })
}
