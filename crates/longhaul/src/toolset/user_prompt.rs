//! Asks the user a question.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::fn_tool::{ToolCallResult, fn_tool, non_blank};
use super::text::truncate;
use super::{OpenFuture, Toolset, ToolsetContext};
use crate::entry::{ExpectedAnswer, Question, QuestionAnswer};
use crate::tool::{CallContext, ToolEffects, ToolError, ToolOutput};

/// The toolset `user_prompt`: one tool, `user_prompt`, that asks a question and waits for the answer.
#[derive(Debug, Clone, Copy, Default)]
pub struct UserPrompt;

impl UserPrompt {
    /// Creates the toolset.
    pub fn new() -> Self {
        UserPrompt
    }
}

impl Toolset for UserPrompt {
    fn name(&self) -> &str {
        "user_prompt"
    }

    fn open<'a>(&'a self, _context: &'a ToolsetContext) -> OpenFuture<'a> {
        let text = "Asks the user a question and waits for the answer.";
        let tool = fn_tool("user_prompt", ToolEffects::READ_ONLY, text, |args: UserPromptArgs, context| {
            Box::pin(ask(args, context))
        });
        Box::pin(async { Ok(vec![tool]) })
    }

    fn instruction(&self, _context: &ToolsetContext) -> Option<String> {
        let text = "With `user_prompt` you ask the user, when something only they can say is missing or a decision is \
                    theirs. A `schema` says what the answer must look like: {\"type\": \"string\", \"enum\": [\"a\", \
                    \"b\"]} for a choice, {\"type\": \"object\", \"properties\": {…}, \"required\": […]} for several \
                    things at once. The result has `action` (accept, decline or cancel) and, if it was accepted, \
                    `content`.";
        Some(text.to_owned())
    }
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct UserPromptArgs {
    /// The question, as the user will read it.
    message: String,
    /// A few words above the question.
    title: Option<String>,
    /// The JSON schema of the answer: of an object, or of a single text, number or choice.
    schema: Option<Map<String, Value>>,
}

/// How often the question is asked: once more after an answer that does not match the schema.
const ROUNDS: usize = 2;

async fn ask(args: UserPromptArgs, context: &CallContext) -> ToolCallResult {
    if args.message.trim().is_empty() {
        return Err(ToolError::Retry("the question is empty: say in `message` what you want to know".into()));
    }
    let schema = args.schema.filter(|schema| !schema.is_empty()).map(Value::Object);
    let form = schema.as_ref().map(AnswerSchema::new).transpose()?;
    let asked = match non_blank(args.title) {
        Some(title) => format!("{}\n\n{}", title.trim(), args.message),
        None => args.message,
    };
    let mut text = asked.clone();
    let (mut words, mut why) = (String::new(), String::new());
    for _ in 0..ROUNDS {
        let question = Question { text, wants: ExpectedAnswer::Words { schema: schema.clone() } };
        words = match context.ask(question).await {
            QuestionAnswer::Given(words) => words,
            QuestionAnswer::Declined => return Ok(refused("decline", "The user would not answer.")),
            QuestionAnswer::Nobody(why) => {
                return Ok(refused("cancel", &format!("Nobody answered: {why}. Go on without an answer.")));
            }
        };
        let Some(form) = &form else { return Ok(accepted(json!({"response": words}))) };
        match form.parse_answer(&words) {
            Ok(content) => return Ok(accepted(content)),
            Err(wrong) => why = wrong.to_string(),
        }
        text = format!("{asked}\n\n(The answer '{}' does not fit: {why}.)", truncate(&words, 200));
    }
    let reply = json!({"action": "accept", "content": {"response": words}, "error": format!(
        "The user was asked twice, and the answer still does not fit the schema: {why}. These are their words."
    )});
    Ok(ToolOutput { is_error: true, ..reply.to_string().into() })
}

fn accepted(content: Value) -> ToolOutput {
    json!({"action": "accept", "content": content}).to_string().into()
}

fn refused(action: &str, why: &str) -> ToolOutput {
    ToolOutput { is_error: true, ..json!({"action": action, "message": why}).to_string().into() }
}

/// The schema that an answer must match.
pub(super) struct AnswerSchema<'a> {
    schema: &'a Value,
    validator: jsonschema::Validator,
}

impl AnswerSchema<'_> {
    pub(super) fn new(schema: &Value) -> Result<AnswerSchema<'_>, ToolError> {
        let validator = jsonschema::validator_for(schema).map_err(|error| {
            ToolError::Retry(format!("`schema` is not a JSON schema: {}", truncate(&error.to_string(), 300)))
        })?;
        Ok(AnswerSchema { schema, validator })
    }

    /// Parses an answer: returns the first interpretation of the words that matches the schema, so that
    /// people need not write JSON.
    pub(super) fn parse_answer(&self, words: &str) -> Result<Value, AnswerMismatch> {
        let is_object = self.schema["type"] == "object" || self.schema["properties"].is_object();
        let mut candidates = interpretations(words, self.schema);
        if is_object && let Some([(name, part)]) = only_one(&self.schema["properties"]) {
            candidates.extend(interpretations(words, part).into_iter().map(|value| json!({ name: value })));
        }
        if let Some(fits) = candidates.iter().find(|candidate| self.validator.is_valid(candidate)) {
            return Ok(if fits.is_object() { fits.clone() } else { json!({"value": fits}) });
        }
        // Report the errors of the likeliest interpretation: JSON, if the words are JSON.
        let first = candidates.first().unwrap_or(&Value::Null);
        if is_object && !first.is_object() {
            return Err(AnswerMismatch("it is not a JSON object".to_owned()));
        }
        let wrong: Vec<String> =
            self.validator.iter_errors(first).take(3).map(|error| error.to_string()).collect();
        Err(AnswerMismatch(truncate(&wrong.join("; "), 400)))
    }
}

/// Why an answer does not match its schema.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct AnswerMismatch(String);

/// Returns the possible interpretations of the words, likeliest first.
fn interpretations(words: &str, schema: &Value) -> Vec<Value> {
    let words = words.trim();
    let mut candidates: Vec<Value> = serde_json::from_str(words).into_iter().collect();
    match words.to_ascii_lowercase().as_str() {
        "yes" | "y" => candidates.push(true.into()),
        "no" | "n" => candidates.push(false.into()),
        _ => {}
    }
    let choices = schema["enum"].as_array().into_iter().flatten();
    let like = |choice: &&Value| choice.as_str().is_some_and(|text| text.eq_ignore_ascii_case(words));
    candidates.extend(choices.filter(like).cloned());
    candidates.push(words.into());
    candidates
}

fn only_one(properties: &Value) -> Option<[(&String, &Value); 1]> {
    let mut all = properties.as_object()?.iter();
    match (all.next(), all.next()) {
        (Some(one), None) => Some([one]),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
