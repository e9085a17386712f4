//! Team files that have hooks, and tasks with worktrees of their own: whole runs of the command, also killed ones.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use longhaul::Status;
use longhaul::entry::Entry;

use crate::kit::{Kit, TIMEOUT};

fn example(kit: &Kit, name: &str) -> String {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/teams").join(name);
    let to = kit.data.path().join(name);
    fs::copy(from, &to).unwrap();
    to.display().to_string()
}

fn git(dir: &Path, args: &[&str]) -> String {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=a", "-c", "user.email=a@b"]).args(args).current_dir(dir);
    for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
        command.env_remove(name);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A kit whose ground is a repository with one commit.
fn repository() -> Kit {
    let kit = Kit::new();
    git(kit.ground.path(), &["init", "-q", "-b", "main"]);
    git(kit.ground.path(), &["add", "-A"]);
    git(kit.ground.path(), &["commit", "-q", "-m", "first"]);
    kit
}

/// The worktrees besides the first.
fn worktrees(kit: &Kit) -> Vec<PathBuf> {
    let list = git(kit.ground.path(), &["worktree", "list", "--porcelain"]);
    let paths = list.lines().filter_map(|line| line.strip_prefix("worktree "));
    paths.skip(1).map(PathBuf::from).collect()
}

#[test]
fn hooks_of_a_team_file_block_allow_tell_and_hear_of_the_end() {
    let kit = Kit::new();
    let team = example(&kit, "hooks.yaml");
    let mut command = kit.command(&["run", &team, "Tidy up."]);
    let ran = crate::kit::Ran::from(command.env("REVIEWER", "somebody else").output().unwrap()).ended(0);
    for words in [
        "I was told: <hook event=\"session_start\">\nThe house rule: be brief.\n</hook>",
        "This call of 'shell' was not made: a hook blocked it: hands off production",
        "deploy to staging\n[exit code 0]\n\n<hook event=\"post_tool_use\">\nLooked at by the linter.\n</hook>",
    ] {
        assert!(ran.out.contains(words), "'{words}' is not in: {}\n{}", ran.out, ran.err);
    }
    assert!(!ran.err.contains("warning"), "{}", ran.err);
    let finished = fs::read_to_string(kit.ground.path().join("finished.jsonl")).unwrap();
    let ended: serde_json::Value = serde_json::from_str(&finished).unwrap();
    assert_eq!((&ended["hook_event_name"], &ended["reason"]), (&"task_end".into(), &"completed".into()));
    assert!(ended["output"].as_str().unwrap().contains("My calls came to"), "{ended}");
}

#[test]
fn a_hook_does_not_outlive_a_kill_and_inherits_no_secret() {
    let kit = Kit::new();
    let pid = kit.ground.path().join("pid");
    let team = "agents:\n  root:\n    model: scripted/play.yaml\n    hooks:\n      task_start:\n        \
                - {command: 'env > env.txt; echo $$ > pid.new; mv pid.new pid; sleep 300'}\n      \
                env: {GIVEN: '${MY_SECRET}'}\n";
    fs::write(kit.ground.path().join("team.yaml"), team).unwrap();
    fs::write(kit.ground.path().join("play.yaml"), "agents: {root: {turns: [{text: done}]}}").unwrap();
    let mut command = kit.command(&["run", "team.yaml", "go"]);
    command.env("MY_SECRET", "s3cret").env("OPENAI_API_KEY", "k3y");
    let running = kit.started(command);
    let begun = Instant::now();
    while !pid.exists() {
        assert!(begun.elapsed() < TIMEOUT, "the hook does not run");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    running.murder();
    let env = fs::read_to_string(kit.ground.path().join("env.txt")).unwrap();
    assert!(env.contains("GIVEN=s3cret"), "what is named is there: {env}");
    for line in env.lines().filter(|line| !line.starts_with("GIVEN=")) {
        assert!(!line.contains("s3cret") && !line.contains("k3y"), "{line}");
    }
    let pid = fs::read_to_string(&pid).unwrap();
    let runs = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    };
    while cfg!(target_os = "linux") && runs() {
        assert!(begun.elapsed() < TIMEOUT, "the hook outlives its process");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let (state, _) = kit.journals().remove(0);
    assert_eq!(state.status, Status::Running);
}

#[test]
fn a_wrong_matcher_is_an_error_of_check_with_its_line() {
    let kit = Kit::new();
    let team = "agents:\n  root:\n    model: auto\n    hooks:\n      pre_tool_use:\n        \
                - {matcher: 'shell(', hooks: [{command: 'true'}]}\n";
    fs::write(kit.ground.path().join("team.yaml"), team).unwrap();
    let ran = kit.run(&["check", "team.yaml"]).ended(6);
    assert!(
        ran.out.contains("team.yaml:6:21") && ran.out.contains("'shell(' is not a pattern"),
        "{}",
        ran.out
    );
}

#[test]
fn writers_of_a_team_file_work_in_worktrees_and_a_clean_one_is_removed() {
    let kit = repository();
    let team = example(&kit, "worktrees-scripted.yaml");
    let ran = kit.run(&["run", &team, "Two poems."]).ended(0);
    assert!(!ran.err.contains("warning"), "{}", ran.err);
    assert!(ran.out.contains("It had a git worktree of its own and changed nothing there"), "{}", ran.out);
    assert_eq!(ran.out.matches("uncommitted changes in 1 place").count(), 2, "{}", ran.out);
    let kept = worktrees(&kit);
    assert_eq!(kept.len(), 2, "{kept:?}");
    let mut poems: Vec<String> = Vec::new();
    for worktree in &kept {
        poems.push(fs::read_to_string(worktree.join("poem.txt")).unwrap());
        let branch = git(worktree, &["branch", "--show-current"]);
        assert!(ran.out.contains(&format!("{}; uncommitted", branch.trim())), "{branch} in {}", ran.out);
    }
    poems.sort();
    assert_eq!(poems, ["A poem about Go", "A poem about Rust"]);
    assert!(!kit.ground.path().join("poem.txt").exists());
    assert_eq!(git(kit.ground.path(), &["status", "--porcelain"]), "");
}

#[test]
fn a_killed_writer_goes_on_in_its_worktree_and_what_it_committed_is_kept() {
    let kit = repository();
    let team = "agents: {root: {model: scripted/play.yaml, isolation: worktree, toolsets: [{type: filesystem}, {type: shell}]}}\n\
                permissions: {allow: ['*']}\n";
    let play = "agents:\n  root:\n    turns:\n      \
        - calls: [{tool: write_file, arguments: {path: one.txt, content: one}}]\n      \
        - delay: 2s\n        calls: [{tool: shell, arguments: {cmd: 'cat one.txt > two.txt && git add -A && git -c user.name=a -c user.email=a@b commit -qm both'}}]\n      \
        - text: done\n";
    fs::write(kit.data.path().join("team.yaml"), team).unwrap();
    fs::write(kit.data.path().join("play.yaml"), play).unwrap();
    let path = kit.data.path().join("team.yaml").display().to_string();
    let running = kit.start(&["run", &path, "go"]);
    kit.until("the first file", |journals| {
        let returned = |entry: &Entry| matches!(entry, Entry::Returned(_));
        journals.iter().any(|(_, journal)| journal.iter().any(|r| returned(&r.entry))).then_some(())
    });
    running.murder();
    let before = worktrees(&kit);
    assert_eq!(before.len(), 1);
    assert!(before[0].join("one.txt").is_file() && !before[0].join("two.txt").exists());

    let ran = kit.run(&["resume"]).ended(0);
    assert_eq!(worktrees(&kit), before, "the same worktree, and no other");
    assert_eq!(fs::read_to_string(before[0].join("two.txt")).unwrap(), "one");
    assert!(ran.out.contains("1 commit.]"), "{}", ran.out);
    let (state, _) = kit.journals().remove(0);
    assert_eq!((state.status, state.attempt.0), (Status::Completed, 2));
    // Unmerged, so it is there; merged by its branch, it is all there is.
    let branch = git(&before[0], &["branch", "--show-current"]);
    git(kit.ground.path(), &["merge", "-q", "--ff-only", branch.trim()]);
    assert!(kit.ground.path().join("two.txt").is_file());
}
