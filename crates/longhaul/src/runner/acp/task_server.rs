//! The MCP server of a task, on a socket: it offers the tools of the agent to the program that runs the agent.
//!
//! It answers what needs no task by itself and passes calls on to the run, which takes them during a turn.

use std::collections::HashMap;
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::super::open_tools::OpenTools;
use super::wire::{response, rpc_failure, text_at};
use crate::agent::task_connection::{TASK_SECRET, TASK_SOCKET, WELCOME, short_path};
use crate::id::Digest;

/// The directory of the sockets below a program's home.
const SOCKETS: &str = ".longhaul";
/// The newest version of MCP that is spoken, and the others.
const NEWEST: &str = "2025-11-25";
const VERSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", NEWEST];
/// How many clients may be connected.
const CLIENTS: usize = 32;
/// How many calls wait for the run.
const CALLS: usize = 256;
/// How long a client may take to say the secret.
const GREETING: Duration = Duration::from_secs(10);
/// The longest message of a client.
const LINE: u64 = 8 << 20;

const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;

/// A call of one of the agent's tools.
pub(super) struct TaskToolCall {
    pub(super) tool: String,
    /// JSON, with its keys in order.
    pub(super) arguments: String,
    pub(super) reply: oneshot::Sender<TaskToolReply>,
}

/// The result of a call.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TaskToolReply {
    pub(super) text: String,
    pub(super) is_error: bool,
}

/// The server. When it is dropped, its connections end and its socket is removed.
pub(super) struct TaskServer {
    dir: PathBuf,
    secret: String,
    pub(super) calls: mpsc::Receiver<TaskToolCall>,
    _accepting: JoinSet<()>,
}

impl Drop for TaskServer {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

impl TaskServer {
    /// Starts the server of a task below the home directory of its program.
    pub(super) fn start(home: &Path, task: &str, tools: &OpenTools) -> io::Result<TaskServer> {
        let sockets = home.join(SOCKETS);
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&sockets)?;
        remove_left(&sockets, task);
        let secret = new_secret()?;
        // A name of its own: a process that has lost the task removes only what it has made itself.
        let dir = sockets.join(format!("{task}-{:.8}", Digest::of_bytes(secret.as_bytes()).as_str()));
        std::fs::DirBuilder::new().mode(0o700).create(&dir)?;
        let socket = dir.join("socket");
        let listener = {
            let (path, _open) = short_path(&socket)?;
            UnixListener::bind(path)?
        };
        std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o600))?;
        let (send, calls) = mpsc::channel(CALLS);
        let shared = Arc::new(SocketContext {
            secret: Digest::of_bytes(secret.as_bytes()),
            tools: list(tools),
            calls: send,
        });
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, shared));
        Ok(TaskServer { dir, secret, calls, _accepting: accepting })
    }

    /// The server as the protocol describes it to an agent.
    pub(super) fn entry(&self, name: &str, command: &[String]) -> Value {
        let (program, args) =
            command.split_first().map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
        let variable = |name: &str, value: &str| json!({ "name": name, "value": value });
        let socket = self.dir.join("socket");
        let env = [variable(TASK_SOCKET, &socket.to_string_lossy()), variable(TASK_SECRET, &self.secret)];
        json!({ "name": name, "command": program, "args": args, "env": env })
    }
}

/// Removes what a process that was killed has left of this task.
fn remove_left(sockets: &Path, task: &str) {
    let entries = std::fs::read_dir(sockets).into_iter().flatten().flatten();
    let is_of_task = |name: &std::ffi::OsStr| {
        name.to_str().and_then(|name| name.rsplit_once('-')).is_some_and(|(of, _)| of == task)
    };
    for entry in entries.filter(|entry| is_of_task(&entry.file_name())) {
        let _ = std::fs::remove_dir_all(entry.path());
    }
}

