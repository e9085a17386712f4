//! Stands in for `worktree` in a build without the feature `toolsets`: no task can have a worktree.

use std::path::{Path, PathBuf};

use tokio::sync::Mutex;

/// Why there is none.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct NoWorktreeError(pub(super) String);

/// A worktree that cannot be created.
pub(super) struct NoWorktree {
    pub(super) origin: PathBuf,
    pub(super) dir: PathBuf,
}

impl NoWorktree {
    pub(super) async fn open_or_create(
        _: &Path,
        _: &str,
        _: &Mutex<()>,
    ) -> Result<NoWorktree, NoWorktreeError> {
        Err(NoWorktreeError("isolation: worktree needs a build with the feature `toolsets`".to_owned()))
    }

    pub(super) async fn changes(&self) -> Result<(), NoWorktreeError> {
        Ok(())
    }

    pub(super) async fn remove_if_unchanged(&self, _: &Mutex<()>) {}

    pub(super) async fn is_kept(&self) -> bool {
        false
    }

    pub(super) fn describe(&self, _: &Result<(), NoWorktreeError>, _: bool) -> String {
        String::new()
    }
}
