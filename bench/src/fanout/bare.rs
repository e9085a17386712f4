//! The least that can be done: the same requests in a loop around reqwest, and nothing written down.

use std::error::Error;
use std::sync::Arc;

use reqwest::header::{CONTENT_TYPE, HeaderValue};
use serde::Deserialize;
use tokio::sync::Semaphore;

use super::order;

/// What every agent is told.
const SYSTEM: &str = "You look at places and tell what is there, in few words and without guessing.";

#[derive(Deserialize)]
struct BareChunk {
    choices: Vec<BareChoice>,
}

#[derive(Deserialize)]
struct BareChoice {
    delta: BareDelta,
}

#[derive(Deserialize)]
struct BareDelta {
    content: Option<String>,
    #[serde(default)]
    tool_calls: Vec<BareToolCall>,
}

#[derive(Deserialize)]
struct BareToolCall {
    id: Option<String>,
    function: BareFunction,
}

#[derive(Deserialize)]
struct BareFunction {
    name: Option<String>,
    arguments: String,
}

#[derive(Default)]
struct BareReply {
    text: String,
    id: String,
    tool: String,
    arguments: String,
}

/// Runs so many agents to their end, with at most `gate` requests at once (0: any number).
pub(crate) async fn measure_bare(url: &str, agents: usize, gate: usize) -> Result<(), Box<dyn Error>> {
    // The library brings its own cryptography; a bare client wants some installed, though it is asked for none here.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().no_proxy().build()?;
    let gate = Arc::new(Semaphore::new(if gate == 0 { Semaphore::MAX_PERMITS } else { gate }));
    let url: reqwest::Url = format!("{url}/chat/completions").parse()?;
    let tools = tools();
    let mut running = tokio::task::JoinSet::new();
    for n in 0..agents {
        let (client, gate, url, tools) = (client.clone(), gate.clone(), url.clone(), tools.clone());
        running.spawn(async move { agent(n, &client, &gate, &url, &tools).await.map_err(|e| e.to_string()) });
    }
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    Ok(())
}

/// The tool `think`, as Longhaul describes it to the model.
fn tools() -> Arc<str> {
    r#""tools":[{"type":"function","function":{"name":"think","description":"Use the tool to think about something. It will not obtain new information or change anything, but just append the thought to the log.","parameters":{"type":"object","properties":{"thought":{"type":"string","description":"The thought to think about"}},"required":["thought"],"additionalProperties":false}}}]"#.into()
}

async fn agent(
    n: usize,
    client: &reqwest::Client,
    gate: &Semaphore,
    url: &reqwest::Url,
    tools: &str,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut messages =
        format!(r#"{{"role":"system","content":"{SYSTEM}"}},{{"role":"user","content":"{}"}}"#, order(n));
    loop {
        let body = format!(
            r#"{{"model":"bench-1","stream":true,"stream_options":{{"include_usage":true}},"messages":[{messages}],{tools}}}"#
        );
        let reply = {
            let _permit = gate.acquire().await?;
            send_request(client, url.clone(), body).await?
        };
        if reply.id.is_empty() {
            return Ok(());
        }
        let arguments = serde_json::to_string(&reply.arguments)?;
        messages.push_str(&format!(
            r#",{{"role":"assistant","content":{},"tool_calls":[{{"id":"{}","type":"function","function":{{"name":"{}","arguments":{arguments}}}}}]}},{{"role":"tool","tool_call_id":"{}","content":"The thought was logged."}}"#,
            serde_json::to_string(&reply.text)?, reply.id, reply.tool, reply.id
        ));
    }
}

async fn send_request(
    client: &reqwest::Client,
    url: reqwest::Url,
    body: String,
) -> Result<BareReply, Box<dyn Error + Send + Sync>> {
    let request =
        client.post(url).header(CONTENT_TYPE, HeaderValue::from_static("application/json")).body(body);
    let mut response = request.send().await?.error_for_status()?;
    let mut reply = BareReply::default();
    let mut rest: Vec<u8> = Vec::new();
    while let Some(bytes) = response.chunk().await? {
        rest.extend_from_slice(&bytes);
        let mut from = 0;
        while let Some(end) = rest[from..].windows(2).position(|w| w == b"\n\n") {
            parse_event(&rest[from..from + end], &mut reply)?;
            from += end + 2;
        }
        rest.drain(..from);
    }
    Ok(reply)
}

fn parse_event(event: &[u8], reply: &mut BareReply) -> serde_json::Result<()> {
    let Some(data) = event.strip_prefix(b"data: ").filter(|data| *data != b"[DONE]") else { return Ok(()) };
    let frame: BareChunk = serde_json::from_slice(data)?;
    for choice in frame.choices {
        reply.text.push_str(choice.delta.content.as_deref().unwrap_or_default());
        for piece in choice.delta.tool_calls {
            reply.id.push_str(piece.id.as_deref().unwrap_or_default());
            reply.tool.push_str(piece.function.name.as_deref().unwrap_or_default());
            reply.arguments.push_str(&piece.function.arguments);
        }
    }
    Ok(())
}
