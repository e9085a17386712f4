//! A repository that tries everything that could make git run a program. Each attempt would leave a marker.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use tokio::sync::Mutex;

use super::*;

/// A repository with a submodule's worth of everything, and a place for markers beside it.
struct Trap {
    outer: TempDir,
    turn: Mutex<()>,
}

fn git(dir: &Path, args: &[&str]) {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=a", "-c", "user.email=a@b", "-c", "core.hooksPath=/dev/null"]).args(args);
    let output = command.current_dir(dir).env_remove("GIT_DIR").output().unwrap();
    assert!(output.status.success(), "{args:?}: {output:?}");
}

impl Trap {
    fn new() -> Trap {
        let trap = Trap { outer: TempDir::new().unwrap(), turn: Mutex::new(()) };
        fs::create_dir_all(trap.repo().join("sub")).unwrap();
        fs::create_dir(trap.markers()).unwrap();
        fs::write(trap.repo().join("sub/a.txt"), "a\n").unwrap();
        fs::write(trap.repo().join(".gitattributes"), ATTRIBUTES).unwrap();
        git(&trap.repo(), &["init", "-q", "-b", "main"]);
        git(&trap.repo(), &["add", "-A"]);
        git(&trap.repo(), &["commit", "-q", "-m", "first"]);
        trap
    }

    fn repo(&self) -> PathBuf {
        self.outer.path().canonicalize().unwrap().join("repo")
    }

    fn markers(&self) -> PathBuf {
        self.outer.path().canonicalize().unwrap().join("markers")
    }

    /// A program that leaves a marker with this name.
    fn mark(&self, name: &str) -> String {
        let script = self.outer.path().join(format!("mark-{name}"));
        // The file system monitor reports that everything has changed, so that git checks further.
        let then = if name.ends_with("fsmonitor") { "printf 'token\\0/\\0'" } else { "cat" };
        let text = format!("#!/bin/sh\ntouch {}/{name}\n{then}\n", self.markers().display());
        fs::write(&script, text).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        script.display().to_string()
    }

    /// A configuration in which everything that can name a program does.
    fn config(&self, place: &str) -> String {
        let mark = |what: &str| self.mark(&format!("{place}-{what}"));
        format!(
            "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tfsmonitor = {}\n\tsshCommand = {}\n\
             \teditor = {}\n\tpager = {}\n\tgitProxy = {}\n\taskPass = {}\n\thooksPath = {}\n\
             [filter \"evil\"]\n\tclean = {}\n\tsmudge = {}\n\trequired = true\n\
             [filter \"evil2\"]\n\tprocess = {}\n\
             [diff]\n\texternal = {}\n[diff \"evil\"]\n\tcommand = {}\n\ttextconv = {}\n\
             [merge \"evil\"]\n\tdriver = {}\n[credential]\n\thelper = {}\n[gpg]\n\tprogram = {}\n\
             [alias]\n\tstatus = !{}\n\trev-parse = !{}\n\tread-tree = !{}\n\
             [remote \"origin\"]\n\turl = ext::{}\n\tpromisor = true\n\tpartialclonefilter = blob:none\n\
             \tuploadpack = {}\n[protocol]\n\tallow = always\n[submodule]\n\trecurse = true\n\
             [status]\n\tsubmoduleSummary = true\n",
            mark("fsmonitor"),
            mark("ssh"),
            mark("editor"),
            mark("pager"),
            mark("proxy"),
            mark("askpass"),
            self.hooks(place).display(),
            mark("clean"),
            mark("smudge"),
            mark("process"),
            mark("external-diff"),
            mark("diff"),
            mark("textconv"),
            mark("merge"),
            mark("credential"),
            mark("gpg"),
            mark("alias-status"),
            mark("alias-rev-parse"),
            mark("alias-read-tree"),
            mark("promisor"),
            mark("uploadpack"),
        )
    }

