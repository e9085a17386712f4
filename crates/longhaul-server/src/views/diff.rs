//! The JSON of a task's git worktree and of what was changed there.

use longhaul::supervisor::{FileDiff, FileDiffKind, WorktreeDiff, WorktreePlace};
use serde::Serialize;
use utoipa::ToSchema;

use super::question::LineView;

/// Where the work of a task is.
#[derive(Debug, Serialize, ToSchema)]
pub struct WorktreeView {
    /// Its branch.
    pub branch: String,
    /// The directory of its worktree; null if that was removed and only the branch is left.
    pub path: Option<String>,
}

impl From<WorktreePlace> for WorktreeView {
    fn from(place: WorktreePlace) -> WorktreeView {
        WorktreeView { branch: place.branch, path: place.path.map(|path| path.display().to_string()) }
    }
}

/// What a task has changed.
#[derive(Debug, Serialize, ToSchema)]
pub struct DiffView {
    /// Where the work is.
    pub worktree: WorktreeView,
    /// The commit that it is compared with: the newest one that the branch has in common with the HEAD of the
    /// repository.
    pub base: String,
    /// The commits since then, the newest first; at most 50.
    pub commits: Vec<CommitView>,
    /// The changed files; at most 1,000.
    pub files: Vec<FileDiffView>,
    /// Whether there are more changed files than these.
    pub is_partial: bool,
}

/// A commit.
#[derive(Debug, Serialize, ToSchema)]
pub struct CommitView {
    /// Its abbreviated id.
    pub id: String,
    /// The first line of its message.
    pub subject: String,
}

/// The difference of a file.
#[derive(Debug, Serialize, ToSchema)]
pub struct FileDiffView {
    /// Its path in the repository.
    pub path: String,
    /// Its path before, if it was renamed.
    pub old_path: Option<String>,
    /// What happened: `added`, `removed`, `changed`, `renamed`, or `repository` for a new directory that is a
    /// repository of its own.
    pub change: String,
    /// How many lines are new; null if it is not text.
    pub added: Option<u64>,
    /// How many lines are gone; null if it is not text.
    pub removed: Option<u64>,
    /// Whether it is not text, or too large: nothing of it is shown.
    pub is_binary: bool,
    /// The lines. A `note` begins a part of the file, or says something about it.
    pub lines: Vec<LineView>,
    /// Whether lines are left out.
    pub is_cut: bool,
}

impl From<FileDiff> for FileDiffView {
    fn from(file: FileDiff) -> FileDiffView {
        let change = match file.kind {
            FileDiffKind::Added => "added",
            FileDiffKind::Removed => "removed",
            FileDiffKind::Renamed => "renamed",
            FileDiffKind::Repository => "repository",
            _ => "changed",
        };
        FileDiffView {
            change: change.to_owned(),
            is_binary: file.is_binary(),
            path: file.path,
            old_path: file.old_path,
            added: file.added,
            removed: file.removed,
            lines: file.lines.into_iter().map(LineView::from).collect(),
            is_cut: file.is_cut,
        }
    }
}

impl From<WorktreeDiff> for DiffView {
    fn from(diff: WorktreeDiff) -> DiffView {
        let commits =
            diff.commits.into_iter().map(|commit| CommitView { id: commit.id, subject: commit.subject });
        DiffView {
            worktree: diff.place.into(),
            base: diff.base,
            commits: commits.collect(),
            files: diff.files.into_iter().map(FileDiffView::from).collect(),
            is_partial: diff.is_partial,
        }
    }
}
