//! A question outlives the process that asked it, and is answered from another.

use std::path::Path;

use longhaul::Status;
use longhaul::entry::Entry;
use longhaul::task::TaskState;

use crate::crash::Options;
use crate::crash::audit::Audit;
use crate::crash::process::{Player, until};
use crate::crash::roles::{block_on, client};
use crate::crash::team::ledger;

/// The one who asks is a grandchild, in the background.
const CHAIN: &str = r#"
agents:
  lead:
    turns:
      - calls: [{ tool: run_background_agent, arguments: { agent: mid, task: one } }]
      - text: I have sent it.
        until: find_all('DONE') | length >= 1
      - text: "ALL {{ find_all('DONE[^<]*') | last }}"
  mid:
    turns:
      - calls: [{ tool: run_background_agent, arguments: { agent: low, task: two } }]
      - text: "I have sent it."
        until: find_all('DONE') | length >= 1
      - text: "{{ find_all('DONE[^<]*') | last }}"
  low:
    turns:
      - calls: [{ tool: once, arguments: { text: first } }]
      - calls: [{ tool: once, arguments: { text: second } }]
      - text: "DONE {{ results_of('once') | join(', ') }}"
"#;

fn low(dir: &Path) -> Option<TaskState> {
    Audit::of(dir).states().find(|state| state.agent.as_str() == "low").cloned()
}

/// Waits until the grandchild asks, in this attempt and turn.
fn asks(dir: &Path, attempt: u32, turn: u32) -> TaskState {
    let mut found = None;
    until("the grandchild to ask", || {
        found = low(dir).filter(|state| {
            let asks = state.asked.first().is_some_and(|asked| asked.question.call.turn == turn);
            asks && state.attempt.0 == attempt && state.waiting.is_some()
        });
        found.is_some()
    });
    found.unwrap()
}

fn answer(dir: &Path, words: &str) {
    let id = low(dir).unwrap().id;
    let (_store, client) = client(dir);
    block_on(async {
        let client = client.await;
        client.answer(id, None, words).await.unwrap();
        client.answer(id, None, words).await.unwrap_err();
        client.shutdown().await;
    });
}

fn asked(dir: &Path) -> Vec<String> {
    let audit = Audit::of(dir);
    let (_, journal) = audit.tasks.values().find(|(state, _)| state.agent.as_str() == "low").unwrap();
    let name = |entry: &Entry| match entry {
        Entry::Asked { question, .. } => Some(question.to_string()),
        _ => None,
    };
    journal.iter().filter_map(|record| name(&record.entry)).collect()
}

pub(crate) fn killed_while_asking(_: &Options) {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    std::fs::write(dir.join("script.yaml"), CHAIN).unwrap();
    let begin = || {
        let mut player = Player::start("chain", dir, &["3", "ask"]);
        player.hear("started");
        player
    };

    // Killed while it asks; asked again; answered from another process while it runs.
    let first = begin();
    asks(dir, 1, 1);
    first.kill();
    assert_eq!(ledger(dir).len(), 0, "nothing is done before it is allowed");
    let second = begin();
    asks(dir, 2, 1);
    answer(dir, "yes");

    // Killed again; answered while nobody runs it.
    asks(dir, 2, 2);
    assert_eq!(ledger(dir).len(), 1);
    second.kill();
    answer(dir, "yes");
    begin().done();

    assert_eq!(ledger(dir).len(), 2, "each was done once: {:?}", ledger(dir));
    assert_eq!(asked(dir), ["1.0.0", "1.0.0", "2.0.0"], "what was answered is not asked again");
    let audit = Audit::of(dir);
    audit.all_ended_once();
    assert!(audit.states().all(|state| state.status == Status::Completed));
    let root = audit.states().find(|state| state.parent.is_none()).unwrap();
    assert_eq!(root.attempt.0, 3);
}
