//! Stop stops: the whole tree, its processes, and for good.

use std::path::Path;
use std::time::{Duration, Instant};

use longhaul::Status;
use longhaul::TaskId;
use longhaul::entry::{Entry, StopCause, StopRequest};
use longhaul::store::{Batch, Fence, Store as _};
use nix::sys::signal::Signal;

use crate::crash::Options;
use crate::crash::audit::Audit;
use crate::crash::process::{Player, is_alive, lines, until};
use crate::crash::roles::{block_on, client};

/// A lead, two below it, one below each of those, and two leaves each, which sleep in processes of their own.
const TREE: &str = r#"
agents:
  lead:
    turns:
      - calls:
          - { tool: run_background_agent, arguments: { agent: mid, task: one } }
          - { tool: run_background_agent, arguments: { agent: mid, task: two } }
      - text: I have sent them.
  mid:
    turns:
      - calls: [{ tool: transfer_task, arguments: { agent: low, task: "{{ task }}" } }]
      - text: done
  low:
    turns:
      - text: Two leaves.
        calls:
          - { tool: run_background_agent, arguments: { agent: leaf, task: left } }
          - { tool: run_background_agent, arguments: { agent: leaf, task: right } }
      - text: done
  leaf:
    turns:
      - text: I sleep.
        calls: [{ tool: shell, arguments: { cmd: "echo $$ >> pids; exec sleep 300", timeout: 600 } }]
      - text: I slept.
"#;
const TASKS: usize = 1 + 2 + 2 + 4;

/// A process that runs the tree, when all leaves sleep; and their processes.
fn asleep(dir: &Path) -> (Player, Vec<i32>) {
    std::fs::write(dir.join("script.yaml"), TREE).unwrap();
    let mut player = Player::start("chain", dir, &["3"]);
    player.hear("started");
    until("four leaves to sleep", || lines(&dir.join("pids")).len() == 4);
    let pids: Vec<i32> = lines(&dir.join("pids")).iter().map(|pid| pid.parse().unwrap()).collect();
    assert!(pids.iter().all(|pid| is_alive(*pid)));
    (player, pids)
}

fn root(dir: &Path) -> TaskId {
    Audit::of(dir).states().find(|state| state.parent.is_none()).unwrap().id
}

/// A new process of the same team looks at everything, and must leave it as it is.
fn still_cancelled_after_a_restart(dir: &Path) {
    let looks = lines(&dir.join("chain.looks")).len();
    let mut again = Player::start("chain", dir, &["0.3", "stay"]);
    again.hear("started");
    until("a new process to have looked around", || lines(&dir.join("chain.looks")).len() >= looks + 4);
    drop(again);
    let audit = Audit::of(dir);
    assert_eq!(audit.tasks.len(), TASKS);
    assert!(audit.states().all(|state| state.status == Status::Cancelled), "{:#?}", statuses(&audit));
    assert!(
        audit.states().all(|state| state.attempt.0 == 1),
        "something was resumed: {:#?}",
        statuses(&audit)
    );
    assert_eq!(lines(&dir.join("pids")).len(), 4, "a leaf was started again");
    audit.all_ended_once();
}

fn statuses(audit: &Audit) -> Vec<String> {
    let one = |state: &longhaul::task::TaskState| {
        format!("{} {} {} attempt {} {:?}", state.id, state.agent, state.status, state.attempt, state.stop)
    };
    audit.states().map(one).collect()
}

pub(crate) fn of_a_tree(_: &Options) {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (player, pids) = asleep(dir);
    let root = root(dir);
    let (_store, client) = client(dir);
    let begun = Instant::now();
    block_on(async {
        let client = client.await;
        client.stop(root).await.unwrap();
        client.shutdown().await;
    });
    let asked = begun.elapsed();
    until("the leaves to die", || !pids.iter().any(|pid| is_alive(*pid)));
    let dead = begun.elapsed();
    until("all tasks to be cancelled", || {
        Audit::of(dir).states().all(|state| state.status == Status::Cancelled && state.settled)
    });
    let settled = begun.elapsed();
    println!(
        "  stop: asked in {asked:.0?}, processes dead after {dead:.0?}, all settled after {settled:.0?}"
    );
    assert!(settled < Duration::from_secs(5));
    let audit = Audit::of(dir);
    let leaf = audit.states().find(|state| state.agent.as_str() == "leaf").unwrap();
    assert_eq!(audit.outcome(leaf.id).unwrap().output().as_ref(), "I sleep.", "what it had said is kept");
    player.done();
    still_cancelled_after_a_restart(dir);
}

pub(crate) fn then_a_kill(_: &Options) {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (player, pids) = asleep(dir);
    let root = root(dir);
    // Frozen, it can hear of the stop but not act on it.
    player.signal(Signal::SIGSTOP);
    let (store, client) = client(dir);
    block_on(async {
        let client = client.await;
        client.stop(root).await.unwrap();
        client.shutdown().await;
    });
    let audit = Audit::read(&*store);
    assert!(audit.states().all(|state| state.status == Status::Running && state.stop.is_some()));
    drop(store);
    player.kill();
    bury(&pids);
    still_cancelled_after_a_restart(dir);
    let audit = Audit::of(dir);
    let leaf = audit.states().find(|state| state.agent.as_str() == "leaf").unwrap();
    assert_eq!(audit.outcome(leaf.id).unwrap().output().as_ref(), "I sleep.", "what it had said is kept");
}

/// The process that asked for the stop died after the first of its writes.
pub(crate) fn half_done(_: &Options) {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (player, pids) = asleep(dir);
    let root = root(dir);
    player.signal(Signal::SIGSTOP);
    let (store, _) = client(dir);
    let stop = Entry::StopRequested(StopRequest { cause: StopCause::Person, note: None });
    block_on(store.append(Batch::one(root, Fence::Anyone, vec![stop]))).unwrap();
    drop(store);
    player.kill();
    bury(&pids);
    still_cancelled_after_a_restart(dir);
}

/// A process that is killed cannot end what it has started; nobody else does either, yet.
fn bury(pids: &[i32]) {
    for pid in pids {
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(*pid), Signal::SIGKILL);
    }
}
