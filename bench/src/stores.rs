//! The stores beside each other, in one run: what an append, a claim, a whole life and a hint cost on PostgreSQL and on
//! SQLite. `./bench/stores [SECONDS]` starts a private server with fsync on.

use std::error::Error;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use longhaul::entry::{Entry, Letter, Order, Outcome, Sender, Submission, TeamRef};
use longhaul::id::{Attempt, LetterId, TaskId, TaskKey, WorkerId};
use longhaul::message::Reply;
use longhaul::store::{
    Batch, ClaimRequest, CountCondition, Fence, Hint, PostgresOptions, PostgresStore, SqliteStore, Store,
    TaskFilter,
};
use longhaul::testing::TestPostgres;

use crate::gauge;

pub(crate) type BenchError = Box<dyn Error + Send + Sync>;

/// What was measured of one store.
pub(crate) struct Rate {
    pub(crate) per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
    pub(crate) client_us: f64,
    pub(crate) server_us: f64,
}

/// A store under measurement, with the server's process if it has one.
pub(crate) struct MeasuredStore {
    name: &'static str,
    store: Arc<dyn Store>,
    /// A second store on the same database, as another process would have it.
    other: Arc<dyn Store>,
    server: Option<u32>,
}

impl MeasuredStore {
    pub(crate) async fn postgres(
        server: &TestPostgres,
        options: &PostgresOptions,
    ) -> Result<MeasuredStore, BenchError> {
        let pid = std::fs::read_to_string(server.directory().join("data/postmaster.pid"))?;
        Ok(MeasuredStore {
            name: "PostgreSQL",
            store: Arc::new(PostgresStore::open(options.clone()).await?),
            other: Arc::new(PostgresStore::open(options.clone()).await?),
            server: pid.lines().next().and_then(|pid| pid.trim().parse().ok()),
        })
    }

    /// CPU time of the server so far, in microseconds.
    pub(crate) fn server_us(&self) -> f64 {
        self.server.map_or(0.0, process_tree_us)
    }
}

pub(crate) fn print_table(seconds: u64) -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(table(Duration::from_secs(seconds))).map_err(|error| error.to_string().into())
}

async fn table(time: Duration) -> Result<(), BenchError> {
    compare(time).await?;
    println!();
    crate::hint_cost::print(15, time, 1).await?;
    println!();
    crate::idle::measure(Duration::from_secs(30)).await
}

async fn compare(time: Duration) -> Result<(), BenchError> {
    let server = tokio::task::block_in_place(|| TestPostgres::start(&["shared_buffers=256MB"]));
    let server = server.ok_or("there is no PostgreSQL server below /usr/lib/postgresql")?;
    let options = PostgresOptions::new(&server.url("bench"))?;
    PostgresStore::migrate(&options).await?;
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("longhaul.db");
    let places = [
        MeasuredStore {
            name: "SQLite",
            store: Arc::new(SqliteStore::open(&path)?),
            other: Arc::new(SqliteStore::open(&path)?),
            server: None,
        },
        MeasuredStore::postgres(&server, &options).await?,
    ];
    println!(
        "{:<26}{:<12}{:>10}{:>10}{:>10}{:>12}{:>12}",
        "", "store", "per s", "p50 ms", "p99 ms", "client µs", "server µs"
    );
    for (name, writers) in [("appends, 1 writer", 1), ("appends, 8 writers", 8), ("appends, 64 writers", 64)]
    {
        for place in &places {
            print_row(name, place, &appends(place, writers, time).await?);
        }
    }
    for place in &places {
        print_row("whole lives, 256 at once", place, &lives(place, 256, time).await?);
    }
    for place in &places {
        print_row("tasks claimed, 8 by 8", place, &claims(place, 10_000).await?);
    }
    for place in &places {
        print_row("hint to another process", place, &hints(place, 200).await?);
    }
    Ok(())
}

fn print_row(what: &str, place: &MeasuredStore, rate: &Rate) {
    println!(
        "{what:<26}{:<12}{:>10.0}{:>10.2}{:>10.2}{:>12.0}{:>12.0}",
        place.name, rate.per_second, rate.p50_ms, rate.p99_ms, rate.client_us, rate.server_us
    );
}

