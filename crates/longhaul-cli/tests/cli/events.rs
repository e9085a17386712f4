//! Events as JSON: each fits the published schema, also while they come; who does not read them stops nobody.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;
use std::time::{Duration, Instant};

use longhaul::Status;
use longhaul::entry::{Entry, Record};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::kit::{Kit, TIMEOUT};

/// Everything that a script can bring about: tools, helpers in both ways, one that fails, a question.
const RICH: &str = r#"
permissions: {ask: [write_file]}
agents:
  root:
    model: play
    sub_agents: [helper, loser]
    toolsets: [{type: background_agents}, {type: think}]
  helper: {model: play, toolsets: [{type: filesystem}]}
  loser: {model: play}
"#;

/// What they say.
const RICH_PLAY: &str = r#"
agents:
  root:
    turns:
      - reasoning: Two of them.
        text: Off they go.
        calls:
          - {tool: run_background_agent, arguments: {agent: helper, task: write}}
          - {tool: run_background_agent, arguments: {agent: loser, task: lose}}
          - {tool: think, arguments: {thought: hm}}
      - {until: "find_all('task_ended') | length >= 1 and letters | length >= 2", text: Waiting.}
      - {errors: [{status: 429, retry_after: 10ms}], text: "All said."}
  helper:
    turns:
      - calls: [{tool: write_file, arguments: {path: notes.txt, content: x}}]
      - {text: Written., usage: {input: 5, output: 3, cached: 2, reasoning: 1}}
  loser:
    turns: [{errors: [{status: 400, message: no}], text: x}]
"#;

/// What goes otherwise than it should: a reply with nothing in it, a conversation that is too long, a hook that
/// fails, a server that asks the model, a wait that somebody cuts short, a process that goes.
const ODD: &str = r#"
permissions: {allow: [fetch, shell, strange_sample]}
agents:
  root:
    model: play
    sub_agents: [talker, holder]
    toolsets:
      - {type: background_agents}
      - {type: fetch}
      - {type: mcp, name: strange, command: node, args: [strange.mjs, stdio, '2026']}
  talker:
    model: play
    toolsets: [{type: think}, {type: mcp, command: no-such-server}]
    hooks: {task_start: [{type: command, command: exit 3}]}
  holder: {model: play, toolsets: [{type: shell}]}
"#;

/// What they say.
const ODD_PLAY: &str = r#"
agents:
  root:
    turns:
      - calls: [{tool: fetch, arguments: {urls: ["http://127.0.0.1:9/"], format: text}}]
      - text: ""
      - calls: [{tool: strange_sample}]
      - calls: [{tool: transfer_task, arguments: {agent: talker, task: talk}}]
      - calls: [{tool: transfer_task, arguments: {agent: holder, task: hold}}]
      - {until: "find_all('task_ended') | length >= 1", text: Waiting.}
      - text: All said.
  talker:
    turns:
      - {text: Many words., calls: [{tool: think, arguments: {thought: hm}}]}
      - {errors: [{status: 400, message: exceed_context_size}], text: x}
  holder:
    turns:
      - calls: [{tool: shell, arguments: {cmd: "until [ -e go ]; do sleep 0.1; done", timeout: 300}}]
      - text: Held.
"#;

/// The schema, in which a key that it does not know is wrong, and the kinds of events that it has.
fn strict(kit: &Kit) -> (jsonschema::Validator, BTreeSet<String>) {
    let mut schema: Value = serde_json::from_str(&kit.run(&["schema", "events"]).ended(0).out).unwrap();
    let mut kinds = BTreeSet::new();
    for event in schema["oneOf"].as_array_mut().unwrap() {
        event["additionalProperties"] = false.into();
        kinds.insert(event["properties"]["event"]["const"].as_str().unwrap().to_owned());
    }
    (jsonschema::validator_for(&schema).unwrap(), kinds)
}

