//! The last words: of those that a root leaves, of a task that is no root, and the answer of a root that leaves others.

use std::time::{Duration, Instant};

use longhaul::Status;
use longhaul::task::TaskState;

use crate::kit::{Kit, Ran};

/// A root that sends three out; `play` is what each says.
fn team(kit: &Kit, root: &str, worker: &str, more: &str) {
    let team = format!(
        "agents:\n  root:\n    model: play\n    sub_agents: [worker]\n    toolsets: [{{type: background_agents}}]\n{more}  worker: {{model: play}}\n"
    );
    let play = format!(
        r"
agents:
  root:
    turns:
      - calls:
          - {{tool: run_background_agent, arguments: {{agent: worker, task: one}}}}
          - {{tool: run_background_agent, arguments: {{agent: worker, task: two}}}}
          - {{tool: run_background_agent, arguments: {{agent: worker, task: three}}}}
      - {root}
  worker:
    turns: [{worker}]
"
    );
    kit.plays("team.yaml", &team, &play);
}

/// How many lines tell this of a worker.
fn told(ran: &Ran, what: &str) -> usize {
    ran.err.lines().filter(|line| line.contains(&format!("  worker        {what}"))).count()
}

#[test]
fn what_happens_after_the_roots_end_is_told() {
    let kit = Kit::new();
    team(
        &kit,
        "{text: I leave them.}",
        "{delay: 500ms, text: Late.}",
        "    background: {on_finish: detach}\n",
    );
    let ran = kit.run(&["run", "team.yaml", "go"]).ended(0);
    assert_eq!((told(&ran, "says    Late."), told(&ran, "completed")), (3, 3), "{}", ran.err);
    assert_eq!(told(&ran, "started"), 3, "nothing is told twice: {}", ran.err);
    let ends = kit.run(&["run", "team.yaml", "go", "--json"]).ended(0).json();
    assert_eq!(ends.iter().filter(|event| event["event"] == "finished").count(), 4);
    let last = ends.last().unwrap();
    assert_eq!((&last["event"], &last["output"]), (&"finished".into(), &"I leave them.".into()), "{last}");
}

#[test]
fn every_child_of_a_root_without_time_is_told_of() {
    let kit = Kit::new();
    team(&kit, "{delay: 60s, text: x}", "{delay: 60s, text: x}", "");
    for _ in 0..3 {
        let ran = kit.run(&["run", "team.yaml", "go", "--timeout", "700ms"]).ended(124);
        assert_eq!(told(&ran, "cancelled"), 3, "{}", ran.err);
    }
}

#[test]
fn a_child_that_is_tried_again_is_followed_to_its_own_end() {
    let kit = Kit::new();
    // What is tried again finds `go`, and need not wait.
    let waits = r#"cmd: "until [ -e go ]; do sleep 0.05; done", timeout: 300"#;
    let worker = format!("{{calls: [{{tool: shell, arguments: {{{waits}}}}}]}}, {{text: Done after all.}}");
    team(&kit, "{delay: 60s, text: x}", &worker, "");
    let file = kit.ground.path().join("team.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    let shell = "worker: {model: play, toolsets: [{type: shell}]}";
    let text = text.replace("worker: {model: play}", shell);
    std::fs::write(&file, format!("permissions: {{allow: [shell]}}\n{text}")).unwrap();
    kit.run(&["run", "team.yaml", "go", "--timeout", "700ms"]).ended(124);
    kit.write("go", "");
    let child = |kit: &Kit| {
        let stopped = |state: &TaskState| state.parent.is_some() && state.status == Status::Cancelled;
        kit.journals().into_iter().find(|(state, _)| stopped(state)).unwrap().0.id
    };
    // Queued, and nothing else: the command would have it run in the background.
    let again = |kit: &Kit| {
        let child = child(kit);
        kit.client(async |longhaul| longhaul.retry(child).await.unwrap()).to_string()
    };
    let ran = kit.run(&["resume", &again(&kit)]).ended(0);
    let line = |text: &str| ran.out.lines().filter(|line| line.contains(text)).count();
    assert_eq!((line("says    Done after all."), line("  worker        completed")), (1, 1), "{}", ran.out);
    assert!(ran.out.contains("\nDone after all.\n"), "its answer: {}", ran.out);
    assert!(!ran.out.contains("timed out"), "the root's end is an old story: {}", ran.out);
    // The same without its name, and for programs.
    again(&kit);
    let ran = kit.run(&["resume", "--json"]).ended(0).json();
    let last = ran.last().unwrap();
    assert_eq!((&last["event"], &last["output"]), (&"finished".into(), &"Done after all.".into()), "{last}");
}

#[test]
fn a_root_that_leaves_others_does_not_keep_its_answer_back() {
    let kit = Kit::new();
    team(&kit, "{text: I leave them.}", "{delay: 20s, text: Late.}", "");
    let begun = Instant::now();
    let ran = kit.run(&["run", "team.yaml", "go", "--on-finish", "detach"]).ended(0);
    // The usual time to finish steps in is 10 s.
    assert!(begun.elapsed() < Duration::from_secs(9), "{:?}", begun.elapsed());
    assert_eq!(ran.out, "I leave them.\n");
    assert!(ran.err.contains("3 tasks of t-") && ran.err.contains(" go on in the background"), "{}", ran.err);
    assert!(!ran.err.contains("interrupted"), "{}", ran.err);
    kit.until("workers that run in the background", |journals| {
        let runs = |state: &TaskState| state.status == Status::Running && state.attempt.0 == 2;
        (journals.iter().filter(|(state, _)| runs(state)).count() == 3).then_some(())
    });
    for (state, _) in kit.journals().into_iter().filter(|(state, _)| state.parent.is_some()) {
        kit.run(&["stop", &state.id.to_string()]).ended(0);
        kit.run(&["wait", &state.id.to_string()]).ended(3);
    }
}
