//! `longhaul tasks`.

use jiff::{SignedDuration, Timestamp};
use longhaul::Status;
use longhaul::store::Filter;

use super::Desk;
use crate::args::TasksArgs;
use crate::exit::{Code, Trouble};
use crate::view;

/// How old an ended task may be to be shown.
const RECENT: SignedDuration = SignedDuration::from_hours(24);

pub(super) async fn run(desk: &Desk, args: &TasksArgs) -> Result<Code, Trouble> {
    let longhaul = desk.client().await?;
    let now = Timestamp::now();
    let mut heads = longhaul.snapshots(Filter::default()).await?;
    let all = heads.len();
    if !args.all {
        heads.retain(|head| !head.status.is_final() || now.duration_since(head.active) < RECENT);
    }
    if args.json {
        for head in &heads {
            desk.term.json(head)?;
        }
        return Ok(Code::Fine);
    }
    if heads.is_empty() {
        desk.term.line(match all {
            0 => "There are no tasks yet. `longhaul demo` makes some.",
            _ => "No task is open, and none ended in the last day. `longhaul tasks --all` shows all.",
        })?;
        return Ok(Code::Fine);
    }
    for line in view::tasks(&heads, desk.term, now) {
        desk.term.line(&line)?;
    }
    let asking = heads.iter().filter(|head| !head.asked.is_empty()).count();
    if asking > 0 {
        let answer = format!(
            "{} a person: longhaul show ID, longhaul answer ID …",
            match asking {
                1 => "1 task asks".to_owned(),
                several => format!("{several} tasks ask"),
            }
        );
        desk.term.line(&desk.term.paint(view::Ink::Waits, &answer))?;
    }
    let left = heads.iter().filter(|head| head.status == Status::Pending && head.attempt.0 > 0).count();
    if left > 0 {
        let resume = format!("{} left by a process that is gone: longhaul resume", view::many(left, "task"));
        desk.term.line(&desk.term.paint(view::Ink::Faint, &resume))?;
    }
    if heads.len() < all {
        let more = format!("{} older: longhaul tasks --all", view::many(all - heads.len(), "task"));
        desk.term.line(&desk.term.paint(view::Ink::Faint, &more))?;
    }
    Ok(Code::Fine)
}
