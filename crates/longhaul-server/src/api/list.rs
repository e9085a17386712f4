//! `GET /tasks`: pages of tasks, newest first.

use axum::Json;
use axum::extract::State;
use longhaul::TaskId;
use longhaul::journal::descendants;
use longhaul::store::TaskFilter;
use longhaul::task::{Status, TaskState};
use serde::Deserialize;
use utoipa::IntoParams;

use super::ApiState;
use super::extract::{Params, task_id, time};
use crate::problem::ProblemDocument;
use crate::views::{SumsView, TaskPage, TaskView};

/// How many tasks a page has, if the request does not say.
const PAGE: usize = 50;
/// How many tasks a page has at most.
const MOST: usize = 200;
/// How many tasks are looked at for one page, at most, if a condition is not the store's.
const LOOKED_AT: usize = 2_000;
/// How many of them are read at once.
const AT_ONCE: usize = 500;

/// Which tasks to list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct TaskQuery {
    /// Only these tasks, separated by commas, at most 200, in this order. Those that do not exist are left out, and
    /// all other conditions are ignored.
    #[param(pattern = "^(t-[0-9a-hjkmnp-tv-z]{5,15}(,t-[0-9a-hjkmnp-tv-z]{5,15}){0,199})?$")]
    ids: Option<String>,
    /// Only tasks with one of these statuses, separated by commas: `pending`, `running`, `completed`, `failed`,
    /// `cancelled`. `open` and `ended` are short for several.
    #[param(
        pattern = "^((pending|running|completed|failed|cancelled|open|ended)(,(pending|running|completed|failed|cancelled|open|ended)){0,6})?$"
    )]
    status: Option<String>,
    /// Only tasks of this team.
    team: Option<String>,
    /// Only tasks of these agents, separated by commas.
    agent: Option<String>,
    /// Only tasks of the tree with this root.
    #[param(pattern = "^t-[0-9a-hjkmnp-tv-z]{5,15}$")]
    root: Option<String>,
    /// Only children of this task.
    #[param(pattern = "^t-[0-9a-hjkmnp-tv-z]{5,15}$")]
    parent: Option<String>,
    /// Only roots.
    #[serde(default)]
    roots: bool,
    /// Only tasks that wait for a person.
    #[serde(default)]
    needs_you: bool,
    /// Only tasks whose order (in one line), id, agent or error contains this text. It is case-sensitive if
    /// it has a capital letter.
    q: Option<String>,
    /// Only tasks that were submitted at or after this time.
    #[param(format = DateTime)]
    since: Option<String>,
    /// Only tasks that were submitted before this time.
    #[param(format = DateTime)]
    before: Option<String>,
    /// `tree` adds the sums of what is below each task.
    #[param(pattern = "^tree$")]
    include: Option<String>,
    /// How many tasks, at most. 50 if left out.
    #[param(minimum = 1, maximum = 200)]
    limit: Option<usize>,
    /// The `next_cursor` of the page before.
    #[param(pattern = "^c[0-9a-hjkmnp-tv-z]{5,15}$")]
    cursor: Option<String>,
}

/// The conditions, split between the store and this process.
struct Selection {
    filter: TaskFilter,
    /// The statuses as observers see them: a task whose process is gone is pending for them.
    statuses: Vec<Status>,
    needs_you: bool,
    text: Option<String>,
}

impl Selection {
    fn new(api: &ApiState, query: &TaskQuery) -> Result<Selection, ProblemDocument> {
        let statuses = statuses(query.status.as_deref())?;
        let mut filter = TaskFilter::default()
            .roots(query.roots)
            .since(time("since", query.since.as_deref())?)
            .before(time("before", query.before.as_deref())?)
            .root(query.root.as_deref().map(task_id).transpose()?)
            .parents(query.parent.as_deref().map(task_id).transpose()?.into_iter().collect())
            .agents(words(query.agent.as_deref()).map(longhaul::AgentName::from).collect());
        if let Some(team) = &query.team {
            let served = api.backend().team(Some(team));
            filter = filter.teams(vec![served.map_err(ProblemDocument::from)?.team.reference().clone()]);
        }
        filter = match query.needs_you {
            true => filter.live(),
            false => filter.status(stored(&statuses)),
        };
        let text = query.q.clone().filter(|text| !text.trim().is_empty());
        Ok(Selection { filter, statuses, needs_you: query.needs_you, text })
    }

