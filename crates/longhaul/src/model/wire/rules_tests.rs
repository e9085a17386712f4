//! What is sent to providers keeps its meaning: schemas, answers, names and ids of a whole conversation, in
//! all four families. `published_tests.rs` checks that the providers accept it.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::openai_chat::{OpenAiChat, Quirks};
use super::openai_responses::OpenAiResponses;
use super::testing::conversation::{CANNOT, awkward, body_of, families, shape, tools_of};
use super::{Anthropic, Gemini, WireProtocol};
use crate::model::settings::StructuredOutput;

#[test]
fn tools_of_mcp_servers_are_what_each_provider_takes() {
    let tools = awkward();
    for (family, model, wire) in families() {
        let offered = tools_of(family, &body_of(&*wire, model, &tools, None));
        assert_eq!(offered.len(), tools.len() - 1, "{family}: only {CANNOT} is left out");
        let mut names = HashSet::new();
        for (name, description, _) in &offered {
            assert!(names.insert(name.clone()) && name != CANNOT && description.starts_with("Does "));
        }
        let of = |name: &str| offered.iter().find(|one| one.0 == name).unwrap();
        // The meaning is kept, in words if necessary.
        let (_, words, folded) = of("root_one_of");
        for name in ["kind", "x", "y"] {
            assert!(folded["properties"].get(name).is_some(), "{family}: {folded}");
        }
        assert_eq!(folded["required"], json!(["kind"]), "{family}");
        assert!(words.contains("kind = \"a\", x; or kind = \"b\", y"), "{family}: {words}");
        assert!(of("root_any_of").1.contains("route; or file"), "{family}: {}", of("root_any_of").1);
        let (_, _, all) = of("root_all_of");
        assert_eq!(all["required"].as_array().unwrap().len(), 2, "{family}: {all}");
        assert!(all["properties"]["id"]["description"].as_str().unwrap().contains("format: uri"));
        let (_, words, keywords) = of("keywords");
        assert!(words.contains("minProperties: 1"), "{family}: {words}");
        let told = |name: &str| keywords["properties"][name].to_string();
        assert!(
            told("mail").contains("idn-email") && told("mail").contains("(?!x)"),
            "{family}: {}",
            told("mail")
        );
        assert!(told("if").contains("minLength") && told("not").contains("not: "), "{family}");
        assert!(told("far").contains("https://example.com/schema.json"), "{family}: {}", told("far"));
        assert_eq!(keywords["required"], json!(["draft3"]), "{family}");
        assert!(of("tree").2.to_string().contains("again as above: Node"), "{family}: {}", of("tree").2);
    }
}

#[test]
fn a_structured_answer_is_asked_for_in_each_familys_own_form() {
    let shape = shape(true);
    for (family, model, wire) in families() {
        let body = body_of(&*wire, model, &awkward(), Some(&shape));
        let schema = match family {
            "openai" => {
                assert_eq!(body["response_format"]["type"], "json_schema");
                let format = &body["response_format"]["json_schema"];
                assert_eq!(format["strict"], true);
                &format["schema"]
            }
            "responses" => {
                let format = &body["text"]["format"];
                assert_eq!((&format["type"], &format["strict"]), (&json!("json_schema"), &json!(true)));
                &format["schema"]
            }
            "anthropic" => {
                assert_eq!(body["output_config"]["format"]["type"], "json_schema");
                &body["output_config"]["format"]["schema"]
            }
            _ => {
                assert_eq!(body["generationConfig"]["responseMimeType"], "application/json");
                &body["generationConfig"]["responseJsonSchema"]
            }
        };
        assert_eq!(schema["properties"]["when"]["properties"]["year"]["type"], "integer", "{family}");
    }
}

