//! Agents of other programs, over the Agent Client Protocol: a fake one of our own, with faults.

pub(crate) mod fake;
mod faults;
mod rights;
mod sandbox;
mod steering;
mod team_tools;
mod turns;

use std::path::Path;
use std::time::Duration;

use longhaul::agent::AcpAgent;
use longhaul::entry::{Entry, Outcome, Record};
use longhaul::id::Seq;
use longhaul::permission::Permissions;
use longhaul::{Agent, Longhaul, Order, Policy, TaskId, Team};

/// The fake agent: the tests start it.
#[test]
#[ignore = "the tests of ACP start it"]
fn fake_agent() {
    fake::play();
}

/// What `longhaul mcp --task` does: the fake agent starts it as its MCP server.
#[test]
#[ignore = "the fake agent starts it"]
fn task_tools() {
    use longhaul::agent::{TASK_SECRET, TASK_SOCKET, forward_task_tools};
    let variable = |name: &str| std::env::var(name).unwrap();
    let (socket, secret) = (variable(TASK_SOCKET), variable(TASK_SECRET));
    println!();
    let forwarded = forward_task_tools(Path::new(&socket), &secret, std::io::stdin(), std::io::stdout());
    std::process::exit(i32::from(forwarded.is_err()));
}

/// A team of one agent that another program runs.
pub(crate) fn team(program: AcpAgent) -> Team {
    let policy = Policy::default().inactivity_timeout(Duration::from_secs(60));
    let agent = Agent::builder("fixer").instruction("You are careful.").acp(program).policy(policy);
    Team::new(agent.build().unwrap()).unwrap()
}

/// Fails instead of hanging. These tests run real processes in real time.
async fn within<F: IntoFuture>(what: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(60), what.into_future()).await.expect("it hangs")
}

async fn start(dir: &Path, faults: &str) -> Longhaul {
    Longhaul::builder(team(fake::program(dir, faults))).start().await.unwrap()
}

/// The same with a team that has to ask for what it does.
async fn start_asking(dir: &Path, faults: &str, permissions: Permissions) -> Longhaul {
    let team = team(fake::program(dir, faults)).with_permissions(permissions);
    Longhaul::builder(team).attended(true).start().await.unwrap()
}

fn order(dir: &Path, text: &str) -> Order {
    Order::new("fixer", text).working_dir(dir.to_owned())
}

async fn journal(longhaul: &Longhaul, id: TaskId) -> Vec<Record> {
    longhaul.store().read(id, Seq(0), 100_000).await.unwrap()
}

fn outcome(journal: &[Record]) -> Outcome {
    let end = journal.iter().find_map(|record| match &record.entry {
        Entry::Finished(outcome) => Some((**outcome).clone()),
        _ => None,
    });
    end.expect("it has ended")
}

/// The words of the journal, in short.
fn kinds(journal: &[Record]) -> Vec<String> {
    let name = |record: &Record| format!("{:?}", record.entry.kind());
    journal.iter().map(name).filter(|kind| !matches!(kind.as_str(), "Said" | "Waiting" | "Worked")).collect()
}

/// Runs one task to its end.
async fn run(dir: &Path, faults: &str, text: &str) -> (Vec<Record>, Outcome) {
    let longhaul = start(dir, faults).await;
    let id = longhaul.submit(order(dir, text)).await.unwrap();
    within(longhaul.wait([id])).await.unwrap();
    let journal = journal(&longhaul, id).await;
    longhaul.shutdown().await;
    let end = outcome(&journal);
    (journal, end)
}

/// Asserts that no process of the fake agent is left.
fn nothing_is_left(dir: &Path) {
    let pids = fake::pids(dir);
    assert!(!pids.is_empty(), "it was never started");
    for pid in pids {
        crate::crash::process::until("the end of the agent's process", || {
            !crate::crash::process::is_alive(pid)
        });
    }
}