#[test]
fn every_event_fits_the_published_schema() {
    let kit = Kit::new();
    let (schema, kinds) = strict(&kit);
    kit.plays("team.yaml", RICH, RICH_PLAY);
    kit.plays("odd.yaml", ODD, ODD_PLAY);
    kit.write("strange.mjs", include_str!("../../../longhaul/tests/it/mcp/strange.mjs"));
    let mut seen = BTreeSet::new();
    let mut check = |events: &[Value]| {
        for event in events {
            let wrong: Vec<String> = schema.iter_errors(event).map(|error| error.to_string()).collect();
            assert!(wrong.is_empty(), "{event}: {wrong:?}");
            seen.insert(event["event"].as_str().unwrap().to_owned());
        }
    };
    let running = kit.start(&["run", "--unattended", "wait", "team.yaml", "Go.", "--json"]);
    let asks = kit.until("the helper to ask", |journals| {
        journals.iter().map(|(state, _)| state.clone()).find(|state| !state.asked.is_empty())
    });
    kit.run(&["answer", &asks.id.to_string(), "always"]).ended(0);
    let events = running.end().ended(0).json();
    check(&events);
    let root = events[0]["task"].as_str().unwrap().to_owned();
    // What has ended is continued, given back, and stopped.
    kit.run(&["send", &root, "And now?"]).ended(0);
    check(&kit.run(&["logs", "--json", &root]).ended(0).json());
    let next = kit.run(&["show", "--json", &root]).ended(0).json()[0]["head"]["continued_by"].clone();
    let next = next.as_str().unwrap();
    kit.run(&["stop", next]).ended(0);
    check(&kit.run(&["logs", "--json", next]).ended(0).json());
    // It waits for one that somebody sends to the background; the process is told to go, and the rest is carried on.
    let running = kit.start(&["run", "odd.yaml", "Go.", "--json"]);
    let root = kit.until("it to wait for the holder", |journals| {
        let holds =
            journals.iter().any(|(state, _)| state.agent.as_str() == "holder" && !state.calling.is_empty());
        journals
            .iter()
            .map(|(state, _)| state)
            .find(|state| holds && state.waiting.is_some())
            .map(|state| state.id)
    });
    assert!(kit.client(async |longhaul| longhaul.background(root).await.unwrap()));
    kit.until("it to go on", |journals| {
        let said =
            |record: &Record| matches!(&record.entry, Entry::Replied(reply) if reply.text() == "Waiting.");
        journals.iter().any(|(_, journal)| journal.iter().any(said)).then_some(())
    });
    running.signal(Signal::SIGINT);
    kit.write("go", "");
    check(&running.end().ended(130).json());
    check(&kit.run(&["resume", &root.to_string(), "--json", "--max-tokens", "1000000"]).ended(0).json());
    check(&kit.run(&["logs", "--json", &root.to_string()]).ended(0).json());
    assert_eq!(seen, kinds, "every kind of event came, and none that the schema does not have");
    let nonsense = serde_json::json!({"v": 1, "task": "t-aaaaa", "seq": 1, "at": "2026-01-01T00:00:00Z", "event": "text"});
    assert!(!schema.is_valid(&nonsense), "a schema that takes everything shows nothing");
}

/// A variant's name as it is written in JSON: `HookFailed` is `hook_failed`.
pub(crate) fn snake_case(name: &str) -> String {
    let mut word = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !word.is_empty() {
            word.push('_');
        }
        word.extend(letter.to_lowercase());
    }
    word
}

/// The schema names the events that there are.
#[test]
fn every_event_is_in_the_schema() {
    let schema: Value = serde_json::from_str(include_str!("../../src/cmd/events.schema.json")).unwrap();
    let named: Vec<&str> =
        schema["oneOf"].as_array().unwrap().iter().map(|event| event["title"].as_str().unwrap()).collect();
    let source = include_str!("../../../longhaul/src/snapshot.rs");
    let body = source.split_once("pub enum EventKind {").unwrap().1.split_once("\n}\n").unwrap().0;
    let variants: Vec<String> = body
        .lines()
        .filter_map(|line| line.strip_prefix("    "))
        .filter(|line| line.starts_with(char::is_uppercase))
        .map(|line| snake_case(line.trim_end_matches([' ', '{', ','])))
        .collect();
    assert_eq!(named, variants);
}

