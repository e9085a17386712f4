//! Teams whose agents use a real MCP server, through the command: the answer comes, and no server is left.

use std::path::Path;
use std::time::{Duration, Instant};

use longhaul::Status;
use longhaul::entry::Entry;

use crate::kit::{Kit, Ran, TIMEOUT};
use crate::term::Terminal;

#[path = "../../../longhaul/tests/it/mcp/npm.rs"]
mod npm;

const TEAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/teams/background-research.yaml");
const ANSWER: &str = "What they found: lakes = 7, parks = 42.\n";

/// A place where `npx` finds the server without a network.
fn kit() -> Kit {
    let kit = Kit::new();
    let modules = npm::installed().join("node_modules");
    std::os::unix::fs::symlink(modules, kit.ground.path().join("node_modules")).unwrap();
    kit
}

/// The command lines of all processes that run in a directory, besides the command's own.
fn processes(dir: &Path) -> Vec<String> {
    let dir = dir.canonicalize().unwrap();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let path = entry.path();
        let line = std::fs::read(path.join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if std::fs::read_link(path.join("cwd")).is_ok_and(|cwd| cwd == dir)
            && !line.starts_with(env!("CARGO_BIN_EXE_longhaul"))
            && !line.is_empty()
        {
            found.push(line);
        }
    }
    found
}

/// The servers among them: not `npx`, which starts one.
fn servers(dir: &Path) -> usize {
    let is_one = |line: &&String| line.starts_with("node ") && line.contains("mcp-server-everything");
    processes(dir).iter().filter(is_one).count()
}

