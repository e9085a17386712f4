//! A git worktree and branch for one task, so that tasks that write do not interfere.
//!
//! It is created when the task first runs, and found again by its name, which is derived from the task's key.
//! Its content is the task's work: it is only removed if git says that there is none.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Mutex;

use repository::{CancelFlag, Repository};

mod diff;
mod private_git;
mod read_diff;
mod repository;

pub(crate) use read_diff::{find_worktree, read_worktree_diff};

pub use diff::{DiffCommit, FileDiff, FileDiffKind, WorktreeDiff, WorktreePlace};

/// The directory for worktrees in the repository's git directory.
const TREES: &str = "longhaul";

/// The worktree of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Worktree {
    /// The working directory in the order.
    pub(super) origin: PathBuf,
    /// The top directory of the worktree.
    top: PathBuf,
    /// Its name, as a worktree and as a branch below `longhaul/`.
    name: String,
    branch: String,
    /// The directory in the worktree that corresponds to the one in the order.
    pub(super) dir: PathBuf,
}

/// Work in a worktree that exists nowhere else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WorktreeChanges {
    /// Changed or new files that are not committed.
    changed: usize,
    /// Files that git ignores.
    ignored: usize,
    /// Commits that no other branch has.
    commits: usize,
}

impl WorktreeChanges {
    /// Whether removing the worktree would lose nothing.
    fn is_none(self) -> bool {
        self == WorktreeChanges { changed: 0, ignored: 0, commits: 0 }
    }
}

/// Why a worktree cannot be created, looked at or removed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct WorktreeError(pub(super) String);

fn unknown() -> WorktreeError {
    WorktreeError("the repository does not know it any more".to_owned())
}

impl Worktree {
    /// The worktree of a task whose order names `origin`; creates it if there is none yet. `turn` allows one
    /// creation at a time: git's own locks do not cover all of it.
    pub(super) async fn open_or_create(
        origin: &Path,
        name: &str,
        turn: &Mutex<()>,
    ) -> Result<Worktree, WorktreeError> {
        let _turn = turn.lock().await;
        let (origin, name) = (origin.to_owned(), name.to_owned());
        blocking(move |given_up| {
            let repository = Repository::find(&origin, given_up)?;
            let worktree = Worktree::named(&repository, origin, name);
            if !worktree.is_there(&repository) {
                let made = worktree.make(&repository);
                made.map_err(|why| {
                    WorktreeError(format!("no git worktree could be created for the task: {why}"))
                })?;
            }
            // Git does not know the ordered directory if no file in it is tracked.
            let made = repository.dir.create_dir_all(worktree.inside().join(&repository.prefix));
            made.map_err(|error| {
                WorktreeError(format!("{} cannot be used: {error}", worktree.dir.display()))
            })?;
            Ok(worktree)
        })
        .await
    }

    /// The worktree that a task has in this repository, whether or not it exists.
    fn named(repository: &Repository, origin: PathBuf, name: String) -> Worktree {
        let top = repository.common.join(TREES).join(&name);
        let dir = top.join(&repository.prefix);
        Worktree { origin, top, branch: format!("longhaul/{name}"), name, dir }
    }

    /// Its path relative to the repository's git directory.
    fn inside(&self) -> PathBuf {
        Path::new(TREES).join(&self.name)
    }

    /// Whether it was created completely and not removed since: the index is written last.
    fn is_there(&self, repository: &Repository) -> bool {
        let admin = repository.admin_of(&self.top);
        let index = admin.map(|admin| repository.dir.symlink_metadata(admin.join("index")));
        matches!(index, Some(Ok(_))) && repository.dir.symlink_metadata(self.inside().join(".git")).is_ok()
    }

