//! `POST /tasks`.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use longhaul::{Budget, Isolation, OnFinish, Order};
use serde::Deserialize;
use utoipa::ToSchema;

use super::ApiState;
use super::extract::{Payload, object, whole_number};
use crate::backend::NewTask;
use crate::problem::ProblemDocument;
use crate::views::TaskView;

/// The header that makes a submission safe to repeat.
const KEY: &str = "idempotency-key";
/// How long a key may be.
const LONGEST_KEY: usize = 255;

/// What a task may use. A limit that is left out is that of the team.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BudgetRequest {
    /// Input and output tokens.
    #[serde(default, deserialize_with = "whole_number")]
    tokens: Option<u64>,
    /// Money, in millionths of a dollar.
    #[serde(default, deserialize_with = "whole_number")]
    cost: Option<u64>,
    /// Working time, in seconds.
    #[serde(default, deserialize_with = "whole_number")]
    time: Option<u32>,
}

impl BudgetRequest {
    pub(super) fn budget(self) -> Budget {
        let mut budget = Budget::default();
        (budget.tokens, budget.cost) = (self.tokens, self.cost);
        budget.time = self.time.map(|seconds| Duration::from_secs(seconds.into()));
        budget
    }
}

/// Whether a task gets its own working directory.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum IsolationRequest {
    /// It works in the server's directory.
    None,
    /// It works in a git worktree on its own branch.
    Worktree,
}

/// What happens to children that still run when the task would finish.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum OnFinishRequest {
    /// It waits for them.
    Wait,
    /// They continue without it.
    Detach,
    /// They are stopped.
    Stop,
}

/// A task to start.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TaskRequest {
    /// What the agent should do.
    #[schema(min_length = 1)]
    task: String,
    /// The team; may be left out if only one is served.
    team: Option<String>,
    /// The agent; the team's root agent if left out.
    agent: Option<String>,
    /// What the result should look like.
    expected_output: Option<String>,
    /// Further context for the agent.
    context: Option<String>,
    /// A short title for lists.
    title: Option<String>,
    /// A model of the team to use instead of the agent's own.
    model: Option<String>,
    /// The agent's tools that it may use; all if left out.
    tools: Option<Vec<String>>,
    /// Whether it waits for the next letter instead of ending.
    #[serde(default)]
    interactive: bool,
    /// The most replies of the model.
    #[schema(minimum = 1)]
    #[serde(default, deserialize_with = "whole_number")]
    max_turns: Option<u32>,
    /// The longest working time of this task, in seconds.
    #[schema(minimum = 1)]
    #[serde(default, deserialize_with = "whole_number")]
    timeout: Option<u32>,
    /// What this task and everything below it may use together.
    #[serde(default, deserialize_with = "object")]
    budget: BudgetRequest,
    /// Whether it gets its own working directory.
    isolation: Option<IsolationRequest>,
    /// What happens to children that still run when it would finish.
    on_finish: Option<OnFinishRequest>,
    /// Anything you want to find again with the task.
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

impl TaskRequest {
    fn new_task(self, key: Option<String>) -> Result<NewTask, ProblemDocument> {
        for (name, value) in [("max_turns", self.max_turns), ("timeout", self.timeout)] {
            if value == Some(0) {
                return Err(ProblemDocument::invalid(format!(
                    "{name}: 0 is too small; leave it out for no limit"
                )));
            }
        }
        let mut order = Order::default();
        order.task = self.task.into();
        order.agent = self.agent.map(Into::into);
        order.expected_output = self.expected_output;
        order.context = self.context;
        order.title = self.title;
        order.model = self.model;
        order.tools = self.tools;
        order.interactive = self.interactive;
        order.max_turns = self.max_turns;
        order.timeout = self.timeout.map(|seconds| Duration::from_secs(seconds.into()));
        order.tree_budget = self.budget.budget();
        order.isolation = self.isolation.map(|isolation| match isolation {
            IsolationRequest::None => Isolation::None,
            IsolationRequest::Worktree => Isolation::Worktree,
        });
        order.on_finish = self.on_finish.map(|on_finish| match on_finish {
            OnFinishRequest::Wait => OnFinish::Wait,
            OnFinishRequest::Detach => OnFinish::Detach,
            OnFinishRequest::Stop => OnFinish::Stop,
        });
        order.labels = self.labels;
        Ok(NewTask { team: self.team, order, key, own_dir: false })
    }
}

/// Start a task
///
/// When this is answered, the task is on disk. With an `Idempotency-Key`, repeating the request gives the same
/// task (200 instead of 201); another request with the same key is refused (409).
#[utoipa::path(post, path = "/tasks", tag = "tasks", request_body = TaskRequest,
    params(("Idempotency-Key" = Option<String>, Header, max_length = 255, min_length = 1,
        description = "Requests with the same key are the same task.")),
    responses(
        (status = 201, description = "The new task.", body = TaskView,
            headers(("Location" = String, description = "Where the task is."))),
        (status = 200, description = "The task that this key has started before.", body = TaskView,
            headers(("Location" = String, description = "Where the task is."))),
    ))]
pub(super) async fn submit_task(
    State(api): State<ApiState>,
    headers: HeaderMap,
    Payload(request): Payload<TaskRequest>,
) -> Result<Response, ProblemDocument> {
    let started = api.backend().start(request.new_task(key(&headers)?)?).await?;
    let state = api.longhaul().state(started.task).await?;
    let status = if started.created { StatusCode::CREATED } else { StatusCode::OK };
    let mut response = (status, Json(TaskView::new(&state, api.names(), api.store().now()))).into_response();
    if let Ok(location) = HeaderValue::from_str(&format!("/api/v1/tasks/{}", started.task)) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

fn key(headers: &HeaderMap) -> Result<Option<String>, ProblemDocument> {
    let mut keys = headers.get_all(KEY).iter();
    let (Some(key), None) = (keys.next(), keys.next()) else {
        return match headers.contains_key(KEY) {
            true => Err(ProblemDocument::invalid("Idempotency-Key: there is more than one")),
            false => Ok(None),
        };
    };
    let text = key.to_str().ok().map(str::trim).filter(|key| (1..=LONGEST_KEY).contains(&key.len()));
    text.map(|key| Some(key.to_owned())).ok_or_else(|| {
        ProblemDocument::invalid(format!(
            "Idempotency-Key: it has to be 1 to {LONGEST_KEY} printable ASCII characters"
        ))
    })
}
