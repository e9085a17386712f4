//! The exit code of a run: decided by how the root ended, and by failures that no parent was notified of.

use longhaul::entry::{FailureKind, Outcome};
use longhaul::journal::{KnownEnds, descendants};
use longhaul::task::TaskState;
use longhaul::{Longhaul, Status, TaskId};

use crate::exit::{CliError, CliExitCode};
use crate::view::one_line;

/// Computes the exit code for these tasks (usually roots) and everything below them. The worst result counts.
///
/// Also returns a message for each failed task whose parent was not notified, and what to do about a cost limit that
/// could not be kept to.
pub(crate) async fn exit_code_of_run(
    longhaul: &Longhaul,
    states: &[TaskState],
    tasks: &[TaskId],
) -> Result<(CliExitCode, Vec<String>), CliError> {
    let mut code = CliExitCode::Success;
    let (mut why, mut known) = (Vec::new(), KnownEnds::default());
    for task in tasks {
        let task = longhaul.snapshot(*task).await?;
        code = worse(code, exit_code_of_task(&task.state, task.outcome.as_ref()));
        if let Some(Outcome::Failed { failure, .. }) = &task.outcome
            && failure.kind == FailureKind::Budget
            && states.iter().any(|state| state.unpriced > 0)
        {
            why.push(
                "the cost of some replies is unknown: `--prices FILE` gives the price of a model".to_owned(),
            );
        }
    }
    for child in descendants(states, tasks).filter(|state| state.status == Status::Failed) {
        let parent = child.parent.and_then(|parent| states.iter().find(|state| state.id == parent));
        // If the parent did not complete, its own outcome already decides the exit code.
        if let Some(parent) = parent.filter(|parent| parent.status == Status::Completed)
            && !known.contains(&**longhaul.store(), parent.id, child.id).await?
        {
            code = worse(code, CliExitCode::Failed);
            let error = child.error.as_deref().map(one_line).unwrap_or_default();
            why.push(format!(
                "{} of {} failed, and {} ended without being notified: {error}",
                child.id, child.agent, parent.id
            ));
        }
    }
    Ok((code, why))
}

/// Returns the exit code for the outcome of one task.
fn exit_code_of_task(state: &TaskState, outcome: Option<&Outcome>) -> CliExitCode {
    match (state.status, outcome) {
        (Status::Completed, _) if state.cut_short.is_some() => CliExitCode::Limit,
        (Status::Completed, _) => CliExitCode::Success,
        (Status::Cancelled, _) => CliExitCode::Cancelled,
        (_, Some(Outcome::Failed { failure, .. })) => match failure.kind {
            FailureKind::Timeout => CliExitCode::TimedOut,
            FailureKind::TurnLimit | FailureKind::Budget => CliExitCode::Limit,
            _ => CliExitCode::Failed,
        },
        _ => CliExitCode::Failed,
    }
}

/// Returns the worse of two codes: failed, timed out, limit, cancelled, success.
fn worse(one: CliExitCode, two: CliExitCode) -> CliExitCode {
    let rank = |code| match code {
        CliExitCode::Failed => 4,
        CliExitCode::TimedOut => 3,
        CliExitCode::Limit => 2,
        CliExitCode::Cancelled => 1,
        _ => 0,
    };
    if rank(two) > rank(one) { two } else { one }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_counts() {
        assert_eq!(worse(CliExitCode::Success, CliExitCode::Cancelled), CliExitCode::Cancelled);
        assert_eq!(worse(CliExitCode::Limit, CliExitCode::Cancelled), CliExitCode::Limit);
        assert_eq!(worse(CliExitCode::Limit, CliExitCode::Failed), CliExitCode::Failed);
        assert_eq!(worse(CliExitCode::Failed, CliExitCode::Success), CliExitCode::Failed);
    }
}
