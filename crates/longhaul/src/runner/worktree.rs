//! A git worktree and a branch of a task's own, so that writers do not meet.
//!
//! It is made when the task is first run, and found again by its name, which derives from the task's key. What is in it is
//! the task's work: it is only removed when git says that there is none.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::sync::Mutex;

/// How long git may take: a large working tree is checked out file by file.
const PATIENCE: Duration = Duration::from_secs(600);
/// What of the environment would lead git elsewhere.
const ASTRAY: [&str; 16] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_INDEX_VERSION",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
    "GIT_CEILING_DIRECTORIES",
    "GIT_DISCOVERY_ACROSS_FILESYSTEM",
    "GIT_CONFIG",
    "GIT_CONFIG_COUNT",
    "GIT_CONFIG_PARAMETERS",
    "GIT_EXTERNAL_DIFF",
    "GIT_TEMPLATE_DIR",
];

/// Where a task works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Worktree {
    /// The directory that was ordered.
    pub(super) origin: PathBuf,
    /// The worktree's top.
    top: PathBuf,
    branch: String,
    /// What the ordered directory is in it.
    pub(super) dir: PathBuf,
}

/// What is in a worktree that is nowhere else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Work {
    /// Files that are changed or new, and not committed.
    changed: usize,
    /// Files that are there, though git was told to ignore such.
    ignored: usize,
    /// Commits that no other branch has.
    commits: usize,
}

impl Work {
    /// Whether nothing would be lost with the worktree.
    fn is_none(self) -> bool {
        self == Work { changed: 0, ignored: 0, commits: 0 }
    }
}

impl Worktree {
    /// The worktree of a task that was ordered to work in `origin`: made now, if there is none yet. One at a time, which
    /// is what `turn` is for: git's own locks do not cover all of it.
    pub(super) async fn settle_in(origin: &Path, name: &str, turn: &Mutex<()>) -> Result<Worktree, String> {
        let place = git(origin, ["rev-parse", "--path-format=absolute", "--git-common-dir", "--show-prefix"]);
        let place = place.await.map_err(|why| {
            format!("isolation: worktree needs a git repository, and {} is in none ({why})", origin.display())
        })?;
        let mut lines = place.lines();
        let common = PathBuf::from(lines.next().unwrap_or_default());
        let prefix = lines.next().unwrap_or_default();
        let top = common.join("longhaul").join(name);
        let branch = format!("longhaul/{name}");
        let dir = if prefix.is_empty() { top.clone() } else { top.join(prefix) };
        let worktree = Worktree { origin: origin.to_owned(), top, branch, dir };

        let _turn = turn.lock().await;
        worktree.clear_unfinished(&common, name).await;
        if !worktree.is_there().await {
            let made = worktree.make().await;
            made.map_err(|why| format!("no git worktree could be made for the task: {why}"))?;
        }
        // It may be one that git knows nothing of.
        let dir = worktree.dir.clone();
        let made = blocking(move || std::fs::create_dir_all(dir)).await;
        made.map_err(|error| format!("{} cannot be used: {error}", worktree.dir.display()))?;
        Ok(worktree)
    }

    /// Takes away one that git was still making when it was killed: files are missing in it, and nobody has worked there. Git
    /// says so with a lock of its own.
    async fn clear_unfinished(&self, common: &Path, name: &str) {
        let lock = common.join("worktrees").join(name).join("locked");
        let top = self.top.clone();
        let cleared = blocking(move || {
            if std::fs::read_to_string(&lock)?.trim() != "initializing" {
                return Err(io::Error::other("it is whole"));
            }
            std::fs::remove_dir_all(top)?;
            std::fs::remove_file(lock)
        });
        if cleared.await.is_ok() {
            let _ = git(&self.origin, ["worktree", "prune"]).await;
        }
    }

    async fn is_there(&self) -> bool {
        let top = git(&self.top, ["rev-parse", "--show-toplevel"]).await;
        let real = self.top.clone();
        let real = blocking(move || real.canonicalize()).await;
        matches!((top, real), (Ok(top), Ok(real)) if Path::new(top.trim()) == real)
    }

    async fn make(&self) -> Result<(), String> {
        let top = self.top.as_os_str();
        let known = ["rev-parse", "--verify", "--quiet", &format!("refs/heads/{}", self.branch)];
        let made = match git(&self.origin, known).await {
            // The worktree was removed by somebody, and the branch has what was done in it.
            Ok(_) => {
                let add = ["worktree", "add", "--force"].map(OsStr::new);
                git(&self.origin, add.into_iter().chain([top, self.branch.as_ref()])).await
            }
            Err(_) => {
                let add = ["worktree", "add", "--no-track", "-b", &self.branch].map(OsStr::new);
                git(&self.origin, add.into_iter().chain([top, "HEAD".as_ref()])).await
            }
        };
        made.map(drop)
    }

    /// What is in it that is nowhere else.
    pub(super) async fn work(&self) -> Result<Work, String> {
        let status = git(&self.top, ["status", "--porcelain", "--ignored"]).await?;
        let ignored = status.lines().filter(|line| line.starts_with("!!")).count();
        let changed = status.lines().count() - ignored;
        let elsewhere = git(&self.origin, ["rev-parse", "HEAD"]).await?;
        let exclude = format!("--exclude={}", self.branch);
        let own = format!("refs/heads/{}", self.branch);
        let known = git(&self.origin, ["rev-parse", "--verify", "--quiet", &own]).await.is_ok();
        let mut args = vec!["rev-list", "--count", "HEAD"];
        args.extend(known.then_some(own.as_str()));
        args.extend(["--not", elsewhere.trim(), &exclude, "--branches", "--remotes", "--tags"]);
        let commits = git(&self.top, args).await?;
        let commits =
            commits.trim().parse().map_err(|_| format!("git counted '{}' commits", commits.trim()))?;
        Ok(Work { changed, ignored, commits })
    }

