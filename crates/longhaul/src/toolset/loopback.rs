//! An HTTP server on loopback for tests of network tools. The test decides each byte of its responses.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// A request that the server received.
#[derive(Debug, Clone)]
pub(crate) struct RecordedRequest {
    /// The method and the target.
    pub(crate) line: String,
    /// The headers, with names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl RecordedRequest {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

/// What the server does with a request.
pub(crate) enum LoopbackAction {
    /// Sends these bytes and closes the connection.
    Bytes(Vec<u8>),
    /// Sends these bytes, then keeps the connection open until the client disconnects.
    Stall(Vec<u8>),
    /// Sends the first bytes, then repeats the second until the client disconnects.
    Endless(Vec<u8>, Vec<u8>),
}

/// Formats a response with its length; the connection is closed after it.
pub(crate) fn http_response(status: u16, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> LoopbackAction {
    let mut bytes =
        format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n", body.as_ref().len());
    for (name, value) in headers {
        bytes += &format!("{name}: {value}\r\n");
    }
    LoopbackAction::Bytes([(bytes + "\r\n").as_bytes(), body.as_ref()].concat())
}

type LoopbackHandler = dyn Fn(&RecordedRequest) -> LoopbackAction + Send + Sync;

#[derive(Default)]
struct LoopbackLog {
    asked: Mutex<Vec<RecordedRequest>>,
    gone: Mutex<usize>,
    changed: Notify,
}

pub(crate) struct LoopbackServer {
    pub(crate) at: SocketAddr,
    notes: Arc<LoopbackLog>,
    _tasks: JoinSet<()>,
}

impl LoopbackServer {
    pub(crate) async fn start(
        script: impl Fn(&RecordedRequest) -> LoopbackAction + Send + Sync + 'static,
    ) -> LoopbackServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let (notes, script): (Arc<LoopbackLog>, Arc<LoopbackHandler>) = (Arc::default(), Arc::new(script));
        let mut tasks = JoinSet::new();
        let kept = notes.clone();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let Ok((stream, _)) = listener.accept().await else { continue };
                let (notes, script) = (kept.clone(), script.clone());
                connections.spawn(async move {
                    let _ = serve(stream, &notes, &*script).await;
                });
            }
        });
        LoopbackServer { at, notes, _tasks: tasks }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.at)
    }

    pub(crate) fn requests(&self) -> Vec<RecordedRequest> {
        self.notes.asked.lock().unwrap().clone()
    }

    /// Waits until this many requests have arrived.
    pub(crate) async fn wait_for_requests(&self, times: usize) {
        self.until(|notes| notes.asked.lock().unwrap().len() >= times).await;
    }

    /// Waits until this many clients have disconnected in the middle of a response.
    pub(crate) async fn wait_for_disconnects(&self, times: usize) {
        self.until(|notes| *notes.gone.lock().unwrap() >= times).await;
    }

    async fn until(&self, is: impl Fn(&LoopbackLog) -> bool) {
        let waiting = async {
            loop {
                let changed = self.notes.changed.notified();
                if is(&self.notes) {
                    return;
                }
                changed.await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(30), waiting)
            .await
            .expect("it never came to that");
    }
}

async fn serve(mut stream: TcpStream, notes: &LoopbackLog, script: &LoopbackHandler) -> std::io::Result<()> {
    let Some(asked) = read(&mut stream).await? else { return Ok(()) };
    notes.asked.lock().unwrap().push(asked.clone());
    notes.changed.notify_waiters();
    let (first, again) = match script(&asked) {
        LoopbackAction::Bytes(bytes) => {
            stream.write_all(&bytes).await?;
            return stream.shutdown().await;
        }
        LoopbackAction::Stall(first) => (first, Vec::new()),
        LoopbackAction::Endless(first, again) => (first, again),
    };
    let mut buffer = [0; 1024];
    let _ = stream.write_all(&first).await;
    let (mut reading, mut writing) = stream.split();
    tokio::select! {
        () = async { while let Ok(1..) = reading.read(&mut buffer).await {} } => {}
        () = async {
            while !again.is_empty() && writing.write_all(&again).await.is_ok() {}
            if again.is_empty() {
                std::future::pending::<()>().await;
            }
        } => {}
    }
    *notes.gone.lock().unwrap() += 1;
    notes.changed.notify_waiters();
    Ok(())
}

async fn read(stream: &mut TcpStream) -> std::io::Result<Option<RecordedRequest>> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let header_text = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let mut lines = header_text.lines();
            let line = lines.next().unwrap_or_default().trim_end_matches(" HTTP/1.1").to_owned();
            let headers: Vec<(String, String)> = lines
                .filter_map(|line| line.split_once(':'))
                .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
                .collect();
            let length = headers.iter().find(|(name, _)| name == "content-length");
            let length: usize = length.map_or(0, |(_, value)| value.parse().unwrap());
            if bytes.len() >= end + 4 + length {
                let body = String::from_utf8_lossy(&bytes[end + 4..end + 4 + length]).into_owned();
                return Ok(Some(RecordedRequest { line, headers, body }));
            }
        }
        let mut buffer = [0; 16 * 1024];
        match stream.read(&mut buffer).await? {
            0 => return Ok(None),
            n => bytes.extend_from_slice(&buffer[..n]),
        }
    }
}
