//! The messages of the A2A protocol, in both of its versions.

use indexmap::IndexMap;
use serde_json::{Value, json};

/// The protocol version. 0.2 and 0.3 name methods like paths (`message/send`); 1.0 names them like functions
/// (`SendMessage`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum A2aVersion {
    V0,
    V1,
}

/// The methods that are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum A2aMethod {
    Send,
    Stream,
    Get,
    Cancel,
}

/// A message to an agent.
#[derive(Debug, Clone)]
pub(super) struct A2aMessage {
    pub(super) id: String,
    pub(super) text: String,
    /// The task that the message continues, and the conversation that it belongs to.
    pub(super) task: Option<String>,
    pub(super) context: Option<String>,
}

impl A2aVersion {
    fn method(self, method: A2aMethod) -> &'static str {
        match (self, method) {
            (A2aVersion::V0, A2aMethod::Send) => "message/send",
            (A2aVersion::V0, A2aMethod::Stream) => "message/stream",
            (A2aVersion::V0, A2aMethod::Get) => "tasks/get",
            (A2aVersion::V0, A2aMethod::Cancel) => "tasks/cancel",
            (A2aVersion::V1, A2aMethod::Send) => "SendMessage",
            (A2aVersion::V1, A2aMethod::Stream) => "SendStreamingMessage",
            (A2aVersion::V1, A2aMethod::Get) => "GetTask",
            (A2aVersion::V1, A2aMethod::Cancel) => "CancelTask",
        }
    }

    pub(super) fn request(self, method: A2aMethod, params: Value) -> Value {
        json!({"jsonrpc": "2.0", "id": 1, "method": self.method(method), "params": params})
    }

    pub(super) fn message(self, said: &A2aMessage) -> Value {
        let mut message = match self {
            A2aVersion::V0 => json!({"kind": "message", "role": "user", "messageId": said.id,
                "parts": [{"kind": "text", "text": said.text}]}),
            A2aVersion::V1 => {
                json!({"role": "ROLE_USER", "messageId": said.id, "parts": [{"text": said.text}]})
            }
        };
        if let Some(task) = &said.task {
            message["taskId"] = json!(task);
        }
        if let Some(context) = &said.context {
            message["contextId"] = json!(context);
        }
        // Do not block: the answer then comes early with the task's id, and the task can be cancelled.
        let configuration = match self {
            A2aVersion::V0 => {
                json!({"acceptedOutputModes": ["text/plain", "application/json"], "blocking": false})
            }
            A2aVersion::V1 => {
                json!({"acceptedOutputModes": ["text/plain", "application/json"], "returnImmediately": true})
            }
        };
        json!({"message": message, "configuration": configuration})
    }
}

/// The state of a remote task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum A2aTaskState {
    /// Running, or queued.
    #[default]
    Working,
    Completed,
    Failed,
    Canceled,
    Rejected,
    /// It waits for more input from the caller.
    InputRequired,
    AuthRequired,
}

impl A2aTaskState {
    fn parse(word: &str) -> A2aTaskState {
        let plain = word.trim_start_matches("TASK_STATE_").to_ascii_lowercase().replace('_', "-");
        match plain.as_str() {
            "completed" => A2aTaskState::Completed,
            "failed" => A2aTaskState::Failed,
            "canceled" | "cancelled" => A2aTaskState::Canceled,
            "rejected" => A2aTaskState::Rejected,
            "input-required" => A2aTaskState::InputRequired,
            "auth-required" => A2aTaskState::AuthRequired,
            _ => A2aTaskState::Working,
        }
    }
}

/// How many bytes of an agent's text are kept.
const MOST: usize = 2 << 20;

/// Everything that a remote agent has replied so far: a fold of its responses and events.
#[derive(Debug, Default)]
pub(super) struct A2aReply {
    pub(super) task: Option<String>,
    pub(super) context: Option<String>,
    pub(super) state: A2aTaskState,
    /// The text of a message that came without a task: that message is the answer.
    answer: Option<String>,
    status: Option<String>,
    artifacts: IndexMap<String, String>,
    history: Option<String>,
}

