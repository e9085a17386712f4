//! Time and people: what waits for whom, for how long, who carries it on, and what is said of it.

use std::process::Command;

use longhaul::Status;
use longhaul::entry::Entry;
use longhaul::task::TaskState;
use nix::sys::signal::Signal;

use crate::kit::{Kit, Ran};

/// An agent that has to ask before it writes, and a helper that fails.
const TEAM: &str = "permissions: {ask: [write_file]}\nagents:\n  root:\n    model: play\n    sub_agents: [helper]\n    \
                    toolsets: [{type: filesystem}, {type: background_agents}]\n  helper: {model: play}\n";

fn kit(turns: &str) -> Kit {
    let kit = Kit::new();
    let play = format!(
        "agents:\n  root:\n    turns:\n{turns}\n  helper: {{turns: [{{delay: 300ms, errors: [{{status: 400, message: no}}]}}]}}"
    );
    kit.plays("team.yaml", TEAM, &play);
    kit
}

const WRITES: &str =
    "      - calls: [{tool: write_file, arguments: {path: a, content: b}}]\n      - text: Over.";

fn asks(kit: &Kit) -> TaskState {
    kit.until("a question", |journals| {
        journals.iter().map(|(state, _)| state).find(|state| !state.asked.is_empty()).cloned()
    })
}

fn slow(kit: &Kit, delay: &str) {
    kit.plays(
        "slow.yaml",
        "agents: {root: {model: play}}\n",
        &format!("agents: {{root: {{turns: [{{delay: {delay}, text: 'Here I am.'}}]}}}}"),
    );
}

fn ended(kit: &Kit, id: &str) -> TaskState {
    let id: longhaul::TaskId = id.parse().unwrap();
    kit.until("its end", |journals| {
        let found = journals.iter().map(|(state, _)| state).find(|state| state.id == id);
        found.filter(|state| state.status.is_final()).cloned()
    })
}

/// "limits.timeout: 15s, killed at 2.5 s, resumed 16 s later: timed out", in small.
#[test]
fn time_in_which_nobody_runs_a_task_does_not_count() {
    let kit = Kit::new();
    kit.plays(
        "team.yaml",
        "agents: {root: {model: play, limits: {timeout: 3s}}}\n",
        "agents: {root: {turns: [{delay: 1500ms, text: 'Here I am.'}]}}",
    );
    let running = kit.start(&["run", "team.yaml", "x"]);
    kit.until("a root that runs", |journals| {
        journals.iter().find(|(state, _)| state.status == Status::Running).map(|_| ())
    });
    running.murder();
    std::thread::sleep(std::time::Duration::from_millis(3500));
    assert!(kit.run(&["resume"]).ended(0).out.contains("Here I am."));
}

#[test]
fn an_approval_has_no_end_unless_one_is_said_and_then_every_view_shows_it() {
    let kit = kit(WRITES);
    kit.run(&["run", "team.yaml", "x", "--detach"]).ended(0);
    let state = asks(&kit);
    assert_eq!(state.asked[0].until, None);
    kit.run(&["stop", &state.id.to_string()]).ended(0);

    kit.run(&["run", "team.yaml", "x", "--detach", "--ask-timeout", "1h"]).ended(0);
    let state = kit.until("a question", |journals| {
        let mut tasks = journals.iter().map(|(state, _)| state);
        tasks.rfind(|state| !state.status.is_final() && !state.asked.is_empty()).cloned()
    });
    let id = state.id.to_string();
    let until = state.asked[0].until.unwrap();
    assert!((3590..=3600).contains(&until.duration_since(state.asked[0].since).as_secs()), "{state:?}");
    let clock = until.to_string()[11..19].to_owned();
    for view in
        [&["tasks"][..], &["show", &id], &["logs", &id], &["show", &id, "--json"], &["tasks", "--json"]]
    {
        let shown = kit.run(view).ended(0).out;
        assert!(shown.contains(&clock), "{view:?}: {clock} is not in {shown}");
    }
    kit.run(&["stop", &id]).ended(0);

    let team = TEAM
        .replace("    model: play\n    sub", "    model: play\n    limits: {ask_timeout: 300ms}\n    sub");
    kit.plays("brief.yaml", &team, &format!("agents:\n  root:\n    turns:\n{WRITES}"));
    let ran = kit.run(&["run", "brief.yaml", "x", "--unattended", "wait"]).ended(0);
    assert!(ran.err.contains(", then the answer is no") && ran.out == "Over.\n", "{ran:?}");
}

/// `run --timeout` bounds the command by the clock, also while it waits for a person.
#[test]
fn the_timeout_of_a_command_goes_by_the_clock() {
    let kit = kit(WRITES);
    let ran = kit.run(&["run", "team.yaml", "x", "--unattended", "wait", "--timeout", "2s"]).ended(124);
    assert!(
        ran.err.contains("error: --timeout: t-") && ran.err.contains("hint: try it again: "),
        "{}",
        ran.err
    );
    let (state, journal) = kit.journals().remove(0);
    assert_eq!(state.status, Status::Cancelled);
    let stopped = journal.iter().find(|record| matches!(record.entry, Entry::StopRequested(_))).unwrap();
    let after = stopped.at.duration_since(state.created).as_millis();
    assert!((1900..2900).contains(&after), "on time, and not a second late: {after} ms");
}

