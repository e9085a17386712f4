//! The JSON schema that an agent's answer must match.

use crate::model::settings::StructuredOutput;

/// A compiled JSON schema that answers are validated against.
pub struct OutputSchema {
    structured_output: StructuredOutput,
    #[cfg(feature = "toolsets")]
    validator: jsonschema::Validator,
}

/// Why a value is not a JSON schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OutputSchemaError(String);

/// Why an answer does not match a schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SchemaViolation(String);

/// How many violations the model is shown.
const MAX_VIOLATIONS_SHOWN: usize = 5;

/// A schema longer than this, in bytes, is not repeated to the model.
const MAX_SCHEMA_SHOWN: usize = 8 << 10;

/// Size limit of a compiled regex in a schema, in bytes.
const LARGEST_PATTERN: usize = 1 << 18;

impl OutputSchema {
    /// Compiles the schema. Fails with the reason if it is not a valid JSON schema. Needs the feature `toolsets`.
    #[cfg(feature = "toolsets")]
    pub fn new(asked: StructuredOutput) -> Result<OutputSchema, OutputSchemaError> {
        let validator = compile_schema(&asked.schema)?;
        Ok(OutputSchema { structured_output: asked, validator })
    }

    /// The schema as it was requested.
    pub fn structured_output(&self) -> &StructuredOutput {
        &self.structured_output
    }

    /// The schema's name and, unless it is very long, the schema itself, for a model whose answer did not
    /// match.
    pub(crate) fn prompt_text(&self) -> String {
        let schema = self.structured_output.schema.to_string();
        match schema.len() <= MAX_SCHEMA_SHOWN {
            true => format!("`{}`:\n{schema}", self.structured_output.name),
            false => format!("`{}`.", self.structured_output.name),
        }
    }

    /// Returns the JSON in an answer (the whole answer, or the content of its only code fence) if it matches
    /// the schema. Otherwise returns the violations.
    pub fn extract_json<'a>(&self, answer: &'a str) -> Result<&'a str, SchemaViolation> {
        let json = unfenced(answer.trim());
        let value = serde_json::from_str(json)
            .map_err(|error| SchemaViolation(format!("it is not JSON: {error}")))?;
        let faults = self.violations(&value);
        if faults.is_empty() { Ok(json) } else { Err(SchemaViolation(faults.join("; "))) }
    }

    /// How a value violates the schema, as far as the model is shown.
    #[cfg(feature = "toolsets")]
    fn violations(&self, value: &serde_json::Value) -> Vec<String> {
        self.validator
            .iter_errors(value)
            .take(MAX_VIOLATIONS_SHOWN)
            .map(|error| match error.instance_path().to_string() {
                path if path.is_empty() => error.to_string(),
                path => format!("at {path}: {error}"),
            })
            .collect()
    }

    /// Without the feature there is no schema to violate.
    #[cfg(not(feature = "toolsets"))]
    fn violations(&self, _: &serde_json::Value) -> Vec<String> {
        Vec::new()
    }
}

/// Compiles a JSON schema with a size limit on its patterns. Fails with the reason if the schema is invalid.
#[cfg(feature = "toolsets")]
pub(crate) fn compile_schema(schema: &serde_json::Value) -> Result<jsonschema::Validator, OutputSchemaError> {
    let patterns = jsonschema::PatternOptions::fancy_regex().size_limit(LARGEST_PATTERN);
    let options = jsonschema::options().with_pattern_options(patterns);
    options.build(schema).map_err(|error| OutputSchemaError(error.to_string()))
}

impl std::fmt::Debug for OutputSchema {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OutputSchema")
            .field("structured_output", &self.structured_output)
            .finish_non_exhaustive()
    }
}

/// The content of the code fence if the whole text is one; otherwise the text.
fn unfenced(text: &str) -> &str {
    let inside = || {
        let (first, rest) = text.strip_prefix("```")?.split_once('\n')?;
        let word = first.trim();
        let inside = rest.trim_end().strip_suffix("```")?;
        (word.is_empty() || word.eq_ignore_ascii_case("json")).then(|| inside.trim())
    };
    inside().unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shape() -> OutputSchema {
        let schema = json!({
            "type": "object",
            "properties": { "city": { "type": "string" }, "people": { "type": "integer" } },
            "required": ["city"],
            "additionalProperties": false,
        });
        OutputSchema::new(StructuredOutput { name: "place".into(), description: None, schema, strict: true })
            .unwrap()
    }

    #[test]
    fn an_answer_that_fits_is_taken_out_of_its_fence() {
        for answer in [
            "{\"city\":\"Ulm\"}",
            "  {\"city\":\"Ulm\"}\n",
            "```json\n{\"city\":\"Ulm\"}\n```",
            "```\n{\"city\":\"Ulm\"}```\n",
        ] {
            assert_eq!(shape().extract_json(answer), Ok("{\"city\":\"Ulm\"}"), "{answer}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        for (answer, part) in [
            ("Ulm", "not JSON"),
            ("Here: {\"city\":\"Ulm\"}", "not JSON"),
            ("{}", "\"city\" is a required property"),
            ("{\"city\":\"Ulm\",\"people\":\"many\"}", "at /people"),
            ("```rust\n{}\n```", "not JSON"),
        ] {
            let wrong = shape().extract_json(answer).unwrap_err().to_string();
            assert!(wrong.contains(part), "{answer}: {wrong}");
        }
    }

    #[test]
    fn a_schema_that_is_none_is_refused() {
        let schema = json!({ "type": "objekt" });
        let asked = StructuredOutput { name: "x".into(), description: None, schema, strict: false };
        assert!(OutputSchema::new(asked).is_err());
    }
}
