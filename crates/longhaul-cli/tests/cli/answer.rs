//! Answering what tasks ask, from a second terminal.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use longhaul::entry::{ExpectedAnswer, Question};
use longhaul::model::Model;
use longhaul::model::scripted::{ModelScript, ScriptedModel};
use longhaul::permission::Permissions;
use longhaul::tool::{CallContext, Tool, ToolEffects, ToolError, ToolOutput};
use longhaul::{Agent, Longhaul, Order, SubAgentDialect, Team};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::form::looks_like;
use crate::kit::{Kit, block_on};

const SCRIPT: &str = r#"
agents:
  lead:
    turns:
      - calls: [{ tool: transfer_task, arguments: { agent: worker, task: "{{ task }}" } }]
      - text: "{{ result }}"
  worker:
    turns:
      - calls: [{ tool: write, arguments: { path: notes.txt } }, { tool: wonder, arguments: { path: x } }]
      - calls: [{ tool: write, arguments: { path: more.txt } }]
      - text: "{{ results_of('write') | join(', ') }}; {{ results_of('wonder') | join(', ') }}"
"#;

#[derive(Deserialize, Serialize, JsonSchema)]
struct Path {
    path: String,
}

/// Pretends to write.
struct Write;

impl Tool for Write {
    type Args = Path;

    fn name(&self) -> &str {
        "write"
    }

    fn description(&self) -> String {
        "Writes.".to_owned()
    }

    async fn call(&self, args: Path, _: &CallContext) -> Result<ToolOutput, ToolError> {
        Ok(format!("wrote {}", args.path).into())
    }
}

/// Asks a person.
struct Wonder;

impl Tool for Wonder {
    type Args = Path;

    fn name(&self) -> &str {
        "wonder"
    }

    fn description(&self) -> String {
        "Wonders.".to_owned()
    }

    fn effects(&self) -> ToolEffects {
        ToolEffects::READ_ONLY
    }

    async fn call(&self, _: Path, context: &CallContext) -> Result<ToolOutput, ToolError> {
        let question =
            Question { text: "Which branch?".to_owned(), wants: ExpectedAnswer::Words { schema: None } };
        Ok(format!("{:?}", context.ask(question).await).into())
    }
}

fn team() -> Team {
    let script = ModelScript::parse("asks.yaml", SCRIPT).unwrap();
    let model: Arc<dyn Model> = Arc::new(ScriptedModel::new(Arc::new(script)));
    let agent = |name: &str| Agent::builder(name).model(model.clone());
    let worker = agent("worker").tool(Write).tool(Wonder).build().unwrap();
    let lead = agent("lead").sub_agent(worker).dialect(SubAgentDialect::Background).build().unwrap();
    Team::new(lead).unwrap().with_permissions(Permissions::default())
}

/// The first terminal: runs the team on the kit's database until its one task has ended. What that said.
fn first_terminal(kit: &Kit) -> (std::thread::JoinHandle<String>, String) {
    let store = kit.store();
    let (tell, told): (Sender<String>, _) = channel();
    let run = move || {
        block_on(async {
            let longhaul = Longhaul::builder(team()).shared_store(store).start().await.unwrap();
            let root = longhaul.submit(Order::new("lead", "Take notes")).await.unwrap();
            tell.send(root.to_string()).unwrap();
            let output = longhaul.wait([root]).await.unwrap().tasks.remove(0).output;
            longhaul.shutdown().await;
            output
        })
    };
    let terminal = std::thread::spawn(run);
    (terminal, told.recv().unwrap())
}

/// Waits until the worker has asked so much, and is in this turn.
fn asked(kit: &Kit, many: usize, turn: u32) -> String {
    kit.until("the worker to ask", |journals| {
        let asks = |state: &&longhaul::task::TaskState| {
            state.asked.len() == many && state.turns == turn && state.waiting.is_some()
        };
        journals.iter().map(|(state, _)| state).find(asks).map(|state| state.id.to_string())
    })
}

