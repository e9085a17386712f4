//! A repository that an agent may have modified, and Longhaul's own changes to it.
//!
//! Git runs what a repository's configuration names: filters, hooks, file system monitors and helpers of
//! every kind, also in nested repositories. So the repository's own git directory is never used as `GIT_DIR`
//! here. Each use gets a private one (`private_git.rs`) with our own configuration and links to the data: objects and refs. Git
//! only reads these. What has to be written into the repository we write ourselves, relative to an open
//! handle of it, so that no symlink leads out.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions};
use uuid::Uuid;

use super::WorktreeError;
use super::private_git::{PrivateGit, TempGitDir};
use crate::toolset::linked_git_dirs;

/// How much of a one-line file is read, in bytes.
const ONE_LINE: u64 = 64 * 1024;
/// How much of the file with the packed refs is read, in bytes.
const PACKED_REFS: u64 = 16 << 20;

/// A repository, and a directory in its working tree.
#[derive(Debug)]
pub(super) struct Repository {
    /// The git directory of this working tree, with its own HEAD.
    git_dir: PathBuf,
    /// The git directory that all working trees share for objects and refs.
    pub(super) common: PathBuf,
    /// The path relative to the working tree's top.
    pub(super) prefix: PathBuf,
    /// The handle that all writes go through.
    pub(super) dir: Dir,
    pub(super) given_up: CancelFlag,
}

/// Set when no one waits for git any more: a running git is then killed.
pub(super) type CancelFlag = Arc<AtomicBool>;

impl Repository {
    /// Finds the repository whose working tree contains `origin`, without git. Links and `commondir` files
    /// that the repository does not confirm are not trusted.
    pub(super) fn find(origin: &Path, given_up: &CancelFlag) -> Result<Repository, WorktreeError> {
        let none = |why: String| {
            WorktreeError(format!(
                "isolation: worktree needs a git repository, and {} is in none ({why})",
                origin.display()
            ))
        };
        let real = origin.canonicalize().map_err(|error| none(error.to_string()))?;
        for top in real.ancestors() {
            let dot = top.join(".git");
            let Ok(meta) = fs::symlink_metadata(&dot) else { continue };
            let refused = |why: &str| {
                WorktreeError(format!(
                    "isolation: worktree cannot use the git repository at {}: {why}",
                    top.display()
                ))
            };
            let (git_dir, common) = if meta.is_symlink() {
                return Err(refused("its .git is a symbolic link"));
            } else if meta.is_file() {
                match linked_git_dirs(&dot).or_else(|| submodule(&dot, given_up)) {
                    Some(dirs) => dirs,
                    None => {
                        return Err(refused(
                            "its .git is a file that names a git directory which does not name it in turn",
                        ));
                    }
                }
            } else if ["objects", "refs"].iter().any(|name| !dot.join(name).is_dir()) {
                continue;
            } else {
                (dot.clone(), dot)
            };
            if common.join("commondir").symlink_metadata().is_ok() {
                return Err(refused(
                    "there is a file 'commondir' in its git directory, which would lead git elsewhere",
                ));
            }
            let prefix = real.strip_prefix(top).unwrap_or(Path::new("")).to_owned();
            if prefix.iter().any(|name| name.eq_ignore_ascii_case(".git")) {
                return Err(refused("the working directory is inside of a git directory"));
            }
            let dir = Dir::open_ambient_dir(&common, ambient_authority());
            let dir = dir.map_err(|error| refused(&error.to_string()))?;
            for name in ["objects", "refs"] {
                // Git reads them by path; they must be the repository's own.
                if dir.symlink_metadata(name).map_err(|error| refused(&error.to_string()))?.is_symlink() {
                    return Err(refused(&format!("'{name}' in its git directory is a symbolic link")));
                }
            }
            return Ok(Repository { git_dir, common, prefix, dir, given_up: given_up.clone() });
        }
        Err(none("no .git there or above".to_owned()))
    }

    /// A private git directory with this repository's data and the HEAD of the working tree itself.
    pub(super) fn git(&self) -> Result<PrivateGit, WorktreeError> {
        let head = one_line(&self.git_dir.join("HEAD"))
            .map_err(|error| WorktreeError(format!("HEAD cannot be read: {error}")))?;
        PrivateGit::new(self, &head)
    }

    /// A private git directory with the HEAD of another working tree of the repository.
    pub(super) fn git_of(&self, admin: &Path) -> Result<PrivateGit, WorktreeError> {
        let head = self
            .read(&admin.join("HEAD"))
            .map_err(|error| WorktreeError(format!("HEAD cannot be read: {error}")))?;
        PrivateGit::new(self, &head)
    }

    /// Reads a small file of the repository.
    pub(super) fn read(&self, path: &Path) -> io::Result<String> {
        let mut text = String::new();
        plain(&self.dir, path)?.take(ONE_LINE).read_to_string(&mut text)?;
        Ok(text)
    }

