//! What an MCP server asks of the model (sampling) is the task's: counted, priced, journaled, and bound by its budgets.

use longhaul::Status;
use longhaul::entry::FailureKind;

use crate::kit::Kit;

/// A server that asks the model as often as it is told to.
const SERVER: &str = include_str!("../../../longhaul/tests/it/mcp/strange.mjs");

/// The root, or a helper of it, calls a tool that asks the model 90 times, nine times a round.
fn kit(generation: &str) -> Kit {
    slow_kit(generation, "0ms")
}

/// The same, with a model that takes a while to answer the server.
fn slow_kit(generation: &str, delay: &str) -> Kit {
    let kit = Kit::new();
    kit.write("strange.mjs", SERVER);
    let team = format!(
        "permissions: {{allow: [strange_sample]}}\n\
         agents:\n  root:\n    model: play\n    sub_agents: [helper]\n    toolsets: [&srv {{type: mcp, name: strange, command: node, args: [strange.mjs, stdio, '{generation}']}}]\n  \
         helper:\n    model: play\n    toolsets: [*srv]\n"
    );
    let play = r#"
agents:
  root:
    cases:
      - when: /^sample/
        turns: [{text: Sampled., usage: {input: 4000, output: 1000}}]
      - when: delegate
        turns:
          - {usage: {input: 100, output: 10}, calls: [{tool: transfer_task, arguments: {agent: helper, task: ask}}]}
          - {text: "All said.", usage: {input: 100, output: 10}}
      - turns:
          - {usage: {input: 100, output: 10}, calls: [{tool: strange_sample, arguments: {times: 90, round: 9}}]}
          - {text: "All said: {{ result }}", usage: {input: 100, output: 10}}
  helper:
    cases:
      - when: /^sample/
        turns: [{text: Sampled., usage: {input: 4000, output: 1000}}]
      - turns:
          - {usage: {input: 100, output: 10}, calls: [{tool: strange_sample, arguments: {times: 90, round: 9}}]}
          - {text: "Asked.", usage: {input: 100, output: 10}}
"#;
    let play = play.replace("{text: Sampled.,", &format!("{{text: Sampled., delay: {delay},"));
    kit.plays("team.yaml", &team, &play);
    kit
}

/// How often the model was asked by the server, as the journals have it.
fn sampled(kit: &Kit) -> usize {
    let journals = kit.journals();
    let entries = journals.iter().flat_map(|(_, journal)| journal);
    entries.filter(|record| format!("{:?}", record.entry).starts_with("Sampled")).count()
}

#[test]
fn ten_requests_a_call_are_made_and_all_of_them_are_counted() {
    for generation in ["2025", "2026"] {
        let kit = kit(generation);
        let ran = kit.run(&["run", "--trust", "team.yaml", "Go."]).ended(0);
        assert!(ran.out.contains("asked the model 10 times"), "{}", ran.out);
        assert_eq!(sampled(&kit), 10);
        let state = kit.journals()[0].0.clone();
        assert_eq!(state.usage.total(), 10 * 5000 + 2 * 110, "{generation}");
        let shown = kit.run(&["show", &state.id.to_string()]).ended(0);
        assert!(shown.out.contains("50,220 tokens"), "{}", shown.out);
        let told = kit.run(&["logs", &state.id.to_string()]).ended(0);
        assert!(told.out.contains("sampled by an MCP server: 4,000 tokens in, 1,000 out"), "{}", told.out);
    }
}

#[test]
fn the_budget_of_the_task_bounds_them() {
    for generation in ["2025", "2026"] {
        let kit = kit(generation);
        let ran = kit.run(&["run", "--trust", "--max-tokens", "2000", "team.yaml", "Go."]).ended(7);
        assert_eq!(sampled(&kit), 1, "{}", ran.err);
        let (state, journal) = kit.journals()[0].clone();
        assert_eq!(state.usage.total(), 5000 + 110);
        assert_eq!(state.status, Status::Failed, "{:?} {}", FailureKind::Budget, ran.err);
        assert!(
            format!("{journal:?}").contains("used 5110 tokens of 2000"),
            "the server is told: {journal:?}"
        );
    }
}

#[test]
fn so_does_the_budget_of_the_tree() {
    let kit = kit("2026");
    kit.run(&["run", "--trust", "--max-tokens", "12000", "team.yaml", "delegate"]).ended(7);
    assert_eq!(sampled(&kit), 3);
    let total: u64 = kit.journals().iter().map(|(state, _)| state.usage.total()).sum();
    assert_eq!(total, 3 * 5000 + 220);
}

#[test]
fn what_was_used_before_a_kill_is_still_counted() {
    let kit = slow_kit("2026", "200ms");
    let running = kit.start(&["run", "--trust", "team.yaml", "Go."]);
    kit.until("the server to have asked", |_| (sampled(&kit) >= 2).then_some(()));
    running.murder();
    let before = kit.journals()[0].0.clone();
    assert!(before.usage.total() >= 2 * 5000 + 110 && !before.status.is_final());
    kit.run(&["resume"]).ended(0);
    let after = kit.journals()[0].0.clone();
    let asked = sampled(&kit) as u64;
    assert_eq!(after.usage.total(), asked * 5000 + u64::from(after.turns) * 110);
    assert!(asked >= 2 && after.status == Status::Completed);
}
