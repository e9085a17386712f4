//! Converts the settings for a model, or refuses them.

use serde_json::{Value, json};

use super::claude_version::{ClaudeTier, ClaudeVersion};
use crate::model::settings::{ModelSettings, Thinking};
use crate::model::wire::WireRequestError;

/// The parameters of a request.
#[derive(Debug)]
pub(super) struct AnthropicParams {
    pub(super) max_tokens: u64,
    pub(super) thinking: Option<Value>,
    pub(super) effort: Option<String>,
    /// The value of the cache marks; `None` if caching is off.
    pub(super) cache: Option<Value>,
    /// Whether a turn with calls must begin with thinking, so that thinking is off otherwise.
    pub(super) needs_thinking_first: bool,
}

/// The keys of the body that `provider_opts` cannot set.
const RESERVED_KEYS: [&str; 4] = ["messages", "model", "stream", "system"];

/// The tokens of a reply beyond the thinking budget.
const BESIDE_THINKING: u64 = 8_192;

impl AnthropicParams {
    pub(super) fn from_settings(settings: &ModelSettings) -> Result<AnthropicParams, WireRequestError> {
        let family = ClaudeVersion::from_name(&settings.model);
        if let Some(key) = RESERVED_KEYS.iter().find(|key| settings.provider_opts.contains_key(**key)) {
            return Err(WireRequestError(format!(
                "provider_opts: '{key}' is set by Longhaul and cannot be changed"
            )));
        }
        for (key, set) in [
            ("frequency_penalty", settings.frequency_penalty.is_some()),
            ("presence_penalty", settings.presence_penalty.is_some()),
        ] {
            if set {
                return Err(WireRequestError(format!("{key}: Anthropic's Messages API does not support it")));
            }
        }
        let (thinking, effort) = thinking(settings, family)?;
        sampling(settings, family, thinking.as_ref())?;
        let budget = thinking.as_ref().and_then(|t| t["budget_tokens"].as_u64());
        let max_tokens = match (settings.max_tokens, budget) {
            (Some(0), _) => return Err(WireRequestError("max_tokens: must be at least 1".to_owned())),
            (Some(max), Some(budget)) if max <= budget => {
                return Err(WireRequestError(format!(
                    "max_tokens: {max} must be larger than the thinking budget of {budget} tokens"
                )));
            }
            (Some(max), _) => max,
            (None, budget) => {
                family.default_max_tokens().max(budget.map_or(0, |budget| budget + BESIDE_THINKING))
            }
        };
        let needs_thinking_first = budget.is_some() && family.is_claude();
        Ok(AnthropicParams { max_tokens, thinking, effort, cache: cache(settings)?, needs_thinking_first })
    }
}

fn cache(settings: &ModelSettings) -> Result<Option<Value>, WireRequestError> {
    match settings.provider_opts.get("cache") {
        None | Some(Value::Bool(true)) => Ok(Some(json!({"type": "ephemeral"}))),
        Some(Value::Bool(false)) => Ok(None),
        Some(Value::String(ttl)) if matches!(ttl.as_str(), "5m" | "1h") => {
            Ok(Some(json!({"type": "ephemeral", "ttl": ttl})))
        }
        Some(other) => {
            Err(WireRequestError(format!("provider_opts: cache is true, false, 5m or 1h, not {other}")))
        }
    }
}