    fn make(&self, repository: &Repository) -> Result<(), WorktreeError> {
        let git = repository.git()?;
        let own = format!("refs/heads/{}", self.branch);
        let commit = match git.run(["rev-parse", "--verify", "--quiet", &own]) {
            // The worktree was removed, but the branch still has its commits.
            Ok(commit) => commit.trim().to_owned(),
            Err(_) => {
                let head = git.run(["rev-parse", "--verify", "--end-of-options", "HEAD^{commit}"]);
                let head = head.map_err(|_| WorktreeError("the repository has no commit yet".to_owned()))?;
                let made = repository.make_branch(&self.branch, head.trim());
                made.map_err(|error| {
                    WorktreeError(format!("the branch {} cannot be made: {error}", self.branch))
                })?;
                head.trim().to_owned()
            }
        };
        let dir = &repository.dir;
        let admin = repository.admin_of(&self.top).unwrap_or_else(|| {
            let free = |name: &PathBuf| dir.symlink_metadata(name).is_err();
            let names = (0..).map(|n| if n == 0 { self.name.clone() } else { format!("{}-{n}", self.name) });
            names.map(|name| Path::new("worktrees").join(name)).find(free).unwrap_or_default()
        });
        let prepared = || -> io::Result<_> {
            dir.create_dir_all(&admin)?;
            repository.write(&admin.join("HEAD"), format!("ref: {own}\n").as_bytes())?;
            repository.write(&admin.join("commondir"), b"../..\n")?;
            let dot = self.top.join(".git");
            repository.write(&admin.join("gitdir"), format!("{}\n", dot.display()).as_bytes())?;
            dir.create_dir_all(self.inside())?;
            if dir.symlink_metadata(self.inside())?.is_symlink() {
                return Err(io::Error::other(format!("{} is a symbolic link", self.top.display())));
            }
            let whole = repository.common.join(&admin);
            repository
                .write(&self.inside().join(".git"), format!("gitdir: {}\n", whole.display()).as_bytes())?;
            dir.open_dir(self.inside())
        };
        let top = prepared().map_err(|error| WorktreeError(error.to_string()))?;
        git.run_in_worktree(
            &top,
            &self.top,
            &["read-tree", "--reset", "-u", "--no-recurse-submodules", &commit],
        )?;
        git.give_index(repository, &admin.join("index")).map_err(|error| WorktreeError(error.to_string()))
    }

    /// Work in it that exists nowhere else.
    pub(super) async fn changes(&self) -> Result<WorktreeChanges, WorktreeError> {
        let worktree = self.clone();
        blocking(move |given_up| worktree.work_in(&Repository::find(&worktree.origin, given_up)?)).await
    }

    fn work_in(&self, repository: &Repository) -> Result<WorktreeChanges, WorktreeError> {
        let admin = repository.admin_of(&self.top).ok_or_else(unknown)?;
        let git = repository.git_of(&admin)?;
        let looked = || -> io::Result<_> {
            git.take_index(repository, &admin.join("index"))?;
            repository.dir.open_dir(self.inside())
        };
        let top = looked().map_err(|error| WorktreeError(error.to_string()))?;
        // Git would enter submodules and read their configuration.
        let status = ["status", "--porcelain", "--ignored", "--ignore-submodules=all"];
        let status = git.run_in_worktree(&top, &self.top, &status)?;
        let ignored = status.lines().filter(|line| line.starts_with("!!")).count();
        let mut changed = status.lines().count() - ignored;
        let staged = git.run_in_worktree(&top, &self.top, &["ls-files", "--stage", "-z"])?;
        let submodules = staged.split('\0').filter(|line| line.starts_with("160000 "));
        let paths = submodules.filter_map(|line| line.split_once('\t')).map(|(_, path)| path);
        // The content of a submodule may exist nowhere else: only an empty one has no work in it.
        let filled = |path: &&str| top.read_dir(path).is_ok_and(|mut files| files.next().is_some());
        changed += paths.filter(filled).count();

        let elsewhere = repository.git()?.run(["rev-parse", "HEAD"])?;
        let exclude = format!("--exclude={}", self.branch);
        let own = format!("refs/heads/{}", self.branch);
        let known = git.run(["rev-parse", "--verify", "--quiet", &own]).is_ok();
        let mut args = vec!["rev-list", "--count", "HEAD"];
        args.extend(known.then_some(own.as_str()));
        args.extend(["--not", elsewhere.trim(), &exclude, "--branches", "--remotes", "--tags"]);
        let commits = git.run(args)?;
        let commits = commits
            .trim()
            .parse()
            .map_err(|_| WorktreeError(format!("git counted '{}' commits", commits.trim())))?;
        Ok(WorktreeChanges { changed, ignored, commits })
    }

