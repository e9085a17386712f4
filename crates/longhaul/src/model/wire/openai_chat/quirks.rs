//! The differences between providers of chat completions.

use serde_json::{Map, Value, json};

use crate::model::settings::{ModelSettings, Thinking};
use crate::model::wire::WireRequestError;

/// The quirks of a provider. [`Quirks::for_provider`] knows the common ones; any other is [`Quirks::PLAIN`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quirks {
    /// The key of the token limit of a reply.
    pub max_tokens_key: &'static str,
    /// Whether usage must be requested (`stream_options.include_usage`).
    pub request_usage: bool,
    /// How thinking is sent back.
    pub reasoning_replay: ReasoningReplay,
    /// How the amount of thinking is set.
    pub thinking: ThinkingKey,
    /// Whether call ids must be exactly nine letters and digits.
    pub nine_char_ids: bool,
    /// Whether user messages must not follow each other.
    pub merge_user_messages: bool,
    /// Whether a user message must not follow a tool message.
    pub bridge_tool_to_user: bool,
    /// Whether it enforces a schema; if not, the prompt describes the schema.
    pub schema_support: SchemaSupport,
}

/// How the thinking of earlier replies is sent back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReasoningReplay {
    /// Not at all.
    Never,
    /// As `reasoning_content`, which is required if a reply has calls.
    Content,
    /// As `reasoning_details`, unchanged.
    Details,
    /// As `thinking` parts of the content.
    Parts,
}

/// Whether a provider enforces a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemaSupport {
    /// Always.
    Always,
    /// Only in a request without tools.
    WithoutTools,
    /// Never.
    Never,
}

/// How the amount of thinking is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThinkingKey {
    /// `reasoning_effort`.
    Effort,
    /// The `reasoning` object of OpenRouter.
    Object,
    /// `thinking.type`, together with `reasoning_effort`.
    Switch,
    /// `chat_template_kwargs.enable_thinking`, together with `reasoning_effort`.
    Template,
}

impl Quirks {
    /// A provider without known quirks.
    pub const PLAIN: Quirks = Quirks {
        max_tokens_key: "max_tokens",
        request_usage: true,
        reasoning_replay: ReasoningReplay::Never,
        thinking: ThinkingKey::Effort,
        nine_char_ids: false,
        merge_user_messages: false,
        bridge_tool_to_user: false,
        schema_support: SchemaSupport::Always,
    };

    /// OpenAI itself, and Azure and GitHub, which serve the same models.
    pub const OPENAI: Quirks = Quirks { max_tokens_key: "max_completion_tokens", ..Quirks::PLAIN };

    /// OpenRouter. It always sends usage.
    pub const OPENROUTER: Quirks = Quirks {
        request_usage: false,
        reasoning_replay: ReasoningReplay::Details,
        thinking: ThinkingKey::Object,
        ..Quirks::PLAIN
    };

    /// Mistral. It refuses unknown fields, and is strict about roles and ids.
    pub const MISTRAL: Quirks = Quirks {
        request_usage: false,
        reasoning_replay: ReasoningReplay::Parts,
        nine_char_ids: true,
        merge_user_messages: true,
        bridge_tool_to_user: true,
        ..Quirks::PLAIN
    };

    /// DeepSeek.
    pub const DEEPSEEK: Quirks = Quirks {
        reasoning_replay: ReasoningReplay::Content,
        thinking: ThinkingKey::Switch,
        schema_support: SchemaSupport::Never,
        ..Quirks::PLAIN
    };

    /// A local server: llama.cpp, vLLM, LM Studio. Chat templates expect alternating roles.
    ///
    /// Most of them apply the schema to *every* reply, so that the model can no longer call a tool.
    pub const LOCAL: Quirks = Quirks {
        thinking: ThinkingKey::Template,
        merge_user_messages: true,
        schema_support: SchemaSupport::WithoutTools,
        ..Quirks::PLAIN
    };

    /// Ollama.
    pub const OLLAMA: Quirks =
        Quirks { merge_user_messages: true, schema_support: SchemaSupport::WithoutTools, ..Quirks::PLAIN };

    /// Groq. It enforces no schema for a stream or a request with tools.
    pub const GROQ: Quirks = Quirks { schema_support: SchemaSupport::Never, ..Quirks::OPENAI };

    /// The quirks of a provider, by its name in `provider/model`.
    pub fn for_provider(provider: &str) -> Quirks {
        match provider {
            "openai" | "azure" | "github" | "github-models" | "github-copilot" | "xai" => Quirks::OPENAI,
            "groq" => Quirks::GROQ,
            "openrouter" => Quirks::OPENROUTER,
            "mistral" => Quirks::MISTRAL,
            "deepseek" => Quirks::DEEPSEEK,
            "llamacpp" | "llama.cpp" | "vllm" | "lmstudio" | "dmr" => Quirks::LOCAL,
            "ollama" => Quirks::OLLAMA,
            "perplexity" => Quirks { request_usage: false, ..Quirks::PLAIN },
            _ => Quirks::PLAIN,
        }
    }

    /// Checks that the provider supports these settings.
    pub(super) fn check_settings(&self, settings: &ModelSettings) -> Result<(), WireRequestError> {
        if let Some(Thinking::Tokens(_)) = settings.thinking
            && self.thinking != ThinkingKey::Object
        {
            return Err(WireRequestError(
                "thinking: this provider takes an effort (such as `low` or `high`), not a number of tokens"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    pub(super) fn write_thinking(&self, thinking: &Thinking, body: &mut Map<String, Value>) {
        let mut put = |key: &str, value: Value| body.insert(key.to_owned(), value);
        match (self.thinking, thinking) {
            (ThinkingKey::Object, Thinking::Off) => put("reasoning", json!({"enabled": false})),
            (ThinkingKey::Object, Thinking::Adaptive) => put("reasoning", json!({"enabled": true})),
            (ThinkingKey::Object, Thinking::Tokens(n)) => put("reasoning", json!({"max_tokens": n})),
            (ThinkingKey::Object, Thinking::Effort(effort)) => put("reasoning", json!({"effort": effort})),
            (ThinkingKey::Switch, Thinking::Off) => put("thinking", json!({"type": "disabled"})),
            (ThinkingKey::Template, Thinking::Off) => {
                put("chat_template_kwargs", json!({"enable_thinking": false}))
            }
            (ThinkingKey::Effort, Thinking::Off) => put("reasoning_effort", json!("none")),
            (key, Thinking::Effort(effort)) => {
                if key == ThinkingKey::Switch {
                    put("thinking", json!({"type": "enabled"}));
                }
                put("reasoning_effort", json!(effort))
            }
            (ThinkingKey::Switch, Thinking::Adaptive) => put("thinking", json!({"type": "enabled"})),
            (_, Thinking::Adaptive | Thinking::Tokens(_)) => None,
        };
    }
}
