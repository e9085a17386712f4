use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedReceiver;

use super::UserPrompt;
use crate::entry::{ExpectedAnswer, Question, QuestionAnswer};
use crate::tool::{CallSignal, ToolError, ToolOutput};
use crate::toolset::tool_fixture::ToolFixture;

/// Makes the call and gives these answers; returns the result and the questions.
async fn ask(
    arguments: Value,
    answers: Vec<QuestionAnswer>,
) -> (Result<ToolOutput, ToolError>, Vec<Question>) {
    let mut fixture = ToolFixture::new(&UserPrompt::new()).await;
    let (_, nobody) = tokio::sync::mpsc::unbounded_channel();
    let signals = std::mem::replace(&mut fixture.signals, nobody);
    let call = async {
        let output = fixture.call("user_prompt", arguments).await;
        drop(fixture);
        output
    };
    tokio::join!(call, answer(signals, answers))
}

async fn answer(mut signals: UnboundedReceiver<CallSignal>, answers: Vec<QuestionAnswer>) -> Vec<Question> {
    let (mut answers, mut asked) = (answers.into_iter(), Vec::new());
    while let Some(signal) = signals.recv().await {
        if let CallSignal::AsksPerson { question, reply, .. } = signal {
            let question = *question;
            asked.push(question);
            reply.send(answers.next().expect("not asked that often")).unwrap();
        }
    }
    asked
}

fn given(words: &str) -> QuestionAnswer {
    QuestionAnswer::Given(words.to_owned())
}

async fn content(schema: Value, words: &str) -> Value {
    let (output, asked) = ask(json!({"message": "?", "schema": schema}), vec![given(words)]).await;
    assert_eq!(asked.len(), 1);
    let output = output.unwrap();
    assert!(!output.is_error);
    let value: Value = serde_json::from_str(&output.text).unwrap();
    assert_eq!(value["action"], "accept");
    value["content"].clone()
}

#[tokio::test]
async fn words_are_taken_as_they_are_where_there_is_no_schema() {
    let (output, asked) =
        ask(json!({"message": "Which city?", "title": "Trip"}), vec![given("Graz, please")]).await;
    assert_eq!(output.unwrap().text, r#"{"action":"accept","content":{"response":"Graz, please"}}"#);
    assert_eq!(asked[0].text, "Trip\n\nWhich city?");
    assert_eq!(asked[0].wants, ExpectedAnswer::Words { schema: None });
}

#[tokio::test]
async fn words_are_understood_as_people_write_them() {
    let color = json!({"type": "string", "enum": ["Red", "Blue"]});
    let named = json!({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]});
    let two = json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "boolean"}}});
    for (schema, words, meant) in [
        (color.clone(), "blue", json!({"value": "Blue"})),
        (color, "\"Red\"", json!({"value": "Red"})),
        (json!({"type": "integer"}), " 42 ", json!({"value": 42})),
        (json!({"type": "string"}), "42", json!({"value": "42"})),
        (json!({"type": "boolean"}), "yes", json!({"value": true})),
        (named.clone(), "Ada", json!({"name": "Ada"})),
        (named, r#"{"name":"Ada"}"#, json!({"name": "Ada"})),
        (two, r#"{"a":1,"b":true}"#, json!({"a": 1, "b": true})),
    ] {
        assert_eq!(content(schema.clone(), words).await, meant, "{schema} {words}");
    }
}

#[tokio::test]
async fn an_answer_that_does_not_fit_is_asked_for_once_more() {
    let arguments = json!({"message": "How many?", "schema": {"type": "integer", "minimum": 1}});
    let (output, asked) = ask(arguments.clone(), vec![given("none"), given("3")]).await;
    assert_eq!(output.unwrap().text, r#"{"action":"accept","content":{"value":3}}"#);
    assert_eq!(asked.len(), 2);
    assert!(asked[1].text.starts_with("How many?\n\n(The answer 'none' does not fit:"), "{}", asked[1].text);
    let (output, asked) = ask(arguments, vec![given("none"), given("0")]).await;
    let output = output.unwrap();
    assert!(output.is_error && output.text.contains("asked twice") && output.text.contains("minimum of 1"));
    assert_eq!(asked.len(), 2);
}

#[tokio::test]
async fn the_model_is_told_plainly_that_there_is_no_answer() {
    let (output, _) = ask(json!({"message": "?"}), vec![QuestionAnswer::Declined]).await;
    let output = output.unwrap();
    assert!(output.is_error && output.text.contains(r#""action":"decline""#), "{}", output.text);
    let (output, _) = ask(json!({"message": "?"}), vec![QuestionAnswer::Nobody("no terminal".into())]).await;
    let output = output.unwrap();
    assert!(output.is_error && output.text.contains("Nobody answered: no terminal"), "{}", output.text);
}

#[tokio::test]
async fn a_question_that_cannot_be_asked_is_not() {
    for (arguments, says) in [
        (json!({"message": " "}), "`message`"),
        (json!({"message": "?", "schema": {"type": "nonsense"}}), "`schema` is not a JSON schema"),
        (
            json!({"message": "?", "schema": {"$ref": "http://127.0.0.1:1/x"}}),
            "`schema` is not a JSON schema",
        ),
    ] {
        let (output, asked) = ask(arguments, vec![]).await;
        let error = output.unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
        assert!(asked.is_empty());
    }
}
