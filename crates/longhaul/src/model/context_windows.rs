//! Known context windows, by the prefix of a model's name.

/// In tokens; the longest matching prefix wins. Rounded down, because the number only decides when to
/// summarize.
const CONTEXT_WINDOWS: &[(&str, u64)] = &[
    ("claude", 200_000),
    ("gpt-3.5", 16_000),
    ("gpt-4", 8_000),
    ("gpt-4-turbo", 128_000),
    ("gpt-4o", 128_000),
    ("gpt-4.1", 1_000_000),
    ("gpt-5", 272_000),
    ("gpt-oss", 128_000),
    ("o1", 200_000),
    ("o3", 200_000),
    ("o4", 200_000),
    ("gemini", 1_000_000),
    ("gemma", 32_000),
    ("mistral", 128_000),
    ("ministral", 128_000),
    ("codestral", 128_000),
    ("devstral", 128_000),
    ("magistral", 40_000),
    ("deepseek", 128_000),
    ("grok", 128_000),
    ("grok-4", 256_000),
    ("llama-3", 128_000),
    ("llama-4", 128_000),
    ("qwen3", 128_000),
    ("kimi-k2", 128_000),
    ("glm-4", 128_000),
    ("minimax", 190_000),
];

/// The context window of a model in tokens. Maker prefixes (`anthropic/claude…`, `us.anthropic.claude…`) are
/// ignored.
pub(crate) fn context_window(model: &str) -> Option<u64> {
    let model = model.to_ascii_lowercase();
    let last = model.rsplit('/').next().unwrap_or(&model);
    let fits = |(name, _): &&(&str, u64)| {
        last.match_indices(name).any(|(at, _)| at == 0 || last.as_bytes().get(at - 1) == Some(&b'.'))
    };
    CONTEXT_WINDOWS.iter().filter(fits).max_by_key(|(name, _)| name.len()).map(|(_, tokens)| *tokens)
}

#[cfg(test)]
mod tests {
    use super::context_window;

    #[test]
    fn the_longest_name_that_fits_counts() {
        for (model, tokens) in [
            ("gpt-4o-mini", Some(128_000)),
            ("gpt-4-0613", Some(8_000)),
            ("openai/gpt-4.1-nano", Some(1_000_000)),
            ("us.anthropic.claude-sonnet-4-5-v1:0", Some(200_000)),
            ("grok-4-fast", Some(256_000)),
            ("solo1", None),
            ("my-own-model", None),
        ] {
            assert_eq!(context_window(model), tokens, "{model}");
        }
    }
}
