//! A fake agent that speaks the Agent Client Protocol, with faults. The test program starts itself again as this.
//!
//! It keeps its sessions on disk as real agents do: a prompt is in the session's history before anything is done about it.

use std::io::{BufRead as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use longhaul::agent::AcpAgent;
use serde_json::{Value, json};

use crate::crash::process::{lines, write_line};

/// The variables that tell it where its files are, and what is wrong with it.
const DIR: &str = "FAKE_ACP_DIR";
const FAULTS: &str = "FAKE_ACP_FAULTS";

/// The program as an agent of a team: its files are in `dir`, and these are its faults.
pub(crate) fn program(dir: &Path, faults: &str) -> AcpAgent {
    program_after("", dir, faults)
}

/// The same, after a command line of a shell.
pub(crate) fn program_after(line: &str, dir: &Path, faults: &str) -> AcpAgent {
    let exe = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
    let args = ["--exact", "acp::fake_agent", "--ignored", "--nocapture"].map(str::to_owned);
    let mut command: Vec<String> = std::iter::once(exe).chain(args).collect();
    if faults.contains("ignores_term") {
        // What is ignored stays ignored in the program that takes the shell's place.
        let ignoring = ["/bin/sh", "-c", "trap '' TERM; exec \"$0\" \"$@\""].map(str::to_owned);
        command = ignoring.into_iter().chain(command).collect();
    }
    if !line.is_empty() {
        let first = ["/bin/sh", "-c", &format!("{line}; exec \"$0\" \"$@\"")].map(str::to_owned);
        command = first.into_iter().chain(command).collect();
    }
    // Its output begins with lines of the test harness, which the fake skips.
    let exe = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
    let forwarding = [exe.as_str(), "--exact", "acp::task_tools", "--ignored", "--nocapture"];
    AcpAgent::new(command, dir.join("home"))
        .name("fake")
        .task_tools(forwarding)
        .tells_cost(true)
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env(DIR, dir.to_str().unwrap())
        .env(FAULTS, faults)
}

/// The prompts that it has received: session and text.
pub(crate) fn received(dir: &Path) -> Vec<(String, String)> {
    let read = |line: &String| {
        let line: Value = serde_json::from_str(line).unwrap();
        (line["session"].as_str().unwrap().to_owned(), line["text"].as_str().unwrap().to_owned())
    };
    lines(&dir.join("received")).iter().map(read).collect()
}

/// The process ids under which it has run.
pub(crate) fn pids(dir: &Path) -> Vec<i32> {
    lines(&dir.join("pids")).iter().map(|pid| pid.parse().unwrap()).collect()
}

/// Whether a process of it runs anywhere: one whose environment names this directory.
pub(crate) fn is_running(dir: &Path) -> bool {
    let mark = format!("{DIR}={}\0", dir.display()).into_bytes();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let mut environments = processes.filter_map(|entry| std::fs::read(entry.path().join("environ")).ok());
    environments.any(|environment| environment.windows(mark.len()).any(|part| part == mark))
}

struct Fake {
    dir: PathBuf,
    faults: String,
    input: std::sync::mpsc::Receiver<Value>,
    next_id: u64,
    cancelled: bool,
    /// The MCP servers of the session.
    servers: Value,
}

/// Plays the agent until its input ends.
pub(crate) fn play() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let dir = PathBuf::from(dir);
    std::fs::create_dir_all(dir.join("sessions")).unwrap();
    write_line(&dir.join("pids"), &std::process::id().to_string());
    let (send, input) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            if send.send(serde_json::from_str(&line).unwrap()).is_err() {
                break;
            }
        }
    });
    let faults = std::env::var(FAULTS).unwrap_or_default();
    let fake = Fake { dir, faults, input, next_id: 0, cancelled: false, servers: Value::Null };
    fake.serve();
    std::process::exit(0);
}

impl Fake {
    fn has(&self, fault: &str) -> bool {
        self.faults.split(' ').any(|word| word == fault)
    }

    /// Whether a fault with a number (`die:2`) is to happen now: it happens so often.
    fn strikes(&self, fault: &str) -> bool {
        let times = self.faults.split(' ').find_map(|word| word.strip_prefix(&format!("{fault}:")));
        let Some(times) = times.and_then(|times| times.parse::<usize>().ok()) else { return false };
        let file = self.dir.join(format!("{fault}.count"));
        let strikes = lines(&file).len() < times;
        if strikes {
            write_line(&file, "x");
        }
        strikes
    }

    fn serve(mut self) {
        loop {
            let Ok(message) = self.input.recv() else {
                if self.has("ignores_eof") {
                    std::thread::sleep(Duration::from_secs(3600));
                }
                return;
            };
            self.take(&message);
        }
    }

