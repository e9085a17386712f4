use std::path::Path;

use rusqlite::Connection;
use serde_json::{Value, json};

use super::AgentMemory;
use crate::id::{CallId, TaskKey};
use crate::toolset::tool_fixture::ToolFixture;

async fn at(dir: &Path) -> ToolFixture {
    ToolFixture::in_dir(&AgentMemory::new("memory.db"), dir).await
}

fn parsed(text: &str) -> Vec<Value> {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

async fn add(fixture: &mut ToolFixture, text: &str, category: &str) -> String {
    let said = fixture.call_text("add_memory", json!({"memory": text, "category": category})).await;
    said.trim_end_matches('.').rsplit(' ').next().unwrap().to_owned()
}

async fn found(fixture: &mut ToolFixture, arguments: Value) -> Vec<String> {
    let found = parsed(&fixture.call_text("search_memories", arguments).await);
    found.iter().map(|memory| memory["memory"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn memories_are_added_found_changed_and_forgotten() {
    let place = tempfile::tempdir().unwrap();
    let mut fixture = at(place.path()).await;
    let tea = add(&mut fixture, "The user prefers green tea", "preference").await;
    add(&mut fixture, "Deployments run on Fridays", "project").await;
    let all = parsed(&fixture.call_text("get_memories", json!({})).await);
    assert_eq!(all.len(), 2);
    assert_eq!(all[1]["id"], *tea);
    assert_eq!(all[1]["category"], "preference");
    assert_eq!(found(&mut fixture, json!({"query": "tea"})).await, ["The user prefers green tea"]);
    fixture.call_text("update_memory", json!({"id": tea, "memory": "The user prefers coffee"})).await;
    assert_eq!(
        found(&mut fixture, json!({"query": "tea"})).await,
        [""; 0],
        "the index forgets what is changed"
    );
    assert_eq!(
        found(&mut fixture, json!({"query": "coffee", "category": "Preference"})).await,
        ["The user prefers coffee"],
        "the category stayed"
    );
    fixture.call_text("delete_memory", json!({"id": tea})).await;
    assert_eq!(found(&mut fixture, json!({"query": "coffee"})).await, [""; 0]);
    for (tool, arguments) in
        [("delete_memory", json!({"id": tea})), ("update_memory", json!({"id": "nope", "memory": "x"}))]
    {
        assert!(fixture.call_error(tool, arguments).await.contains("there is no memory"));
    }
    assert!(fixture.call_error("add_memory", json!({"memory": "  "})).await.contains("`memory`"));
    assert!(
        fixture
            .call_error("add_memory", json!({"memory": "x".repeat(70_000)}))
            .await
            .contains("70,000 bytes")
    );
}

#[tokio::test]
async fn the_best_match_comes_first_and_words_are_known_by_their_stems() {
    let place = tempfile::tempdir().unwrap();
    let mut fixture = at(place.path()).await;
    let filler = "and much else that was said on that long day in the old office by the river ".repeat(3);
    add(&mut fixture, &format!("A database was mentioned once {filler}"), "").await;
    add(&mut fixture, "Database: Postgres is the database of this project", "").await;
    add(&mut fixture, "Die Müllabfuhr kommt montags", "").await;
    add(&mut fixture, "東京に住んでいます", "").await;
    add(&mut fixture, "See the file parse_config.rs for the loader", "").await;
    let best = found(&mut fixture, json!({"query": "databases"})).await;
    assert_eq!(best.len(), 2);
    assert!(best[0].starts_with("Database: Postgres"));
    for (query, begins) in [
        ("deploy database", ""),
        ("postgr", "Database"),
        ("muellabfuhr", ""),
        ("mullabfuhr", "Die M"),
        ("京", "東京"),
        ("arse_conf", "See the file"),
        ("\"of this project\"", "Database"),
    ] {
        let found = found(&mut fixture, json!({"query": query})).await;
        assert!(
            found.first().map_or(begins.is_empty(), |first| first.starts_with(begins)),
            "{query}: {found:?}"
        );
    }
    assert_eq!(found(&mut fixture, json!({"query": "postgres OR montags"})).await.len(), 2);
}

#[tokio::test]
async fn no_query_is_an_error() {
    let place = tempfile::tempdir().unwrap();
    let mut fixture = at(place.path()).await;
    add(&mut fixture, "C++ & 100% of \"it's\" (AND) NEAR c:\\dir -x", "").await;
    for query in [
        "\"",
        "''",
        "AND",
        "OR OR",
        "NOT",
        "NEAR(",
        "a AND",
        "(",
        ")",
        "*",
        "^",
        "memory:",
        "nosuch: x",
        "-x",
        "c++",
        "100%",
        "\\",
        "a\0b",
        "\"unclosed phrase",
        "{a b} : c",
        "; DROP TABLE memories",
        "",
        "   ",
        "🦀",
    ] {
        let output = fixture.call("search_memories", json!({"query": query})).await;
        let output = output.unwrap_or_else(|error| panic!("{query:?}: {error}"));
        assert!(!output.is_error, "{query:?}: {}", output.text);
    }
    for query in ["c++", "100%", "it's", "NEAR", "c:\\dir"] {
        assert_eq!(found(&mut fixture, json!({"query": query})).await.len(), 1, "{query}");
    }
    assert_eq!(found(&mut fixture, json!({"query": "%"})).await.len(), 1, "no word at all: everything");
}

#[tokio::test]
async fn the_same_call_again_adds_nothing() {
    let place = tempfile::tempdir().unwrap();
    let mut fixture = at(place.path()).await;
    let first = fixture.call_text("add_memory", json!({"memory": "once"})).await;
    assert_eq!(fixture.repeat_call("add_memory", json!({"memory": "once"})).await.unwrap().text, first);
    assert_ne!(fixture.repeat_call("add_memory", json!({"memory": "other"})).await.unwrap().text, first);
    assert_eq!(parsed(&fixture.call_text("get_memories", json!({})).await).len(), 2);
}

#[tokio::test]
async fn a_file_of_docker_agent_is_carried_on() {
    let place = tempfile::tempdir().unwrap();
    let old = Connection::open(place.path().join("memory.db")).unwrap();
    old.execute_batch(
        "CREATE TABLE memories (id TEXT PRIMARY KEY, created_at TEXT, memory TEXT);
         INSERT INTO memories VALUES ('1731', '2025-01-01T00:00:00Z', 'Likes short answers');",
    )
    .unwrap();
    let mut fixture = at(place.path()).await;
    assert_eq!(found(&mut fixture, json!({"query": "answer"})).await, ["Likes short answers"]);
    fixture
        .call_text("update_memory", json!({"id": "1731", "memory": "Likes long answers", "category": "fact"}))
        .await;
    old.execute("INSERT INTO memories (id, memory) VALUES ('2', 'Written by the other program')", [])
        .unwrap();
    assert_eq!(
        found(&mut fixture, json!({"query": "program"})).await.len(),
        1,
        "the index is kept by whoever writes"
    );
    assert_eq!(found(&mut fixture, json!({"category": "fact"})).await, ["Likes long answers"]);
}

#[tokio::test]
async fn a_file_that_is_no_database_or_lies_outside_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let inside = place.path().join("in");
    std::fs::create_dir_all(&inside).unwrap();
    std::fs::write(inside.join("memory.db"), "this is not a database, but a text of some length".repeat(20))
        .unwrap();
    let error = at(&inside).await.call_error("get_memories", json!({})).await;
    assert!(error.contains("'memory.db' cannot be used"), "{error}");
    std::os::unix::fs::symlink(place.path(), inside.join("link")).unwrap();
    for path in ["../memory.db", "link/memory.db", "a/../../m.db"] {
        let mut fixture = ToolFixture::in_dir(&AgentMemory::new(path), &inside).await;
        let error = fixture.call_error("get_memories", json!({})).await;
        assert!(error.contains("not below the working directory"), "{path}: {error}");
    }
    assert!(!place.path().join("memory.db").exists());
    let mut deep = ToolFixture::in_dir(&AgentMemory::new("new/dir/m.db"), &inside).await;
    add(&mut deep, "x", "").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_write_at_once_and_nothing_is_lost() {
    let place = tempfile::tempdir().unwrap();
    let writing = (0..6).map(|n| {
        let dir = place.path().to_owned();
        tokio::spawn(async move {
            // Each call opens the file anew, as another process would.
            let mut fixture = at(&dir).await;
            fixture.context.caller.task =
                TaskKey::named(&format!("agent {n}")).candidate_ids().next().unwrap();
            for turn in 1..=5 {
                fixture.context.call = CallId { turn, index: 0 };
                add(&mut fixture, &format!("number {n}.{turn}"), "").await;
            }
        })
    });
    futures::future::join_all(writing).await.into_iter().for_each(|wrote| wrote.unwrap());
    let mut fixture = at(place.path()).await;
    assert_eq!(found(&mut fixture, json!({"query": "number"})).await.len(), 30);
}
