//! What hints cost: appends of one process while others listen, beside the same appends while nobody does.
//!
//! Two short measurements beside each other are a pair, and the median of many pairs is what counts: a disk and a machine
//! that others use change from second to second. Who listens is a process of its own, as a user's would be. The server
//! writes no checkpoint and cleans up nothing by itself while something is measured: that is done in between.

use std::error::Error;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use longhaul::store::{PostgresOptions, PostgresStore, Store as _};
use longhaul::testing::TestPostgres;

use crate::gauge;
use crate::stores::{self, BenchError, MeasuredStore};

const WRITERS: usize = 64;
/// The log is large enough for a pair, and its files are used again.
const SETTINGS: [&str; 6] = [
    "shared_buffers=512MB",
    "max_wal_size=16GB",
    "min_wal_size=2GB",
    "checkpoint_timeout=1d",
    "autovacuum=off",
    "bgwriter_lru_maxpages=0",
];

/// What an append took: microseconds of CPU, and its share of a transaction.
#[derive(Clone, Copy)]
struct AppendCost {
    per_second: f64,
    client_us: f64,
    server_us: f64,
    listener_us: f64,
    together: f64,
    /// Hints that a listener heard, each second.
    heard: f64,
    /// CPU of the server until a listener listens.
    begin_us: f64,
}

pub(crate) fn print_alone(pairs: usize, time: Duration, listeners: usize) -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(print(pairs, time, listeners)).map_err(|error| error.to_string().into())
}

/// Prints the median of the pairs.
pub(crate) async fn print(pairs: usize, time: Duration, listeners: usize) -> Result<(), BenchError> {
    let server = tokio::task::block_in_place(|| TestPostgres::start(&SETTINGS));
    let server = server.ok_or("there is no PostgreSQL server below /usr/lib/postgresql")?;
    let options = PostgresOptions::new(&server.url("bench"))?;
    PostgresStore::migrate(&options).await?;
    let place = MeasuredStore::postgres(&server, &options).await?;
    // Files of the log are made once, tables and connections get warm.
    for _ in 0..3 {
        measure(&server, &place, time, 0).await?;
    }
    let (mut ratios, mut costs) = (Vec::new(), [Vec::new(), Vec::new()]);
    for pair in 0..pairs {
        let mut rates = [0.0; 2];
        // Who goes first has the smaller tables.
        for listens in [pair % 2 == 0, pair % 2 != 0] {
            let listening = if listens { listeners } else { 0 };
            let cost = measure(&server, &place, time, listening).await?;
            rates[usize::from(listens)] = cost.per_second;
            costs[usize::from(listens)].push(cost);
        }
        ratios.push(rates[1] / rates[0]);
    }
    println!("appends, {WRITERS} writers, {pairs} pairs of {time:?} each; medians (quartiles)");
    for (who, costs) in ["nobody listens".to_owned(), format!("{listeners} listen")].iter().zip(&costs) {
        let of = |what: fn(&AppendCost) -> f64| Spread::of(costs.iter().map(what).collect());
        println!(
            "  {who:<16}{:.0}/s; an append: client {:.1} µs, server {:.1} µs, a listener {:.2} µs; {:.1} in a transaction; \
             {:.0} hints heard/s",
            of(|cost| cost.per_second),
            of(|cost| cost.client_us),
            of(|cost| cost.server_us),
            of(|cost| cost.listener_us).median,
            of(|cost| cost.together),
            of(|cost| cost.heard).median,
        );
    }
    let begin = Spread::of(costs[1].iter().map(|cost| cost.begin_us / 1e3).collect());
    let entries = tokio::task::block_in_place(|| server.sql("SELECT count(*) FROM bench.journal"));
    println!("  to begin to listen: server {begin:.0} ms of CPU, in a journal of up to {entries} entries");
    println!("  appends while {listeners} listen ÷ while nobody does: {:.2}", Spread::of(ratios));
    Ok(())
}

