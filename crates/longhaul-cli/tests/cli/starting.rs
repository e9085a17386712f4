//! A stop and a Ctrl-C hold within five seconds in every state of a task, and what was being started is gone.

use std::fs::OpenOptions;
use std::net::TcpListener;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use longhaul::Status;
use nix::sys::signal::Signal;

use crate::kit::{Kit, TIMEOUT};

/// What stop promises.
const SOON: Duration = Duration::from_secs(5);

/// Starts something that never ends and that nothing but a signal ends, and tells its process id.
const HANGS: &str = "sleep 1000 & echo $! > started.tmp; mv started.tmp started; wait";

const PLAY: &str = "agents: {root: {turns: [{text: Done.}]}}";

/// Speaks MCP until it is asked for its tools.
const LISTS_NEVER: &str = r#"while read -r line; do
  id=$(printf %s "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *'"initialize"'*) answer='"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}' ;;
    *'"tools/list"'*) HANGS ;;
    *'"id"'*) answer='"error":{"code":-32601,"message":"no such method"}' ;;
    *) continue ;;
  esac
  echo "{\"jsonrpc\":\"2.0\",\"id\":$id,$answer}"
done
"#;

struct State {
    kit: Kit,
    /// A server that takes connections and never answers.
    listener: TcpListener,
    path: Option<PathBuf>,
    /// A pipe that somebody reads as a file.
    fifo: Option<PathBuf>,
    /// Whether a single Ctrl-C holds too: it lets a step that is under way end.
    by_signal: bool,
}

impl State {
    fn new() -> State {
        State {
            kit: Kit::new(),
            listener: TcpListener::bind("127.0.0.1:0").unwrap(),
            path: None,
            fifo: None,
            by_signal: true,
        }
    }

    fn url(&self) -> String {
        format!("http://{}", self.listener.local_addr().unwrap())
    }

