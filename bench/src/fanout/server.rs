//! The provider of the fan-out: chat completions on loopback, in a process of its own so that only the client is measured.
//!
//! The path says how it plays: `/PACE/COLLECT/AGENTS/v1/chat/completions`. `fast` sends a reply without delay, with a write for
//! every token, as providers do; `slow` waits before the first token and between two. The model `lead-1` starts AGENTS agents
//! in its first reply and then collects: `letters` waits for them to come, `wait` calls the tool that waits, `view` views each
//! agent once. The model `worker-1` thinks twice and answers.

use std::error::Error;
use std::fmt::Write as _;
use std::io::{BufRead as _, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::{TURNS, order};

/// Tokens of a reply, those of a call's arguments included.
const TOKENS: usize = 50;
/// How long the slow model takes.
const FIRST_TOKEN: Duration = Duration::from_millis(200);
const NEXT_TOKEN: Duration = Duration::from_millis(20);
/// How many agents one call may wait for.
const WAIT_AT_ONCE: usize = 100;

/// What the server saw since it was last asked.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct ServerCounts {
    pub(crate) connections: u64,
    pub(crate) agent_requests: u64,
    /// From the orchestrator's first reply to its second request; without an orchestrator, until all agents made a request.
    pub(crate) launch_ms: u64,
}

#[derive(Default)]
struct ServerCounters {
    connections: AtomicU64,
    agent_requests: AtomicU64,
    started_agents: AtomicU64,
    launch_began: AtomicU64,
    launch_ended: AtomicU64,
}

impl ServerCounters {
    fn take(&self) -> ServerCounts {
        let take = |n: &AtomicU64| n.swap(0, Relaxed);
        take(&self.started_agents);
        ServerCounts {
            connections: take(&self.connections),
            agent_requests: take(&self.agent_requests),
            launch_ms: take(&self.launch_ended).saturating_sub(take(&self.launch_began)),
        }
    }
}

/// Milliseconds since the server started, never 0.
fn now_ms() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_millis() as u64 + 1
}

/// The server, as whoever started it sees it.
pub(crate) struct FanoutServer {
    process: Child,
    at: SocketAddr,
}

impl FanoutServer {
    /// Starts one in a process of its own.
    pub(crate) fn start() -> Result<FanoutServer, Box<dyn Error>> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg("--serve")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let out = process.stdout.take().ok_or("the server has no output")?;
        std::io::BufReader::new(out).read_line(&mut line)?;
        Ok(FanoutServer { process, at: line.trim().parse()? })
    }

    pub(crate) fn url(&self, pace: &str, collect: &str, agents: usize) -> String {
        format!("http://{}/{pace}/{collect}/{agents}/v1", self.at)
    }

    /// What it saw since this was last called.
    pub(crate) fn take_counts(&self) -> Result<ServerCounts, Box<dyn Error>> {
        let mut stream = TcpStream::connect(self.at)?;
        stream.write_all(b"GET /seen HTTP/1.1\r\nhost: bench\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(serde_json::from_str(&answer)?)
    }
}

impl Drop for FanoutServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Serves until whoever started it is gone.
pub(crate) fn serve() -> Result<(), Box<dyn Error>> {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?);
        let (counters, replies) = (Arc::new(ServerCounters::default()), Arc::new(CannedReplies::new()));
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let (counters, replies) = (counters.clone(), replies.clone());
            tokio::spawn(async move { serve_connection(stream, &counters, &replies).await });
        }
    })
}

