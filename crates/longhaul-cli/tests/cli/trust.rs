//! A stranger's team file starts nothing and sends nothing before somebody has agreed.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use crate::kit::{Kit, Ran};
use crate::term::Terminal;

const PLAY: &str = "agents: {root: {turns: [{text: Done.}]}}";

/// A team that leaves a mark when anything of it is started.
fn stranger(kit: &Kit) {
    team(kit, "touch hooked");
}

fn team(kit: &Kit, hook: &str) {
    kit.plays(
        "team.yaml",
        &format!(
            "agents:\n  root:\n    model: play\n    hooks:\n      session_start: [{{type: command, command: \"{hook}\"}}]\n      \
             env: {{TOKEN: \"${{env.SECRET_TOKEN}}\"}}\n    toolsets:\n      - {{type: mcp, name: spy, command: sh, args: [-c, \"touch served; exit 1\"]}}\n"
        ),
        PLAY,
    );
}

fn run(kit: &Kit, more: &[&str]) -> Command {
    let mut command = kit.command(&[&["run", "team.yaml", "Go."], more].concat());
    command.env("SECRET_TOKEN", "s3cret-value");
    command
}

fn started(kit: &Kit) -> bool {
    ["hooked", "served"].iter().any(|mark| kit.ground.path().join(mark).exists())
}

