//! What a reader gets to see of a task's work.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use tempfile::TempDir;
use tokio::sync::Mutex;

use super::*;
use crate::transcript::LineKind;

fn git(dir: &Path, args: &[&str]) -> String {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=a", "-c", "user.email=a@b"]).args(args).current_dir(dir);
    let output = command.env_remove("GIT_DIR").env_remove("GIT_INDEX_FILE").output().unwrap();
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

struct Repo(TempDir);

impl Repo {
    fn new() -> Repo {
        let repo = Repo(TempDir::new().unwrap());
        fs::create_dir(repo.path().join("sub")).unwrap();
        fs::write(repo.path().join("sub/a.txt"), "one\ntwo\nthree\nfour\nfive\nsix\n").unwrap();
        fs::write(repo.path().join("gone.txt"), "gone\n").unwrap();
        fs::write(repo.path().join("blob.bin"), b"a\0b").unwrap();
        fs::write(repo.path().join(".gitignore"), "*.log\n").unwrap();
        git(repo.path(), &["init", "-q", "-b", "main"]);
        git(repo.path(), &["add", "-A"]);
        git(repo.path(), &["commit", "-q", "-m", "first"]);
        repo
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    async fn settle(&self) -> Worktree {
        Worktree::open_or_create(&self.path().join("sub"), "t-1", &Mutex::new(())).await.unwrap()
    }

    async fn diff(&self) -> Option<WorktreeDiff> {
        read_worktree_diff(self.path().join("sub"), "t-1".to_owned()).await.unwrap()
    }
}

fn about(diff: &WorktreeDiff) -> Vec<(&str, FileDiffKind, Option<u64>, Option<u64>)> {
    diff.files.iter().map(|file| (&*file.path, file.kind, file.added, file.removed)).collect()
}

fn lines(file: &FileDiff, kind: LineKind) -> Vec<&str> {
    file.lines.iter().filter(|(one, _)| *one == kind).map(|(_, text)| &**text).collect()
}

#[tokio::test]
async fn everything_that_a_task_has_done_is_there_committed_or_not() {
    let repo = Repo::new();
    assert_eq!(repo.diff().await, None, "no worktree, no branch");
    let worktree = repo.settle().await;
    let fresh = repo.diff().await.unwrap();
    assert!(fresh.files.is_empty() && fresh.commits.is_empty() && !fresh.is_partial, "{fresh:?}");
    assert_eq!(fresh.place.path.as_deref(), Some(&*worktree.top));

    let top = &worktree.top;
    git(top, &["mv", "sub/a.txt", "sub/moved.txt"]);
    git(top, &["commit", "-q", "-m", "move it"]);
    fs::write(top.join("sub/moved.txt"), "one\ntwo\nthree\nfour\nfive\nSIX\n").unwrap();
    fs::remove_file(top.join("gone.txt")).unwrap();
    fs::write(top.join("blob.bin"), b"a\0c").unwrap();
    fs::write(top.join("new file.txt"), "<b>new</b>\n").unwrap();
    fs::write(top.join("kept.log"), "committed although it is ignored\n").unwrap();
    git(top, &["add", "-f", "kept.log"]);
    git(top, &["commit", "-q", "-m", "keep the log"]);
    fs::write(top.join("other.log"), "ignored\n").unwrap();
    symlink("/etc/passwd", top.join("link")).unwrap();
    let before = git(top, &["status", "--porcelain=v2"]);

    let diff = repo.diff().await.unwrap();
    let mut found = about(&diff);
    found.sort_by_key(|file| file.0);
    assert_eq!(
        found,
        [
            ("blob.bin", FileDiffKind::Changed, None, None),
            ("gone.txt", FileDiffKind::Removed, Some(0), Some(1)),
            ("kept.log", FileDiffKind::Added, Some(1), Some(0)),
            ("link", FileDiffKind::Added, Some(1), Some(0)),
            ("new file.txt", FileDiffKind::Added, Some(1), Some(0)),
            ("sub/moved.txt", FileDiffKind::Renamed, Some(1), Some(1)),
        ]
    );
    let file = |path: &str| diff.files.iter().find(|file| file.path == path).unwrap();
    assert!(file("blob.bin").is_binary() && file("blob.bin").lines.is_empty());
    assert_eq!(lines(file("link"), LineKind::Added), ["/etc/passwd"], "never what a link leads to");
    assert_eq!(lines(file("new file.txt"), LineKind::Added), ["<b>new</b>"]);
    let moved = file("sub/moved.txt");
    assert_eq!(moved.old_path.as_deref(), Some("sub/a.txt"));
    assert_eq!((lines(moved, LineKind::Removed), lines(moved, LineKind::Added)), (vec!["six"], vec!["SIX"]));
    let subjects: Vec<&str> = diff.commits.iter().map(|commit| &*commit.subject).collect();
    assert_eq!(subjects, ["keep the log", "move it"]);
    assert_eq!(diff.base, git(repo.path(), &["rev-parse", "HEAD"]).trim());
    assert_eq!(git(top, &["status", "--porcelain=v2"]), before, "looking changes nothing");

    // What happens in the repository meanwhile is not the task's work.
    fs::write(repo.path().join("meanwhile.txt"), "x\n").unwrap();
    git(repo.path(), &["add", "-A"]);
    git(repo.path(), &["commit", "-q", "-m", "meanwhile"]);
    assert_eq!(repo.diff().await.unwrap().files, diff.files);
}

#[tokio::test]
async fn of_a_worktree_that_is_gone_the_branch_is_shown() {
    for packed in [false, true] {
        let repo = Repo::new();
        let worktree = repo.settle().await;
        fs::write(worktree.dir.join("a.txt"), "one\n").unwrap();
        git(&worktree.top, &["commit", "-q", "-a", "-m", "less"]);
        fs::write(worktree.dir.join("lost.txt"), "not committed\n").unwrap();
        fs::remove_dir_all(&worktree.top).unwrap();
        if packed {
            git(repo.path(), &["worktree", "prune"]);
            git(repo.path(), &["pack-refs", "--all"]);
        }
        let diff = repo.diff().await.unwrap();
        assert_eq!((diff.place.path.as_ref(), &*diff.place.branch), (None, "longhaul/t-1"));
        assert_eq!(about(&diff), [("sub/a.txt", FileDiffKind::Changed, Some(0), Some(5))]);
        let place = find_worktree(repo.path().join("sub"), "t-1".to_owned()).await;
        assert_eq!(place, Some(diff.place));
        assert_eq!(find_worktree(repo.path().to_owned(), "t-2".to_owned()).await, None);
        git(repo.path(), &["merge", "-q", "longhaul/t-1"]);
        assert!(repo.diff().await.unwrap().files.is_empty(), "what is merged is no difference");
    }
}

/// A task that works in the worktree of its parent can have one of its own.
#[tokio::test]
async fn a_task_below_is_found_when_its_parents_worktree_is_gone() {
    let repo = Repo::new();
    let parent = repo.settle().await;
    let child = Worktree::open_or_create(&parent.dir, "t-2", &Mutex::new(())).await.unwrap();
    fs::write(child.dir.join("a.txt"), "child\n").unwrap();
    let read = || read_worktree_diff(parent.dir.clone(), "t-2".to_owned());
    let diff = read().await.unwrap().unwrap();
    assert_eq!(about(&diff), [("sub/a.txt", FileDiffKind::Changed, Some(1), Some(6))]);
    fs::remove_dir_all(&parent.top).unwrap();
    assert_eq!(read().await.unwrap().unwrap().files, diff.files);
}

#[tokio::test]
async fn a_task_cannot_hide_what_it_has_changed() {
    let repo = Repo::new();
    let worktree = repo.settle().await;
    let top = &worktree.top;
    fs::write(top.join("sub/a.txt"), "changed\n").unwrap();
    fs::write(top.join("gone.txt"), "changed\n").unwrap();
    git(top, &["update-index", "--assume-unchanged", "sub/a.txt"]);
    git(top, &["update-index", "--skip-worktree", "gone.txt"]);
    fs::write(top.join(".gitattributes"), "* -diff -text binary\n").unwrap();
    assert_eq!(git(top, &["diff", "--name-only"]), "", "git itself looks away");
    let index = repo.path().join(".git/worktrees/t-1/index");
    for spoilt in [false, true] {
        if spoilt {
            fs::write(&index, "no index").unwrap();
        }
        let diff = repo.diff().await.unwrap();
        assert_eq!(
            about(&diff),
            [
                (".gitattributes", FileDiffKind::Added, Some(1), Some(0)),
                ("gone.txt", FileDiffKind::Changed, Some(1), Some(1)),
                ("sub/a.txt", FileDiffKind::Changed, Some(1), Some(6)),
            ]
        );
    }
}

#[tokio::test]
async fn large_and_strange_files_are_named_and_not_read() {
    let repo = Repo::new();
    let worktree = repo.settle().await;
    let top = &worktree.top;
    fs::write(top.join("large.txt"), "line\n".repeat(600_000)).unwrap();
    fs::write(top.join("long.txt"), "line\n".repeat(50_000)).unwrap();
    assert!(Command::new("mkfifo").arg(top.join("pipe")).status().unwrap().success());
    fs::create_dir(top.join("nested")).unwrap();
    git(&top.join("nested"), &["init", "-q"]);
    fs::write(top.join("nested/x"), "x").unwrap();
    let diff = repo.diff().await.unwrap();
    let file =
        |path: &str| diff.files.iter().find(|file| file.path == path).unwrap_or_else(|| panic!("{diff:?}"));
    assert!(file("large.txt").is_binary() && file("large.txt").lines.is_empty());
    let long = file("long.txt");
    assert_eq!((long.added, long.is_cut, long.lines.len()), (Some(50_000), true, 2_000));
    assert_eq!(file("nested/").kind, FileDiffKind::Repository);
    assert!(diff.files.iter().all(|file| file.path != "pipe"));
}

#[tokio::test]
async fn very_many_new_files_are_cut_and_that_is_said() {
    let repo = Repo::new();
    let worktree = repo.settle().await;
    (0..NEW_FILES + 10).for_each(|n| fs::write(worktree.top.join(format!("n{n}")), "x\n").unwrap());
    let diff = repo.diff().await.unwrap();
    assert!(diff.is_partial);
    assert_eq!(diff.files.len(), 1_000);
}

#[tokio::test]
async fn a_branch_without_a_common_commit_is_said() {
    let repo = Repo::new();
    let worktree = repo.settle().await;
    git(&worktree.top, &["checkout", "-q", "--orphan", "alone"]);
    git(&worktree.top, &["commit", "-q", "-m", "alone"]);
    let why = read_worktree_diff(repo.path().to_owned(), "t-1".to_owned()).await.unwrap_err();
    assert!(why.to_string().contains("no commit in common"), "{why}");
}
