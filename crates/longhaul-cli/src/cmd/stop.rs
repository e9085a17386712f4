//! `longhaul stop`.

use longhaul::store::Filter;
use longhaul::{Longhaul, TaskId};

use super::Desk;
use crate::args::StopArgs;
use crate::exit::{Code, Trouble};
use crate::view::{Ink, many};

pub(super) async fn run(desk: &Desk, args: &StopArgs) -> Result<Code, Trouble> {
    let longhaul = desk.client().await?;
    let term = desk.term;
    if args.json {
        let ids = if args.all { longhaul.stop_all().await? } else { found(&longhaul, &args.ids).await? };
        for id in ids {
            longhaul.stop(id).await?;
            term.json(&longhaul.head(id).await?)?;
        }
        return Ok(Code::Fine);
    }
    if args.all {
        let stopped = longhaul.stop_all().await?;
        term.line(&match stopped.len() {
            0 => "no task is open".to_owned(),
            count => format!("{} told to stop", many(count, "task")),
        })?;
        return Ok(Code::Fine);
    }
    for id in found(&longhaul, &args.ids).await? {
        let before = longhaul.head(id).await?;
        let shown = term.paint(Ink::Id, &id.to_string());
        if before.status.is_final() {
            term.line(&format!("{shown} had ended already ({})", before.status))?;
            continue;
        }
        longhaul.stop(id).await?;
        let below = longhaul.snapshots(Filter::children(id)).await?.len();
        let below = if below == 0 { String::new() } else { " and everything below it".to_owned() };
        term.line(&format!("{shown}{below} told to stop"))?;
    }
    Ok(Code::Fine)
}

/// All of them, before anything is done to any.
async fn found(longhaul: &Longhaul, typed: &[String]) -> Result<Vec<TaskId>, Trouble> {
    let mut ids = Vec::new();
    for typed in typed {
        ids.push(longhaul.find(typed).await?);
    }
    Ok(ids)
}