    /// Whether the store checks everything.
    fn is_stores(&self) -> bool {
        self.filter.status == self.statuses && self.text.is_none() && !self.needs_you
    }

    fn matches(&self, state: &TaskState) -> bool {
        (self.statuses.is_empty() || self.statuses.contains(&state.status))
            && (!self.needs_you || crate::views::needs_you(state))
            && self.text.as_deref().is_none_or(|text| contains(state, text))
    }
}

fn contains(state: &TaskState, text: &str) -> bool {
    let exact = text.chars().any(char::is_uppercase);
    let fits = |within: &str| match exact {
        true => within.contains(text),
        false => within.to_lowercase().contains(text),
    };
    fits(&state.headline)
        || fits(state.agent.as_str())
        || fits(&state.id.to_string())
        || state.error.as_deref().is_some_and(fits)
}

fn words(list: Option<&str>) -> impl Iterator<Item = &str> {
    list.unwrap_or_default().split(',').map(str::trim).filter(|word| !word.is_empty())
}

fn statuses(list: Option<&str>) -> Result<Vec<Status>, ProblemDocument> {
    let mut found = Vec::new();
    for word in words(list) {
        let more: Vec<Status> = match word {
            "open" => vec![Status::Pending, Status::Running],
            "ended" => vec![Status::Completed, Status::Failed, Status::Cancelled],
            word => Status::ALL.into_iter().filter(|status| status.as_str() == word).collect(),
        };
        if more.is_empty() {
            let shown: String = word.chars().take(40).collect();
            return Err(ProblemDocument::invalid(format!(
                "status: there is no status '{shown}'; there are: pending, running, completed, failed, cancelled, \
                 open, ended"
            )));
        }
        found.extend(more.into_iter().filter(|status| !found.contains(status)).collect::<Vec<_>>());
    }
    found.sort_unstable();
    Ok(found)
}

/// The statuses in the store: a task that is shown as pending may be running there.
fn stored(shown: &[Status]) -> Vec<Status> {
    let open = [Status::Pending, Status::Running];
    match shown.iter().any(|status| open.contains(status)) {
        true => {
            let ended = shown.iter().filter(|status| !open.contains(status));
            open.into_iter().chain(ended.copied()).collect()
        }
        false => shown.to_vec(),
    }
}

/// List tasks
///
/// Newest first, in pages. The order is that of submission and never changes.
#[utoipa::path(get, path = "/tasks", tag = "tasks", params(TaskQuery),
    responses((status = 200, description = "A page of tasks.", body = TaskPage)))]
pub(super) async fn list_tasks(
    State(api): State<ApiState>,
    Params(query): Params<TaskQuery>,
) -> Result<Json<TaskPage>, ProblemDocument> {
    let selection = Selection::new(&api, &query)?;
    let limit = page_size(query.limit, PAGE, MOST)?;
    let with_sums = match query.include.as_deref() {
        None => false,
        Some("tree") => true,
        Some(other) => {
            let shown: String = other.chars().take(40).collect();
            return Err(ProblemDocument::invalid(format!("include: there is no '{shown}'; there is: tree")));
        }
    };
    let cursor = cursor(&api, query.cursor.as_deref()).await?;
    if let Some(ids) = &query.ids {
        return by_ids(&api, ids).await;
    }
    let (states, next) = page(&api, &selection, cursor, limit).await?;
    let now = api.store().now();
    let mut tasks: Vec<TaskView> =
        states.iter().map(|state| TaskView::new(state, api.names(), now)).collect();
    if with_sums {
        for (view, state) in tasks.iter_mut().zip(&states) {
            let tree = api.longhaul().list(TaskFilter::tree(state.root)).await?;
            view.tree = Some(SumsView::over(descendants(&tree, &[state.id]).chain([state])));
        }
    }
    Ok(Json(TaskPage { tasks, next_cursor: next.map(|id| format!("c{}", id.letters())) }))
}

