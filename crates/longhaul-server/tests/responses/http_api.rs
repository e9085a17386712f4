//! The routes, one by one.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::event_checks::{numbers, output_text};
use crate::stage::Stage;

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap().strip_prefix("response.").unwrap()).collect()
}

#[tokio::test]
async fn a_request_waits_for_its_answer() {
    let stage = Stage::new().await;
    let body = json!({ "model": "alpha", "input": "hello", "metadata": { "ticket": "7" } });
    let response = stage.create(body).await;
    assert_eq!(response["status"], "completed");
    assert_eq!(response["model"], "alpha/lead");
    assert_eq!(response["metadata"], json!({ "ticket": "7" }));
    assert_eq!(response["background"], false);
    assert_eq!(response["usage"]["total_tokens"], 15);
    assert!(response["completed_at"].as_i64().unwrap() >= response["created_at"].as_i64().unwrap());
    assert!(output_text(&response).starts_with("answer 1 to"), "{response}");
    assert_eq!(response["output"][0]["phase"], "final_answer");
    assert_eq!(response["output"].as_array().unwrap().len(), 1);
    let id = response["id"].as_str().unwrap();
    assert_eq!(stage.get(&format!("/v1/responses/{id}")).await, response);
    let by_task = id.replace("resp_", "t-");
    assert_eq!(stage.get(&format!("/v1/responses/{by_task}")).await, response);
}

