//! A store that has grown: frequent queries use an index, and a deletion reads only what it deletes.

use super::*;
use crate::id::AgentName;
use crate::store::sqlite::{deletion, feed};
use crate::task::Status;

/// SQLite's plan for a query.
fn plan(connection: &Connection, sql: &str) -> String {
    let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let lines =
        statement.raw_query().mapped(|row| row.get::<_, String>("detail")).collect::<Result<Vec<_>, _>>();
    lines.unwrap().join("; ")
}

/// The plan of a query that must not read a whole table.
fn searches(connection: &Connection, sql: &str) {
    let plan = plan(connection, sql);
    assert!(!plan.contains("SCAN tasks") && !plan.contains("SCAN slips"), "{sql}: {plan}");
    assert!(!plan.contains("SCAN journal") && !plan.contains("SCAN kept"), "{sql}: {plan}");
    assert!(plan.contains("SEARCH"), "{sql}: {plan}");
}

#[tokio::test]
async fn whatever_is_asked_for_is_found_by_an_index() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory);
    drop(SqliteStore::open(&path).unwrap());
    // Opened like the readers: the planner's settings are theirs.
    let connection = schema::open_reader(&DatabasePath::prepare(&path).unwrap(), Duration::ZERO).unwrap();
    let (some, now) = (Some(id(0)), Some(jiff::Timestamp::now()));
    let all = TaskFilter::default;
    let status = |status| TaskFilter { status: vec![status], ..TaskFilter::default() };
    let agents = vec![AgentName::from("a"), AgentName::from("b")];
    for (filter, by) in [
        (all().live(), "tasks_by_status"),
        (status(Status::Failed), "tasks_by_status"),
        (TaskFilter { since: now, ..status(Status::Completed) }, "tasks_by_created"),
        (TaskFilter { agents: agents.clone(), ..all().live() }, "tasks_by_status"),
        (TaskFilter { agents: agents.clone(), ..status(Status::Completed) }, "tasks_by_agent"),
        (TaskFilter::tree(id(0)), "tasks_by_root"),
        (
            TaskFilter { agents: agents.clone(), since: now, ..TaskFilter::tree(id(0)).live() },
            "tasks_by_root",
        ),
        (TaskFilter::children(id(0)).live(), "tasks_by_parent_status"),
        (TaskFilter { continues: some, ..all() }, "tasks_by_continues"),
        (TaskFilter { retries: some, ..all().live() }, "tasks_by_retries"),
        (TaskFilter { agents, ..all() }, "tasks_by_agent"),
        (TaskFilter { roots: true, ..all() }, "tasks_by_parent_status"),
        (TaskFilter { since: now, ..all() }, "tasks_by_created"),
        (TaskFilter { before: now, roots: true, ..all() }, "tasks_by_created"),
        (TaskFilter { active_since: now, ..all() }, "tasks_by_quiet"),
        (TaskFilter { active_since: now, ..all() }, "tasks_by_status"),
        (TaskFilter { quiet_before: now, roots: true, ..all() }, "tasks_by_quiet"),
    ] {
        let (condition, _) = rows::filter_condition(&filter);
        for sql in [
            format!("SELECT n FROM tasks WHERE {condition}"),
            format!("SELECT count(*) FROM (SELECT 1 FROM tasks WHERE {condition} LIMIT 5)"),
        ] {
            searches(&connection, &sql);
            let plan = plan(&connection, &sql);
            assert!(plan.contains(by), "{filter:?}: {plan}");
        }
    }
    // The newest are at the end of the table.
    let newest = plan(&connection, "SELECT n FROM tasks WHERE 1 ORDER BY n DESC LIMIT 5");
    assert!(!newest.contains("TEMP B-TREE"), "{newest}");
    // A few of many children, or of a large tree, are found without reading all of them.
    for many in [TaskFilter::children(id(0)).live(), TaskFilter::tree(id(0)).live()] {
        for part in rows::parts_in_order(&TaskFilter { limit: Some(5), ..many }) {
            let (condition, _) = rows::filter_condition(&part.filter);
            let sql = format!("SELECT n FROM tasks WHERE {condition} ORDER BY n DESC LIMIT 5");
            searches(&connection, &sql);
            let plan = plan(&connection, &sql);
            assert!(part.in_order && !plan.contains("TEMP B-TREE"), "{plan}");
        }
    }
}

/// The next page of a list costs as much as the first, and the feed as much as it has.
#[tokio::test]
async fn pages_and_feeds_are_found_by_an_index() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory);
    drop(SqliteStore::open(&path).unwrap());
    let connection = schema::open_reader(&DatabasePath::prepare(&path).unwrap(), Duration::ZERO).unwrap();
    let page = || TaskFilter::newest(5).submitted_before(Some(id(0)));
    for filter in [page(), page().roots(true), page().roots(true).live(), TaskFilter::newest(5).roots(true)] {
        for part in rows::parts_in_order(&filter) {
            let (condition, _) = rows::filter_condition(&part.filter);
            let sql = format!("SELECT n FROM tasks WHERE {condition} ORDER BY n DESC LIMIT 5");
            let plan = plan(&connection, &sql);
            assert!(part.in_order && plan.contains("SEARCH") && !plan.contains("SCAN"), "{filter:?}: {plan}");
            assert!(!plan.contains("TEMP B-TREE"), "{filter:?}: {plan}");
        }
    }
    for sql in feed::STATEMENTS {
        searches(&connection, sql);
    }
}

#[tokio::test]
async fn a_deletion_looks_at_nothing_but_what_it_deletes() {
    let directory = tempfile::tempdir().unwrap();
    drop(SqliteStore::open(file(&directory)).unwrap());
    let connection =
        schema::open(&DatabasePath::prepare(&file(&directory)).unwrap(), Duration::ZERO).unwrap();
    for sql in deletion::STATEMENTS {
        searches(&connection, sql);
    }
}