/// The tasks with these ids.
async fn by_ids(api: &ApiState, ids: &str) -> Result<Json<TaskPage>, ProblemDocument> {
    let ids: Vec<TaskId> = words(Some(ids)).map(task_id).collect::<Result<_, _>>()?;
    if ids.len() > MOST {
        return Err(ProblemDocument::invalid(format!("ids: name at most {MOST} tasks, not {}", ids.len())));
    }
    let mut tasks = Vec::with_capacity(ids.len());
    for id in ids {
        match api.longhaul().state(id).await {
            Ok(state) => tasks.push(TaskView::new(&state, api.names(), api.store().now())),
            Err(error) => {
                let problem = ProblemDocument::from(error);
                if problem.status != 404 {
                    return Err(problem);
                }
            }
        }
    }
    Ok(Json(TaskPage { tasks, next_cursor: None }))
}

/// A limit in a query.
pub(super) fn page_size(asked: Option<usize>, usual: usize, most: usize) -> Result<usize, ProblemDocument> {
    match asked {
        None => Ok(usual),
        Some(limit) if (1..=most).contains(&limit) => Ok(limit),
        Some(limit) => Err(ProblemDocument::invalid(format!("limit: {limit} is not between 1 and {most}"))),
    }
}

/// The task before which a page begins.
async fn cursor(api: &ApiState, text: Option<&str>) -> Result<Option<TaskId>, ProblemDocument> {
    let Some(text) = text else { return Ok(None) };
    let shown: String = text.chars().take(40).collect();
    let hint = "start again without a cursor";
    let Some(id) = text.strip_prefix('c').and_then(|id| id.parse::<TaskId>().ok()) else {
        return Err(ProblemDocument::invalid(format!("cursor: '{shown}' is no cursor")).with_hint(hint));
    };
    match api.store().task_state(id).await? {
        Some(_) => Ok(Some(id)),
        None => {
            let detail = format!("cursor: '{shown}' is not known; its task may be deleted");
            Err(ProblemDocument::not_found("unknown_cursor", detail).with_hint(hint))
        }
    }
}

/// The next tasks before a cursor, and the cursor of the page after.
async fn page(
    api: &ApiState,
    selection: &Selection,
    mut cursor: Option<TaskId>,
    limit: usize,
) -> Result<(Vec<TaskState>, Option<TaskId>), ProblemDocument> {
    // One more than needed: whether there is another page.
    let at_once = if selection.is_stores() { limit + 1 } else { AT_ONCE };
    let (mut found, mut looked_at) = (Vec::new(), 0);
    loop {
        let filter = selection.filter.clone().submitted_before(cursor).limit(Some(at_once));
        let mut states = api.longhaul().list(filter).await?;
        states.reverse();
        let is_last = states.len() < at_once;
        for state in states {
            if found.len() == limit {
                return Ok((found, cursor));
            }
            cursor = Some(state.id);
            looked_at += 1;
            if selection.matches(&state) {
                found.push(state);
            }
        }
        if is_last {
            return Ok((found, None));
        }
        if looked_at >= LOOKED_AT {
            return Ok((found, cursor));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_that_is_shown_is_found_by_what_is_stored() {
        let read = |list: &str| statuses(Some(list)).unwrap();
        assert_eq!(read("failed, completed,failed"), [Status::Completed, Status::Failed]);
        assert_eq!(read("open"), [Status::Pending, Status::Running]);
        assert_eq!(read(""), []);
        assert!(statuses(Some("asleep")).is_err_and(|problem| problem.detail.contains("'asleep'")));
        assert_eq!(
            stored(&[Status::Pending, Status::Failed]),
            [Status::Pending, Status::Running, Status::Failed]
        );
        assert_eq!(stored(&[Status::Failed]), [Status::Failed]);
        assert!(stored(&[]).is_empty());
    }
}
