//! Many sub-agents over HTTP: what `longhaul run` costs beside a bare loop that makes the same requests.
//!
//! An orchestrator starts all agents in one reply; each makes [`TURNS`] requests and one tool call between two of them. The
//! server, the bare loop and each run are processes of their own, so that each has its own CPU time and peak memory.

mod bare;
mod child;
mod engine;
mod server;
mod store_counts;

use std::error::Error;
use std::path::Path;

pub(crate) use bare::measure_bare;
pub(crate) use child::spawn_and_measure;
use child::{ProcessUsage, measure_child};
pub(crate) use engine::measure_engine;
pub(crate) use server::serve;
use server::{FanoutServer, ServerCounts};

/// Replies of an agent: all but the last call a tool.
const TURNS: usize = 3;
/// How often each cell is measured; the median counts.
const ROUNDS: usize = 3;
/// The numbers of agents, unless told.
const AGENTS: [usize; 6] = [1, 10, 100, 1_000, 5_000, 10_000];

/// What the orchestrator does to get the results.
const COLLECT: [&str; 3] = ["letters", "wait", "view"];

/// How the server sends tokens.
#[derive(Clone, Copy, PartialEq)]
struct Pace {
    name: &'static str,
    description: &'static str,
    /// The most agents that are measured at this pace: more do not fit on two cores together with the server.
    most: usize,
}

const PACES: [Pace; 2] = [
    Pace { name: "fast", description: "the model answers at once", most: usize::MAX },
    Pace { name: "slow", description: "200 ms to the first token, then one every 20 ms", most: 1_000 },
];

fn order(n: usize) -> String {
    format!("Look at three places, one after the other, and tell what you found. This is task {n}.")
}

/// One measured run.
struct FanoutRun {
    usage: ProcessUsage,
    counts: ServerCounts,
}

/// A column of the table: a command, measured beside the others in each round.
struct FanoutClient {
    name: String,
    args: Vec<String>,
}

impl FanoutClient {
    fn bare(name: &str, gate: usize) -> FanoutClient {
        FanoutClient { name: name.to_owned(), args: vec!["--bare".to_owned(), gate.to_string()] }
    }

    fn run(collect: &str, flags: &[&str]) -> FanoutClient {
        let name = format!("{collect}, run {}", flags.join(" ")).trim_end().to_owned();
        let args = [collect].iter().chain(flags).map(|&arg| arg.to_owned()).collect();
        FanoutClient { name, args }
    }

    fn measure(&self, server: &FanoutServer, pace: Pace, agents: usize) -> Result<FanoutRun, Box<dyn Error>> {
        server.take_counts()?;
        let usage = match self.args.as_slice() {
            [bare, gate] if bare == "--bare" => {
                let url = server.url(pace.name, "bare", agents);
                let own = std::env::current_exe()?;
                measure_child(&own, &["--bare", &url, &agents.to_string(), gate], Path::new("."))?
            }
            [collect, flags @ ..] => {
                // Not in /tmp, which may be memory: durability costs what the disk costs.
                let dir = tempfile::tempdir_in(std::env::current_dir()?)?;
                std::fs::write(
                    dir.path().join("team.yaml"),
                    team_file(&server.url(pace.name, collect, agents), agents),
                )?;
                let mut args = vec!["run", "team.yaml", "Start everybody.", "--data", "data", "--trust"];
                args.extend(flags.iter().map(String::as_str));
                match flags {
                    [flag] if flag == "--engine" => {
                        measure_child(&std::env::current_exe()?, &["--engine"], dir.path())?
                    }
                    _ => measure_child(&longhaul_binary()?, &args, dir.path())?,
                }
            }
            [] => return Err("no command".into()),
        };
        let counts = server.take_counts()?;
        let expected = (agents * TURNS) as u64;
        if counts.agent_requests != expected {
            return Err(
                format!("{}: {} requests instead of {expected}", self.name, counts.agent_requests).into()
            );
        }
        Ok(FanoutRun { usage, counts })
    }
}

/// The command that is measured: the one built beside this program, or `LONGHAUL_BINARY`.
fn longhaul_binary() -> Result<std::path::PathBuf, Box<dyn Error>> {
    let path = match std::env::var_os("LONGHAUL_BINARY") {
        Some(path) => path.into(),
        None => std::env::current_exe()?.with_file_name("longhaul"),
    };
    match path.exists() {
        true => Ok(std::path::absolute(path)?),
        false => {
            Err(format!("{} does not exist: build it with `cargo build --release`", path.display()).into())
        }
    }
}

