//! Parses the usage of chat completions.

use serde_json::Value;

use crate::message::Usage;
use crate::model::wire::parsing::token_count;

/// Normalizes the usage: cached tokens are part of the input, and thinking is part of the output, however the
/// provider counts.
pub(super) fn parse_usage(reported: &Value) -> Usage {
    let cached = token_count(
        reported,
        &[
            "/prompt_tokens_details/cached_tokens",
            "/prompt_cache_hit_tokens",
            "/cache_read_input_tokens",
            "/cached_tokens",
        ],
    );
    let cache_written =
        token_count(reported, &["/prompt_tokens_details/cache_write_tokens", "/cache_creation_input_tokens"]);
    let reasoning =
        token_count(reported, &["/completion_tokens_details/reasoning_tokens", "/reasoning_tokens"]);
    let (input, output) =
        (token_count(reported, &["/prompt_tokens"]), token_count(reported, &["/completion_tokens"]));
    // xAI does not count thinking as output: the total shows that.
    let beside =
        token_count(reported, &["/total_tokens"]).saturating_sub(input.saturating_add(output)).min(reasoning);
    let output = output.saturating_add(beside);
    Usage {
        input: input.max(cached.saturating_add(cache_written)),
        cached,
        cache_written,
        output,
        reasoning: reasoning.min(output),
    }
}