/// Many words, and a while.
fn long(kit: &Kit, delay: &str) {
    let words = "word ".repeat(60_000);
    let script = format!(
        "agents:\n  root:\n    turns:\n      - text: {words}\n        calls: [{{tool: think, arguments: {{thought: hm}}}}]\n      - {{delay: {delay}, text: done}}\n"
    );
    let indented = script.replace('\n', "\n      ");
    kit.write(
        "team.yaml",
        &format!("agents: {{root: {{model: m, toolsets: [{{type: think}}]}}}}\nmodels:\n  m:\n    provider: scripted\n    script: |\n      {indented}\n"),
    );
}

#[test]
fn a_reader_that_stops_reading_does_not_stop_the_agents() {
    let kit = Kit::new();
    long(&kit, "10ms");
    let mut child = kit.command(&["run", "team.yaml", "Go.", "--json"]).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    // Nobody reads, and the pipe is full long before the end: the task ends all the same.
    kit.until("the task to end", |journals| {
        journals.iter().any(|(state, _)| state.status == Status::Completed).then_some(())
    });
    assert!(child.try_wait().unwrap().is_none(), "it has more to say than a pipe holds");
    let mut told = String::new();
    out.read_to_string(&mut told).unwrap();
    assert!(told.len() > 300_000 && told.lines().last().unwrap().contains("\"finished\""));
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_reader_that_goes_away_does_not_stop_them_either() {
    let kit = Kit::new();
    long(&kit, "300ms");
    for flag in [&["--json"][..], &[]] {
        let args = [&["run", "team.yaml", "Go."], flag].concat();
        let mut child = kit.command(&args).stdin(Stdio::null()).spawn().unwrap();
        if flag.is_empty() {
            // Those who read progress are on the other pipe.
            drop(child.stderr.take());
            let told = child.wait_with_output().unwrap();
            assert_eq!(
                (told.status.code(), String::from_utf8(told.stdout).unwrap()),
                (Some(0), "done\n".to_owned())
            );
        } else {
            let mut first = String::new();
            BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
            assert!(first.contains("submitted"), "{first}");
            assert_eq!(child.wait().unwrap().code(), Some(0));
        }
    }
    assert!(
        kit.journals().iter().all(|(state, _)| state.status == Status::Completed && state.attempt.0 == 1)
    );
}

#[test]
fn a_signal_is_heard_though_nobody_reads() {
    let kit = Kit::new();
    long(&kit, "60s");
    let child = kit.command(&["run", "team.yaml", "Go.", "--json"]).spawn().unwrap();
    kit.until("the second turn", |journals| journals.iter().any(|(state, _)| state.turns == 1).then_some(()));
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(child.id().cast_signed()),
        nix::sys::signal::Signal::SIGINT,
    )
    .unwrap();
    let deadline = Instant::now() + TIMEOUT;
    let mut child = child;
    while child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "it does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(kit.journals()[0].0.status, Status::Pending, "given back");
}

#[test]
fn jq_reads_while_it_runs() {
    let kit = Kit::new();
    let team = "permissions: {allow: [shell]}\nagents: {root: {model: play, toolsets: [{type: shell}]}}\n";
    let play = r#"
agents:
  root:
    turns:
      - calls: [{tool: shell, arguments: {cmd: "until [ -e go ]; do sleep 0.1; done", timeout: 300}}]
      - text: Over.
"#;
    kit.plays("team.yaml", team, play);
    let own = kit.command(&["run", "team.yaml", "Go.", "--json"]);
    // Where there is no jq, whoever reads a line a time.
    let reader = match std::process::Command::new("jq").arg("--version").output() {
        Ok(_) => "jq --unbuffered -r .event",
        Err(_) => r#"sed -u 's/.*"event":"\([a-z]*\)".*/\1/'"#,
    };
    let mut pipe = std::process::Command::new("sh");
    pipe.args(["-c", &format!("\"$@\" | {reader}"), "sh"]).arg(own.get_program()).args(own.get_args());
    pipe.current_dir(kit.ground.path()).stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null());
    let mut running = kit.started(pipe);
    for event in ["submitted", "started", "usage", "call"] {
        running.until(|line| line == event);
    }
    assert!(kit.journals().iter().all(|(state, _)| !state.status.is_final()), "that was read while it runs");
    kit.write("go", "");
    let ran = running.end().ended(0);
    assert_eq!(ran.out.lines().last(), Some("finished"), "{}", ran.out);
}
