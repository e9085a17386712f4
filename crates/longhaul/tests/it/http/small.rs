//! What small models get wrong, and that it does no harm.

use longhaul::model::http::ModelSpec;
use longhaul::model::settings::{ModelSettings, StructuredOutput};
use longhaul::store::TaskFilter;
use longhaul::{Policy, Status, SubAgentDialect};
use serde_json::{Value, json};

use crate::http::server::{Act, Asked, Server, calls, event, says};
use crate::http::stage::{agent, assert_said, end, http, start, submit};

/// A model as a server of one's own has it.
fn own(url: &str, settings: ModelSettings) -> std::sync::Arc<dyn longhaul::model::Model> {
    let spec = ModelSpec::parse("llamacpp/x").unwrap().settings(settings.model("qwen2.5-1.5b")).base_url(url);
    http().model(&spec, &longhaul::model::http::NoKeys).unwrap()
}

fn last(asked: &Asked) -> Value {
    asked.body["messages"].as_array().and_then(|all| all.last()).cloned().unwrap_or_default()
}

/// A lead that may ask a helper, and what the first reply of the lead is.
async fn the_helper_is_asked(first: Vec<String>, settings: ModelSettings) -> (usize, String, Vec<Asked>) {
    let server = Server::start(move |asked| {
        match (asked.order().contains("lead it"), last(asked)["role"] == "user") {
            (true, true) => Act::Slowly(first.clone(), std::time::Duration::from_millis(1)),
            (true, false) => Act::Stream(says(&format!("It said {}.", last(asked)["content"]))),
            _ => Act::Stream(says("seven")),
        }
    })
    .await;
    let model = own(&server.url(), settings);
    let helper = agent("helper", &model).build().unwrap();
    let longhaul = start(agent("solo", &model).sub_agent(helper)).await;
    let id = submit(&longhaul, "lead it").await;
    let done = end(&longhaul, id).await;
    assert_eq!(done.state.status, Status::Completed, "{:?}", done.state.error);
    let tree = longhaul.list(TaskFilter::tree(id)).await.unwrap();
    (tree.len() - 1, done.output, server.asked())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_in_a_code_fence_is_a_call() {
    let written = "```json\n{\"name\": \"helper\", \"arguments\": {\"task\": \"count\"}}\n```";
    let (asked, said, requests) = the_helper_is_asked(says(written), ModelSettings::default()).await;
    assert!(asked == 1 && said.contains("seven"), "{asked} {said}");
    // It goes back as the call that it was meant to be, with its result.
    let back = &requests.last().unwrap().body["messages"];
    let call = back.as_array().unwrap().iter().find(|message| message["role"] == "assistant").unwrap();
    assert_eq!(call["tool_calls"][0]["function"]["name"], "helper", "{back}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_shows_how_a_call_is_written_is_an_answer() {
    for (written, settings) in [
        (
            "You can ask it like this:\n```json\n{\"name\": \"helper\", \"arguments\": {\"task\": \"x\"}}\n```",
            ModelSettings::default(),
        ),
        ("{\"name\": \"hammer\", \"arguments\": {\"task\": \"x\"}}", ModelSettings::default()),
        // Told not to read them, or to make JSON.
        (
            "{\"name\": \"helper\", \"arguments\": {\"task\": \"x\"}}",
            ModelSettings::default().reads_text_calls(false),
        ),
        (
            "{\"name\": \"helper\", \"arguments\": {\"task\": \"x\"}}",
            ModelSettings::default().structured_output(StructuredOutput {
                name: "a_call".to_owned(),
                description: None,
                schema: json!({"type": "object"}),
                strict: false,
            }),
        ),
    ] {
        let (asked, said, _) = the_helper_is_asked(says(written), settings).await;
        assert_eq!((asked, said.as_str()), (0, written));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_in_each_delta_and_words_before_the_call_make_one_call() {
    let delta = |delta: Value| event(&json!({"choices": [{"index": 0, "delta": delta}]}));
    let piece = |arguments: &str| {
        let call = json!({"index": 0, "id": "c1", "type": "function",
            "function": {"name": "helper", "arguments": arguments}});
        delta(json!({ "tool_calls": [call] }))
    };
    let mut pieces = vec![delta(json!({"role": "assistant", "content": "Let me ask. "}))];
    pieces.extend(["{\"ta", "sk\": \"co", "unt\"}", ""].map(piece));
    pieces.push(event(&json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})));
    let (asked, said, requests) = the_helper_is_asked(pieces, ModelSettings::default()).await;
    assert!(asked == 1 && said.contains("seven"), "{asked} {said}");
    let back = requests.last().unwrap().body["messages"].to_string();
    assert!(back.contains("Let me ask."), "{back}");
}

/// It looks and looks. The child ends all the same, and the lead is made to answer in the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn polling_for_ever_ends_with_an_answer() {
    let server = Server::start(|asked| {
        let tools = asked.body["tools"].as_array().map_or(0, Vec::len);
        let role = last(asked)["role"].as_str().unwrap_or_default().to_owned();
        match (
            asked.order().contains("lead it"),
            tools > 0,
            asked.body["messages"].as_array().map_or(0, Vec::len),
        ) {
            (true, true, 2) => {
                Act::Stream(calls("run_background_agent", &json!({"agent": "helper", "task": "x"})))
            }
            (true, true, _) => Act::Stream(calls("list_background_agents", &json!({}))),
            (true, false, _) => Act::Stream(says(&format!("My last word, to the {role}."))),
            _ => Act::Slowly(says("This is what I found."), std::time::Duration::from_millis(100)),
        }
    })
    .await;
    let model = own(&server.url(), ModelSettings::default());
    let helper = agent("helper", &model).build().unwrap();
    let policy = Policy::default().max_turns(20);
    let lead = agent("solo", &model).policy(policy).dialect(SubAgentDialect::Background).sub_agent(helper);
    let longhaul = start(lead).await;
    let id = submit(&longhaul, "lead it").await;
    let done = end(&longhaul, id).await;
    assert_said(&done, "My last word, to the user.");
    // Looking again at what has ended is a circle, so it does not take all its turns.
    assert!(done.state.cut_short.is_some() && done.state.turns <= 8, "{} turns", done.state.turns);
    let last = server.asked().pop().unwrap().body.to_string();
    assert!(last.contains("This is what I found.") && last.contains("Your task has ended;"), "{last}");
    let tree = longhaul.list(TaskFilter::tree(id)).await.unwrap();
    assert!(tree.iter().all(|task| task.status == Status::Completed));
}