/// Runs `workers` of something until the time is up, and measures each piece.
async fn measure<F, Fut>(
    place: &MeasuredStore,
    workers: usize,
    time: Duration,
    piece: F,
) -> Result<Rate, BenchError>
where
    F: Fn(usize) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<u64, BenchError>> + Send,
{
    let piece = Arc::new(piece);
    let (client, server) = (cpu_us()?, place.server_us());
    let begun = Instant::now();
    let running = (0..workers).map(|nth| {
        let piece = piece.clone();
        tokio::spawn(async move {
            let (mut took, mut done) = (Vec::new(), 0);
            while begun.elapsed() < time {
                let start = Instant::now();
                let pieces = piece(nth).await?;
                if pieces == 0 {
                    break;
                }
                took.push(start.elapsed().as_secs_f64() * 1e3);
                done += pieces;
            }
            Ok::<_, BenchError>((took, done))
        })
    });
    let (mut took, mut done) = (Vec::new(), 0);
    for worker in futures::future::join_all(running).await {
        let (mine, pieces) = worker??;
        took.extend(mine);
        done += pieces;
    }
    let seconds = begun.elapsed().as_secs_f64();
    took.sort_by(f64::total_cmp);
    let at = |part: usize| took.get(took.len() * part / 100).copied().unwrap_or_default();
    let each = done.max(1) as f64;
    Ok(Rate {
        per_second: done as f64 / seconds,
        p50_ms: at(50),
        p99_ms: at(99),
        client_us: (cpu_us()? - client) / each,
        server_us: (place.server_us() - server) / each,
    })
}

fn cpu_us() -> Result<f64, BenchError> {
    gauge::cpu_us().map_err(|error| error.to_string().into())
}

/// CPU time of a process and its children so far, in microseconds.
pub(crate) fn process_tree_us(server: u32) -> f64 {
    let mut ticks = 0;
    for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(stat) = std::fs::read_to_string(process.path().join("stat")) else { continue };
        let Some((pid, rest)) = stat.split_once(' ') else { continue };
        let fields: Vec<&str> = rest.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let field =
            |nth: usize| fields.get(nth).and_then(|field| field.parse::<u64>().ok()).unwrap_or_default();
        let is_server = pid.parse() == Ok(server);
        if is_server || field(1) == u64::from(server) {
            ticks += field(11) + field(12) + if is_server { field(13) + field(14) } else { 0 };
        }
    }
    ticks as f64 * 1e4
}

pub(crate) fn fresh_id() -> TaskId {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let words = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    TaskKey::named(&words).candidate_ids().last().unwrap_or_else(|| unreachable!("there are eleven"))
}

pub(crate) fn submission(id: TaskId, team: &str) -> Batch {
    let (key, team) = (TaskKey::named(id.letters()), TeamRef::Named(team.into()));
    let entry = Entry::Submitted(Box::new(Submission::root(id, key, Order::new("worker", "do it"), team)));
    Batch::one(id, Fence::New, vec![entry])
}

pub(crate) fn wanted(team: &str, max: usize) -> ClaimRequest {
    let (worker, teams) = (WorkerId::from("bench"), vec![TeamRef::Named(team.into())]);
    ClaimRequest { worker, teams, roots: None, fresh_only: false, except: vec![], max }
}

/// Six hundred bytes.
pub(crate) fn entry() -> Entry {
    Entry::Replied(Arc::new(Reply::text_only("a word and another; ".repeat(27))))
}

pub(crate) fn owned(task: TaskId, entries: Vec<Entry>) -> Batch {
    Batch::one(task, Fence::Attempt(Attempt(1)), entries)
}

pub(crate) async fn claimed(store: &dyn Store, team: &str, tasks: usize) -> Result<Vec<TaskId>, BenchError> {
    store.renew_lease(WorkerId::from("bench"), Duration::from_secs(3600)).await?;
    futures::future::try_join_all((0..tasks).map(|_| store.append(submission(fresh_id(), team)))).await?;
    Ok(store.claim(wanted(team, tasks)).await?.into_iter().map(|task| task.state.id).collect())
}