fn records(kit: &Kit) -> Vec<std::path::PathBuf> {
    let dir = kit.data.path().join("trusted");
    std::fs::read_dir(dir).into_iter().flatten().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn at_a_terminal_somebody_is_asked_once_before_anything_is_started() {
    let kit = Kit::new();
    stranger(&kit);
    let terminal = Terminal::run(&run(&kit, &[]), 100, 40);
    let screen = terminal.until("the question", |screen| screen.contains("Run it? [y/N]"));
    for told in [
        "starts programs",
        "hook session_start of root: touch hooked",
        "MCP server spy: sh -c 'touch served; exit 1'",
        "SECRET_TOKEN → TOKEN of hooks of root",
    ] {
        assert!(screen.contains(told), "'{told}' is not in:\n{screen}");
    }
    assert!(!screen.contains("s3cret"), "{screen}");
    assert!(!started(&kit), "nobody has agreed yet");
    terminal.keys(&["n", "Enter"]);
    let (screen, code) = terminal.end();
    assert_eq!(code, 6, "{screen}");
    assert!(!started(&kit) && records(&kit).is_empty(), "somebody has said no");
    assert!(!kit.database().exists() || kit.journals().is_empty(), "there is no task");

    let terminal = Terminal::run(&run(&kit, &[]), 100, 40);
    terminal.until("the question", |screen| screen.contains("Run it? [y/N]"));
    terminal.keys(&["y", "Enter"]);
    let (screen, code) = terminal.end();
    assert!(code == 0 && screen.contains("Done."), "{screen}");
    assert!(started(&kit));
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((records(&kit).len(), mode(&records(&kit)[0])), (1, 0o600));

    // Not a second time, also when an instruction changes.
    let (screen, code) = Terminal::run(&run(&kit, &[]), 100, 40).end();
    assert!(code == 0 && !screen.contains("Run it?"), "{screen}");

    // But when what it starts changes, and then it is said what.
    team(&kit, "touch other");
    let terminal = Terminal::run(&run(&kit, &[]), 100, 40);
    let screen = terminal.until("the question", |screen| screen.contains("Run it? [y/N]"));
    assert!(screen.contains("+ starts programs: hook session_start of root: touch other"), "{screen}");
    assert!(screen.contains("- starts programs: hook session_start of root: touch hooked"), "{screen}");
    terminal.keys(&["Enter"]);
    let (screen, code) = terminal.end();
    assert_eq!(code, 6, "no answer is no: {screen}");
    assert!(!kit.ground.path().join("other").exists());
}

#[test]
fn without_a_terminal_it_is_said_in_a_line_and_goes_on() {
    let kit = Kit::new();
    stranger(&kit);
    let ran = Ran::from(run(&kit, &[]).output().unwrap()).ended(0);
    let notes: Vec<&str> = ran.err.lines().filter(|line| line.starts_with("note: team.yaml")).collect();
    assert_eq!(
        notes,
        [
            "note: team.yaml starts programs (2), reads environment variables and sends them on (1); `longhaul check` \
          lists it, `--trust` accepts it"
        ],
        "{}",
        ran.err
    );
    assert!(started(&kit) && records(&kit).is_empty(), "nobody has agreed");

    let ran = Ran::from(run(&kit, &["--trust"]).output().unwrap()).ended(0);
    assert!(!ran.err.contains("note: team.yaml"), "{}", ran.err);
    assert_eq!(records(&kit).len(), 1, "that is remembered");
    let ran = Ran::from(run(&kit, &[]).output().unwrap()).ended(0);
    assert!(!ran.err.contains("note: team.yaml"), "{}", ran.err);
}

#[test]
fn a_plain_team_is_not_asked_about() {
    let kit = Kit::new();
    kit.run(&["init", "--scripted", "plain.yaml"]).ended(0);
    let ran = kit.run(&["run", "plain.yaml", "Go."]).ended(0);
    assert!(!ran.err.contains("note:"), "{}", ran.err);
    let (screen, code) = Terminal::run(&kit.command(&["run", "plain.yaml", "Go."]), 100, 40).end();
    assert!(code == 0 && !screen.contains("Run it?"), "{screen}");
    kit.run(&["init", "auto.yaml"]).ended(0);
    let checked = kit.run(&["check", "--json", "auto.yaml"]).ended(0);
    assert_eq!(checked.json()[0]["trust"], serde_json::json!([]));
}

#[test]
fn the_doctor_refuses_a_team_that_nobody_has_agreed_to() {
    let kit = Kit::new();
    stranger(&kit);
    let doctor = |more: &[&str]| {
        let mut command = kit.command(&[&["doctor", "team.yaml"], more].concat());
        command.env("SECRET_TOKEN", "x").env("OLLAMA_HOST", "127.0.0.1:9").env("LLAMA_ARG_PORT", "9");
        Ran::from(command.output().unwrap())
    };
    doctor(&[]).complains(6, &["team.yaml is not trusted: it starts programs (2)", "--trust"]);
    assert!(!started(&kit));
    doctor(&["--trust"]).ended(1);
    assert!(started(&kit), "its server was tried");
    doctor(&[]).ended(1);
}

#[test]
fn listing_the_tools_of_a_team_that_nobody_has_agreed_to_starts_nothing() {
    let kit = Kit::new();
    stranger(&kit);
    let tools = |more: &[&str]| {
        let mut command = kit.command(&[&["tools", "team.yaml"], more].concat());
        command.env("SECRET_TOKEN", "x");
        command
    };
    let ran = |more: &[&str]| Ran::from(tools(more).output().unwrap());
    ran(&[]).complains(6, &["team.yaml is not trusted: it starts programs (2)", "--trust"]);
    let (screen, code) = Terminal::run(&tools(&[]), 100, 40).end();
    assert_eq!(code, 6, "{screen}");
    assert!(!started(&kit) && records(&kit).is_empty());
    ran(&["--trust"]).ended(1);
    assert!(kit.ground.path().join("served").exists(), "its server was tried");
    assert!(!kit.ground.path().join("hooked").exists(), "a hook is not a tool");
    assert_eq!(records(&kit).len(), 1);
    ran(&[]).ended(1);
}

/// All kinds of commands, all kinds of addresses: `check` tells them, and that is all that it does.
#[test]
fn check_lists_what_a_team_does_and_starts_nothing() {
    let kit = Kit::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::fs::create_dir(kit.ground.path().join("bin")).unwrap();
    for program in ["git", "npx", "docker", "sh", "bwrap"] {
        let path = kit.ground.path().join("bin").join(program);
        kit.write(&format!("bin/{program}"), "#!/bin/sh\n: > hooked\n");
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    kit.write(
        "team.yaml",
        &format!(
            "agents:\n  root:\n    model: far\n    isolation: worktree\n    hooks: {{task_start: [{{type: command, command: npx}}]}}\n    toolsets:\n      \
             - {{type: mcp, command: npx}}\n      - {{type: mcp, ref: 'docker:x'}}\n      - {{type: mcp, remote: {{url: '{url}/mcp'}}}}\n      \
             - {{type: openapi, url: '{url}/o.json'}}\n      - {{type: a2a, url: '{url}/a'}}\n      - {{type: shell, sandbox: on}}\n\
             models: {{far: {{provider: openai, model: m, base_url: '{url}/v1', token_key: SECRET_TOKEN}}}}\n"
        ),
    );
    let mut command = kit.command(&["check", "team.yaml"]);
    command.env("PATH", kit.ground.path().join("bin")).env("SECRET_TOKEN", "x");
    let ran = Ran::from(command.output().unwrap()).ended(0);
    for told in [
        "hook task_start of root: npx",
        "MCP server root: docker:x",
        "/o.json (OpenAPI document of root)",
        "SECRET_TOKEN → ",
    ] {
        assert!(ran.out.contains(told), "'{told}' is not in:\n{}", ran.out);
    }
    assert!(!started(&kit), "{}", ran.out);
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "nobody was contacted");
    assert!(!kit.database().exists(), "not even a database was begun");
}

#[test]
fn the_screen_asks_before_it_is_shown() {
    let kit = Kit::new();
    stranger(&kit);
    let terminal = Terminal::run(&kit.command(&["tui", "team.yaml"]), 100, 40);
    terminal.until("the question", |screen| screen.contains("Run it? [y/N]"));
    assert_eq!(terminal.state("#{alternate_on}"), "0");
    terminal.keys(&["n", "Enter"]);
    let (screen, code) = terminal.end();
    assert_eq!(code, 6, "{screen}");
    assert!(!started(&kit));
}

/// What was accepted when it was submitted is carried on by whoever does.
#[test]
fn what_was_submitted_is_not_asked_about_again() {
    let kit = Kit::new();
    kit.plays(
        "team.yaml",
        "agents:\n  root:\n    model: play\n    hooks: {session_start: [{type: command, command: \"echo $$ > pid; exec sleep 600\", timeout: 900}]}\n",
        PLAY,
    );
    let running = kit.start(&["run", "team.yaml", "Go.", "--trust"]);
    let deadline = std::time::Instant::now() + crate::kit::TIMEOUT;
    while !kit.ground.path().join("pid").exists() {
        assert!(std::time::Instant::now() < deadline, "the hook does not run");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    running.murder();
    std::fs::remove_dir_all(kit.data.path().join("trusted")).unwrap();
    // Its hook is in the store, as it was agreed to; the file may be anything by now.
    kit.write("team.yaml", "agents: {}");
    let resuming = kit.start(&["resume"]);
    kit.until("the second attempt", |journals| {
        journals.iter().find(|(state, _)| state.attempt.0 == 2).map(drop)
    });
    let root = kit.journals()[0].0.id.to_string();
    kit.run(&["stop", &root]).ended(0);
    let ran = resuming.end();
    assert!(!ran.err.contains("note:") && !ran.out.contains("Run it?"), "{}\n{}", ran.out, ran.err);
}