impl A2aReply {
    /// Applies the result of a request, or an event of a stream.
    pub(super) fn apply(&mut self, result: &Value) {
        let wrapped =
            |names: [&str; 2]| names.into_iter().find_map(|name| result.get(name)).filter(|v| v.is_object());
        match result["kind"].as_str() {
            Some("task") => self.task(result),
            Some("message") => self.message(result),
            Some("status-update") => self.status_update(result),
            Some("artifact-update") => self.artifact_update(result),
            _ => {
                if let Some(task) = wrapped(["task", "Task"]) {
                    self.task(task);
                } else if let Some(message) = wrapped(["message", "msg"]) {
                    self.message(message);
                } else if let Some(update) = wrapped(["statusUpdate", "taskStatusUpdate"]) {
                    self.status_update(update);
                } else if let Some(update) = wrapped(["artifactUpdate", "taskArtifactUpdate"]) {
                    self.artifact_update(update);
                } else if result["id"].is_string() && result["status"].is_object() {
                    self.task(result);
                } else if result["parts"].is_array() {
                    self.message(result);
                }
            }
        }
    }

    /// Applies a complete task, which replaces everything known about it.
    fn task(&mut self, task: &Value) {
        self.names(&task["id"], &task["contextId"]);
        self.status(&task["status"]);
        if let Some(artifacts) = task["artifacts"].as_array().filter(|list| !list.is_empty()) {
            self.artifacts.clear();
            for (n, artifact) in artifacts.iter().enumerate() {
                self.put(artifact, n, false);
            }
        }
        let last = task["history"].as_array().into_iter().flatten().rev();
        let theirs = |message: &&Value| matches!(message["role"].as_str(), Some("agent" | "ROLE_AGENT"));
        if let Some(message) = last.into_iter().find(theirs) {
            self.history = Some(words(&message["parts"])).filter(|text| !text.is_empty());
        }
    }

    fn message(&mut self, message: &Value) {
        self.names(&message["taskId"], &message["contextId"]);
        self.answer = Some(words(&message["parts"]));
        self.state = A2aTaskState::Completed;
    }

    fn status_update(&mut self, update: &Value) {
        self.names(&update["taskId"], &update["contextId"]);
        self.status(&update["status"]);
    }

    fn artifact_update(&mut self, update: &Value) {
        self.names(&update["taskId"], &update["contextId"]);
        self.put(&update["artifact"], self.artifacts.len(), update["append"] == true);
    }

    fn names(&mut self, task: &Value, context: &Value) {
        self.task = task.as_str().map(str::to_owned).or(self.task.take());
        self.context = context.as_str().map(str::to_owned).or(self.context.take());
    }

    fn status(&mut self, status: &Value) {
        self.state = status["state"].as_str().map_or(self.state, A2aTaskState::parse);
        self.status = Some(words(&status["message"]["parts"])).filter(|text| !text.is_empty());
    }

    fn put(&mut self, artifact: &Value, number: usize, append: bool) {
        let id = artifact["artifactId"].as_str().map_or_else(|| number.to_string(), str::to_owned);
        let text = words(&artifact["parts"]);
        let room = MOST.saturating_sub(self.artifacts.values().map(String::len).sum());
        let text = &text[..text.floor_char_boundary(room)];
        let there = self.artifacts.entry(id).or_default();
        if !append {
            there.clear();
        }
        there.push_str(text);
    }

    /// The agent's latest progress message.
    pub(super) fn progress(&self) -> Option<&str> {
        self.status.as_deref()
    }

    /// The answer: its artifacts, or else its last message.
    pub(super) fn text(&self) -> String {
        let made: Vec<&str> =
            self.artifacts.values().map(String::as_str).filter(|text| !text.trim().is_empty()).collect();
        let waits = matches!(self.state, A2aTaskState::InputRequired | A2aTaskState::AuthRequired);
        let said =
            self.answer.as_deref().or(self.status.as_deref()).or(self.history.as_deref()).unwrap_or_default();
        match (&self.answer, made.is_empty(), waits && !said.is_empty()) {
            (Some(answer), ..) => answer.clone(),
            (None, false, true) => format!("{}\n\n{said}", made.join("\n\n")),
            (None, false, false) => made.join("\n\n"),
            (None, true, _) => said.to_owned(),
        }
    }
}