    fn take(&mut self, message: &Value) {
        let (id, params) = (message["id"].clone(), &message["params"]);
        if let Some(servers) = params.get("mcpServers") {
            self.servers = servers.clone();
        }
        match message["method"].as_str().unwrap_or_default() {
            "initialize" => {
                assert_eq!(params["clientCapabilities"]["terminal"], false);
                let version = if self.has("version") { 2 } else { 1 };
                let resume = if self.has("resumes") { json!({ "resume": {} }) } else { json!({}) };
                let queues = json!({ "claudeCode": { "promptQueueing": self.has("queues") } });
                let result = json!({
                    "protocolVersion": version,
                    "_meta": { "steering": { "supported": self.has("steers") } },
                    "agentCapabilities": {
                        "loadSession": !self.has("no_load"), "sessionCapabilities": resume, "_meta": queues,
                    },
                    "agentInfo": { "name": "fake", "version": "1.0" },
                    "authMethods": [{ "id": "key", "name": "An API key" }],
                });
                self.answer(&id, result);
            }
            "session/new" if self.has("login") => {
                let error = json!({ "code": -32000, "message": "Authentication required" });
                say(&json!({ "jsonrpc": "2.0", "id": id, "error": error }));
            }
            "session/new" => {
                let count = std::fs::read_dir(self.dir.join("sessions")).unwrap().count();
                let session = format!("s-{}-{count}", std::process::id());
                std::fs::write(self.history(&session), "").unwrap();
                let mut result = json!({ "sessionId": session });
                if !self.has("no_modes") {
                    let available =
                        [json!({ "id": "default", "name": "D" }), json!({ "id": "yolo", "name": "Y" })];
                    let current = if self.has("starts_in_yolo") { "yolo" } else { "default" };
                    result["modes"] = json!({ "currentModeId": current, "availableModes": available });
                }
                self.answer(&id, result);
            }
            "session/set_mode" => self.answer(&id, json!({})),
            "session/load" if self.has("forgets") => {
                let error = json!({ "code": -32603, "message": "Invalid session identifier" });
                say(&json!({ "jsonrpc": "2.0", "id": id, "error": error }));
            }
            "session/load" | "session/resume" => {
                let session = params["sessionId"].as_str().unwrap();
                let history = self.history(session);
                assert!(history.exists(), "no session {session}");
                if message["method"] == "session/load" {
                    for line in lines(&history) {
                        let line: Value = serde_json::from_str(&line).unwrap();
                        self.chunk(session, line["kind"].as_str().unwrap(), line["text"].as_str().unwrap());
                    }
                }
                self.answer(&id, json!({}));
            }
            "session/prompt" => {
                let session = params["sessionId"].as_str().unwrap().to_owned();
                let text = params["prompt"][0]["text"].as_str().unwrap().to_owned();
                self.cancelled = false;
                self.prompt(&id, &session, &text);
            }
            "session/cancel" => self.cancelled = true,
            "_session/steering" if self.has("refuses_steering") => {
                self.answer(&id, json!({ "outcome": "promptRequired", "reason": "noRunningTurn" }));
            }
            "_session/steering" => {
                assert_eq!(params["_meta"]["steering"]["idleBehavior"], "promptRequired");
                self.receive(
                    params["sessionId"].as_str().unwrap(),
                    params["prompt"][0]["text"].as_str().unwrap(),
                );
                self.answer(&id, json!({ "outcome": "injected" }));
            }
            _ => {}
        }
    }

    fn history(&self, session: &str) -> PathBuf {
        self.dir.join("sessions").join(session)
    }

    fn receive(&self, session: &str, text: &str) {
        let user = json!({ "kind": "user_message_chunk", "text": text });
        write_line(&self.history(session), &user.to_string());
        write_line(&self.dir.join("received"), &json!({ "session": session, "text": text }).to_string());
    }

    /// Waits until another message of the user has come, in the middle of the turn.
    fn wait_for_message(&mut self) {
        let before = lines(&self.dir.join("received")).len();
        let until = std::time::Instant::now() + Duration::from_secs(20);
        while lines(&self.dir.join("received")).len() == before && std::time::Instant::now() < until {
            let Ok(message) = self.input.recv_timeout(Duration::from_millis(20)) else { continue };
            match message["method"].as_str() {
                Some("session/prompt") => {
                    // Queued: it is part of this turn.
                    let params = &message["params"];
                    self.receive(
                        params["sessionId"].as_str().unwrap(),
                        params["prompt"][0]["text"].as_str().unwrap(),
                    );
                    self.answer(
                        &message["id"],
                        json!({ "stopReason": "end_turn", "usage": { "inputTokens": 1 } }),
                    );
                }
                Some("_session/steering") => {
                    self.take(&message);
                    if self.has("refuses_steering") {
                        return;
                    }
                }
                _ => self.take(&message),
            }
        }
    }

