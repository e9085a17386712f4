//! The git worktrees of tasks, for people who look at what was done there.

use super::{Longhaul, LonghaulError, WorktreeDiff, WorktreePlace};
use crate::id::TaskId;
use crate::runner::{find_worktree, read_worktree_diff, worktree_of};

impl Longhaul {
    /// Where the work of a task with `isolation: worktree` is. `None` if it has no worktree, or if it is gone
    /// together with its branch.
    pub async fn worktree(&self, id: TaskId) -> Result<Option<WorktreePlace>, LonghaulError> {
        let submitted = self.0.service.submission(id).await?;
        match worktree_of(&*self.0.service.store, &submitted).await? {
            Some((origin, name)) => Ok(find_worktree(origin, name).await),
            None => Ok(None),
        }
    }

    /// What a task has changed in its worktree, or on its branch if the worktree is gone. `None` as for
    /// [`worktree`](Self::worktree). Git runs nothing that the repository configures, and nothing is written
    /// there. Large differences are cut.
    pub async fn worktree_diff(&self, id: TaskId) -> Result<Option<WorktreeDiff>, LonghaulError> {
        let submitted = self.0.service.submission(id).await?;
        match worktree_of(&*self.0.service.store, &submitted).await? {
            Some((origin, name)) => {
                let read = read_worktree_diff(origin, name).await;
                read.map_err(LonghaulError::Worktree)
            }
            None => Ok(None),
        }
    }
}
