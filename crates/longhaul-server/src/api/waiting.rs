//! `GET /wait`: waits for tasks, for a bounded time.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use longhaul::TaskId;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::ApiState;
use super::extract::{Params, task_id};
use crate::problem::ProblemDocument;
use crate::views::{TaskView, WaitedView};

/// How long to wait if the request does not say, in seconds.
const USUAL: u32 = 45;
/// How long to wait at most, in seconds. Some clients give up after 300.
const LONGEST: u32 = 240;
/// How many tasks can be waited for at once.
const MOST: usize = 100;

/// When a wait is over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum WaitModeName {
    /// When one of the tasks has ended.
    Any,
    /// When all of them have ended.
    #[default]
    All,
}

/// What to wait for.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct WaitQuery {
    /// The tasks, separated by commas; at most 100.
    #[param(pattern = "^t-[0-9a-hjkmnp-tv-z]{5,15}(,t-[0-9a-hjkmnp-tv-z]{5,15}){0,99}$")]
    tasks: String,
    /// When the wait is over; `all` if left out.
    #[serde(default)]
    #[param(inline)]
    mode: WaitModeName,
    /// How long to wait, in seconds; 45 if left out.
    #[param(minimum = 0, maximum = 240)]
    timeout: Option<u32>,
}

/// Wait for tasks
///
/// A wait that times out is no error, and harms no task: call again.
#[utoipa::path(get, path = "/wait", tag = "tasks", params(WaitQuery),
    responses((status = 200, description = "The tasks as they are now.", body = WaitedView)))]
pub(super) async fn wait_for_tasks(
    State(api): State<ApiState>,
    Params(query): Params<WaitQuery>,
) -> Result<Json<WaitedView>, ProblemDocument> {
    let named = query.tasks.split(',').map(str::trim).filter(|id| !id.is_empty());
    let ids: Vec<TaskId> = named.map(task_id).collect::<Result<_, _>>()?;
    if ids.is_empty() || ids.len() > MOST {
        return Err(ProblemDocument::invalid(format!("tasks: name 1 to {MOST} tasks, not {}", ids.len())));
    }
    let seconds = query.timeout.unwrap_or(USUAL);
    if seconds > LONGEST {
        return Err(ProblemDocument::invalid(format!("timeout: {seconds} is more than {LONGEST} seconds")));
    }
    for id in &ids {
        api.longhaul().state(*id).await?;
    }
    let mut wait = api.longhaul().wait(ids.clone()).timeout(Duration::from_secs(seconds.into()));
    if query.mode == WaitModeName::Any {
        wait = wait.any();
    }
    let timed_out = tokio::select! {
        waited = wait => waited?.timed_out,
        // The client asks again, and finds the server that comes after this one.
        () = api.hub().draining().cancelled() => true,
    };
    let mut tasks = Vec::with_capacity(ids.len());
    for id in ids {
        let state = api.longhaul().state(id).await?;
        tasks.push(TaskView::new(&state, api.names(), api.store().now()));
    }
    Ok(Json(WaitedView { timed_out, tasks }))
}
