//! How fast the stores are: acknowledged appends a second, and what one costs in CPU.
//!
//! `cargo run --release -p longhaul-bench --bin store-speed -- [directory [appends]]`; with `appends`, only those of the
//! durable store, for a profiler.

#![allow(clippy::expect_used, reason = "a measurement that fails has nothing to say")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul::entry::{Entry, Order, Returned, Submitted, TeamRef, Voice};
use longhaul::id::{Attempt, CallId, Seq, TaskId, TaskKey, WorkerId};
use longhaul::store::{Batch, Claim, Durability, Fence, Memory, Sqlite, SqliteOptions, Store};

/// The CPU time of this process so far, in ticks of 10 ms.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks: u64 = stat.split_whitespace().skip(13).take(2).filter_map(|n| n.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

async fn measure<F: Future<Output = u64>>(what: &str, work: F) {
    let (wall, busy) = (Instant::now(), cpu());
    let count = work.await;
    let (wall, busy) = (wall.elapsed(), cpu() - busy);
    let each = |d: Duration| d.as_secs_f64() * 1e6 / count as f64;
    println!(
        "  {what:<44} {:>9.0}/s {:>8.1} µs CPU {:>9.1} µs wall",
        count as f64 / wall.as_secs_f64(),
        each(busy),
        each(wall)
    );
}

fn submission(id: TaskId) -> Entry {
    Entry::Submitted(Box::new(Submitted {
        key: TaskKey::chosen(id.letters()),
        order: Order::new("worker", "Look up something and say in a paragraph what you found."),
        team: TeamRef::Named("team".into()),
        parent: None,
        root: id,
        depth: 0,
        continues: None,
        retries: None,
        letter: None,
        above: Vec::new(),
    }))
}

fn step(turn: u32) -> Vec<Entry> {
    let call = CallId { turn, index: 0 };
    let output = "what a tool returned, some two hundred characters of it ".repeat(4).into();
    let returned = Returned {
        call,
        output,
        is_error: false,
        whole: None,
        collected: vec![],
        handoff: None,
        model: None,
    };
    vec![
        Entry::Called { call, tool: "read_file".into(), arguments: None },
        Entry::Returned(Box::new(returned)),
    ]
}

/// Has `writers` do something `rounds` times each.
async fn together<F>(
    writers: usize,
    rounds: u32,
    one: impl Fn(usize, u32) -> F + Clone + Send + Sync + 'static,
) -> u64
where
    F: Future<Output = ()> + Send,
{
    let tasks: Vec<_> = (0..writers)
        .map(|writer| {
            let one = one.clone();
            tokio::spawn(async move {
                for round in 0..rounds {
                    one(writer, round).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("a writer");
    }
    writers as u64 * u64::from(rounds)
}

async fn run(name: &str, store: Arc<dyn Store>) {
    println!("{name}");
    let id = |n: usize| TaskKey::chosen(&format!("task {n}")).candidates().nth(5).expect("eleven");
    let submit = move |store: Arc<dyn Store>, n: usize| async move {
        store.append(Batch::one(id(n), Fence::New, vec![submission(id(n))])).await.expect("submitted");
    };
    let s = store.clone();
    measure("submit, 64 at once", together(64, 50, move |w, r| submit(s.clone(), r as usize * 64 + w))).await;

    store.renew(WorkerId::from("w"), Duration::from_secs(600)).await.expect("renewed");
    let claim = |max| {
        let teams = vec![TeamRef::Named("team".into())];
        Claim { worker: WorkerId::from("w"), teams, roots: None, fresh: false, max }
    };
    let s = store.clone();
    measure(
        "claim one, 8 at once",
        together(8, 100, move |_, _| {
            let (s, claim) = (s.clone(), claim(1));
            async move { assert_eq!(s.claim(claim).await.expect("claimed").len(), 1) }
        }),
    )
    .await;
    while !store.claim(claim(500)).await.expect("claimed").is_empty() {}

    let append = |writers: usize, rounds: u32| {
        let s = store.clone();
        together(writers, rounds, move |w, r| {
            let s = s.clone();
            async move {
                // Ten steps a task, as agents do: those at work at a time were submitted at about the same time.
                let task = (r as usize / 10 * writers + w) % 3200;
                let batch = Batch::one(id(task), Fence::Attempt(Attempt(1)), step(r));
                s.append(batch).await.expect("appended");
            }
        })
    };
    if std::env::args().nth(2).is_some() {
        return measure("append two entries, 64 at once", append(64, 1500)).await;
    }
    measure("append two entries, alone", append(1, 500)).await;
    measure("append two entries, 64 at once", append(64, 500)).await;
    measure("append two entries, 512 at once", append(512, 100)).await;
    let s = store.clone();
    measure(
        "live words, 64 at once",
        together(64, 600, move |w, _| {
            let s = s.clone();
            async move {
                let entry = Entry::Said { voice: Voice::Text, text: "some words ".repeat(10) };
                s.append(Batch::one(id(w), Fence::Attempt(Attempt(1)), vec![entry])).await.expect("appended");
            }
        }),
    )
    .await;
    let s = store.clone();
    measure(
        "head, 8 at once",
        together(8, 3000, move |w, r| {
            let s = s.clone();
            async move { assert!(s.head(id(w * 300 + r as usize % 300)).await.expect("read").is_some()) }
        }),
    )
    .await;
    let s = store.clone();
    measure(
        "read 20 entries of a journal, 8 at once",
        together(8, 1500, move |w, r| {
            let s = s.clone();
            async move {
                assert_eq!(
                    s.read(id(w * 100 + r as usize % 100), Seq(u64::from(r % 2)), 20)
                        .await
                        .expect("read")
                        .len(),
                    20
                )
            }
        }),
    )
    .await;
    let s = store.clone();
    measure(
        "list all 3200 tasks",
        together(1, 20, move |_, _| {
            let s = s.clone();
            async move { assert_eq!(s.list(Default::default()).await.expect("listed").len(), 3200) }
        }),
    )
    .await;
}

#[tokio::main]
async fn main() {
    let directory = std::env::args().nth(1).unwrap_or_else(|| ".".into());
    let directory = tempfile::tempdir_in(directory).expect("a directory");
    if std::env::args().nth(2).is_none() {
        run("memory", Arc::new(Memory::new())).await;
    }
    for durability in [Durability::Full, Durability::Normal] {
        let path = directory.path().join(format!("{durability:?}.db"));
        let options = SqliteOptions { durability, ..SqliteOptions::default() };
        run(&format!("sqlite, {durability:?}"), Arc::new(Sqlite::open_with(path, options).expect("opened")))
            .await;
    }
}
