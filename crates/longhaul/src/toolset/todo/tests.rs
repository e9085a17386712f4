use std::sync::Arc;

use serde_json::{Value, json};

use super::Todo;
use crate::dispatch::Caller;
use crate::id::{CallId, TaskId, TaskKey};
use crate::store::{MemoryStore, SqliteStore, Store};
use crate::tool::ToolStorage;
use crate::toolset::tool_fixture::ToolFixture;

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn ids(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|entry| entry["id"].as_str().unwrap()).collect()
}

/// A task of a tree, with a store.
async fn at(store: &Arc<dyn Store>, task: TaskId, root: TaskId, toolset: Todo) -> ToolFixture {
    let mut fixture = ToolFixture::new(&toolset).await;
    fixture.context.caller = Caller { task, root, agent: "a".into(), depth: 0 };
    fixture.context.storage = ToolStorage::new(store.clone(), &fixture.context.caller);
    fixture
}

fn task(word: &str) -> TaskId {
    TaskKey::named(word).candidate_ids().next().unwrap()
}

#[tokio::test]
async fn entries_are_made_changed_and_listed() {
    let mut fixture = ToolFixture::new(&Todo::new()).await;
    let one = parsed(&fixture.call_text("create_todo", json!({"description": "Read the issue"})).await);
    assert_eq!(one["created"], json!({"id": "todo_1", "description": "Read the issue", "status": "pending"}));
    let many =
        parsed(&fixture.call_text("create_todos", json!({"descriptions": ["Write it", "Test it"]})).await);
    assert_eq!(ids(&many["created"]), ["todo_2", "todo_3"]);
    assert_eq!(ids(&many["all_todos"]), ["todo_1", "todo_2", "todo_3"]);
    let updates = json!({"updates": [{"id": "todo_1", "status": "completed"}, {"id": "todo_2", "status": "in_progress"},
        {"id": "todo_9", "status": "completed"}]});
    let updated = parsed(&fixture.call_text("update_todos", updates).await);
    assert_eq!(updated["not_found"], json!(["todo_9"]));
    assert_eq!(updated["reminder"], "Not completed yet: in-progress: todo_2; pending: todo_3.");
    let listed = parsed(&fixture.call_text("list_todos", json!({})).await);
    assert_eq!(listed["todos"][1]["status"], "in-progress");
    // As a string, the way some models write lists.
    let done =
        json!({"updates": r#"[{"id":"todo_2","status":"done"},{"id":"todo_3","status":"completed"}]"#});
    assert_eq!(parsed(&fixture.call_text("update_todos", done).await).get("reminder"), None);
}

#[tokio::test]
async fn what_is_wrong_is_said_and_changes_nothing() {
    let mut fixture = ToolFixture::new(&Todo::new()).await;
    assert!(
        fixture
            .call_error("create_todos", json!({"descriptions": ["", " "]}))
            .await
            .contains("nothing to put")
    );
    fixture.call_text("create_todo", json!({"description": "x"})).await;
    let wrong =
        json!({"updates": [{"id": "todo_1", "status": "completed"}, {"id": "todo_1", "status": "maybe"}]});
    assert!(fixture.call_error("update_todos", wrong).await.contains("'maybe' is no status"));
    let none =
        fixture.call("update_todos", json!({"updates": [{"id": "todo_7", "status": "done"}]})).await.unwrap();
    assert!(none.is_error && none.text.contains("todo_7"));
    let listed = parsed(&fixture.call_text("list_todos", json!({})).await);
    assert_eq!(listed["todos"][0]["status"], "pending");
    let many: Vec<String> = (0..600).map(|n| n.to_string()).collect();
    assert!(
        fixture
            .call_error("create_todos", json!({"descriptions": many}))
            .await
            .contains("more than 500 entries")
    );
}

#[tokio::test]
async fn the_same_call_again_makes_no_second_entry() {
    let mut fixture = ToolFixture::new(&Todo::new()).await;
    let args = json!({"descriptions": ["a", "b"]});
    let first = fixture.call_text("create_todos", args.clone()).await;
    assert_eq!(fixture.repeat_call("create_todos", args.clone()).await.unwrap().text, first);
    let second = parsed(&fixture.call_text("create_todos", args).await);
    assert_eq!(ids(&second["all_todos"]).len(), 4, "another call that says the same is meant");
}

#[tokio::test]
async fn a_list_is_there_again_when_the_store_is_opened_again() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("store.db");
    let me = task("me");
    {
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&path).unwrap());
        at(&store, me, me, Todo::new())
            .await
            .call_text("create_todo", json!({"description": "survive"}))
            .await;
    }
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&path).unwrap());
    let listed = at(&store, me, me, Todo::new()).await.call_text("list_todos", json!({})).await;
    assert!(listed.contains("survive"), "{listed}");
}

#[tokio::test]
async fn an_own_list_is_a_tasks_and_a_shared_one_its_trees() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let (root, child, other) = (task("root"), task("child"), task("other"));
    for (toolset, seen_by_child) in [(Todo::new(), 0), (Todo::new().shared(true), 1)] {
        at(&store, root, root, toolset).await.call_text("create_todo", json!({"description": "x"})).await;
        let child = parsed(&at(&store, child, root, toolset).await.call_text("list_todos", json!({})).await);
        assert_eq!(child["todos"].as_array().unwrap().len(), seen_by_child);
        let other = parsed(&at(&store, other, other, toolset).await.call_text("list_todos", json!({})).await);
        assert_eq!(other["todos"], json!([]), "another tree has nothing to do with it");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_agents_write_one_list_at_once_and_lose_nothing() {
    let place = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(place.path().join("s.db")).unwrap());
    let root = task("root");
    let writers = (0..12).map(|n| {
        let store = store.clone();
        tokio::spawn(async move {
            let mut fixture = at(&store, task(&format!("child {n}")), root, Todo::new().shared(true)).await;
            for turn in 1..=3 {
                fixture.context.call = CallId { turn, index: 0 };
                fixture.call_text("create_todo", json!({"description": format!("{n}.{turn}")})).await;
            }
        })
    });
    futures::future::join_all(writers).await.into_iter().for_each(|written| written.unwrap());
    let listed = parsed(
        &at(&store, root, root, Todo::new().shared(true)).await.call_text("list_todos", json!({})).await,
    );
    let mut ids = ids(&listed["todos"]);
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 36);
}