async fn serve_connection(
    mut stream: tokio::net::TcpStream,
    counters: &ServerCounters,
    replies: &CannedReplies,
) -> std::io::Result<()> {
    let mut inbox: Vec<u8> = Vec::new();
    let mut first = true;
    loop {
        let Some(headers_end) = read_until(&mut stream, &mut inbox, |inbox| find(inbox, b"\r\n\r\n")).await?
        else {
            return Ok(());
        };
        let text = String::from_utf8_lossy(&inbox[..headers_end]).to_ascii_lowercase();
        if text.starts_with("get /seen") {
            return stream.write_all(&serde_json::to_vec(&counters.take())?).await;
        }
        let length =
            text.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse::<usize>().ok());
        let end = headers_end + 4 + length.unwrap_or(0);
        if read_until(&mut stream, &mut inbox, |inbox| (inbox.len() >= end).then_some(end)).await?.is_none() {
            return Ok(());
        }
        counters.connections.fetch_add(u64::from(std::mem::take(&mut first)), Relaxed);
        let body = &inbox[headers_end + 4..end];
        let mut path = text.split(' ').nth(1).unwrap_or_default().split('/').skip(1);
        let (pace, collect) = (path.next().unwrap_or_default(), path.next().unwrap_or_default());
        let agents: usize = path.next().and_then(|n| n.parse().ok()).unwrap_or_default();
        if find(&body[..body.len().min(4096)], b"lead-1").is_some() {
            let reply = lead_reply(body, collect, agents, counters);
            stream.write_all(&reply.concat()).await?;
            if counters.launch_began.load(Relaxed) == 0 {
                counters.launch_began.store(now_ms(), Relaxed);
            }
        } else {
            counters.agent_requests.fetch_add(1, Relaxed);
            let turn = count(body, b"\"role\":\"tool\"");
            if collect == "bare" && turn == 0 {
                let started = counters.started_agents.fetch_add(1, Relaxed) + 1;
                let _ = counters.launch_began.compare_exchange(0, now_ms(), Relaxed, Relaxed);
                if started == agents as u64 {
                    counters.launch_ended.store(now_ms(), Relaxed);
                }
            }
            send_paced(&mut stream, &replies.0[turn.min(TURNS - 1)], pace == "slow").await?;
        }
        inbox.drain(..end);
    }
}

async fn send_paced(
    stream: &mut tokio::net::TcpStream,
    pieces: &[Vec<u8>],
    slow: bool,
) -> std::io::Result<()> {
    let mut due = tokio::time::Instant::now() + FIRST_TOKEN;
    for piece in pieces {
        if slow {
            tokio::time::sleep_until(due).await;
            due += NEXT_TOKEN;
        }
        stream.write_all(piece).await?;
    }
    Ok(())
}

/// What the orchestrator says next.
fn lead_reply(body: &[u8], collect: &str, agents: usize, counters: &ServerCounters) -> Vec<Vec<u8>> {
    let results = count(body, b"\"role\":\"tool\"");
    if results == 0 {
        let calls = (0..agents)
            .map(|n| ("run_background_agent", serde_json::json!({"agent": "worker", "task": order(n)})));
        return calls_reply(calls);
    }
    let _ = counters.launch_ended.compare_exchange(0, now_ms(), Relaxed, Relaxed);
    let collected = results > agents;
    match collect {
        "wait" if !collected => {
            let ids = task_ids(body);
            let calls = ids
                .chunks(WAIT_AT_ONCE)
                .map(|ids| ("wait_background_agents", serde_json::json!({"task_ids": ids})));
            calls_reply(calls)
        }
        "view" if !collected => {
            let ids = task_ids(body);
            let calls = ids.iter().map(|id| ("view_background_agent", serde_json::json!({"task_id": id})));
            calls_reply(calls)
        }
        _ => text_reply("I have what there is so far."),
    }
}

/// The ids of the tasks that the tool results name, each once, in order.
fn task_ids(body: &[u8]) -> Vec<String> {
    let body: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let mut ids = Vec::new();
    for message in body["messages"].as_array().into_iter().flatten() {
        let content = message["content"].as_str().unwrap_or_default();
        if message["role"] == "tool"
            && let Some(at) = content.find("t-")
        {
            let id = content[at..].split(|c: char| !c.is_ascii_alphanumeric() && c != '-').next();
            ids.extend(id.map(str::to_owned));
        }
    }
    ids
}

fn count(text: &[u8], what: &[u8]) -> usize {
    memchr::memmem::find_iter(text, what).count()
}

/// Reads until something is there; `None` if the client went away.
async fn read_until(
    stream: &mut tokio::net::TcpStream,
    inbox: &mut Vec<u8>,
    there: impl Fn(&[u8]) -> Option<usize>,
) -> std::io::Result<Option<usize>> {
    loop {
        if let Some(at) = there(inbox) {
            return Ok(Some(at));
        }
        if stream.read_buf(inbox).await? == 0 {
            return Ok(None);
        }
    }
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    memchr::memmem::find(text, what)
}

