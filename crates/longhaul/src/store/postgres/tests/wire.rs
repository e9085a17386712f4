//! Over a wire that misbehaves, nothing is written twice, and nothing that was acknowledged is lost.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio_util::sync::CancellationToken;

use super::pooler::Pooler;
use super::proxy::{Loss, Proxy, Wire};
use super::*;

const LOSSES: [Loss; 3] = [Loss::AfterItWasDone, Loss::WhileItIsDone, Loss::BeforeItArrived];

/// What is between the store and the server besides the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Between {
    Nothing,
    /// The wire from the store to the pooler misbehaves.
    WireThenPooler,
    /// The wire from the pooler to the server misbehaves.
    PoolerThenWire,
}

/// Loses the answers to this many commits, and compares what was acknowledged with what is there.
pub(super) async fn lose_answers(
    server: &TestPostgres,
    between: Between,
    rounds: usize,
    mutant: Option<Mutant>,
) -> Result<(), String> {
    let options = fresh(server).await;
    let pooler = |port| Pooler::start(port, 3).expect("the caller has looked for one");
    let (proxy, _pooler, mut through);
    match between {
        Between::Nothing => {
            proxy = Proxy::start(server.port()).await;
            (_pooler, through) = (None, over(server, proxy.port, &options));
        }
        Between::WireThenPooler => {
            let pooler = pooler(server.port());
            proxy = Proxy::start(pooler.port).await;
            (_pooler, through) = (Some(pooler), over(server, proxy.port, &options).pooled(true));
        }
        Between::PoolerThenWire => {
            proxy = Proxy::start(server.port()).await;
            let pooler = pooler(proxy.port);
            through = pooler.options(server, &options.schema);
            _pooler = Some(pooler);
        }
    }
    through = through.lanes(1);
    through.mutant = mutant;
    let store = PostgresStore::open(through).await.unwrap();
    let check = PostgresStore::open(options).await.unwrap();
    let task = running(&store, "the one").await;
    let (mut expected, mut claimed) = (Vec::new(), Vec::new());
    for nth in 0..rounds {
        proxy.lose_next(LOSSES[nth % 3]);
        let text = format!("reply {nth}");
        match nth % 5 {
            // An entry that nothing but the token tells apart from one written twice.
            0 | 1 => {
                let end = store.append(owned(task, &text)).await.map_err(|error| error.to_string())?;
                expected.push(text);
                if end != [Seq(2 + expected.len() as u64)] {
                    return Err(format!("round {nth}: {end:?} after {} entries", expected.len()));
                }
            }
            // A submission: there is no row that could be locked.
            2 => {
                let submitted = store.append(submission(id(&text))).await;
                if !matches!(&submitted, Ok(ends) if ends[..] == [Seq(1)]) {
                    return Err(format!("round {nth}: {submitted:?}"));
                }
            }
            // A claim of what the round before has submitted.
            3 => {
                let tasks = store.claim(claim("w", 9)).await.map_err(|error| error.to_string())?;
                if tasks.len() != 1 {
                    return Err(format!("round {nth}: {} tasks were claimed, not the one", tasks.len()));
                }
                claimed.extend(tasks.into_iter().map(|task| task.state.id));
            }
            // A deletion.
            _ => {
                let gone = claimed.pop().ok_or("nothing was claimed")?;
                let ended =
                    Entry::Finished(Box::new(Outcome::Completed { output: "".into(), cut_short: None }));
                let end = check.append(Batch::one(gone, Fence::Attempt(Attempt(1)), vec![ended])).await;
                let end = end.map_err(|error| error.to_string())?;
                store.delete(vec![(gone, end[0])]).await.map_err(|error| format!("round {nth}: {error}"))?;
                if check.task_state(gone).await.unwrap().is_some() {
                    return Err(format!("round {nth}: it is still there"));
                }
            }
        }
    }
    if texts(&check, task).await != expected {
        return Err(format!("written: {:?}, acknowledged: {expected:?}", texts(&check, task).await));
    }
    if proxy.lost() != rounds {
        return Err(format!("{} answers were lost, not {rounds}", proxy.lost()));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_is_not_written_twice() {
    let server = beside_or_skip!();
    lose_answers(server, Between::Nothing, 100, None).await.unwrap();
}

/// A stored value is one statement: its answer is lost with the connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stored_value_whose_answer_is_lost_is_written_once() {
    let server = beside_or_skip!();
    let options = fresh(server).await;
    let proxy = Proxy::start(server.port()).await;
    let store = Arc::new(PostgresStore::open(over(server, proxy.port, &options).lanes(1)).await.unwrap());
    let beside = PostgresStore::open(options.clone()).await.unwrap();
    assert!(store.put_stored_value("v", 0, b"0".to_vec()).await.unwrap());
    let holder = bystander(&options).await;
    for nth in 1..=10_u64 {
        // The row is locked, so the write waits at the server while its connection is cut.
        holder.batch("BEGIN; SELECT 1 FROM @.stored_values FOR UPDATE").await.unwrap();
        let writing = {
            let store = store.clone();
            tokio::spawn(async move { store.put_stored_value("v", nth, nth.to_string().into_bytes()).await })
        };
        until_someone_waits(&holder).await;
        proxy.set(Wire::Cut);
        holder.batch("COMMIT").await.unwrap();
        proxy.set(Wire::Passes);
        assert!(writing.await.unwrap().unwrap(), "round {nth}");
        let stored = beside.stored_value("v").await.unwrap();
        assert_eq!((stored.version, stored.bytes), (nth + 1, nth.to_string().into_bytes()));
    }
}

/// Waits until another session of this database waits for a lock.
pub(super) async fn until_someone_waits(connection: &connect::ServerConnection) {
    let waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database() \
                   AND pg_blocking_pids(pid) @> ARRAY[pg_backend_pid()]";
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    // In a transaction, what is known of the others stays as it was first asked for.
    while {
        connection.query("SELECT pg_stat_clear_snapshot()", &[]).await.unwrap();
        connection.row(waiting, &[]).await.unwrap().is_none()
    } {
        assert!(std::time::Instant::now() < deadline, "nobody waits");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Many writers over a wire that is cut again and again: what was acknowledged is there once, and what failed is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wire_that_is_cut_again_and_again_loses_nothing_and_doubles_nothing() {
    let server = beside_or_skip!();
    let options = fresh(server).await;
    let proxy = Proxy::start(server.port()).await;
    let through = over(server, proxy.port, &options).retry_for(Duration::from_millis(200));
    let store = Arc::new(PostgresStore::open(through).await.unwrap());
    let mut tasks = Vec::new();
    for nth in 0..8 {
        tasks.push(running(&store, &format!("task {nth}")).await);
    }
    let (done, acknowledged) = (CancellationToken::new(), Arc::new(AtomicUsize::new(0)));
    let writers = tasks.iter().map(|task| {
        let (store, task, done, acknowledged) = (store.clone(), *task, done.clone(), acknowledged.clone());
        tokio::spawn(async move {
            let mut expected = Vec::new();
            for nth in 0.. {
                if done.is_cancelled() {
                    break;
                }
                let text = nth.to_string();
                match store.append(owned(task, &text)).await {
                    Ok(_) => {
                        expected.push(text);
                        acknowledged.fetch_add(1, Ordering::SeqCst);
                    }
                    Err(StoreError::Database { fault: DatabaseFault::Busy, .. }) => {}
                    Err(other) => panic!("{other}"),
                }
            }
            (task, expected)
        })
    });
    let writers: Vec<_> = writers.collect();
    for nth in 0..20 {
        // Cut as soon as it goes on; sometimes for longer than anyone tries again.
        let before = acknowledged.load(Ordering::SeqCst);
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        while acknowledged.load(Ordering::SeqCst) < before + nth % 7 + 1 {
            assert!(std::time::Instant::now() < deadline, "it does not go on");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        proxy.set(Wire::Cut);
        tokio::time::sleep(Duration::from_millis(if nth % 10 == 9 { 400 } else { 10 })).await;
        proxy.set(Wire::Passes);
    }
    done.cancel();
    let check = PostgresStore::open(options).await.unwrap();
    for writer in writers {
        let (task, expected) = writer.await.unwrap();
        assert_eq!(texts(&check, task).await, expected);
    }
}

/// A wire that stalls: who waits is told in time, reads go on after it heals.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wire_that_stalls_and_heals_goes_on() {
    let server = beside_or_skip!();
    let options = fresh(server).await;
    let proxy = Proxy::start(server.port()).await;
    let store = Arc::new(PostgresStore::open(over(server, proxy.port, &options)).await.unwrap());
    let task = running(&store, "stalled").await;
    proxy.set(Wire::Stalls);
    let writing = {
        let store = store.clone();
        tokio::spawn(async move { store.append(owned(task, "late")).await })
    };
    let reading = {
        let store = store.clone();
        tokio::spawn(async move { store.task_state(task).await })
    };
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!writing.is_finished() && !reading.is_finished());
    proxy.set(Wire::Passes);
    assert_eq!(writing.await.unwrap().unwrap(), [Seq(3)]);
    assert!(reading.await.unwrap().unwrap().is_some());
    assert_eq!(texts(&*store, task).await, ["late"]);
}
