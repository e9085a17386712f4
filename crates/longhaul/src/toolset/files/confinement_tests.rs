//! Attempts to leave the working directory. Each must be refused with a reason.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::toolset::tool_fixture::{call_context_in, call_tool};

/// A working directory beside files that must stay out of reach.
struct ConfinementFixture {
    outer: TempDir,
    context: CallContext,
    toolset: Filesystem,
}

const SECRET: &str = "the-secret-of-the-yard";

impl ConfinementFixture {
    fn new() -> Self {
        let outer = TempDir::new().unwrap();
        let at = |path: &str| outer.path().join(path);
        fs::create_dir_all(at("work/sub")).unwrap();
        fs::create_dir_all(at("work/.git/hooks")).unwrap();
        fs::create_dir_all(at("outside/dir")).unwrap();
        fs::create_dir_all(at("work-other")).unwrap();
        for file in ["secret.txt", "outside/secret.txt", "outside/dir/secret.txt", "work-other/secret.txt"] {
            fs::write(at(file), SECRET).unwrap();
        }
        fs::write(at("work/own.txt"), "own\n").unwrap();
        fs::write(at("work/.git/config"), "[core]\n").unwrap();
        let (context, _) = call_context_in(&at("work"));
        ConfinementFixture { outer, context, toolset: Filesystem::new() }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.outer.path().join(path)
    }

    fn link(&self, target: impl AsRef<Path>, name: &str) {
        symlink(target, self.at("work").join(name)).unwrap();
    }

    async fn call(&self, tool: &str, arguments: Value) -> Result<String, String> {
        let called = call_tool(&self.toolset, tool, arguments, &self.context).await;
        called.map(|output| output.text).map_err(|error| error.to_string())
    }

    /// Returns everything that is not in the working directory.
    fn outside(&self) -> Vec<(PathBuf, Option<Vec<u8>>)> {
        fn collect(dir: &Path, skip: &Path, found: &mut Vec<(PathBuf, Option<Vec<u8>>)>) {
            for entry in fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if path == skip {
                    continue;
                }
                let is_dir = fs::symlink_metadata(&path).unwrap().is_dir();
                found.push((path.clone(), (!is_dir).then(|| fs::read(&path).unwrap())));
                if is_dir {
                    collect(&path, skip, found);
                }
            }
        }
        let mut found = Vec::new();
        collect(self.outer.path(), &self.at("work"), &mut found);
        found.sort();
        found
    }
}

