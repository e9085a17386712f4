//! The tasks that clients of a team can see, and what can be done with them.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use longhaul::dispatch::AgentInfo;
use longhaul::entry::TeamRef;
use longhaul::snapshot::Snapshot;
use longhaul::store::TaskFilter;
use longhaul::task::TaskState;
use longhaul::teamfile::TeamBundle;
use longhaul::toolset::client_tools::ClientQuestion;
use longhaul::{Longhaul, LonghaulError, TaskId};
use serde_json::Value;

use super::questions::{PersonReply, parse_reply, question_key};
use crate::backend::{Backend, BackendError, NewTask, ServedTeam, StartedTask};
use crate::problem::ProblemDocument;

/// How many roots to read to find those of the team. Other teams may share the store.
const ROOTS_READ: usize = 1000;
/// How many roots a list shows.
const ROOTS_SHOWN: usize = 100;

/// The tasks of a team.
pub(super) struct TeamTasks {
    backend: Backend,
    team: String,
    /// Whether other teams of the store are earlier versions of this one.
    same_team: Mutex<HashMap<TeamRef, bool>>,
}

impl TeamTasks {
    pub(super) fn new(backend: Backend, team: String) -> TeamTasks {
        TeamTasks { backend, team, same_team: Mutex::default() }
    }

    pub(super) fn backend(&self) -> &Backend {
        &self.backend
    }

    pub(super) fn longhaul(&self) -> &Longhaul {
        self.backend.longhaul()
    }

    pub(super) fn now(&self) -> Timestamp {
        self.longhaul().store().now()
    }

    pub(super) fn served(&self) -> Result<&ServedTeam, BackendError> {
        self.backend.team(Some(&self.team))
    }

    /// The agents of the team, the root first.
    pub(super) fn agents(&self) -> Vec<AgentInfo> {
        self.served().map(ServedTeam::agents).unwrap_or_default()
    }

    pub(super) async fn start(
        &self,
        order: longhaul::Order,
        key: Option<String>,
    ) -> Result<StartedTask, ProblemDocument> {
        let team = &self.served()?.team;
        if let Some(model) = order.model.as_deref().filter(|model| team.model(model).is_none()) {
            let have = team.model_names().join(", ");
            return Err(ProblemDocument::invalid(format!(
                "there is no model '{model}' in the team; it has: {have}"
            )));
        }
        let new = NewTask { team: Some(self.team.clone()), order, key, own_dir: false };
        Ok(self.backend.start(new).await?)
    }

    /// The task with this id, if clients of this team may see it. A task of another team is not found.
    pub(super) async fn find(&self, typed: &str) -> Result<TaskState, ProblemDocument> {
        let typed = typed.trim();
        let shown: String = typed.chars().take(40).collect();
        let none = || {
            ProblemDocument::not_found("unknown_task", format!("there is no task '{shown}' here"))
                .with_hint("list_background_agents lists the tasks")
        };
        let id: TaskId = typed.parse().map_err(|_| none())?;
        let state = match self.longhaul().state(id).await {
            Ok(state) => state,
            Err(LonghaulError::Store(longhaul::store::StoreError::NoTask(_))) => return Err(none()),
            Err(error) => return Err(error.into()),
        };
        if self.is_same_team(&state.team).await { Ok(state) } else { Err(none()) }
    }

    /// Whether a team is this one, or an earlier version of its file that works in the same directory.
    async fn is_same_team(&self, team: &TeamRef) -> bool {
        let Ok(served) = self.served() else { return false };
        let own = served.team.reference();
        if own == team {
            return true;
        }
        let known = self.same_team.lock().unwrap_or_else(PoisonError::into_inner).get(team).copied();
        if let Some(known) = known {
            return known;
        }
        let same = match (self.bundle(own).await, self.bundle(team).await) {
            (Some(own), Some(other)) => {
                other.served
                    && (&own.base, &own.name, &own.working_dir, &own.host)
                        == (&other.base, &other.name, &other.working_dir, &other.host)
            }
            _ => false,
        };
        self.same_team.lock().unwrap_or_else(PoisonError::into_inner).insert(team.clone(), same);
        same
    }

