//! Longhaul as an agent of editors, over the Agent AcpClient Protocol on stdio.
//!
//! A session is an interactive root task; a prompt is a letter to it. The server owns no task: it writes to the store, and
//! another process runs what was written. So a session survives the editor, and can be loaded from the journal.
//! Nothing but the protocol is written to the writer.

mod connection;
mod options;
mod prompt;
mod sessions;
mod updates;

use futures::TryStreamExt as _;
use longhaul::entry::Entry;
use longhaul::id::Seq;
use longhaul::{EventKind, TaskId};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::backend::Backend;
use connection::{AcpClient, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE, RequestError};
use sessions::{AcpSessions, session_id};
use updates::{ClientEffect, SessionUpdates, user_message};

/// The protocol version that is spoken.
const VERSION: u64 = 1;
/// How many lines wait to be written before the writers wait.
const WAITING: usize = 256;
/// How long a client that has closed its end is still written to.
const LEAVING: std::time::Duration = std::time::Duration::from_secs(1);
/// The longest line that a client may send, in bytes.
const LINE: u64 = 64 << 20;

/// An ACP agent for one client.
pub struct AcpServer {
    backend: Backend,
}

/// What the client can do.
#[derive(Debug, Clone, Copy, Default)]
struct ClientAbout {
    elicits: bool,
    /// Whether it shows sub-agents as sessions of their own.
    subagents: bool,
}

