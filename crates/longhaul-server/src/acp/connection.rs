//! JSON-RPC over lines: what is written, and the answers to our own requests.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

pub(super) const INVALID_REQUEST: i64 = -32600;
pub(super) const METHOD_NOT_FOUND: i64 = -32601;
pub(super) const INVALID_PARAMS: i64 = -32602;
pub(super) const INTERNAL: i64 = -32603;
pub(super) const PARSE: i64 = -32700;

/// An error that a request is answered with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RequestError {
    pub(super) code: i64,
    pub(super) message: String,
}

impl RequestError {
    pub(super) fn new(code: i64, message: impl Into<String>) -> RequestError {
        RequestError { code, message: message.into() }
    }
}

/// Writes to the client. Clones write to the same one.
#[derive(Clone)]
pub(super) struct AcpClient(Arc<ClientShared>);

struct ClientShared {
    lines: mpsc::Sender<String>,
    next: AtomicU64,
    /// Our own requests that have no answer yet.
    open: Mutex<HashMap<u64, oneshot::Sender<Value>>>,
}

impl AcpClient {
    /// A client that gets its lines from this channel. A full channel makes writers wait.
    pub(super) fn new(lines: mpsc::Sender<String>) -> AcpClient {
        AcpClient(Arc::new(ClientShared { lines, next: AtomicU64::new(1), open: Mutex::default() }))
    }

    async fn write(&self, message: Value) {
        // A client that has left reads nothing; what was said is in the journal.
        let _ = self.0.lines.send(message.to_string()).await;
    }

    pub(super) async fn answer(&self, id: &Value, result: Result<Value, RequestError>) {
        self.write(match result {
            Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
            Err(RequestError { code, message }) => {
                json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } })
            }
        })
        .await;
    }

    /// Sends news about a session.
    pub(super) async fn update(&self, session: &str, update: Value) {
        let params = json!({ "sessionId": session, "update": update });
        self.write(json!({ "jsonrpc": "2.0", "method": "session/update", "params": params })).await;
    }

    /// Asks the client. Returns its result; `None` if it answers with an error or has left.
    pub(super) async fn request(&self, method: &str, params: Value) -> Option<Value> {
        let id = self.0.next.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        self.open().insert(id, answer);
        self.write(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
        let result = answered.await.ok();
        self.open().remove(&id);
        result
    }

    /// Passes on an answer of the client. One with an error ends the wait too.
    pub(super) fn answered(&self, mut message: Value) {
        let Some(open) = message.get("id").and_then(Value::as_u64).and_then(|id| self.open().remove(&id))
        else {
            return;
        };
        if let Some(result) = message.get_mut("result") {
            let _ = open.send(result.take());
        }
    }

    fn open(&self) -> std::sync::MutexGuard<'_, HashMap<u64, oneshot::Sender<Value>>> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
