//! Reads what a task has changed, without changing anything in its repository.
//!
//! The worktree is compared through a private index that has the files of the base and every other file that is
//! there, so that files count whether or not the task has added or committed them. What the task's own index
//! says (files that are assumed to be unchanged, for example) cannot hide a change.

use std::path::{Path, PathBuf};

use cap_std::fs::{Dir, PermissionsExt as _};

use super::diff::{DiffCommit, FileDiff, FileDiffKind, WorktreeDiff, WorktreePlace, parse};
use super::private_git::PrivateGit;
use super::repository::{CancelFlag, Repository};
use super::{Worktree, WorktreeError, blocking, unknown};

/// How much of git's output is read, in bytes.
const OUTPUT: usize = 4 << 20;
/// How much of a list of names is read, in bytes.
const NAMES: usize = 1 << 20;
/// How many files that are not in the base are looked at.
const NEW_FILES: usize = 2_000;
/// How many commits are named.
const COMMITS: usize = 50;
/// Larger files count as binary: git would hold them in memory to compare them.
const BIG: &str = "core.bigFileThreshold=2m";
const DIFF: [&str; 13] = [
    "-c",
    BIG,
    "diff",
    "--no-color",
    "--no-ext-diff",
    "--no-textconv",
    "--ignore-submodules=all",
    "--find-renames",
    "-l200",
    "--raw",
    "--numstat",
    "--patch",
    "-z",
];

/// Where the work of a task is; `None` if it has no worktree and no branch.
pub(crate) async fn find_worktree(origin: PathBuf, name: String) -> Option<WorktreePlace> {
    let found = blocking(move |given_up| {
        let (repository, worktree) = look_for(origin, name, given_up)?;
        Ok(worktree.place(&repository))
    });
    // Most tasks do not work in a repository.
    found.await.ok().flatten()
}

/// What a task has changed; `None` if it has no worktree and no branch.
pub(crate) async fn read_worktree_diff(
    origin: PathBuf,
    name: String,
) -> Result<Option<WorktreeDiff>, String> {
    let read = blocking(move |given_up| {
        let Ok((repository, worktree)) = look_for(origin, name, given_up) else { return Ok(None) };
        worktree.place(&repository).map(|place| worktree.diff(&repository, place)).transpose()
    });
    read.await.map_err(|error| error.to_string())
}

/// A task that was started in the worktree of another one may be asked about when that one is gone.
fn look_for(
    origin: PathBuf,
    name: String,
    given_up: &CancelFlag,
) -> Result<(Repository, Worktree), WorktreeError> {
    let mut dir = origin.as_path();
    while !dir.is_dir() {
        dir = dir.parent().ok_or_else(unknown)?;
    }
    let in_git = dir.ancestors().filter(|dir| dir.file_name().is_some_and(|name| name == ".git")).last();
    let top = in_git.filter(|_| dir != origin).and_then(Path::parent).unwrap_or(dir);
    let repository = Repository::find(top, given_up)?;
    let worktree = Worktree::named(&repository, origin, name);
    Ok((repository, worktree))
}

impl Worktree {
    fn place(&self, repository: &Repository) -> Option<WorktreePlace> {
        let path = self.is_there(repository).then(|| self.top.clone());
        let branch = self.branch.clone();
        (path.is_some() || repository.has_branch(&branch)).then_some(WorktreePlace { branch, path })
    }

    fn diff(&self, repository: &Repository, place: WorktreePlace) -> Result<WorktreeDiff, WorktreeError> {
        let head = repository.git()?.run(["rev-parse", "--verify", "--end-of-options", "HEAD^{commit}"])?;
        let (git, tip, tree) = match &place.path {
            Some(_) => {
                let admin = repository.admin_of(&self.top).ok_or_else(unknown)?;
                let git = repository.git_of(&admin)?;
                // It only saves time: without it, git reads every file.
                let _ = git.take_index(repository, &admin.join("index"));
                let top = repository.dir.open_dir(self.inside());
                let top = top.map_err(|error| WorktreeError(error.to_string()))?;
                (git, "HEAD^{commit}".to_owned(), Some(top))
            }
            None => (repository.git()?, format!("refs/heads/{}^{{commit}}", self.branch), None),
        };
        git.ignore_diff_attributes().map_err(|error| WorktreeError(error.to_string()))?;
        let tip = git.run(["rev-parse", "--verify", "--end-of-options", &tip])?.trim().to_owned();
        let base = git.run(["merge-base", head.trim(), &tip]).map_err(|_| {
            WorktreeError("the branch has no commit in common with the repository's HEAD".to_owned())
        })?;
        let base = base.lines().next().unwrap_or_default().to_owned();
        let mut args = DIFF.to_vec();
        args.push(&base);
        let mut others = Vec::new();
        let (bytes, is_whole) = match &tree {
            Some(top) => {
                others = self.prepare_index(&git, top, &base, &tip)?;
                args.push("--");
                git.read(Some((top, &self.top)), &args, OUTPUT)?
            }
            None => {
                args.extend([tip.as_str(), "--"]);
                git.read(None, &args, OUTPUT)?
            }
        };
        let (mut files, is_cut) = parse(&bytes);
        let mut is_partial = is_cut || !is_whole;
        if let Some(OtherFile::TooMany) = others.last() {
            is_partial = true;
        }
        files.extend(others.into_iter().filter_map(|other| match other {
            OtherFile::Repository(path) => Some(FileDiff::new(path, FileDiffKind::Repository)),
            OtherFile::TooMany => None,
        }));
        let commits = commits(&git, &base, &tip)?;
        Ok(WorktreeDiff { place, base, commits, files, is_partial })
    }

