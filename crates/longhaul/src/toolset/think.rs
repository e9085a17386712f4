//! A tool that lets a model think aloud, and has no effect.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fn_tool::{ToolCallResult, fn_tool};
use super::{OpenFuture, Toolset, ToolsetContext};
use crate::tool::{ToolEffects, ToolError};

/// The toolset `think`: one tool, `think`, that takes a thought.
///
/// The thought is already in the conversation, as the argument of the call, so the answer does not repeat it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Think;

impl Think {
    /// Creates the toolset.
    pub fn new() -> Self {
        Think
    }
}

impl Toolset for Think {
    fn name(&self) -> &str {
        "think"
    }

    fn open<'a>(&'a self, _context: &'a ToolsetContext) -> OpenFuture<'a> {
        let text =
            "Writes a thought down. It finds out nothing and changes nothing: it is room to reason in.";
        let tool = fn_tool("think", ToolEffects::READ_ONLY, text, |args: ThinkArgs, _| {
            Box::pin(async move { think(&args) })
        });
        Box::pin(async { Ok(vec![tool]) })
    }

    fn instruction(&self, _context: &ToolsetContext) -> Option<String> {
        let text = "Before you act on something that is not simple, think it through with `think`: which rules \
                    apply, what you still need to know, whether the plan holds, what could go wrong.";
        Some(text.to_owned())
    }
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct ThinkArgs {
    /// What you think.
    thought: String,
}

fn think(args: &ThinkArgs) -> ToolCallResult {
    match args.thought.trim() {
        "" => Err(ToolError::Retry("the thought is empty: say in `thought` what you think".to_owned())),
        _ => Ok("Noted. Go on.".into()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::toolset::tool_fixture::ToolFixture;

    #[tokio::test]
    async fn a_thought_is_taken_and_not_said_again() {
        let mut fixture = ToolFixture::new(&Think::new()).await;
        let long = "word ".repeat(10_000);
        assert_eq!(fixture.call_text("think", json!({"thought": long})).await, "Noted. Go on.");
        assert!(fixture.call_error("think", json!({"thought": " "})).await.contains("`thought`"));
        assert!(fixture.call_error("think", json!({})).await.contains("thought"));
    }
}
