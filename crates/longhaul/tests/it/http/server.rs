//! A provider on loopback that does what the test tells it to: streams piece by piece, cuts, stalls, refuses. It notes
//! when it was asked what, how many connections there were, and when they were closed on it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// One request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) at: Instant,
    /// How many came before it.
    pub(crate) number: usize,
    /// The request line and the headers.
    pub(crate) headers: String,
    pub(crate) body: serde_json::Value,
}

impl Asked {
    /// The last thing that the user said, which tells the tasks of a test apart.
    pub(crate) fn order(&self) -> String {
        let messages = self.body["messages"].as_array().cloned().unwrap_or_default();
        let first = messages.iter().find(|message| message["role"] == "user");
        first.map(|message| message["content"].to_string()).unwrap_or_default()
    }
}

/// What is done with a request.
pub(crate) enum Act {
    /// An answer of this status, with these headers and this body.
    Refuse(u16, Vec<(&'static str, String)>, String),
    /// A streamed answer, in these pieces.
    Stream(Vec<String>),
    /// The same, with a pause before each piece.
    Slowly(Vec<String>, Duration),
    /// A streamed answer that begins after a pause.
    Later(Duration, Vec<String>),
    /// The same, but first it waits until a crowd is there.
    Together(Arc<Crowd>, Duration, Vec<String>),
    /// Like `Later`, unless this many are being answered so already: then 429.
    UpTo(usize, Duration, Vec<String>),
    /// These pieces, and then nothing more, until the client goes away.
    Stall(Vec<String>),
    /// These pieces, and then the connection is closed.
    Cut(Vec<String>),
    /// Not even a status, until the client goes away.
    Silence,
    /// The connection is closed without a word.
    Hangup,
}

/// Requests that are answered once this many are there at the same time.
pub(crate) struct Crowd {
    size: usize,
    there: AtomicUsize,
    complete: tokio::sync::watch::Sender<bool>,
}

impl Crowd {
    pub(crate) fn of(size: usize) -> Arc<Crowd> {
        Arc::new(Crowd { size, there: AtomicUsize::new(0), complete: tokio::sync::watch::Sender::new(false) })
    }

    async fn join(&self) {
        let mut complete = self.complete.subscribe();
        if self.there.fetch_add(1, Ordering::SeqCst) + 1 >= self.size {
            self.complete.send_replace(true);
        }
        let _ = complete.wait_for(|complete| *complete).await;
    }
}

type Script = dyn Fn(&Asked) -> Act + Send + Sync;

#[derive(Default)]
struct Notes {
    asked: Mutex<Vec<Asked>>,
    connections: AtomicUsize,
    open: AtomicUsize,
    answering: AtomicUsize,
    most_at_once: AtomicUsize,
    /// Answers of `Act::UpTo` that are under way.
    taken: AtomicUsize,
    /// For each request that `Act::UpTo` answered: how many were under way with it.
    loads: Mutex<Vec<usize>>,
    gone: Mutex<Vec<Instant>>,
    news: Notify,
}

pub(crate) struct Server {
    pub(crate) at: SocketAddr,
    notes: Arc<Notes>,
    _tasks: JoinSet<()>,
}

impl Server {
    pub(crate) async fn start(script: impl Fn(&Asked) -> Act + Send + Sync + 'static) -> Server {
        Server::start_at("127.0.0.1:0".parse().unwrap(), script).await
    }

    /// At an address that may have been used a moment ago.
    pub(crate) async fn start_at(
        at: SocketAddr,
        script: impl Fn(&Asked) -> Act + Send + Sync + 'static,
    ) -> Server {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(at).unwrap();
        let listener: TcpListener = socket.listen(1024).unwrap();
        let at = listener.local_addr().unwrap();
        let (notes, script): (Arc<Notes>, Arc<Script>) = (Arc::default(), Arc::new(script));
        let mut tasks = JoinSet::new();
        let kept = notes.clone();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let Ok((stream, _)) = listener.accept().await else { continue };
                kept.connections.fetch_add(1, Ordering::SeqCst);
                let (notes, script) = (kept.clone(), script.clone());
                connections.spawn(async move {
                    notes.open.fetch_add(1, Ordering::SeqCst);
                    let _ = Connection { stream, rest: Vec::new(), notes: &notes }.serve(&*script).await;
                    notes.open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Server { at, notes, _tasks: tasks }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/v1", self.at)
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.notes.asked.lock().unwrap().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.notes.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn most_at_once(&self) -> usize {
        self.notes.most_at_once.load(Ordering::SeqCst)
    }

    /// For each request that `Act::UpTo` answered, in order: how many were under way with it. Above its limit, it was
    /// refused.
    pub(crate) fn loads(&self) -> Vec<usize> {
        self.notes.loads.lock().unwrap().clone()
    }

    /// When clients went away in the middle of an answer.
    pub(crate) fn gone(&self) -> Vec<Instant> {
        self.notes.gone.lock().unwrap().clone()
    }

    /// Waits until the notes look like this.
    pub(crate) async fn until(&self, is: impl Fn(&Server) -> bool) {
        let waiting = async {
            loop {
                let news = self.notes.news.notified();
                if is(self) {
                    return;
                }
                news.await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), waiting)
            .await
            .unwrap_or_else(|_| panic!("it never came to that"));
    }
}

struct Connection<'a> {
    stream: TcpStream,
    rest: Vec<u8>,
    notes: &'a Notes,
}

impl Connection<'_> {
    async fn serve(&mut self, script: &Script) -> std::io::Result<()> {
        while let Some((headers, body)) = self.read().await? {
            let asked = {
                let mut all = self.notes.asked.lock().unwrap();
                let body = serde_json::from_slice(&body).unwrap_or_default();
                let number = all.len();
                all.push(Asked { at: Instant::now(), number, headers, body });
                all[all.len() - 1].clone()
            };
            self.notes.news.notify_waiters();
            let now = self.notes.answering.fetch_add(1, Ordering::SeqCst) + 1;
            self.notes.most_at_once.fetch_max(now, Ordering::SeqCst);
            let go_on = self.answer(script(&asked)).await;
            self.notes.answering.fetch_sub(1, Ordering::SeqCst);
            if !go_on? {
                return Ok(());
            }
        }
        Ok(())
    }

    async fn read(&mut self) -> std::io::Result<Option<(String, Vec<u8>)>> {
        loop {
            if let Some(end) = self.rest.windows(4).position(|four| four == b"\r\n\r\n") {
                let headers = String::from_utf8_lossy(&self.rest[..end]).into_owned();
                let length = headers
                    .lines()
                    .filter_map(|line| line.split_once(':'))
                    .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
                    .map_or(0, |(_, value)| value.trim().parse().unwrap());
                if self.rest.len() >= end + 4 + length {
                    let body = self.rest[end + 4..end + 4 + length].to_vec();
                    self.rest.drain(..end + 4 + length);
                    return Ok(Some((headers, body)));
                }
            }
            let mut buffer = [0; 16 * 1024];
            match self.stream.read(&mut buffer).await? {
                0 => return Ok(None),
                n => self.rest.extend_from_slice(&buffer[..n]),
            }
        }
    }

    async fn answer(&mut self, act: Act) -> std::io::Result<bool> {
        match act {
            Act::Refuse(status, headers, body) => {
                let mut reply = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n", body.len());
                for (name, value) in headers {
                    reply.push_str(&format!("{name}: {value}\r\n"));
                }
                self.stream.write_all(format!("{reply}\r\n{body}").as_bytes()).await?;
            }
            Act::Stream(pieces) => {
                let whole: String = pieces.iter().map(|piece| chunk(piece)).collect();
                self.stream.write_all(format!("{HEADERS}{whole}0\r\n\r\n").as_bytes()).await?;
            }
            Act::Slowly(pieces, pause) => {
                self.stream.write_all(HEADERS.as_bytes()).await?;
                for piece in pieces {
                    if tokio::time::timeout(pause, self.gone()).await.is_ok() {
                        return Ok(false);
                    }
                    self.stream.write_all(chunk(&piece).as_bytes()).await?;
                }
                self.stream.write_all(b"0\r\n\r\n").await?;
            }
            Act::Later(pause, pieces) => {
                if tokio::time::timeout(pause, self.gone()).await.is_ok() {
                    return Ok(false);
                }
                let whole: String = pieces.iter().map(|piece| chunk(piece)).collect();
                self.stream.write_all(format!("{HEADERS}{whole}0\r\n\r\n").as_bytes()).await?;
            }
            Act::Together(crowd, pause, pieces) => {
                crowd.join().await;
                return Box::pin(self.answer(Act::Later(pause, pieces))).await;
            }
            Act::UpTo(limit, pause, pieces) => {
                let load = self.notes.taken.fetch_add(1, Ordering::SeqCst) + 1;
                self.notes.loads.lock().unwrap().push(load);
                let act = match load <= limit {
                    true => Act::Later(pause, pieces),
                    false => Act::Refuse(429, Vec::new(), r#"{"error":{"message":"too many"}}"#.into()),
                };
                if load > limit {
                    self.notes.taken.fetch_sub(1, Ordering::SeqCst);
                }
                let answered = Box::pin(self.answer(act)).await;
                if load <= limit {
                    self.notes.taken.fetch_sub(1, Ordering::SeqCst);
                }
                return answered;
            }
            Act::Stall(pieces) => {
                let whole: String = pieces.iter().map(|piece| chunk(piece)).collect();
                self.stream.write_all(format!("{HEADERS}{whole}").as_bytes()).await?;
                self.gone().await;
                return Ok(false);
            }
            Act::Cut(pieces) => {
                let whole: String = pieces.iter().map(|piece| chunk(piece)).collect();
                self.stream.write_all(format!("{HEADERS}{whole}").as_bytes()).await?;
                return Ok(false);
            }
            Act::Silence => {
                self.gone().await;
                return Ok(false);
            }
            Act::Hangup => return Ok(false),
        }
        Ok(true)
    }

    /// Until the client has gone away.
    async fn gone(&mut self) {
        let mut buffer = [0; 1024];
        while let Ok(1..) = self.stream.read(&mut buffer).await {}
        self.notes.gone.lock().unwrap().push(Instant::now());
        self.notes.news.notify_waiters();
    }
}

const HEADERS: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

fn chunk(piece: &str) -> String {
    format!("{:x}\r\n{piece}\r\n", piece.len())
}

/// The pieces of a chat completion that says this.
pub(crate) fn says(text: &str) -> Vec<String> {
    let mut pieces: Vec<String> = text
        .split_inclusive(' ')
        .map(|word| event(&serde_json::json!({"choices": [{"index": 0, "delta": {"content": word}}]})))
        .collect();
    pieces.push(event(&serde_json::json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})));
    pieces.push(usage(100, 10));
    pieces
}

/// The pieces of a chat completion that calls a tool.
pub(crate) fn calls(tool: &str, arguments: &serde_json::Value) -> Vec<String> {
    let arguments = arguments.to_string();
    let call = serde_json::json!([{"index": 0, "id": "call_1", "type": "function",
        "function": {"name": tool, "arguments": arguments}}]);
    vec![
        event(&serde_json::json!({"choices": [{"index": 0, "delta": {"tool_calls": call}}]})),
        event(&serde_json::json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})),
        usage(100, 10),
    ]
}

fn usage(input: u32, output: u32) -> String {
    let usage = serde_json::json!({"prompt_tokens": input, "completion_tokens": output,
        "prompt_tokens_details": {"cached_tokens": 40}});
    event(&serde_json::json!({"model": "gpt-5", "choices": [], "usage": usage})) + "data: [DONE]\n\n"
}

/// One event of a stream.
pub(crate) fn event(data: &serde_json::Value) -> String {
    format!("data: {data}\n\n")
}
