//! The order of the feed, where transactions overlap.

use super::*;
use crate::store::FeedItem;

/// Another process began first, and so has the lower number; it waits, and writes second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_began_first_and_wrote_second_comes_second_in_the_feed() {
    // Of its own: a transaction that stays open on a server holds up the feeds of all its stores.
    let Some(server) = TestPostgres::start(&[]) else {
        return crate::testing::report_skipped("there is no PostgreSQL server");
    };
    let server = &server;
    let options = fresh(server).await;
    let store = PostgresStore::open(options.clone()).await.unwrap();
    let (task, other) = (running(&store, "one").await, running(&store, "other").await);
    let start = store.feed_end().await.unwrap();

    let late = bystander(&options).await;
    late.batch("BEGIN").await.unwrap();
    late.query("SELECT pg_current_xact_id()::text", &[]).await.unwrap();
    store.append(owned(task, "first")).await.unwrap();
    store.append(owned(other, "beside it")).await.unwrap();
    // What is acknowledged is not read while something that began before may still come before it.
    assert!(store.read_feed(FeedScope::All, start, 9).await.unwrap().items.is_empty());
    assert_eq!(store.feed_end().await.unwrap(), start);
    let text = task.to_string();
    late.query("SELECT 1 FROM @.tasks WHERE id = $1 FOR NO KEY UPDATE", &[&text]).await.unwrap();
    let row = late.row(appends::NOW_AND_PLACE, &[]).await.unwrap().unwrap();
    let (at, k): (i64, i64) = (row.get(0), row.get(1));
    let bytes = replied("second").encode().unwrap();
    let insert = "INSERT INTO @.journal (task, seq, at, kind, format, tx, k, entry) SELECT task, 4, $2, kind, format, 0, $3, $4 \
                  FROM @.journal WHERE task = $1 AND seq = 3";
    assert_eq!(late.execute(insert, &[&text, &at, &k, &bytes]).await.unwrap(), 1);
    late.batch("COMMIT").await.unwrap();

    let page = store.read_feed(FeedScope::All, start, 9).await.unwrap();
    let seqs: Vec<_> = page
        .items
        .iter()
        .filter_map(|item| match item {
            FeedItem::Entry { task: of, record, .. } if *of == task => Some(record.seq.0),
            _ => None,
        })
        .collect();
    assert_eq!((page.items.len(), &seqs[..]), (3, &[3, 4][..]));
    assert!(page.items.windows(2).all(|two| two[0].position() < two[1].position()));
    assert!(store.read_feed(FeedScope::All, page.position, 9).await.unwrap().items.is_empty());
}

/// Two stores write to the same tasks at once; a reader that always reads on finds each journal in order, once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_of_the_feed_finds_what_two_stores_write_in_order() {
    // Of its own: a transaction that stays open on a server holds up the feeds of all its stores.
    let Some(server) = TestPostgres::start(&[]) else {
        return crate::testing::report_skipped("there is no PostgreSQL server");
    };
    let server = &server;
    let options = fresh(server).await.lanes(3);
    let stores = [0, 1].map(|_| now(PostgresStore::open(options.clone())).unwrap()).map(Arc::new);
    let mut tasks = Vec::new();
    for nth in 0..4 {
        tasks.push(running(&stores[0], &nth.to_string()).await);
    }
    let start = stores[0].feed_end().await.unwrap();
    let writers: Vec<_> = (0..8_usize)
        .map(|nth| {
            let (store, tasks) = (stores[nth % 2].clone(), tasks.clone());
            tokio::spawn(async move {
                for round in 0..40_usize {
                    let both = owned(tasks[round % 4], "a").and_write(
                        tasks[(round + nth) % 4],
                        Fence::Anyone,
                        vec![letter(&format!("{nth} {round}"))],
                    );
                    store.append(both).await.unwrap();
                }
            })
        })
        .collect();
    let (mut at, mut found) = (start, Vec::new());
    while found.len() < 640 {
        let page = stores[1].read_feed(FeedScope::All, at, 50).await.unwrap();
        at = page.position;
        for item in page.items {
            let FeedItem::Entry { task, record, .. } = item else { panic!("{item:?}") };
            found.push((task, record.seq));
        }
    }
    for writer in writers {
        writer.await.unwrap();
    }
    assert!(stores[0].read_feed(FeedScope::All, at, 50).await.unwrap().items.is_empty());
    for task in tasks {
        let seqs: Vec<_> = found.iter().filter(|(of, _)| *of == task).map(|(_, seq)| *seq).collect();
        let whole = stores[0].read(task, Seq(2), usize::MAX).await.unwrap();
        assert_eq!(seqs, whole.iter().map(|record| record.seq).collect::<Vec<_>>());
    }
}

/// A dump that is restored on another server, whose numbers begin again: the store says so, and `migrate` goes on after
/// the last entry.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dump_from_another_server_goes_on_after_it_was_migrated() {
    // Of its own: a transaction that stays open on a server holds up the feeds of all its stores.
    let Some(server) = TestPostgres::start(&[]) else {
        return crate::testing::report_skipped("there is no PostgreSQL server");
    };
    let server = &server;
    let options = fresh(server).await;
    let store = PostgresStore::open(options.clone()).await.unwrap();
    let task = running(&store, "moved").await;
    drop(store);
    let other = bystander(&options).await;
    other.batch("UPDATE @.journal SET k = k + 1000000000").await.unwrap();
    let refused = PostgresStore::open(options.clone()).await.unwrap_err().to_string();
    assert!(refused.contains("longhaul store migrate"), "{refused}");
    PostgresStore::migrate(&options).await.unwrap();
    let store = PostgresStore::open(options).await.unwrap();
    let start = store.feed_end().await.unwrap();
    store.append(owned(task, "on it goes")).await.unwrap();
    assert!(store.feed_end().await.unwrap() > start);
    assert_eq!(store.read_feed(FeedScope::All, start, 9).await.unwrap().items.len(), 1);
}
