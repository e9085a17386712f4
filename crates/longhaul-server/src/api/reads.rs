//! Teams, and one task: its state, tree, result and journal.

use axum::Json;
use axum::extract::State;
use longhaul::entry::Outcome;
use longhaul::id::Seq;
use longhaul::journal::descendants;
use longhaul::store::TaskFilter;
use longhaul::task::TaskState;
use serde::Deserialize;
use utoipa::IntoParams;

use super::ApiState;
use super::extract::{Id, Params, TaskPath};
use super::list::page_size;
use crate::problem::ProblemDocument;
use crate::views::{
    AgentView, JournalPage, QuestionView, RecordView, ResultView, SumsView, TaskDetail, TaskView, TeamPage,
    TeamView, TreeView,
};

/// How much output a task's own page has, in bytes.
const SHOWN_OUTPUT: usize = 16 << 10;
/// How many entries of a journal a page has, if the request does not say, and at most.
const RECORDS: (usize, usize) = (200, 1_000);

/// List the teams
#[utoipa::path(get, path = "/teams", tag = "teams",
    responses((status = 200, description = "The teams that are served.", body = TeamPage)))]
pub(super) async fn list_teams(State(api): State<ApiState>) -> Json<TeamPage> {
    let teams = api.backend().teams().iter().map(|served| TeamView {
        name: served.name.clone(),
        root: served.team.root().to_string(),
        agents: served
            .agents()
            .into_iter()
            .map(|agent| AgentView { name: agent.name.to_string(), description: agent.description })
            .collect(),
        models: served.team.model_names(),
    });
    Json(TeamPage { teams: teams.collect() })
}

/// Read a task
///
/// Its state, order, children, open questions and the start of its output.
#[utoipa::path(get, path = "/tasks/{id}", tag = "tasks",
    params(TaskPath),
    responses((status = 200, description = "The task.", body = TaskDetail)))]
pub(super) async fn get_task(
    State(api): State<ApiState>,
    Id(id): Id,
) -> Result<Json<TaskDetail>, ProblemDocument> {
    let snapshot = api.longhaul().recent_snapshot(id).await?;
    let tree = api.longhaul().list(TaskFilter::tree(snapshot.state.root)).await?;
    let below: Vec<&TaskState> = descendants(&tree, &[id]).collect();
    let retried_as = api.store().ids(TaskFilter::default().retries(Some(id))).await?;
    let (now, state) = (api.store().now(), &snapshot.state);
    let view = |state: &TaskState| TaskView::new(state, api.names(), now);
    let questions = snapshot.questions.iter().filter_map(|(question, asks)| {
        let open = state.asked.iter().find(|open| open.question == *question)?;
        Some(QuestionView::new(state, open, asks, api.names()))
    });
    let questions = questions.filter(|_| !state.status.is_final()).collect();
    let (output, output_shortened) = match snapshot.output.len() > SHOWN_OUTPUT {
        true => (snapshot.output[..snapshot.output.floor_char_boundary(SHOWN_OUTPUT)].to_owned(), true),
        false => (snapshot.output.clone(), false),
    };
    Ok(Json(TaskDetail {
        task: view(state),
        order: serde_json::to_value(&snapshot.order).unwrap_or_default(),
        children: below.iter().filter(|child| child.parent == Some(id)).map(|child| view(child)).collect(),
        tree: SumsView::over(below.iter().copied().chain([state])),
        retried_as,
        questions,
        worktree: api.longhaul().worktree(id).await?.map(Into::into),
        output,
        output_shortened,
    }))
}

/// Read a task and everything below it
#[utoipa::path(get, path = "/tasks/{id}/tree", tag = "tasks",
    params(TaskPath),
    responses((status = 200, description = "The tree.", body = TreeView)))]
pub(super) async fn get_tree(
    State(api): State<ApiState>,
    Id(id): Id,
) -> Result<Json<TreeView>, ProblemDocument> {
    let top = api.longhaul().state(id).await?;
    let tree = api.longhaul().list(TaskFilter::tree(top.root)).await?;
    let states: Vec<&TaskState> = std::iter::once(&top).chain(descendants(&tree, &[id])).collect();
    let now = api.store().now();
    let sums = sums_below(&states);
    let tasks = states
        .iter()
        .zip(&sums)
        .map(|(state, sums)| TaskView { tree: Some(*sums), ..TaskView::new(state, api.names(), now) });
    Ok(Json(TreeView { tasks: tasks.collect(), tree: sums.first().copied().unwrap_or_default() }))
}