/// The replies of a worker, by how many tools it has called, in pieces.
struct CannedReplies(Vec<Vec<Vec<u8>>>);

impl CannedReplies {
    fn new() -> CannedReplies {
        CannedReplies((0..TURNS).map(worker_reply).collect())
    }
}

/// Builds a streamed reply piece by piece.
struct ReplyWriter {
    id: usize,
    pieces: Vec<Vec<u8>>,
}

impl ReplyWriter {
    fn new(id: usize) -> ReplyWriter {
        let headers =
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        let mut reply = ReplyWriter { id, pieces: vec![headers.as_bytes().to_vec()] };
        reply.delta(r#"{"role":"assistant","content":""}"#, "null");
        reply
    }

    fn event(&mut self, data: &str) {
        let event = format!("data: {data}\n\n");
        self.pieces.push(format!("{:x}\r\n{event}\r\n", event.len()).into_bytes());
    }

    fn frame(&self, choices: &str) -> String {
        format!(
            "{{\"id\":\"chatcmpl-{}\",\"object\":\"chat.completion.chunk\",\"created\":1790000000,\"model\":\"bench-1\",\
             \"system_fingerprint\":\"fp_0123456789\",\"choices\":[{choices}]",
            self.id
        )
    }

    fn delta(&mut self, delta: &str, finish: &str) {
        let choice = format!(r#"{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":{finish}}}"#);
        let frame = self.frame(&choice) + "}";
        self.event(&frame);
    }

    fn call(&mut self, index: usize, rest: &str) {
        self.delta(&format!(r#"{{"tool_calls":[{{"index":{index},{rest}}}]}}"#), "null");
    }

    fn end(mut self, reason: &str, tokens: usize) -> Vec<Vec<u8>> {
        self.delta("{}", &format!("\"{reason}\""));
        let mut usage = self.frame("");
        let _ = write!(
            usage,
            r#","usage":{{"prompt_tokens":100,"completion_tokens":{tokens},"total_tokens":{}}}}}"#,
            100 + tokens
        );
        self.event(&usage);
        self.event("[DONE]");
        self.pieces.push(b"0\r\n\r\n".to_vec());
        self.pieces
    }
}

fn worker_reply(turn: usize) -> Vec<Vec<u8>> {
    let mut reply = ReplyWriter::new(turn);
    let is_last = turn + 1 == TURNS;
    // A call is its beginning and seven pieces of arguments.
    let words = if is_last { TOKENS } else { TOKENS - 8 };
    for n in 0..words {
        reply.delta(&format!(r#"{{"content":" word{n}"}}"#), "null");
    }
    if is_last {
        return reply.end("stop", TOKENS);
    }
    reply.call(
        0,
        &format!(r#""id":"call_{turn}","type":"function","function":{{"name":"think","arguments":""}}"#),
    );
    for piece in [r#"{\""#, "thought", r#"\":"#, r#" \""#, &format!("place {turn}"), r#"\""#, "}"] {
        reply.call(0, &format!(r#""function":{{"arguments":"{piece}"}}"#));
    }
    reply.end("tool_calls", TOKENS)
}

fn text_reply(text: &str) -> Vec<Vec<u8>> {
    let mut reply = ReplyWriter::new(0);
    reply.delta(&format!(r#"{{"content":"{text}"}}"#), "null");
    reply.end("stop", 8)
}

fn calls_reply(calls: impl Iterator<Item = (&'static str, serde_json::Value)>) -> Vec<Vec<u8>> {
    let mut reply = ReplyWriter::new(0);
    let mut many = 0;
    for (n, (tool, arguments)) in calls.enumerate() {
        let arguments = serde_json::Value::String(arguments.to_string());
        reply.call(
            n,
            &format!(r#""id":"{tool}_{n}","type":"function","function":{{"name":"{tool}","arguments":{arguments}}}"#),
        );
        many += 1;
    }
    reply.end("tool_calls", many * 20)
}