#[tokio::test]
async fn instructions_are_context_of_the_order_and_input_items_tell_what_was_asked() {
    let stage = Stage::new().await;
    let body = json!({ "model": "beta/clerk", "instructions": "Be brief.", "background": true,
        "input": [{ "role": "user", "content": [{ "type": "input_text", "text": "hello" }] }] });
    let response = stage.create(body).await;
    assert!(["queued", "in_progress", "completed"].contains(&response["status"].as_str().unwrap()));
    assert_eq!((&response["background"], &response["instructions"]), (&json!(true), &json!("Be brief.")));
    let id = response["id"].as_str().unwrap();
    let items = stage.get(&format!("/v1/responses/{id}/input_items?order=asc")).await;
    let texts: Vec<_> = items["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| (&item["role"], &item["content"][0]["text"]))
        .collect();
    assert_eq!(texts, [(&json!("developer"), &json!("Be brief.")), (&json!("user"), &json!("hello"))]);
    let page = stage.get(&format!("/v1/responses/{id}/input_items?limit=1")).await;
    assert_eq!((&page["has_more"], &page["data"][0]["role"]), (&json!(true), &json!("user")));
    let after = page["last_id"].as_str().unwrap();
    let page = stage.get(&format!("/v1/responses/{id}/input_items?limit=1&after={after}")).await;
    assert_eq!((&page["has_more"], &page["data"][0]["role"]), (&json!(false), &json!("developer")));
    let events = stage.events(Method::GET, &format!("/v1/responses/{id}?stream=true"), None).await;
    assert_eq!(kinds(&events).last(), Some(&"completed"));
    let task = id.strip_prefix("resp_").unwrap().parse().unwrap();
    let order = stage.backend.longhaul().order(task).await.unwrap();
    assert_eq!((order.context.as_deref(), &*order.task), (Some("Be brief."), "hello"));
}

#[tokio::test]
async fn a_stream_has_every_event_once_and_continues_anywhere() {
    let stage = Stage::new().await;
    let body = json!({ "model": "alpha/lead", "input": "look", "stream": true });
    let events = stage.events(Method::POST, "/v1/responses", Some(body)).await;
    let all = kinds(&events);
    assert_eq!(all[..5], ["created", "queued", "in_progress", "output_item.added", "content_part.added"]);
    let ends = ["output_text.done", "content_part.done", "output_item.done", "completed"];
    assert_eq!(all[all.len() - 4..], ends);
    let numbers = numbers(&events);
    assert!(numbers.is_sorted_by(|a, b| a < b));
    let (first, last) = (&events[0]["response"], &events[events.len() - 1]["response"]);
    assert_eq!(
        (&first["id"], &first["status"], &first["output"]),
        (&last["id"], &json!("queued"), &json!([]))
    );
    // The commentary is in the stream; the output is the answer.
    let delta = |index: u64| -> String {
        let of =
            |event: &&Value| event["type"] == "response.output_text.delta" && event["output_index"] == index;
        events.iter().filter(of).map(|event| event["delta"].as_str().unwrap()).collect()
    };
    assert_eq!((delta(0), delta(1)), ("Let me look.".to_owned(), output_text(last)));
    let id = last["id"].as_str().unwrap();
    for (at, number) in numbers.iter().enumerate() {
        let rest = format!("/v1/responses/{id}?stream=true&starting_after={number}");
        assert_eq!(stage.events(Method::GET, &rest, None).await, events[at + 1..], "after {number}");
    }
    assert_eq!(stage.events(Method::GET, &format!("/v1/responses/{id}?stream=true"), None).await, events);
}

#[tokio::test]
async fn reasoning_tool_calls_and_commentary_are_shown_on_request() {
    let stage = Stage::new().await;
    let include = json!(["longhaul.tool_calls", "longhaul.commentary"]);
    let body =
        json!({ "model": "alpha", "input": "look", "include": include, "reasoning": { "summary": "auto" } });
    let response = stage.create(body).await;
    let kinds: Vec<_> =
        response["output"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(
        kinds,
        ["reasoning", "message", "function_call", "function_call_output", "reasoning", "message"]
    );
    assert_eq!(response["output"][1]["phase"], "commentary");
    let (call, result) = (&response["output"][2], &response["output"][3]);
    assert_eq!((&call["name"], &call["arguments"]), (&json!("look"), &json!("{\"at\":\"it\"}")));
    assert_eq!((&result["call_id"], &result["output"]), (&call["call_id"], &json!("done")));
    let id = response["id"].as_str().unwrap();
    let path = format!(
        "/v1/responses/{id}?include[]=longhaul.reasoning&include[]=longhaul.tool_calls&include[]=longhaul.commentary"
    );
    assert_eq!(stage.get(&path).await, response);
    let events = stage.events(Method::GET, &format!("{path}&stream=true"), None).await;
    assert!(numbers(&events).is_sorted_by(|a, b| a < b));
    let done = events.iter().filter(|event| event["type"] == "response.output_item.done");
    let mut items = Vec::new();
    for (at, event) in done.enumerate() {
        assert_eq!(event["output_index"], at);
        items.push(event["item"].clone());
    }
    assert_eq!(json!(items), response["output"]);
    let plain = stage.get(&format!("/v1/responses/{id}")).await;
    assert_eq!(plain["output"], json!([response["output"][5]]));
}

#[tokio::test]
async fn a_previous_response_is_continued_by_a_letter() {
    let stage = Stage::new().await;
    let first = stage.create(json!({ "model": "alpha", "input": "one", "metadata": { "n": "1" } })).await;
    let body = json!({ "model": "alpha", "input": "two", "previous_response_id": first["id"],
        "instructions": "Loudly.", "metadata": { "n": "2" }, "background": false });
    let key = [("idempotency-key", "follow-up")];
    let send = || stage.send_with(Method::POST, "/v1/responses", Some(body.to_string()), &key);
    let (_, second) = send().await;
    assert_eq!(second["previous_response_id"], first["id"]);
    assert_ne!(second["id"], first["id"]);
    assert_eq!(second["metadata"], json!({ "n": "2" }));
    assert!(output_text(&second).contains("answer 2"), "{second}");
    assert!(output_text(&second).contains("Loudly."), "{second}");
    assert_eq!(send().await.1, second, "the same key sends no second letter");
    let other = json!({ "input": "else", "previous_response_id": first["id"] }).to_string();
    let (status, error) = stage.send_with(Method::POST, "/v1/responses", Some(other), &key).await;
    assert_eq!((status, &error["error"]["param"]), (409, &json!("Idempotency-Key")));
    let id = second["id"].as_str().unwrap();
    assert_eq!(stage.get(&format!("/v1/responses/{id}")).await, second);
    // Without a model, too; another one is refused.
    let third = stage.create(json!({ "input": "three", "previous_response_id": second["id"] })).await;
    assert!(output_text(&third).contains("answer 3"), "{third}");
    assert_eq!(third["metadata"], json!({}));
    let other = json!({ "model": "beta", "input": "x", "previous_response_id": second["id"] });
    let (status, error) = stage.refused(Method::POST, "/v1/responses", Some(other.to_string())).await;
    assert_eq!((status, &error["param"]), (400, &json!("model")));
}

#[tokio::test]
async fn a_letter_reaches_a_response_that_still_runs() {
    let stage = Stage::with_pause(Duration::from_millis(20)).await;
    let first = stage.create(json!({ "model": "alpha", "input": "count", "background": true })).await;
    let body = json!({ "input": "stop there", "previous_response_id": first["id"], "background": true });
    let second = stage.create(body).await;
    assert_eq!(second["id"], first["id"]);
    let id = second["id"].as_str().unwrap();
    let events = stage.events(Method::GET, &format!("/v1/responses/{id}?stream=true"), None).await;
    assert!(output_text(&events[events.len() - 1]["response"]).contains("stop there"));
    let items = stage.get(&format!("/v1/responses/{id}/input_items")).await;
    assert_eq!(items["data"][0]["content"][0]["text"], "stop there");
}

#[tokio::test]
async fn the_same_key_is_the_same_response() {
    let stage = Stage::new().await;
    let key = [("Idempotency-Key", "nightly")];
    let send = |input: &str| {
        let body = json!({ "model": "alpha", "input": input });
        let (stage, key) = (&stage, &key);
        async move { stage.send_with(Method::POST, "/v1/responses", Some(body.to_string()), key).await }
    };
    let (first, again) = (send("one").await, send("one").await);
    assert_eq!(first, again);
    let (status, error) = send("two").await;
    assert_eq!((status, &error["error"]["param"]), (409, &json!("Idempotency-Key")));
}

#[tokio::test]
async fn a_cancelled_response_says_so_in_every_way() {
    let stage = Stage::with_pause(Duration::from_millis(50)).await;
    let response = stage.create(json!({ "model": "alpha", "input": "count", "background": true })).await;
    let id = response["id"].as_str().unwrap();
    let (status, cancelled) = stage.send(Method::POST, &format!("/v1/responses/{id}/cancel"), None).await;
    assert_eq!((status, &cancelled["status"]), (200, &json!("cancelled")));
    let events = stage.events(Method::GET, &format!("/v1/responses/{id}?stream=true"), None).await;
    let last = &events[events.len() - 1];
    assert_eq!(
        (&last["type"], &last["response"]["status"]),
        (&json!("response.incomplete"), &json!("cancelled"))
    );
    let (status, again) = stage.send(Method::POST, &format!("/v1/responses/{id}/cancel"), None).await;
    assert_eq!((status, again), (200, cancelled));
}

#[tokio::test]
async fn a_failed_response_says_why() {
    let stage = Stage::new().await;
    let response = stage.create(json!({ "model": "alpha", "input": "fail" })).await;
    assert_eq!((&response["status"], &response["error"]["code"]), (&json!("failed"), &json!("server_error")));
    assert!(response["error"]["message"].as_str().unwrap().contains("no answer"), "{response}");
    let id = response["id"].as_str().unwrap();
    let events = stage.events(Method::GET, &format!("/v1/responses/{id}?stream=true"), None).await;
    assert_eq!(kinds(&events).last(), Some(&"failed"));
}

#[tokio::test]
async fn a_response_that_needs_a_person_says_so_and_goes_on_after_the_answer() {
    let stage = Stage::new().await;
    // A request that waits comes back: nobody could answer it otherwise.
    let response = stage.create(json!({ "model": "alpha", "input": "write" })).await;
    assert_eq!(response["status"], "in_progress");
    assert!(response["metadata"]["longhaul.needs"].as_str().unwrap().contains("write"), "{response}");
    let id = response["id"].as_str().unwrap();
    assert_eq!(response["metadata"]["longhaul.task"], id.replace("resp_", "t-"));
    let task = id.strip_prefix("resp_").unwrap().parse().unwrap();
    let question = response["metadata"]["longhaul.question"].as_str().unwrap().parse().unwrap();
    stage.backend.answer(task, Some(question), "yes").await.unwrap();
    let events = stage.events(Method::GET, &format!("/v1/responses/{id}?stream=true"), None).await;
    let needs: Vec<bool> = events
        .iter()
        .filter(|event| event["type"] == "response.in_progress")
        .map(|event| event["response"]["metadata"].get("longhaul.needs").is_some())
        .collect();
    assert_eq!(needs, [false, true, false]);
    let last = stage.get(&format!("/v1/responses/{id}")).await;
    assert_eq!((&last["status"], &last["metadata"]), (&json!("completed"), &json!({})));
}

#[tokio::test]
async fn models_are_the_teams_and_their_agents() {
    let stage = Stage::new().await;
    let models = stage.get("/v1/models").await;
    let ids: Vec<_> =
        models["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["alpha", "alpha/lead", "alpha/scout", "beta", "beta/lead", "beta/clerk"]);
    for id in ["alpha", "alpha/lead", "alpha%2Flead", "scout"] {
        let model = stage.get(&format!("/v1/models/{id}")).await;
        assert_eq!((&model["object"], &model["owned_by"]), (&json!("model"), &json!("longhaul")));
    }
    for (id, expected) in [("gamma", 404), ("alpha/clerk", 404), ("lead", 400)] {
        assert_eq!(stage.refused(Method::GET, &format!("/v1/models/{id}"), None).await.0, expected);
    }
}

#[tokio::test]
async fn bad_requests_are_refused_in_openais_words() {
    let stage = Stage::new().await;
    for (status, param, body) in [
        (400, json!("model"), json!({ "input": "x" })),
        (404, json!("model"), json!({ "model": "gpt-4o", "input": "x" })),
        (400, json!("model"), json!({ "model": "lead", "input": "x" })),
        (400, json!("tools"), json!({ "model": "alpha", "input": "x", "tools": [{ "type": "web_search" }] })),
        (400, json!("store"), json!({ "model": "alpha", "input": "x", "background": true, "store": false })),
        (400, json!("previous_response_id"), json!({ "input": "x", "previous_response_id": "resp_00000" })),
        (413, json!("input"), json!({ "model": "alpha", "input": "x".repeat(1_100_000) })),
    ] {
        let refused = stage.refused(Method::POST, "/v1/responses", Some(body.to_string())).await;
        assert_eq!((refused.0, &refused.1["param"]), (status, &param), "{}", refused.1);
    }
    for body in ["", "{", "[]", "\u{1}", "{\"input\": \"\u{0}\"}"] {
        stage.refused(Method::POST, "/v1/responses", Some(body.to_owned())).await;
    }
    let long = json!({ "model": "alpha", "input": "x".repeat(3_000_000) }).to_string();
    assert_eq!(stage.refused(Method::POST, "/v1/responses", Some(long)).await.0, 413);
    for id in ["resp_00000", "resp_", "nothing", "..%2f..", "resp_%00", "t-00000"] {
        for (method, path) in [
            (Method::GET, format!("/v1/responses/{id}")),
            (Method::GET, format!("/v1/responses/{id}?stream=true")),
            (Method::POST, format!("/v1/responses/{id}/cancel")),
            (Method::GET, format!("/v1/responses/{id}/input_items")),
        ] {
            assert_eq!(stage.refused(method, &path, None).await.0, 404, "{path}");
        }
    }
    let id = stage.create(json!({ "model": "alpha", "input": "x" })).await["id"].as_str().unwrap().to_owned();
    for query in ["stream=perhaps", "stream=true&starting_after=x", "starting_after=3", "include=secrets"] {
        assert_eq!(stage.refused(Method::GET, &format!("/v1/responses/{id}?{query}"), None).await.0, 400);
    }
    for query in ["limit=0", "limit=x", "order=up", "after=x"] {
        let path = format!("/v1/responses/{id}/input_items?{query}");
        assert_eq!(stage.refused(Method::GET, &path, None).await.0, 400);
    }
    assert_eq!(stage.refused(Method::DELETE, &format!("/v1/responses/{id}"), None).await.0, 405);
    assert_eq!(stage.refused(Method::PUT, "/v1/responses", None).await.0, 405);
}

#[tokio::test]
async fn a_client_that_leaves_stops_nothing() {
    let stage = Stage::with_pause(Duration::from_millis(5)).await;
    let body = json!({ "model": "alpha", "input": "count" }).to_string();
    let key = [("Idempotency-Key", "left")];
    let request = stage.send_with(Method::POST, "/v1/responses", Some(body.clone()), &key);
    assert!(tokio::time::timeout(Duration::from_millis(100), request).await.is_err(), "it takes 300 ms");
    let (status, response) = stage.send_with(Method::POST, "/v1/responses", Some(body), &key).await;
    assert_eq!((status, &response["status"]), (200, &json!("completed")));
    assert!(output_text(&response).ends_with("ä59"));
    assert!(stage.url().starts_with("http://127.0.0.1:"));
}
