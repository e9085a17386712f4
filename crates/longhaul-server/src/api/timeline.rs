//! `GET /tasks/{id}/tree/timeline`: when each task of a tree worked and waited.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use axum::Json;
use axum::extract::State;
use longhaul::TaskId;
use longhaul::journal::descendants;
use longhaul::store::TaskFilter;
use longhaul::task::TaskState;

use super::ApiState;
use super::extract::{Id, TaskPath};
use crate::problem::ProblemDocument;
use crate::views::{MOST_SPANS, Timeline, TimelinePage, TimelineView};

/// How many tasks a page has, at most: the oldest ones.
const MOST_TASKS: usize = 500;
/// How many spans a page has, about. In a large tree each task has its newest ones.
const SPANS: usize = 20_000;
/// How many spans each task has at least.
const FEWEST_SPANS: usize = 40;
/// How many timelines are remembered.
const REMEMBERED: usize = 2_000;
/// How many entries are read at once.
const AT_ONCE: usize = 1_000;

/// Timelines up to the entry that was read last, so that only new entries are read the next time.
#[derive(Default)]
pub(super) struct TimelineCache(Mutex<HashMap<TaskId, Timeline>>);

impl TimelineCache {
    fn take(&self, task: TaskId) -> Timeline {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&task).unwrap_or_default()
    }

    fn put(&self, task: TaskId, timeline: Timeline) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED {
            known.clear();
        }
        // Another request may have read further meanwhile.
        if known.get(&task).is_none_or(|other| other.last < timeline.last) {
            known.insert(task, timeline);
        }
    }
}

/// Read when a task and everything below it worked and waited
///
/// For each task the spans of its time: queued, working, waiting for tasks, for a person or for its provider, and
/// its calls.
#[utoipa::path(get, path = "/tasks/{id}/tree/timeline", tag = "tasks",
    params(TaskPath),
    responses((status = 200, description = "The timelines.", body = TimelinePage)))]
pub(super) async fn get_timeline(
    State(api): State<ApiState>,
    Id(id): Id,
) -> Result<Json<TimelinePage>, ProblemDocument> {
    let top = api.longhaul().state(id).await?;
    let tree = api.longhaul().list(TaskFilter::tree(top.root)).await?;
    let states: Vec<&TaskState> = std::iter::once(&top).chain(descendants(&tree, &[id])).collect();
    let mut tasks = Vec::new();
    let most = (SPANS / states.len().min(MOST_TASKS)).clamp(FEWEST_SPANS, MOST_SPANS);
    for state in states.iter().take(MOST_TASKS) {
        tasks.push(TimelineView { task: state.id, spans: read(&api, state).await?.spans(most) });
    }
    Ok(Json(TimelinePage { tasks, is_partial: states.len() > MOST_TASKS }))
}

async fn read(api: &ApiState, state: &TaskState) -> Result<Timeline, ProblemDocument> {
    let mut timeline = api.0.timelines.take(state.id);
    while timeline.last < state.seq {
        let records = api.store().read(state.id, timeline.last, AT_ONCE).await?;
        if records.is_empty() {
            break;
        }
        records.iter().for_each(|record| timeline.push(record));
    }
    api.0.timelines.put(state.id, timeline.clone());
    Ok(timeline)
}