    /// A directory of hooks that all leave a marker.
    fn hooks(&self, place: &str) -> PathBuf {
        let dir = self.outer.path().join(format!("hooks-{place}"));
        fs::create_dir_all(&dir).unwrap();
        for name in [
            "post-checkout",
            "post-index-change",
            "reference-transaction",
            "pre-commit",
            "fsmonitor-watchman",
        ] {
            fs::copy(self.mark(&format!("{place}-{name}")), dir.join(name)).unwrap();
        }
        dir
    }

    /// A whole git directory that does everything that a configuration can.
    fn evil_dir(&self, at: &Path, place: &str) {
        fs::create_dir_all(at).unwrap();
        git(at, &["init", "-q", "--bare", "-b", "main", "."]);
        fs::write(at.join("config"), self.config(place)).unwrap();
        let _ = fs::remove_dir_all(at.join("hooks"));
        fs::rename(self.hooks(place), at.join("hooks")).unwrap();
        fs::create_dir_all(at.join("info")).unwrap();
        fs::write(at.join("info/attributes"), ATTRIBUTES).unwrap();
    }

    /// A nested repository whose git directory is evil, with a commit.
    fn nested(&self, dir: &Path, place: &str) {
        fs::create_dir_all(dir).unwrap();
        fs::write(dir.join("n.txt"), "n").unwrap();
        git(dir, &["init", "-q", "-b", "main"]);
        git(dir, &["add", "-A"]);
        git(dir, &["commit", "-q", "-m", "nested"]);
        let config = format!("{}[core]\n\tworktree = {}\n", self.config(place), dir.display());
        fs::write(dir.join(".git/config"), config).unwrap();
        fs::write(dir.join(".gitattributes"), ATTRIBUTES).unwrap();
        fs::write(dir.join("n.txt"), "m").unwrap();
    }

    async fn settle(&self, name: &str) -> Result<Worktree, String> {
        let opened = Worktree::open_or_create(&self.repo().join("sub"), name, &self.turn).await;
        opened.map_err(|why| why.to_string())
    }

