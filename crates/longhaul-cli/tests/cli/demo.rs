use std::process::Stdio;
use std::time::Instant;

use longhaul::Status;
use nix::sys::signal::Signal;

use crate::kit::{Kit, synthesis};

#[test]
fn the_demo_in_a_pipe_ends_with_a_synthesis_and_a_summary() {
    let kit = Kit::new();
    let ran = kit.run(&["demo", "--pace", "0"]).ended(0);
    let told = synthesis(&ran.out);
    for words in [
        "Map    3 entries at the top, 2 of them directories (docs, src)",
        "Size   4 text files, 10 lines; mostly rs (5), md (3), txt (2)",
        "Words  README.md, 3 lines read: “The ground”",
        "Notes  2 TODO, 1 FIXME, 1 HACK",
        "Tests  1 marks of tests in 1 files",
    ] {
        assert!(told.contains(words), "'{words}' is not in: {told}");
    }
    let root = ran.out.lines().nth(1).unwrap().split_whitespace().last().unwrap();
    let first: Vec<&str> = ran.out.lines().take(4).collect();
    assert!(
        first[2].starts_with("resume  longhaul --data ") && first[2].ends_with(&format!("resume {root}"))
    );
    for words in ["TURNS  TOOLS  TOKENS", "cartographer  ✓ completed", "5 tasks"] {
        assert!(ran.out.contains(words), "'{words}' is not in: {}", ran.out);
    }
    let next = ran.out.split_once("What next?").map(|(_, next)| next).unwrap_or_default();
    for words in [format!("show {root}"), "tui".to_owned(), "init team.yaml".to_owned()] {
        assert!(next.contains(&words), "'{words}' is not in: {next}");
    }
    assert!(!kit.data.path().join("longhaul.db-wal").exists(), "all is in the one file when nobody works");
    let journals = kit.journals();
    assert_eq!(journals.len(), 5);
    assert!(journals.iter().all(|(state, _)| state.status == Status::Completed));
}

#[test]
fn the_demo_says_the_same_on_the_same_directory() {
    let (kit, other) = (Kit::new(), Kit::new());
    let first = kit.run(&["demo", "--pace", "0"]).ended(0);
    let again = other.run(&["demo", "--pace", "0.02"]).ended(0);
    assert_eq!(synthesis(&first.out), synthesis(&again.out));
}

#[test]
fn the_demo_works_where_there_is_nothing() {
    let mut kit = Kit::new();
    kit.ground = tempfile::tempdir().unwrap();
    kit.run(&["demo", "--pace", "0"]).ended(0);
}

#[test]
fn the_first_interrupt_drains_and_resume_carries_on() {
    let kit = Kit::new();
    let mut demo = kit.start(&["demo", "--pace", "0.3"]);
    let root = demo.root();
    demo.until(|line| line.contains("auditor") && line.contains("calls"));
    demo.signal(Signal::SIGINT);
    let drained = demo.end().ended(130);
    assert!(drained.err.contains("Ctrl-C again cancels the run."), "{}", drained.err);
    assert!(drained.err.contains(&format!("resume {root}")), "{}", drained.err);
    assert!(kit.journals().iter().all(|(state, _)| state.status != Status::Running), "all are given back");

    let resumed = kit.run(&["resume", "--pace", "0"]).ended(0);
    let whole = Kit::new().run(&["demo", "--pace", "0"]).ended(0);
    assert_eq!(synthesis(&resumed.out), synthesis(&whole.out));
}

#[test]
fn the_second_interrupt_stops() {
    let kit = Kit::new();
    let mut demo = kit.start(&["demo", "--pace", "2"]);
    demo.until(|line| line.contains("auditor") && line.contains("started"));
    demo.signal(Signal::SIGINT);
    demo.signal(Signal::SIGTERM);
    let begun = Instant::now();
    let ran = demo.end().ended(3);
    assert!(begun.elapsed().as_secs() < 5);
    assert!(ran.out.contains("cancelled"), "{}", ran.out);
    for (state, _) in kit.journals() {
        assert_eq!((state.status, state.settled), (Status::Cancelled, true), "{}", state.id);
    }
}

#[test]
fn one_event_a_line_as_json() {
    let kit = Kit::new();
    let events = kit.run(&["demo", "--pace", "0", "--json"]).ended(0).json();
    let of = |kind: &str| events.iter().filter(|event| event["event"] == kind).count();
    assert_eq!((of("submitted"), of("finished")), (5, 5));
    assert!(of("call") >= 12 && of("call") == of("result"), "{events:?}");
    let last = events.last().unwrap();
    assert!(last["output"].as_str().unwrap().starts_with("What four agents found here:"), "{last}");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let kit = Kit::new();
    let mut demo = kit.command(&["demo", "--pace", "0.2"]).spawn().unwrap();
    drop(demo.stdout.take());
    let ended = demo.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), String::from_utf8(ended.stderr).unwrap()), (Some(0), String::new()));
    // Nobody hears of it, and it is done all the same.
    assert!(kit.journals().iter().all(|(state, _)| state.status == Status::Completed));

    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let ended = kit.command(&["tasks"]).stdout(Stdio::from(writer)).output().unwrap();
    assert_eq!((ended.status.code(), ended.stderr.is_empty()), (Some(0), true), "{ended:?}");
}
