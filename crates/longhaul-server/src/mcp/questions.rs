//! Questions of tasks as MCP elicitations, and the answers.

use longhaul::entry::{ExpectedAnswer, Question};
use longhaul::toolset::client_tools::PendingQuestion;
use longhaul::transcript::describe_question;
use rmcp::model::{ElicitRequest, ElicitRequestParams, ElicitationSchema, InputRequest};
use serde_json::{Value, json};

/// What a person replied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PersonReply {
    /// This is the answer, as the engine takes it.
    Answer(String),
    /// They will not answer.
    Decline,
    /// They put it off: the question stays open.
    Later,
}

/// How the form of a question maps to its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AnswerForm {
    /// `decision`: yes, no or always.
    Approval,
    /// `answer`: free text.
    Text,
    /// `answer`: a value that the schema describes.
    Value,
    /// `answer`: JSON as text, because the schema does not fit a form.
    JsonText,
    /// The fields of the schema.
    Fields,
}

/// The key of a question: unique for the life of its tree.
pub(super) fn question_key(question: &PendingQuestion) -> String {
    format!("{}/{}", question.task, question.question)
}

/// The question as an elicitation.
pub(super) fn elicitation(question: &PendingQuestion) -> ElicitRequestParams {
    let (form, requested_schema) = answer_form(&question.asks);
    let how = match form {
        AnswerForm::Approval => {
            "\n\nyes: allow this call. always: allow calls like this for the whole task. no: deny it."
        }
        AnswerForm::JsonText => "\n\nThe answer is JSON.",
        AnswerForm::Text | AnswerForm::Value | AnswerForm::Fields => "",
    };
    let message = format!("Task {}: {}{how}", question.task, describe_question(&question.asks));
    ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema }
}

/// The question as an input request of a task or of a call.
pub(super) fn input_request(question: &PendingQuestion) -> InputRequest {
    InputRequest::Elicitation(ElicitRequest::new(elicitation(question)))
}

fn answer_form(asks: &Question) -> (AnswerForm, ElicitationSchema) {
    let schema = |properties: Value, required: &str| {
        let object = json!({"type": "object", "properties": properties, "required": [required]});
        serde_json::from_value::<ElicitationSchema>(object)
    };
    let text = |description: String| {
        let plain = schema(
            json!({"answer": {"type": "string", "title": "Answer", "description": description}}),
            "answer",
        );
        plain.unwrap_or_else(|_| ElicitationSchema::new(Default::default()))
    };
    match &asks.wants {
        ExpectedAnswer::Leave { .. } => {
            let decision = json!({"type": "string", "title": "Decision", "enum": ["yes", "no", "always"]});
            match schema(json!({"decision": decision}), "decision") {
                Ok(schema) => (AnswerForm::Approval, schema),
                Err(_) => (AnswerForm::Text, text("yes, no or always".to_owned())),
            }
        }
        ExpectedAnswer::Words { schema: None } => (AnswerForm::Text, text("Your answer".to_owned())),
        ExpectedAnswer::Words { schema: Some(wanted) } => {
            let is_object = wanted.get("type").and_then(Value::as_str) == Some("object");
            if is_object && let Ok(fields) = serde_json::from_value::<ElicitationSchema>(wanted.clone()) {
                return (AnswerForm::Fields, fields);
            }
            if !is_object && let Ok(value) = schema(json!({"answer": wanted}), "answer") {
                return (AnswerForm::Value, value);
            }
            (AnswerForm::JsonText, text(format!("JSON that matches this schema: {wanted}")))
        }
    }
}

