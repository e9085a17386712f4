//! What people do to tasks: letters, answers, stop, resume, retry.

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use longhaul::TaskId;
use longhaul::id::QuestionId;
use serde::Deserialize;
use utoipa::ToSchema;

use super::ApiState;
use super::extract::{Id, Payload, TaskPath, object};
use super::submit::BudgetRequest;
use crate::problem::ProblemDocument;
use crate::views::{AnswerView, LetterView, TaskView};

impl ApiState {
    async fn task_view(&self, id: TaskId) -> Result<Json<TaskView>, ProblemDocument> {
        let state = self.longhaul().state(id).await?;
        Ok(Json(TaskView::new(&state, self.names(), self.store().now())))
    }
}

/// A message for a task.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LetterRequest {
    /// The message.
    #[schema(min_length = 1)]
    text: String,
    /// Whether the task reads it only when it has nothing left to do.
    #[serde(default)]
    when_idle: bool,
    /// What the task and everything below it may use from now on.
    #[serde(default, deserialize_with = "object")]
    budget: BudgetRequest,
}

/// Send a letter to a task
///
/// If the task has ended, a new task continues its conversation.
#[utoipa::path(post, path = "/tasks/{id}/letters", tag = "actions", request_body = LetterRequest,
    params(TaskPath),
    responses((status = 201, description = "The letter is on disk.", body = LetterView)))]
pub(super) async fn send_letter(
    State(api): State<ApiState>,
    Id(id): Id,
    Payload(request): Payload<LetterRequest>,
) -> Result<(StatusCode, Json<LetterView>), ProblemDocument> {
    let budget = request.budget.budget();
    let sent = match request.when_idle {
        true if budget.is_open() => api.backend().send_when_idle(id, &request.text).await?,
        true => {
            return Err(ProblemDocument::invalid(
                "budget: a letter with `when_idle` cannot change the budget",
            ));
        }
        false => api.backend().send(id, &request.text, budget).await?,
    };
    Ok((StatusCode::CREATED, Json(LetterView { task: sent.to, continued: sent.continued })))
}

/// What a person decides about a question.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Decision {
    /// Allow the call this time.
    Approve,
    /// Deny the call; a `reason` tells the agent why.
    Deny,
    /// Allow the call, and calls like it in the whole tree from now on; see `scope` and `pattern`.
    Always,
    /// Refuse to answer.
    Decline,
}

/// What `always` allows.
#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum ScopeRequest {
    /// This call with exactly these arguments.
    #[default]
    Exact,
    /// The program of this command, with any arguments.
    Program,
    /// Every call of this tool.
    Tool,
}

/// An answer: either a `decision` or a `text`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AnswerRequest {
    /// The question; may be left out if only one is open.
    #[schema(pattern = "^[0-9]{1,9}\\.[0-9]{1,9}\\.[0-9]{1,9}$")]
    question: Option<String>,
    /// A decision about a tool call.
    decision: Option<Decision>,
    /// Why a call is denied.
    reason: Option<String>,
    /// What `always` allows; `exact` if left out.
    scope: Option<ScopeRequest>,
    /// What `always` allows, as a permission pattern: `shell:cmd=git *`.
    pattern: Option<String>,
    /// The answer to any other question: text, or JSON if the question has a schema.
    text: Option<String>,
}

/// What is sent to the task: words, or nothing.
#[derive(Debug, PartialEq, Eq)]
enum Words {
    Said(String),
    Declined,
}

impl AnswerRequest {
    /// The words for the task. Fails if fields are set that do not belong together.
    fn words(self) -> Result<Words, ProblemDocument> {
        let AnswerRequest { question: _, decision, reason, scope, pattern, text } = self;
        let only = |name: &str, is_set: bool, with: &str| match is_set {
            true => Err(ProblemDocument::invalid(format!("{name}: it goes only with {with}"))),
            false => Ok(()),
        };
        only("reason", reason.is_some() && !matches!(decision, Some(Decision::Deny)), "`deny`")?;
        only("scope", scope.is_some() && !matches!(decision, Some(Decision::Always)), "`always`")?;
        only("pattern", pattern.is_some() && !matches!(decision, Some(Decision::Always)), "`always`")?;
        only("pattern", pattern.is_some() && scope.is_some(), "`always` without a `scope`")?;
        match (decision, text) {
            (Some(_), Some(_)) => Err(ProblemDocument::invalid("send either `decision` or `text`, not both")),
            (None, None) => Err(ProblemDocument::invalid("send a `decision` or a `text`")),
            (None, Some(text)) => Ok(Words::Said(text)),
            (Some(Decision::Decline), None) => Ok(Words::Declined),
            (Some(Decision::Approve), None) => Ok(Words::Said("yes".to_owned())),
            (Some(Decision::Deny), None) => {
                let reason = reason.unwrap_or_default();
                Ok(Words::Said(format!("no {}", reason.trim()).trim_end().to_owned()))
            }
            (Some(Decision::Always), None) => {
                let what = match (&pattern, scope.unwrap_or_default()) {
                    (Some(pattern), _) => pattern.trim(),
                    (None, ScopeRequest::Exact) => "exact",
                    (None, ScopeRequest::Program) => "program",
                    (None, ScopeRequest::Tool) => "tool",
                };
                Ok(Words::Said(format!("always {what}")))
            }
        }
    }
}