    /// Removes it if nothing is lost. If that is uncertain, it is kept.
    pub(super) async fn remove_if_unchanged(&self, turn: &Mutex<()>) {
        let _turn = turn.lock().await;
        let worktree = self.clone();
        let left = blocking(move |given_up| {
            let repository = Repository::find(&worktree.origin, given_up)?;
            match worktree.work_in(&repository)?.is_none() {
                true => worktree.remove(&repository),
                false => Ok(()),
            }
        });
        if let Err(why) = left.await {
            tracing::warn!(worktree = %self.top.display(), %why, "a worktree is kept: git does not say what is in it, or it cannot be removed");
        }
    }

    fn remove(&self, repository: &Repository) -> Result<(), WorktreeError> {
        let own = format!("refs/heads/{}", self.branch);
        let at = repository.git()?.run(["rev-parse", "--verify", "--quiet", &own]);
        let admin = repository.admin_of(&self.top).ok_or_else(unknown)?;
        if repository.dir.symlink_metadata(admin.join("locked")).is_ok() {
            return Ok(());
        }
        let dir = &repository.dir;
        dir.remove_dir_all(self.inside())
            .and_then(|()| dir.remove_dir_all(admin))
            .map_err(|error| WorktreeError(error.to_string()))?;
        // Only if it is empty.
        let _ = dir.remove_dir("worktrees");
        if let Ok(at) = at {
            // Only if it still points to the commit that was checked.
            let _ = repository.remove_branch(&self.branch, at.trim());
        }
        Ok(())
    }

    /// Whether it was not removed.
    pub(super) async fn is_kept(&self) -> bool {
        let dir = self.dir.clone();
        blocking(move |_| dir.try_exists().map_err(|error| WorktreeError(error.to_string())))
            .await
            .unwrap_or(false)
    }

    /// The note about it in the task's result.
    pub(super) fn describe(&self, work: &Result<WorktreeChanges, WorktreeError>, others: bool) -> String {
        let (top, branch) = (self.top.display(), &self.branch);
        match work {
            Ok(work) if work.is_none() && !others => {
                "[It had a git worktree of its own and changed nothing there; the worktree is removed.]"
                    .to_owned()
            }
            Ok(work) => format!("[Its git worktree: {top}; branch {branch}; {}.]", describe_changes(*work)),
            Err(why) => {
                format!("[Its git worktree: {top}; branch {branch}; git does not say what is in it: {why}.]")
            }
        }
    }
}

fn describe_changes(work: WorktreeChanges) -> String {
    let counted = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    let mut parts = Vec::new();
    if work.commits > 0 {
        parts.push(counted(work.commits, "commit"));
    }
    if work.changed > 0 {
        parts.push(format!("uncommitted changes in {}", counted(work.changed, "place")));
    }
    if work.ignored > 0 {
        parts.push(counted(work.ignored, "ignored path"));
    }
    if parts.is_empty() { "no changes".to_owned() } else { parts.join(", ") }
}

