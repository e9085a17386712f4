//! The provider of the fan-out: chat completions on loopback, streamed without delay, in a process of its own so that
//! only the client is measured.
//!
//! `/token/…` answers with a write for every token, as providers do; `/whole/…` with one write for a whole reply, which
//! leaves the client next to nothing to do but its own work.

use std::error::Error;
use std::fmt::Write as _;
use std::io::{BufRead as _, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::CALLS;

/// Tokens of a reply, those of a call's arguments included.
const TOKENS: usize = 50;

/// What the server saw since it was last asked.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct ServerCounts {
    pub(crate) connections: u64,
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
}

#[derive(Default)]
struct ServerCounters {
    connections: AtomicU64,
    requests: AtomicU64,
    bytes: AtomicU64,
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

    pub(crate) fn url(&self, manner: &str) -> String {
        format!("http://{}/{manner}/v1", self.at)
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
        let (notes, replies) = (Arc::new(ServerCounters::default()), Arc::new(CannedReplies::new()));
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let (notes, replies) = (notes.clone(), replies.clone());
            tokio::spawn(async move { serve_connection(stream, &notes, &replies).await });
        }
    })
}

async fn serve_connection(
    mut stream: tokio::net::TcpStream,
    notes: &ServerCounters,
    replies: &CannedReplies,
) -> std::io::Result<()> {
    let mut inbox: Vec<u8> = Vec::new();
    let mut first = true;
    loop {
        let Some(head) = read_until(&mut stream, &mut inbox, |inbox| find(inbox, b"\r\n\r\n")).await? else {
            return Ok(());
        };
        let text = String::from_utf8_lossy(&inbox[..head]).to_ascii_lowercase();
        if text.starts_with("get /seen") {
            let take = |n: &AtomicU64| n.swap(0, Relaxed);
            let (connections, requests) = (take(&notes.connections), take(&notes.requests));
            let seen = ServerCounts { connections, requests, bytes: take(&notes.bytes) };
            return stream.write_all(&serde_json::to_vec(&seen)?).await;
        }
        let length =
            text.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse::<usize>().ok());
        let end = head + 4 + length.unwrap_or(0);
        if read_until(&mut stream, &mut inbox, |inbox| (inbox.len() >= end).then_some(end)).await?.is_none() {
            return Ok(());
        }
        notes.connections.fetch_add(u64::from(std::mem::take(&mut first)), Relaxed);
        notes.requests.fetch_add(1, Relaxed);
        notes.bytes.fetch_add((end - head - 4) as u64, Relaxed);
        let body = &inbox[head + 4..end];
        let turn = body.windows(13).filter(|w| w == b"\"role\":\"tool\"").count();
        let pieces = &replies.0[turn.min(CALLS)];
        if text.starts_with("post /token/") {
            for piece in pieces {
                stream.write_all(piece).await?;
            }
        } else {
            stream.write_all(&pieces.concat()).await?;
        }
        inbox.drain(..end);
    }
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
    text.windows(what.len()).position(|w| w == what)
}

/// What is answered after so many results of tools, in pieces.
struct CannedReplies(Vec<Vec<Vec<u8>>>);

impl CannedReplies {
    fn new() -> CannedReplies {
        CannedReplies((0..=CALLS).map(reply).collect())
    }
}

fn reply(turn: usize) -> Vec<Vec<u8>> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let mut pieces = vec![head.as_bytes().to_vec()];
    let mut say = |data: &str| {
        let event = format!("data: {data}\n\n");
        pieces.push(format!("{:x}\r\n{event}\r\n", event.len()).into_bytes());
    };
    let frame = |delta: &str, finish: &str| {
        format!(
            "{{\"id\":\"chatcmpl-{turn}\",\"object\":\"chat.completion.chunk\",\"created\":1790000000,\
             \"model\":\"bench-1\",\"system_fingerprint\":\"fp_0123456789\",\"choices\":[{{\"index\":0,\
             \"delta\":{delta},\"logprobs\":null,\"finish_reason\":{finish}}}]}}"
        )
    };
    say(&frame(r#"{"role":"assistant","content":""}"#, "null"));
    let is_last = turn == CALLS;
    // A call is its beginning and seven pieces of arguments.
    let words = if is_last { TOKENS } else { TOKENS - 8 };
    for n in 0..words {
        say(&frame(&format!(r#"{{"content":" word{n}"}}"#), "null"));
    }
    if !is_last {
        let call = |rest: &str| frame(&format!(r#"{{"tool_calls":[{{"index":0,{rest}}}]}}"#), "null");
        say(&call(&format!(
            r#""id":"call_{turn}","type":"function","function":{{"name":"look","arguments":""}}"#
        )));
        for piece in [r#"{\""#, "at", r#"\":"#, r#" \""#, &format!("place {turn}"), r#"\""#, "}"] {
            say(&call(&format!(r#""function":{{"arguments":"{piece}"}}"#)));
        }
    }
    say(&frame("{}", if is_last { "\"stop\"" } else { "\"tool_calls\"" }));
    let mut usage =
        frame("{}", "null").replace(r#"[{"index":0,"delta":{},"logprobs":null,"finish_reason":null}]"#, "[]");
    usage.pop();
    let _ = write!(
        usage,
        r#","usage":{{"prompt_tokens":{},"completion_tokens":{TOKENS},"total_tokens":{}}}}}"#,
        100 + 60 * turn,
        150 + 60 * turn
    );
    say(&usage);
    say("[DONE]");
    pieces.push(b"0\r\n\r\n".to_vec());
    pieces
}
