//! Processes that are stopped (Ctrl-Z), killed or alive while somebody else wants to carry their tasks on.
#![cfg(target_os = "linux")]

use std::process::Command;
use std::time::Duration;

use longhaul::Status;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::kit::{Kit, Ran, Running};

/// How long a process that says nothing keeps its tasks here, in seconds.
const LEASE: &str = "1.2";
/// All of a team file but its model.
const TEAM: &str =
    "permissions: {allow: [shell]}\nagents: {root: {model: play, toolsets: [{type: shell}]}}\n";
/// The steps of a run.
const STEPS: usize = 12;

/// An agent of twelve steps, each with one effect: a line in a file.
fn team(kit: &Kit) {
    let mut script = "agents:\n  root:\n    turns:\n".to_owned();
    for step in 1..=STEPS {
        script.push_str(&format!(
            "      - {{ delay: 60ms, calls: [{{ tool: shell, arguments: {{ cmd: \"echo {step} >> effects\" }} }}] }}\n"
        ));
    }
    script.push_str("      - text: All done.\n");
    kit.plays("team.yaml", TEAM, &script);
}

fn leased(kit: &Kit, args: &[&str]) -> Command {
    let mut command = kit.command(args);
    command.env("LONGHAUL_LEASE", LEASE);
    command
}

fn effects(kit: &Kit) -> Vec<usize> {
    let text = std::fs::read_to_string(kit.ground.path().join("effects")).unwrap_or_default();
    text.lines().map(|line| line.parse().unwrap()).collect()
}

/// A run that has made some of its steps, and is stopped then. It does not hold the database.
fn stopped(kit: &Kit) -> (Running, String) {
    team(kit);
    let run = kit.started(leased(kit, &["run", "team.yaml", "go"]));
    let id = kit.until("some steps", |journals| {
        let (state, _) = journals.first()?;
        (effects(kit).len() >= 3).then(|| state.id.to_string())
    });
    run.signal(Signal::SIGSTOP);
    free_the_file(kit, &run);
    (run, id)
}

/// A process that is stopped in the middle of a write holds the database: it goes on for a moment, and is stopped again.
fn free_the_file(kit: &Kit, run: &Running) {
    let file = rusqlite::Connection::open(kit.database()).unwrap();
    file.busy_timeout(Duration::from_millis(50)).unwrap();
    loop {
        while run.state() != Some('T') {
            std::thread::sleep(Duration::from_millis(1));
        }
        if file.execute_batch("BEGIN IMMEDIATE; ROLLBACK").is_ok() {
            return;
        }
        run.signal(Signal::SIGCONT);
        std::thread::yield_now();
        run.signal(Signal::SIGSTOP);
    }
}

#[track_caller]
fn says_that_it_lost(run: Running, id: &str) {
    let lost = run.end().ended(9);
    let said = format!("error: {id} is run by another process now: this one was stopped");
    assert!(lost.err.contains(&said) && lost.err.contains(&format!("attach {id}")), "{}", lost.err);
}

#[test]
fn who_was_stopped_while_another_resumed_does_nothing_more_and_says_so() {
    let kit = Kit::new();
    let (run, id) = stopped(&kit);
    let resumed = kit.started(leased(&kit, &["resume", &id]));
    kit.until("the other to take it", |journals| {
        let (state, _) = journals.first()?;
        (state.status == Status::Running && state.attempt.0 == 2).then_some(())
    });
    run.signal(Signal::SIGCONT);
    says_that_it_lost(run, &id);
    let resumed = resumed.end().ended(0);
    assert!(resumed.err.contains("checking for up to") && resumed.err.contains(&id), "{}", resumed.err);
    let effects = effects(&kit);
    assert!(effects.windows(2).all(|two| two[0] < two[1]), "a step was made twice: {effects:?}");
    // The step that was under way when it was stopped may have been cut off; what it did is unknown, and told.
    assert!(effects.len() >= STEPS - 1 && effects.last() == Some(&STEPS), "{effects:?}");
}

#[test]
fn who_was_stopped_and_missed_by_nobody_goes_on_as_if_nothing_had_been() {
    let kit = Kit::new();
    let (run, id) = stopped(&kit);
    std::thread::sleep(Duration::from_secs_f64(2.0 * LEASE.parse::<f64>().unwrap()));
    let shown = kit.run(&["show", &id]).ended(0).out;
    assert!(shown.contains("running") && shown.contains("has not renewed its lease"), "{shown}");
    run.signal(Signal::SIGCONT);
    run.end().ended(0);
    assert_eq!(effects(&kit), (1..=STEPS).collect::<Vec<_>>());
    assert_eq!(kit.journals()[0].0.attempt.0, 1, "nobody took it");
}