    /// Writes a file atomically: under a temporary name first.
    pub(super) fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let beside = temporary_name(path);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        let written = self.dir.open_with(&beside, &options).and_then(|mut file| file.write_all(content));
        let written = written.and_then(|()| self.dir.rename(&beside, &self.dir, path));
        written.inspect_err(|_| drop(self.dir.remove_file(&beside)))
    }

    /// The directory in which git keeps the data of one working tree, if this one has it.
    pub(super) fn admin_of(&self, top: &Path) -> Option<PathBuf> {
        let names = self.dir.read_dir("worktrees").ok()?;
        let mut all: Vec<_> =
            names.flatten().map(|entry| Path::new("worktrees").join(entry.file_name())).collect();
        all.sort();
        all.into_iter().find(|admin| {
            let said = self.read(&admin.join("gitdir")).unwrap_or_default();
            let dot = self.common.join(admin).join(said.trim());
            lexical(&dot).parent() == Some(top)
        })
    }

    /// Whether there is a branch with this name.
    pub(super) fn has_branch(&self, name: &str) -> bool {
        if self.dir.symlink_metadata(Path::new("refs/heads").join(name)).is_ok() {
            return true;
        }
        let mut packed = String::new();
        let read = plain(&self.dir, Path::new("packed-refs"))
            .and_then(|file| file.take(PACKED_REFS).read_to_string(&mut packed));
        let end = format!(" refs/heads/{name}");
        read.is_ok() && packed.lines().any(|line| line.ends_with(&end))
    }

    /// Creates a branch, unless one with this name exists.
    pub(super) fn make_branch(&self, name: &str, at: &str) -> io::Result<()> {
        let path = Path::new("refs/heads").join(name);
        self.dir.create_dir_all(path.parent().unwrap_or(Path::new("refs/heads")))?;
        let _lock = RefLock::take(self, &path)?;
        if self.dir.symlink_metadata(&path).is_ok() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("there is a branch {name}")));
        }
        self.write(&path, format!("{at}\n").as_bytes())
    }

    /// Removes a branch if it still points to the same commit. A packed ref stays.
    pub(super) fn remove_branch(&self, name: &str, at: &str) -> io::Result<()> {
        let path = Path::new("refs/heads").join(name);
        let _lock = RefLock::take(self, &path)?;
        match self.read(&path)?.trim() == at {
            true => self.dir.remove_file(&path),
            false => Ok(()),
        }
    }
}

/// A name for a file that will be renamed to this one. Git lists every file beside its refs as a ref, and complains if
/// it is empty, unless the name ends like that of a lock.
fn temporary_name(path: &Path) -> PathBuf {
    path.with_extension(format!("longhaul-{}.lock", Uuid::now_v7().simple()))
}

/// Git's own lock on a ref, held while we change it.
struct RefLock<'a>(&'a Repository, PathBuf);

impl<'a> RefLock<'a> {
    fn take(repository: &'a Repository, path: &Path) -> io::Result<Self> {
        let mut name = path.as_os_str().to_owned();
        name.push(".lock");
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        repository.dir.open_with(&name, &options)?;
        Ok(RefLock(repository, name.into()))
    }
}

impl Drop for RefLock<'_> {
    fn drop(&mut self) {
        let _ = self.0.dir.remove_file(&self.1);
    }
}

/// The git directory of a submodule: it is in another repository, and its configuration names the working
/// tree.
fn submodule(dot: &Path, given_up: &CancelFlag) -> Option<(PathBuf, PathBuf)> {
    let top = dot.parent()?;
    let named = top.join(one_line(dot).ok()?.strip_prefix("gitdir:")?.trim()).canonicalize().ok()?;
    let values = TempGitDir::new(given_up).ok()?.config(&named.join("config")).ok()?;
    let back = values.iter().rev().find(|(key, _)| key == "core.worktree")?;
    let back = named.join(&back.1).canonicalize().ok()?;
    (back == top.canonicalize().ok()?).then(|| (named.clone(), named))
}

/// The first line of a regular file; reading a pipe would never end.
fn one_line(path: &Path) -> io::Result<String> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("not a plain file"));
    }
    let mut text = String::new();
    fs::File::open(path)?.take(ONE_LINE).read_to_string(&mut text)?;
    Ok(text)
}

/// Opens a regular file without blocking on a pipe.
pub(super) fn plain(dir: &Dir, path: &Path) -> io::Result<cap_std::fs::File> {
    use cap_fs_ext::OpenOptionsSyncExt as _;
    let mut options = OpenOptions::new();
    options.read(true).nonblock(true);
    let file = dir.open_with(path, &options)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("not a plain file")),
    }
}

fn lexical(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another task, or a person, may list the branches while one is being made.
    #[test]
    fn git_does_not_take_a_file_that_is_being_written_for_a_branch() {
        let repo = tempfile::tempdir().unwrap();
        let git = |args: &[&str]| {
            let ran = std::process::Command::new("git").args(args).current_dir(repo.path()).output().unwrap();
            (
                ran.status.success(),
                format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr)),
            )
        };
        assert!(git(&["init", "-q"]).0);
        let branches = repo.path().join(".git/refs/heads");
        std::fs::write(temporary_name(&branches.join("t-1")), "").unwrap();
        assert_eq!(git(&["for-each-ref"]), (true, String::new()));
        // An empty file with another name is what git stumbles over.
        std::fs::write(branches.join("t-1"), "").unwrap();
        assert_ne!(git(&["for-each-ref"]), (true, String::new()));
    }
}