fn gone(dir: &Path) {
    let begun = Instant::now();
    loop {
        let left = processes(dir);
        if left.is_empty() {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(5), "left behind: {left:#?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_coordinator_and_researchers_with_a_server_come_to_their_answer() {
    let kit = kit();
    let ran = kit.run(&["run", TEAM, "How many parks and lakes are there?"]).ended(0);
    assert_eq!(ran.out, ANSWER, "{}", ran.err);
    assert!(!ran.err.contains("warning"), "{}", ran.err);
    assert_eq!(processes(kit.ground.path()), [""; 0], "nothing is left when the command has ended");

    let journals = kit.journals();
    assert_eq!(journals.len(), 3);
    assert!(journals.iter().all(|(state, _)| state.status == Status::Completed), "{}", ran.err);
    let called = |wanted: &str| {
        let calls = journals.iter().flat_map(|(_, journal)| journal);
        calls
            .filter(|record| matches!(&record.entry, Entry::Called { tool, .. } if **tool == *wanted))
            .count()
    };
    assert_eq!((called("think"), called("run_background_agent")), (1, 2));
    assert_eq!((called("lookup_get-sum"), called("lookup_trigger-long-running-operation")), (2, 1));
    let ends = |record: &&longhaul::entry::Record| matches!(&record.entry, Entry::Letter(letter) if letter.ending.is_some());
    assert_eq!(journals.iter().flat_map(|(_, journal)| journal).filter(ends).count(), 2, "two letters came");
}

#[test]
fn killed_in_the_middle_it_leaves_no_server_and_is_carried_on_to_the_same_answer() {
    let kit = kit();
    let ground = kit.ground.path().to_owned();
    let running = kit.start(&["run", TEAM, "How many parks and lakes are there?"]);
    // What the server says of its progress is the task's progress.
    let told = kit.until("progress of the server", |journals| {
        journals.iter().find_map(|(state, _)| state.progress.clone())
    });
    assert!(format!("{told:?}").contains("of 10"), "{told:?}");
    assert_eq!(servers(&ground), 1, "two researchers, one server: {:#?}", processes(&ground));
    running.murder();
    gone(&ground);
    let before = kit.journals();
    assert!(before.iter().any(|(state, _)| state.status == Status::Running), "it was killed while it worked");

    let resumed = kit.run(&["resume"]).ended(0);
    assert!(resumed.out.contains(ANSWER), "{}\n{}", resumed.out, resumed.err);
    assert_eq!(processes(&ground), [""; 0]);
    let after = kit.journals();
    assert_eq!(after.len(), 3, "no task is lost, and none is there twice");
    assert!(after.iter().all(|(state, _)| state.status == Status::Completed));
    assert!(after.iter().any(|(state, _)| state.attempt.0 == 2), "somebody was claimed again");
}

#[test]
fn a_server_that_cannot_be_started_is_told_and_the_agent_goes_on() {
    let kit = Kit::new();
    let team = "agents: {root: {model: play, toolsets: [{type: mcp, command: no-such-server}]}}\n\
                models: {play: {provider: scripted, script: 'agents: {root: {turns: [{text: I go on.}]}}'}}\n";
    std::fs::write(kit.ground.path().join("team.yaml"), team).unwrap();
    let begun = Instant::now();
    let ran = kit.run(&["run", "team.yaml", "Go."]).ended(0);
    assert_eq!(ran.out, "I go on.\n");
    assert!(ran.err.contains("the command 'no-such-server' was not found"), "{}", ran.err);
    assert!(begun.elapsed() < TIMEOUT);
}

/// Whether the servers of a team can be started: one can, one says what it lacks and goes, one is not there.
const SERVERS: &str = r#"
agents:
  root:
    model: play
    toolsets:
      - type: mcp
        name: lookup
        command: node_modules/.bin/mcp-server-everything
        tools: [get-sum, echo]
      - type: mcp
        name: search
        command: sh
        args: [-c, "echo 'SEARCH_KEY is not set' >&2; exit 3"]
      - type: mcp
        name: nowhere
        command: no-such-server
models: {play: {provider: scripted, script: 'agents: {root: {turns: [{text: Fine.}]}}'}}
"#;

/// Of what the doctor says, that about the team.
fn of_team(told: &str) -> String {
    let from = told.lines().skip_while(|line| !line.contains(" team "));
    from.take_while(|line| !line.contains("broken;") && !line.contains("nothing is"))
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn the_doctor_starts_the_servers_of_a_team() {
    let kit = kit();
    kit.write("servers.yaml", SERVERS);
    let mut command = kit.command(&["doctor", "servers.yaml", "--trust"]);
    command.env("OLLAMA_HOST", "127.0.0.1:9").env("LLAMA_ARG_PORT", "9");
    let piped = Ran::from(command.output().unwrap()).ended(1);
    assert!(piped.out.contains("2 things are broken") && piped.err.is_empty(), "{piped:?}");
    insta::assert_snapshot!("doctor_mcp_pipe", of_team(&piped.out));
    assert_eq!(processes(kit.ground.path()), [""; 0], "none is left");
    let on = |columns: u16| {
        let (screen, code) = Terminal::run(&command, columns, 60).end();
        assert_eq!(code, 1, "{screen}");
        assert!(screen.lines().all(|line| line.chars().count() <= columns.into()), "{screen}");
        of_team(&screen)
    };
    insta::assert_snapshot!("doctor_mcp_80", on(80));
    insta::assert_snapshot!("doctor_mcp_40", on(40));
    let json = Ran::from(command.arg("--json").output().unwrap()).ended(1).json();
    let json: Vec<_> =
        json.iter().filter(|check| check["name"] == "team" || check["name"] == "toolset").collect();
    insta::assert_snapshot!("doctor_mcp_json", serde_json::to_string_pretty(&json).unwrap());

    // A team that is well makes the whole well.
    let (well, rest) = SERVERS.split_once("      - type: mcp\n        name: search").unwrap();
    let models = &rest[rest.find("models:").unwrap()..];
    kit.write("well.yaml", &format!("{well}{models}"));
    let ran = kit.run(&["doctor", "well.yaml", "--trust"]).ended(0);
    assert!(ran.out.contains("✓ toolset   lookup of root: 2 tools"), "{}", ran.out);
}

#[test]
fn the_tools_of_a_team_are_listed_with_those_of_its_servers() {
    let kit = kit();
    kit.write("servers.yaml", SERVERS);
    let ran = kit.run(&["tools", "servers.yaml", "--trust"]).ended(1);
    for told in [
        "root  2 tools\n",
        "  lookup (MCP server)\n",
        "    lookup_get-sum  ",
        "      a (number, required): First number\n",
        "✗ root runs without some of its tools: toolset 'mcp': the MCP server 'search' did not start",
        "SEARCH_KEY is not set",
        "no-such-server",
    ] {
        assert!(ran.out.contains(told), "'{told}' is not in:\n{}", ran.out);
    }
    assert_eq!(processes(kit.ground.path()), [""; 0], "none is left");

    let json = kit.run(&["tools", "servers.yaml", "--json"]).ended(1).json();
    assert_eq!((json.len(), &json[0]["agent"]), (1, &"root".into()));
    let server = &json[0]["toolsets"][0];
    assert_eq!((&server["name"], &server["is_server"]), (&"lookup".into(), &true.into()));
    let sum =
        server["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == "lookup_get-sum").unwrap();
    let first = &sum["arguments"][0];
    assert_eq!(
        (&first["name"], &first["type"], &first["required"]),
        (&"a".into(), &"number".into(), &true.into())
    );
    assert_eq!(json[0]["unavailable"].as_array().unwrap().len(), 2);
    assert_eq!(processes(kit.ground.path()), [""; 0], "none is left");
}