#[tokio::test]
async fn no_way_leads_out_of_the_working_directory() {
    let fixture = ConfinementFixture::new();
    fixture.link("../secret.txt", "link-file");
    fixture.link("../outside", "link-dir");
    fixture.link(fixture.at("outside"), "link-whole");
    fixture.link("..", "up");
    fixture.link("link-dir/dir", "chain");
    fixture.link("loop", "loop");
    fixture.link("../nothing", "dangling");
    fixture.link("/proc/self/root", "proc-root");
    fixture.link("/proc/self/cwd", "proc-cwd");
    fixture.link("/dev/fd", "dev-fd");
    fixture.link(".git", "innocent");
    let before = fixture.outside();

    let secret = fixture.at("secret.txt").display().to_string();
    let sibling = fixture.at("work-other/secret.txt").display().to_string();
    let sneaky = format!("{}/work/../secret.txt", fixture.outer.path().display());
    let by_proc = format!("/proc/self/root{secret}");
    let by_pid = format!("/proc/{}/cwd/Cargo.toml", std::process::id());
    let long_name = "n".repeat(300);
    let long_path = format!("{}x", "../".repeat(2000));
    const OUT: &str = "is not below the working directory:";
    const LINK: &str = "a symbolic link leads out";
    const GIT: &str = "where git and its like keep what they execute";
    let ways: Vec<(&str, &str)> = vec![
        ("..", OUT),
        ("../secret.txt", OUT),
        ("sub/../../secret.txt", OUT),
        ("./.././secret.txt", OUT),
        ("sub/../sub/../../outside/secret.txt", OUT),
        ("missing/../../secret.txt", OUT),
        (&secret, OUT),
        (&sibling, OUT),
        (&sneaky, OUT),
        ("/etc/passwd", OUT),
        ("/", OUT),
        ("//etc//passwd", OUT),
        ("link-file", LINK),
        ("link-dir", LINK),
        ("link-dir/secret.txt", LINK),
        ("link-whole/secret.txt", LINK),
        ("up/secret.txt", LINK),
        ("chain/secret.txt", LINK),
        ("dangling", LINK),
        ("loop", "too many symbolic links"),
        ("/proc/self/root/etc/passwd", OUT),
        (&by_proc, OUT),
        ("/proc/self/cwd/Cargo.toml", OUT),
        (&by_pid, OUT),
        ("/proc/self/environ", OUT),
        ("proc-root/etc/passwd", LINK),
        ("proc-cwd/Cargo.toml", LINK),
        ("dev-fd/0", LINK),
        ("~/.ssh/id_rsa", "'~' stands for nothing here"),
        ("$HOME/.ssh/id_rsa", "'$HOME' is not replaced"),
        ("${HOME}/x", "'${HOME}' is not replaced"),
        ("own.txt\0/../../secret.txt", "zero byte"),
        (&long_name, "300 bytes long"),
        (&long_path, "no path can be longer than 4096"),
    ];
    assert!(ways.len() >= 25);
    for (path, reason) in &ways {
        for (tool, arguments) in [
            ("read_file", json!({ "path": path })),
            ("list_directory", json!({ "path": path })),
            ("directory_tree", json!({ "path": path })),
            ("search_files_content", json!({ "path": path, "query": "e" })),
            ("write_file", json!({ "path": path, "content": "pwned" })),
            ("edit_file", json!({ "path": path, "edits": [{ "oldText": SECRET, "newText": "pwned" }] })),
            ("create_directory", json!({ "paths": [format!("{path}/pwned"), path] })),
            ("remove_directory", json!({ "paths": [path] })),
        ] {
            let why = fixture.call(tool, arguments).await.expect_err(&format!("{tool} {path:?}"));
            assert!(why.contains(reason), "{tool} {path:?}: {why}");
            assert!(!why.contains(SECRET), "{tool} {path:?}: {why}");
        }
        let read = fixture.call("read_multiple_files", json!({ "paths": ["own.txt", path] })).await.unwrap();
        assert!(
            read.contains("own\n") && read.contains(reason) && !read.contains(SECRET),
            "{path:?}: {read}"
        );
    }

    // Files that git executes can be read but not changed, under any spelling of their names.
    for path in [
        ".git/hooks/post-commit",
        ".git/config",
        ".git",
        "innocent/hooks/pre-push",
        ".GIT/hooks/x",
        "sub/.git/x",
    ] {
        for (tool, arguments) in [
            ("write_file", json!({ "path": path, "content": "#!/bin/sh\npwned" })),
            ("edit_file", json!({ "path": path, "edits": [{ "oldText": "[core]", "newText": "pwned" }] })),
            ("create_directory", json!({ "paths": [path] })),
            ("remove_directory", json!({ "paths": [path] })),
        ] {
            let why = fixture.call(tool, arguments).await.expect_err(&format!("{tool} {path}"));
            assert!(why.contains(GIT), "{tool} {path}: {why}");
        }
    }
    assert_eq!(fixture.call("read_file", json!({ "path": ".git/config" })).await.unwrap(), "[core]\n");

    // Walks show links and do not follow them.
    let tree = fixture.call("directory_tree", json!({})).await.unwrap();
    assert!(tree.contains("link-dir -> ../outside") && !tree.contains("secret.txt\n    "), "{tree}");
    let found = fixture.call("search_files_content", json!({ "query": SECRET })).await.unwrap();
    assert!(found.starts_with("no match"), "{found}");
    // The root itself must not be removed.
    assert!(fixture.call("remove_directory", json!({ "paths": ["."] })).await.is_err());
    assert_eq!(fixture.outside(), before, "nothing outside was touched");
}