fn thinking(
    settings: &ModelSettings,
    family: ClaudeVersion,
) -> Result<(Option<Value>, Option<String>), WireRequestError> {
    let model = &settings.model;
    let adaptive = || match family.is_adaptive_only() {
        // Without this, these models return empty thinking.
        true => json!({"type": "adaptive", "display": "summarized"}),
        false => json!({"type": "adaptive"}),
    };
    let budget = |tokens: u32| match tokens {
        0..1024 => {
            Err(WireRequestError(format!("thinking: the budget must be at least 1024 tokens, not {tokens}")))
        }
        _ => Ok((Some(json!({"type": "enabled", "budget_tokens": tokens})), None)),
    };
    if family.is_before(3, 7) && !matches!(settings.thinking, None | Some(Thinking::Off)) {
        return Err(WireRequestError(format!("thinking: {model} does not think; Claude 3.7 and later do")));
    }
    match &settings.thinking {
        None => Ok((None, None)),
        Some(Thinking::Off) => off(family, model),
        Some(Thinking::Effort(word)) if word == "none" => off(family, model),
        Some(Thinking::Tokens(tokens)) if family.is_adaptive_only() => Err(WireRequestError(format!(
            "thinking: {model} takes no budget ({tokens} tokens); use adaptive, or an effort: low, medium, high, …"
        ))),
        Some(Thinking::Tokens(tokens)) => budget(*tokens),
        Some(Thinking::Adaptive) if family.is_adaptive() => Ok((Some(adaptive()), None)),
        Some(Thinking::Adaptive) => Err(WireRequestError(format!(
            "thinking: {model} does not support adaptive thinking; set a budget"
        ))),
        Some(Thinking::Effort(word)) if family.is_adaptive() => {
            let word = if word == "minimal" { "low" } else { word };
            Ok((Some(adaptive()), Some(word.to_owned())))
        }
        // Older models without effort levels get a similar budget.
        Some(Thinking::Effort(word)) => match word.as_str() {
            "minimal" => budget(1_024),
            "low" => budget(4_096),
            "medium" => budget(10_240),
            "high" => budget(20_480),
            "xhigh" | "max" => budget(30_720),
            _ => Err(WireRequestError(format!(
                "thinking: {model} does not know '{word}'; use minimal, low, medium, high or max"
            ))),
        },
    }
}

fn off(family: ClaudeVersion, model: &str) -> Result<(Option<Value>, Option<String>), WireRequestError> {
    match family.tier {
        ClaudeTier::Deep => Err(WireRequestError(format!("thinking: {model} always thinks; use low"))),
        ClaudeTier::Opus if family.is_at_least(5, 5) => {
            Err(WireRequestError(format!("thinking: {model} always thinks; use low")))
        }
        ClaudeTier::Sonnet if family.is_at_least(5, 5) => Ok((Some(json!({"type": "between_tools"})), None)),
        // Models from here on think unless it is turned off.
        _ if family.is_at_least(5, 0) => Ok((Some(json!({"type": "disabled"})), None)),
        _ => Ok((None, None)),
    }
}

fn sampling(
    settings: &ModelSettings,
    family: ClaudeVersion,
    thinking: Option<&Value>,
) -> Result<(), WireRequestError> {
    let model = &settings.model;
    let thinks = thinking.is_some_and(|t| matches!(t["type"].as_str(), Some("enabled" | "adaptive")));
    if !family.is_claude() {
        return Ok(());
    }
    for (key, value) in [("temperature", settings.temperature), ("top_p", settings.top_p)] {
        match value {
            Some(_) if family.is_adaptive_only() => {
                return Err(WireRequestError(format!("{key}: {model} does not support it")));
            }
            Some(value) if !(0.0..=1.0).contains(&value) => {
                return Err(WireRequestError(format!("{key}: must be between 0 and 1, not {value}")));
            }
            _ => {}
        }
    }
    match (settings.temperature, settings.top_p) {
        (Some(_), Some(_)) if family.is_at_least(4, 1) => {
            Err(WireRequestError(format!("top_p: {model} takes either a temperature or a top_p, not both")))
        }
        (Some(temperature), _) if thinks && temperature != 1.0 => {
            Err(WireRequestError("temperature: must be 1 when thinking is on".to_owned()))
        }
        (_, Some(top_p)) if thinks && top_p < 0.95 => {
            Err(WireRequestError("top_p: must be at least 0.95 when thinking is on".to_owned()))
        }
        _ => Ok(()),
    }
}
