//! Which of git's own files a sandboxed command may change: enough to commit, but nothing that git executes.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use crate::tool::ToolError;

/// How many worktrees or submodules are protected one by one. If there are more, all of them are read-only.
const EACH: usize = 32;

/// The git paths of one working tree.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct GitDirs {
    /// Writable, but can be neither moved nor replaced.
    pub(super) writable: Vec<PathBuf>,
    pub(super) read_only: Vec<PathBuf>,
    /// Does not exist, and must not be created.
    pub(super) masked: Vec<PathBuf>,
    /// Cannot be prevented, so it is removed when the command has ended. With a `commondir`, git would use
    /// the configuration and the hooks of another directory.
    pub(super) remove_afterwards: Vec<PathBuf>,
}

impl GitDirs {
    /// Returns the paths of the working tree at `top`; `None` if there is no `.git`.
    pub(super) fn for_worktree(top: &Path) -> Result<Option<Self>, ToolError> {
        let dot = top.join(".git");
        let Ok(meta) = fs::symlink_metadata(&dot) else { return Ok(None) };
        let mut dirs = GitDirs::default();
        match (meta.is_dir(), meta.is_file()) {
            (true, _) => dirs.own(&dot)?,
            (_, true) => dirs.linked(dot),
            _ => return Ok(None),
        }
        Ok(Some(dirs))
    }

    /// Adds a git directory: that of the working tree, or that of a submodule.
    fn own(&mut self, dot: &Path) -> Result<(), ToolError> {
        let elsewhere = dot.join("commondir");
        if elsewhere.symlink_metadata().is_ok() {
            return Err(ToolError::Failed(format!(
                "{} leads git to the configuration of another directory, and does not belong there: remove it",
                elsewhere.display()
            )));
        }
        self.writable.push(dot.to_owned());
        self.keep(dot.join("config"));
        // Git reads `config.worktree` only with this setting.
        if mentions(&dot.join("config"), "worktreeconfig") {
            self.keep(dot.join("config.worktree"));
        }
        let hooks = dot.join("hooks");
        if hooks.exists() {
            self.read_only.push(hooks)
        } else {
            self.masked.push(hooks)
        }
        self.remove_afterwards.push(elsewhere);
        self.each(&dot.join("worktrees"), |dirs, worktree| {
            dirs.writable.push(worktree.clone());
            let there = ["commondir", "gitdir", "config.worktree"].map(|name| worktree.join(name));
            dirs.read_only.extend(there.into_iter().filter(|path| path.exists()));
            Ok(())
        })?;
        self.each(&dot.join("modules"), |dirs, module| match module.join("HEAD").exists() {
            true => dirs.own(&module),
            // Not a git directory: the module's name contains a slash.
            false => {
                dirs.read_only.push(module);
                Ok(())
            }
        })
    }

    /// Adds a directory, and calls `act` for each directory in it.
    fn each(
        &mut self,
        dir: &Path,
        mut act: impl FnMut(&mut Self, PathBuf) -> Result<(), ToolError>,
    ) -> Result<(), ToolError> {
        let Ok(entries) = fs::read_dir(dir) else { return Ok(()) };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.retain(|path| path.symlink_metadata().is_ok_and(|meta| meta.is_dir()));
        paths.sort();
        if paths.len() > EACH {
            self.read_only.push(dir.to_owned());
            return Ok(());
        }
        self.writable.push(dir.to_owned());
        paths.into_iter().try_for_each(|path| act(self, path))
    }

    /// Makes a configuration file read-only. Creates it if it is missing: an empty one means the same.
    fn keep(&mut self, path: PathBuf) {
        let _ = fs::OpenOptions::new().write(true).create_new(true).open(&path);
        if path.exists() {
            self.read_only.push(path);
        }
    }

    /// Adds a linked worktree: its `.git` is a file that names a directory in the repository. If the
    /// repository does not confirm it, only the file itself is added, read-only.
    fn linked(&mut self, dot: PathBuf) {
        if let Some((own, common)) = linked_git_dirs(&dot) {
            let shared = ["objects", "refs", "logs"].iter().map(|name| common.join(name));
            self.writable.extend(shared.filter(|path| path.exists()));
            self.writable.push(own.clone());
            self.read_only.extend(["gitdir", "commondir"].map(|name| own.join(name)));
            if mentions(&common.join("config"), "worktreeconfig") {
                self.keep(own.join("config.worktree"));
            }
        }
        self.read_only.push(dot);
    }
}

/// Checks whether a file contains a word, ignoring case.
fn mentions(file: &Path, word: &str) -> bool {
    small(file).is_ok_and(|text| text.to_ascii_lowercase().contains(word))
}

/// Reads a small file. Fails on a named pipe instead of blocking.
fn small(path: &Path) -> io::Result<String> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("not a plain file"));
    }
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(1 << 20).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the git directory of the worktree with this `.git` file, and the directory that all worktrees of
/// the repository share. Commands can write that file, so it counts only if the repository confirms it.
pub(crate) fn linked_git_dirs(dot: &Path) -> Option<(PathBuf, PathBuf)> {
    let said = small(dot).ok()?;
    let named = dot.parent()?.join(said.strip_prefix("gitdir:")?.trim());
    let own = named.canonicalize().ok()?;
    let back = small(&own.join("gitdir")).ok()?;
    if own.join(back.trim()).canonicalize().ok()? != dot.canonicalize().ok()? {
        return None;
    }
    let common = own.join(small(&own.join("commondir")).ok()?.trim()).canonicalize().ok()?;
    let worktrees = own.parent()?;
    let confirmed = worktrees.file_name()? == "worktrees" && worktrees.parent()? == common;
    confirmed.then_some((own, common))
}
