//! The dialect `background_agents`: fan out, go on, be told by letter, wait where waiting is needed.
//!
//! The lead starts three researchers and falls silent. It does not poll: each end is a letter that wakes it. When it
//! has all three it asks for the results again in one call, and gives a last task away with `transfer_task`, which
//! blocks. What a call has returned is not told a second time by letter.
//!
//!     cargo run -p longhaul --example background_agents

use std::collections::HashSet;
use std::error::Error;
use std::sync::Arc;

use longhaul::entry::Sender;
use longhaul::model::scripted::{ModelScript, ScriptedModel};
use longhaul::store::TaskFilter;
use longhaul::{Agent, EventKind, Longhaul, Order, Status, SubAgentDialect, Team};

const SCRIPT: &str = r#"
agents:
  lead:
    turns:
      - calls:
          - { tool: run_background_agent, arguments: { agent: researcher, task: "Count the files." } }
          - { tool: run_background_agent, arguments: { agent: researcher, task: "Count the lines." } }
          - tool: run_background_agent
            arguments: { agent: researcher, task: "Count the authors.", expected_output: "A number.", timeout: 60 }
      # Given again whenever a letter comes, until all three have been told of.
      - until: find_all('FOUND \w+ = \d+') | length >= 3
        text: "{{ find_all('FOUND \\w+ = \\d+') | length }} of 3."
      - calls:
          - tool: wait_background_agents
            arguments: { task_ids: "{{ results_of('run_background_agent') | join | find_all('t-\\w+') }}", timeout: 10 }
          - { tool: transfer_task, arguments: { agent: editor, task: "Write it down nicely." } }
      # Below a result that was waited for, a note asks for the answer.
      - text: "{{ results_of('transfer_task') | last | lines | first }} {{ find_all('FOUND (\\w+ = \\d+)') | join(', ') }}."
  researcher:
    cases:
      - { when: files, turns: [{ delay: 60ms, text: "FOUND files = 12" }] }
      - { when: lines, turns: [{ delay: 30ms, text: "FOUND lines = 3400" }] }
      - { when: authors, turns: [{ text: "FOUND authors = 2" }] }
  editor:
    turns: [{ text: "The project has:" }]
"#;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let model = Arc::new(ScriptedModel::new(Arc::new(ModelScript::parse("example", SCRIPT)?)));
    let agent = |name: &str| Agent::builder(name).model(model.clone()).build();
    let lead = Agent::builder("lead")
        .model(model.clone())
        .sub_agent(agent("researcher")?)
        .sub_agent(agent("editor")?)
        .dialect(SubAgentDialect::Background)
        .build()?;
    let longhaul = Longhaul::builder(Team::new(lead)?).start().await?;

    let root = longhaul.submit(Order::new("lead", "How big is the project?")).await?;
    let done = longhaul.wait([root]).await?;
    let root = &done.tasks[0];
    println!("{}", root.output);
    assert_eq!(root.state.status, Status::Completed, "{:?}", root.state.error);
    assert_eq!(root.output, "The project has: authors = 2, files = 12, lines = 3400.");

    // Every child wrote its one letter to the lead.
    let children = longhaul.list(TaskFilter::children(root.state.id)).await?;
    let (mut written, mut read, mut waits) = (Vec::new(), HashSet::new(), 0);
    for event in &root.events {
        match &event.kind {
            EventKind::Letter { letter, from: Sender::Task(child), text, .. } => {
                println!("letter of {child}: {}", text.lines().nth(1).unwrap_or_default());
                written.push((*child, letter.clone()));
            }
            EventKind::Read { letters } => {
                letters.iter().for_each(|letter| assert!(read.insert(letter.clone())))
            }
            EventKind::Waiting { .. } => waits += 1,
            EventKind::Result { tool, output, is_error, .. } => {
                println!("{tool} → {output}");
                assert!(
                    !is_error
                        && (&**tool != "wait_background_agents" || output.contains(r#""all_done":true"#))
                );
            }
            _ => {}
        }
    }
    assert_eq!(written.len(), 4);
    assert!(waits > 0, "the lead gave its seat back while it had nothing to do");

    // It read the three of the researchers, each once; the editor's result came with the call and was not told again.
    for child in children {
        let (_, letter) =
            written.iter().find(|(from, _)| *from == child.id).ok_or("a child without a letter")?;
        assert_eq!(read.contains(letter), child.agent.as_str() == "researcher", "{child:?}");
    }
    longhaul.shutdown().await;
    Ok(())
}
