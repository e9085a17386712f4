//! Behind a pooler in transaction mode: nothing of a session is used, and nothing is left on it.

use super::pooler::Pooler;
use super::wire::{Between, lose_answers};
use super::*;
use crate::store::CountCondition;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_is_not_written_twice_behind_a_pooler() {
    let server = beside_or_skip!();
    if Pooler::start(server.port(), 1).is_none() {
        return;
    }
    for between in [Between::WireThenPooler, Between::PoolerThenWire] {
        lose_answers(server, between, 50, None).await.unwrap_or_else(|why| panic!("{between:?}: {why}"));
        let caught = lose_answers(server, between, 10, Some(Mutant::NoToken)).await;
        assert!(caught.is_err(), "{between:?}: without tokens this is not noticed");
    }
}

/// Everything that a store does, over one connection to the server, which is then as if nobody had used it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_on_a_connection_of_a_pooler() {
    let server = server_or_skip!();
    let Some(pooler) = Pooler::start(server.port(), 1) else { return };
    let options = pooler.options(server, &server.fresh_schema());
    PostgresStore::migrate(&options).await.unwrap();
    let next = bystander(&options).await;
    let session = "SELECT string_agg(name || '=' || setting, ' ' ORDER BY name), count(*) FILTER (WHERE source = 'session'), \
                   (SELECT count(*) FROM pg_prepared_statements), (SELECT count(*) FROM pg_listening_channels()), \
                   pg_backend_pid() FROM pg_settings WHERE name <> 'application_name'";
    let before = next.row(session, &[]).await.unwrap().unwrap();

    let store = PostgresStore::open(options.clone()).await.unwrap();
    let mut hints = store.hints();
    let start = store.feed_end().await.unwrap();
    let task = running(&store, "pooled").await;
    let mut limited = submission(id("limited"));
    let filter = TaskFilter::default().live();
    limited.only_if = Arc::new([CountCondition { filter, limit: 9, or_fewer: None, what: "tasks" }]);
    let (reads, appends) = tokio::join!(
        futures::future::join_all((0..50).map(|_| store.read(task, Seq(0), 9))),
        futures::future::join_all((0..50).map(|nth| store.append(Batch::one(
            task,
            Fence::Anyone,
            vec![letter(&nth.to_string())]
        )))),
    );
    assert!(reads.iter().all(Result::is_ok) && appends.iter().all(Result::is_ok), "{reads:?} {appends:?}");
    store.append(limited).await.unwrap();
    store.append(Batch::one(id("limited"), Fence::Anyone, stop())).await.unwrap();
    store.delete(vec![(id("limited"), Seq(3))]).await.unwrap();
    assert!(store.put_stored_value("v", 0, b"x".to_vec()).await.unwrap());
    let blob = store.put_blob(b"y".to_vec()).await.unwrap();
    assert_eq!(store.blob(blob).await.unwrap().unwrap(), b"y");
    assert!(store.abandoned_tasks().await.unwrap().is_empty());
    assert_eq!(store.read_feed(FeedScope::Task(task), start, 99).await.unwrap().items.len(), 52);
    assert!(hints.next().await.is_some());
    drop(store);

    let after = next.row(session, &[]).await.unwrap().unwrap();
    assert_eq!(after.get::<_, i32>(4), before.get::<_, i32>(4), "there is one connection to the server");
    assert_eq!(after.get::<_, &str>(0), before.get::<_, &str>(0));
    let (set, prepared, heard): (i64, i64, i64) = (after.get(1), after.get(2), after.get(3));
    assert_eq!((set, prepared, heard), (before.get(1), 0, 0));
}
