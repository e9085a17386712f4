//! An MCP client as bare as can be: lines of JSON to and from the real command.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::kit::{Kit, TIMEOUT};

/// The newest protocol: every request says all about itself.
pub(crate) const NEWEST: &str = "2026-07-28";

/// A client, with the server that it has started.
pub(crate) struct McpWire {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    version: String,
    capabilities: Value,
    next_id: u64,
    /// What the server sent besides answers.
    pub(crate) others: Vec<Value>,
    /// What to reply when the server asks the person.
    pub(crate) reply: Value,
}

impl McpWire {
    /// Starts the server and shakes hands.
    pub(crate) fn connect(kit: &Kit, version: &str, capabilities: Value) -> McpWire {
        McpWire::with_args(kit, version, capabilities, &["mcp", "--team", "team.yaml"])
    }

    pub(crate) fn with_args(kit: &Kit, version: &str, capabilities: Value, args: &[&str]) -> McpWire {
        let mut command = kit.command(args);
        command.env("LONGHAUL_LINGER", "1s");
        McpWire::spawn(command, version, capabilities)
    }

    /// Starts this command as a server and shakes hands.
    pub(crate) fn spawn(mut command: Command, version: &str, capabilities: Value) -> McpWire {
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let out = child.stdout.take().unwrap();
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let stdin = child.stdin.take();
        let mut client = McpWire {
            child,
            stdin,
            lines,
            version: version.to_owned(),
            capabilities,
            next_id: 0,
            others: Vec::new(),
            reply: Value::Null,
        };
        if version == NEWEST {
            let found = client.request("server/discover", json!({}))["result"].clone();
            assert!(found["supportedVersions"].as_array().unwrap().contains(&json!(NEWEST)), "{found}");
        } else {
            let hello = json!({
                "protocolVersion": version,
                "capabilities": client.capabilities,
                "clientInfo": {"name": "wire", "version": "1"},
            });
            let met = client.request("initialize", hello);
            assert_eq!(met["result"]["protocolVersion"], json!(version), "{met}");
            client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        }
        client
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn send(&mut self, message: &Value) {
        self.send_line(&message.to_string());
    }

    /// Sends a line as it is.
    pub(crate) fn send_line(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().unwrap();
        writeln!(stdin, "{line}").unwrap();
        stdin.flush().unwrap();
    }

    /// Sends a request and returns the whole answer.
    #[track_caller]
    pub(crate) fn request(&mut self, method: &str, mut params: Value) -> Value {
        self.next_id += 1;
        let id = self.next_id;
        if self.version == NEWEST {
            let meta = params.as_object_mut().unwrap().entry("_meta").or_insert(json!({}));
            for (name, value) in [
                ("protocolVersion", json!(self.version)),
                ("clientInfo", json!({"name": "wire", "version": "1"})),
                ("clientCapabilities", self.capabilities.clone()),
            ] {
                meta[format!("io.modelcontextprotocol/{name}")] = value;
            }
        }
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else { panic!("no answer to {method} {params}") };
            let message: Value =
                serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
            assert_eq!(message["jsonrpc"], "2.0", "only the protocol is on standard output: {line}");
            if message["id"] == json!(id) && message.get("method").is_none() {
                return message;
            }
            if message["method"] == "elicitation/create" {
                let reply = json!({"jsonrpc": "2.0", "id": message["id"], "result": self.reply});
                self.send(&reply);
            }
            self.others.push(message);
        }
    }

    /// Calls a tool and returns its result.
    #[track_caller]
    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.call_with(tool, arguments, json!({}))
    }

    /// Calls a tool with metadata of the client.
    #[track_caller]
    pub(crate) fn call_with(&mut self, tool: &str, arguments: Value, meta: Value) -> Value {
        let answer = self.request("tools/call", json!({"name": tool, "arguments": arguments, "_meta": meta}));
        assert!(answer.get("result").is_some(), "{answer}");
        answer["result"].clone()
    }

    /// Polls a task until it is as wanted.
    #[track_caller]
    pub(crate) fn task_until(&mut self, id: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let task = self.request("tasks/get", json!({"taskId": id}))["result"].clone();
            assert_eq!(task["taskId"], json!(id));
            if fits(&task) {
                return task;
            }
            assert!(Instant::now() < deadline, "{task}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Closes standard input, as clients do that end in order.
    #[track_caller]
    pub(crate) fn close(mut self) {
        self.stdin = None;
        assert!(self.child.wait().unwrap().success());
        let rest: Vec<String> = self.lines.try_iter().collect();
        assert!(rest.is_empty(), "{rest:?}");
    }

    /// Kills the server as nothing can be caught, and makes sure that it died of that.
    #[track_caller]
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        assert_eq!(self.child.wait().unwrap().signal(), Some(9));
    }
}

/// The text of a tool's result.
pub(crate) fn text(result: &Value) -> String {
    let parts = result["content"].as_array().unwrap();
    parts.iter().filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("\n")
}

/// The capability to show forms.
pub(crate) fn forms() -> Value {
    json!({"elicitation": {"form": {}}})
}

/// The capability to follow tasks.
pub(crate) fn tasks() -> Value {
    json!({"elicitation": {"form": {}}, "extensions": {"io.modelcontextprotocol/tasks": {}}})
}