/// A model that is not held to the schema is told about it; a schema that cannot be strict is not refused.
#[test]
fn who_cannot_be_held_to_a_schema_gets_it_in_words() {
    let shape = shape(true);
    let chat = |provider: &str| OpenAiChat::new(Quirks::for_provider(provider));
    let words = "It fits the JSON schema `The answer!` (What was found.):\n{";
    let tools = awkward();
    for (provider, tools, in_words) in [
        ("deepseek", &tools[..], true),
        ("groq", &[], true),
        ("llamacpp", &tools, true),
        ("ollama", &tools, true),
        ("llamacpp", &[], false),
        ("mistral", &tools, false),
    ] {
        let body = body_of(&chat(provider), "m", tools, Some(&shape));
        let system = body["messages"][0]["content"].as_str().unwrap();
        assert_eq!(system.contains(words), in_words, "{provider}: {system}");
        assert_eq!(body.get("response_format").is_none(), in_words, "{provider}");
    }
    for (wire, model) in [
        (&Anthropic as &dyn WireProtocol, "claude-sonnet-4-0"),
        (&Anthropic, "qwen2.5"),
        (&Gemini, "gemini-2.5-pro"),
    ] {
        let body = body_of(wire, model, &tools, Some(&shape));
        assert!(body.to_string().contains("It fits the JSON schema `The answer!`"), "{model}");
        assert!(
            body["output_config"].get("format").is_none()
                && body["generationConfig"].get("responseJsonSchema").is_none()
        );
    }
    let optional = StructuredOutput {
        schema: json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "required": ["a"]}),
        ..shape.clone()
    };
    let format =
        body_of(&chat("openai"), "gpt-5", &[], Some(&optional))["response_format"]["json_schema"].clone();
    assert_eq!((&format["strict"], &format["schema"]["required"]), (&json!(false), &json!(["a"])));
    let list = StructuredOutput { schema: json!({"type": "array", "items": {"type": "string"}}), ..shape };
    let body = body_of(&OpenAiResponses::new(), "gpt-5", &[], Some(&list));
    assert!(body.get("text").is_none() && body["instructions"].as_str().unwrap().contains("JSON schema"));
}

#[test]
fn names_and_ids_of_calls_fit_and_belong_together() {
    let tools = awkward();
    for (family, model, wire) in families() {
        let body = body_of(&*wire, model, &tools, None);
        // Calls and results, in order: (name, id).
        let (mut calls, mut results) = (Vec::new(), Vec::new());
        match family {
            "openai" => {
                for message in body["messages"].as_array().unwrap() {
                    for call in message["tool_calls"].as_array().into_iter().flatten() {
                        assert!(call["function"]["arguments"].is_string());
                        calls.push((call["function"]["name"].clone(), call["id"].clone()));
                    }
                    if message["role"] == "tool" {
                        results.push(message["tool_call_id"].clone());
                        assert_ne!(message["content"], "");
                    }
                }
            }
            "responses" => {
                for item in body["input"].as_array().unwrap() {
                    match item["type"].as_str().unwrap() {
                        "function_call" => calls.push((item["name"].clone(), item["call_id"].clone())),
                        "function_call_output" => results.push(item["call_id"].clone()),
                        "reasoning" => {
                            assert!(item["encrypted_content"].is_string() && item["summary"].is_array())
                        }
                        _ => {}
                    }
                }
            }
            "anthropic" => {
                for block in
                    body["messages"].as_array().unwrap().iter().flat_map(|m| m["content"].as_array().unwrap())
                {
                    match block["type"].as_str().unwrap() {
                        "tool_use" => {
                            assert!(block["input"].is_object());
                            calls.push((block["name"].clone(), block["id"].clone()));
                        }
                        "tool_result" => results.push(block["tool_use_id"].clone()),
                        "thinking" => assert!(block["signature"].is_string()),
                        _ => {}
                    }
                }
            }
            _ => {
                for part in
                    body["contents"].as_array().unwrap().iter().flat_map(|m| m["parts"].as_array().unwrap())
                {
                    if let Some(call) = part.get("functionCall") {
                        assert!(call["args"].is_object());
                        calls.push((call["name"].clone(), call["id"].clone()));
                    }
                    if let Some(result) = part.get("functionResponse") {
                        assert!(result["response"].is_object());
                        results.push(result["id"].clone());
                    }
                }
            }
        }
        assert_eq!(calls.len(), 7, "{family}");
        let ids: Vec<Value> = calls.iter().map(|(_, id)| id.clone()).collect();
        assert_eq!(ids, results, "{family}: each call has its result");
        let names: HashSet<&str> = calls.iter().map(|(name, _)| name.as_str().unwrap()).collect();
        assert_eq!(names.len(), 6, "{family}: no two names become one");
        // A call of an offered tool uses exactly the name it was offered by.
        let offered = tools_of(family, &body);
        assert!(offered.iter().any(|tool| json!(tool.0) == calls[1].0), "{family}: {:?}", calls[1]);
    }
}
