//! What the dashboard reads besides the rest: tasks by their ids, timelines, differences of worktrees, one stream
//! with the text of one tree.

use serde_json::{Value, json};

use crate::setup::{Server, within};

#[tokio::test]
async fn tasks_are_read_by_their_ids() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path()).await;
    let one = server.submit(json!({ "task": "one", "agent": "worker" })).await;
    let two = server.submit(json!({ "task": "two", "agent": "worker" })).await;
    let page = server.ok(&format!("/tasks?ids={two},t-00000,{one}")).await;
    let ids: Vec<&str> =
        page["tasks"].as_array().unwrap().iter().map(|task| task["id"].as_str().unwrap()).collect();
    assert_eq!(ids, [&two, &one], "in this order, without what does not exist");
    assert!(page["next_cursor"].is_null());
    server.problem(server.client.get(server.at("/tasks?ids=x")), 400, "x").await;
    let many = vec![one.as_str(); 201].join(",");
    server.problem(server.client.get(server.at(&format!("/tasks?ids={many}"))), 400, "at most 200").await;
}

fn kinds(timeline: &Value) -> Vec<&str> {
    timeline["spans"].as_array().unwrap().iter().map(|span| span["kind"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_timeline_says_when_each_task_worked_and_waited() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path()).await;
    let lead = server.submit(json!({ "task": "team up" })).await;
    server.wait(&lead).await;
    let page = server.ok(&format!("/tasks/{lead}/tree/timeline")).await;
    assert_eq!((page["tasks"].as_array().unwrap().len(), &page["is_partial"]), (3, &json!(false)), "{page}");
    let top = &page["tasks"][0];
    assert_eq!(top["task"], lead.as_str());
    assert_eq!(kinds(top)[..2], ["queued", "working"]);
    let calls = top["spans"].as_array().unwrap().iter().filter(|span| span["kind"] == "call");
    let texts: Vec<&str> = calls.map(|span| span["text"].as_str().unwrap()).collect();
    assert_eq!(texts.len(), 2);
    assert!(texts[0].contains("run_background_agent(") && texts[0].contains("one"), "{texts:?}");
    for task in page["tasks"].as_array().unwrap() {
        let spans = task["spans"].as_array().unwrap();
        assert!(spans.iter().all(|span| span["to"].is_string()), "everything has ended: {task}");
        let phases: Vec<&Value> = spans.iter().filter(|span| span["kind"] != "call").collect();
        for pair in phases.windows(2) {
            assert_eq!(pair[0]["to"], pair[1]["from"], "phases follow each other: {task}");
        }
    }
    assert_eq!(server.ok(&format!("/tasks/{lead}/tree/timeline")).await, page, "the same from memory");
}

#[tokio::test]
async fn a_timeline_has_the_time_that_a_person_took() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path()).await;
    let id = server.submit(json!({ "task": "ask me", "agent": "asker" })).await;
    let path = format!("/tasks/{id}/tree/timeline");
    let waits = async {
        loop {
            let page = server.ok(&path).await;
            if let Some(last) =
                page["tasks"][0]["spans"].as_array().unwrap().iter().rfind(|s| s["kind"] != "call")
                && last["kind"] == "waits_for_person"
            {
                return last.clone();
            }
            tokio::task::yield_now().await;
        }
    };
    let span = within(waits).await;
    assert!(span["to"].is_null() && span["text"].as_str().unwrap().contains("Which colour?"), "{span}");
    let (status, _) = server.post(&format!("/tasks/{id}/answers"), json!({ "text": "blue" })).await;
    assert_eq!(status, 200);
    server.wait(&id).await;
    let page = server.ok(&path).await;
    let all = kinds(&page["tasks"][0]).iter().filter(|kind| **kind == "waits_for_person").count();
    assert_eq!(all, 1, "{page}");
}