/// A task that has ended, with a journal as long as that.
async fn long(store: &SqliteStore, n: usize, entries: usize) -> (TaskId, Seq) {
    store.append(submission(id(n), "long")).await.unwrap();
    store.renew_lease(WorkerId::from("w"), Duration::from_secs(60)).await.unwrap();
    assert_eq!(store.claim(claim("w", 1)).await.unwrap().len(), 1);
    let said =
        |n: usize| Entry::Said { voice: LiveTextKind::Text, text: format!("{n} {}", "word ".repeat(50)) };
    let said = (0..entries).map(said).collect();
    store.append(Batch::one(id(n), Fence::Attempt(Attempt(1)), said)).await.unwrap();
    let outcome = Outcome::Completed { output: "done".into(), cut_short: None };
    let end = vec![Entry::Finished(Box::new(outcome))];
    let ends = store.append(Batch::one(id(n), Fence::Attempt(Attempt(1)), end)).await.unwrap();
    (id(n), ends[0])
}

/// Its task is deleted in the first transaction; the journal in as many as needed, between which others
/// write.
#[tokio::test]
async fn a_long_journal_is_deleted_in_steps_that_let_others_through() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory);
    let store = SqliteStore::open(&path).unwrap();
    let task = long(&store, 0, 30_000).await;
    // The first transaction is over its time from the start.
    let held = Box::new(|_: &Connection| {
        std::thread::sleep(Duration::from_millis(20));
        Ok(())
    });
    let (held, first) = tokio::join!(
        store.writer.request(WriterRequest::Test { durable: true, act: held }),
        store.writer.request(WriterRequest::Delete(vec![task])),
    );
    held.unwrap();
    assert!(matches!(first.unwrap(), WriterReply::Flag(false)), "not all of it went at once");
    assert_eq!(store.task_state(task.0).await.unwrap(), None);
    assert!(store.read(task.0, Seq(0), 9).await.unwrap().is_empty());
    let rows = |connection: &Connection| -> i64 {
        connection.query_row("SELECT count(*) FROM journal WHERE task = 1", [], |row| row.get(0)).unwrap()
    };
    let database = Connection::open(&path).unwrap();
    assert!(rows(&database) > 0);
    assert_eq!(
        SqliteStore::examine(&path).unwrap().unwrap().problems,
        Vec::<String>::new(),
        "that is no damage"
    );
    // The next deletion does the rest: this process may have died here.
    drop(store);
    let store = SqliteStore::open(&path).unwrap();
    let other = long(&store, 1, 1).await;
    store.delete(vec![other]).await.unwrap();
    assert_eq!(rows(&database), 0);
    let left: i64 = database.query_row("SELECT count(*) FROM garbage", [], |row| row.get(0)).unwrap();
    assert_eq!(left, 0);
}

/// An unfinished task is found by either of the two columns that say so, however old it is, and its damage is
/// reported.
#[tokio::test]
async fn the_quick_look_finds_harm_to_open_tasks_and_the_full_one_all_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory);
    let store = SqliteStore::open(&path).unwrap();
    store.append(submission(id(0), "stays open")).await.unwrap();
    let old = {
        store.renew_lease(WorkerId::from("w"), Duration::from_secs(60)).await.unwrap();
        store.claim(claim("w", 1)).await.unwrap();
        long(&store, 1, 3).await.0
    };
    for n in 2..DatabaseHealth::NEWEST + 10 {
        store.append(submission(id(n), &"text ".repeat(4000))).await.unwrap();
        let stop = crate::entry::StopRequest { cause: crate::entry::StopCause::Person, note: None };
        store.append(Batch::one(id(n), Fence::Anyone, vec![Entry::StopRequested(stop)])).await.unwrap();
    }
    drop(store);
    let quick = || {
        let health = SqliteStore::examine_newest(&path).unwrap().unwrap();
        assert!(!health.checked_all && health.size > DatabaseHealth::SMALL, "{health:?}");
        health.problems
    };
    assert_eq!(quick(), Vec::<String>::new());
    let database = Connection::open(&path).unwrap();
    let journal = |n: i64, format: i64| {
        let sql = "UPDATE journal SET format = ?2 WHERE task = ?1 AND seq = 1";
        assert_eq!(database.execute(sql, [n, format]).unwrap(), 1);
    };
    journal(2, 77);
    assert_eq!(quick(), Vec::<String>::new(), "it has ended long ago");
    let full = SqliteStore::examine(&path).unwrap().unwrap();
    assert!(
        full.checked_all && full.problems.iter().any(|wrong| wrong.contains(&old.to_string())),
        "{full:?}"
    );
    journal(1, 77);
    assert!(quick().iter().any(|wrong| wrong.contains(&id(0).to_string())), "{:?}", quick());
    journal(1, i64::from(crate::entry::FORMAT));
    assert_eq!(quick(), Vec::<String>::new());
    for damage in ["status = 2", "quiet = 7"] {
        database.execute(&format!("UPDATE tasks SET {damage} WHERE n = 1"), []).unwrap();
        assert!(quick().iter().any(|wrong| wrong.contains(&id(0).to_string())), "{damage}: {:?}", quick());
        // A process that continues unfinished tasks rebuilds it.
        let store = SqliteStore::open(&path).unwrap();
        assert_eq!(store.find_damaged(TaskFilter::default().live(), true).await.unwrap(), []);
        drop(store);
        assert_eq!(quick(), Vec::<String>::new(), "{damage}");
    }
}
