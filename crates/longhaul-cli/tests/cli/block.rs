//! The live block of `run` while it is drawn: a team whose tasks are held where they are.

use crate::kit::Kit;
use crate::term::Terminal;

/// One of each: who has ended, who has failed, who is in a tool, who waits for its provider, who thinks, who asks.
const TEAM: &str = r#"
permissions: {allow: [shell], ask: [write_file]}
agents:
  root:
    model: play
    sub_agents: [ready, loser, shell, patient, thinker, writer]
    toolsets: [{type: background_agents}]
  ready: {model: play}
  loser: {model: play}
  shell: {model: play, toolsets: [{type: shell}]}
  patient: {model: play}
  thinker: {model: play}
  writer: {model: play, toolsets: [{type: filesystem}]}
"#;

/// What they say.
const PLAY: &str = r#"
agents:
  root:
    turns:
      - text: I send out six, one after the other.
        calls: [{tool: run_background_agent, arguments: {agent: ready, task: Be ready at once}}]
        usage: {input: 1000, output: 200}
      - calls: [{tool: run_background_agent, arguments: {agent: loser, task: Lose}}]
        usage: {input: 1000, output: 200}
      - calls: [{tool: run_background_agent, arguments: {agent: shell, task: Wait in a tool until there is a file}}]
        usage: {input: 1000, output: 200}
      - calls: [{tool: run_background_agent, arguments: {agent: patient, task: Wait for a provider that is busy}}]
        usage: {input: 1000, output: 200}
      - calls: [{tool: run_background_agent, arguments: {agent: thinker, task: Think for a very long time}}]
        usage: {input: 1000, output: 200}
      - calls: [{tool: run_background_agent, arguments: {agent: writer, task: Write notes}}]
        usage: {input: 1000, output: 200}
      - {text: Now I wait., usage: {input: 1000, output: 200}}
  ready: {turns: [{text: "Here.", usage: {input: 10, output: 5}}]}
  loser: {turns: [{errors: [{status: 400, message: no}], text: x}]}
  shell:
    turns:
      - calls: [{tool: shell, arguments: {cmd: "until [ -e go ]; do sleep 0.1; done", timeout: 300}}]
        usage: {input: 300, output: 20}
  patient: {turns: [{errors: [{status: 429, retry_after: 600s}], text: x}]}
  thinker: {turns: [{delay: 600s, text: x}]}
  writer:
    turns:
      - calls: [{tool: write_file, arguments: {path: notes.txt, content: "Some notes.\n"}}]
        usage: {input: 300, output: 20}
"#;

/// Snapshots in which ids, times and the turning sign are always the same.
macro_rules! looks_like {
    ($name:literal, $text:expr) => {
        insta::with_settings!({filters => vec![
            (r"t-[0-9a-z]{5}\b", "t-xxxxx"),
            (r"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]", "⠋"),
            // Right-aligned in six columns.
            (r"(?m)[ \d.m]{5}s( |$)", "  TIME$1"),
        ]}, { insta::assert_snapshot!($name, $text) });
    };
}

/// Waits until all are where they are held; what is there then, below the words that come first.
fn held(kit: &Kit, terminal: &Terminal) -> String {
    // In the journals first: what a task waits for is told a little later than that it does.
    kit.until("all to be held", |journals| {
        let state =
            |agent: &str| journals.iter().map(|(state, _)| state).find(|state| state.agent.as_str() == agent);
        let ended = |agent| state(agent).is_some_and(|state| state.status.is_final());
        let is_held = ended("ready")
            && ended("loser")
            && state("shell")?.calling.len() == 1
            && state("patient")?.waiting.is_some()
            && state("thinker")?.worker.is_some()
            && !state("writer")?.asked.is_empty()
            && state("root")?.waiting.is_some();
        is_held.then_some(())
    });
    let screen = terminal.until("the block", |screen| {
        ["Now I wait.", "[y] yes", "✓ ", "✗ ", "→ shell", "? t-"].iter().all(|part| screen.contains(part))
            && screen.matches("◌ t-").count() == 2
            && screen.contains("for 4 tasks")
            && screen.contains("for its")
            && screen.contains("May write")
    });
    let from = screen.find("I send out").unwrap();
    screen[from..].to_owned()
}

fn held_on(columns: u16, no_color: bool) -> (Kit, Terminal, String) {
    let kit = Kit::new();
    kit.plays("team.yaml", TEAM, PLAY);
    let mut command = kit.command(&["run", "team.yaml", "Go.", "--trust"]);
    command.env("TERM", "xterm-256color");
    if no_color {
        command.env("NO_COLOR", "1");
    }
    let terminal = Terminal::run(&command, columns, 40);
    let screen = held(&kit, &terminal);
    assert!(screen.lines().all(|line| line.chars().count() <= columns.into()), "{screen}");
    assert_eq!(terminal.colours().contains("\x1b["), !no_color, "{:?}", terminal.colours());
    (kit, terminal, screen)
}

/// Ends it, whatever is held.
fn stopped(terminal: &Terminal) -> String {
    terminal.keys(&["C-c"]);
    let draining = terminal.until("it to drain", |screen| screen.contains("Pausing after"));
    terminal.keys(&["C-c"]);
    let (left, code) = terminal.end();
    assert_eq!(code, 3, "{left}");
    assert!(!left.contains("Pausing") && !left.contains('⠋'), "the block is gone: {left}");
    draining
}

#[test]
fn at_80_columns() {
    let (_kit, terminal, screen) = held_on(80, false);
    looks_like!("block_80", screen);
    assert!(terminal.colours().contains("\x1b[32m\x1b[49m✓"), "{:?}", terminal.colours());
    stopped(&terminal);
}

#[test]
fn at_40_columns() {
    let (_kit, terminal, screen) = held_on(40, false);
    looks_like!("block_40", screen);
    let draining = stopped(&terminal);
    let words = draining.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains("Pausing after the current step (up to 10 s). Resume with")
            && words.contains("Ctrl-C again cancels the run.")
            && words.contains("Waiting"),
        "whole, too: {draining}"
    );
}

#[test]
fn without_colours() {
    let (_kit, terminal, screen) = held_on(80, true);
    looks_like!("block_no_color", screen);
    stopped(&terminal);
}