/// Parses the reply to an elicitation: `{"action": …, "content": …}`. Fails if it does not have that form.
pub(super) fn parse_reply(asks: &Question, reply: &Value) -> Result<PersonReply, String> {
    match reply.get("action").and_then(Value::as_str) {
        Some("accept") => {}
        Some("decline") => {
            return Ok(match asks.wants {
                ExpectedAnswer::Leave { .. } => PersonReply::Answer("no".to_owned()),
                ExpectedAnswer::Words { .. } => PersonReply::Decline,
            });
        }
        Some("cancel") => return Ok(PersonReply::Later),
        _ => return Err("`action` has to be accept, decline or cancel".to_owned()),
    }
    let content = reply.get("content").unwrap_or(&Value::Null);
    let field = |name: &str| content.get(name).ok_or_else(|| format!("`content` has no `{name}`"));
    let text = |name: &str| {
        let value = field(name)?;
        value.as_str().map(str::to_owned).ok_or_else(|| format!("`content.{name}` has to be text"))
    };
    Ok(PersonReply::Answer(match answer_form(asks).0 {
        AnswerForm::Approval => {
            let decision = text("decision")?;
            if !["yes", "no", "always"].contains(&decision.as_str()) {
                return Err("`content.decision` has to be yes, no or always".to_owned());
            }
            decision
        }
        AnswerForm::Text | AnswerForm::JsonText => text("answer")?,
        AnswerForm::Value => field("answer")?.to_string(),
        AnswerForm::Fields if content.is_object() => content.to_string(),
        AnswerForm::Fields => return Err("`content` has to be an object".to_owned()),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(schema: Option<Value>) -> Question {
        Question { text: "Which one?".to_owned(), wants: ExpectedAnswer::Words { schema } }
    }

    fn approval() -> Question {
        Question { text: "May I?".to_owned(), wants: ExpectedAnswer::approval("shell", "{}") }
    }

    fn accept(content: Value) -> Value {
        json!({"action": "accept", "content": content})
    }

    #[test]
    fn each_kind_of_question_has_a_form_and_its_answer_is_what_the_engine_takes() {
        let answer = |text: &str| Ok(PersonReply::Answer(text.to_owned()));
        assert_eq!(parse_reply(&approval(), &accept(json!({"decision": "always"}))), answer("always"));
        assert_eq!(
            parse_reply(&words(None), &accept(json!({"answer": "The red one."}))),
            answer("The red one.")
        );
        let choice = words(Some(json!({"type": "string", "enum": ["red", "blue"]})));
        assert_eq!(answer_form(&choice).0, AnswerForm::Value);
        assert_eq!(parse_reply(&choice, &accept(json!({"answer": "red"}))), answer("\"red\""));
        let fields = words(Some(json!({"type": "object", "properties": {"n": {"type": "integer"}}})));
        assert_eq!(answer_form(&fields).0, AnswerForm::Fields);
        assert_eq!(parse_reply(&fields, &accept(json!({"n": 3}))), answer("{\"n\":3}"));
        let nested = words(Some(json!({"type": "object", "properties": {"o": {"type": "object"}}})));
        assert_eq!(answer_form(&nested).0, AnswerForm::JsonText);
        assert_eq!(parse_reply(&nested, &accept(json!({"answer": "{\"o\":{}}"}))), answer("{\"o\":{}}"));
    }

    #[test]
    fn to_decline_an_approval_is_to_deny_it_and_to_cancel_leaves_it_open() {
        let decline = json!({"action": "decline"});
        assert_eq!(parse_reply(&approval(), &decline), Ok(PersonReply::Answer("no".to_owned())));
        assert_eq!(parse_reply(&words(None), &decline), Ok(PersonReply::Decline));
        assert_eq!(parse_reply(&approval(), &json!({"action": "cancel"})), Ok(PersonReply::Later));
    }

    #[test]
    fn a_reply_of_the_wrong_form_is_refused_and_says_why() {
        for (asks, reply, word) in [
            (approval(), json!({}), "action"),
            (approval(), accept(json!({})), "decision"),
            (approval(), accept(json!({"decision": "maybe"})), "decision"),
            (approval(), accept(json!({"decision": 1})), "decision"),
            (words(None), accept(json!({"answer": 1})), "answer"),
            (words(None), json!({"action": "accept"}), "answer"),
        ] {
            let error = parse_reply(&asks, &reply).unwrap_err();
            assert!(error.contains(word), "{reply}: {error}");
        }
    }
}