fn new_secret() -> io::Result<String> {
    let mut bytes = [0; 32];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// What all connections to the socket share.
struct SocketContext {
    /// Compared as a digest, so that the time it takes tells nothing.
    secret: Digest,
    tools: Vec<Value>,
    calls: mpsc::Sender<TaskToolCall>,
}

fn list(tools: &OpenTools) -> Vec<Value> {
    let describe = |spec: &Arc<crate::model::ToolSpec>| {
        let effects = tools.tool(&spec.name).map(|tool| tool.effects).unwrap_or_default();
        // What these tools do is decided and recorded here, so a client need not ask about it.
        let hints = json!({
            "readOnlyHint": effects.read_only,
            "destructiveHint": !effects.is_harmless(),
            "idempotentHint": effects.repeatable,
            "openWorldHint": !effects.is_harmless(),
        });
        json!({ "name": spec.name, "description": spec.description, "inputSchema": spec.parameters, "annotations": hints })
    };
    tools.specs.iter().map(describe).collect()
}

async fn accept(listener: UnixListener, shared: Arc<SocketContext>) {
    let seats = Arc::new(Semaphore::new(CLIENTS));
    let mut clients = JoinSet::new();
    loop {
        let Ok(seat) = seats.clone().acquire_owned().await else { return };
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(_) => return,
            },
            Some(_) = clients.join_next() => continue,
        };
        let shared = shared.clone();
        clients.spawn(async move {
            let _seat = seat;
            // Whatever ends a connection, the client notices.
            let _ = serve(stream, &shared).await;
        });
    }
}

async fn serve(stream: UnixStream, shared: &SocketContext) -> io::Result<()> {
    let own = nix::unistd::Uid::effective().as_raw();
    if stream.peer_cred()?.uid() != own {
        return Ok(());
    }
    let (read, mut write) = stream.into_split();
    let mut reader = BufReader::new(read);
    let mut line = Vec::new();
    let greeted = timeout(GREETING, read_line(&mut reader, &mut line)).await;
    let is_known = matches!(greeted, Ok(Ok(true))) && Digest::of_bytes(line.trim_ascii()) == shared.secret;
    if !is_known {
        return Ok(());
    }
    write.write_all(format!("{WELCOME}\n").as_bytes()).await?;
    let mut running: FuturesUnordered<BoxFuture<'_, Answered>> = FuturesUnordered::new();
    // By the text of its id.
    let mut open: HashMap<String, CancellationToken> = HashMap::new();
    line.clear();
    loop {
        tokio::select! {
            // What was read of a line is kept if this is dropped.
            read = read_line(&mut reader, &mut line) => {
                if !read? {
                    return Ok(());
                }
                let message = std::mem::take(&mut line);
                match take_message(&message, &shared.tools) {
                    McpStep::Nothing => {}
                    McpStep::Answer(answer) => write_line(&mut write, &answer).await?,
                    McpStep::Cancel(id) => open.remove(&id.to_string()).into_iter().for_each(|call| call.cancel()),
                    McpStep::Call { id, tool, arguments } => {
                        let cancel = CancellationToken::new();
                        open.insert(id.to_string(), cancel.clone());
                        running.push(call_tool(shared, id, tool, arguments, cancel).boxed());
                    }
                }
            }
            Some((id, reply)) = running.next() => {
                open.remove(&id.to_string());
                if let Some(TaskToolReply { text, is_error }) = reply {
                    let content = [json!({ "type": "text", "text": text })];
                    write_line(&mut write, &response(&id, json!({ "content": content, "isError": is_error }))).await?;
                }
            }
        }
    }
}

/// The id of a call, and its result; none, if the client has cancelled it.
type Answered = (Value, Option<TaskToolReply>);

async fn call_tool(
    shared: &SocketContext,
    id: Value,
    tool: String,
    arguments: String,
    cancel: CancellationToken,
) -> Answered {
    let (reply, answer) = oneshot::channel();
    let calling = async {
        let call = TaskToolCall { tool, arguments, reply };
        shared.calls.send(call).await.ok()?;
        answer.await.ok()
    };
    let stopping = || TaskToolReply { text: "The task is being stopped.".to_owned(), is_error: true };
    tokio::select! {
        reply = calling => (id, Some(reply.unwrap_or_else(stopping))),
        () = cancel.cancelled() => (id, None),
    }
}

/// What a message of a client means.
#[derive(Debug, PartialEq)]
enum McpStep {
    Nothing,
    Answer(Value),
    Call { id: Value, tool: String, arguments: String },
    Cancel(Value),
}