    /// Removes it, if nothing is lost with it. What cannot be told is kept.
    pub(super) async fn leave(&self, turn: &Mutex<()>) {
        let _turn = turn.lock().await;
        match self.work().await {
            Ok(work) if work.is_none() => {}
            Ok(_) => return,
            Err(why) => {
                tracing::warn!(worktree = %self.top.display(), why, "a worktree is kept, because git does not answer");
                return;
            }
        }
        let own = format!("refs/heads/{}", self.branch);
        let at = git(&self.origin, ["rev-parse", "--verify", "--quiet", &own]).await;
        let remove = ["worktree", "remove"].map(OsStr::new);
        // Without force: git looks once more whether something would be lost.
        if let Err(why) = git(&self.origin, remove.into_iter().chain([self.top.as_os_str()])).await {
            tracing::warn!(worktree = %self.top.display(), why, "a worktree without changes could not be removed");
            return;
        }
        if let Ok(at) = at {
            // Only as long as it is where it was when nothing was lost with it.
            let _ = git(&self.origin, ["update-ref", "-d", &own, at.trim()]).await;
        }
    }

    /// Whether it was not removed.
    pub(super) async fn is_kept(&self) -> bool {
        let dir = self.dir.clone();
        blocking(move || dir.try_exists()).await.unwrap_or(false)
    }

    /// What the result of the task says of it.
    pub(super) fn note(&self, work: &Result<Work, String>, others: bool) -> String {
        let (top, branch) = (self.top.display(), &self.branch);
        match work {
            Ok(work) if work.is_none() && !others => {
                "[It had a git worktree of its own and changed nothing there; the worktree is removed.]"
                    .to_owned()
            }
            Ok(work) => format!("[Its git worktree: {top}; branch {branch}; {}.]", told(*work)),
            Err(why) => {
                format!("[Its git worktree: {top}; branch {branch}; git does not say what is in it: {why}.]")
            }
        }
    }
}

fn told(work: Work) -> String {
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

async fn blocking<T: Send + 'static>(act: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(act).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// Asks git, and gives back what it wrote, or what it complained of. No hook runs.
async fn git<S: AsRef<OsStr>>(dir: &Path, args: impl IntoIterator<Item = S>) -> Result<String, String> {
    let mut command = Command::new("git");
    command
        .args(["-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false"])
        .arg("-C")
        .arg(dir)
        .args(args);
    ASTRAY.iter().for_each(|name| _ = command.env_remove(name));
    command.env("GIT_TERMINAL_PROMPT", "0").env("GIT_OPTIONAL_LOCKS", "0").env("LC_ALL", "C");
    command.stdin(Stdio::null()).kill_on_drop(true);
    // With everything that it starts: when the task is stopped, nothing of it goes on.
    #[cfg(unix)]
    let output = crate::process::output_of(command);
    #[cfg(not(unix))]
    let output = command.output();
    match tokio::time::timeout(PATIENCE, output).await {
        Ok(Ok(output)) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        Ok(Ok(output)) => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(said.trim().trim_start_matches("fatal: ").to_owned())
        }
        Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => Err("git is not installed".to_owned()),
        Ok(Err(error)) => Err(format!("git cannot be started: {error}")),
        Err(_) => Err(format!("git did not answer within {PATIENCE:?}")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

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
            Worktree::settle_in(&self.path().join(dir), "t-1", &self.turn).await.unwrap()
        }

        async fn leave(&self, worktree: &Worktree) -> String {
            let note = worktree.note(&worktree.work().await, false);
            worktree.leave(&self.turn).await;
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
        fs::write(repo.path().join(".git/worktrees/t-1/locked"), "initializing").unwrap();
        let again = repo.settle_in("sub").await;
        assert_eq!(fs::read_to_string(again.dir.join("a.txt")).unwrap(), "a");
        assert!(!repo.path().join(".git/worktrees/t-1/locked").exists());
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
            assert!(!again.work().await.unwrap().is_none(), "{what}");
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
        assert!(worktree.work().await.unwrap().is_none());
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
        assert_eq!(again.work().await.unwrap().commits, 1);
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn no_hook_runs_and_many_at_once_do_not_meet() {
        use std::os::unix::fs::PermissionsExt as _;
        let repo = Repo::new().await;
        let hook = repo.path().join(".git/hooks/post-checkout");
        fs::create_dir_all(hook.parent().unwrap()).unwrap();
        fs::write(&hook, format!("#!/bin/sh\ntouch {}/ran\n", repo.path().display())).unwrap();
        fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
        let names: Vec<String> = (0..6).map(|i| format!("t-{i}")).collect();
        let all = names.iter().map(|name| Worktree::settle_in(repo.path(), name, &repo.turn));
        for worktree in futures::future::join_all(all).await {
            assert!(worktree.unwrap().dir.join("sub/a.txt").is_file());
        }
        assert!(!repo.path().join("ran").exists());
    }

    #[tokio::test]
    async fn where_there_is_no_repository_that_is_said() {
        let dir = TempDir::new().unwrap();
        let why = Worktree::settle_in(dir.path(), "t-1", &Mutex::new(())).await.unwrap_err();
        assert!(why.contains("isolation: worktree needs a git repository, and"), "{why}");
        git(dir.path(), ["init", "-q"]).await.unwrap();
        let why = Worktree::settle_in(dir.path(), "t-1", &Mutex::new(())).await.unwrap_err();
        assert!(why.contains("no git worktree could be made"), "a repository without a commit: {why}");
    }
}