    async fn bundle(&self, team: &TeamRef) -> Option<TeamBundle> {
        let TeamRef::File(digest) = team else { return None };
        let blob = self.longhaul().store().blob(digest.clone()).await.ok()??;
        TeamBundle::decode(&blob).ok()
    }

    /// The newest roots of the team, oldest first.
    pub(super) async fn roots(&self) -> Result<Vec<TaskState>, ProblemDocument> {
        let filter = TaskFilter::newest(ROOTS_READ).roots(true);
        let mut roots = Vec::new();
        for state in self.longhaul().list(filter).await? {
            if self.is_same_team(&state.team).await {
                roots.push(state);
            }
        }
        Ok(roots.split_off(roots.len().saturating_sub(ROOTS_SHOWN)))
    }

    pub(super) async fn snapshot(&self, id: TaskId) -> Result<Snapshot, ProblemDocument> {
        Ok(self.longhaul().recent_snapshot(id).await?)
    }

    /// The unfinished tasks of a task's tree, without the task itself.
    pub(super) async fn others_in_tree(&self, task: &TaskState) -> Result<Vec<TaskState>, ProblemDocument> {
        let mut tree = self.longhaul().list(TaskFilter::tree(task.root).live()).await?;
        tree.retain(|other| other.id != task.id);
        Ok(tree)
    }

    /// The open questions of a task and its whole tree.
    pub(super) async fn questions(&self, task: &TaskState) -> Result<Vec<ClientQuestion>, ProblemDocument> {
        let tree = self.longhaul().list(TaskFilter::tree(task.root).live()).await?;
        let mut questions = Vec::new();
        for asking in tree.iter().filter(|state| !state.asked.is_empty()) {
            let snapshot = self.longhaul().snapshot(asking.id).await?;
            questions.extend(snapshot.questions.into_iter().map(|(question, asks)| ClientQuestion {
                task: asking.id,
                question,
                asks,
            }));
        }
        Ok(questions)
    }

    /// Passes on a person's reply to a question. A question that was answered meanwhile is no error.
    pub(super) async fn reply(
        &self,
        question: &ClientQuestion,
        reply: &Value,
    ) -> Result<(), ProblemDocument> {
        let parsed = parse_reply(&question.asks, reply).map_err(|why| {
            ProblemDocument::invalid(format!("the reply to {}: {why}", question_key(question)))
        })?;
        let (task, id) = (question.task, Some(question.question));
        let done = match parsed {
            PersonReply::Answer(text) => self.backend.answer(task, id, &text).await,
            PersonReply::Decline => self.backend.decline(task, id).await,
            PersonReply::Later => return Ok(()),
        };
        match done {
            Ok(_) | Err(BackendError::Engine(LonghaulError::AlreadyAnswered { .. })) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes sure that a process runs a task that has not ended. Only logs a failure: whoever reads a task gets
    /// its state all the same.
    pub(super) async fn keep_running(&self, state: &TaskState) {
        if !state.status.is_final()
            && let Err(error) = self.backend.carry(state.id).await
        {
            tracing::error!(task = %state.id, %error, "no process runs the task");
        }
    }

    pub(super) async fn carry_unfinished(&self) -> Result<(), BackendError> {
        let at_work = self.longhaul().store().teams_at_work().await.map_err(LonghaulError::from)?;
        for team in at_work {
            if !self.is_same_team(&team).await {
                continue;
            }
            let open = self.longhaul().list(TaskFilter::default().live()).await?;
            if let Some(state) = open.iter().find(|state| state.team == team) {
                self.backend.carry(state.id).await?;
            }
        }
        Ok(())
    }
}
