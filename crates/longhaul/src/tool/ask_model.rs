//! Lets a tool ask the caller's model. The task is charged for it, within its budgets.

use futures::StreamExt as _;
use tokio::sync::oneshot;

use super::{CallContext, CallSignal};
use crate::entry::SamplingUsage;
use crate::message::{Message, Reply};
use crate::model::wire::WireCache;
use crate::model::{ModelError, ModelRequest, ReplyChunk};

/// The approximate number of bytes in a token.
const BYTES_A_TOKEN: u64 = 4;

impl CallContext {
    /// Asks the model of the calling agent, without tools. When this returns the reply, its usage is on disk.
    ///
    /// # Errors
    /// Fails if a budget of the task, or of a tree it is in, is used up or too small for the request, if the
    /// model fails, or if the task is being stopped. The text says which.
    pub async fn ask_model(&self, system: &str, messages: &[Message]) -> Result<Reply, AskModelError> {
        let asking = async {
            let _turn = self.runner.model.lock().await;
            self.check_budget(system, messages).await?;
            let reply = self.stream_whole(system, messages).await?;
            self.record_usage(&reply).await?;
            Ok(reply)
        };
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(AskModelError::Stopped),
            reply = asking => reply,
        }
    }

    async fn check_budget(&self, system: &str, messages: &[Message]) -> Result<(), AskModelError> {
        let said = |message: &Message| match message {
            Message::User(text) => text.len(),
            Message::Assistant(reply) => reply.text().len(),
            Message::Tool(result) => result.output.len(),
        };
        let bytes = system.len() + messages.iter().map(said).sum::<usize>();
        let (reply, may) = oneshot::channel();
        self.runner.send(CallSignal::WantsModel { tokens: bytes as u64 / BYTES_A_TOKEN, reply });
        may.await.map_err(|_| AskModelError::Stopped)?.map_err(AskModelError::Budget)
    }

    async fn stream_whole(&self, system: &str, messages: &[Message]) -> Result<Reply, AskModelError> {
        let memo = WireCache::default();
        let mut stream = self.model.stream(ModelRequest {
            task: self.caller.task,
            root: self.caller.root,
            depth: self.caller.depth,
            agent: &self.caller.agent,
            system,
            messages,
            tools: &[],
            output: None,
            turn: 0,
            retry: 0,
            wire_cache: &memo,
            text_delay: None,
        });
        while let Some(chunk) = stream.next().await {
            if let ReplyChunk::Done(reply) = chunk? {
                return Ok(*reply);
            }
        }
        Err(AskModelError::EndedEarly)
    }

    async fn record_usage(&self, reply: &Reply) -> Result<(), AskModelError> {
        let model = if reply.model.is_empty() { self.model.name().to_owned() } else { reply.model.clone() };
        let sampled = SamplingUsage { call: self.call, model, usage: reply.usage, cost: reply.cost };
        let (noted, written) = oneshot::channel();
        self.runner.send(CallSignal::Sampled { sampled: Box::new(sampled), noted });
        written.await.map_err(|_| AskModelError::Stopped)
    }
}

/// Why a tool got no reply from the model.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AskModelError {
    /// A budget of the task, or of a tree it is in, is used up or too small for the request.
    #[error("{0}")]
    Budget(BudgetDenial),
    /// The model failed.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The reply has no end.
    #[error("the model's reply ended early")]
    EndedEarly,
    /// The model did not reply in time.
    #[error("the model took too long")]
    TimedOut,
    /// The task is being stopped.
    #[error("the task is being stopped")]
    Stopped,
}

/// The budget that does not allow a request, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BudgetDenial(pub(crate) String);
