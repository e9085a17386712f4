//! Converts the settings for a model, or refuses them.

use serde_json::{Map, Value, json};

use super::super::schema_dialect::GEMINI;
use super::super::structured_output::{self, SchemaDelivery};
use crate::model::ModelRequest;
use crate::model::settings::{ModelSettings, Thinking};
use crate::model::wire::WireRequestError;

/// The version in a model's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GeminiVersion {
    /// A name without a version counts as the newest; `None` if it is not a Gemini model.
    version: Option<(u32, u32)>,
    flash: bool,
}

impl GeminiVersion {
    pub(super) fn from_name(model: &str) -> Self {
        let name = model.to_ascii_lowercase();
        let Some(at) = name.find("gemini-") else { return GeminiVersion { version: None, flash: false } };
        let rest = &name[at + "gemini-".len()..];
        let mut numbers = rest.split('-').next().unwrap_or_default().split('.').map_while(|n| n.parse().ok());
        let version = numbers.next().map_or((u32::MAX, 0), |major| (major, numbers.next().unwrap_or(0)));
        GeminiVersion { version: Some(version), flash: rest.contains("flash") }
    }

    /// Whether it needs its signatures back, and supports thinking levels and tools together with a schema.
    pub(super) fn is_gemini_3(self) -> bool {
        self.version.is_some_and(|version| version >= (3, 0))
    }

    fn is_before(self, major: u32, minor: u32) -> bool {
        self.version.is_some_and(|version| version < (major, minor))
    }
}

/// The keys of the body that `provider_opts` cannot set.
const RESERVED_KEYS: [&str; 2] = ["contents", "systemInstruction"];

pub(super) fn check_settings(settings: &ModelSettings) -> Result<(), WireRequestError> {
    let model = &settings.model;
    let letters = |c: char| c.is_ascii_alphanumeric() || "-_.:@/".contains(c);
    if model.is_empty() || !model.chars().all(letters) {
        return Err(WireRequestError(format!("model: '{model}' is not a valid model name")));
    }
    if let Some(key) = RESERVED_KEYS.iter().find(|key| settings.provider_opts.contains_key(**key)) {
        return Err(WireRequestError(format!(
            "provider_opts: '{key}' is set by Longhaul and cannot be changed"
        )));
    }
    if settings.max_tokens == Some(0) {
        return Err(WireRequestError("max_tokens: must be at least 1".to_owned()));
    }
    if settings.parallel_tool_calls == Some(false) {
        return Err(WireRequestError(
            "parallel_tool_calls: Gemini cannot be limited to one call at a time".to_owned(),
        ));
    }
    thinking(settings).map(drop)
}

/// The generation config. The settings are already checked.
pub(super) fn generation_config(settings: &ModelSettings, delivery: &SchemaDelivery<'_>) -> Value {
    let mut config = Map::new();
    let mut put = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            config.insert(key.to_owned(), value);
        }
    };
    put("maxOutputTokens", settings.max_tokens.map(|n| json!(n)));
    put("temperature", settings.temperature.map(|t| json!(t)));
    put("topP", settings.top_p.map(|p| json!(p)));
    put("frequencyPenalty", settings.frequency_penalty.map(|p| json!(p)));
    put("presencePenalty", settings.presence_penalty.map(|p| json!(p)));
    put("thinkingConfig", thinking(settings).ok().flatten());
    if let SchemaDelivery::Schema(_, schema, _) = delivery {
        put("responseMimeType", Some(json!("application/json")));
        put("responseJsonSchema", Some(schema.clone()));
    }
    Value::Object(config)
}

/// How the model learns the schema of its answer. Before Gemini 3, a schema cannot be enforced together with
/// tools.
pub(super) fn schema_delivery<'a>(
    request: &ModelRequest<'a>,
    settings: &'a ModelSettings,
) -> SchemaDelivery<'a> {
    let in_words = !request.tools.is_empty() && GeminiVersion::from_name(&settings.model).is_before(3, 0);
    SchemaDelivery::choose(
        structured_output::requested_output(request, settings),
        if in_words { &[] } else { &[&GEMINI] },
    )
}

fn thinking(settings: &ModelSettings) -> Result<Option<Value>, WireRequestError> {
    let model = &settings.model;
    let family = GeminiVersion::from_name(model);
    let budget = |tokens: i64| Ok(Some(json!({"includeThoughts": true, "thinkingBudget": tokens})));
    let asked = match &settings.thinking {
        None => return Ok(None),
        Some(Thinking::Effort(word)) if word == "none" => &Thinking::Off,
        Some(asked) => asked,
    };
    if family.is_before(2, 5) {
        return match asked {
            Thinking::Off => Ok(None),
            _ => Err(WireRequestError(format!("thinking: {model} does not think; Gemini 2.5 and later do"))),
        };
    }
    match asked {
        Thinking::Off if family.is_gemini_3() => {
            Err(WireRequestError(format!("thinking: {model} always thinks; use minimal or low")))
        }
        Thinking::Off if family.version.is_some() && !family.flash => {
            Err(WireRequestError(format!("thinking: {model} always thinks; set a small budget")))
        }
        Thinking::Off => Ok(Some(json!({"thinkingBudget": 0}))),
        Thinking::Tokens(tokens) => budget(i64::from(*tokens)),
        Thinking::Adaptive if family.is_gemini_3() => Ok(Some(json!({"includeThoughts": true}))),
        Thinking::Adaptive => budget(-1),
        Thinking::Effort(word) if family.is_gemini_3() => {
            let word = if matches!(word.as_str(), "xhigh" | "max") { "high" } else { word };
            Ok(Some(json!({"includeThoughts": true, "thinkingLevel": word})))
        }
        // Older models without thinking levels get a similar budget.
        Thinking::Effort(word) => match word.as_str() {
            "minimal" => budget(512),
            "low" => budget(1_024),
            "medium" => budget(8_192),
            "high" | "xhigh" | "max" => budget(24_576),
            _ => Err(WireRequestError(format!(
                "thinking: {model} does not know '{word}'; use minimal, low, medium or high"
            ))),
        },
    }
}
