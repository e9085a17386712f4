//! Drain: no new task is taken, what runs finishes its step and is given back, and another process goes on.

use std::path::Path;
use std::time::{Duration, Instant};

use longhaul::Status;
use longhaul::entry::{Entry, ReleaseReason};
use longhaul::task::TaskState;

use crate::crash::Options;
use crate::crash::audit::Audit;
use crate::crash::process::{Player, lines, until, write_line};

/// A lead that waits in a tool for one below it, which holds until it is let go.
const WAITS: &str = r#"
agents:
  lead:
    turns:
      - calls: [{ tool: run_background_agent, arguments: { agent: mid, task: hold on } }]
      - calls:
          - tool: wait_background_agents
            arguments: { task_ids: "{{ results | join(' ') | find_all('t-\\w+') }}" }
      - text: "It said {{ find_all('HELD') | join(',') }}."
  mid:
    turns:
      - calls: [{ tool: hold, arguments: { text: now } }]
      - text: HELD
"#;

fn waiting(dir: &Path, lease: &str) -> Player {
    std::fs::write(dir.join("script.yaml"), WAITS).unwrap();
    let mut player = Player::start("chain", dir, &[lease]);
    player.hear("started");
    until("the tool to hold, and the lead to wait for it", || {
        lines(&dir.join("holding")).len() == 1 && of(dir, "lead").waiting.is_some()
    });
    player
}

fn of(dir: &Path, agent: &str) -> TaskState {
    Audit::of(dir).states().find(|state| state.agent.as_str() == agent).unwrap().clone()
}

fn ended_by_another(dir: &Path) {
    let mut other = Player::start("chain", dir, &["5"]);
    other.hear("started");
    other.done();
    let audit = Audit::of(dir);
    audit.all_ended_once();
    audit.side_effects_are_as_told(dir);
    assert_eq!(audit.answer(), "It said HELD.");
    assert_eq!(lines(&dir.join("holding")).len(), 1, "the call that had finished was made again");
    for (id, (state, _)) in &audit.tasks {
        let drained = |entry: &Entry| matches!(entry, Entry::Released { why: ReleaseReason::Drained, .. });
        let lost = |entry: &Entry| matches!(entry, Entry::Released { why: ReleaseReason::Lost, .. });
        assert_eq!((audit.count(*id, drained), audit.count(*id, lost)), (1, 0), "{}", state.agent);
        assert_eq!(state.attempt.0, 2, "{}", state.agent);
    }
}

pub(crate) fn drained(_: &Options) {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut player = waiting(dir, "5");
    let begun = Instant::now();
    player.say("drain");
    until("the lead to be given back", || of(dir, "lead").status == Status::Pending);
    let took = begun.elapsed();
    println!("  drain: the waiting parent was given back after {took:.0?}");
    assert!(took < Duration::from_secs(2));
    assert_eq!(of(dir, "mid").status, Status::Running, "its step is not finished");
    write_line(&dir.join("let-go"), "now");
    player.done();
    assert_eq!(of(dir, "mid").status, Status::Pending);
    ended_by_another(dir);
}

/// A drain that takes longer than a lease: the step that is being finished is not taken away.
pub(crate) fn slowly(_: &Options) {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut player = waiting(dir, "1.5");
    player.say("drain");
    until("the lead to be given back", || of(dir, "lead").status == Status::Pending);
    // Somebody with another team looks for the dead, for much longer than the lease.
    let mut rival = Player::start("stranger", dir, &["other", "-", "0.3"]);
    rival.hear("at work");
    until("the rival to have looked around", || lines(&dir.join("other.looks")).len() >= 30);
    let (mid, audit) = (of(dir, "mid"), Audit::of(dir));
    assert_eq!(
        (mid.status, mid.attempt.0),
        (Status::Running, 1),
        "it was taken: {:#?}",
        audit.tasks[&mid.id].1.last()
    );
    rival.say("enough");
    rival.done();
    write_line(&dir.join("let-go"), "now");
    player.done();
    ended_by_another_beside(dir);
}

fn ended_by_another_beside(dir: &Path) {
    let mut other = Player::start("chain", dir, &["5"]);
    other.hear("started");
    other.done();
    let audit = Audit::of(dir);
    audit.all_ended_once();
    audit.side_effects_are_as_told(dir);
    assert_eq!(lines(&dir.join("holding")).len(), 1, "the call that had finished was made again");
}
