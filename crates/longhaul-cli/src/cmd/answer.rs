//! `longhaul answer`.

use longhaul::store::Filter;
use longhaul::{Longhaul, LonghaulError, Status, TaskId};
use serde_json::json;

use super::Desk;
use super::send::words;
use crate::args::AnswerArgs;
use crate::exit::{Code, Trouble};
use crate::view::{Ink, one_line};

pub(super) async fn run(desk: &Desk, args: &AnswerArgs) -> Result<Code, Trouble> {
    let longhaul = desk.client().await?;
    let id = longhaul.find(&args.id).await?;
    let said = words(&args.words)?;
    let taken = match args.decline {
        true => longhaul.decline(id, args.question).await,
        false => longhaul.answer(id, args.question, said.trim_end()).await,
    };
    let taken = match taken {
        Err(error @ LonghaulError::NotAsking { .. }) => return Err(elsewhere(&longhaul, id, error).await?),
        taken => taken?,
    };
    let head = longhaul.head(id).await?;
    let term = desk.term;
    if args.json {
        let also: Vec<_> =
            taken.also.iter().map(|(task, question)| json!({ "task": task, "question": question })).collect();
        let granted = taken.granted;
        term.json(&json!({ "task": id, "question": taken.question, "granted": granted, "also": also }))?;
        return Ok(Code::Fine);
    }
    let shown = |id: TaskId| term.paint(Ink::Id, &id.to_string());
    term.line(&format!("answered {} of {}", taken.question, shown(id)))?;
    if let Some(pattern) = &taken.granted {
        term.line(&format!("allowed from now on, in the whole tree: {}", one_line(&pattern.to_string())))?;
    }
    for (task, question) in &taken.also {
        term.line(&format!("that answers {question} of {} too", shown(*task)))?;
    }
    if head.status == Status::Pending {
        term.line(&format!("nobody runs it now; carry it on with:  {}", desk.place()?.resume(head.root)))?;
    }
    Ok(Code::Fine)
}

/// What to say of a task that asks nothing, where another of its tree does.
async fn elsewhere(longhaul: &Longhaul, id: TaskId, error: LonghaulError) -> Result<Trouble, Trouble> {
    let root = longhaul.head(id).await?.root;
    let tree = longhaul.snapshots(Filter::tree(root)).await?;
    let asking: Vec<String> =
        tree.iter().filter(|head| !head.asked.is_empty()).map(|head| head.id.to_string()).collect();
    let trouble = Trouble::from(error);
    Ok(match asking.is_empty() {
        true => trouble,
        false => trouble.hint(format!("in its tree these ask something: {}", asking.join(", "))),
    })
}
