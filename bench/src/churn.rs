//! A day of churn in minutes: many tasks are submitted, run and deleted beside a transaction that stays open for a minute, so that
//! the server can clean up nothing of what is deleted meanwhile.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use longhaul::entry::{Entry, Outcome};
use longhaul::id::{Seq, TaskId, WorkerId};
use longhaul::store::{PostgresOptions, PostgresStore, Store};
use longhaul::testing::TestPostgres;

use crate::stores::{BenchError, entry, fresh_id, owned, submission, wanted};

const WORKERS: usize = 8;
const SEATS: usize = 8;
/// How many tasks are deleted together.
const TOGETHER: usize = 64;
const OPEN: Duration = Duration::from_secs(60);

pub(crate) fn print(tasks: usize) -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(churn(tasks)).map_err(|error| error.to_string().into())
}

async fn churn(tasks: usize) -> Result<(), BenchError> {
    let server = tokio::task::block_in_place(|| TestPostgres::start(&["shared_buffers=256MB"]));
    let server = server.ok_or("there is no PostgreSQL server below /usr/lib/postgresql")?;
    // What the same tasks take if they are all kept.
    let kept = lives(&server, "kept", tasks, false).await?;
    println!("{tasks} tasks submitted, run and kept: {kept}");
    let (begun, is_open) = tokio::sync::oneshot::channel();
    let directory = server.directory().display().to_string();
    let port = server.port().to_string();
    let bystander = tokio::task::spawn_blocking(move || hold(&directory, &port, begun));
    is_open.await?;
    let opened = Instant::now();
    let churned = lives(&server, "churned", tasks, true).await?;
    println!("{tasks} tasks submitted, run and deleted: {churned}");
    println!("  of {:?} in which a transaction was open", opened.elapsed().min(OPEN));
    bystander.await??;
    let again = lives(&server, "churned", tasks, true).await?;
    println!("the same again, after it has ended: {again}");
    if churned.bytes > 2 * kept.bytes {
        return Err(format!("the tables took more than twice {} MB", kept.bytes >> 20).into());
    }
    let late = Duration::from_millis(50);
    if churned.claim_p99 > late || again.claim_p99 > late {
        return Err("claims took longer than 50 ms at p99".into());
    }
    Ok(())
}

/// Holds a transaction open that has seen everything there is.
fn hold(directory: &str, port: &str, begun: tokio::sync::oneshot::Sender<()>) -> Result<(), BenchError> {
    use std::io::{BufRead as _, Write as _};
    let mut psql = std::process::Command::new("psql")
        .args(["-h", directory, "-p", port, "-U", TestPostgres::USER, "-d", "postgres", "-qAt"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()?;
    let mut orders = psql.stdin.take().ok_or("its input")?;
    let mut answers = std::io::BufReader::new(psql.stdout.take().ok_or("its output")?);
    writeln!(orders, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_current_xact_id();")?;
    answers.read_line(&mut String::new())?;
    let _ = begun.send(());
    std::thread::sleep(OPEN);
    writeln!(orders, "COMMIT;")?;
    drop(orders);
    psql.wait()?;
    Ok(())
}

/// What many lives took.
struct Lives {
    per_second: f64,
    claim_p50: Duration,
    claim_p99: Duration,
    claim_max: Duration,
    bytes: usize,
}

impl std::fmt::Display for Lives {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        write!(
            f,
            "{:.0}/s, claims p50 {:.1} ms, p99 {:.1} ms, longest {:.1} ms; tables and indexes {} MB at most",
            self.per_second,
            ms(self.claim_p50),
            ms(self.claim_p99),
            ms(self.claim_max),
            self.bytes >> 20
        )
    }
}

/// Submits, claims, runs and ends tasks, by several workers of eight seats each, and deletes them if asked to.
async fn lives(server: &TestPostgres, schema: &str, tasks: usize, delete: bool) -> Result<Lives, BenchError> {
    let options = PostgresOptions::new(&server.url(schema))?;
    PostgresStore::migrate(&options).await?;
    let store = Arc::new(PostgresStore::open(options).await?);
    store.renew_lease(WorkerId::from("bench"), Duration::from_secs(3600)).await?;
    let (left, begun) = (Arc::new(AtomicUsize::new(tasks / SEATS)), Instant::now());
    let workers = (0..WORKERS).map(|_| {
        let (store, left) = (store.clone(), left.clone());
        tokio::spawn(async move {
            let (mut claims, mut ended) = (Vec::new(), Vec::new());
            while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
            {
                eight_lives(&*store, &mut claims, &mut ended).await?;
                if ended.len() >= TOGETHER && delete {
                    store.delete(std::mem::take(&mut ended)).await?;
                }
            }
            if delete {
                store.delete(ended).await?;
            }
            Ok::<_, BenchError>(claims)
        })
    });
    let workers = futures::future::join_all(workers);
    tokio::pin!(workers);
    let mut bytes = 0;
    let ended = loop {
        tokio::select! {
            ended = &mut workers => break ended,
            () = tokio::time::sleep(Duration::from_secs(2)) => bytes = bytes.max(size(server, schema)?),
        }
    };
    let seconds = begun.elapsed().as_secs_f64();
    let mut claims = Vec::new();
    for worker in ended {
        claims.extend(worker??);
    }
    claims.sort();
    let at = |part: usize| claims.get(claims.len() * part / 100).copied().unwrap_or_default();
    Ok(Lives {
        per_second: tasks as f64 / seconds,
        claim_p50: at(50),
        claim_p99: at(99),
        claim_max: claims.last().copied().unwrap_or_default(),
        bytes: bytes.max(size(server, schema)?),
    })
}

/// The lives of eight tasks: how long each claim took, and where each journal ended.
async fn eight_lives(
    store: &dyn Store,
    claims: &mut Vec<Duration>,
    ended: &mut Vec<(TaskId, Seq)>,
) -> Result<(), BenchError> {
    futures::future::try_join_all((0..SEATS).map(|_| store.append(submission(fresh_id(), "churn")))).await?;
    let mut left = SEATS;
    while left > 0 {
        let start = Instant::now();
        let claimed = store.claim(wanted("churn", left)).await?;
        claims.push(start.elapsed());
        left -= claimed.len();
        let ends =
            futures::future::try_join_all(claimed.iter().map(|task| run(store, task.state.id))).await?;
        ended.extend(claimed.iter().map(|task| task.state.id).zip(ends));
    }
    Ok(())
}

/// Three entries and an end.
async fn run(store: &dyn Store, task: TaskId) -> Result<Seq, BenchError> {
    for _ in 0..3 {
        store.append(owned(task, vec![entry()])).await?;
    }
    let outcome = Outcome::Completed { output: "done".into(), cut_short: None };
    let end = store.append(owned(task, vec![Entry::Finished(Box::new(outcome))])).await?;
    Ok(end.first().copied().ok_or("an end")?)
}

fn size(server: &TestPostgres, schema: &str) -> Result<usize, BenchError> {
    let sql = format!(
        "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE n.nspname = '{schema}' AND c.relkind = 'r'"
    );
    Ok(tokio::task::block_in_place(|| server.sql(&sql)).parse()?)
}