async fn measure(
    server: &TestPostgres,
    place: &MeasuredStore,
    time: Duration,
    listening: usize,
) -> Result<AppendCost, BenchError> {
    let sql = |sql: &str| tokio::task::block_in_place(|| server.sql(sql));
    // What is left to write of the measurement before is not part of this one.
    sql("CHECKPOINT");
    let before = place.server_us();
    let listeners = (0..listening).map(|_| ListeningProcess::start(&server.url("bench")));
    let mut listeners = listeners.collect::<Result<Vec<_>, BenchError>>()?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let begin_us = place.server_us() - before;
    stores::appends(place, WRITERS, Duration::from_millis(500)).await?;
    let begun = sql("SELECT max(k) FROM bench.journal");
    let before = listeners.iter_mut().map(ListeningProcess::look).collect::<Result<Vec<_>, BenchError>>()?;
    let rate = stores::appends(place, WRITERS, time).await?;
    let after = listeners.iter_mut().map(ListeningProcess::look).collect::<Result<Vec<_>, BenchError>>()?;
    let written =
        format!("SELECT count(*) || ' ' || count(DISTINCT tx) FROM bench.journal WHERE k > {begun}");
    let written = sql(&written);
    let (entries, transactions) = written.split_once(' ').ok_or("two numbers")?;
    let (entries, transactions): (f64, f64) = (entries.parse()?, transactions.parse()?);
    let difference = |of: fn(&HintCounts) -> f64| {
        let sum = |looks: &[HintCounts]| looks.iter().map(of).sum::<f64>();
        (sum(&after) - sum(&before)) / listening.max(1) as f64
    };
    if listening > 0 && difference(|look| look.hints) == 0.0 {
        return Err("who listens has heard nothing".into());
    }
    Ok(AppendCost {
        per_second: rate.per_second,
        client_us: rate.client_us,
        server_us: rate.server_us,
        listener_us: difference(|look| look.cpu_us) / entries,
        together: entries / transactions,
        heard: difference(|look| look.hints) / time.as_secs_f64(),
        begin_us: begin_us / listening.max(1) as f64,
    })
}

/// A process that listens.
struct ListeningProcess {
    process: Child,
    answers: BufReader<ChildStdout>,
}

/// What a listener has heard and used so far.
struct HintCounts {
    hints: f64,
    cpu_us: f64,
}

impl ListeningProcess {
    fn start(url: &str) -> Result<ListeningProcess, BenchError> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut process =
            command.args(["--listen", url]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let answers = BufReader::new(process.stdout.take().ok_or("its output")?);
        Ok(ListeningProcess { process, answers })
    }

    fn look(&mut self) -> Result<HintCounts, BenchError> {
        writeln!(self.process.stdin.as_mut().ok_or("its input")?)?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        let (hints, cpu_us) = answer.trim_end().split_once(' ').ok_or("a listener has ended")?;
        Ok(HintCounts { hints: hints.parse()?, cpu_us: cpu_us.parse()? })
    }
}

impl Drop for ListeningProcess {
    fn drop(&mut self) {
        // It ends when its input does.
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

/// Listens, and says for each line of its input how many hints it heard, and the CPU time it used.
pub(crate) fn listen(url: &str) -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let store = runtime.block_on(PostgresStore::open(PostgresOptions::new(url)?))?;
    let heard = Arc::new(AtomicU64::new(0));
    let (mut hints, counted) = (store.hints(), heard.clone());
    runtime.spawn(async move {
        while hints.next().await.is_some() {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    for _ in std::io::stdin().lines() {
        println!("{} {}", heard.load(Ordering::Relaxed), gauge::cpu_us()?);
    }
    Ok(())
}

/// The median, and between which half of all are.
struct Spread {
    lower: f64,
    median: f64,
    upper: f64,
}

impl Spread {
    fn of(mut all: Vec<f64>) -> Spread {
        all.sort_by(f64::total_cmp);
        let at = |part: usize| all.get(all.len() * part / 4).copied().unwrap_or_default();
        Spread { lower: at(1), median: at(2), upper: at(3) }
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let digits = f.precision().unwrap_or(1);
        write!(f, "{:.digits$} ({:.digits$} to {:.digits$})", self.median, self.lower, self.upper)
    }
}
