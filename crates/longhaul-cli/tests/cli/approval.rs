//! An approval that a grandchild in the background needs: given from a second terminal, or by nobody.

use longhaul::Status;
use longhaul::entry::{Entry, Record};
use longhaul::task::TaskState;

use crate::kit::Kit;

const TEAM: &str = r#"
permissions:
  ask: [write_file]

agents:
  root:
    model: play
    sub_agents: [lead]
    toolsets: [{ type: background_agents }]
  lead:
    model: play
    sub_agents: [writer]
    toolsets: [{ type: background_agents }]
  writer:
    model: play
    toolsets: [{ type: filesystem }]
"#;

/// What they say.
const PLAY: &str = r#"
agents:
  root:
    turns:
      - calls: [{ tool: run_background_agent, arguments: { agent: lead, task: "{{ task }}" } }]
      - until: find_all('DONE .+') | length >= 1
        text: I wait for the lead.
      - text: "{{ find_all('DONE .+') | join }}"
  lead:
    turns:
      - calls: [{ tool: run_background_agent, arguments: { agent: writer, task: "{{ task }}" } }]
      - until: find_all('WRITER .+') | length >= 1
        text: I wait for the writer.
      - text: "DONE {{ find_all('WRITER (.+)') | join }}"
  writer:
    turns:
      - calls: [{ tool: write_file, arguments: { path: notes.txt, content: "Some notes.\n" } }]
      - text: "WRITER {{ result | replace('\n', ' ') }}"
"#;

fn kit() -> Kit {
    let kit = Kit::new();
    kit.plays("team.yaml", TEAM, PLAY);
    kit
}

fn asked(journals: &[(TaskState, Vec<Record>)]) -> usize {
    let all = journals.iter().flat_map(|(_, journal)| journal);
    all.filter(|record| matches!(record.entry, Entry::Asked { .. })).count()
}

#[test]
fn a_grandchild_in_the_background_is_approved_from_a_second_terminal() {
    let kit = kit();
    let running = kit.start(&["run", "--unattended", "wait", "team.yaml", "Take notes."]);
    let asks = kit.until("the writer to ask", |journals| {
        journals.iter().map(|(state, _)| state).find(|state| !state.asked.is_empty()).cloned()
    });
    assert_eq!((asks.agent.as_str(), asks.depth), ("writer", 2));
    let notes = kit.ground.path().join("notes.txt");
    assert!(!notes.exists(), "not before it is approved");
    let shown = kit.run(&["tasks"]).ended(0).out;
    assert!(shown.contains("writer") && shown.contains("longhaul"), "{shown}");
    let answered = kit.run(&["answer", &asks.id.to_string(), "yes"]).ended(0);
    let told = format!("answered {}: ", asks.id);
    assert!(answered.out.starts_with(&told) && answered.out.contains("write_file"), "{}", answered.out);

    let ran = running.end().ended(0);
    assert!(ran.out.starts_with("DONE "), "{}\n{}", ran.out, ran.err);
    assert_eq!(std::fs::read_to_string(notes).unwrap(), "Some notes.\n");
    let journals = kit.journals();
    assert_eq!(asked(&journals), 1);
    assert!(journals.iter().all(|(state, _)| state.status == Status::Completed && state.attempt.0 == 1));
}

#[test]
fn a_no_from_a_second_terminal_reaches_the_model() {
    let kit = kit();
    let running = kit.start(&["run", "--unattended", "wait", "team.yaml", "Take notes."]);
    let asks = kit.until("the writer to ask", |journals| {
        journals.iter().map(|(state, _)| state.clone()).find(|state| !state.asked.is_empty())
    });
    kit.run(&["answer", &asks.id.to_string(), "no", "not today"]).ended(0);
    let ran = running.end().ended(0);
    assert!(ran.out.starts_with("DONE ") && ran.out.contains("not today"), "{}\n{}", ran.out, ran.err);
    assert!(!kit.ground.path().join("notes.txt").exists());
}

#[test]
fn with_nobody_there_the_model_is_told_and_goes_on() {
    let kit = kit();
    let ran = kit.run(&["run", "--unattended", "deny", "team.yaml", "Take notes."]).ended(0);
    assert!(ran.out.starts_with("DONE "), "{}\n{}", ran.out, ran.err);
    assert!(ran.out.contains("write_file"), "it is told what it may not do: {}", ran.out);
    assert!(!kit.ground.path().join("notes.txt").exists());
    let journals = kit.journals();
    assert_eq!(asked(&journals), 0, "nobody is asked where nobody is");
    assert!(journals.iter().all(|(state, _)| state.status == Status::Completed));
}
