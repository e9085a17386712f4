//! `GET /questions`: everything that waits for a person.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Json;
use axum::extract::State;
use jiff::Timestamp;
use longhaul::TaskId;
use longhaul::entry::Question;
use longhaul::id::QuestionId;
use longhaul::store::TaskFilter;
use longhaul::task::{OpenQuestion, TaskState};
use serde::Deserialize;
use utoipa::IntoParams;

use super::ApiState;
use super::extract::{Params, task_id};
use crate::problem::ProblemDocument;
use crate::views::{QuestionPage, QuestionView, needs_you};

/// How many questions are remembered.
const REMEMBERED: usize = 1_000;

/// Questions that were read from journals, which may be long. A question that is asked again has another time.
#[derive(Default)]
pub(super) struct AskedCache(Mutex<HashMap<(TaskId, QuestionId, Timestamp), Arc<Question>>>);

impl AskedCache {
    fn get(&self, task: TaskId, open: &OpenQuestion) -> Option<Arc<Question>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&(task, open.question, open.since)).cloned()
    }

    fn insert(&self, task: TaskId, open: &OpenQuestion, asks: Question) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert((task, open.question, open.since), Arc::new(asks));
    }
}

/// Which questions to list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct QuestionQuery {
    /// Only questions of the tree with this root.
    #[param(pattern = "^t-[0-9a-hjkmnp-tv-z]{5,15}$")]
    root: Option<String>,
}

/// List what waits for a person
///
/// The open approvals and questions of all tasks, oldest first, in full.
#[utoipa::path(get, path = "/questions", tag = "tasks", params(QuestionQuery),
    responses((status = 200, description = "The open questions.", body = QuestionPage)))]
pub(super) async fn list_questions(
    State(api): State<ApiState>,
    Params(query): Params<QuestionQuery>,
) -> Result<Json<QuestionPage>, ProblemDocument> {
    let root = query.root.as_deref().map(task_id).transpose()?;
    let mut questions = Vec::new();
    for state in api.longhaul().list(TaskFilter::default().root(root).live()).await? {
        if needs_you(&state) {
            questions.extend(of_task(&api, &state).await?);
        }
    }
    questions.sort_by_key(|question| question.since);
    Ok(Json(QuestionPage { questions }))
}

async fn of_task(api: &ApiState, state: &TaskState) -> Result<Vec<QuestionView>, ProblemDocument> {
    let known = |open: &OpenQuestion| api.0.asked.get(state.id, open);
    if state.asked.iter().any(|open| known(open).is_none()) {
        let now = api.longhaul().snapshot(state.id).await?;
        for (question, asks) in now.questions {
            if let Some(open) = now.state.asked.iter().find(|open| open.question == question) {
                api.0.asked.insert(state.id, open, asks);
            }
        }
    }
    // What was answered since then is left out.
    let view =
        |open: &OpenQuestion| known(open).map(|asks| QuestionView::new(state, open, &asks, api.names()));
    Ok(state.asked.iter().filter_map(view).collect())
}
