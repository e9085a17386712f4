//! The task fixtures of the suite. A task is a function of the time and of the replies that came.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rmcp::ErrorData;
use rmcp::model::{DetailedTask, InputRequests, InputResponses, Task, TaskPayload, TaskStatus};
use serde_json::{Value, json};

use crate::input_required::elicit;

/// Tools that always run as tasks.
pub(crate) const REQUIRED: [&str; 4] =
    ["failing_job", "test_tool_with_task", "confirm_delete", "multi_input"];

#[derive(Clone)]
struct Running {
    tool: String,
    arguments: Value,
    begun: Instant,
    created: String,
    replies: InputResponses,
    cancelled: bool,
}

#[derive(Clone, Default)]
pub(crate) struct FixtureTasks(Arc<Mutex<HashMap<String, Running>>>);

impl FixtureTasks {
    pub(crate) fn start(&self, tool: &str, arguments: Value) -> Task {
        let id = uuid::Uuid::now_v7().to_string();
        let created = jiff::Timestamp::now().to_string();
        let running = Running {
            tool: tool.to_owned(),
            arguments,
            begun: Instant::now(),
            created,
            replies: InputResponses::new(),
            cancelled: false,
        };
        let task = running.task(&id);
        self.0.lock().unwrap().insert(id, running);
        task
    }

    fn with<T>(&self, id: &str, act: impl FnOnce(&mut Running) -> T) -> Result<T, ErrorData> {
        let mut all = self.0.lock().unwrap();
        all.get_mut(id).map(act).ok_or_else(|| ErrorData::invalid_params(format!("no task {id}"), None))
    }

    pub(crate) fn get(&self, id: &str) -> Result<DetailedTask, ErrorData> {
        self.with(id, |running| DetailedTask::new(running.task(id), running.payload()))
    }

    pub(crate) fn update(&self, id: &str, replies: InputResponses) -> Result<(), ErrorData> {
        self.with(id, |running| {
            let asked = running.asks();
            running.replies.extend(replies.into_iter().filter(|(key, _)| asked.contains_key(key)));
        })
    }

    pub(crate) fn cancel(&self, id: &str) -> Result<(), ErrorData> {
        self.with(id, |running| {
            running.cancelled |=
                matches!(running.payload(), TaskPayload::Working | TaskPayload::InputRequired { .. });
        })
    }
}

impl Running {
    fn task(&self, id: &str) -> Task {
        Task::new(id, TaskStatus::Working, &self.created, jiff::Timestamp::now().to_string())
            .with_ttl_ms(300_000)
            .with_poll_interval_ms(100)
    }

    /// The inputs that it still needs.
    fn asks(&self) -> InputRequests {
        let all = match self.tool.as_str() {
            "confirm_delete" => vec![("confirm", elicit("Delete it?", "confirm", "boolean"))],
            "multi_input" => vec![
                ("input-a", elicit("Value A?", "value", "string")),
                ("input-b", elicit("Value B?", "value", "string")),
            ],
            _ => Vec::new(),
        };
        let open = all.into_iter().filter(|(key, _)| !self.replies.contains_key(*key));
        open.map(|(key, request)| (key.to_owned(), request)).collect()
    }

    fn payload(&self) -> TaskPayload {
        if self.cancelled {
            return TaskPayload::Cancelled;
        }
        let asks = self.asks();
        if !asks.is_empty() {
            return TaskPayload::InputRequired { input_requests: asks };
        }
        let seconds = match self.tool.as_str() {
            "slow_compute" => self.arguments["seconds"].as_f64().unwrap_or(1.0),
            "failing_job" => 1.0,
            _ => 0.2,
        };
        if self.begun.elapsed() < Duration::from_secs_f64(seconds) {
            return TaskPayload::Working;
        }
        let object = |value: Value| value.as_object().cloned().unwrap_or_default();
        if self.tool == "protocol_error_job" {
            return TaskPayload::Failed { error: object(json!({"code": -32603, "message": "as intended"})) };
        }
        let text = match self.tool.as_str() {
            "confirm_delete" => format!("confirmed: {}", self.replies["confirm"]["content"]["confirm"]),
            "test_tool_with_task" => {
                format!("Hello, {}!", self.arguments["name"].as_str().unwrap_or("friend"))
            }
            tool => format!("{tool} is done"),
        };
        let is_error = self.tool == "failing_job";
        let result = json!({"resultType": "complete", "content": [{"type": "text", "text": text}], "isError": is_error});
        TaskPayload::Completed { result: object(result) }
    }
}
