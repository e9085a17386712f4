//! What every interface works on: the teams that are served, and the operations of their tasks.
//!
//! An interface never owns a task. It writes to the store through [`Backend`], and a [`TaskCarrier`] makes sure
//! that some process runs what was written.

mod team_versions;

use std::path::PathBuf;
use std::sync::Arc;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use longhaul::dispatch::{AgentInfo, SendReceipt};
use longhaul::entry::{Entry, TeamRef};
use longhaul::id::{LetterId, QuestionId, Seq};
use longhaul::journal;
use longhaul::supervisor::AnswerReceipt;
use longhaul::{Budget, Longhaul, LonghaulError, Order, TaskId, Team};

use self::team_versions::TeamVersions;
pub use self::team_versions::needs_process;

/// Makes sure that a process runs the tasks of a tree.
pub trait TaskCarrier: Send + Sync + 'static {
    /// Called after something was written to a tree that needs a process: a new task, a letter, an answer.
    /// Returns once a process runs the tree, or explains why none can. What was written stays written.
    fn carry<'a>(&'a self, root: TaskId, team: &'a TeamRef) -> BoxFuture<'a, Result<(), CarryError>>;
}

/// Why no process runs a tree. The tree itself is on disk.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct CarryError {
    /// The reason.
    pub why: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// For a server that runs all tasks of its teams itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct RunsHere;

impl TaskCarrier for RunsHere {
    fn carry<'a>(&'a self, _: TaskId, _: &'a TeamRef) -> BoxFuture<'a, Result<(), CarryError>> {
        Box::pin(async { Ok(()) })
    }
}

/// A team that clients can use.
#[derive(Clone)]
pub struct ServedTeam {
    /// Its name in requests: the name of its file without the extension.
    pub name: String,
    /// The team. Its reference is that of the stored bundle.
    pub team: Team,
    /// Where its tasks work.
    pub working_dir: PathBuf,
    /// What one run may use, unless the request sets other limits.
    pub budget: Budget,
}

impl ServedTeam {
    /// Its agents, the root first.
    pub fn agents(&self) -> Vec<AgentInfo> {
        let root = self.team.root();
        let mut agents: Vec<_> = self.team.agents().collect();
        agents.sort_by_key(|agent| agent.name != *root);
        agents
            .into_iter()
            .map(|agent| AgentInfo { name: agent.name.clone(), description: agent.description.clone() })
            .collect()
    }
}

/// A task that a client wants to start.
#[derive(Debug, Clone, Default)]
pub struct NewTask {
    /// The team; may be left out if only one is served.
    pub team: Option<String>,
    /// The order. Without an agent, the team's root agent gets it. Its working directory is that of the team.
    pub order: Order,
    /// Two requests with the same key are the same task.
    pub key: Option<String>,
    /// Whether it works in the directory of its order, and not in that of the team.
    pub own_dir: bool,
}

/// A task that was started, or found by its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartedTask {
    /// Its id.
    pub task: TaskId,
    /// Whether this request created it.
    pub created: bool,
}

/// Why a request cannot be fulfilled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// There is no such team.
    #[error("there is no team '{asked}' here; there are: {}", .have.join(", "))]
    UnknownTeam {
        /// The requested team.
        asked: String,
        /// The teams that are served.
        have: Vec<String>,
    },
    /// Several teams are served, and the request names none.
    #[error("name a team; there are: {}", .have.join(", "))]
    NoTeam {
        /// The teams that are served.
        have: Vec<String>,
    },
    /// The team has no such agent.
    #[error("there is no agent '{asked}' in team '{team}'; it has: {}", .have.join(", "))]
    UnknownAgent {
        /// The requested agent.
        asked: String,
        /// The team.
        team: String,
        /// Its agents.
        have: Vec<String>,
    },
    /// The team has no such model.
    #[error("there is no model '{asked}' in team '{team}'; it has: {}", .have.join(", "))]
    UnknownModel {
        /// The requested model.
        asked: String,
        /// The team.
        team: String,
        /// Its models.
        have: Vec<String>,
    },
    /// The request limits the cost, and the price of a model is not known.
    #[error("the price of {model} is not known, so a cost limit cannot be enforced")]
    UnknownPrice {
        /// The model.
        model: String,
    },
    /// The key was used before, for another order.
    #[error("the idempotency key was used before for another request; that is task {task}")]
    KeyUsed {
        /// The task that has the key.
        task: TaskId,
    },
    /// The engine or the store refused.
    #[error(transparent)]
    Engine(#[from] LonghaulError),
    /// The request is on disk, and no process can run it.
    #[error("task {task} is stored, but no process runs it: {error}")]
    NotCarried {
        /// The task.
        task: TaskId,
        /// Why.
        error: CarryError,
    },
}

/// The teams that are served and the operations on their tasks. Clones share them.
#[derive(Clone)]
pub struct Backend(Arc<BackendInner>);

struct BackendInner {
    longhaul: Longhaul,
    teams: Vec<ServedTeam>,
    carrier: Arc<dyn TaskCarrier>,
    versions: TeamVersions,
}

impl Backend {
    /// Creates a backend. The first team is the default.
    pub fn new(longhaul: Longhaul, teams: Vec<ServedTeam>, carrier: Arc<dyn TaskCarrier>) -> Backend {
        Backend(Arc::new(BackendInner { longhaul, teams, carrier, versions: TeamVersions::default() }))
    }

    /// The engine.
    pub fn longhaul(&self) -> &Longhaul {
        &self.0.longhaul
    }

    /// The teams that are served.
    pub fn teams(&self) -> &[ServedTeam] {
        &self.0.teams
    }