/// The sums of each task and what is below it. Parents come before their children.
fn sums_below(states: &[&TaskState]) -> Vec<SumsView> {
    let places: std::collections::HashMap<_, _> =
        states.iter().enumerate().map(|(at, state)| (state.id, at)).collect();
    let mut sums = vec![SumsView::default(); states.len()];
    for state in states {
        let mut at = places.get(&state.id).copied();
        // As many steps as the tree is deep.
        while let Some(place) = at {
            sums[place].add(state);
            at = states[place]
                .parent
                .and_then(|parent| places.get(&parent).copied())
                .filter(|up| *up != place);
        }
    }
    sums
}

/// Which part of a result to read.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ResultQuery {
    /// Where to begin, in bytes; a `next_offset` of the part before.
    offset: Option<usize>,
    /// How many bytes, at most; all if left out.
    #[param(minimum = 1)]
    limit: Option<usize>,
}

/// Read the answer of a task
///
/// The whole answer, or a part of it; the text so far, if the task has not ended.
#[utoipa::path(get, path = "/tasks/{id}/result", tag = "tasks",
    params(TaskPath, ResultQuery),
    responses((status = 200, description = "The answer.", body = ResultView)))]
pub(super) async fn get_result(
    State(api): State<ApiState>,
    Id(id): Id,
    Params(query): Params<ResultQuery>,
) -> Result<Json<ResultView>, ProblemDocument> {
    let limit = page_size(query.limit, usize::MAX, usize::MAX)?;
    let snapshot = api.longhaul().recent_snapshot(id).await?;
    let (whole, state) = (&snapshot.output, &snapshot.state);
    // Beyond the end there is nothing, yet.
    let start = whole.floor_char_boundary(query.offset.unwrap_or(0));
    // At least one character, so that every part leads on.
    let end = whole.floor_char_boundary(start.saturating_add(limit).min(whole.len()));
    let end = if end > start { end } else { whole.ceil_char_boundary((start + 1).min(whole.len())) };
    let failure = match &snapshot.outcome {
        Some(Outcome::Failed { failure, .. }) => {
            serde_json::to_value(failure.kind).ok().and_then(|kind| kind.as_str().map(str::to_owned))
        }
        _ => None,
    };
    Ok(Json(ResultView {
        task: id,
        status: state.status.into(),
        is_final: state.status.is_final(),
        output: whole[start..end].to_owned(),
        error: state.error.clone(),
        failure,
        cut_short: state.cut_short.clone(),
        offset: start,
        total: whole.len(),
        next_offset: (end < whole.len()).then_some(end),
    }))
}

/// Which entries to read.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct JournalQuery {
    /// Only entries after this one. 0, or left out, begins with the first.
    after: Option<u64>,
    /// How many entries, at most. 200 if left out.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// Read the journal of a task
#[utoipa::path(get, path = "/tasks/{id}/journal", tag = "tasks",
    params(TaskPath, JournalQuery),
    responses((status = 200, description = "A part of the journal.", body = JournalPage)))]
pub(super) async fn get_journal(
    State(api): State<ApiState>,
    Id(id): Id,
    Params(query): Params<JournalQuery>,
) -> Result<Json<JournalPage>, ProblemDocument> {
    let limit = page_size(query.limit, RECORDS.0, RECORDS.1)?;
    let state = api.longhaul().state(id).await?;
    let after = Seq(query.after.unwrap_or(0));
    let records = match after < state.seq {
        true => api.store().read(id, after, limit).await?,
        false => Vec::new(),
    };
    let next_after = records.last().map(|record| record.seq).filter(|last| *last < state.seq);
    let next_after = next_after.map(|last| last.0);
    Ok(Json(JournalPage { records: records.iter().map(RecordView::from).collect(), next_after }))
}
