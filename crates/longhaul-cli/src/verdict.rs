//! The exit code of a run: the root's end decides, and a failure that nobody was told of.

use longhaul::entry::{Entry, FailureKind, Outcome};
use longhaul::id::{LetterId, Seq};
use longhaul::task::Head;
use longhaul::{Longhaul, Status, TaskId};

use crate::exit::{Code, Trouble};
use crate::heard::below;
use crate::view::one_line;

/// How many entries are read at once.
const PAGE: usize = 500;

/// How a run of these tasks, with all that is below them, ended: mostly of roots. The worst counts.
///
/// With it comes what else is to be said of it: failures that nobody was told of.
pub(crate) async fn verdict(
    longhaul: &Longhaul,
    heads: &[Head],
    tasks: &[TaskId],
) -> Result<(Code, Vec<String>), Trouble> {
    let mut code = Code::Fine;
    let mut why = Vec::new();
    for task in tasks {
        let task = longhaul.snapshot(*task).await?;
        code = worse(code, of_end(&task.head, task.outcome.as_ref()));
    }
    for child in below(heads, tasks).filter(|head| head.status == Status::Failed) {
        let parent = child.parent.and_then(|parent| heads.iter().find(|head| head.id == parent));
        // A parent that did not complete has an end of its own, which says as much.
        if let Some(parent) = parent.filter(|parent| parent.status == Status::Completed)
            && !was_told(longhaul, parent.id, child.id).await?
        {
            code = worse(code, Code::Failed);
            let error = child.error.as_deref().map(one_line).unwrap_or_default();
            why.push(format!(
                "{} of {} failed, and {} ended without hearing of it: {error}",
                child.id, child.agent, parent.id
            ));
        }
    }
    Ok((code, why))
}

/// What the end of a task says.
fn of_end(head: &Head, outcome: Option<&Outcome>) -> Code {
    match (head.status, outcome) {
        (Status::Completed, _) if head.cut_short.is_some() => Code::Limit,
        (Status::Completed, _) => Code::Fine,
        (Status::Cancelled, _) => Code::Cancelled,
        (_, Some(Outcome::Failed { failure, .. })) => match failure.kind {
            FailureKind::Timeout => Code::TimedOut,
            FailureKind::TurnLimit | FailureKind::Budget => Code::Limit,
            _ => Code::Failed,
        },
        _ => Code::Failed,
    }
}

/// The worse of two: failed, out of time, cut short, cancelled, fine.
fn worse(one: Code, two: Code) -> Code {
    let rank = |code| match code {
        Code::Failed => 4,
        Code::TimedOut => 3,
        Code::Limit => 2,
        Code::Cancelled => 1,
        _ => 0,
    };
    if rank(two) > rank(one) { two } else { one }
}

/// Whether a task has heard how another ended: by a letter that it read, or as the result of a call.
async fn was_told(longhaul: &Longhaul, task: TaskId, of: TaskId) -> Result<bool, Trouble> {
    let letter = LetterId::ending(of);
    let mut after = Seq(0);
    loop {
        let page = longhaul.store().read(task, after, PAGE).await?;
        let Some(last) = page.last() else { return Ok(false) };
        after = last.seq;
        let tells = |entry: &Entry| match entry {
            Entry::Read { letters, known, .. } => letters.contains(&letter) || known.contains(&letter),
            Entry::Returned(returned) => returned.collected.contains(&of),
            _ => false,
        };
        if page.iter().any(|record| tells(&record.entry)) {
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_counts() {
        assert_eq!(worse(Code::Fine, Code::Cancelled), Code::Cancelled);
        assert_eq!(worse(Code::Limit, Code::Cancelled), Code::Limit);
        assert_eq!(worse(Code::Limit, Code::Failed), Code::Failed);
        assert_eq!(worse(Code::Failed, Code::Fine), Code::Failed);
    }
}
