//! Tools that need something from the client first: they ask for it in their result, and the client calls again.

use rmcp::model::*;
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value, json};

use crate::fixture::Fixture;
use crate::tools::said;

/// An input request with one field.
pub(crate) fn elicit(message: &str, field: &str, kind: &str) -> InputRequest {
    let schema = json!({"type": "object", "properties": {field: {"type": kind}}, "required": [field]});
    InputRequest::Elicitation(ElicitRequest::new(form(message, schema)))
}

pub(crate) fn form(message: &str, schema: Value) -> ElicitRequestParams {
    let requested_schema = serde_json::from_value(schema).unwrap();
    ElicitRequestParams::FormElicitationParams { meta: None, message: message.to_owned(), requested_schema }
}

fn sampling(prompt: &str) -> InputRequest {
    let params = CreateMessageRequestParams::new(vec![SamplingMessage::user_text(prompt)], 100);
    InputRequest::CreateMessage(CreateMessageRequest::new(params))
}

fn roots() -> InputRequest {
    InputRequest::ListRoots(ListRootsRequest::default())
}

pub(crate) fn ask<const N: usize>(
    requests: [(&str, InputRequest); N],
    state: Option<String>,
) -> CallToolResponse {
    let requests = requests.into_iter().map(|(key, request)| (key.to_owned(), request)).collect();
    InputRequiredResult::new(Some(requests), state).into()
}

impl Fixture {
    /// A new state with this meaning, to be given back by the client.
    fn state(&self, meaning: &str) -> Option<String> {
        let state = format!("{meaning}:{}", uuid::Uuid::now_v7());
        self.states.lock().unwrap().insert(state.clone());
        Some(state)
    }

    /// What a state means. Fails if it is not one of ours.
    fn meaning(&self, state: &str) -> Result<String, ErrorData> {
        match self.states.lock().unwrap().contains(state) {
            true => Ok(state.split(':').next().unwrap_or_default().to_owned()),
            false => Err(ErrorData::invalid_params("`requestState` is not from this server", None)),
        }
    }

    pub(crate) fn input_required(
        &self,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let reply = |key: &str| {
            let found = request.input_responses.as_ref().and_then(|replies| replies.get(key));
            found.filter(|reply| reply.is_object())
        };
        let state = request.request_state.as_deref().map(|state| self.meaning(state)).transpose()?;
        let name = || ("user_name", elicit("What is your name?", "name", "string"));
        let short = request.name.strip_prefix("test_input_required_result_").unwrap_or_default();
        Ok(match short {
            "elicitation" => match reply("user_name") {
                Some(reply) => {
                    said(format!("Hello, {}!", reply["content"]["name"].as_str().unwrap_or("friend")))
                }
                None => ask([name()], None),
            },
            "sampling" => match reply("capital_question") {
                Some(reply) => said(format!("Sampled: {}", reply["content"])),
                None => ask([("capital_question", sampling("What is the capital of France?"))], None),
            },
            "list_roots" => match reply("client_roots") {
                Some(reply) => said(format!("Roots: {}", reply["roots"])),
                None => ask([("client_roots", roots())], None),
            },
            "request_state" | "tampered_state" => match state {
                Some(_) => said("Confirmed: state-ok"),
                None => ask([("confirm", elicit("Please confirm", "ok", "boolean"))], self.state("confirm")),
            },
            "multiple_inputs" => {
                let all = ["user_name", "greeting", "client_roots"].iter().all(|key| reply(key).is_some());
                match all && state.is_some() {
                    true => said("All inputs received"),
                    false => {
                        let rest = [name(), ("greeting", sampling("Greet.")), ("client_roots", roots())];
                        ask(rest, self.state("gather"))
                    }
                }
            }
            "multi_round" => match state.as_deref() {
                None => ask([("step1", elicit("Your name?", "name", "string"))], self.state("1")),
                Some("1") => ask([("step2", elicit("Your colour?", "color", "string"))], self.state("2")),
                Some(_) => said("Multi-round flow complete"),
            },
            "capabilities" if request.input_responses.is_some() => said("Complete"),
            "capabilities" => {
                let has = context.meta.client_capabilities().unwrap_or_default();
                let mut requests = InputRequests::new();
                if has.elicitation.is_some() {
                    requests.extend([("user_name".to_owned(), name().1)]);
                }
                if has.sampling.is_some() {
                    requests.insert("greeting".to_owned(), sampling("Greet."));
                }
                if has.roots.is_some() {
                    requests.insert("client_roots".to_owned(), roots());
                }
                match requests.is_empty() {
                    true => said("There is nothing to ask with"),
                    false => InputRequiredResult::from_input_requests(requests).into(),
                }
            }
            _ => return Err(ErrorData::invalid_params(format!("there is no tool {}", request.name), None)),
        })
    }
}
