//! What a worker costs that has nothing to do: statements, CPU and connections.

use std::time::Duration;

use longhaul::agent::TeamError;
use longhaul::store::{PostgresOptions, PostgresStore};
use longhaul::testing::{FnModel, TestPostgres, reply};
use longhaul::worker::TeamLoader;
use longhaul::{Agent, Longhaul, Team};

use crate::gauge;
use crate::stores::{BenchError, process_tree_us};

/// Loads nothing, but makes the worker ask for teams, as that of `longhaul serve` does.
struct NoTeams;

impl TeamLoader for NoTeams {
    fn wants(&self, _: &[u8]) -> bool {
        false
    }

    fn load(&self, _: &[u8]) -> Result<Team, TeamError> {
        unreachable!("nothing is wanted")
    }
}

/// Prints what it does in this time. Its server logs every statement.
pub(crate) async fn measure(time: Duration) -> Result<(), BenchError> {
    let server = tokio::task::block_in_place(|| TestPostgres::start(&["log_statement=all"]));
    let server = server.ok_or("there is no PostgreSQL server below /usr/lib/postgresql")?;
    let options = PostgresOptions::new(&server.url("idle"))?;
    PostgresStore::migrate(&options).await?;
    let agent = Agent::builder("worker").model(std::sync::Arc::new(FnModel::new(|_| reply().text("done"))));
    let team = Team::new(agent.build()?)?;
    let store = PostgresStore::open(options).await?;
    let longhaul = Longhaul::builder(team).loader(NoTeams).store(store).start().await?;
    // It has done everything once, so that all its connections are there.
    longhaul.submit(longhaul::Order::new("worker", "warm up")).await?;
    tokio::time::sleep(Duration::from_secs(7)).await;
    let pid = std::fs::read_to_string(server.directory().join("data/postmaster.pid"))?;
    let pid: u32 = pid.lines().next().unwrap_or_default().trim().parse()?;
    let connections = server.sql("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'longhaul'");
    let (client, served, before) = (cpu_us()?, process_tree_us(pid), statements(&server));
    tokio::time::sleep(time).await;
    let (client, served) = (cpu_us()? - client, process_tree_us(pid) - served);
    let after = statements(&server);
    let share = |us: f64| us / time.as_micros() as f64 * 100.0;
    println!(
        "a worker with nothing to do, {time:?}: {:.2} statements/s, client {:.3} % and server {:.3} % of a core, {connections} connections",
        (after.len() - before.len()) as f64 / time.as_secs_f64(),
        share(client),
        share(served)
    );
    let mut counted = std::collections::BTreeMap::<&str, usize>::new();
    for statement in &after[before.len()..] {
        *counted.entry(statement.get(..90).unwrap_or(statement)).or_default() += 1;
    }
    for (statement, times) in counted {
        println!("  {times:>4} × {statement}");
    }
    longhaul.shutdown().await;
    Ok(())
}

fn cpu_us() -> Result<f64, BenchError> {
    gauge::cpu_us().map_err(|error| error.to_string().into())
}

/// The statements that the server has run.
fn statements(server: &TestPostgres) -> Vec<String> {
    let log = server.log();
    let statement = |line: &str| {
        let line = line.split_once("LOG:  ")?.1;
        let text = line
            .strip_prefix("statement: ")
            .or_else(|| Some(line.strip_prefix("execute ")?.split_once(": ")?.1))?;
        Some(text.to_owned())
    };
    log.lines().filter_map(statement).collect()
}
