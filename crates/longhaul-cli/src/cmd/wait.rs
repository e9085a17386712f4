//! `longhaul wait`.

use jiff::Timestamp;
use longhaul::Status;
use longhaul::task::Head;

use super::Desk;
use crate::args::WaitArgs;
use crate::exit::{Code, Trouble};
use crate::view;

pub(super) async fn run(desk: &Desk, args: &WaitArgs) -> Result<Code, Trouble> {
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
    let heads: Vec<Head> = waited.tasks.into_iter().map(|task| task.head).collect();
    for head in &heads {
        super::looked_at(&longhaul, head.id).await;
    }
    if args.json {
        heads.iter().try_for_each(|head| desk.term.json(head))?;
    } else {
        view::tasks(&heads, desk.term, Timestamp::now(), view::Layout::Tree)
            .iter()
            .try_for_each(|line| desk.term.line(line))?;
    }
    if waited.timed_out {
        desk.note("the time is up; the tasks go on");
        return Ok(Code::TimedOut);
    }
    let any = |status| heads.iter().any(|head| head.status == status);
    Ok(match () {
        () if any(Status::Failed) => Code::Failed,
        () if any(Status::Cancelled) => Code::Cancelled,
        () => Code::Fine,
    })
}