/// Answer a question of a task
#[utoipa::path(post, path = "/tasks/{id}/answers", tag = "actions", request_body = AnswerRequest,
    params(TaskPath),
    responses((status = 200, description = "The answer is on disk.", body = AnswerView)))]
pub(super) async fn answer_question(
    State(api): State<ApiState>,
    Id(id): Id,
    Payload(request): Payload<AnswerRequest>,
) -> Result<Json<AnswerView>, ProblemDocument> {
    let question: Option<QuestionId> = match &request.question {
        Some(text) => Some(text.parse().map_err(|error: longhaul::id::ParseQuestionIdError| {
            ProblemDocument::invalid(format!("question: {error}"))
        })?),
        None => None,
    };
    let receipt = match request.words()? {
        Words::Said(text) => api.backend().answer(id, question, &text).await?,
        Words::Declined => api.backend().decline(id, question).await?,
    };
    Ok(Json(AnswerView::new(id, &receipt)))
}

/// Stop a task and everything below it
///
/// When this is answered, the request is on disk; a running task ends soon after. A task that has ended stays
/// as it is.
#[utoipa::path(post, path = "/tasks/{id}/stop", tag = "actions",
    params(TaskPath),
    responses((status = 200, description = "The task.", body = TaskView)))]
pub(super) async fn stop_task(
    State(api): State<ApiState>,
    Id(id): Id,
) -> Result<Json<TaskView>, ProblemDocument> {
    api.longhaul().stop(id).await?;
    api.task_view(id).await
}

/// Stop the whole tree that a task belongs to
#[utoipa::path(post, path = "/tasks/{id}/tree/stop", tag = "actions",
    params(TaskPath),
    responses((status = 200, description = "The root of the tree.", body = TaskView)))]
pub(super) async fn stop_tree(
    State(api): State<ApiState>,
    Id(id): Id,
) -> Result<Json<TaskView>, ProblemDocument> {
    let root = api.longhaul().state(id).await?.root;
    api.longhaul().stop(root).await?;
    api.task_view(root).await
}

/// Resume a task that no process runs
///
/// A task that runs already goes on as it is.
#[utoipa::path(post, path = "/tasks/{id}/resume", tag = "actions",
    params(TaskPath),
    responses((status = 200, description = "The task.", body = TaskView)))]
pub(super) async fn resume_task(
    State(api): State<ApiState>,
    Id(id): Id,
) -> Result<Json<TaskView>, ProblemDocument> {
    let state = api.longhaul().state(id).await?;
    if state.status.is_final() {
        let detail = format!("task {id} is {}: only a task that has not ended can be resumed", state.status);
        let hint = "send it a letter to continue its conversation, or retry it";
        return Err(ProblemDocument::conflict("ended", detail).with_hint(hint));
    }
    if !api.backend().serves(&state.team) {
        let detail = format!("task {id} belongs to {}, which is not served here", state.team);
        let hint = format!("run `longhaul resume {}` where its team is", state.root);
        return Err(ProblemDocument::conflict("not_served", detail).with_hint(hint));
    }
    api.backend().carry(id).await?;
    api.task_view(id).await
}

/// Retry a failed or cancelled task
///
/// A new task with the same order takes its place.
#[utoipa::path(post, path = "/tasks/{id}/retry", tag = "actions",
    params(TaskPath),
    responses((status = 201, description = "The new task.", body = TaskView)))]
pub(super) async fn retry_task(
    State(api): State<ApiState>,
    Id(id): Id,
) -> Result<(StatusCode, Json<TaskView>), ProblemDocument> {
    let again = api.backend().retry(id).await?;
    Ok((StatusCode::CREATED, api.task_view(again).await?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(json: serde_json::Value) -> Result<Words, String> {
        let request: AnswerRequest = serde_json::from_value(json).map_err(|error| error.to_string())?;
        request.words().map_err(|problem| problem.detail)
    }

    #[test]
    fn decisions_become_the_words_that_people_type() {
        use serde_json::json;
        let said = |words: &str| Ok(Words::Said(words.to_owned()));
        assert_eq!(words(json!({ "decision": "approve" })), said("yes"));
        assert_eq!(words(json!({ "decision": "deny" })), said("no"));
        assert_eq!(words(json!({ "decision": "deny", "reason": " not now " })), said("no not now"));
        assert_eq!(words(json!({ "decision": "always" })), said("always exact"));
        assert_eq!(words(json!({ "decision": "always", "scope": "tool" })), said("always tool"));
        let pattern = json!({ "decision": "always", "pattern": "shell:cmd=git *" });
        assert_eq!(words(pattern), said("always shell:cmd=git *"));
        assert_eq!(words(json!({ "decision": "decline" })), Ok(Words::Declined));
        assert_eq!(words(json!({ "text": "blue" })), said("blue"));
        for wrong in [
            json!({}),
            json!({ "decision": "approve", "text": "yes" }),
            json!({ "decision": "approve", "reason": "why not" }),
            json!({ "decision": "deny", "scope": "tool" }),
            json!({ "decision": "always", "scope": "tool", "pattern": "x" }),
            json!({ "decision": "perhaps" }),
            json!({ "approve": true }),
        ] {
            assert!(words(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