/// A hard link is a file of its own: a file outside that shares its content is never written to.
#[tokio::test]
async fn a_hard_link_is_not_written_through() {
    let fixture = ConfinementFixture::new();
    fs::hard_link(fixture.at("secret.txt"), fixture.at("work/hard.txt")).unwrap();
    let before = fixture.outside();
    fixture
        .call("edit_file", json!({ "path": "hard.txt", "edits": [{ "oldText": SECRET, "newText": "mine" }] }))
        .await
        .unwrap();
    fixture.call("write_file", json!({ "path": "hard.txt", "content": "mine too" })).await.unwrap();
    assert_eq!(fs::read_to_string(fixture.at("work/hard.txt")).unwrap(), "mine too");
    assert_eq!(fixture.outside(), before);
}

/// While a thread swaps a directory and a file with links to the outside, nothing outside is read or written,
/// whatever the timing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_that_is_flipped_at_the_right_moment_leads_nowhere_either() {
    let fixture = ConfinementFixture::new();
    fs::create_dir(fixture.at("work/flip")).unwrap();
    fs::write(fixture.at("work/flip/secret.txt"), "inside").unwrap();
    fs::write(fixture.at("work/leaf"), "inside").unwrap();
    let before = fixture.outside();
    let (over, flips) = (AtomicBool::new(false), AtomicU64::new(0));
    let (mut inside, mut refused) = (0, 0);

    std::thread::scope(|scope| {
        let flipper = scope.spawn(|| {
            let at = |name: &str| fixture.at("work").join(name);
            while !over.load(Ordering::Relaxed) {
                fs::rename(at("flip"), at("aside")).unwrap();
                // The tools may have created a directory in the gap.
                while symlink("../outside", at("flip")).is_err() {
                    let _ = fs::remove_dir_all(at("flip"));
                }
                let _ = fs::remove_file(at("leaf-link"));
                symlink("../secret.txt", at("leaf-link")).unwrap();
                fs::rename(at("leaf-link"), at("leaf")).unwrap();
                fs::remove_file(at("flip")).unwrap();
                while fs::rename(at("aside"), at("flip")).is_err() {
                    let _ = fs::remove_dir_all(at("flip"));
                }
                fs::write(at("leaf-new"), "inside").unwrap();
                fs::rename(at("leaf-new"), at("leaf")).unwrap();
                flips.fetch_add(1, Ordering::Relaxed);
            }
        });
        let calls = async {
            let mut round = 0;
            // On a busy machine one of the two may appear late.
            while round < 60 || (inside == 0 || refused == 0) && round < 5_000 {
                round += 1;
                for path in ["flip/secret.txt", "leaf"] {
                    match fixture.call("read_file", json!({ "path": path })).await {
                        Ok(text) => {
                            assert_eq!(text, "inside\n", "{path}");
                            inside += 1;
                        }
                        Err(why) => {
                            assert!(!why.contains(SECRET), "{why}");
                            refused += 1;
                        }
                    }
                }
                let new = format!("flip/dir/new-{round}.txt");
                let _ = fixture.call("write_file", json!({ "path": new, "content": "x" })).await;
                let _ = fixture
                    .call("create_directory", json!({ "paths": [format!("flip/made-{round}")] }))
                    .await;
                let _ = fixture.call("remove_directory", json!({ "paths": ["flip/dir"] })).await;
                let edit = json!({ "path": "flip/secret.txt", "edits": [{ "oldText": SECRET, "newText": "pwned" }] });
                assert!(fixture.call("edit_file", edit).await.is_err());
                let found =
                    fixture.call("search_files_content", json!({ "path": "flip", "query": SECRET })).await;
                assert!(!found.is_ok_and(|found| found.contains("secret.txt:1")));
            }
        };
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(calls));
        over.store(true, Ordering::Relaxed);
        flipper.join().unwrap();
    });
    assert!(flips.into_inner() > 10 && inside > 0 && refused > 0, "{inside} read, {refused} refused");
    assert_eq!(fixture.outside(), before, "nothing outside was touched");
}

