//! What a sandboxed command may change of git's own files: enough to commit, and nothing that git executes.

use std::fs;
use std::path::{Path, PathBuf};

/// Paths of one working tree.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct GitDirs {
    pub(super) writable: Vec<PathBuf>,
    /// What stays as it is.
    pub(super) fixed: Vec<PathBuf>,
    /// What is not there, and is not to come.
    pub(super) empty: Vec<PathBuf>,
}

impl GitDirs {
    /// Those of the working tree whose top is `top`.
    pub(super) fn of(top: &Path) -> Option<Self> {
        let dot = top.join(".git");
        let meta = fs::symlink_metadata(&dot).ok()?;
        match (meta.is_dir(), meta.is_file()) {
            (true, _) => Some(own(dot)),
            (_, true) => linked(dot),
            _ => None,
        }
    }
}

/// A repository that is in its working tree.
fn own(dot: PathBuf) -> GitDirs {
    let mut dirs = GitDirs::default();
    let (fixed, missing): (Vec<_>, Vec<_>) =
        ["config", "hooks"].iter().map(|name| dot.join(name)).partition(|path| path.exists());
    dirs.fixed = fixed;
    dirs.empty = missing.into_iter().filter(|path| path.ends_with("hooks")).collect();
    dirs.writable.push(dot);
    dirs
}

/// A worktree: its `.git` is a file that names a directory in the repository. Commands can write that file, so it is
/// believed only where the repository says the same.
fn linked(dot: PathBuf) -> Option<GitDirs> {
    let said = fs::read_to_string(&dot).ok()?;
    let named = dot.parent()?.join(said.strip_prefix("gitdir:")?.trim());
    let own = named.canonicalize().ok()?;
    let back = fs::read_to_string(own.join("gitdir")).ok()?;
    if Path::new(back.trim()).canonicalize().ok()? != dot.canonicalize().ok()? {
        return None;
    }
    let common = own.join(fs::read_to_string(own.join("commondir")).ok()?.trim()).canonicalize().ok()?;
    let worktrees = own.parent()?;
    if worktrees.file_name()? != "worktrees" || worktrees.parent()? != common {
        return None;
    }
    let there = |path: PathBuf| path.exists().then_some(path);
    let mut writable: Vec<PathBuf> =
        ["objects", "refs", "logs"].iter().filter_map(|name| there(common.join(name))).collect();
    let fixed = ["gitdir", "commondir", "config.worktree"].iter().filter_map(|name| there(own.join(name)));
    let fixed = fixed.chain([dot]).collect();
    writable.push(own);
    Some(GitDirs { writable, fixed, empty: Vec::new() })
}
