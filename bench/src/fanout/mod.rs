//! Many agents over HTTP: what journaled sub-agents cost beside a bare loop that makes the same requests.

mod bare;
mod server;
mod team;

use std::error::Error;
use std::process::Command;
use std::time::Instant;

use serde::{Deserialize, Serialize};

pub(crate) use server::serve;
use server::{FanoutServer, ServerCounts};

use crate::gauge;

/// Tool calls of an agent, one a turn. One more reply ends it.
const CALLS: usize = 3;
/// Requests under way at once.
const AT_ONCE: usize = 64;
/// Seats for tasks: enough that there is always a request to be made while others write.
const SEATS: usize = 128;
/// How often each is measured; the least counts, because other programs can only add.
const ROUNDS: usize = 5;
/// What every agent is told.
const SYSTEM: &str = "You look at places and tell what is there, in few words and without guessing.";

fn order(n: usize) -> String {
    format!("Look at three places, one after the other, and tell what you found. This is task {n}.")
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FanoutMeasurement {
    replies: usize,
    seconds: f64,
    cpu_us: f64,
    peak_kib: u64,
}

impl FanoutMeasurement {
    fn cpu_per_reply(&self) -> f64 {
        self.cpu_us / self.replies as f64
    }
}

/// One way to do it, in this process.
pub(crate) async fn measure(
    what: &str,
    url: &str,
    agents: usize,
) -> Result<FanoutMeasurement, Box<dyn Error>> {
    let (start, cpu) = (Instant::now(), gauge::cpu_us()?);
    let read = |replies| -> Result<FanoutMeasurement, Box<dyn Error>> {
        let (seconds, cpu_us) = (start.elapsed().as_secs_f64(), gauge::cpu_us()? - cpu);
        Ok(FanoutMeasurement { replies, seconds, cpu_us, peak_kib: gauge::proc_status_kib("VmHWM")? })
    };
    if what == "bare" {
        return read(bare::run(url, agents).await?);
    }
    let (store, _dir) = gauge::open_store(what)?;
    let root = team::run(url, agents, SEATS, store.clone()).await?;
    // Whether all of it was done is looked at afterwards: that is not part of doing it.
    let reading = read(0)?;
    Ok(FanoutMeasurement { replies: team::replies(&*store, root).await?, ..reading })
}

fn measure_in_child(what: &str, url: &str, agents: usize) -> Result<FanoutMeasurement, Box<dyn Error>> {
    let args = ["--fanout", what, url, &agents.to_string()];
    let output = Command::new(std::env::current_exe()?).args(args).output()?;
    if !output.status.success() {
        return Err(format!("{what} failed: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let reading: FanoutMeasurement = serde_json::from_slice(&output.stdout)?;
    if reading.replies != agents * (CALLS + 1) {
        return Err(format!("{what}: {} replies", reading.replies).into());
    }
    Ok(reading)
}

/// Prints how the ways compare.
pub(crate) fn print_fanout_table(agents: usize) -> Result<(), Box<dyn Error>> {
    println!(
        "\n{agents} agents, each {CALLS} tool calls and an answer, streamed over HTTP; {AT_ONCE} requests in flight; \
         the best of {ROUNDS} rounds"
    );
    for (manner, words) in [("token", "a write for every token"), ("whole", "one write for a whole reply")] {
        let server = FanoutServer::start()?;
        let ways = ["bare", "memory", "sqlite-normal", "sqlite"];
        let mut best: Vec<Option<(FanoutMeasurement, ServerCounts)>> = ways.iter().map(|_| None).collect();
        for round in 1..=ROUNDS {
            eprintln!("{words}: round {round} …");
            for (way, best) in ways.iter().zip(&mut best) {
                let reading = measure_in_child(way, &server.url(manner), agents)?;
                let seen = server.take_counts()?;
                if best.as_ref().is_none_or(|(old, _)| reading.cpu_us < old.cpu_us) {
                    *best = Some((reading, seen));
                }
            }
        }
        println!("\nthe server: {words}\n");
        print(&ways, &best);
    }
    Ok(())
}

fn print(ways: &[&str], best: &[Option<(FanoutMeasurement, ServerCounts)>]) {
    println!(
        "{:<15}{:>14}{:>8}{:>11}{:>8}{:>13}{:>11}{:>9}{:>16}",
        "",
        "CPU ms/turn",
        "ratio",
        "peak MiB",
        "ratio",
        "connections",
        "in flight",
        "wall s",
        "sent B/request"
    );
    let Some(Some((bare, _))) = best.first() else { return };
    for (way, best) in ways.iter().zip(best) {
        let Some((r, seen)) = best else { continue };
        println!(
            "{way:<15}{:>14.4}{:>8.2}{:>11.1}{:>8.2}{:>13}{:>11}{:>9.2}{:>16}",
            r.cpu_per_reply() / 1000.0,
            r.cpu_us / bare.cpu_us,
            r.peak_kib as f64 / 1024.0,
            r.peak_kib as f64 / bare.peak_kib as f64,
            seen.connections,
            AT_ONCE,
            r.seconds,
            seen.bytes / seen.requests.max(1),
        );
    }
}
