//! `longhaul retry`.

use longhaul::LonghaulError;
use serde_json::json;

use super::Desk;
use crate::args::RetryArgs;
use crate::exit::{Code, Trouble};
use crate::view::Ink;

pub(super) async fn run(desk: &Desk, args: &RetryArgs) -> Result<Code, Trouble> {
    let longhaul = desk.client().await?;
    let mut ids = Vec::new();
    for typed in &args.ids {
        ids.push(longhaul.find(typed).await?);
    }
    let (term, place) = (desk.term, desk.place()?);
    let mut tried = Vec::new();
    for id in ids {
        let again = match longhaul.retry(id).await {
            Err(error @ LonghaulError::NotFailed { .. }) => {
                let head = longhaul.head(id).await?;
                let hint = match head.status.is_final() {
                    true => format!("to go on from its answer, write to it: {}", place.send(id)),
                    false if head.worker.is_none() => format!("to carry it on: {}", place.resume(head.root)),
                    false => format!("to end it first: {}", place.command(&format!("stop {id}"))),
                };
                return Err(Trouble::from(error).hint(hint));
            }
            Err(error @ LonghaulError::Retried { by, .. }) => {
                let hint = format!("see how it stands: {}", place.command(&format!("show {by}")));
                return Err(Trouble::from(error).hint(hint));
            }
            again => again?,
        };
        super::looked_at(&longhaul, id).await;
        let head = longhaul.head(again).await?;
        tried.push(again);
        let background = match args.wait {
            true => Ok(false),
            false => super::hand_over(&longhaul, &place, &head, &args.outside).await,
        };
        if args.json {
            let background = background.unwrap_or_default();
            term.json(&json!({
                "task": id, "retried_as": again, "parent": head.parent, "root": head.root, "background": background,
            }))?;
            continue;
        }
        let shown = term.paint(Ink::Id, &again.to_string());
        let below = head.parent.map(|parent| format!(", below {parent}")).unwrap_or_default();
        term.line(&format!("{id} is tried again as {shown}{below}"))?;
        super::told_who_runs(desk, &place, &head, background)?;
    }
    if args.wait {
        super::stay(desk, &longhaul, tried, &args.outside, args.json).await
    } else {
        Ok(Code::Fine)
    }
}