#[test]
fn every_failure_says_why_also_when_it_is_quiet() {
    let kit = kit(
        "      - calls: [{tool: run_background_agent, arguments: {agent: helper, task: Help}}]\n      - text: I do not care.",
    );
    let text = std::fs::read_to_string(kit.ground.path().join("team.yaml")).unwrap();
    kit.write(
        "team.yaml",
        &text.replace("    sub_agents", "    background: {on_finish: detach}\n    sub_agents"),
    );
    for quiet in [&["-q"][..], &[], &["--json"]] {
        let args = [&["run", "team.yaml", "x"][..], quiet].concat();
        let ran = kit.run(&args).ended(1);
        assert!(
            ran.err.contains("of helper failed, and t-") && ran.err.contains("no"),
            "{args:?}: {}",
            ran.err
        );
    }
}

#[test]
fn calls_that_nobody_was_there_to_allow_are_told_and_can_fail_a_run() {
    let kit = kit(WRITES);
    for quiet in [&["-q"][..], &[]] {
        let ran = kit.run(&[&["run", "team.yaml", "x"][..], quiet].concat()).ended(0);
        assert!(ran.err.contains("1 call was denied because no one was there to approve"), "{}", ran.err);
        let ran = kit.run(&[&["run", "team.yaml", "x", "--fail-on-denied"][..], quiet].concat()).ended(8);
        assert_eq!(ran.out, "Over.\n", "the answer is printed all the same");
        assert!(ran.err.contains("1 call was denied"), "{}", ran.err);
    }
    let denied: Vec<u32> = kit.journals().iter().map(|(state, _)| state.denied).collect();
    assert_eq!(denied, [1, 1, 1, 1]);
    let allowed = kit.run(&["run", "team.yaml", "x", "--yolo", "--fail-on-denied"]).ended(0);
    assert!(!allowed.err.contains("denied"), "{}", allowed.err);
}

#[test]
fn a_drain_says_what_it_waits_for() {
    let kit = Kit::new();
    slow(&kit, "2s");
    let running = kit.start(&["run", "slow.yaml", "x"]);
    let id = kit.until("a root that runs", |journals| {
        journals.iter().find(|(state, _)| state.status == Status::Running).map(|(state, _)| state.id)
    });
    running.signal(Signal::SIGINT);
    let ran = running.end();
    let told = format!("resume {id}`. Ctrl-C again cancels the run.");
    assert!(
        ran.err.contains("Pausing after the current step (up to 10 s). Resume with `longhaul ")
            && ran.err.contains(&told)
            && ran.err.contains(&format!("waiting for the model of {id} (root)")),
        "{}",
        ran.err
    );
}

/// Starts a run in a directory and kills it.
fn left_in(kit: &Kit, directory: &str) -> String {
    let place = kit.ground.path().join(directory);
    std::fs::create_dir_all(&place).unwrap();
    let had = kit.journals().len();
    let mut command: Command = kit.command(&["run", "../slow.yaml", directory]);
    command.current_dir(&place);
    let running = kit.started(command);
    let id = kit.until("a root that runs", |journals| {
        let running = journals.iter().filter(|(state, _)| state.status == Status::Running);
        running.map(|(state, _)| state).find(|state| state.headline == directory).cloned()
    });
    running.murder();
    assert_eq!(kit.journals().len(), had + 1);
    id.id.to_string()
}

fn resumes(kit: &Kit, directory: &str, args: &[&str]) -> Ran {
    let mut command = kit.command(&[&["resume"][..], args].concat());
    command.current_dir(kit.ground.path().join(directory));
    Ran::from(command.output().unwrap())
}

#[test]
fn without_an_id_only_the_runs_of_the_project_are_carried_on() {
    let kit = Kit::new();
    slow(&kit, "700ms");
    std::fs::create_dir_all(kit.ground.path().join("one/.git")).unwrap();
    std::fs::create_dir_all(kit.ground.path().join("one/src")).unwrap();
    std::fs::create_dir_all(kit.ground.path().join("three")).unwrap();
    let (one, two) = (left_in(&kit, "one"), left_in(&kit, "two"));

    // Nothing here: the others are named, and none is started. Nobody is there to be asked, so that is no success.
    let ran = resumes(&kit, "three", &[]).ended(2);
    assert!(ran.err.contains("error: nothing was resumed") && ran.err.contains("hint: "), "{}", ran.err);
    assert!(
        ran.err.contains("nothing to resume in ") && ran.err.contains(&one) && ran.err.contains(&two),
        "{ran:?}"
    );
    assert!(ran.err.contains("resume --all") && ran.err.contains("resume ID"), "{}", ran.err);
    assert!(kit.journals().iter().all(|(state, _)| state.attempt.0 == 1), "nothing was started");

    // From below in the repository.
    let ran = resumes(&kit, "one/src", &[]).ended(0);
    assert!(ran.out.contains(&one) && !ran.out.contains(&two), "{ran:?}");
    assert!(ran.err.contains("1 run of other projects left as they are"), "{}", ran.err);
    let state = |id: &str| kit.journals().into_iter().find(|(task, _)| task.id.to_string() == id).unwrap().0;
    assert_eq!((state(&one).status, state(&two).attempt.0), (Status::Completed, 1));

    let ran = resumes(&kit, "one", &["--all"]).ended(0);
    assert!(ran.out.contains(&two), "{ran:?}");
    assert_eq!(state(&two).status, Status::Completed);
}

