//! Reads responses from the store.

use std::collections::BTreeMap;

use futures::StreamExt as _;
use longhaul::TaskId;
use longhaul::entry::{Entry, Submission};
use longhaul::id::Seq;
use longhaul::journal;
use longhaul::store::TaskFilter;
use longhaul::task::Status;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::ApiError;
use super::object::{self, Header, NeededAnswer, Surroundings, response_id};
use super::projection::Projection;
use super::request::{OWN_PREFIX, Shown};
use crate::backend::Backend;

/// The label with the full name of the model.
pub(super) const MODEL_LABEL: &str = "longhaul.model";
/// The label of a task that was started with `background: true`.
pub(super) const BACKGROUND_LABEL: &str = "longhaul.background";

/// What a request says about a response, besides its order. A task that continues another one inherits the
/// labels of that task, so this is kept beside it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct RequestNotes {
    #[serde(default)]
    pub(super) metadata: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) background: bool,
}

fn notes_name(task: TaskId) -> String {
    format!("response:{task}")
}

/// Keeps the notes of a request. They are deleted with the task.
pub(super) async fn put_notes(backend: &Backend, task: TaskId, notes: &RequestNotes) -> Result<(), ApiError> {
    let (store, name) = (backend.longhaul().store(), notes_name(task));
    let bytes = serde_json::to_vec(notes).unwrap_or_default();
    loop {
        let before = store.stored_value(&name).await?;
        if before.bytes == bytes || store.put_stored_value(&name, before.version, bytes.clone()).await? {
            return Ok(());
        }
    }
}

/// How a task was submitted, and when. Fails if there is no such task.
pub(super) async fn submission(
    backend: &Backend,
    task: TaskId,
) -> Result<(Submission, jiff::Timestamp), ApiError> {
    let first = backend.longhaul().store().read(task, Seq(0), 1).await?.into_iter().next();
    match first.map(|record| (record.entry, record.at)) {
        Some((Entry::Submitted(submission), at)) => Ok((*submission, at)),
        _ => Err(ApiError::no_response(&response_id(task))),
    }
}

/// What stays the same during the life of a response.
pub(super) async fn header(backend: &Backend, task: TaskId) -> Result<Header, ApiError> {
    let (submission, created) = submission(backend, task).await?;
    let order = submission.order;
    let team = backend.teams().iter().find(|team| *team.team.reference() == submission.team);
    let agent = order.agent.as_ref().map(ToString::to_string).unwrap_or_default();
    let model = match (order.labels.get(MODEL_LABEL), team) {
        (Some(model), _) => model.clone(),
        (None, Some(team)) => format!("{}/{agent}", team.name),
        (None, None) => agent,
    };
    let kept = backend.longhaul().store().stored_value(&notes_name(task)).await?;
    let notes = serde_json::from_slice(&kept.bytes).unwrap_or_else(|_| RequestNotes {
        background: order.labels.contains_key(BACKGROUND_LABEL),
        metadata: order.labels.into_iter().filter(|(key, _)| !key.starts_with(OWN_PREFIX)).collect(),
    });
    Ok(Header {
        task,
        created,
        model,
        metadata: notes.metadata,
        instructions: order.context.filter(|_| submission.continues.is_none()),
        background: notes.background,
        previous: submission.continues,
    })
}

/// What is known about a response besides its journal.
pub(super) async fn surroundings(backend: &Backend, task: TaskId) -> Result<Surroundings, ApiError> {
    let longhaul = backend.longhaul();
    let own = longhaul.state(task).await?;
    let tree = longhaul.list(TaskFilter::tree(own.root)).await?;
    let mut usage = own.usage;
    let mut question = None;
    for state in std::iter::once(&own).chain(journal::descendants(&tree, &[task])) {
        if state.id != task {
            usage = usage + state.usage;
        }
        let asked = state.asked.first().filter(|_| !state.status.is_final());
        question = question.or_else(|| {
            asked.map(|asked| NeededAnswer {
                task: state.id,
                question: asked.question.to_string(),
                text: asked.text.clone(),
            })
        });
    }
    Ok(Surroundings { usage, ended: own.ended, stopped: own.status == Status::Cancelled, question })
}

/// Whether the task, or one below it, waits for a person's answer.
pub(super) async fn needs_person(backend: &Backend, task: TaskId) -> Result<bool, ApiError> {
    Ok(surroundings(backend, task).await?.question.is_some())
}

/// The response object of a task as it is now.
pub(super) async fn response(backend: &Backend, task: TaskId, shown: Shown) -> Result<Value, ApiError> {
    let header = header(backend, task).await?;
    let mut projection = Projection::default();
    let store = backend.longhaul().store();
    let mut pages = std::pin::pin!(journal::pages(&**store, task, Seq(0)));
    while let Some(page) = pages.next().await {
        for record in page? {
            projection.apply(&record);
        }
    }
    let surroundings = surroundings(backend, task).await?;
    let output = object::output(task, &projection, shown);
    Ok(object::response(&header, &projection, &surroundings, output))
}