/// Runs blocking work on another thread. If this is dropped, a running git is killed.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce(&CancelFlag) -> Result<T, WorktreeError> + Send + 'static,
) -> Result<T, WorktreeError> {
    struct CancelGitOnDrop(CancelFlag);
    impl Drop for CancelGitOnDrop {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let given_up = CancelFlag::new(AtomicBool::new(false));
    let _guard = CancelGitOnDrop(given_up.clone());
    let done = tokio::task::spawn_blocking(move || work(&given_up)).await;
    done.unwrap_or_else(|error| Err(WorktreeError(error.to_string())))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    /// Git as a person uses it.
    async fn git<S: AsRef<std::ffi::OsStr>>(
        dir: &Path,
        args: impl IntoIterator<Item = S>,
    ) -> Result<String, String> {
        let mut command = std::process::Command::new("git");
        command.arg("-C").arg(dir).args(args).env_remove("GIT_DIR").env_remove("GIT_INDEX_FILE");
        let output = command.output().unwrap();
        match output.status.success() {
            true => Ok(String::from_utf8(output.stdout).unwrap()),
            false => Err(String::from_utf8(output.stderr).unwrap()),
        }
    }

    /// A repository with one commit, and a directory in it.
    struct Repo {
        dir: TempDir,
        turn: Mutex<()>,
    }

    impl Repo {
        async fn new() -> Self {
            let repo = Repo { dir: TempDir::new().unwrap(), turn: Mutex::new(()) };
            fs::create_dir(repo.path().join("sub")).unwrap();
            fs::write(repo.path().join("sub/a.txt"), "a").unwrap();
            fs::write(repo.path().join(".gitignore"), "*.log\n").unwrap();
            git(repo.path(), ["init", "-q", "-b", "main"]).await.unwrap();
            commit(repo.path(), "first").await;
            repo
        }

        fn path(&self) -> &Path {
            self.dir.path()
        }

        async fn settle_in(&self, dir: &str) -> Worktree {
            Worktree::open_or_create(&self.path().join(dir), "t-1", &self.turn).await.unwrap()
        }

        async fn leave(&self, worktree: &Worktree) -> String {
            let note = worktree.describe(&worktree.changes().await, false);
            worktree.remove_if_unchanged(&self.turn).await;
            note
        }

        async fn branches(&self) -> String {
            git(self.path(), ["branch", "--format=%(refname:short)"]).await.unwrap()
        }
    }

    async fn commit(dir: &Path, text: &str) {
        git(dir, ["add", "-A"]).await.unwrap();
        let who = ["-c", "user.name=a", "-c", "user.email=a@b"];
        git(dir, who.into_iter().chain(["commit", "-q", "--allow-empty", "-m", text])).await.unwrap();
    }

    #[tokio::test]
    async fn a_worktree_without_work_is_removed_with_its_branch() {
        let repo = Repo::new().await;
        let worktree = repo.settle_in("sub").await;
        assert!(worktree.dir.ends_with("t-1/sub") && worktree.dir.join("a.txt").is_file());
        assert!(repo.branches().await.contains("longhaul/t-1"));
        assert!(repo.leave(&worktree).await.contains("changed nothing"));
        assert!(!worktree.top.exists());
        assert_eq!(repo.branches().await, "main\n");
    }

    /// As after a stop or a crash in the middle of `git worktree add`.
    #[tokio::test]
    async fn one_that_git_had_not_finished_is_made_again() {
        let repo = Repo::new().await;
        let worktree = repo.settle_in("sub").await;
        fs::remove_file(worktree.dir.join("a.txt")).unwrap();
        let again = repo.settle_in("sub").await;
        assert!(!again.dir.join("a.txt").exists(), "what a task has done stays");
        // Its index is written last.
        fs::remove_file(repo.path().join(".git/worktrees/t-1/index")).unwrap();
        let again = repo.settle_in("sub").await;
        assert_eq!(fs::read_to_string(again.dir.join("a.txt")).unwrap(), "a");
    }

    #[tokio::test]
    async fn any_work_is_kept() {
        for (what, told) in [
            ("changed", "uncommitted changes in 1 place"),
            ("new", "uncommitted changes in 1 place"),
            ("ignored", "1 ignored path"),
            ("committed", "1 commit."),
        ] {
            let repo = Repo::new().await;
            let worktree = repo.settle_in("sub").await;
            match what {
                "changed" => fs::write(worktree.dir.join("a.txt"), "b").unwrap(),
                "new" => fs::write(worktree.dir.join("b.txt"), "b").unwrap(),
                "ignored" => fs::write(worktree.dir.join("b.log"), "b").unwrap(),
                _ => commit(&worktree.dir, "work").await,
            }
            let note = repo.leave(&worktree).await;
            assert!(note.contains(told) && note.contains("branch longhaul/t-1"), "{what}: {note}");
            assert!(worktree.dir.is_dir(), "{what}");
            // And found again, as it was.
            let again = repo.settle_in("sub").await;
            assert_eq!(again, worktree);
            assert!(!again.changes().await.unwrap().is_none(), "{what}");
        }
    }

    #[tokio::test]
    async fn what_was_merged_is_no_work_any_more() {
        let repo = Repo::new().await;
        let worktree = repo.settle_in("").await;
        commit(&worktree.dir, "work").await;
        git(repo.path(), ["merge", "-q", "--ff-only", "longhaul/t-1"]).await.unwrap();
        repo.leave(&worktree).await;
        assert!(!worktree.top.exists());
    }

    #[tokio::test]
    async fn commits_on_a_head_that_was_detached_are_kept() {
        let repo = Repo::new().await;
        git(repo.path(), ["checkout", "-q", "--detach"]).await.unwrap();
        let worktree = repo.settle_in("").await;
        git(&worktree.dir, ["checkout", "-q", "--detach"]).await.unwrap();
        assert!(worktree.changes().await.unwrap().is_none());
        commit(&worktree.dir, "work").await;
        repo.leave(&worktree).await;
        assert!(worktree.top.exists());
    }

    #[tokio::test]
    async fn a_branch_whose_worktree_somebody_deleted_is_taken_up_again() {
        let repo = Repo::new().await;
        let worktree = repo.settle_in("").await;
        commit(&worktree.dir, "work").await;
        fs::remove_dir_all(&worktree.top).unwrap();
        let again = repo.settle_in("").await;
        assert_eq!(again.changes().await.unwrap().commits, 1);
    }

    #[tokio::test]
    async fn no_hook_runs_and_many_at_once_do_not_meet() {
        use std::os::unix::fs::PermissionsExt as _;
        let repo = Repo::new().await;
        let hook = repo.path().join(".git/hooks/post-checkout");
        fs::create_dir_all(hook.parent().unwrap()).unwrap();
        fs::write(&hook, format!("#!/bin/sh\ntouch {}/ran\n", repo.path().display())).unwrap();
        fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
        let names: Vec<String> = (0..6).map(|i| format!("t-{i}")).collect();
        let all = names.iter().map(|name| Worktree::open_or_create(repo.path(), name, &repo.turn));
        for worktree in futures::future::join_all(all).await {
            assert!(worktree.unwrap().dir.join("sub/a.txt").is_file());
        }
        assert!(!repo.path().join("ran").exists());
    }

    #[tokio::test]
    async fn where_there_is_no_repository_that_is_said() {
        let dir = TempDir::new().unwrap();
        let why = Worktree::open_or_create(dir.path(), "t-1", &Mutex::new(())).await.unwrap_err().to_string();
        assert!(why.contains("isolation: worktree needs a git repository, and"), "{why}");
        git(dir.path(), ["init", "-q"]).await.unwrap();
        let why = Worktree::open_or_create(dir.path(), "t-1", &Mutex::new(())).await.unwrap_err().to_string();
        assert!(why.contains("no git worktree could be created"), "a repository without a commit: {why}");
    }
}

#[cfg(test)]
mod attack_tests;
