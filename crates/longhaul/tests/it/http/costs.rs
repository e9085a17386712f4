//! What replies cost: told by the provider, known by a price, or not known; and what a limit of cost makes of it.

use std::sync::Arc;

use longhaul::entry::Budget;
use longhaul::model::Model;
use longhaul::model::http::{HttpClient, ModelSpec};
use longhaul::model::prices::PriceTable;
use longhaul::task::TaskState;
use longhaul::{Order, Status};
use serde_json::{Value, json};

use crate::http::server::{Act, Server, event};
use crate::http::stage::{agent, end, keys, options, solo, start};

/// A reply with this usage, or none.
fn says(usage: Option<Value>) -> Vec<String> {
    let mut pieces = vec![event(
        &json!({"choices": [{"index": 0, "delta": {"content": "Fine."}, "finish_reason": "stop"}]}),
    )];
    pieces.extend(usage.map(|usage| event(&json!({"choices": [], "usage": usage}))));
    pieces.push("data: [DONE]\n\n".to_owned());
    pieces
}

fn calls(usage: Option<Value>) -> Vec<String> {
    let call =
        json!([{"index": 0, "id": "c1", "function": {"name": "helper", "arguments": "{\"task\": \"x\"}"}}]);
    let mut pieces = vec![event(
        &json!({"choices": [{"index": 0, "delta": {"tool_calls": call}, "finish_reason": "tool_calls"}]}),
    )];
    pieces.extend(usage.map(|usage| event(&json!({"choices": [], "usage": usage}))));
    pieces.push("data: [DONE]\n\n".to_owned());
    pieces
}

/// A run of a lead that asks a helper, with a limit of cost or without; and how often the provider was asked.
async fn run(
    name: &str,
    prices: Option<&str>,
    usage: Option<Value>,
    limit: Option<u64>,
) -> (TaskState, usize) {
    let server = Server::start(move |asked| {
        match asked.order().contains("lead it")
            && asked.body["messages"].as_array().is_some_and(|all| all.len() < 3)
        {
            true => Act::Stream(calls(usage.clone())),
            false => Act::Stream(says(usage.clone())),
        }
    })
    .await;
    let prices = match prices {
        Some(json) => PriceTable::built_in().with_overrides(json).unwrap(),
        None => PriceTable::built_in(),
    };
    let http = HttpClient::new(options().prices(prices)).unwrap();
    let spec = ModelSpec::parse(name).unwrap().base_url(server.url());
    let model: Arc<dyn Model> = http.model(&spec, &keys).unwrap();
    let helper = agent("helper", &model).build().unwrap();
    let longhaul = start(solo(&model).sub_agent(helper)).await;
    let budget = limit.map_or_else(Budget::default, |limit| Budget::default().cost(limit));
    let order = Order::new("solo", "lead it").tree_budget(budget);
    let id = longhaul.submit(order).await.unwrap();
    let state = end(&longhaul, id).await.state;
    (state, server.asked().len())
}

fn used() -> Value {
    json!({"prompt_tokens": 1000, "completion_tokens": 100})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_provider_tells_is_the_truth() {
    for (told, cost) in [
        (json!({"prompt_tokens": 1000, "completion_tokens": 100, "cost": 0.0008425}), 843),
        (json!({"prompt_tokens": 1, "completion_tokens": 1, "cost": 0.000_000_3}), 1),
        (json!({"prompt_tokens": 1, "completion_tokens": 1, "cost": 0}), 0),
        (json!({"prompt_tokens": 1, "completion_tokens": 1, "cost": {"total_cost": 0.006}}), 6_000),
        (json!({"prompt_tokens": 1, "completion_tokens": 1, "cost_in_usd_ticks": 10_112_000}), 1_012),
        (
            json!({"prompt_tokens": 1, "completion_tokens": 1, "cost": 0.000_05, "is_byok": true,
                "cost_details": {"upstream_inference_cost": 0.001}}),
            1_050,
        ),
    ] {
        let (state, _) = run("openai/gpt-5", None, Some(told.clone()), None).await;
        assert_eq!((state.status, state.cost, state.unpriced), (Status::Completed, 2 * cost, 0), "{told}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_without_usage_of_a_model_with_a_price_is_unknown() {
    let (state, _) = run("openai/gpt-5", None, None, None).await;
    assert_eq!((state.status, state.cost, state.unpriced), (Status::Completed, 0, 2));
    let free = r#"{"openai/gpt-5": {"input": 0, "output": 0}}"#;
    let (state, _) = run("openai/gpt-5", Some(free), None, None).await;
    assert_eq!((state.cost, state.unpriced), (0, 0), "what is said to be free is free");
}

/// Price known or not, cost told or not: a limit stops the run, or refuses it before the first call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_of_cost_holds_or_is_an_error() {
    let dear = r#"{"acme/one": {"input": 1000000, "output": 1000000}}"#;
    let told = json!({"prompt_tokens": 1, "completion_tokens": 1, "cost": 0.01});
    for (name, prices, usage, asked, words) in [
        // Known: the first call uses it up.
        ("acme/one", Some(dear), Some(used()), 1, "used $0.0011 of $0.0010"),
        ("openrouter/x/y", None, Some(told.clone()), 1, "used $0.0100 of $0.0010"),
        // Not known: nobody is asked.
        ("acme/one", None, Some(used()), 0, "the price of acme/one is not known"),
        ("local/m", None, Some(used()), 0, "give the model a price"),
        // It should have been told, and was not.
        ("acme/one", Some(dear), None, 1, "1 reply of unknown cost"),
        ("openrouter/x/y", None, Some(used()), 1, "1 reply of unknown cost"),
    ] {
        let (state, times) = run(name, prices, usage, Some(1_000)).await;
        let error = state.error.clone().unwrap_or_default();
        assert_eq!((state.status, times), (Status::Failed, asked), "{name}: {error}");
        assert!(error.contains(words), "{name}: {error}");
    }
    let free = r#"{"local/m": {"input": 0, "output": 0}}"#;
    let (state, times) = run("local/m", Some(free), Some(used()), Some(1_000)).await;
    assert_eq!((state.status, state.cost, times), (Status::Completed, 0, 3));
}
