//! A second terminal.

use std::time::{Duration, Instant};

use longhaul::Status;
use longhaul::entry::{Entry, Sender};

use crate::kit::Kit;

#[test]
fn another_process_lists_shows_writes_to_and_stops_what_runs() {
    let kit = Kit::new();
    let mut demo = kit.start(&["demo", "--pace", "5"]);
    let root = demo.root().to_string();
    demo.until(|line| line.contains("auditor ") && line.contains("started"));

    let tasks = kit.run(&["tasks", "--json"]).ended(0).json();
    assert_eq!(tasks.len(), 5);
    assert!(tasks.iter().all(|task| task["status"] == "running"), "{tasks:?}");
    let table = kit.run(&["tasks"]).ended(0).out;
    assert!(table.contains("● running") && table.contains("auditor"), "{table}");
    let shown = kit.run(&["show", &root]).ended(0).out;
    assert!(shown.contains("child ") && shown.contains("Take stock of this directory"), "{shown}");

    let sent = kit.run(&["send", &root, "hello", "from", "the", "other"]).ended(0);
    let when = Instant::now();
    assert_eq!(sent.out, format!("sent to {root}\n"));
    demo.until(|line| line.contains("letter  from a person: hello from the other"));
    let took = when.elapsed();
    println!("the letter was told {took:?} after it was sent");
    assert!(took < Duration::from_secs(2), "{took:?}");
    let in_journal = kit.journals().into_iter().flat_map(|(_, journal)| journal).any(|record| {
        matches!(&record.entry, Entry::Letter(l) if l.from == Sender::Person && &*l.text == "hello from the other")
    });
    assert!(in_journal);

    let resume = kit.run(&["resume"]).ended(0);
    assert!(resume.err.contains("is run by another process"), "{resume:?}");

    let timed_out = kit.run(&["wait", &root, "--timeout", "10ms"]).ended(124);
    assert!(timed_out.err.contains("the tasks go on"), "{timed_out:?}");

    let when = Instant::now();
    let stopped = kit.run(&["stop", &root]).ended(0);
    assert!(stopped.out.contains("and everything below it told to stop"), "{}", stopped.out);
    demo.end().ended(3);
    assert!(when.elapsed() < Duration::from_secs(5), "{:?}", when.elapsed());
    kit.run(&["wait", &root, "--timeout", "5s"]).ended(3);
    for (head, _) in kit.journals() {
        assert_eq!((head.status, head.settled), (Status::Cancelled, true), "{}", head.id);
    }
}

#[test]
fn logs_follow_a_task_of_another_process_to_its_end() {
    let kit = Kit::new();
    let mut demo = kit.start(&["demo", "--pace", "0.1"]);
    let root = demo.root().to_string();
    let logs = kit.start(&["logs", "-f", "--json", &root]);
    let waits = kit.start(&["wait", "--any", &root]);
    let events = logs.end().ended(0).json();
    assert_eq!(events.last().unwrap()["event"], "finished", "{events:?}");
    assert!(events.iter().all(|event| event["task"] == root.as_str()));
    waits.end().ended(0);
    demo.end().ended(0);
}

#[test]
fn a_letter_to_what_has_ended_continues_it() {
    let kit = Kit::new();
    let mut demo = kit.start(&["demo", "--pace", "0"]);
    let root = demo.root().to_string();
    demo.end().ended(0);
    let sent = kit.run(&["send", &root, "And now?"]).ended(0).out;
    assert!(sent.contains(&format!("{root} had ended: it is continued as t-")), "{sent}");
    let next = sent.lines().last().unwrap().split_whitespace().last().unwrap().to_owned();
    assert!(sent.contains(&format!("resume {next}")), "{sent}");
    let resumed = kit.run(&["resume", &next, "--pace", "0"]).ended(0).out;
    assert!(resumed.contains("You wrote: And now?"), "{resumed}");
    let shown = kit.run(&["show", &root]).ended(0).out;
    assert!(shown.contains(&format!("continued by  {next}")), "{shown}");
    let ended = kit.run(&["resume", &root]).ended(0).out;
    assert!(ended.contains(&format!("{root} has ended (completed)")), "{ended}");
}

#[test]
fn stop_all_stops_all() {
    let kit = Kit::new();
    let none = kit.run(&["stop", "--all"]).ended(0).out;
    assert_eq!(none, "no task is open\n");
    let mut demo = kit.start(&["demo", "--pace", "5"]);
    demo.until(|line| line.contains("auditor ") && line.contains("started"));
    let stopped = kit.run(&["stop", "--all"]).ended(0).out;
    assert_eq!(stopped, "5 tasks told to stop\n");
    demo.end().ended(3);
}
