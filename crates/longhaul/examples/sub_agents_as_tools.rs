//! Sub-agents as tools: each sub-agent is a tool of its own name, and with any of them come `get_task_result`,
//! `stop_task` and `list_tasks`. The lead starts two researchers in the background, collects what they found, asks a
//! third one and waits for it, and answers. Everything that happens is streamed.
//!
//!     cargo run -p longhaul --example sub_agents_as_tools

use std::error::Error;
use std::sync::Arc;

use futures::StreamExt as _;
use longhaul::model::scripted::{ModelScript, ScriptedModel};
use longhaul::store::TaskFilter;
use longhaul::{Agent, EventKind, Longhaul, Status, Team};

/// What the models say. A real team has real models here and needs no script.
const SCRIPT: &str = r#"
defaults: { chunk: 12, pace: 2ms }
agents:
  lead:
    turns:
      - text: "Two languages, two researchers."
        calls:
          - { tool: researcher, arguments: { task: "Say one thing about Go.", background: true } }
          - { tool: researcher, arguments: { task: "Say one thing about Rust.", background: true, max_turns: 5 } }
      - calls:
          - tool: get_task_result
            arguments: { task_id: "{{ (results[0] | from_json).task_id }}", wait: true }
          - tool: get_task_result
            arguments: { task_id: "{{ (results[1] | from_json).task_id }}", wait: true, timeout: 5000 }
          - { tool: list_tasks }
      # Without `background` a call returns when the task has ended.
      - calls: [{ tool: researcher, arguments: { task: "Which of the two is older?" } }]
      - text: |-
          {% for found in results_of('get_task_result') + results_of('researcher')[2:] -%}
          - {{ (found | from_json).output }}
          {% endfor %}
  researcher:
    cases:
      - { when: about Go, turns: [{ delay: 40ms, text: "Go compiles in a moment." }] }
      - { when: about Rust, turns: [{ delay: 20ms, text: "Rust has no data races." }] }
      - { when: older, turns: [{ reasoning: "2009 and 2010.", text: "Go is older by a year." }] }
"#;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let model = Arc::new(ScriptedModel::new(Arc::new(ModelScript::parse("example", SCRIPT)?)));
    let researcher = Agent::builder("researcher")
        .description("Researches one question and answers in a sentence.")
        .instruction("You are a concise researcher.")
        .model(model.clone())
        .build()?;
    let lead = Agent::builder("lead")
        .instruction("Research in the background, collect, then answer.")
        .model(model)
        .sub_agent(researcher)
        .build()?;
    let longhaul = Longhaul::builder(Team::new(lead)?).start().await?;

    // The stream has the events of the whole tree; `event.task` says whose each of them is.
    let mut events = longhaul.chat("Compare Go and Rust.").await?;
    let (mut said, mut answer) = (String::new(), None);
    let (mut root, mut ended) = (None, 0);
    while let Some(event) = events.next().await {
        let event = event?;
        let root = *root.get_or_insert(event.task);
        match event.kind {
            EventKind::Submitted { agent, headline, .. } => println!("{} {agent}: {headline}", event.task),
            EventKind::Text { text } if event.task == root => {
                print!("{text}");
                said.push_str(&text);
            }
            EventKind::Text { text } | EventKind::Reasoning { text } => println!("{} … {text}", event.task),
            EventKind::Call { tool, arguments, .. } => println!("\n[{tool} {arguments}]"),
            EventKind::Result { tool, output, is_error, .. } => {
                println!("[{tool} → {output}]");
                assert!(!is_error, "{output}");
            }
            EventKind::Finished { status, output, error, .. } => {
                println!("\n{} {status}{}", event.task, error.map(|e| format!(": {e}")).unwrap_or_default());
                ended += 1;
                answer = (event.task == root).then_some(output);
            }
            _ => {}
        }
    }

    // It really happened: three tasks below the root, all completed, and the answer has what they found.
    let answer = answer.ok_or("the root's end is the last event")?;
    let expected = "- Go compiles in a moment.\n- Rust has no data races.\n- Go is older by a year.";
    assert_eq!(answer.trim(), expected);
    assert_eq!(
        said,
        format!("Two languages, two researchers.{answer}"),
        "the text was streamed, each word once"
    );
    let tasks = longhaul.list(TaskFilter::default()).await?;
    assert_eq!((tasks.len(), ended), (4, 4));
    assert!(tasks.iter().all(|task| task.status == Status::Completed));
    longhaul.shutdown().await;
    Ok(())
}
