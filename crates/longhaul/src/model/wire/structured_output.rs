//! The shape of an answer, where a provider holds the model to it and where it does not.

use serde_json::Value;

use super::schema::{self, SchemaDialect};
use crate::model::ModelRequest;
use crate::model::settings::{ModelSettings, StructuredOutput};

/// The shape that is asked for: the agent's, else the model's own.
pub(crate) fn requested_output<'a>(
    request: &ModelRequest<'a>,
    settings: &'a ModelSettings,
) -> Option<&'a StructuredOutput> {
    request.output.or(settings.structured_output.as_ref())
}

/// How a provider is told of the shape of an answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum SchemaDelivery<'a> {
    /// There is none.
    NotRequested,
    /// By this schema; strictly or not.
    Schema(&'a StructuredOutput, Value, bool),
    /// In the system instruction.
    Prompt(String),
}

impl<'a> SchemaDelivery<'a> {
    /// By the first of these dialects in which it can be said, else in words.
    pub(crate) fn choose(
        shape: Option<&'a StructuredOutput>,
        dialects: &[&SchemaDialect],
    ) -> SchemaDelivery<'a> {
        let Some(shape) = shape else { return SchemaDelivery::NotRequested };
        let said = dialects.iter().find_map(|dialect| {
            Some((schema::adapt_output(&shape.schema, dialect)?, dialect.closed_objects))
        });
        match said {
            Some((schema, strict)) => SchemaDelivery::Schema(shape, schema, strict),
            None => SchemaDelivery::Prompt(in_words(shape)),
        }
    }

    /// The system instruction, with the shape in it where it is told in words.
    pub(crate) fn system_prompt(&self, system: &str) -> String {
        match self {
            SchemaDelivery::Prompt(words) if system.trim().is_empty() => words.clone(),
            SchemaDelivery::Prompt(words) => format!("{system}\n\n{words}"),
            _ => system.to_owned(),
        }
    }
}

/// What a model is told of the shape of its answer that nobody holds it to.
fn in_words(shape: &StructuredOutput) -> String {
    let about = shape.description.as_deref().map(|said| format!(" ({said})")).unwrap_or_default();
    format!(
        "Your final answer is one JSON value and nothing around it: no words, no code fence. It fits the JSON schema \
         `{}`{about}:\n{}",
        shape.name, shape.schema
    )
}
