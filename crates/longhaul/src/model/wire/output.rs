//! The shape of an answer, where a provider holds the model to it and where it does not.

use serde_json::Value;

use super::schema::{self, Dialect};
use crate::model::Request;
use crate::model::settings::{ModelSettings, StructuredOutput};

/// The shape that is asked for: the agent's, else the model's own.
pub(crate) fn wanted<'a>(request: &Request<'a>, settings: &'a ModelSettings) -> Option<&'a StructuredOutput> {
    request.output.or(settings.structured_output.as_ref())
}

/// How a provider is told of the shape of an answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Told<'a> {
    /// There is none.
    Nothing,
    /// By this schema; strictly or not.
    Schema(&'a StructuredOutput, Value, bool),
    /// In the system instruction.
    Words(String),
}

impl<'a> Told<'a> {
    /// By the first of these dialects in which it can be said, else in words.
    pub(crate) fn of(shape: Option<&'a StructuredOutput>, dialects: &[&Dialect]) -> Told<'a> {
        let Some(shape) = shape else { return Told::Nothing };
        let said = dialects
            .iter()
            .find_map(|dialect| Some((schema::answer(&shape.schema, dialect)?, dialect.closed)));
        match said {
            Some((schema, strict)) => Told::Schema(shape, schema, strict),
            None => Told::Words(in_words(shape)),
        }
    }

    /// The system instruction, with the shape in it where it is told in words.
    pub(crate) fn system(&self, system: &str) -> String {
        match self {
            Told::Words(words) if system.trim().is_empty() => words.clone(),
            Told::Words(words) => format!("{system}\n\n{words}"),
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
