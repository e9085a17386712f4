//! Builds replies concisely.

use crate::message::{Block, Call, Reply, StopReason, Usage};

/// Starts a [`Reply`]; parts are kept in the order in which they are added.
///
/// ```
/// # use longhaul::testing::reply;
/// let both = reply().text("Let me look.").call("shell", serde_json::json!({ "command": "ls" })).build();
/// assert_eq!(both.calls().count(), 1);
/// ```
pub fn reply() -> ReplyBuilder {
    ReplyBuilder { reply: Reply { cost: Some(0), ..Reply::default() } }
}

/// Builds a [`Reply`]; see [`reply`].
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct ReplyBuilder {
    reply: Reply,
}

impl ReplyBuilder {
    /// Adds text.
    pub fn text(self, text: impl Into<String>) -> Self {
        self.block(Block::Text(text.into()))
    }

    /// Adds reasoning.
    pub fn reasoning(self, text: impl Into<String>) -> Self {
        self.block(Block::Reasoning { text: text.into(), opaque: None })
    }

    /// Adds a tool call.
    pub fn call(self, tool: impl Into<String>, arguments: serde_json::Value) -> Self {
        self.raw_call(tool, arguments.to_string())
    }

    /// Adds a tool call with arguments that need not be JSON. Ids are `call_0`, `call_1` and so on.
    pub fn raw_call(mut self, tool: impl Into<String>, arguments: impl Into<String>) -> Self {
        let id = format!("call_{}", self.reply.calls().count());
        self.reply.stop = StopReason::Calls;
        self.block(Block::Call(Call { id, tool: tool.into(), arguments: arguments.into() }))
    }

    /// Sets why the model stopped. The default depends on whether there are calls.
    pub fn stop(mut self, reason: StopReason) -> Self {
        self.reply.stop = reason;
        self
    }

    /// Sets the used tokens.
    pub fn usage(mut self, input: u64, output: u64) -> Self {
        self.reply.usage = Usage { input, output, ..Usage::default() };
        self
    }

    /// Sets the cost in millionths of a dollar; the default is 0.
    pub fn cost(mut self, cost: impl Into<Option<u64>>) -> Self {
        self.reply.cost = cost.into();
        self
    }

    /// The reply.
    pub fn build(self) -> Reply {
        self.reply
    }

    fn block(mut self, block: Block) -> Self {
        self.reply.blocks.push(block);
        self
    }
}

impl From<ReplyBuilder> for Reply {
    fn from(builder: ReplyBuilder) -> Reply {
        builder.build()
    }
}
