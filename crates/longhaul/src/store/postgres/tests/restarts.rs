//! The server is restarted under load: nothing that was acknowledged is lost, nothing is there twice, nothing fails that
//! is patient.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// Waits until this many more entries are acknowledged.
async fn until_more(acknowledged: &AtomicUsize, more: usize) {
    let wanted = acknowledged.load(Ordering::SeqCst) + more;
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while acknowledged.load(Ordering::SeqCst) < wanted {
        assert!(std::time::Instant::now() < deadline, "it does not go on");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Many tasks write, each entry until it is acknowledged, as a runner does; meanwhile `failure` happens.
pub(super) async fn write_through(
    server: &TestPostgres,
    options: &PostgresOptions,
    tasks: usize,
    failure: impl FnOnce(&TestPostgres) + Send,
) {
    let store = Arc::new(PostgresStore::open(options.clone()).await.unwrap());
    let mut all = Vec::new();
    for nth in 0..tasks {
        all.push(id(&format!("restarted {nth}")));
    }
    let submitted = all.iter().map(|task| store.append(submission(*task)));
    for answer in futures::future::join_all(submitted).await {
        answer.unwrap();
    }
    store.renew_lease(WorkerId::from("w"), Duration::from_secs(15)).await.unwrap();
    assert_eq!(store.claim(claim("w", tasks)).await.unwrap().len(), tasks);
    let done = tokio_util::sync::CancellationToken::new();
    let acknowledged = Arc::new(AtomicUsize::new(0));
    let writers: Vec<_> = all
        .iter()
        .map(|task| {
            let (store, task, done) = (store.clone(), *task, done.clone());
            let acknowledged = acknowledged.clone();
            tokio::spawn(async move {
                let mut expected = Vec::new();
                while !done.is_cancelled() {
                    let text = expected.len().to_string();
                    loop {
                        match store.append(owned(task, &text)).await {
                            Ok(_) => break,
                            Err(StoreError::Database { fault: DatabaseFault::Busy, .. }) => {}
                            Err(other) => panic!("{other}"),
                        }
                    }
                    expected.push(text);
                    acknowledged.fetch_add(1, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                (task, expected)
            })
        })
        .collect();
    until_more(&acknowledged, 2 * tasks).await;
    tokio::task::block_in_place(|| failure(server));
    let back = std::time::Instant::now();
    store.append(Batch::one(all[0], Fence::Anyone, vec![letter("are you there?")])).await.unwrap();
    assert!(back.elapsed() < Duration::from_secs(5), "on again after {:?}", back.elapsed());
    // The lease ended while the server was away, and nobody could renew it.
    assert!(store.abandoned_tasks().await.unwrap().is_empty(), "nothing is taken from the living");
    until_more(&acknowledged, 2 * tasks).await;
    done.cancel();
    let mut expected = HashMap::new();
    for writer in writers {
        let (task, written) = writer.await.unwrap();
        expected.insert(task, written);
    }
    for (task, expected) in expected {
        assert_eq!(texts(&*store, task).await, expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_restarts_loses_nothing_and_doubles_nothing() {
    let Some(server) = TestPostgres::start(&[]) else {
        return crate::testing::report_skipped("there is no PostgreSQL server");
    };
    let options = fresh(&server).await;
    write_through(&server, &options, 200, |server| {
        server.stop();
        std::thread::sleep(Duration::from_millis(500));
        server.start_again();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_loses_nothing_and_doubles_nothing() {
    let Some(server) = TestPostgres::start(&[]) else {
        return crate::testing::report_skipped("there is no PostgreSQL server");
    };
    let options = fresh(&server).await;
    write_through(&server, &options, 200, |server| {
        for _ in 0..3 {
            server.kill();
            server.start_again();
        }
    })
    .await;
}