/// Why a client could not be served.
#[derive(Debug, thiserror::Error)]
#[error("the ACP client could not be served: {0}")]
pub struct AcpError(#[from] std::io::Error);

impl AcpServer {
    /// An agent whose sessions are tasks of the backend's first team.
    pub fn new(backend: Backend) -> AcpServer {
        AcpServer { backend }
    }

    /// Serves a client on this process's stdin and stdout until it leaves.
    ///
    /// # Errors
    /// Fails if stdin cannot be read.
    pub async fn serve_stdio(self) -> Result<(), AcpError> {
        let (reader, writer) = rmcp::transport::io::stdio_pipes();
        self.serve(reader, writer).await
    }

    /// Serves a client until it closes its end. Prompts that run then end here; their tasks go on.
    ///
    /// # Errors
    /// Fails if the client cannot be read.
    pub async fn serve(
        self,
        reader: impl AsyncRead + Unpin + Send,
        writer: impl AsyncWrite + Unpin + Send,
    ) -> Result<(), AcpError> {
        let (lines, written) = mpsc::channel(WAITING);
        let client = AcpClient::new(lines);
        let mut writing = std::pin::pin!(write_lines(writer, written));
        let served = tokio::select! {
            served = self.read(reader, client) => served,
            () = &mut writing => return Ok(()),
        };
        // What was answered before it left, it gets.
        let _ = tokio::time::timeout(LEAVING, writing).await;
        served
    }

    async fn read(self, reader: impl AsyncRead + Unpin + Send, client: AcpClient) -> Result<(), AcpError> {
        let sessions = AcpSessions::new(self.backend.clone());
        let mut reader = BufReader::new(reader);
        let mut work: JoinSet<()> = JoinSet::new();
        let mut about = ClientAbout::default();
        let mut line = Vec::new();
        loop {
            // A read that is dropped has kept what it read in `line`.
            tokio::select! {
                read = read_line(&mut reader, &mut line) => {
                    if !read? {
                        return Ok(());
                    }
                }
                Some(_) = work.join_next() => continue,
            }
            let message = std::mem::take(&mut line);
            if message.trim_ascii().is_empty() {
                continue;
            }
            let Ok(message @ Value::Object(_)) = serde_json::from_slice::<Value>(&message) else {
                client.answer(&Value::Null, Err(RequestError::new(PARSE, "this is not a JSON object"))).await;
                continue;
            };
            let Some(method) = message.get("method").and_then(Value::as_str).map(str::to_owned) else {
                client.answered(message);
                continue;
            };
            let params = message.get("params").cloned().unwrap_or_default();
            let Some(id) = message.get("id").filter(|id| !id.is_null()).cloned() else {
                if method == "session/cancel"
                    && let Ok(session) = session_id(&params)
                {
                    sessions.cancel(session);
                }
                continue;
            };
            match method.as_str() {
                "initialize" => {
                    let elicitation = params.pointer("/clientCapabilities/elicitation");
                    about.elicits = elicitation.is_some_and(|elicitation| !elicitation.is_null());
                    let subagents = params.pointer("/clientCapabilities/subagents");
                    about.subagents = subagents.is_some_and(|subagents| !subagents.is_null());
                    client.answer(&id, Ok(initialized())).await;
                }
                // In order, and quick: what follows may need the session.
                "session/new" => {
                    client.answer(&id, sessions.create(&params)).await;
                }
                "session/set_config_option" | "session/set_mode" => {
                    client.answer(&id, sessions.set_option(&params)).await;
                }
                "session/close" => {
                    let closed = session_id(&params).map(|session| sessions.close(session));
                    client.answer(&id, closed.map(|()| json!({}))).await;
                }
                "authenticate" => client.answer(&id, Ok(json!({}))).await,
                "session/load" | "session/resume" | "session/list" | "session/prompt" => {
                    let (backend, sessions, client) =
                        (self.backend.clone(), sessions.clone(), client.clone());
                    work.spawn(async move {
                        let result = match method.as_str() {
                            "session/list" => sessions.list(&params).await,
                            "session/prompt" => {
                                prompt::run(&backend, &sessions, &client, about, &params).await
                            }
                            method => {
                                let replays = method == "session/load";
                                open(&backend, &sessions, &client, about, &params, replays).await
                            }
                        };
                        client.answer(&id, result).await;
                    });
                }
                _ => {
                    let error = RequestError::new(METHOD_NOT_FOUND, format!("there is no method '{method}'"));
                    client.answer(&id, Err(error)).await;
                }
            }
        }
    }
}

fn initialized() -> Value {
    json!({
        "protocolVersion": VERSION,
        "agentCapabilities": {
            "loadSession": true,
            "promptCapabilities": { "image": false, "audio": false, "embeddedContext": true },
            "sessionCapabilities": { "resume": {}, "list": {}, "close": {} },
        },
        "agentInfo": { "name": "longhaul", "title": "Longhaul", "version": env!("CARGO_PKG_VERSION") },
        "authMethods": [],
    })
}

/// Opens a session again. A session that is loaded tells everything that was said in it.
async fn open(
    backend: &Backend,
    sessions: &AcpSessions,
    client: &AcpClient,
    about: ClientAbout,
    params: &Value,
    replays: bool,
) -> Result<Value, RequestError> {
    let (id, first, opened) = sessions.open(params).await?;
    let mut task = Some(first);
    while let Some(now) = task.filter(|_| replays) {
        replay(backend, client, about, &id, now).await?;
        task = backend.longhaul().state(now).await?.continued_by;
    }
    // What a killed process left goes on as soon as someone looks.
    let last = backend.longhaul().session_task(first).await?;
    backend.carry(last.id).await?;
    Ok(opened)
}

/// Tells what is in the journals of a task and of everything below it.
async fn replay(
    backend: &Backend,
    client: &AcpClient,
    about: ClientAbout,
    session: &str,
    task: TaskId,
) -> Result<(), RequestError> {
    let longhaul = backend.longhaul();
    let records = longhaul
        .store()
        .read(task, Seq(0), 1)
        .await
        .map_err(|error| RequestError::new(connection::INTERNAL, error.to_string()))?;
    if let Some(Entry::Submitted(submitted)) = records.first().map(|record| &record.entry) {
        client.update(session, user_message(&submitted.order.task)).await;
    }
    let mut updates = SessionUpdates::new(session, task, true, about.subagents);
    let mut events = longhaul.follow(task);
    let state = longhaul.state(task).await?;
    loop {
        // Only what is there: a task that works goes on meanwhile.
        let next = tokio::time::timeout(std::time::Duration::from_millis(300), events.try_next()).await;
        let Ok(Some(event)) = next.unwrap_or(Ok(None)) else { break };
        for effect in updates.take(&event) {
            if let ClientEffect::Update(of, update) = effect {
                client.update(&of, update).await;
            }
        }
        let is_end = event.task == task && matches!(event.kind, EventKind::Finished { .. });
        if is_end || (event.task == task && event.seq >= state.seq) {
            break;
        }
    }
    Ok(())
}

/// Reads a line into `line`, which may have the start of it. Returns whether there was one.
async fn read_line(
    reader: &mut (impl tokio::io::AsyncBufRead + Unpin),
    line: &mut Vec<u8>,
) -> std::io::Result<bool> {
    use tokio::io::AsyncReadExt as _;
    let room = LINE.saturating_sub(line.len() as u64);
    if room == 0 {
        return Err(std::io::Error::other("a line is too long"));
    }
    let read = reader.take(room).read_until(b'\n', line).await?;
    Ok(read > 0 || !line.is_empty())
}

async fn write_lines(mut writer: impl AsyncWrite + Unpin, mut lines: mpsc::Receiver<String>) {
    while let Some(mut line) = lines.recv().await {
        line.push('\n');
        if writer.write_all(line.as_bytes()).await.is_err() || writer.flush().await.is_err() {
            return;
        }
    }
}

/// The error of a prompt without text.
fn empty_prompt() -> RequestError {
    RequestError::new(INVALID_REQUEST, "the prompt has no text")
}
