//! Recovery by whoever can, and only then: a journal and a store are enough.

use std::path::Path;

use longhaul::Status;
use longhaul::entry::{Entry, ReleaseReason};

use crate::crash::Options;
use crate::crash::audit::Audit;
use crate::crash::process::{Player, lines, until, write_line};

/// A lead that waits for one below it, which holds until it is let go.
const HELD: &str = r#"
agents:
  lead:
    turns:
      - text: One for you.
        calls: [{ tool: run_background_agent, arguments: { agent: mid, task: hold on } }]
      - until: find_all('HELD') | length >= 1
        text: Waiting.
      - text: "It said {{ find_all('HELD') | join(',') }}."
  mid:
    turns:
      - calls: [{ tool: hold, arguments: { text: now } }]
      - text: HELD
"#;

/// A process with a team of its own file, when its task holds.
fn holding(dir: &Path, lease: &str) -> Player {
    std::fs::write(dir.join("script.yaml"), HELD).unwrap();
    let mut owner = Player::start("owner", dir, &[lease]);
    owner.hear("started");
    until("the tool to hold", || lines(&dir.join("holding")).len() == 1);
    owner
}

fn is_done(dir: &Path) -> bool {
    Audit::of(dir).states().all(|state| state.status.is_final())
}

fn answer(dir: &Path) -> String {
    let audit = Audit::of(dir);
    audit.all_ended_once();
    audit.side_effects_are_as_told(dir);
    let lead = audit.states().find(|state| state.agent.as_str() == "lead").unwrap();
    audit.outcome(lead.id).unwrap().output().to_string()
}

pub(crate) fn by_a_stranger(_: &Options) {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    holding(dir, "5").kill();
    let mut stranger = Player::start("stranger", dir, &["other", "loader", "5"]);
    stranger.hear("at work");
    until("the stranger to end it", || is_done(dir));
    stranger.say("enough");
    stranger.done();
    assert_eq!(answer(dir), "It said HELD.");
    assert_eq!(lines(&dir.join("holding")).len(), 1, "the interrupted call was made again");
    let audit = Audit::of(dir);
    assert!(audit.states().filter(|state| state.agent.as_str() != "other").all(|state| state.attempt.0 == 2));
}

pub(crate) fn not_by_the_ignorant(_: &Options) {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    holding(dir, "5").kill();
    let mut ignorant = Player::start("stranger", dir, &["other", "-", "0.3"]);
    ignorant.hear("at work");
    until("it to have looked around", || lines(&dir.join("other.looks")).len() >= 4);
    ignorant.say("enough");
    ignorant.done();
    for state in Audit::of(dir).states().filter(|state| state.agent.as_str() != "other") {
        assert_eq!((state.status, state.attempt.0), (Status::Pending, 1), "{}", state.agent);
    }
    // It is still there for somebody who knows.
    let mut stranger = Player::start("stranger", dir, &["third", "loader", "5"]);
    stranger.hear("at work");
    until("somebody who knows to end it", || is_done(dir));
    assert_eq!(answer(dir), "It said HELD.");
}

pub(crate) fn not_of_the_living(_: &Options) {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let owner = holding(dir, "2");
    let mut rival = Player::start("stranger", dir, &["other", "loader", "0.3"]);
    rival.hear("at work");
    until("the rival to have looked around", || lines(&dir.join("other.looks")).len() >= 20);
    for state in Audit::of(dir).states().filter(|state| state.agent.as_str() != "other") {
        assert_eq!((state.status, state.attempt.0), (Status::Running, 1), "{} was taken", state.agent);
    }
    write_line(&dir.join("let-go"), "now");
    owner.done();
    assert_eq!(answer(dir), "It said HELD.");
    let audit = Audit::of(dir);
    for id in audit.tasks.keys() {
        assert_eq!(
            audit.count(*id, |entry| matches!(entry, Entry::Released { why: ReleaseReason::Lost, .. })),
            0
        );
    }
}