/// Renders the parts of a message as text: text as it is, data as JSON, files by name.
fn words(parts: &Value) -> String {
    let mut said = String::new();
    for part in parts.as_array().into_iter().flatten() {
        let file = if part["file"].is_object() { &part["file"] } else { part };
        let name = |keys: [&str; 4]| keys.into_iter().find_map(|key| file[key].as_str());
        let text = match (part["text"].as_str(), part.get("data")) {
            (Some(text), _) => text.to_owned(),
            (None, Some(data)) => data.to_string(),
            (None, None) => match name(["uri", "fileWithUri", "url", "name"]).or(file["filename"].as_str()) {
                Some(name) => format!("[file: {name}]"),
                None => continue,
            },
        };
        if said.len() + text.len() > MOST {
            break;
        }
        said += &text;
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(results: &[Value]) -> A2aReply {
        let mut reply = A2aReply::default();
        results.iter().for_each(|result| reply.apply(result));
        reply
    }

    #[test]
    fn a_stream_of_either_generation_is_folded() {
        let old = reply(&[
            json!({"kind": "task", "id": "t1", "contextId": "c1", "status": {"state": "submitted"}}),
            json!({"kind": "status-update", "taskId": "t1", "contextId": "c1", "status": {"state": "working",
                "message": {"role": "agent", "parts": [{"kind": "text", "text": "thinking"}]}}}),
            json!({"kind": "artifact-update", "taskId": "t1", "artifact": {"artifactId": "a", "parts": [{"kind": "text", "text": "Hel"}]}}),
            json!({"kind": "artifact-update", "taskId": "t1", "append": true, "artifact": {"artifactId": "a", "parts": [{"kind": "text", "text": "lo"}]}}),
            json!({"kind": "status-update", "taskId": "t1", "status": {"state": "completed"}, "final": true}),
        ]);
        let new = reply(&[
            json!({"task": {"id": "t1", "contextId": "c1", "status": {"state": "TASK_STATE_SUBMITTED"}}}),
            json!({"statusUpdate": {"taskId": "t1", "status": {"state": "TASK_STATE_WORKING"}}}),
            json!({"artifactUpdate": {"taskId": "t1", "artifact": {"artifactId": "a", "parts": [{"text": "Hel"}]}}}),
            json!({"artifactUpdate": {"taskId": "t1", "append": true, "artifact": {"artifactId": "a", "parts": [{"text": "lo"}]}}}),
            json!({"statusUpdate": {"taskId": "t1", "status": {"state": "TASK_STATE_COMPLETED"}}}),
        ]);
        for reply in [old, new] {
            assert_eq!((reply.task.as_deref(), reply.context.as_deref()), (Some("t1"), Some("c1")));
            assert_eq!((reply.state, reply.text().as_str()), (A2aTaskState::Completed, "Hello"));
        }
    }

    #[test]
    fn an_answer_is_found_wherever_it_is() {
        let message = reply(&[
            json!({"kind": "message", "parts": [{"kind": "text", "text": "a"}, {"kind": "data", "data": {"b": 1}}]}),
        ]);
        assert_eq!((message.state, message.text().as_str()), (A2aTaskState::Completed, "a{\"b\":1}"));
        let status = reply(&[
            json!({"id": "t", "status": {"state": "failed", "message": {"parts": [{"text": "no luck"}]}}}),
        ]);
        assert_eq!((status.state, status.text().as_str()), (A2aTaskState::Failed, "no luck"));
        let history =
            reply(&[json!({"kind": "task", "id": "t", "status": {"state": "completed"}, "history": [
            {"role": "agent", "parts": [{"text": "old"}]}, {"role": "agent", "parts": [{"text": "last"}]},
            {"role": "user", "parts": [{"text": "mine"}]}]})]);
        assert_eq!(history.text(), "last");
        let file = reply(&[json!({"message": {"parts": [{"url": "https://x/y.pdf", "filename": "y.pdf"}]}})]);
        assert_eq!(file.text(), "[file: https://x/y.pdf]");
        let asks = reply(&[json!({"kind": "task", "id": "t", "artifacts": [{"parts": [{"text": "draft"}]}],
            "status": {"state": "input-required", "message": {"parts": [{"text": "Which city?"}]}}})]);
        assert_eq!((asks.state, asks.text().as_str()), (A2aTaskState::InputRequired, "draft\n\nWhich city?"));
        assert_eq!(reply(&[json!({"surprise": 1}), json!(null)]).text(), "");
    }

    #[test]
    fn an_agent_that_never_stops_talking_is_not_kept_whole() {
        let mut reply = A2aReply::default();
        let part = json!({"kind": "artifact-update", "append": true, "artifact": {"artifactId": "a", "parts": [{"text": "é".repeat(300_000)}]}});
        (0..10).for_each(|_| reply.apply(&part));
        assert!(reply.text().len() <= MOST);
    }
}