    /// Makes the private index: the files of the base, and all others that are there.
    fn prepare_index(
        &self,
        git: &PrivateGit,
        top: &Dir,
        base: &str,
        tip: &str,
    ) -> Result<Vec<OtherFile>, WorktreeError> {
        let tree = Some((top, self.top.as_path()));
        // Marks that make git look away, and an index that cannot be read.
        let marks = git.read(tree, &["ls-files", "-v", "-z"], usize::MAX);
        let is_plain = |entry: &[u8]| entry.first().is_none_or(|mark| *mark == b'H');
        if !marks.is_ok_and(|(marks, _)| marks.split(|byte| *byte == 0).all(is_plain)) {
            git.drop_index().map_err(|error| WorktreeError(error.to_string()))?;
        }
        git.read(tree, &["read-tree", "--reset", "--no-recurse-submodules", base], NAMES)?;
        let (mut names, mut is_whole) =
            git.read(tree, &["ls-files", "--others", "--exclude-standard", "-z"], NAMES)?;
        // Files that were committed although git ignores them.
        let committed = ["diff", "--no-renames", "--diff-filter=A", "--name-only", "-z", base, tip, "--"];
        let (more, is_all) = git.read(None, &committed, NAMES)?;
        is_whole &= is_all;
        names.extend(more);
        let mut names: Vec<&[u8]> = names.split(|byte| *byte == 0).filter(|name| !name.is_empty()).collect();
        names.sort_unstable();
        names.dedup();
        let mut others = Vec::new();
        let empty = if base.len() == 64 { EMPTY_SHA256 } else { EMPTY_SHA1 };
        let mut entries = Vec::new();
        for name in names.iter().take(NEW_FILES) {
            use std::os::unix::ffi::OsStrExt as _;
            let path = Path::new(std::ffi::OsStr::from_bytes(name));
            let Ok(meta) = top.symlink_metadata(path) else { continue };
            let mode = match () {
                () if meta.is_symlink() => "120000",
                () if meta.is_file() && meta.permissions().mode() & 0o100 != 0 => "100755",
                () if meta.is_file() => "100644",
                () if meta.is_dir() => {
                    others.push(OtherFile::Repository(path.display().to_string()));
                    continue;
                }
                () => continue,
            };
            entries.extend(format!("{mode} {empty} 0\t").bytes());
            entries.extend_from_slice(name);
            entries.push(0);
        }
        git.add_to_index(&entries)?;
        if !is_whole || names.len() > NEW_FILES {
            others.push(OtherFile::TooMany);
        }
        Ok(others)
    }
}

/// The id of the empty blob: what a file that git does not know yet is compared with.
const EMPTY_SHA1: &str = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391";
const EMPTY_SHA256: &str = "473a0f4c3be8a93681a267e3b1e9a7dcda1185436fe141f7749120a303721813";

/// What is there and git does not compare.
enum OtherFile {
    /// A directory that is a repository of its own.
    Repository(String),
    /// More files than are looked at.
    TooMany,
}

fn commits(git: &PrivateGit, base: &str, tip: &str) -> Result<Vec<DiffCommit>, WorktreeError> {
    let most = format!("--max-count={COMMITS}");
    let range = format!("{base}..{tip}");
    let args = [
        "log",
        &most,
        "-z",
        "--format=%h%x09%s",
        "--no-patch",
        "--no-notes",
        "--no-show-signature",
        &range,
        "--",
    ];
    let (bytes, _) = git.read(None, &args, NAMES)?;
    let text = String::from_utf8_lossy(&bytes);
    let commits = text.split('\0').filter_map(|line| line.split_once('\t'));
    let shown = |subject: &str| subject[..subject.floor_char_boundary(200)].to_owned();
    Ok(commits.map(|(id, subject)| DiffCommit { id: id.to_owned(), subject: shown(subject) }).collect())
}

#[cfg(test)]
#[path = "read_diff_tests.rs"]
mod tests;