#[test]
fn what_is_asked_is_shown_and_answered_from_another_process() {
    let kit = Kit::new();
    let (terminal, root) = first_terminal(&kit);
    let worker = asked(&kit, 2, 1);
    let path = kit.data.path().display().to_string();
    let plain = |text: String| text.replace(&path, "DATA");

    looks_like!("asks_tasks", plain(kit.run(&["tasks"]).ended(0).out));
    looks_like!("asks_show", plain(kit.run(&["show", &worker]).ended(0).out));
    looks_like!("asks_logs", plain(kit.run(&["logs", &worker]).ended(0).out));
    let shown = kit.run(&["show", &worker, "--json"]).ended(0).json().remove(0);
    assert_eq!(shown["questions"][0]["question"], "1.0.0");
    assert_eq!(shown["questions"][0]["wants"]["leave"]["tool"], "write");
    assert_eq!(shown["questions"][1]["text"], "Which branch?");

    let several = kit.run(&["answer", &worker, "yes"]).ended(2);
    assert!(several.err.contains("1.0.0, 1.1.1") && several.err.contains("--question NAME"), "{several:?}");
    let bad = kit.run(&["answer", &worker, "perhaps", "--question", "1.0.0"]).ended(2);
    assert!(bad.err.contains("'perhaps' is no answer to this"), "{bad:?}");
    let wrong = kit.run(&["answer", &worker, "yes", "--question", "one"]).ended(2);
    assert!(wrong.err.contains("an id looks like 2.0.1"), "{wrong:?}");
    // The root asks nothing, and below it there are two to choose from.
    kit.run(&["answer", &root, "yes"]).complains(
        2,
        &[
            &format!("2 questions are open below {root}: {worker}: "),
            "Which branch?",
            &format!("answer {worker} --question 1.0.0 …"),
        ],
    );
    kit.run(&["answer", "t-zzzzz", "yes"]).ended(4);
    kit.run(&["answer", &worker]).ended(2);

    let words = kit.run(&["answer", &worker, "--question", "1.1.1", "the", "main", "one"]).ended(0);
    assert_eq!(words.out, format!("answered {worker}: Which branch?\n"));
    let again = kit.run(&["answer", &worker, "--question", "1.1.1", "another"]).ended(1);
    assert!(again.err.contains("already closed: the main one"), "{again:?}");
    // Now there is one, and the root is enough to name it.
    let always = kit.run(&["answer", &root, "always", "write:path=*.txt"]).ended(0);
    let (first, second) = always.out.split_once('\n').unwrap();
    assert!(first.starts_with(&format!("answered {worker}: ")) && first.contains("write"), "{first}");
    assert_eq!(second, "allowed from now on, in the whole tree: write:path=*.txt\n");
    let output = terminal.join().unwrap();
    assert!(output.contains("wrote notes.txt, wrote more.txt; Given(\"the main one\")"), "{output}");
    let late = kit.run(&["answer", &worker, "yes"]).ended(1);
    assert!(late.err.contains("has no open question: it is completed"), "{late:?}");
}

#[test]
fn an_answer_is_json_where_json_is_wanted() {
    let kit = Kit::new();
    let (terminal, _) = first_terminal(&kit);
    let worker = asked(&kit, 2, 1);
    let declined =
        kit.run(&["answer", &worker, "--decline", "--question", "1.1.1", "--json"]).ended(0).json();
    assert_eq!(declined[0]["question"], "1.1.1");
    kit.run(&["answer", &worker, "no", "later"]).ended(0);
    let worker = asked(&kit, 1, 2);
    let always = kit.run(&["answer", &worker, "always", "--json"]).ended(0).json();
    assert_eq!(always[0]["granted"], "=write {\"path\":\"more.txt\"}");
    assert_eq!(always[0]["also"].as_array().unwrap().len(), 0);
    let output = terminal.join().unwrap();
    assert!(output.contains("said no: later") && output.contains("wrote more.txt; Declined"), "{output}");
}