#[tokio::test]
async fn the_stream_of_all_tasks_has_the_text_of_a_tree_while_it_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path()).await;
    let talks = server.submit(json!({ "task": "talk", "agent": "talker" })).await;
    let mut all = server.follow(&format!("/events?after=start&live={talks}"), None).await;
    let text = async {
        loop {
            let event = all.next().await.unwrap();
            if event.name == "text" && event.data["task"] == talks.as_str() {
                return event.data["text"].clone();
            }
        }
    };
    // Its reply is complete only when the gate opens.
    assert_eq!(within(text).await, "first ");
    server.gate.add_permits(1);
    server.wait(&talks).await;
    server.problem(server.client.get(server.at("/events?live=t-00000")), 404, "t-00000").await;
}

#[tokio::test]
async fn what_a_task_changes_in_its_worktree_is_read_also_when_only_the_branch_is_left() {
    let directory = tempfile::tempdir().unwrap();
    let repository = tempfile::tempdir().unwrap();
    let git = |dir: &std::path::Path, args: &[&str]| {
        let mut command = std::process::Command::new("git");
        command.args(["-c", "user.name=a", "-c", "user.email=a@b"]).args(args).current_dir(dir);
        let output = command.env_remove("GIT_DIR").env_remove("GIT_INDEX_FILE").output().unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
    };
    std::fs::write(repository.path().join("a.txt"), "one\n").unwrap();
    git(repository.path(), &["init", "-q", "-b", "main"]);
    git(repository.path(), &["add", "-A"]);
    git(repository.path(), &["commit", "-q", "-m", "first"]);
    let server = Server::start(directory.path()).await;
    let order = longhaul::Order::new("worker", "hold on").working_dir(repository.path());
    let order = order.isolation(longhaul::Isolation::Worktree);
    let id = server.longhaul.submit(order).await.unwrap().to_string();
    let there = async {
        loop {
            let detail = server.ok(&format!("/tasks/{id}")).await;
            if let Some(path) = detail["worktree"]["path"].as_str() {
                return (std::path::PathBuf::from(path), detail["worktree"]["branch"].clone());
            }
            tokio::task::yield_now().await;
        }
    };
    let (worktree, branch) = within(there).await;
    std::fs::write(worktree.join("a.txt"), "<b>two</b>\n").unwrap();
    std::fs::write(worktree.join("b.bin"), b"\0").unwrap();
    let path = format!("/tasks/{id}/diff");
    let diff = server.ok(&path).await;
    let file = json!({
        "path": "a.txt", "old_path": null, "change": "changed", "added": 1, "removed": 1, "is_binary": false,
        "lines": [
            { "kind": "note", "text": "@@ -1 +1 @@" },
            { "kind": "removed", "text": "one" },
            { "kind": "added", "text": "<b>two</b>" },
        ],
        "is_cut": false,
    });
    assert_eq!(diff["files"][0], file, "{diff}");
    assert_eq!((&diff["files"][1]["path"], &diff["files"][1]["is_binary"]), (&json!("b.bin"), &json!(true)));
    assert_eq!((&diff["is_partial"], &diff["commits"]), (&json!(false), &json!([])));

    git(&worktree, &["commit", "-q", "-a", "-m", "two it is"]);
    server.gate.add_permits(1);
    server.wait(&id).await;
    std::fs::remove_dir_all(&worktree).unwrap();
    let left = server.ok(&path).await;
    assert_eq!(left["worktree"], json!({ "branch": branch, "path": null }));
    assert_eq!((&left["files"], &left["commits"][0]["subject"]), (&json!([file]), &json!("two it is")));

    let other = server.submit(json!({ "task": "one", "agent": "worker" })).await;
    assert!(server.ok(&format!("/tasks/{other}")).await["worktree"].is_null());
    let url = server.at(&format!("/tasks/{other}/diff"));
    server.problem(server.client.get(url), 409, "no git worktree").await;
    server.problem(server.client.get(server.at("/tasks/t-00000/diff")), 404, "t-00000").await;
}
