//! What a sandboxed command may change of git's own files: enough to commit, and nothing that git executes.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// How many worktrees or submodules are guarded one by one; of more, none can be written to.
const EACH: usize = 32;

/// Paths of one working tree.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct GitDirs {
    /// What is written to, and can be neither moved away nor replaced.
    pub(super) writable: Vec<PathBuf>,
    /// What stays as it is.
    pub(super) read_only: Vec<PathBuf>,
    /// What is not there, and is not to come.
    pub(super) masked: Vec<PathBuf>,
    /// What cannot be kept from being made, and is removed when the command has ended: with a `commondir`, git would
    /// take the configuration and the hooks of another directory.
    pub(super) remove_afterwards: Vec<PathBuf>,
}

impl GitDirs {
    /// Those of the working tree whose top is `top`.
    pub(super) fn for_worktree(top: &Path) -> Result<Option<Self>, String> {
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

    /// A git directory that is in its working tree, or in another one.
    fn own(&mut self, dot: &Path) -> Result<(), String> {
        let elsewhere = dot.join("commondir");
        if elsewhere.symlink_metadata().is_ok() {
            return Err(format!(
                "{} leads git to the configuration of another directory, and does not belong there: remove it",
                elsewhere.display()
            ));
        }
        self.writable.push(dot.to_owned());
        self.keep(dot.join("config"));
        // Only then is it read.
        if mentions(&dot.join("config"), "worktreeconfig") {
            self.keep(dot.join("config.worktree"));
        }
        let hooks = dot.join("hooks");
        match hooks.exists() {
            true => self.read_only.push(hooks),
            false => self.masked.push(hooks),
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
            // Its name has a slash in it.
            false => {
                dirs.read_only.push(module);
                Ok(())
            }
        })
    }

    /// Every directory in one, and that itself.
    fn each(
        &mut self,
        dir: &Path,
        mut act: impl FnMut(&mut Self, PathBuf) -> Result<(), String>,
    ) -> Result<(), String> {
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

    /// A configuration stays as it is. One that is not there is an empty one from now on, which means the same.
    fn keep(&mut self, path: PathBuf) {
        let _ = fs::OpenOptions::new().write(true).create_new(true).open(&path);
        if path.exists() {
            self.read_only.push(path);
        }
    }

    /// A worktree: its `.git` is a file that names a directory in the repository. Without one that can be believed, only
    /// the file itself stays as it is.
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

/// Whether a file has a word in it, in whatever case.
fn mentions(file: &Path, word: &str) -> bool {
    small(file).is_ok_and(|text| text.to_ascii_lowercase().contains(word))
}

/// A file that should be short; a pipe is waited for by nobody.
fn small(path: &Path) -> io::Result<String> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("not a plain file"));
    }
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(1 << 20).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The git directory of a worktree whose `.git` is this file, and the one that all worktrees of its repository share.
/// Commands can write that file, so it is believed only where the repository says the same.
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
