//! What was used, as chat completions tell it.

use serde_json::Value;

use crate::message::Usage;
use crate::model::wire::parsing::token_count;

/// Usage in our sense: what was cached is part of the input, what was thinking is part of the output, whatever the
/// provider thinks of that.
pub(super) fn parse_usage(told: &Value) -> Usage {
    let cached = token_count(
        told,
        &[
            "/prompt_tokens_details/cached_tokens",
            "/prompt_cache_hit_tokens",
            "/cache_read_input_tokens",
            "/cached_tokens",
        ],
    );
    let cache_written =
        token_count(told, &["/prompt_tokens_details/cache_write_tokens", "/cache_creation_input_tokens"]);
    let reasoning = token_count(told, &["/completion_tokens_details/reasoning_tokens", "/reasoning_tokens"]);
    let (input, output) =
        (token_count(told, &["/prompt_tokens"]), token_count(told, &["/completion_tokens"]));
    // xAI counts thinking beside the output: the total tells.
    let beside =
        token_count(told, &["/total_tokens"]).saturating_sub(input.saturating_add(output)).min(reasoning);
    let output = output.saturating_add(beside);
    Usage {
        input: input.max(cached.saturating_add(cache_written)),
        cached,
        cache_written,
        output,
        reasoning: reasoning.min(output),
    }
}