    fn marks(&self) -> Vec<String> {
        let names = fs::read_dir(self.markers()).unwrap();
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[track_caller]
    fn nothing_ran(&self, what: &str) {
        assert_eq!(self.marks(), Vec::<String>::new(), "{what}");
    }
}

const ATTRIBUTES: &str = "*.txt filter=evil diff=evil merge=evil\nb.* filter=evil2\n* diff=evil\n";

#[tokio::test]
async fn the_trap_works() {
    let trap = Trap::new();
    fs::write(trap.repo().join(".git/config"), trap.config("own")).unwrap();
    // The same length as before, so that git has to read it.
    fs::write(trap.repo().join("sub/a.txt"), "b\n").unwrap();
    let _ = Command::new("git").arg("status").current_dir(trap.repo()).output().unwrap();
    let marks = trap.marks();
    assert!(marks.iter().any(|mark| mark == "own-fsmonitor"), "{marks:?}");
    assert!(marks.iter().any(|mark| mark == "own-clean"), "{marks:?}");
}

#[tokio::test]
async fn nothing_that_the_repository_configures_runs() {
    let trap = Trap::new();
    let dot = trap.repo().join(".git");
    let included = trap.outer.path().join("included");
    fs::write(&included, trap.config("included")).unwrap();
    let include = format!(
        "{}[include]\n\tpath = {included}\n[includeIf \"gitdir:**\"]\n\tpath = {included}\n[extensions]\n\
         \tworktreeConfig = true\n",
        trap.config("own"),
        included = included.display()
    );
    fs::write(dot.join("config"), include).unwrap();
    fs::write(dot.join("config.worktree"), trap.config("worktree-config")).unwrap();
    fs::create_dir_all(dot.join("info")).unwrap();
    fs::write(dot.join("info/attributes"), ATTRIBUTES).unwrap();
    for (name, path) in trap.hooks("hooks").read_dir().unwrap().map(|entry| {
        let entry = entry.unwrap();
        (entry.file_name(), entry.path())
    }) {
        fs::create_dir_all(dot.join("hooks")).unwrap();
        fs::copy(path, dot.join("hooks").join(name)).unwrap();
    }
    let worktree = trap.settle("t-1").await.unwrap();
    trap.nothing_ran("making it");
    assert_eq!(fs::read_to_string(worktree.dir.join("a.txt")).unwrap(), "a\n");
    worktree.changes().await.unwrap();
    // As its own git directory would have it too.
    let admin = dot.join("worktrees/t-1");
    fs::write(admin.join("config.worktree"), trap.config("admin-config")).unwrap();
    fs::write(worktree.dir.join("a.txt"), "b\n").unwrap();
    fs::write(worktree.dir.join("b.bin"), "new").unwrap();
    trap.nested(&worktree.dir.join("nested"), "nested");
    assert_eq!(worktree.changes().await.unwrap(), WorktreeChanges { changed: 3, ignored: 0, commits: 0 });
    trap.nothing_ran("looking at it");
    let diff =
        read_diff::read_worktree_diff(trap.repo().join("sub"), "t-1".to_owned()).await.unwrap().unwrap();
    trap.nothing_ran("reading the difference");
    let mut paths: Vec<&str> = diff.files.iter().map(|file| &*file.path).collect();
    paths.sort_unstable();
    assert_eq!(paths, ["sub/a.txt", "sub/b.bin", "sub/nested/"]);
    worktree.remove_if_unchanged(&trap.turn).await;
    trap.nothing_ran("leaving it");
    assert!(worktree.dir.exists(), "it has work in it");
    // And when only the branch is left.
    git(&trap.repo(), &["-c", "core.fsmonitor=false", "branch", "-q", "longhaul/t-2", "HEAD"]);
    fs::read_dir(trap.markers()).unwrap().for_each(|mark| fs::remove_file(mark.unwrap().path()).unwrap());
    assert!(read_diff::read_worktree_diff(trap.repo(), "t-2".to_owned()).await.unwrap().is_some());
    trap.nothing_ran("reading a branch");
}

#[tokio::test]
async fn nested_repositories_are_not_gone_into_and_count_as_work() {
    let trap = Trap::new();
    let worktree = trap.settle("t-1").await.unwrap();
    // As a submodule that git knows: it would look for changes there.
    let nested = worktree.dir.join("nested");
    trap.nested(&nested, "nested");
    fs::rename(nested.join(".git"), trap.outer.path().join("nested.git")).unwrap();
    fs::write(nested.join(".git"), format!("gitdir: {}/nested.git", trap.outer.path().display())).unwrap();
    let head = fs::read_to_string(trap.outer.path().join("nested.git/refs/heads/main")).unwrap();
    let info = format!("160000,{},sub/nested", head.trim());
    git(&worktree.top, &["update-index", "--add", "--cacheinfo", &info]);
    trap.evil_dir(&worktree.dir.join("bare"), "bare");
    let work = worktree.changes().await.unwrap();
    trap.nothing_ran("looking at it");
    assert!(work.changed >= 2, "{work:?}");
    // Once committed, git reports no change, but there may be work in it.
    git(&worktree.top, &["-c", "core.fsmonitor=false", "commit", "-q", "-m", "with a submodule"]);
    fs::remove_dir_all(worktree.dir.join("bare")).unwrap();
    git(&trap.repo(), &["merge", "-q", "longhaul/t-1"]);
    let work = worktree.changes().await.unwrap();
    assert_eq!((work.changed, work.commits), (1, 0));
    worktree.remove_if_unchanged(&trap.turn).await;
    assert!(nested.join("n.txt").exists(), "what is in a submodule is kept");
    trap.nothing_ran("leaving it");
}

#[tokio::test]
async fn a_git_directory_that_leads_elsewhere_is_refused() {
    type Case = (&'static str, fn(&Trap));
    let cases: [Case; 7] = [
        ("commondir", |trap| {
            trap.evil_dir(&trap.repo().join("evil"), "commondir");
            fs::write(trap.repo().join(".git/commondir"), "../evil\n").unwrap();
        }),
        ("symbolic link", |trap| {
            trap.evil_dir(&trap.repo().join("evil"), "link");
            fs::rename(trap.repo().join(".git"), trap.repo().join("old")).unwrap();
            symlink("evil", trap.repo().join(".git")).unwrap();
        }),
        ("does not name it in turn", |trap| {
            trap.evil_dir(&trap.repo().join("evil"), "file");
            fs::rename(trap.repo().join(".git"), trap.repo().join("old")).unwrap();
            fs::write(trap.repo().join(".git"), "gitdir: evil\n").unwrap();
        }),
        ("does not name it in turn", |trap| {
            // Someone else's repository.
            let other = Trap::new();
            fs::rename(other.repo(), trap.outer.path().join("other")).unwrap();
            fs::rename(trap.repo().join(".git"), trap.repo().join("old")).unwrap();
            fs::write(trap.repo().join(".git"), "gitdir: ../other/.git\n").unwrap();
        }),
        ("'objects' in its git directory is a symbolic link", |trap| {
            let dot = trap.repo().join(".git");
            fs::rename(dot.join("objects"), trap.outer.path().join("objects")).unwrap();
            symlink(trap.outer.path().join("objects"), dot.join("objects")).unwrap();
        }),
        ("'refs' in its git directory is a symbolic link", |trap| {
            let dot = trap.repo().join(".git");
            fs::rename(dot.join("refs"), trap.outer.path().join("refs")).unwrap();
            symlink(trap.outer.path().join("refs"), dot.join("refs")).unwrap();
        }),
        ("cannot be made", |trap| {
            // Branches would be written elsewhere.
            fs::create_dir(trap.outer.path().join("branches")).unwrap();
            symlink(trap.outer.path().join("branches"), trap.repo().join(".git/refs/heads/longhaul"))
                .unwrap();
        }),
    ];
    for (why, set) in cases {
        let trap = Trap::new();
        set(&trap);
        let said = trap.settle("t-1").await.unwrap_err();
        assert!(said.contains(why), "{why}: {said}");
        trap.nothing_ran(why);
    }
}

#[tokio::test]
async fn links_in_the_git_directory_lead_nothing_out_of_it() {
    for place in ["longhaul", "worktrees", "longhaul/t-1", "worktrees/t-1"] {
        let trap = Trap::new();
        let outside = trap.outer.path().join("outside");
        fs::create_dir(&outside).unwrap();
        let at = trap.repo().join(".git").join(place);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        symlink(&outside, &at).unwrap();
        let said = trap.settle("t-1").await;
        assert!(said.is_err() || place == "worktrees/t-1", "{place}: {said:?}");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0, "{place}");
    }
    // Added afterwards, they must not cause a removal elsewhere.
    let trap = Trap::new();
    let worktree = trap.settle("t-1").await.unwrap();
    let outside = trap.outer.path().join("outside");
    fs::create_dir_all(outside.join("t-1")).unwrap();
    fs::write(outside.join("t-1/precious"), "").unwrap();
    let trees = trap.repo().join(".git/longhaul");
    fs::rename(&trees, trap.repo().join(".git/moved")).unwrap();
    symlink(&outside, &trees).unwrap();
    worktree.remove_if_unchanged(&trap.turn).await;
    assert!(outside.join("t-1/precious").exists());
}

#[tokio::test]
async fn a_forged_index_or_head_is_only_data() {
    let trap = Trap::new();
    let worktree = trap.settle("t-1").await.unwrap();
    let admin = trap.repo().join(".git/worktrees/t-1");
    fs::write(admin.join("HEAD"), "ref: refs/heads/../../../../etc/passwd\n").unwrap();
    assert!(worktree.changes().await.unwrap_err().to_string().contains("HEAD"));
    fs::write(admin.join("HEAD"), "ref: refs/heads/longhaul/t-1\n").unwrap();
    fs::remove_file(admin.join("index")).unwrap();
    assert!(Command::new("mkfifo").arg(admin.join("index")).status().unwrap().success());
    assert!(worktree.changes().await.is_err(), "a pipe is not waited for");
    worktree.remove_if_unchanged(&trap.turn).await;
    assert!(worktree.top.exists(), "what cannot be told is kept");
}

#[tokio::test]
async fn a_worktree_that_git_itself_made_is_found_and_removed() {
    let trap = Trap::new();
    let top = trap.repo().join(".git/longhaul/t-1");
    let top = top.to_str().unwrap();
    git(&trap.repo(), &["worktree", "add", "-q", "--no-track", "-b", "longhaul/t-1", top, "HEAD"]);
    fs::write(Path::new(top).join("new"), "work").unwrap();
    let worktree = trap.settle("t-1").await.unwrap();
    assert_eq!(worktree.changes().await.unwrap().changed, 1);
    fs::remove_file(Path::new(top).join("new")).unwrap();
    worktree.remove_if_unchanged(&trap.turn).await;
    assert!(!Path::new(top).exists() && !trap.repo().join(".git/worktrees").exists());
    assert!(!trap.repo().join(".git/refs/heads/longhaul/t-1").exists());
    git(&trap.repo(), &["fsck", "--strict"]);
}

#[tokio::test]
async fn a_submodule_and_a_linked_worktree_can_be_worked_in() {
    let trap = Trap::new();
    let inner = Trap::new();
    let url = inner.repo().display().to_string();
    git(&trap.repo(), &["-c", "protocol.file.allow=always", "submodule", "add", "-q", &url, "module"]);
    git(&trap.repo(), &["commit", "-q", "-m", "a submodule"]);
    git(&trap.repo(), &["worktree", "add", "-q", "../linked"]);
    for dir in ["repo/module/sub", "linked/sub"] {
        let dir = trap.outer.path().join(dir);
        let worktree = Worktree::open_or_create(&dir, "t-2", &trap.turn).await.unwrap();
        assert_eq!(fs::read_to_string(worktree.dir.join("a.txt")).unwrap(), "a\n");
        git(&worktree.dir, &["status"]);
        assert!(worktree.changes().await.unwrap().is_none());
        worktree.remove_if_unchanged(&trap.turn).await;
        assert!(!worktree.dir.exists());
    }
}

#[tokio::test]
async fn a_change_of_the_same_moment_and_length_is_seen() {
    for round in 0..5 {
        let trap = Trap::new();
        let worktree = trap.settle("t-1").await.unwrap();
        fs::write(worktree.dir.join("a.txt"), "b\n").unwrap();
        assert_eq!(worktree.changes().await.unwrap().changed, 1, "round {round}");
    }
}

#[tokio::test]
async fn with_git_lfs_a_worktree_has_pointer_files() {
    let trap = Trap::new();
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 7\n";
    fs::write(trap.repo().join("sub/big.bin"), pointer).unwrap();
    git(&trap.repo(), &["add", "-A"]);
    fs::write(trap.repo().join(".gitattributes"), "*.bin filter=lfs diff=lfs merge=lfs -text\n").unwrap();
    git(&trap.repo(), &["add", ".gitattributes"]);
    git(&trap.repo(), &["commit", "-q", "-m", "big"]);
    let smudge = trap.mark("lfs-smudge");
    git(&trap.repo(), &["config", "filter.lfs.smudge", &smudge]);
    git(&trap.repo(), &["config", "filter.lfs.required", "true"]);
    let worktree = trap.settle("t-1").await.unwrap();
    assert_eq!(fs::read_to_string(worktree.dir.join("big.bin")).unwrap(), pointer);
    assert_eq!(worktree.changes().await.unwrap(), WorktreeChanges { changed: 0, ignored: 0, commits: 0 });
    trap.nothing_ran("lfs");
    worktree.remove_if_unchanged(&trap.turn).await;
}
