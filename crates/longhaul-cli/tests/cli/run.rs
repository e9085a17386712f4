//! What `run` looks like: in a pipe, without colours, as JSON, and when it cannot begin.

use std::collections::HashMap;

use crate::form::looks_like;
use crate::kit::{Kit, Ran, fed};

/// A lead that asks a helper and waits for it, so that what happens is the same every time.
const TEAM: &str = r#"
agents:
  root:
    model: script
    sub_agents: [helper]
  helper:
    model: script
    toolsets: [{type: filesystem, tools: [list_directory]}]
models:
  script:
    provider: scripted
    script: |
      agents:
        root:
          turns:
            - text: I ask the helper.
              calls: [{tool: transfer_task, arguments: {agent: helper, task: "Look around, for: {{ task }}"}}]
            - text: "There is a README.\nThat is all."
        helper:
          turns:
            - calls: [{tool: list_directory, arguments: {path: .}}]
            - text: I saw it.
"#;

/// Many at once, each with a child of its own.
const CROWD: &str = r#"
agents:
  root: {model: script, sub_agents: [lead], toolsets: [{type: background_agents}]}
  lead: {model: script, sub_agents: [hand], toolsets: [{type: background_agents}]}
  hand: {model: script}
models:
  script:
    provider: scripted
    script: |
      agents:
        root:
          turns:
            - calls:
                - {tool: run_background_agent, arguments: {agent: lead, task: one}}
                - {tool: run_background_agent, arguments: {agent: lead, task: two}}
                - {tool: run_background_agent, arguments: {agent: lead, task: three}}
            - {until: "find_all('SEEN \\w+') | length >= 3", text: Waiting.}
            - text: All are back.
        lead:
          turns:
            - calls: [{tool: run_background_agent, arguments: {agent: hand, task: "{{ task }}"}}]
            - {until: "letters | length >= 1", text: Waiting.}
            - text: "SEEN {{ task | trim }}"
        hand:
          turns: [{text: Done.}]
"#;

fn kit(team: &str) -> Kit {
    let kit = Kit::new();
    kit.write("team.yaml", team);
    kit
}

/// Without what may come a moment earlier or later.
fn steady(text: &str, kit: &Kit) -> String {
    let fleeting = |line: &&str| !line.contains("  started") && !line.contains("  waits   ");
    let lines: Vec<&str> = text.lines().filter(fleeting).collect();
    lines.join("\n").replace(&kit.data.path().display().to_string(), "DATA")
}

#[test]
fn in_a_pipe_the_answer_is_all_of_standard_output() {
    let kit = kit(TEAM);
    let ran = kit.run(&["run", "team.yaml", "me"]).ended(0);
    assert_eq!(ran.out, "There is a README.\nThat is all.\n");
    looks_like!("run_pipe", steady(&ran.err, &kit));
    let plain = Ran::from(
        kit.command(&["run", "team.yaml", "me"]).env("NO_COLOR", "1").env("TERM", "xterm").output().unwrap(),
    );
    assert_eq!(plain.ended(0).out, ran.out);
    let colored = kit.command(&["run", "team.yaml", "me"]).env("CLICOLOR_FORCE", "1").output().unwrap();
    assert!(colored.stderr.contains(&0x1b) && !colored.stdout.contains(&0x1b), "an answer is never painted");
}

#[test]
fn lines_come_in_the_order_in_which_things_happened() {
    for _ in 0..5 {
        let kit = kit(CROWD);
        let ran = kit.run(&["run", "team.yaml", "Go"]).ended(0);
        // The id of a task, and what is said of it.
        let lines: Vec<(&str, String)> = ran
            .err
            .lines()
            .filter_map(|line| {
                let mut words = line.split_whitespace();
                let (_, id) = (words.next()?, words.next()?);
                id.starts_with("t-").then(|| (id, words.skip(1).collect::<Vec<_>>().join(" ")))
            })
            .filter(|(_, what)| !what.is_empty())
            .collect();
        let place = |found: &dyn Fn(&str, &str) -> bool| {
            lines.iter().position(|(id, what)| found(id, what)).unwrap_or_else(|| panic!("{}", ran.err))
        };
        let mut seen = 0;
        for (at, (id, what)) in lines.iter().enumerate() {
            if let Some((_, parent)) = what.split_once("(for ") {
                let parent = parent.trim_end_matches(')');
                let called =
                    place(&|id, what| id == parent && what.starts_with("calls run_background_agent"));
                assert!(called < at, "{id} before the call that made it:\n{}", ran.err);
                seen += 1;
            }
            if let Some(child) = what.strip_prefix("letter from ").and_then(|rest| rest.split(':').next()) {
                let ended = place(&|id, what| id == child && what.starts_with("completed"));
                assert!(ended < at, "a letter before the end that it tells of:\n{}", ran.err);
                seen += 1;
            }
        }
        assert_eq!(seen, 12, "{}", ran.err);
        let times: Vec<&str> =
            ran.err.lines().filter_map(|line| line.get(..8)).filter(|t| t.as_bytes()[2] == b':').collect();
        assert!(times.is_sorted(), "{}", ran.err);
    }
}

