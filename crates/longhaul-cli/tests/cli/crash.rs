use std::collections::HashMap;
use std::fs;

use longhaul::Status;
use longhaul::entry::Entry;
use longhaul::id::CallId;

use crate::kit::{Kit, synthesis};

/// Kills a demo when it tells a line like this, and resumes it.
#[track_caller]
fn killed_at(fits: impl Fn(&str) -> bool) {
    let whole = synthesis(&Kit::new().run(&["demo", "--pace", "0"]).ended(0).out);

    let kit = Kit::new();
    let mut demo = kit.start(&["demo", "--pace", "0.15"]);
    let root = demo.root();
    demo.until(fits);
    demo.murder();

    let before = kit.journals();
    assert!(before.iter().any(|(state, _)| state.status == Status::Running), "it was killed while it worked");
    let resumed = kit.run(&["resume", "--pace", "0"]).ended(0);
    assert!(resumed.out.starts_with("Resuming "), "{}", resumed.out);
    assert_eq!(synthesis(&resumed.out), whole);

    let after = kit.journals();
    assert_eq!(after.len(), 5, "no task is lost, and none is there twice");
    for (state, journal) in &after {
        assert_eq!(state.status, Status::Completed, "{}", state.id);
        assert_eq!(state.root, root);
        let finished = journal.iter().filter(|record| matches!(record.entry, Entry::Finished(_))).count();
        assert_eq!(finished, 1, "{}", state.id);

        let mut calls: HashMap<CallId, (u32, u32)> = HashMap::new();
        for record in journal {
            match &record.entry {
                Entry::Called { call, .. } => calls.entry(*call).or_default().0 += 1,
                Entry::Returned(returned) => calls.entry(returned.call).or_default().1 += 1,
                _ => {}
            }
        }
        assert!(calls.values().all(|(_, returned)| *returned == 1), "{}: {calls:?}", state.id);

        // What was done before the kill is still there, as it was, and was not done again.
        let Some((had, begun)) = before.iter().find(|(had, _)| had.id == state.id) else { continue };
        assert_eq!(&journal[..begun.len()], &begun[..], "{}", state.id);
        for record in begun {
            if let Entry::Returned(returned) = &record.entry {
                assert_eq!(calls[&returned.call].0, 1, "{}: {} was called again", state.id, returned.call);
            }
        }
        if had.status == Status::Running {
            assert!(state.attempt > had.attempt, "{} was claimed again", state.id);
        }
    }
    let letters = after.iter().flat_map(|(_, journal)| journal);
    let endings =
        letters.filter(|record| matches!(&record.entry, Entry::Letter(l) if l.ending.is_some())).count();
    assert_eq!(endings, 4, "one letter for each child");
}

#[test]
fn killed_when_the_lead_has_just_begun() {
    killed_at(|line| line.contains("lead ") && line.contains("started"));
}

#[test]
fn killed_when_an_agent_calls_a_tool() {
    killed_at(|line| line.contains("librarian ") && line.contains("calls"));
}

#[test]
fn killed_when_the_lead_waits() {
    killed_at(|line| line.contains("lead ") && line.contains("waits"));
}

#[test]
fn killed_when_one_has_ended_and_others_have_not() {
    killed_at(|line| !line.contains("lead ") && line.ends_with("completed"));
}

#[test]
fn killed_twice() {
    let kit = Kit::new();
    let mut demo = kit.start(&["demo", "--pace", "0.15"]);
    demo.until(|line| line.contains("calls   run_background_agent"));
    demo.murder();
    let mut resumed = kit.start(&["resume", "--pace", "0.15"]);
    resumed.until(|line| line.contains("examiner ") && line.contains("calls"));
    resumed.murder();
    let ran = kit.run(&["resume", "--pace", "0"]).ended(0);
    let whole = Kit::new().run(&["demo", "--pace", "0"]).ended(0);
    assert_eq!(synthesis(&ran.out), synthesis(&whole.out));
    let nothing = kit.run(&["resume"]).ended(0);
    assert!(nothing.out.contains("nothing to resume"), "{}", nothing.out);
}

#[test]
fn a_script_of_ones_own_is_carried_on_without_its_file() {
    let kit = Kit::new();
    let script = kit.data.path().join("mine.yaml");
    let words = "agents:\n  lead:\n    turns:\n      - { text: First., calls: [{ tool: list_background_agents }] }\n      - { text: \"All my own words.\", delay: 300ms }\n";
    fs::write(&script, words).unwrap();
    let mut demo = kit.start(&["demo", "--script", &script.display().to_string()]);
    demo.until(|line| line.contains("got "));
    demo.murder();
    fs::remove_file(&script).unwrap();
    let resumed = kit.run(&["resume", "--pace", "0"]).ended(0);
    assert!(resumed.out.contains("All my own words."), "{}", resumed.out);
    assert_eq!(kit.journals()[0].0.attempt.0, 2);
}

#[test]
fn what_a_killed_process_left_is_not_shown_as_running() {
    let kit = Kit::new();
    let mut demo = kit.start(&["demo", "--pace", "0.15"]);
    let root = demo.root().to_string();
    demo.until(|line| line.contains("auditor ") && line.contains("calls"));
    assert!(!kit.run(&["tasks"]).ended(0).out.contains("interrupted"), "while it runs, it runs");
    demo.murder();
    let tasks = kit.run(&["tasks"]).ended(0).out;
    assert!(tasks.contains("interrupted") && tasks.contains("longhaul resume"), "{tasks}");
    assert!(!tasks.contains("running") && !tasks.contains("waiting"), "{tasks}");
    assert!(kit.run(&["show", &root]).ended(0).out.contains("interrupted"));
    let states = kit.run(&["tasks", "--json"]).ended(0).json();
    assert!(states.iter().all(|state| state["status"] != "running"), "{states:?}");
}