fn take_message(line: &[u8], tools: &[Value]) -> McpStep {
    let Ok(message @ Value::Object(_)) = serde_json::from_slice::<Value>(line) else {
        return McpStep::Nothing;
    };
    let Some(method) = text_at(&message, "method") else { return McpStep::Nothing };
    let params = message.get("params").cloned().unwrap_or_default();
    let Some(id) = message.get("id").filter(|id| !id.is_null()).cloned() else {
        let id = params.get("requestId").filter(|_| method == "notifications/cancelled");
        return id.map_or(McpStep::Nothing, |id| McpStep::Cancel(id.clone()));
    };
    let answer = |result: Value| McpStep::Answer(response(&id, result));
    match method {
        "initialize" => {
            let asked = text_at(&params, "protocolVersion").unwrap_or(NEWEST);
            let version = VERSIONS.iter().find(|version| **version == asked).unwrap_or(&NEWEST);
            answer(json!({
                "protocolVersion": version,
                "capabilities": { "tools": {} },
                "serverInfo": { "name": "longhaul", "title": "Longhaul", "version": env!("CARGO_PKG_VERSION") },
            }))
        }
        "ping" => answer(json!({})),
        "tools/list" => answer(json!({ "tools": tools })),
        "tools/call" => {
            let Some(tool) = text_at(&params, "name").map(str::to_owned) else {
                return McpStep::Answer(rpc_failure(&id, INVALID_PARAMS, "name is missing"));
            };
            if !tools.iter().any(|listed| text_at(listed, "name") == Some(&tool)) {
                return McpStep::Answer(rpc_failure(
                    &id,
                    INVALID_PARAMS,
                    &format!("there is no tool '{tool}'"),
                ));
            }
            let arguments = params.get("arguments").cloned().unwrap_or_else(|| json!({})).to_string();
            McpStep::Call { id, tool, arguments }
        }
        _ => McpStep::Answer(rpc_failure(&id, METHOD_NOT_FOUND, &format!("there is no method '{method}'"))),
    }
}

/// Reads a line into `line`, which may have the start of it. Returns whether there was one.
async fn read_line(reader: &mut BufReader<OwnedReadHalf>, line: &mut Vec<u8>) -> io::Result<bool> {
    let room = LINE.saturating_sub(line.len() as u64);
    if room == 0 {
        return Err(io::Error::other("a message is too long"));
    }
    reader.take(room).read_until(b'\n', line).await?;
    Ok(line.ends_with(b"\n"))
}

async fn write_line(write: &mut OwnedWriteHalf, message: &Value) -> io::Result<()> {
    write.write_all(format!("{message}\n").as_bytes()).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(message: Value) -> McpStep {
        take_message(message.to_string().as_bytes(), &[json!({ "name": "look" })])
    }

    #[test]
    fn clients_of_every_version_get_the_tools() {
        for (asked, given) in [("2024-11-05", "2024-11-05"), ("2025-11-25", NEWEST), ("2099-01-01", NEWEST)] {
            let hello = json!({ "id": 1, "method": "initialize", "params": { "protocolVersion": asked } });
            let McpStep::Answer(answer) = take(hello) else { panic!("no answer") };
            assert_eq!(answer["result"]["protocolVersion"], given);
        }
        let McpStep::Answer(answer) = take(json!({ "id": "a", "method": "tools/list" })) else {
            panic!("no answer")
        };
        assert_eq!((&answer["id"], &answer["result"]["tools"][0]["name"]), (&json!("a"), &json!("look")));
        assert_eq!(take(json!({ "method": "notifications/initialized" })), McpStep::Nothing);
        let McpStep::Answer(answer) = take(json!({ "id": 2, "method": "server/discover" })) else {
            panic!("no answer")
        };
        assert_eq!(answer["error"]["code"], METHOD_NOT_FOUND);
    }

    #[test]
    fn only_listed_tools_can_be_called_and_a_call_can_be_cancelled() {
        let params = json!({ "name": "look", "arguments": { "b": 1, "a": 2 } });
        let call = take(json!({ "id": 3, "method": "tools/call", "params": params }));
        // In the order of their names, so that the same call is found again.
        let arguments = r#"{"a":2,"b":1}"#.to_owned();
        assert_eq!(call, McpStep::Call { id: json!(3), tool: "look".to_owned(), arguments });
        let McpStep::Answer(answer) =
            take(json!({ "id": 4, "method": "tools/call", "params": { "name": "rm" } }))
        else {
            panic!("no answer")
        };
        assert_eq!(answer["error"]["code"], INVALID_PARAMS);
        let cancelled = json!({ "method": "notifications/cancelled", "params": { "requestId": 3 } });
        assert_eq!(take(cancelled), McpStep::Cancel(json!(3)));
    }
}
