//! What a task has changed in its git worktree.

use axum::Json;
use axum::extract::State;
use tokio::sync::Semaphore;

use super::ApiState;
use super::extract::Id;
use crate::problem::ProblemDocument;
use crate::views::DiffView;

/// How many differences are read at once. Git may need a while for a large repository; the other requests wait.
const AT_ONCE: usize = 2;

/// Lets few requests read differences at once.
pub(super) struct DiffTurns(Semaphore);

impl Default for DiffTurns {
    fn default() -> DiffTurns {
        DiffTurns(Semaphore::new(AT_ONCE))
    }
}

/// Read what a task has changed in its git worktree
///
/// For tasks with `isolation: worktree`: all changes since the task's branch began, committed or not. If the
/// worktree was removed, what is committed on the branch. Large differences are cut.
#[utoipa::path(get, path = "/tasks/{id}/diff", tag = "tasks",
    params(("id" = String, Path, description = "The task.", pattern = "^t-[0-9a-hjkmnp-tv-z]{5,15}$")),
    responses((status = 200, description = "The difference.", body = DiffView)))]
pub(super) async fn get_diff(
    State(api): State<ApiState>,
    Id(id): Id,
) -> Result<Json<DiffView>, ProblemDocument> {
    let _turn = api.0.diffs.0.acquire().await;
    match api.longhaul().worktree_diff(id).await? {
        Some(diff) => Ok(Json(diff.into())),
        None => Err(ProblemDocument::conflict(
            "no_worktree",
            format!("{id} has no git worktree, or it is gone together with its branch"),
        )),
    }
}
