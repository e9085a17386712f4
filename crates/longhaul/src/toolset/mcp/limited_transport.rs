//! A transport that limits how many requests a server may have open: it must read the answers before it sends
//! more.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::RoleClient;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, JsonRpcMessage, NumberOrString, RequestId, ServerJsonRpcMessage,
    ServerNotification,
};
use rmcp::transport::Transport;

use super::connection_fault::ConnectionFault;
use super::limits;
use crate::toolset::text::group_digits;

/// Wraps a transport and limits the server's open requests.
pub(super) struct LimitedTransport<T> {
    inner: T,
    open: Arc<OpenRequests>,
    fault: ConnectionFault,
}

#[derive(Default)]
struct OpenRequests(Mutex<OpenRequestsState>);

#[derive(Default)]
struct OpenRequestsState {
    /// The server's requests that were not answered yet.
    asked: HashSet<RequestId>,
    /// Answers that are being sent.
    sending: usize,
    /// Whether the server has answered anything. Requests that it sends before that are not answered.
    ready: bool,
    /// Whether its protocol is older than 2026, so that it may cancel its requests.
    old: bool,
}

impl OpenRequests {
    fn state(&self) -> MutexGuard<'_, OpenRequestsState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts an answer that is being sent, until it was sent or given up.
struct SendingGuard(Arc<OpenRequests>);

impl Drop for SendingGuard {
    fn drop(&mut self) {
        self.0.state().sending -= 1;
    }
}

impl<T> LimitedTransport<T> {
    pub(super) fn new(inner: T, fault: ConnectionFault) -> Self {
        LimitedTransport { inner, open: Arc::default(), fault }
    }

    /// Records what the server sends. Returns false, and raises a fault, if it exceeds a limit.
    fn admit(&self, message: &ServerJsonRpcMessage) -> bool {
        let mut state = self.open.state();
        match message {
            JsonRpcMessage::Response(_) => state.ready = true,
            JsonRpcMessage::Request(request) => {
                if matches!(&request.id, NumberOrString::String(id) if id.len() > limits::ID) {
                    self.fault
                        .raise(format!("it sent a request with an id of more than {} bytes", limits::ID));
                    return false;
                }
                // Do not just stop reading: that would also delay the answers to our own requests.
                if state.asked.len() + state.sending >= limits::REQUESTS {
                    self.fault.raise(format!(
                        "it does not read the answers to what it asks: {} requests are waiting, which is the limit",
                        group_digits(limits::REQUESTS as u64)
                    ));
                    return false;
                }
                if state.ready && !state.asked.insert(request.id.clone()) {
                    self.fault.raise("it sent two requests with the same id at once");
                    return false;
                }
            }
            JsonRpcMessage::Notification(sent) if state.old => {
                if let ServerNotification::CancelledNotification(cancelled) = &sent.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    state.asked.remove(id);
                }
            }
            _ => {}
        }
        true
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for LimitedTransport<T> {
    type Error = T::Error;

    fn name() -> Cow<'static, str> {
        T::name()
    }

    fn send(
        &mut self,
        item: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), T::Error>> + Send + 'static {
        let answers = match &item {
            JsonRpcMessage::Response(response) => Some(&response.id),
            JsonRpcMessage::Error(error) => error.id.as_ref(),
            JsonRpcMessage::Request(request) => {
                if matches!(request.request, ClientRequest::InitializeRequest(_)) {
                    self.open.state().old = true;
                }
                None
            }
            JsonRpcMessage::Notification(_) => None,
        };
        let sending = answers.map(|id| {
            let mut state = self.open.state();
            state.asked.remove(id);
            state.sending += 1;
            SendingGuard(self.open.clone())
        });
        let send = self.inner.send(item);
        async move {
            let _sending = sending;
            send.await
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        let message = self.inner.receive().await?;
        self.admit(&message).then_some(message)
    }

    async fn close(&mut self) -> Result<(), T::Error> {
        self.inner.close().await
    }
}