#[test]
fn what_a_living_process_runs_is_not_resumed_and_that_is_no_success() {
    let kit = Kit::new();
    team(&kit);
    let slow = std::fs::read_to_string(kit.ground.path().join("team.yaml")).unwrap().replace("60ms", "700ms");
    kit.write("team.yaml", &slow);
    let mut run = kit.started(leased(&kit, &["run", "team.yaml", "go", "--json"]));
    run.until(|line| line.contains(r#""event":"result""#));
    let (state, _) = kit.journals().remove(0);
    for args in [&["resume"][..], &["resume", &state.id.to_string()]] {
        let refused = Ran::from(leased(&kit, args).output().unwrap()).ended(1);
        assert!(refused.err.contains("is run by another process"), "{}", refused.err);
    }
    run.end().ended(0);
    assert_eq!(effects(&kit), (1..=STEPS).collect::<Vec<_>>());
}

/// As a kill between two steps of an older Longhaul left it: a row that says that somebody lives, and no file to ask.
#[test]
fn resume_waits_for_what_may_be_free_in_a_moment() {
    let kit = Kit::new();
    team(&kit);
    let run = kit.started(leased(&kit, &["run", "team.yaml", "go"]));
    kit.until("some steps", |_| (effects(&kit).len() >= 3).then_some(()));
    run.murder();
    let mut locks = kit.database().into_os_string();
    locks.push("-workers");
    std::fs::remove_dir_all(locks).unwrap();
    let resumed = Ran::from(leased(&kit, &["resume"]).output().unwrap()).ended(0);
    assert!(resumed.err.contains("checking for up to"), "{}", resumed.err);
    assert!(resumed.out.contains("All done."), "{}", resumed.out);
    let effects = effects(&kit);
    assert!(effects.windows(2).all(|two| two[0] < two[1]), "a step was made twice: {effects:?}");
}

#[test]
fn resume_of_what_has_ended_ends_as_that_did() {
    let kit = Kit::new();
    team(&kit);
    let mut run = kit.started(leased(&kit, &["run", "team.yaml", "go", "--json"]));
    run.until(|line| line.contains(r#""event":"result""#));
    let id = kit.journals().remove(0).0.id.to_string();
    kit.run(&["stop", &id]).ended(0);
    run.end().ended(3);
    let told = kit.run(&["resume", &id]).ended(3);
    assert!(told.out.contains("has ended (cancelled)"), "{}", told.out);
}

/// A command goes on while the process that started it is stopped. It is ended as soon as that wakes up and sees that the task is
/// not its own any more.
#[test]
fn the_command_of_a_task_that_was_taken_is_ended() {
    let kit = Kit::new();
    let script = "agents:\n  root:\n    turns:\n      - calls: [{ tool: shell, arguments: { cmd: \"echo $$ > pid; sleep 600; echo late >> effects\", \
                  timeout: 600 } }]\n      - { delay: 3s, text: All done. }\n";
    kit.plays("team.yaml", TEAM, script);
    let run = kit.started(leased(&kit, &["run", "team.yaml", "go"]));
    let pid = || std::fs::read_to_string(kit.ground.path().join("pid")).ok()?.trim().parse::<i32>().ok();
    let pid = Pid::from_raw(kit.until("the command", |_| pid()));
    let id = kit.journals().remove(0).0.id.to_string();
    run.signal(Signal::SIGSTOP);
    free_the_file(&kit, &run);
    let resumed = kit.started(leased(&kit, &["resume", &id]));
    kit.until("the other to take it", |journals| (journals.first()?.0.attempt.0 == 2).then_some(()));
    assert!(kill(pid, None).is_ok(), "nobody has told it yet");
    run.signal(Signal::SIGCONT);
    says_that_it_lost(run, &id);
    assert!(kill(pid, None).is_err(), "the command is still there");
    let resumed = resumed.end().ended(0);
    assert!(resumed.out.contains("All done."), "{}", resumed.out);
    assert!(effects(&kit).is_empty());
}

#[test]
fn what_a_killed_process_left_is_ended_by_a_stop() {
    let kit = Kit::new();
    team(&kit);
    let mut run = kit.started(leased(&kit, &["run", "team.yaml", "go", "--json"]));
    run.until(|line| line.contains(r#""event":"result""#));
    run.murder();
    let id = kit.journals().remove(0).0.id.to_string();
    kit.run(&["stop", &id]).ended(0);
    let (state, _) = kit.journals().remove(0);
    assert_eq!((state.status, state.settled), (Status::Cancelled, true), "nobody else would ever end it");
}