fn team_file(url: &str, agents: usize) -> String {
    let most = agents + 10;
    format!(
        "models:
  lead: {{ provider: local, model: lead-1, base_url: \"{url}\" }}
  worker: {{ provider: local, model: worker-1, base_url: \"{url}\" }}
agents:
  root:
    model: lead
    description: Leads.
    instruction: Start everybody.
    sub_agents: [worker]
    toolsets: [{{ type: background_agents }}]
    limits: {{ running: {most}, tree: {most}, turns: 1000000 }}
  worker:
    model: worker
    description: Looks at places.
    instruction: You look at places and tell what is there, in few words and without guessing.
    toolsets: [{{ type: think }}]
"
    )
}

/// Prints the tables. `agents`: the numbers of agents, if not all of [`AGENTS`]; `only`: parts of the names of rows.
pub(crate) fn print_fanout_tables(agents: &[usize], only: &[&str]) -> Result<(), Box<dyn Error>> {
    let agents = if agents.is_empty() { &AGENTS[..] } else { agents };
    println!(
        "{TURNS} replies of 50 tokens for each agent, a tool call between two; median of {ROUNDS} rounds, interleaved"
    );
    for pace in PACES {
        for &agents in agents.iter().filter(|&&agents| agents <= pace.most) {
            print_table(pace, agents, only)?;
        }
    }
    Ok(())
}

fn print_table(pace: Pace, agents: usize, only: &[&str]) -> Result<(), Box<dyn Error>> {
    let mut clients = vec![FanoutClient::bare("bare loop", 0)];
    let mut others = vec![FanoutClient::bare("bare loop, 64 at once", 64)];
    others.extend(COLLECT.map(|collect| FanoutClient::run(collect, &["--quiet"])));
    others.push(FanoutClient::run("letters", &["--quiet", "--max-concurrent", "64"]));
    others.push(FanoutClient {
        name: "letters, the library".to_owned(),
        args: vec!["letters".to_owned(), "--engine".to_owned()],
    });
    others.extend([FanoutClient::run("letters", &[]), FanoutClient::run("letters", &["--json"])]);
    others.retain(|client| only.is_empty() || only.iter().any(|part| client.name.contains(part)));
    clients.extend(others);
    let server = FanoutServer::start()?;
    let mut runs: Vec<Vec<FanoutRun>> = clients.iter().map(|_| Vec::new()).collect();
    for round in 1..=ROUNDS {
        for (client, runs) in clients.iter().zip(&mut runs) {
            eprintln!("{agents} agents, {}: round {round}, {} …", pace.description, client.name);
            runs.push(client.measure(&server, pace, agents)?);
        }
    }
    println!("\n{agents} agents; {}\n", pace.description);
    println!(
        "{:<42}{:>12}{:>8}{:>10}{:>10}{:>9}{:>10}{:>13}",
        "", "CPU ms/turn", "ratio", "KB/agent", "peak MiB", "wall s", "launch s", "connections"
    );
    let bare = median(&runs[0], |run| run.usage.cpu_us);
    for (client, runs) in clients.iter().zip(&runs) {
        let cpu = median(runs, |run| run.usage.cpu_us);
        let peak = median(runs, |run| run.usage.peak_kib as f64);
        println!(
            "{:<42}{:>12.3}{:>8.2}{:>10.1}{:>10.1}{:>9.2}{:>10.2}{:>13.0}",
            client.name,
            cpu / 1000.0 / (agents * TURNS) as f64,
            cpu / bare,
            peak / agents as f64,
            peak / 1024.0,
            median(runs, |run| run.usage.seconds),
            median(runs, |run| run.counts.launch_ms as f64 / 1000.0),
            median(runs, |run| run.counts.connections as f64),
        );
    }
    for store in runs.iter().filter_map(|runs| runs.last()?.usage.store) {
        let per_turn = |count: u64| count as f64 / (agents * TURNS) as f64;
        println!(
            "the library's store, per turn: {:.2} writes in {:.3} commits, {:.3} reads of the file",
            per_turn(store.writes),
            per_turn(store.commits),
            per_turn(store.reads)
        );
    }
    Ok(())
}

fn median(runs: &[FanoutRun], of: impl Fn(&FanoutRun) -> f64) -> f64 {
    let mut values: Vec<f64> = runs.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