    /// The team of this name; the only one if no name is given.
    pub fn team(&self, name: Option<&str>) -> Result<&ServedTeam, BackendError> {
        let have = || self.0.teams.iter().map(|team| team.name.clone()).collect();
        match (name, &self.0.teams[..]) {
            (Some(name), teams) => teams
                .iter()
                .find(|team| team.name == name)
                .ok_or_else(|| BackendError::UnknownTeam { asked: name.to_owned(), have: have() }),
            (None, [only]) => Ok(only),
            (None, _) => Err(BackendError::NoTeam { have: have() }),
        }
    }

    /// Starts a task. When this returns, the task is on disk and a process runs it.
    pub async fn start(&self, new: NewTask) -> Result<StartedTask, BackendError> {
        let team = self.team(new.team.as_deref())?;
        let mut order = new.order;
        let agent = order.agent.get_or_insert_with(|| team.team.root().clone());
        if team.team.agent(agent).is_none() {
            return Err(BackendError::UnknownAgent {
                asked: agent.to_string(),
                team: team.name.clone(),
                have: team.agents().iter().map(|agent| agent.name.to_string()).collect(),
            });
        }
        if let Some(model) = order.model.as_ref().filter(|model| team.team.model(model).is_none()) {
            let have = team.team.model_names();
            return Err(BackendError::UnknownModel { asked: model.clone(), team: team.name.clone(), have });
        }
        if !(new.own_dir && order.working_dir.is_some()) {
            order.working_dir = Some(team.working_dir.clone());
        }
        order.tree_budget = order.tree_budget.or(team.budget);
        if let Some(model) = team.team.unpriced_model(&order) {
            return Err(BackendError::UnknownPrice { model });
        }
        let reference = team.team.reference();
        let started = match &new.key {
            None => {
                let task = self.longhaul().submit_to(reference.clone(), order).await?;
                StartedTask { task, created: true }
            }
            Some(key) => {
                let key = format!("{}/{key}", team.name);
                let (task, created) =
                    self.longhaul().submit_once_to(reference.clone(), &key, order.clone()).await?;
                if !created && self.longhaul().order(task).await? != order {
                    return Err(BackendError::KeyUsed { task });
                }
                StartedTask { task, created }
            }
        };
        self.carry(started.task).await?;
        Ok(started)
    }

    /// Sends a letter to a task. If the task has ended, a new one continues it.
    pub async fn send(&self, id: TaskId, text: &str, budget: Budget) -> Result<SendReceipt, BackendError> {
        let sent = self.longhaul().send_with_budget(id, text, budget).await?;
        self.carry(sent.to).await?;
        Ok(sent)
    }

    /// Like [`send`](Self::send), for a letter that the task reads when it has nothing left to do.
    pub async fn send_when_idle(&self, id: TaskId, text: &str) -> Result<SendReceipt, BackendError> {
        let sent = self.longhaul().send_when_idle(id, text).await?;
        self.carry(sent.to).await?;
        Ok(sent)
    }

    /// Like [`send`](Self::send), but only once per key: a repeated request finds the task that got
    /// the letter. Fails if the key was used for another text.
    pub async fn send_once(&self, id: TaskId, key: &str, text: &str) -> Result<SendReceipt, BackendError> {
        let sent = self.longhaul().send_once(id, key, text).await?;
        if !self.has_letter(sent.to, &LetterId::named(key), text).await? {
            return Err(BackendError::KeyUsed { task: sent.to });
        }
        self.carry(sent.to).await?;
        Ok(sent)
    }

    /// Whether this is one of the teams that are served.
    pub fn serves(&self, team: &TeamRef) -> bool {
        self.0.teams.iter().any(|served| served.team.reference() == team)
    }

    /// Whether a task got this letter with this text, as its order or later.
    async fn has_letter(&self, task: TaskId, id: &LetterId, text: &str) -> Result<bool, BackendError> {
        let mut pages = std::pin::pin!(journal::pages(&**self.longhaul().store(), task, Seq(0)));
        while let Some(page) = pages.next().await {
            for record in page.map_err(LonghaulError::from)? {
                match record.entry {
                    Entry::Submitted(submitted) if submitted.letter.as_ref() == Some(id) => {
                        return Ok(*submitted.order.task == *text);
                    }
                    Entry::Letter(letter) if letter.id == *id => return Ok(*letter.text == *text),
                    _ => {}
                }
            }
        }
        Ok(false)
    }

    /// Answers a question of a task, as [`Longhaul::answer`] does.
    pub async fn answer(
        &self,
        id: TaskId,
        question: Option<QuestionId>,
        text: &str,
    ) -> Result<AnswerReceipt, BackendError> {
        let receipt = self.longhaul().answer(id, question, text).await?;
        self.carry(id).await?;
        Ok(receipt)
    }

    /// Declines to answer a question of a task.
    pub async fn decline(
        &self,
        id: TaskId,
        question: Option<QuestionId>,
    ) -> Result<AnswerReceipt, BackendError> {
        let receipt = self.longhaul().decline(id, question).await?;
        self.carry(id).await?;
        Ok(receipt)
    }

    /// Re-runs a failed or cancelled task. Returns the new task.
    pub async fn retry(&self, id: TaskId) -> Result<TaskId, BackendError> {
        let task = self.longhaul().retry(id).await?;
        self.carry(task).await?;
        Ok(task)
    }

    /// Makes sure that a process runs the tree of a task.
    pub async fn carry(&self, task: TaskId) -> Result<(), BackendError> {
        let state = self.longhaul().state(task).await?;
        if state.status.is_final() {
            return Ok(());
        }
        let carried = self.0.carrier.carry(state.root, &state.team).await;
        carried.map_err(|error| BackendError::NotCarried { task, error })
    }
}
