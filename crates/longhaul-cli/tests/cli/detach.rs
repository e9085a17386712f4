//! `run --detach` and `attach`: a process in the background carries the tree, and others join and leave it.

use longhaul::Status;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getsid};

use crate::kit::{Kit, Ran, gone};

/// An agent that thinks for a while; how long is in the file.
fn team(kit: &Kit, delay: &str) {
    let text = "agents: {root: {model: s}}\nmodels: {s: {provider: scripted, script: \"agents: {root: {turns: [{delay: DELAY, text: 'Here I am.'}]}}\"}}\n";
    kit.write("team.yaml", &text.replace("DELAY", delay));
}

fn detached(kit: &Kit, args: &[&str]) -> String {
    let ran = kit.run(args).ended(0);
    assert!(ran.err.contains("longhaul --data") && ran.err.contains("attach t-"), "{}", ran.err);
    let id = ran.out.trim_end().to_owned();
    assert!(
        id.starts_with("t-") && ran.out == format!("{id}\n"),
        "the id is all of standard output: {}",
        ran.out
    );
    id
}

/// The process that carries a tree.
fn carrier(kit: &Kit, id: &str) -> Pid {
    let file = kit.data.path().join("carriers").join(format!("{id}.pid"));
    Pid::from_raw(std::fs::read_to_string(file).unwrap().parse().unwrap())
}

#[test]
fn a_process_in_the_background_ends_when_its_database_is_gone() {
    let kit = Kit::new();
    kit.plays(
        "asks.yaml",
        "agents: { root: { model: play, toolsets: [{ type: shell }] } }\n",
        "agents: { root: { turns: [{ calls: [{ tool: shell, arguments: { cmd: date } }] }, { text: done }] } }",
    );
    kit.run(&["run", "asks.yaml", "Go.", "--detach"]).ended(0);
    let id = kit.until("a question", |journals| {
        journals.iter().find(|(state, _)| !state.asked.is_empty()).map(|(state, _)| state.id)
    });
    let process = carrier(&kit, &id.to_string());
    std::fs::remove_dir_all(kit.data.path()).unwrap();
    gone(process);
}

#[test]
fn it_returns_at_once_and_the_answer_comes_all_the_same() {
    let kit = Kit::new();
    team(&kit, "1500ms");
    let id = detached(&kit, &["run", "team.yaml", "Where are you?", "--detach"]);
    let pid = carrier(&kit, &id);
    assert_eq!(getsid(Some(pid)), Ok(pid), "a session of its own: no terminal's end reaches it");
    let attached = kit.run(&["attach", &id]).ended(0);
    assert_eq!(attached.out, "Here I am.\n");
    assert!(
        attached.err.contains("Watching 1 task") && attached.err.contains("✓ completed"),
        "{}",
        attached.err
    );
    gone(pid);
    // What has ended is told again, for as long as it is kept.
    assert_eq!(kit.run(&["attach", &id]).ended(0).out, "Here I am.\n");
    assert_eq!(
        std::fs::read_dir(kit.data.path().join("carriers")).unwrap().count(),
        0,
        "nothing is left lying"
    );
    let (state, _) = kit.journals().remove(0);
    assert_eq!((state.status, state.attempt.0), (Status::Completed, 1));
}

#[test]
fn who_watches_may_leave_and_the_task_goes_on() {
    let kit = Kit::new();
    team(&kit, "2s");
    let id = detached(&kit, &["run", "team.yaml", "x", "--detach"]);
    let mut watching = kit.start(&["attach", &id, "--json"]);
    watching.until(|line| line.contains("submitted"));
    watching.signal(Signal::SIGINT);
    let left = watching.end().ended(130);
    assert!(
        left.err.contains("goes on; watch it again with") && left.err.contains(&format!("attach {id}")),
        "{}",
        left.err
    );
    kit.run(&["wait", &id]).ended(0);
    let (state, _) = kit.journals().remove(0);
    assert_eq!((state.status, state.attempt.0), (Status::Completed, 1), "nobody took it away");
}

#[test]
fn a_carrier_that_is_killed_is_noticed_and_one_that_is_asked_to_drains() {
    let kit = Kit::new();
    team(&kit, "60s");
    let id = detached(&kit, &["run", "team.yaml", "x", "--detach"]);
    let pid = carrier(&kit, &id);
    // Until it has the task, another process may take it.
    kit.until("the claim", |journals| {
        journals.iter().find(|(state, _)| state.status == Status::Running).map(|(state, _)| state.id)
    });
    let second = Ran::from(kit.command(&["resume", &id]).output().unwrap()).ended(1);
    assert!(second.err.contains("is run by another process"), "{}", second.err);
    let mut watching = kit.start(&["attach", &id, "--json"]);
    watching.until(|line| line.contains("submitted"));
    kill(pid, Signal::SIGKILL).unwrap();
    gone(pid);
    let left = watching.end().ended(130);
    assert!(left.err.contains("is no longer running") && left.err.contains("resume t-"), "{}", left.err);
    kit.run(&["attach", &id]).complains(1, &["is not running", "resume"]);

    let id = detached(&kit, &["run", "team.yaml", "y", "--detach"]);
    let pid = carrier(&kit, &id);
    kill(pid, Signal::SIGTERM).unwrap();
    gone(pid);
    let journals = kit.journals();
    let (state, _) = journals.iter().find(|(state, _)| state.id.to_string() == id).unwrap();
    assert_eq!(state.status, Status::Pending, "given back, not lost");
}

#[test]
fn the_exit_code_is_that_of_the_run() {
    let kit = Kit::new();
    let text = "agents: {root: {model: s}}\nmodels: {s: {provider: scripted, script: \"agents: {root: {turns: [{errors: [{status: 400, message: no}], text: x}]}}\"}}\n";
    kit.write("team.yaml", text);
    let id = detached(&kit, &["run", "team.yaml", "x", "--detach"]);
    kit.run(&["attach", &id]).ended(1);
    let told = kit.run(&["run", "team.yaml", "x", "--detach", "--json"]).ended(0).json();
    assert!(told[0]["task"].as_str().unwrap().starts_with("t-"));
    kit.run(&["attach", "t-zzzzz"]).complains(4, &["t-zzzzz"]);
}