    fn script(&self, name: &str, text: &str) {
        let path = self.kit.ground.path().join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// A team whose only agent has this besides its model.
    fn team(self, agent: &str) -> State {
        self.kit.plays("team.yaml", &format!("agents:\n  root:\n    model: play\n{agent}"), PLAY);
        self
    }

    /// A repository, and a `git` that hangs when it is asked for something.
    fn git(mut self, hangs_at: &str) -> State {
        let ground = self.kit.ground.path().to_owned();
        let git = |args: &[&str]| {
            let mut git = Command::new("git");
            git.args(["-c", "user.name=t", "-c", "user.email=t@t"]).args(args).current_dir(&ground);
            assert!(git.output().unwrap().status.success(), "{args:?}");
        };
        git(&["init", "-q"]);
        git(&["add", "."]);
        git(&["commit", "-q", "-m", "first"]);
        std::fs::create_dir(ground.join("bin")).unwrap();
        let real = String::from_utf8(Command::new("which").arg("git").output().unwrap().stdout).unwrap();
        self.script(
            "bin/git",
            &format!(
                "case \" $* \" in *' {hangs_at} '*) cd {}; {HANGS};; esac\nexec {} \"$@\"",
                ground.display(),
                real.trim()
            ),
        );
        self.path = Some(ground.join("bin"));
        self.team("    isolation: worktree\n")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.kit.command(args);
        command.env("K", "key");
        if let Some(dir) = &self.path {
            command.env("PATH", format!("{}:{}", dir.display(), std::env::var("PATH").unwrap()));
        }
        command
    }

    /// Until the process that hangs is there, or somebody has come to the server; then the process.
    fn hangs(&self) -> Option<i32> {
        self.listener.set_nonblocking(true).unwrap();
        let deadline = Instant::now() + TIMEOUT;
        loop {
            if let Ok(text) = std::fs::read_to_string(self.kit.ground.path().join("started")) {
                return Some(text.trim().parse().unwrap());
            }
            if let Ok((stream, _)) = self.listener.accept() {
                // It stays open until the test ends.
                std::mem::forget(stream);
                return None;
            }
            if let Some(fifo) = &self.fifo
                // Fails as long as nobody reads.
                && let Ok(writer) = OpenOptions::new().write(true).custom_flags(0o4000).open(fifo)
            {
                std::mem::forget(writer);
                return None;
            }
            assert!(Instant::now() < deadline, "it did not come to that");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Stops it from another process, and with Ctrl-C.
    fn holds(self) {
        for by_signal in [false, true].into_iter().take(1 + usize::from(self.by_signal)) {
            let _ = std::fs::remove_file(self.kit.ground.path().join("started"));
            let running = self.kit.started(self.command(&["run", "team.yaml", "Go."]));
            let root = self.kit.until("the task", |journals| journals.last().map(|(state, _)| state.id));
            let process = self.hangs();
            let begun = Instant::now();
            if by_signal {
                running.signal(Signal::SIGINT);
            } else {
                self.kit.run(&["stop", &root.to_string()]).ended(0);
            }
            let ran = running.end();
            let took = begun.elapsed();
            assert!(took < SOON, "it took {took:?}, signal: {by_signal}\n{}", ran.err);
            while process.is_some_and(runs) {
                assert!(begun.elapsed() < SOON, "what it started still runs, signal: {by_signal}");
                std::thread::sleep(Duration::from_millis(10));
            }
            let (state, _) = self.kit.journals().pop().unwrap();
            let ends: &[Status] = if by_signal {
                &[Status::Pending, Status::Completed]
            } else {
                &[Status::Cancelled, Status::Completed]
            };
            assert!(ends.contains(&state.status), "{:?}, signal: {by_signal}", state.status);
        }
    }
}

/// Whether a process runs; one that has ended and that nobody has buried yet does not.
fn runs(process: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

#[test]
fn while_an_mcp_server_does_not_answer_initialize() {
    let state = State::new();
    state.script("server", HANGS);
    state.team("    toolsets: [{type: mcp, command: ./server}]\n").holds();
}

#[test]
fn while_an_mcp_server_does_not_list_its_tools() {
    let state = State::new();
    state.script("server", &LISTS_NEVER.replace("HANGS", HANGS));
    state.team("    toolsets: [{type: mcp, command: ./server}]\n").holds();
}

#[test]
fn while_a_remote_mcp_server_does_not_answer() {
    let state = State::new();
    let url = state.url();
    state.team(&format!("    toolsets: [{{type: mcp, remote: {{url: '{url}/mcp'}}}}]\n")).holds();
}

#[test]
fn while_an_openapi_document_does_not_come() {
    let state = State::new();
    let url = state.url();
    state.team(&format!("    toolsets: [{{type: openapi, url: '{url}/openapi.json'}}]\n")).holds();
}

#[test]
fn while_an_a2a_card_does_not_come() {
    let state = State::new();
    let url = state.url();
    state.team(&format!("    toolsets: [{{type: a2a, url: '{url}'}}]\n")).holds();
}

#[test]
fn while_git_makes_a_worktree() {
    State::new().git("read-tree").holds();
}

#[test]
fn while_git_is_asked_what_is_in_a_worktree() {
    State::new().git("status").holds();
}

#[test]
fn while_a_hook_hears_of_the_beginning() {
    let state = State::new();
    state.script("hook", HANGS);
    state.team("    hooks: {task_start: [{type: command, command: ./hook, timeout: 600}]}\n").holds();
}

#[test]
fn while_a_prompt_file_does_not_come() {
    let state = State::new();
    let fifo = state.kit.ground.path().join("AGENTS.md");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    State { fifo: Some(fifo), ..state }.team("    add_prompt_files: [AGENTS.md]\n").holds();
}

#[test]
fn while_a_provider_does_not_answer() {
    let state = State::new();
    let url = state.url();
    let team = format!(
        "agents: {{root: {{model: far}}}}\nmodels: {{far: {{provider: openai, model: m, base_url: '{url}', token_key: K}}}}\n"
    );
    state.kit.write("team.yaml", &team);
    State { by_signal: false, ..state }.holds();
}
