//! A connection whose server cannot ask without end: what it asks is answered, and it has to read the answers.

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

/// See the module.
pub(super) struct LimitedTransport<T> {
    inner: T,
    open: Arc<OpenRequests>,
    fault: ConnectionFault,
}

#[derive(Default)]
struct OpenRequests(Mutex<OpenRequestsState>);

#[derive(Default)]
struct OpenRequestsState {
    /// What the server waits for an answer to.
    asked: HashSet<RequestId>,
    /// Answers on their way.
    sending: usize,
    /// Whether it has answered anything: what it asks before that is not answered.
    ready: bool,
    /// Whether it is older than 2026, and may take back what it has asked.
    old: bool,
}

impl OpenRequests {
    fn state(&self) -> MutexGuard<'_, OpenRequestsState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An answer on its way, until it has been taken or was given up.
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

    /// Takes note of what the server sends. Answers whether it may.
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
                // To read no more until it does would hold up the answers to our own requests, too.
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
            JsonRpcMessage::Notification(told) if state.old => {
                if let ServerNotification::CancelledNotification(cancelled) = &told.notification
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
