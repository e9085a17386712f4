//! The stdio transport: one message per line, of limited length. No message is dropped silently.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;

use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use super::connection_fault::ConnectionFault;
use super::json_scan::JsonScan;
use super::wire::{self, Incoming};
use super::{limits, wire::too_long};

/// The transport over a pair of pipes. It stores a partly read line, because a read may be cancelled half
/// way.
pub(super) struct StdioTransport<R, W> {
    read: BufReader<R>,
    line: Vec<u8>,
    /// The length of the current line so far.
    length: usize,
    /// The current line, if it is too long: only the scan of it is kept.
    oversized: Option<OversizedLine>,
    write: Arc<Mutex<Option<W>>>,
    fault: ConnectionFault,
}

struct OversizedLine {
    scan: JsonScan,
    until: Instant,
    /// Whether the waiting request has already received an error.
    answered: bool,
}

impl<R: AsyncRead + Unpin, W> StdioTransport<R, W> {
    pub(super) fn new(read: R, write: W, fault: ConnectionFault) -> Self {
        let (read, write) = (BufReader::with_capacity(64 << 10, read), Arc::new(Mutex::new(Some(write))));
        StdioTransport { read, line: Vec::new(), length: 0, oversized: None, write, fault }
    }

    /// Returns the next message, or `None` at the end.
    async fn next(&mut self) -> Option<Incoming> {
        loop {
            let filled = match &self.oversized {
                None => self.read.fill_buf().await,
                Some(oversized) => match timeout_at(oversized.until, self.read.fill_buf()).await {
                    Ok(filled) => filled,
                    Err(_) => return Some(self.endless()),
                },
            };
            let part = match filled {
                Ok(part) if !part.is_empty() => part,
                Ok(_) => return None,
                Err(error) => {
                    tracing::debug!(%error, "cannot read the server's stdout");
                    return None;
                }
            };
            let newline = memchr::memchr(b'\n', part);
            let part = &part[..newline.map_or(part.len(), |at| at + 1)];
            let taken = part.len();
            self.length += taken;
            match &mut self.oversized {
                Some(oversized) => oversized.scan.feed(part),
                None if self.length <= limits::MESSAGE => self.line.extend_from_slice(part),
                None => {
                    let mut scan = JsonScan::from_bytes(&std::mem::take(&mut self.line));
                    scan.feed(part);
                    self.oversized = Some(OversizedLine {
                        scan,
                        until: Instant::now() + limits::LINE_TIME,
                        answered: false,
                    });
                }
            }
            self.read.consume(taken);
            if newline.is_some() {
                return Some(self.whole());
            }
            if let Some(oversized) = &mut self.oversized {
                if self.length > limits::LINE {
                    return Some(self.endless());
                }
                // The request is known, so fail it now instead of waiting for the rest of the line.
                if !oversized.answered
                    && oversized.scan.is_message()
                    && oversized.scan.is_answer()
                    && oversized.scan.id().is_some()
                {
                    oversized.answered = true;
                    return Some(wire::substitute(&oversized.scan, too_long()));
                }
            }
        }
    }

    /// Handles a complete line.
    fn whole(&mut self) -> Incoming {
        self.length = 0;
        let mut line = std::mem::take(&mut self.line);
        match self.oversized.take() {
            Some(oversized) if oversized.answered => Incoming::Nothing,
            Some(oversized) => wire::substitute(&oversized.scan, too_long()),
            None => {
                let incoming = wire::parse_message(&line);
                // Do not keep a large buffer for ever.
                if line.capacity() <= 1 << 20 {
                    line.clear();
                    self.line = line;
                }
                incoming
            }
        }
    }

    fn endless(&self) -> Incoming {
        Incoming::Unattributed(format!(
            "its line does not end (a message may have {})",
            limits::MESSAGE_WORDS
        ))
    }
}

impl<R, W> Transport<RoleClient> for StdioTransport<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn name() -> Cow<'static, str> {
        "pipe".into()
    }

    fn send(
        &mut self,
        item: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        let line = serde_json::to_vec(&item);
        let write = self.write.clone();
        async move {
            let mut line = line?;
            line.push(b'\n');
            let mut write = write.lock().await;
            let pipe = write.as_mut().ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))?;
            pipe.write_all(&line).await?;
            pipe.flush().await
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            match self.next().await? {
                Incoming::Message(message) => return Some(*message),
                Incoming::Nothing => {}
                Incoming::Unattributed(why) => {
                    self.fault.raise(format!("it sent a message that cannot be read: {why}"));
                    return None;
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), io::Error> {
        self.write.lock().await.take();
        Ok(())
    }
}
