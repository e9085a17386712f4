//! Tasks that work in git worktrees of their own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use longhaul::entry::FailureKind;
use longhaul::testing::reply;
use longhaul::toolset::Filesystem;
use longhaul::{Isolation, Order, Policy, Status, SubAgentDialect};
use serde_json::json;
use tempfile::TempDir;

use crate::engine::stage::*;

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

fn repository() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.txt"), "one\n").unwrap();
    git(dir.path(), &["init", "-q", "-b", "main"]);
    git(dir.path(), &["add", "-A"]);
    git(dir.path(), &["commit", "-q", "-m", "first"]);
    dir
}

/// The worktree that a result tells of.
fn place(output: &str) -> PathBuf {
    let told = output.split("[Its git worktree: ").nth(1).expect(output);
    PathBuf::from(told.split(';').next().unwrap())
}

fn isolated() -> Policy {
    Policy::default().isolation(Isolation::Worktree)
}

#[tokio::test]
async fn two_writers_of_one_file_do_not_meet_and_the_result_says_where_the_work_is() {
    let repo = repository();
    let model = model(|asked| match asked.turn {
        0 => reply().call("write_file", json!({"path": "a.txt", "content": asked.order})),
        1 => reply().call("read_file", json!({"path": "a.txt"})),
        _ => reply().text("done"),
    });
    let longhaul = start(agent("lead", &model).toolset(Filesystem::new()).policy(isolated())).await;
    let order = |task: &str| Order::new("lead", task).working_dir(repo.path());
    let ids = [longhaul.submit(order("two")).await.unwrap(), longhaul.submit(order("three")).await.unwrap()];
    let done = within(longhaul.wait(ids)).await.unwrap();
    for (task, text) in done.tasks.iter().zip(["two", "three"]) {
        assert_eq!(task.state.status, Status::Completed, "{}", task.output);
        assert!(task.output.starts_with("done\n\n[Its git worktree: "), "{}", task.output);
        assert!(
            task.output.contains("branch longhaul/t-")
                && task.output.contains("uncommitted changes in 1 place")
        );
        assert_eq!(fs::read_to_string(place(&task.output).join("a.txt")).unwrap(), text);
    }
    assert_eq!(fs::read_to_string(repo.path().join("a.txt")).unwrap(), "one\n");
    assert_eq!(
        git(repo.path(), &["status", "--porcelain"]),
        "",
        "nothing is to be seen of it where others work"
    );

    // Who continues a task goes on where it was.
    let again = longhaul.send(ids[0], "four").await.unwrap();
    let continued = within(longhaul.wait([again.to])).await.unwrap();
    assert_eq!(place(&continued.tasks[0].output), place(&done.tasks[0].output));
    assert_eq!(git(repo.path(), &["worktree", "list"]).lines().count(), 3);
    longhaul.shutdown().await;
}

#[tokio::test]
async fn a_worktree_that_nothing_was_done_in_is_gone_with_its_task() {
    let repo = repository();
    let model = model(|_| reply().text("nothing to do"));
    let longhaul = start(agent("lead", &model).policy(isolated())).await;
    let id = longhaul.submit(Order::new("lead", "look").working_dir(repo.path())).await.unwrap();
    let done = within(longhaul.wait([id])).await.unwrap();
    assert!(done.tasks[0].output.contains("changed nothing there"), "{}", done.tasks[0].output);
    longhaul.shutdown().await;
    assert_eq!(git(repo.path(), &["worktree", "list"]).lines().count(), 1);
    assert_eq!(git(repo.path(), &["branch", "--format=%(refname:short)"]), "main\n");
}

#[tokio::test]
async fn a_child_works_in_its_parents_worktree() {
    let repo = repository();
    let model = model(|asked| match (asked.agent.as_str(), asked.turn) {
        ("lead", 0) => reply().call("transfer_task", json!({"agent": "worker", "task": "write"})),
        ("worker", 0) => reply().call("write_file", json!({"path": "b.txt", "content": "b"})),
        _ => reply().text("done"),
    });
    let worker = agent("worker", &model).toolset(Filesystem::new()).build().unwrap();
    let lead = agent("lead", &model).sub_agent(worker).dialect(SubAgentDialect::Background);
    let longhaul = start(lead).await;
    let order = Order::new("lead", "go").working_dir(repo.path()).isolation(Isolation::Worktree);
    let id = longhaul.submit(order).await.unwrap();
    let done = within(longhaul.wait([id])).await.unwrap();
    let output = &done.tasks[0].output;
    assert_eq!(fs::read_to_string(place(output).join("b.txt")).unwrap(), "b", "{output}");
    assert!(!repo.path().join("b.txt").exists());
    longhaul.shutdown().await;
}

#[tokio::test]
async fn where_there_is_no_repository_the_task_fails_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let model = model(|_| reply().text("done"));
    let longhaul = start(agent("lead", &model).policy(isolated())).await;
    for order in [Order::new("lead", "go").working_dir(dir.path()), Order::new("lead", "go")] {
        let id = longhaul.submit(order).await.unwrap();
        let done = within(longhaul.wait([id])).await.unwrap();
        let why = done.tasks[0].outcome.as_ref().and_then(|outcome| outcome.error()).unwrap_or_default();
        assert_eq!(done.tasks[0].state.status, Status::Failed);
        assert!(
            why.contains(&FailureKind::Place.to_string()) && why.contains("isolation: worktree needs"),
            "{why}"
        );
    }
    longhaul.shutdown().await;
}
