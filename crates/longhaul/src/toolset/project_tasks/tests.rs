use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::ProjectTasks;
use crate::id::{CallId, TaskKey};
use crate::toolset::tool_fixture::ToolFixture;

async fn at(dir: &Path) -> ToolFixture {
    ToolFixture::in_dir(&ProjectTasks::default(), dir).await
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

async fn create(fixture: &mut ToolFixture, arguments: Value) -> String {
    parsed(&fixture.call_text("create_task", arguments).await)["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn tasks_are_made_linked_done_and_deleted() {
    let place = tempfile::tempdir().unwrap();
    let mut fixture = at(place.path()).await;
    let plan = create(&mut fixture, json!({"title": "Plan", "priority": "low"})).await;
    let build =
        create(&mut fixture, json!({"title": "Build", "priority": "high", "dependencies": [plan.clone()]}))
            .await;
    let ship = create(&mut fixture, json!({"title": "Ship"})).await;
    let link = json!({"taskId": ship, "dependsOnId": build});
    assert_eq!(
        parsed(&fixture.call_text("add_dependency", link.clone()).await)["effectiveStatus"],
        "blocked"
    );
    assert_eq!(parsed(&fixture.call_text("next_task", json!({})).await)["id"], *plan);
    let cycle = json!({"taskId": plan, "dependsOnId": ship});
    assert!(fixture.call_error("add_dependency", cycle).await.contains("cycle"));
    let listed = parsed(&fixture.call_text("list_tasks", json!({"status": "blocked"})).await);
    assert_eq!(listed[0]["title"], "Build", "the more urgent first");
    assert_eq!(listed.as_array().unwrap().len(), 2);
    fixture.call_text("update_task", json!({"id": plan, "status": "done"})).await;
    assert_eq!(parsed(&fixture.call_text("next_task", json!({})).await)["id"], *build);
    fixture.call_text("remove_dependency", link).await;
    assert_eq!(
        parsed(&fixture.call_text("get_task", json!({"id": ship})).await)["effectiveStatus"],
        "pending"
    );
    fixture.call_text("delete_task", json!({"id": build})).await;
    assert!(fixture.call_error("get_task", json!({"id": build})).await.contains("there is no task"));
    for id in [&ship] {
        fixture.call_text("update_task", json!({"id": id, "status": "completed"})).await;
    }
    assert!(fixture.call_text("next_task", json!({})).await.contains("nothing to work on"));
    let file = parsed(&fs::read_to_string(place.path().join("tasks.json")).unwrap());
    assert_eq!(file["tasks"][&ship]["status"], "done");
    let names: Vec<_> = fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["tasks.json"], "nothing else is left behind");
}

#[tokio::test]
async fn the_same_call_again_makes_no_second_task() {
    let place = tempfile::tempdir().unwrap();
    let mut fixture = at(place.path()).await;
    let first = create(&mut fixture, json!({"title": "Once"})).await;
    let again = fixture.repeat_call("create_task", json!({"title": "Once"})).await.unwrap().text;
    assert_eq!(parsed(&again)["id"], *first);
    // The same call of the same task in another store is a different call.
    let other = fixture.repeat_call("create_task", json!({"title": "Another"})).await.unwrap().text;
    assert_ne!(parsed(&other)["id"], *first);
    assert_eq!(parsed(&fixture.call_text("list_tasks", json!({})).await).as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_file_that_is_none_of_ours_is_not_overwritten() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("tasks.json");
    let mut fixture = at(place.path()).await;
    for text in ["not json", "[1, 2]", r#"{"tasks": {"a": {"id": 1}}}"#] {
        fs::write(&path, text).unwrap();
        let error = fixture.call_error("create_task", json!({"title": "x"})).await;
        assert!(error.contains("'tasks.json' is not a list of tasks"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
    fs::write(&path, r#"{"tasks": {"a1": {"id": "a1", "title": "From elsewhere"}}}"#).unwrap();
    assert_eq!(parsed(&fixture.call_text("next_task", json!({})).await)["title"], "From elsewhere");
}

#[tokio::test]
async fn no_path_leads_out_of_the_working_directory() {
    let place = tempfile::tempdir().unwrap();
    let (inside, outside) = (place.path().join("in"), place.path().join("out"));
    for dir in [&inside, &outside] {
        fs::create_dir(dir).unwrap();
    }
    fs::write(outside.join("secret.md"), "secret").unwrap();
    fs::write(inside.join("plan.md"), "the plan").unwrap();
    std::os::unix::fs::symlink(&outside, inside.join("link")).unwrap();
    let mut fixture = at(&inside).await;
    let within = inside.join("plan.md").display().to_string();
    for path in ["plan.md", "./plan.md", &within] {
        let made = parsed(&fixture.call_text("create_task", json!({"title": path, "path": path})).await);
        assert_eq!(made["description"], "the plan");
    }
    let absolute = outside.join("secret.md").display().to_string();
    for path in ["../out/secret.md", "link/secret.md", &absolute, "nowhere.md", ".", "plan.md\0"] {
        let error = fixture.call_error("create_task", json!({"title": "x", "path": path})).await;
        assert!(error.contains("below the working directory") && !error.contains("secret\""), "{error}");
    }
    for path in ["../out/tasks.json", "link/tasks.json"] {
        let mut fixture = ToolFixture::in_dir(&ProjectTasks::new(path), &inside).await;
        let error = fixture.call_error("create_task", json!({"title": "x"})).await;
        assert!(error.contains("cannot be used"), "{error}");
    }
    assert!(!outside.join("tasks.json").exists());
    let mut below = ToolFixture::in_dir(&ProjectTasks::new("deep/er/tasks.json"), &inside).await;
    below.call_text("create_task", json!({"title": "x"})).await;
    assert!(inside.join("deep/er/tasks.json").exists());
    let mut chosen = ToolFixture::in_dir(&ProjectTasks::new(outside.join("mine.json")), &inside).await;
    chosen.call_text("create_task", json!({"title": "x"})).await;
    assert!(outside.join("mine.json").exists(), "an absolute path is the user's own choice");
}

#[tokio::test]
async fn wrong_words_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let mut fixture = at(place.path()).await;
    for (tool, arguments, says) in [
        ("create_task", json!({"title": " "}), "the title is empty"),
        ("create_task", json!({"title": "x", "priority": "asap"}), "'asap' is no priority"),
        ("create_task", json!({"title": "x", "dependencies": ["nope"]}), "there is no task 'nope'"),
        ("update_task", json!({"id": "nope", "status": "done"}), "there is no task 'nope'"),
        ("list_tasks", json!({"status": "open?"}), "'open?' is no status"),
    ] {
        let error = fixture.call_error(tool, arguments).await;
        assert!(error.contains(says), "{error}");
    }
    assert!(!place.path().join("tasks.json").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_agents_at_once_lose_nothing() {
    let place = tempfile::tempdir().unwrap();
    let working = (0..4).map(|n| {
        let dir = place.path().to_owned();
        tokio::spawn(async move {
            // Each has its own toolset: they share only the file.
            let mut fixture = at(&dir).await;
            fixture.context.caller.task =
                TaskKey::named(&format!("agent {n}")).candidate_ids().next().unwrap();
            for turn in 1..=8 {
                fixture.context.call = CallId { turn, index: 0 };
                create(&mut fixture, json!({"title": format!("{n}.{turn}")})).await;
            }
        })
    });
    futures::future::join_all(working).await.into_iter().for_each(|worked| worked.unwrap());
    let listed = parsed(&at(place.path()).await.call_text("list_tasks", json!({})).await);
    assert_eq!(listed.as_array().unwrap().len(), 32);
}