pub(crate) async fn appends(
    place: &MeasuredStore,
    writers: usize,
    time: Duration,
) -> Result<Rate, BenchError> {
    let tasks = claimed(&*place.store, &format!("appends {writers}"), writers).await?;
    let store = place.store.clone();
    let append = move |nth: usize| {
        let (store, task) = (store.clone(), tasks[nth]);
        async move {
            store.append(owned(task, vec![entry()])).await?;
            Ok(1)
        }
    };
    measure(place, writers, time, append).await
}

/// Submit with a limit, claim, four entries, end with a letter to one of ten parents.
async fn lives(place: &MeasuredStore, at_once: usize, time: Duration) -> Result<Rate, BenchError> {
    // A mailbox holds 256 letters, and nobody reads these: ten parents at a time get 2,000 of them.
    let parents = Arc::new(claimed(&*place.store, "parents", 500).await?);
    let (store, lived) = (place.store.clone(), Arc::new(AtomicUsize::new(0)));
    let life = move |_| {
        let (store, parents) = (store.clone(), parents.clone());
        let nth = lived.fetch_add(1, Ordering::Relaxed);
        async move {
            let mut batch = submission(fresh_id(), "lives");
            let filter = TaskFilter::default().live();
            batch.only_if =
                Arc::new([CountCondition { filter, limit: 100_000, or_fewer: None, what: "tasks" }]);
            store.append(batch).await?;
            let task = loop {
                if let Some(task) = store.claim(wanted("lives", 1)).await?.pop() {
                    break task.state.id;
                }
            };
            for _ in 0..4 {
                store.append(owned(task, vec![entry()])).await?;
            }
            let outcome = Outcome::Completed { output: "done".into(), cut_short: None };
            let letter = Letter::new(LetterId::for_task_end(task), Sender::Person, "it ended".to_owned());
            let end = owned(task, vec![Entry::Finished(Box::new(outcome))]);
            let parent = parents[(nth / 2000 * 10 + nth % 10) % parents.len()];
            store.append(end.and_write(parent, Fence::Anyone, vec![Entry::Letter(Box::new(letter))])).await?;
            Ok(1)
        }
    };
    measure(place, at_once, time, life).await
}

async fn claims(place: &MeasuredStore, pending: usize) -> Result<Rate, BenchError> {
    futures::future::try_join_all((0..pending).map(|_| place.store.append(submission(fresh_id(), "claims"))))
        .await?;
    let store = place.store.clone();
    let claim = move |_| {
        let store = store.clone();
        async move { Ok(store.claim(wanted("claims", 8)).await?.len() as u64) }
    };
    measure(place, 8, Duration::from_secs(60), claim).await
}

/// From the acknowledgement of a letter here to hearing of it there.
async fn hints(place: &MeasuredStore, rounds: usize) -> Result<Rate, BenchError> {
    let task = claimed(&*place.store, "hints", 1).await?[0];
    let mut heard = place.other.hints();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut took = Vec::with_capacity(rounds);
    let sent = AtomicUsize::new(0);
    for _ in 0..rounds {
        tokio::time::sleep(Duration::from_millis(25)).await;
        let letter = LetterId::from(format!("hint {}", sent.fetch_add(1, Ordering::Relaxed)).as_str());
        let letter = Entry::Letter(Box::new(Letter::new(letter, Sender::Person, "listen".to_owned())));
        let start = Instant::now();
        place.store.append(Batch::one(task, Fence::Anyone, vec![letter])).await?;
        while !matches!(heard.next().await, Some(Hint::Task { task: of, .. }) if of == task) {}
        took.push(start.elapsed().as_secs_f64() * 1e3);
    }
    took.sort_by(f64::total_cmp);
    let at = |part: usize| took.get(took.len() * part / 100).copied().unwrap_or_default();
    Ok(Rate { per_second: 0.0, p50_ms: at(50), p99_ms: at(99), client_us: 0.0, server_us: 0.0 })
}