#[test]
fn as_json_it_is_an_event_a_line_in_order_and_nothing_else() {
    let kit = kit(TEAM);
    let ran = kit.run(&["run", "team.yaml", "me", "--json"]).ended(0);
    assert_eq!(ran.err, "");
    let events = ran.json();
    let mut agents = HashMap::new();
    let mut told = Vec::new();
    for event in &events {
        let task = event["task"].as_str().unwrap().to_owned();
        if event["event"] == "submitted" {
            agents.insert(task.clone(), event["agent"].as_str().unwrap().to_owned());
        }
        let kind = event["event"].as_str().unwrap();
        if kind != "started" && kind != "waiting" {
            let mut keys: Vec<&str> = event.as_object().unwrap().keys().map(String::as_str).collect();
            keys.sort_unstable();
            told.push(format!("{:<7}{kind:<10}{}", agents[&task], keys.join(" ")));
        }
    }
    insta::assert_snapshot!("run_json", told.join("\n"));
    let times: Vec<&str> = events.iter().map(|event| event["at"].as_str().unwrap()).collect();
    assert!(times.is_sorted_by_key(|at| at.parse::<jiff::Timestamp>().unwrap()), "{times:?}");
    let last = events.last().unwrap();
    assert_eq!((&last["event"], &last["status"]), (&"finished".into(), &"completed".into()));
    assert_eq!(last["output"], "There is a README.\nThat is all.");
}

#[test]
fn every_event_is_documented() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    let (source, page) = (read("../longhaul/src/snapshot.rs"), read("../../docs/running.md"));
    let body = source.split_once("pub enum EventKind {").unwrap().1.split_once("\n}\n").unwrap().0;
    let variants: Vec<&str> = body
        .lines()
        .filter_map(|line| line.strip_prefix("    "))
        .filter(|line| line.starts_with(char::is_uppercase))
        .map(|line| line.trim_end_matches([' ', '{', ',']))
        .collect();
    assert!(variants.len() > 15, "{variants:?}");
    for variant in variants {
        let word = crate::events::snake_case(variant);
        assert!(
            page.contains(&format!("| `{word}` |")),
            "docs/running.md does not tell of the event '{word}'"
        );
    }
    let help = crate::kit::Kit::new().run(&["--help"]).ended(0).out;
    let codes = help.split_once("Exit codes:\n").unwrap().1;
    for line in codes.lines().filter(|line| line.trim_start().starts_with(|c: char| c.is_ascii_digit())) {
        let code = line.split_whitespace().next().unwrap();
        assert!(
            page.contains(&format!("\n| {code} |")),
            "docs/running.md does not tell of the exit code {code}"
        );
    }
}

#[test]
fn the_prompt_comes_from_where_it_is_said() {
    let echo = "agents: {root: {model: s}}\nmodels: {s: {provider: scripted, script: \"agents: {root: {turns: [{text: 'You said: {{ task | trim }}'}]}}\"}}\n";
    let kit = kit(echo);
    assert_eq!(kit.run(&["run", "team.yaml", "as typed"]).ended(0).out, "You said: as typed\n");
    let piped = fed(kit.command(&["run", "team.yaml", "-"]), "über\nzwei Zeilen\n".as_bytes()).ended(0);
    assert_eq!(piped.out, "You said: über\nzwei Zeilen\n");
    assert_eq!(fed(kit.command(&["run", "team.yaml"]), b"piped").ended(0).out, "You said: piped\n");
    kit.write("prompt.txt", "from a file");
    assert_eq!(kit.run(&["run", "team.yaml", "@prompt.txt"]).ended(0).out, "You said: from a file\n");
}

#[test]
fn what_cannot_begin_says_why() {
    let kit = kit(TEAM);
    let mut told = String::new();
    let mut tell = |args: &[&str], code: i32| {
        let ran = kit.run(args).ended(code);
        assert_eq!(ran.out, "", "{args:?}");
        told.push_str(&format!("$ longhaul {}\n{}\n", args.join(" "), ran.err));
    };
    tell(&["run", "nowhere.yaml", "x"], 6);
    tell(&["run", "docs", "x"], 6);
    kit.write(
        "wrong.yaml",
        "agents:\n  root:\n    modle: auto\n    sub_agents: [helpr]\n  helper: {model: auto}\n",
    );
    tell(&["run", "wrong.yaml", "x"], 6);
    kit.write("keyless.yaml", "agents:\n  root:\n    model: openai/gpt-5\n");
    tell(&["run", "keyless.yaml", "x"], 6);
    kit.write("variable.yaml", "agents:\n  root:\n    model: m\n    toolsets: [{type: shell, env: {A: \"${env.NOT_SET_HERE}\"}}]\nmodels: {m: {provider: scripted, script: \"agents: {root: {turns: [{text: hi}]}}\"}}\n");
    tell(&["run", "variable.yaml", "x"], 6);
    tell(&["run", "team.yaml", "x", "--agent", "rot"], 2);
    tell(&["run", "team.yaml", "x", "--model", "nobody=openai/gpt-5"], 2);
    tell(&["run", "team.yaml", ""], 2);
    tell(&["run", "team.yaml", "  \n"], 2);
    tell(&["run", "team.yaml"], 2);
    tell(&["run", "team.yaml", "@nowhere.txt"], 2);
    tell(&["run", "team.yaml", "x", "--working-dir", "nowhere"], 2);
    tell(&["run", "team.yaml", "x", "--replay", "nowhere.jsonl"], 2);
    tell(&["run", "team.yaml", "x", "--env-from-file", "nowhere.env"], 2);
    tell(&["run", "team.yaml", "x", "--max-cost", "0"], 2);
    kit.write(
        "unpriced.yaml",
        "providers: {mine: {base_url: 'http://127.0.0.1:9/v1'}}\nagents:\n  root: {model: mine/m}\n",
    );
    tell(&["run", "unpriced.yaml", "x", "--max-cost", "1"], 2);
    tell(&["run", "team.yaml", "x", "--max-tokens", "0"], 2);
    tell(&["run", "team.yaml", "x", "--timeout", "0s"], 2);
    insta::assert_snapshot!("run_errors", told);
    assert_eq!(fed(kit.command(&["run", "team.yaml", "-"]), b"\xff\xfe").ended(2).out, "");
    assert!(kit.journals().is_empty(), "nothing was submitted");
}