#[tokio::test]
async fn what_is_allowed_besides_can_be_reached_and_nothing_beside_it() {
    let mut fixture = ConfinementFixture::new();
    fixture.toolset = Filesystem::builder()
        .allow_path(fixture.at("outside/dir"))
        .allow_path("../work-other")
        .allow_path(fixture.at("not-yet"))
        .build();
    let whole = fixture.at("outside/dir/secret.txt").canonicalize().unwrap();
    fixture.link("../outside/dir", "allowed");
    for path in [
        whole.to_str().unwrap(),
        "../outside/dir/secret.txt",
        "../work-other/secret.txt",
        "allowed/secret.txt",
    ] {
        assert_eq!(
            fixture.call("read_file", json!({ "path": path })).await.unwrap().trim(),
            SECRET,
            "{path}"
        );
    }
    let new = fixture.at("outside/dir/new.txt");
    let output = fixture.call("write_file", json!({ "path": new, "content": "x" })).await.unwrap();
    assert!(output.contains("outside/dir/new.txt written (1 byte)"), "{output}");
    for path in ["../outside/secret.txt", "allowed/../secret.txt", "../secret.txt", "../not-yet/x"] {
        let why = fixture.call("read_file", json!({ "path": path })).await.unwrap_err();
        assert!(why.contains("is not below the working directory or "), "{path}: {why}");
    }
    fs::create_dir(fixture.at("not-yet")).unwrap();
    assert!(fixture.call("write_file", json!({ "path": "../not-yet/x", "content": "x" })).await.is_ok());
}

#[tokio::test]
async fn the_data_of_the_own_server_is_out_of_reach_even_below_the_working_directory() {
    let mut fixture = ConfinementFixture::new();
    fs::create_dir_all(fixture.at("work/data/access")).unwrap();
    fs::write(fixture.at("work/data/access/token"), SECRET).unwrap();
    fixture.link("data", "link");
    fixture.link(fixture.at("work/data/access/token"), "direct");
    let server = crate::toolset::OwnServer::new([], [fixture.at("work/data")]);
    fixture.toolset = Filesystem::builder().ignore_vcs(false).own_server(&server).build();
    for path in ["data/access/token", "link/access/token", "direct", "sub/../data/access/token", "data"] {
        let refused = fixture.call("read_file", json!({"path": path})).await.unwrap_err();
        assert!(refused.contains("its agents may not use it"), "{path}: {refused}");
    }
    for (tool, arguments) in [
        ("list_directory", json!({"path": "data"})),
        ("directory_tree", json!({"path": "data/access"})),
        ("search_files_content", json!({"path": "data", "query": "secret"})),
        ("write_file", json!({"path": "data/access/tokens.json", "content": "{}"})),
        ("create_directory", json!({"paths": ["data/x"]})),
        ("remove_directory", json!({"paths": ["data/access"]})),
    ] {
        let refused = fixture.call(tool, arguments).await.unwrap_err();
        assert!(refused.contains("its agents may not use it"), "{tool}: {refused}");
    }
    for (tool, arguments) in [
        ("search_files_content", json!({"path": ".", "query": "secret-of"})),
        ("directory_tree", json!({"path": "."})),
    ] {
        let found = fixture.call(tool, arguments).await.unwrap_or_else(|error| error);
        assert!(!found.contains(SECRET) && !found.contains("token"), "{tool}: {found}");
    }
    assert_eq!(fs::read_to_string(fixture.at("work/data/access/token")).unwrap(), SECRET);
}
