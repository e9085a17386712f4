//! `GET /usage`: what tasks used, by team, agent, model or day.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use longhaul::TaskId;
use longhaul::entry::Entry;
use longhaul::id::Seq;
use longhaul::store::TaskFilter;
use longhaul::task::TaskState;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::ApiState;
use super::extract::{Params, task_id, time};
use crate::problem::ProblemDocument;
use crate::views::{SumsView, UsagePage, UsageRow};

/// How many tasks are counted, at most.
const MOST: usize = 20_000;
/// How many of them are read at once.
const AT_ONCE: usize = 1_000;

/// What to sum up by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum UsageKey {
    /// The team.
    Team,
    /// The agent.
    #[default]
    Agent,
    /// The day (UTC) on which the task was submitted.
    Day,
    /// The model. Only for one tree: name its `root`.
    Model,
}

/// Which tasks to sum up.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct UsageQuery {
    /// What the rows are for; `agent` if left out.
    #[serde(default)]
    #[param(inline)]
    by: UsageKey,
    /// Only tasks of this team.
    team: Option<String>,
    /// Only tasks of the tree with this root.
    #[param(pattern = "^t-[0-9a-hjkmnp-tv-z]{5,15}$")]
    root: Option<String>,
    /// Only tasks that were submitted at or after this time.
    #[param(format = DateTime)]
    since: Option<String>,
    /// Only tasks that were submitted before this time.
    #[param(format = DateTime)]
    before: Option<String>,
}

/// Sum up what tasks used
#[utoipa::path(get, path = "/usage", tag = "operation", params(UsageQuery),
    responses((status = 200, description = "The sums.", body = UsagePage)))]
pub(super) async fn get_usage(
    State(api): State<ApiState>,
    Params(query): Params<UsageQuery>,
) -> Result<Json<UsagePage>, ProblemDocument> {
    let root = query.root.as_deref().map(task_id).transpose()?;
    if query.by == UsageKey::Model && root.is_none() {
        return Err(ProblemDocument::invalid("by: `model` needs the `root` of one tree"));
    }
    let mut filter = TaskFilter::default()
        .root(root)
        .since(time("since", query.since.as_deref())?)
        .before(time("before", query.before.as_deref())?);
    if let Some(team) = &query.team {
        let served = api.backend().team(Some(team))?;
        filter = filter.teams(vec![served.team.reference().clone()]);
    }
    let mut rows: BTreeMap<String, SumsView> = BTreeMap::new();
    let (mut total, mut cursor, mut is_partial) = (SumsView::default(), None, false);
    loop {
        let page = filter.clone().submitted_before(cursor).limit(Some(AT_ONCE));
        let states = api.store().list(page).await?;
        for state in &states {
            total.add(state);
            match query.by {
                UsageKey::Model => by_model(&api, state.id, &mut rows).await?,
                by => rows.entry(key(&api, by, state)).or_default().add(state),
            }
        }
        cursor = states.first().map(|state| state.id);
        if states.len() < AT_ONCE {
            break;
        }
        if total.tasks >= MOST {
            is_partial = true;
            break;
        }
    }
    let rows = rows.into_iter().map(|(key, sums)| UsageRow { key, sums }).collect();
    Ok(Json(UsagePage { by: query.by, rows, total, is_partial }))
}

fn key(api: &ApiState, by: UsageKey, state: &TaskState) -> String {
    match by {
        UsageKey::Team => api.names().name(&state.team).unwrap_or_else(|| state.team.to_string()),
        UsageKey::Agent => state.agent.to_string(),
        UsageKey::Day | UsageKey::Model => state.created.strftime("%Y-%m-%d").to_string(),
    }
}

/// Adds the replies in a task's journal, by model.
async fn by_model(
    api: &ApiState,
    task: TaskId,
    rows: &mut BTreeMap<String, SumsView>,
) -> Result<(), ProblemDocument> {
    let mut after = Seq(0);
    let mut seen = std::collections::BTreeSet::new();
    loop {
        let records = api.store().read(task, after, AT_ONCE).await?;
        for record in &records {
            let (model, usage, cost, turns, calls) = match &record.entry {
                Entry::Replied(reply) => (&reply.model, reply.usage, reply.cost, 1, reply.calls().count()),
                Entry::Sampled(sampled) => (&sampled.model, sampled.usage, sampled.cost, 0, 0),
                _ => continue,
            };
            let row = rows.entry(model.clone()).or_default();
            row.tasks += usize::from(seen.insert(model.clone()));
            row.turns += turns;
            row.calls += u64::try_from(calls).unwrap_or_default();
            row.add_usage(usage);
            row.cost = row.cost.saturating_add(cost.unwrap_or_default());
            row.unpriced += u64::from(cost.is_none());
        }
        match records.last() {
            Some(last) if records.len() == AT_ONCE => after = last.seq,
            _ => return Ok(()),
        }
    }
}
