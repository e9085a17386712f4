//! `longhaul acp` after a crash: what a session was doing goes on as soon as the editor is back.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdout, Stdio};

use longhaul::entry::Entry;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::kit::{Kit, gone};
use crate::mcp_server::carrier;

/// An editor, with the agent that it has started.
struct Editor {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
    requests: u64,
}

impl Editor {
    fn start(kit: &Kit) -> Editor {
        let mut command = kit.command(&["acp", "--team", "team.yaml"]);
        command.env("LONGHAUL_LINGER", "1s").stdin(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut editor = Editor { child, lines, requests: 0 };
        editor.call("initialize", json!({ "protocolVersion": 1, "clientCapabilities": {} }));
        editor
    }

    fn send(&mut self, method: &str, params: Value) -> u64 {
        self.requests += 1;
        let request = json!({ "jsonrpc": "2.0", "id": self.requests, "method": method, "params": params });
        writeln!(self.child.stdin.as_mut().unwrap(), "{request}").unwrap();
        self.requests
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        loop {
            let line = self.lines.next().unwrap().unwrap();
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["id"] == id && message.get("method").is_none() {
                return message["result"].clone();
            }
        }
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn has_replied(kit: &Kit) -> bool {
    let journals = kit.journals();
    let mut entries = journals.iter().flat_map(|(_, journal)| journal);
    entries.any(|record| matches!(&record.entry, Entry::Replied(reply) if format!("{reply:?}").contains("Slow is done.")))
}

#[test]
fn a_session_whose_processes_were_killed_goes_on_when_the_editor_is_back() {
    let kit = Kit::new();
    kit.plays(
        "team.yaml",
        "agents: { root: { model: play } }\n",
        "agents: { root: { turns: [{ delay: 3s, text: Slow is done. }] } }",
    );
    let mut editor = Editor::start(&kit);
    let session =
        editor.call("session/new", json!({ "cwd": kit.ground.path(), "mcpServers": [] }))["sessionId"]
            .clone();
    let prompt = json!([{ "type": "text", "text": "Be slow." }]);
    editor.send("session/prompt", json!({ "sessionId": session, "prompt": prompt }));
    kit.until("a start", |journals| journals.iter().find(|(state, _)| state.started.is_some()).map(drop));
    let process: Pid = carrier(&kit).unwrap();
    kill(process, Signal::SIGKILL).unwrap();
    gone(process);
    editor.kill();
    assert!(!has_replied(&kit), "it was killed in the middle");

    // The session is neither loaded nor prompted: to be there is enough.
    let editor = Editor::start(&kit);
    kit.until("the reply", |_| has_replied(&kit).then_some(()));
    assert_eq!(kit.journals().len(), 1, "it is the same task");
    editor.kill();
}
