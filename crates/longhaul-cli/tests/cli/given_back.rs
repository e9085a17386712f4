//! The terminal after the screen had it: whatever ended it, a shell finds the terminal as it left it.

use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::kit::{Kit, TIMEOUT};
use crate::term::Terminal;

const PROMPT: &str = "ready> ";

/// A shell in a terminal, with a task to be shown.
struct Shell {
    kit: Kit,
    terminal: Terminal,
}

impl Shell {
    fn new() -> Shell {
        let kit = Kit::new();
        kit.write("team.yaml", TEAM);
        kit.run(&["run", "team.yaml", "Say something"]).ended(0);
        let mut shell = Command::new("sh");
        shell.arg("-i").current_dir(kit.ground.path());
        shell.env("PS1", PROMPT).env("HISTFILE", "").env_remove("ENV").env_remove("RUST_BACKTRACE");
        let terminal = Terminal::run(&shell, 100, 24);
        let shell = Shell { kit, terminal };
        shell.until_prompt();
        shell
    }

    /// Has the shell wait for the next line.
    #[track_caller]
    fn until_prompt(&self) -> String {
        self.terminal.until("the shell", |screen| screen.lines().last() == Some(PROMPT.trim_end()))
    }

    /// Opens the screen from the shell, with this in its environment. Its process.
    #[track_caller]
    fn open(&self, environment: &str) -> Pid {
        let command = self.kit.command(&["tui"]);
        let all: Vec<_> = command.get_args().map(|arg| arg.to_string_lossy().into_owned()).collect();
        let script = format!(
            "#!/bin/sh\necho $$ > pid\n{environment} exec {} {}\n",
            command.get_program().to_string_lossy(),
            all.join(" ")
        );
        self.kit.write("open", &script);
        self.terminal.types("sh ./open");
        self.terminal.keys(&["Enter"]);
        self.shown();
        let pid = std::fs::read_to_string(self.kit.ground.path().join("pid")).unwrap();
        Pid::from_raw(pid.trim().parse().unwrap())
    }

    /// The screen is there, whole, and has the terminal.
    #[track_caller]
    fn shown(&self) {
        self.terminal.until("the screen", |screen| {
            screen.starts_with("── Tasks ──") && screen.contains("SAID it.") && screen.ends_with("? help")
        });
        self.state("1 1 0");
    }

