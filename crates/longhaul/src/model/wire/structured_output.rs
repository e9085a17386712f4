//! Structured output: enforced by the provider, or described in the prompt.

use serde_json::Value;

use super::schema::{self, SchemaDialect};
use crate::model::ModelRequest;
use crate::model::settings::{ModelSettings, StructuredOutput};

/// The schema that applies: the agent's, or else the model's own.
pub(crate) fn requested_output<'a>(
    request: &ModelRequest<'a>,
    settings: &'a ModelSettings,
) -> Option<&'a StructuredOutput> {
    request.output.or(settings.structured_output.as_ref())
}

/// How a provider learns the schema of the answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum SchemaDelivery<'a> {
    /// There is no schema.
    NotRequested,
    /// As this schema; strict or not.
    Schema(&'a StructuredOutput, Value, bool),
    /// As words in the system instruction.
    Prompt(String),
}

impl<'a> SchemaDelivery<'a> {
    /// Uses the first of these dialects that can express the schema, or else the prompt.
    pub(crate) fn choose(
        requested: Option<&'a StructuredOutput>,
        dialects: &[&SchemaDialect],
    ) -> SchemaDelivery<'a> {
        let Some(requested) = requested else { return SchemaDelivery::NotRequested };
        let said = dialects.iter().find_map(|dialect| {
            Some((schema::adapt_output(&requested.schema, dialect)?, dialect.closed_objects))
        });
        match said {
            Some((schema, strict)) => SchemaDelivery::Schema(requested, schema, strict),
            None => SchemaDelivery::Prompt(in_words(requested)),
        }
    }

    /// The system instruction, with the schema in it if it goes into the prompt.
    pub(crate) fn system_prompt(&self, system: &str) -> String {
        match self {
            SchemaDelivery::Prompt(words) if system.trim().is_empty() => words.clone(),
            SchemaDelivery::Prompt(words) => format!("{system}\n\n{words}"),
            _ => system.to_owned(),
        }
    }
}

/// Describes the schema to a model that the provider does not hold to it.
fn in_words(requested: &StructuredOutput) -> String {
    let about = requested.description.as_deref().map(|said| format!(" ({said})")).unwrap_or_default();
    format!(
        "Your final answer is one JSON value and nothing around it: no words, no code fence. It fits the JSON schema \
         `{}`{about}:\n{}",
        requested.name, requested.schema
    )
}