    /// One turn.
    fn prompt(&mut self, id: &Value, session: &str, text: &str) {
        self.receive(session, text);
        if self.has("malformed") {
            raw(b"{\"jsonrpc\": \"2.0\", \"id\":\n\xff\xfe\n[1, 2\n\n\"text\"\n{\"id\":99,\"result\":{}}\n");
            raw(b"{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{\"update\":{\"sessionUpdate\":\"tool_call\"}}}\n");
        }
        self.chunk(session, "agent_message_chunk", "Let me look. ");
        if self.has("hang") {
            loop {
                std::thread::sleep(Duration::from_secs(3600));
            }
        }
        while self.has("flood") && !self.poll_cancel() {
            self.chunk(session, "agent_message_chunk", &"words ".repeat(200));
        }
        if self.has("waits") {
            while !self.poll_cancel() {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        if self.cancelled && !self.has("ignores_cancel") {
            return self.answer(id, json!({ "stopReason": "cancelled" }));
        }
        if self.has("waits_for_message") && text.contains("tag<one>") {
            write_line(&self.dir.join("waits"), "x");
            self.wait_for_message();
        }
        if self.has("delegates") || self.has("delegates_letters") {
            self.delegate(session);
        }
        let call = format!("call-{}", lines(&self.dir.join("received")).len());
        self.update(session, json!({ "sessionUpdate": "tool_call", "toolCallId": call, "title": "echo", "kind": "execute", "status": "pending" }));
        let input = json!({ "command": ["bash", "-lc", "echo hello"] });
        self.update(
            session,
            json!({ "sessionUpdate": "tool_call_update", "toolCallId": call, "rawInput": input }),
        );
        let mut allowed = true;
        let times = if self.has("asks_twice") { 2 } else { usize::from(self.has("asks")) };
        for _ in 0..times {
            allowed = self.ask(session, &call);
        }
        self.update(
            session,
            json!({ "sessionUpdate": "tool_call_update", "toolCallId": call, "status": "in_progress" }),
        );
        if self.strikes("die") {
            eprintln!("the fake agent dies");
            std::process::exit(7);
        }
        if allowed {
            write_line(&self.dir.join("effects"), &call);
        }
        let (status, output) = if allowed { ("completed", "hello") } else { ("failed", "not allowed") };
        let content = [json!({ "type": "content", "content": { "type": "text", "text": output } })];
        self.update(session, json!({ "sessionUpdate": "tool_call_update", "toolCallId": call, "status": status, "content": content }));
        self.update(session, json!({ "sessionUpdate": "usage_update", "used": 10, "size": 100, "cost": { "amount": 0.5, "currency": "USD" } }));
        let said = if self.has("silent") { String::new() } else { self.final_words(session, allowed) };
        if !said.is_empty() {
            self.chunk(session, "agent_message_chunk", &said);
            let agent = json!({ "kind": "agent_message_chunk", "text": said });
            write_line(&self.history(session), &agent.to_string());
        }
        let usage = json!({ "totalTokens": 15, "inputTokens": 10, "outputTokens": 5 });
        self.answer(id, json!({ "stopReason": "end_turn", "usage": usage }));
    }

    /// The answer is the same however often it was interrupted: what it was asked for, between brackets.
    fn final_words(&self, session: &str, allowed: bool) -> String {
        let history = lines(&self.history(session)).join("\n");
        let mut asked: Vec<&str> =
            history.split("tag<").skip(1).filter_map(|rest| rest.split('>').next()).collect();
        // What its own background tasks have said.
        asked.extend(history.split("PART[").skip(1).filter_map(|rest| rest.split(']').next()));
        asked.sort_unstable();
        asked.dedup();
        format!("FOUND[{}{}]", asked.join(" "), if allowed { "" } else { " denied" })
    }

    /// Sends out a background task of the team through the MCP server `longhaul`, once, and collects its result or ends its turn.
    fn delegate(&self, session: &str) {
        let history = lines(&self.history(session)).join("\n");
        if history.contains("PART[") {
            return;
        }
        let mut tools = TaskTools::connect(&self.servers);
        let names = tools.request("tools/list", json!({}))["tools"].clone();
        assert!(
            names.as_array().unwrap().iter().any(|tool| tool["name"] == "run_background_agent"),
            "{names}"
        );
        let remembered = history.split("launched<").nth(1).and_then(|rest| rest.split('>').next());
        let task = match remembered {
            Some(task) => task.to_owned(),
            None => {
                let said =
                    tools.call("run_background_agent", json!({ "agent": "helper", "task": "weigh it" }));
                let task = said.lines().next().unwrap_or_default().to_owned();
                if !task.starts_with("t-") {
                    return write_line(&self.dir.join("refused"), &said);
                }
                let note = json!({ "kind": "agent_message_chunk", "text": format!("launched<{task}>") });
                write_line(&self.history(session), &note.to_string());
                task
            }
        };
        if self.has("delegates_letters") {
            return;
        }
        let said = tools.call("wait_background_agents", json!({ "task_ids": [task] }));
        let note = json!({ "kind": "agent_message_chunk", "text": said });
        write_line(&self.history(session), &note.to_string());
    }

    fn ask(&mut self, session: &str, call: &str) -> bool {
        self.next_id += 1;
        let id = format!("p{}", self.next_id);
        let option = |kind: &str| json!({ "optionId": format!("id-{kind}"), "name": kind, "kind": kind });
        let options = ["allow_always", "allow_once", "reject_once"].map(option);
        let params = json!({
            "sessionId": session,
            "toolCall": { "toolCallId": call, "rawInput": { "command": "echo hello" } },
            "options": options,
        });
        say(&json!({ "jsonrpc": "2.0", "id": id, "method": "session/request_permission", "params": params }));
        loop {
            let Ok(message) = self.input.recv() else { std::process::exit(0) };
            if message["id"] == id.as_str() {
                let outcome = &message["result"]["outcome"];
                write_line(&self.dir.join("answers"), &outcome.to_string());
                return outcome["optionId"] == "id-allow_once";
            }
            self.take(&message);
        }
    }

    fn poll_cancel(&mut self) -> bool {
        while let Ok(message) = self.input.try_recv() {
            self.take(&message);
        }
        self.cancelled && !self.has("ignores_cancel")
    }

    fn chunk(&self, session: &str, kind: &str, text: &str) {
        self.update(session, json!({ "sessionUpdate": kind, "content": { "type": "text", "text": text } }));
    }

    fn update(&self, session: &str, update: Value) {
        let params = json!({ "sessionId": session, "update": update });
        say(&json!({ "jsonrpc": "2.0", "method": "session/update", "params": params }));
    }

    fn answer(&self, id: &Value, result: Value) {
        say(&json!({ "jsonrpc": "2.0", "id": id, "result": result }));
    }
}

fn say(message: &Value) {
    raw(format!("{message}\n").as_bytes());
}

/// Writes to standard output. Whoever reads it may be gone.
fn raw(bytes: &[u8]) {
    let mut out = std::io::stdout().lock();
    if out.write_all(bytes).and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

/// The MCP client of the fake: it starts the command that it was given, as real ones do.
struct TaskTools {
    child: std::process::Child,
    input: std::process::ChildStdin,
    output: std::io::BufReader<std::process::ChildStdout>,
    next_id: u64,
}

impl Drop for TaskTools {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl TaskTools {
    fn connect(servers: &Value) -> TaskTools {
        let server = servers.as_array().unwrap().iter().find(|server| server["name"] == "longhaul");
        let server = server.unwrap_or_else(|| panic!("no server: {servers}"));
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let env =
            server["env"].as_array().unwrap().iter().map(|pair| (text(&pair["name"]), text(&pair["value"])));
        let mut child = std::process::Command::new(text(&server["command"]))
            .args(server["args"].as_array().unwrap().iter().map(text))
            .env_clear()
            .envs(env)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut tools = TaskTools { child, input, output: std::io::BufReader::new(output), next_id: 0 };
        let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "fake", "version": "1" } });
        assert_eq!(tools.request("initialize", hello)["protocolVersion"], "2025-06-18");
        tools
    }

    fn request(&mut self, method: &str, params: Value) -> Value {
        self.next_id += 1;
        let message = json!({ "jsonrpc": "2.0", "id": self.next_id, "method": method, "params": params });
        if writeln!(self.input, "{message}").is_err() {
            std::process::exit(8);
        }
        loop {
            let mut line = String::new();
            // Whoever answers may be gone.
            if self.output.read_line(&mut line).unwrap_or(0) == 0 {
                std::process::exit(8);
            }
            // Other lines are those of the test harness.
            let Ok(answer) = serde_json::from_str::<Value>(&line) else { continue };
            if answer["id"] == self.next_id {
                return answer.get("result").cloned().unwrap_or_else(|| panic!("{answer}"));
            }
        }
    }

    fn call(&mut self, tool: &str, arguments: Value) -> String {
        let result = self.request("tools/call", json!({ "name": tool, "arguments": arguments }));
        result["content"][0]["text"].as_str().unwrap().to_owned()
    }
}