#[test]
fn resume_hands_over_to_the_background_and_has_a_time_limit() {
    let kit = Kit::new();
    slow(&kit, "700ms");
    let one = left_in(&kit, "one");
    let ran = resumes(&kit, "one", &["--detach"]).ended(0);
    assert!(ran.out.contains(&one) && ran.err.contains(&format!("attach {one}")), "{ran:?}");
    assert_eq!(ended(&kit, &one).status, Status::Completed);
    slow(&kit, "60s");
    let two = left_in(&kit, "two");
    let ran = resumes(&kit, "two", &["--timeout", "300ms"]).ended(124);
    assert!(ran.err.contains("error: --timeout: "), "{}", ran.err);
    assert_eq!(ended(&kit, &two).status, Status::Cancelled);
}

/// The policy for questions that nobody is there to answer, as `run` has it.
#[test]
fn resume_denies_or_gives_back_what_nobody_is_there_to_answer() {
    let kit = kit(WRITES);
    let running = kit.start(&["run", "team.yaml", "x", "--unattended", "wait"]);
    let id = asks(&kit).id.to_string();
    running.murder();
    let ran = kit.run(&["resume", "--unattended", "stop"]).ended(8);
    assert!(ran.err.contains("needs a person") && ran.err.contains(&format!("answer {id}")), "{}", ran.err);
    kit.run(&["resume", "--unattended", "deny"]).ended(0);
    assert_eq!(ended(&kit, &id).denied, 1);
}

#[test]
fn what_is_tried_again_or_written_to_goes_on_in_the_background() {
    let kit = Kit::new();
    slow(&kit, "500ms");
    let first = kit.run(&["run", "slow.yaml", "x", "--timeout", "100ms"]).ended(124);
    assert!(first.err.contains("timed out"), "{}", first.err);
    let id = kit.journals()[0].0.id.to_string();
    // Without its bound, which it would have again.
    kit.run(&["run", "slow.yaml", "y"]).ended(0);
    let done = kit.journals()[1].0.id.to_string();

    let ran = kit.run(&["send", &done, "And now?"]).ended(0);
    assert!(ran.out.contains("it is continued as t-") && ran.err.contains("attach t-"), "{ran:?}");
    let next = kit.journals()[2].0.id.to_string();
    assert_eq!(ended(&kit, &next).status, Status::Completed, "nobody had to be told to run it");

    let ran = kit.run(&["send", "--wait", &next, "And now?"]).ended(0);
    assert!(ran.out.contains("Here I am."), "{ran:?}");

    let ran = kit.run(&["retry", &id]).ended(0);
    assert!(ran.out.contains("is retried as t-") && ran.err.contains("attach t-"), "{ran:?}");
    let again = kit.journals().last().unwrap().0.id.to_string();
    assert_eq!(ended(&kit, &again).status, Status::Failed, "it has the same bound");
    let ran = kit.run(&["retry", "--wait", &id]).ended(124);
    assert!(ran.out.contains("timed out"), "{ran:?}");
}

#[test]
fn a_session_goes_on_without_its_file_and_with_another_budget() {
    let kit = Kit::new();
    kit.plays(
        "team.yaml",
        "agents: {root: {model: play, commands: {more: 'Say more.'}}}\n",
        "agents: {root: {turns: [{calls: [{tool: nothing}], usage: {input: 400, output: 1}}, {text: 'I got {{ task }}'}]}}",
    );
    let first = kit.run(&["run", "team.yaml", "x", "--max-tokens", "100"]).ended(7);
    assert!(first.err.contains("401 tokens of 100"), "{}", first.err);
    let id = kit.journals()[0].0.id.to_string();
    std::fs::remove_file(kit.ground.path().join("team.yaml")).unwrap();

    // The bound that it had is not enough.
    kit.run(&["run", "--session", &id, "go on"]).ended(7);
    let ran = kit.run(&["run", "--session", &id, "go on", "--max-tokens", "100000"]).ended(0);
    assert_eq!(ran.out, "I got go on\n");
    let ran = kit.run(&["run", "--session", &id, "/more"]).ended(0);
    assert_eq!(ran.out, "I got Say more.\n", "its commands, and the budget it has now");
    kit.run(&["run", "--session", &id, "x", "--model", "a/b"]).complains(2, &["--model", "team file"]);
    kit.run(&["run"]).ended(2);
}
