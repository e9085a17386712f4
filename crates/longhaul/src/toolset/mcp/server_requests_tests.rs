use super::*;
use crate::testing::{FnModel, reply};
use crate::tool::CallSignal;
use crate::toolset::mcp::limits;
use crate::toolset::mcp::running_calls::{McpRunningCallGuard, McpRunningCalls};
use crate::toolset::tool_fixture::call_context_in;
use rmcp::model::{NumberOrString, ProgressToken};
use serde_json::json;
use tokio::sync::mpsc::UnboundedReceiver;

fn running() -> (McpRunningCallGuard, UnboundedReceiver<CallSignal>) {
    let (mut context, signals) = call_context_in(Path::new("/tmp/a dir"));
    context.model = Arc::new(FnModel::new(|request| {
        let said: Vec<String> = request.messages.iter().map(|message| format!("{message:?}")).collect();
        reply().text(format!("{} / {}", request.system, said.join(" / ")))
    }));
    let calls = Arc::<McpRunningCalls>::default();
    let token = ProgressToken(NumberOrString::Number(1));
    (calls.register(NumberOrString::Number(1), token, &context, &Arc::default()), signals)
}

/// Answers the signals as the runner does when no limit is reached.
async fn grants(mut signals: UnboundedReceiver<CallSignal>) {
    while let Some(signal) = signals.recv().await {
        match signal {
            CallSignal::WantsModel { reply, .. } => drop(reply.send(Ok(()))),
            CallSignal::Sampled { noted, .. } => drop(noted.send(())),
            _ => {}
        }
    }
}

fn params(value: Value) -> CreateMessageRequestParams {
    serde_json::from_value(value).unwrap()
}

#[tokio::test]
async fn the_model_of_the_caller_answers_and_not_more_than_was_asked_for() {
    let (call, signals) = running();
    let _granting = tokio_util::task::AbortOnDropHandle::new(tokio::spawn(grants(signals)));
    let asked = json!({"messages": [
        {"role": "user", "content": {"type": "text", "text": "Hi"}},
        {"role": "assistant", "content": {"type": "text", "text": "Ho"}},
    ], "systemPrompt": "Be brief.", "maxTokens": 1000});
    let given = serde_json::to_value(sample(&call.running, params(asked)).await.unwrap()).unwrap();
    let text = given["content"]["text"].as_str().unwrap();
    assert!(text.starts_with("Be brief. / User(\"Hi\") / Assistant("), "{text}");
    assert_eq!((&given["stopReason"], &given["model"]), (&json!("endTurn"), &json!("function")));
    let long = json!({"messages": [{"role": "user", "content": {"type": "text", "text": "x".repeat(500)}}], "maxTokens": 20});
    let given = serde_json::to_value(sample(&call.running, params(long)).await.unwrap()).unwrap();
    assert_eq!(given["content"]["text"].as_str().unwrap().len(), 80);
    assert_eq!(given["stopReason"], "maxTokens");
}

#[tokio::test]
async fn the_model_is_not_asked_too_much_too_often_or_in_pictures() {
    let (call, signals) = running();
    let _granting = tokio_util::task::AbortOnDropHandle::new(tokio::spawn(grants(signals)));
    let picture = json!({"messages": [{"role": "user", "content": {"type": "image", "data": "", "mimeType": "image/png"}}], "maxTokens": 9});
    assert!(sample(&call.running, params(picture)).await.unwrap_err().message.contains("only text"));
    let text = |text: String| {
        params(
            json!({"messages": [{"role": "user", "content": {"type": "text", "text": text}}], "maxTokens": 9}),
        )
    };
    let huge = sample(&call.running, text("x".repeat(limits::SAMPLING + 1))).await.unwrap_err();
    assert!(huge.message.contains("too much"), "{huge:?}");
    let mut answered = 0;
    while sample(&call.running, text("Hi".to_owned())).await.is_ok() {
        answered += 1;
    }
    assert_eq!(answered, 8, "ten in all");
    let refused = sample(&call.running, text("Hi".to_owned())).await.unwrap_err();
    assert_eq!(refused.message, "this call has asked the model 10 times, which is the limit");
}

#[tokio::test]
async fn a_person_is_asked_once_more_if_the_answer_does_not_fit() {
    let asked = || -> ElicitRequestParams {
        let schema = json!({"type": "object", "properties": {"age": {"type": "integer", "minimum": 1}}, "required": ["age"]});
        serde_json::from_value(json!({"mode": "form", "message": "How old?", "requestedSchema": schema}))
            .unwrap()
    };
    for (words, action, content) in [
        (vec![QuestionAnswer::Given("42".into())], ElicitationAction::Accept, Some(json!({"age": 42}))),
        (
            vec![QuestionAnswer::Given("old".into()), QuestionAnswer::Given(r#"{"age": 7}"#.into())],
            ElicitationAction::Accept,
            Some(json!({"age": 7})),
        ),
        (
            vec![QuestionAnswer::Given("old".into()), QuestionAnswer::Given("very".into())],
            ElicitationAction::Cancel,
            None,
        ),
        (vec![QuestionAnswer::Declined], ElicitationAction::Decline, None),
        (vec![QuestionAnswer::Nobody("they are out".into())], ElicitationAction::Cancel, None),
    ] {
        let (call, mut signals) = running();
        let times = words.len();
        let answering = async {
            for answer in words {
                let Some(CallSignal::AsksPerson { reply, question, .. }) = signals.recv().await else {
                    panic!("not asked")
                };
                assert!(question.text.contains("'srv' asks: How old?"));
                reply.send(answer).unwrap();
            }
        };
        let (result, ()) = tokio::join!(elicit(&call.running, "srv", asked()), answering);
        let result = result.unwrap();
        assert_eq!((result.action, result.content), (action, content), "after {times}");
    }
}

#[test]
fn the_root_is_where_the_task_works() {
    let (call, _heard) = running();
    let roots = serde_json::to_value(super::roots(Some(&call.running))).unwrap();
    assert_eq!(roots["roots"][0]["uri"], "file:///tmp/a%20dir");
    assert_eq!(serde_json::to_value(super::roots(None)).unwrap()["roots"], json!([]));
}
