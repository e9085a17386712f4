//! What the events of a response have to say.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// The data of server-sent events; each event has the name that its data says.
pub(crate) fn parse_events(text: &str) -> Vec<Value> {
    let blocks = text.split("\n\n").filter(|block| block.contains("data:"));
    blocks
        .map(|block| {
            let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
            let data: Value = serde_json::from_str(field("data:")).unwrap();
            assert_eq!(data["type"], field("event:"));
            data
        })
        .collect()
}

pub(crate) fn output_text(response: &Value) -> String {
    let messages = response["output"].as_array().unwrap().iter().filter(|item| item["type"] == "message");
    messages.filter_map(|item| item["content"][0]["text"].as_str()).collect()
}

pub(crate) fn numbers(events: &[Value]) -> Vec<u64> {
    events.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect()
}

/// The texts of the messages as a client has put them together, and what the server says about each at its end.
pub(crate) fn check_whole(events: &[Value]) {
    assert!(numbers(events).is_sorted_by(|a, b| a < b), "{:?}", numbers(events));
    let mut texts: BTreeMap<&str, String> = BTreeMap::new();
    for event in events {
        match event["type"].as_str().unwrap() {
            "response.output_text.delta" => {
                let text = texts.entry(event["item_id"].as_str().unwrap()).or_default();
                text.push_str(event["delta"].as_str().unwrap());
            }
            "response.output_item.done" if event["item"]["status"] == "completed" => {
                let (id, text) = (&event["item"]["id"], &event["item"]["content"][0]["text"]);
                assert_eq!(json!(texts[id.as_str().unwrap()]), *text);
            }
            _ => {}
        }
    }
    let last = &events.last().unwrap()["response"];
    assert_eq!(last["status"], "completed");
    assert_eq!(texts[last["output"][0]["id"].as_str().unwrap()], output_text(last));
}
