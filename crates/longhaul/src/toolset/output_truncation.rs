//! Truncates tool output that is too long for a conversation. The store keeps the whole output, and a tool
//! reads it page by page.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fn_tool::{self, ToolCallResult, fn_tool};
use super::text_paging::{OUTPUT_LIMIT, TextRange, start_and_end, text_page};
use crate::id::Digest;
use crate::store::Store;
use crate::tool::{DynTool, ToolEffects, ToolError};

/// The tool that reads truncated outputs.
const READ_TOOL_OUTPUT: &str = "read_tool_output";

/// Returns the beginning and the end of an output that is longer than `cap`, with a marker between them that
/// says how to read the rest. Returns `None` if the output is short enough.
pub(crate) fn truncate_output(text: &str, cap: usize) -> Option<String> {
    start_and_end(text, cap, |from| read_on(name(&Digest::of_bytes(text.as_bytes())), from))
}

/// The id of a truncated output, as models see it: a prefix of its digest.
fn name(digest: &Digest) -> &str {
    digest.as_str().get(..10).unwrap_or(digest.as_str())
}

fn read_on(output: &str, from: usize) -> String {
    format!(r#" To read on: {READ_TOOL_OUTPUT} {{"output": "{output}", "offset": {from}}}."#)
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct ReadToolOutputArgs {
    /// The name of the output, from the mark that says what was left out.
    output: String,
    /// Show it from this character on.
    #[serde(default, deserialize_with = "fn_tool::number")]
    #[schemars(with = "Option<u64>")]
    offset: Option<f64>,
    /// Show at most this many characters.
    #[serde(default, deserialize_with = "fn_tool::number")]
    #[schemars(with = "Option<u64>")]
    limit: Option<f64>,
}

/// Creates the tool that reads the truncated outputs of a conversation. Its pages are far shorter than `cap`.
pub(crate) fn read_tool_output(store: Arc<dyn Store>, kept: &[Digest], cap: usize) -> Arc<dyn DynTool> {
    let (kept, most): (Arc<[Digest]>, usize) = (kept.into(), OUTPUT_LIMIT.min(cap / 2));
    fn_tool(
        READ_TOOL_OUTPUT,
        ToolEffects::READ_ONLY,
        "Reads a tool's output that was too long to be shown whole, in parts: use offset and limit.",
        move |args: ReadToolOutputArgs, _| {
            let (store, kept) = (store.clone(), kept.clone());
            Box::pin(async move { read(&*store, &kept, &args, most).await })
        },
    )
}

async fn read(store: &dyn Store, kept: &[Digest], args: &ReadToolOutputArgs, most: usize) -> ToolCallResult {
    let typed = args.output.trim();
    let Some(digest) = kept.iter().find(|digest| !typed.is_empty() && digest.as_str().starts_with(typed))
    else {
        let have = kept.iter().map(name).collect::<Vec<_>>().join(", ");
        return Err(ToolError::Retry(format!(
            "there is no output '{typed}'. Those that were cut are: {have}."
        )));
    };
    let bytes = store.blob(digest.clone()).await.map_err(|error| ToolError::Fatal(error.to_string()))?;
    let bytes =
        bytes.ok_or_else(|| ToolError::Failed("the output is not in the store any more".to_owned()))?;
    let text = String::from_utf8_lossy(&bytes);
    let part = TextRange::from_args(args.offset, args.limit, None).unwrap_or(TextRange::From(0, usize::MAX));
    Ok(text_page(&text, part, most).with_marker(|from| read_on(name(digest), from)).into())
}