    /// The alternate screen, reports of the mouse, the cursor.
    #[track_caller]
    fn state(&self, expected: &str) {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let state = self.terminal.state("#{alternate_on} #{mouse_any_flag} #{cursor_flag}");
            if state == expected {
                return;
            }
            assert!(Instant::now() < deadline, "it is {state}, not {expected}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The shell has the terminal as it was before; what is on it.
    #[track_caller]
    fn sane(&self) -> String {
        let left = self.until_prompt();
        self.state("0 0 1");
        self.terminal.types("stty -a > modes; echo mo''des");
        self.terminal.keys(&["Enter"]);
        // What is typed is echoed, and what it prints begins where a line begins.
        self.terminal.until("the modes", |screen| {
            screen.contains("stty -a > modes; echo mo''des\nmodes\n") && screen.ends_with(PROMPT.trim_end())
        });
        let modes = std::fs::read_to_string(self.kit.ground.path().join("modes")).unwrap();
        let modes: Vec<&str> = modes.split([' ', ';', '\n']).collect();
        for mode in ["echo", "icanon", "isig", "opost", "icrnl"] {
            assert!(modes.contains(&mode), "{mode} is off: {modes:?}");
        }
        left
    }

    /// What the last command ended with.
    #[track_caller]
    fn code(&self) -> String {
        self.terminal.types("echo code''=$?.");
        self.terminal.keys(&["Enter"]);
        let screen =
            self.terminal.until("the code", |screen| screen.contains("code=") && screen.contains('.'));
        screen.split("code=").nth(1).unwrap().split('.').next().unwrap().to_owned()
    }
}

const TEAM: &str = r#"
agents:
  root:
    model: play
models:
  play:
    provider: scripted
    script: "agents: { root: { turns: [{ text: SAID it. }] } }"
"#;

#[test]
#[cfg_attr(not(debug_assertions), ignore = "only debug builds have a way to wish for a panic")]
fn after_a_panic_in_the_drawing_loop() {
    let shell = Shell::new();
    shell.open("LONGHAUL_TUI_FAULT=draw");
    shell.terminal.keys(&["C-l"]);
    shell.until_prompt();
    assert_eq!(shell.code(), "101");
    let left = shell.sane();
    assert!(left.contains("a fault, as a test wished for"), "{left}");
}

#[test]
#[cfg_attr(not(debug_assertions), ignore = "only debug builds have a way to wish for a panic")]
fn after_a_panic_in_what_it_does() {
    let shell = Shell::new();
    shell.open("LONGHAUL_TUI_FAULT=work");
    shell.terminal.keys(&["p"]);
    shell.until_prompt();
    assert_eq!(shell.code(), "1");
    let left = shell.sane();
    // What went wrong can be read, and nothing was drawn over it.
    assert!(left.contains("a fault, as a test wished for"), "{left}");
    assert!(left.contains("error: a bug in Longhaul") && !left.contains("── Tasks"), "{left}");
}

#[test]
fn after_a_signal_that_ends_it() {
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let shell = Shell::new();
        let pid = shell.open("");
        kill(pid, signal).unwrap();
        shell.sane();
    }
}

#[test]
fn while_it_is_stopped_and_after_it_goes_on() {
    let shell = Shell::new();
    let pid = shell.open("");
    // As a person stops it, and as somebody else does.
    for stop in [None, Some(Signal::SIGTSTP)] {
        match stop {
            None => shell.terminal.keys(&["C-z"]),
            Some(signal) => kill(pid, signal).unwrap(),
        }
        shell.sane();
        shell.terminal.types("clear; fg");
        shell.terminal.keys(&["Enter"]);
        shell.shown();
        // It hears keys, and one at a time.
        shell.terminal.keys(&["?"]);
        shell.terminal.until("the help", |screen| screen.contains(" Keys "));
        shell.terminal.keys(&["?"]);
        shell.shown();
    }
    shell.terminal.keys(&["q"]);
    shell.sane();
}

#[test]
fn where_no_shell_could_bring_it_back_it_is_not_stopped() {
    let kit = Kit::new();
    let terminal = Terminal::run(&kit.command(&["tui"]), 80, 24);
    terminal.until("how to begin", |screen| screen.contains("longhaul demo"));
    terminal.keys(&["C-z"]);
    terminal.until("why not", |screen| screen.contains("there is no shell to go back to"));
    terminal.keys(&["q"]);
    assert_eq!(terminal.end().1, 0);
}

#[test]
fn when_the_terminal_is_closed_the_screen_ends_and_the_tasks_do_not() {
    let shell = Shell::new();
    shell.kit.write(
        "slow.yaml",
        r#"
permissions: { allow: [shell] }
agents:
  root: { model: play, toolsets: [{ type: shell }] }
models:
  play:
    provider: scripted
    script: |
      agents:
        root:
          turns:
            - calls: [{ tool: shell, arguments: { cmd: "until [ -e go ]; do sleep 0.1; done", timeout: 300 } }]
            - text: "Late, but here."
"#,
    );
    let pid = shell.open("");
    shell.kit.run(&["run", "--detach", "slow.yaml", "Take your time"]).ended(0);
    shell.terminal.until("it at work", |screen| screen.contains("root Take") && screen.contains("● t-"));
    let Shell { kit, terminal } = shell;
    drop(terminal);
    // Whoever inherits it may not have buried it yet.
    let deadline = Instant::now() + TIMEOUT;
    let state = || {
        let ps = Command::new("ps").args(["-o", "stat=", "-p", &pid.to_string()]).output().unwrap();
        String::from_utf8(ps.stdout).unwrap().trim().to_owned()
    };
    while !state().is_empty() && !state().starts_with('Z') {
        assert!(Instant::now() < deadline, "it goes on without a terminal: {}", state());
        std::thread::sleep(Duration::from_millis(20));
    }
    kit.write("go", "");
    kit.until("the end of the run", |journals| {
        let ended = journals.iter().filter(|(task, _)| task.status == longhaul::Status::Completed).count();
        (ended == 2).then_some(())
    });
    for (state, journal) in kit.journals() {
        assert_eq!(
            longhaul::task::TaskState::from_journal(state.id, &journal).unwrap().unwrap().status,
            state.status
        );
    }
}
