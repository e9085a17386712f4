//! A person at a real terminal: told that something is asked, asked in `attach`, and gone by Ctrl-C, once or twice.

use std::process::Command;
use std::time::{Duration, Instant};

use longhaul::Status;

use crate::kit::{Kit, Ran, TIMEOUT};
use crate::term::Terminal;

/// One that asks, and one that is in a tool until there is a file, or for good.
const TEAM: &str = r#"
permissions: {allow: [shell]}
agents:
  root: {model: play, toolsets: [{type: user_prompt}, {type: shell}]}
"#;

/// What it says.
const PLAY: &str = r#"
agents:
  root:
    cases:
      - when: ask
        turns:
          - calls: [{tool: user_prompt, arguments: {message: "Which colour?"}}]
          - text: "You said {{ result }}"
      - when: hold
        turns:
          - calls: [{tool: shell, arguments: {cmd: "echo $$ > begun; until [ -e go ]; do sleep 0.1; done; echo over", timeout: 300}}]
          - text: "It is {{ result | replace('\\n', ' ') | trim }}."
"#;

fn kit() -> Kit {
    let kit = Kit::new();
    kit.plays("team.yaml", TEAM, PLAY);
    kit
}

fn on_terminal(kit: &Kit, args: &[&str]) -> Terminal {
    let mut command = kit.command(args);
    command.env("TERM", "xterm-256color");
    // So wide that no command is broken into two lines.
    Terminal::run(&command, 250, 30)
}

/// The command that a line names after these words, run here.
fn as_it_says(kit: &Kit, told: &str, after: &str) -> Ran {
    let line =
        told.lines().find(|line| line.contains(after)).unwrap_or_else(|| panic!("no '{after}' in: {told}"));
    let (_, command) = line.split_once(after).unwrap();
    let program = kit.command(&[]).get_program().to_owned();
    let own = command.trim().replacen("longhaul", program.to_str().unwrap(), 1);
    let mut shell = Command::new("sh");
    shell.args(["-c", &own]).current_dir(kit.ground.path());
    Ran::from(shell.output().unwrap())
}

/// Waits for a file on the ground: what is in it.
fn written(kit: &Kit, name: &str) -> String {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match std::fs::read_to_string(kit.ground.path().join(name)) {
            Ok(text) if text.ends_with('\n') => return text,
            _ => assert!(Instant::now() < deadline, "there is no {name}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn who_has_looked_away_is_told_that_something_is_asked() {
    let kit = kit();
    let own = kit.command(&["run", "team.yaml", "ask", "--trust", "--notify=all", "--notify-after", "0s"]);
    let mut command = Command::new("sh");
    // What is written to the terminal, byte by byte; keys go through.
    let then = r#"script -qefc "$(printf '%s ' "$@")" typed >/dev/tty"#;
    command.args(["-c", then, "sh"]).arg(own.get_program()).args(own.get_args());
    command.current_dir(kit.ground.path()).env("TERM", "xterm-256color");
    let terminal = Terminal::run(&command, 80, 24);
    terminal.until("the question", |screen| screen.contains("> ▏"));
    let typed =
        || String::from_utf8_lossy(&std::fs::read(kit.ground.path().join("typed")).unwrap()).into_owned();
    let told = "\x1b]9;longhaul: root asks: Which colour?\x1b\\\x1b]777;notify;longhaul;root asks: Which colour?\x1b\\\x07";
    assert!(typed().contains(told), "{:?}", typed());
    assert!(!typed().contains("root completed"), "that was before its end");
    terminal.types("blue");
    terminal.keys(&["Enter"]);
    assert_eq!(terminal.end().1, 0);
    assert!(typed().contains("\x1b]9;longhaul: root completed: ask\x1b\\"), "{:?}", typed());
}

#[test]
fn a_question_is_answered_in_attach() {
    let kit = kit();
    let ran = kit.run(&["run", "team.yaml", "ask", "--detach"]).ended(0);
    let id = ran.out.trim();
    kit.until("it to ask", |journals| {
        journals.iter().any(|(state, _)| !state.asked.is_empty()).then_some(())
    });
    let terminal = on_terminal(&kit, &["attach", id]);
    let asks = terminal.until("the question", |screen| screen.contains("> ▏"));
    assert!(asks.contains(&format!("? root {id}: asks")) && asks.contains("    Which colour?"), "{asks}");
    terminal.types("green");
    terminal.until("what is typed", |screen| screen.contains("> green▏"));
    terminal.keys(&["Enter"]);
    let (screen, code) = terminal.end();
    assert_eq!(code, 0, "{screen}");
    assert!(screen.contains("✓ root · Which colour? green") && screen.contains("You said"), "{screen}");
    let journals = kit.journals();
    assert_eq!((journals[0].0.status, journals[0].0.attempt.0), (Status::Completed, 1));
}

#[test]
fn ctrl_c_once_finishes_the_step_and_the_command_that_is_named_carries_on() {
    let kit = kit();
    let terminal = on_terminal(&kit, &["run", "team.yaml", "hold", "--trust"]);
    written(&kit, "begun");
    terminal.keys(&["C-c"]);
    terminal.until("it to drain", |screen| screen.contains("Ctrl-C again cancels the run."));
    kit.write("go", "");
    let (screen, code) = terminal.end();
    assert_eq!(code, 130, "{screen}");
    assert_eq!(kit.journals()[0].0.status, Status::Pending);
    let carried = as_it_says(&kit, &screen, "was released; resume it with:").ended(0);
    assert!(carried.out.contains("It is over"), "{carried:?}");
    let (state, _) = kit.journals().remove(0);
    assert_eq!(
        (state.status, state.attempt.0, state.calls),
        (Status::Completed, 2, 1),
        "the step was not made again"
    );
}

#[test]
fn ctrl_c_twice_stops_and_the_command_that_is_named_tries_again() {
    let kit = kit();
    let terminal = on_terminal(&kit, &["run", "team.yaml", "hold", "--trust"]);
    let pid: i32 = written(&kit, "begun").trim().parse().unwrap();
    terminal.keys(&["C-c"]);
    terminal.until("it to drain", |screen| screen.contains("Ctrl-C again cancels the run."));
    terminal.keys(&["C-c"]);
    let (screen, code) = terminal.end();
    assert_eq!(code, 3, "{screen}");
    assert!(screen.contains("⊘ cancelled") && !screen.contains("Pausing"), "{screen}");
    assert_eq!(kit.journals()[0].0.status, Status::Cancelled);
    assert!(nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), None).is_err(), "its process is gone");
    let again = as_it_says(&kit, &screen, "was stopped; try it again with:").ended(0);
    kit.write("go", "");
    let ran = as_it_says(&kit, &again.err, "watch it with:").ended(0);
    assert!(ran.out.contains("It is over"), "{ran:?}");
}
