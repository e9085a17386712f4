//! Exit codes of `run`: the root's end, and no failure that nobody was told of.

use longhaul::Status;
use nix::sys::signal::Signal;

use crate::kit::{Kit, Ran};

/// A root that sends a helper out; what both say is up to the test.
fn team(kit: &Kit, root: &str, helper: &str, more: &str) {
    let indented =
        |text: &str| text.trim().lines().map(|line| format!("            {line}\n")).collect::<String>();
    kit.write(
        "team.yaml",
        &format!(
            "agents:\n  root:\n    model: script\n    sub_agents: [helper]\n    toolsets: [{{type: background_agents}}]\n{more}\
             \x20 helper:\n    model: script\n\
             models:\n  script:\n    provider: scripted\n    script: |\n      agents:\n\
             \x20       root:\n          turns:\n{}        helper:\n          turns:\n{}",
            indented(root),
            indented(helper)
        ),
    );
}

const SENDS: &str =
    "- text: Off you go.\n  calls: [{tool: run_background_agent, arguments: {agent: helper, task: Help}}]\n";
const WAITS: &str = "- until: letters | length >= 1\n  text: Waiting.\n- text: \"I did it myself.\"";
const FAILS: &str = "- errors: [{status: 400, message: no}]";

fn run(kit: &Kit, more: &[&str]) -> Ran {
    let mut args = vec!["run", "team.yaml", "Do it"];
    args.extend(more);
    kit.run(&args)
}

#[test]
fn a_root_that_answers_is_0() {
    let kit = Kit::new();
    team(&kit, "- text: Done.", FAILS, "");
    let ran = run(&kit, &[]).ended(0);
    assert_eq!(ran.out, "Done.\n");
}

#[test]
fn a_failed_helper_is_0_if_the_root_was_told_and_went_on() {
    let kit = Kit::new();
    team(&kit, &format!("{SENDS}{WAITS}"), FAILS, "");
    let ran = run(&kit, &[]).ended(0);
    assert_eq!(ran.out, "I did it myself.\n");
    assert!(ran.err.contains("✗ failed"), "{}", ran.err);

    // The same when it was collected, not written to.
    let kit = Kit::new();
    let asks = "- calls: [{tool: transfer_task, arguments: {agent: helper, task: Help}}]\n- text: Then not.";
    team(&kit, asks, FAILS, "");
    assert_eq!(run(&kit, &[]).ended(0).out, "Then not.\n");
}

#[test]
fn a_failed_helper_that_nobody_heard_of_is_1() {
    let kit = Kit::new();
    let late = format!("{FAILS}\n  delay: 300ms");
    team(&kit, &format!("{SENDS}- text: I do not care."), &late, "    background: {on_finish: detach}\n");
    let ran = run(&kit, &[]).ended(1);
    assert_eq!(ran.out, "I do not care.\n");
    assert!(ran.err.contains("✗ failed"), "{}", ran.err);
}

#[test]
fn a_failed_root_is_1_and_its_words_are_no_answer() {
    let kit = Kit::new();
    team(&kit, &format!("- text: I begin.\n  calls: [{{tool: list_background_agents}}]\n{FAILS}"), FAILS, "");
    let ran = run(&kit, &[]).ended(1);
    assert_eq!(ran.out, "", "no answer, nothing on standard output");
    assert!(
        ran.err.contains("failed: ") && ran.err.contains("What it had said by then:\nI begin."),
        "{}",
        ran.err
    );
}

#[test]
fn a_stopped_run_is_3() {
    let kit = Kit::new();
    team(&kit, "- text: I think.\n  delay: 60s", FAILS, "");
    let running = kit.start(&["run", "team.yaml", "Do it"]);
    let id = kit.until("a root that runs", |journals| {
        journals
            .iter()
            .find(|(state, _)| state.status == Status::Running)
            .map(|(state, _)| state.id.to_string())
    });
    kit.run(&["stop", &id]).ended(0);
    let ran = running.end().ended(3);
    assert_eq!(ran.out, "");
    assert!(ran.err.contains("cancelled"), "{}", ran.err);
}

#[test]
fn an_interrupted_run_is_130_and_can_be_resumed() {
    let kit = Kit::new();
    team(&kit, "- text: Slowly.\n  delay: 1s", FAILS, "");
    let running = kit.start(&["run", "team.yaml", "Do it"]);
    kit.until("a root that runs", |journals| {
        journals.iter().find(|(state, _)| state.status == Status::Running).map(|_| ())
    });
    running.signal(Signal::SIGINT);
    let ran = running.end().ended(130);
    assert_eq!(ran.out, "");
    std::fs::remove_file(kit.ground.path().join("team.yaml")).unwrap();
    let resumed = kit.run(&["resume"]).ended(0);
    assert!(resumed.out.contains("\nSlowly.\n"), "{}", resumed.out);
}

/// `timeout` sends its signal to the program and then to its group.
#[test]
fn the_same_signal_twice_at_once_is_one_wish() {
    let kit = Kit::new();
    team(&kit, "- text: Slowly.\n  delay: 1s", FAILS, "");
    let running = kit.start(&["run", "team.yaml", "Do it"]);
    kit.until("a root that runs", |journals| {
        journals.iter().find(|(state, _)| state.status == Status::Running).map(|_| ())
    });
    running.signal(Signal::SIGTERM);
    running.signal(Signal::SIGTERM);
    running.end().ended(130);
    assert!(
        kit.journals().iter().all(|(state, _)| state.status == Status::Pending),
        "given back, not stopped"
    );
}

#[test]
fn a_run_that_a_limit_cut_short_is_7_and_one_without_time_124() {
    let again = "- text: Again.\n  calls: [{tool: list_background_agents}]\n";
    // The turns: there is an answer, which is printed, and it says on standard error what it is worth.
    let kit = Kit::new();
    team(&kit, &format!("{again}- text: As far as I came."), FAILS, "    limits: {turns: 1}\n");
    let ran = run(&kit, &[]).ended(7);
    assert_eq!(ran.out, "As far as I came.\n");
    assert!(ran.err.contains("cut short by "), "{}", ran.err);
    let listed = kit.run(&["tasks"]).ended(0).out;
    assert!(listed.contains("cut short by "), "{listed}");
    // The time.
    let kit = Kit::new();
    team(&kit, "- text: I think.\n  delay: 60s", FAILS, "");
    let ran = run(&kit, &["--timeout", "300ms"]).ended(124);
    assert_eq!(ran.out, "");
    assert!(ran.err.contains("timed out"), "{}", ran.err);
    // The tokens.
    let kit = Kit::new();
    team(&kit, &format!("{again}- text: Too late."), FAILS, "");
    let ran = run(&kit, &["--max-tokens", "1"]).ended(7);
    assert!(ran.err.contains("budget"), "{}", ran.err);
}
