//! Tasks of earlier versions of a team file: clients of the team see them, and they are finished like all others.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use longhaul::LonghaulError;
use longhaul::entry::{TeamRef, WaitReason};
use longhaul::store::{Store, TaskFilter};
use longhaul::task::{TaskState, WaitState};
use longhaul::teamfile::TeamBundle;

use super::{Backend, BackendError, ServedTeam};

/// Whether a team of the store is a version of another one. A stored team never changes.
#[derive(Default)]
pub(super) struct TeamVersions(Mutex<HashMap<(TeamRef, TeamRef), bool>>);

impl TeamVersions {
    async fn are_versions(&self, store: &dyn Store, one: &TeamRef, other: &TeamRef) -> bool {
        if one == other {
            return true;
        }
        let pair = (one.clone(), other.clone());
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&pair).copied();
        if let Some(known) = known {
            return known;
        }
        let same = match (bundle(store, one).await, bundle(store, other).await) {
            (Some(one), Some(other)) => {
                other.served
                    && (&one.base, &one.name, &one.working_dir, &one.host)
                        == (&other.base, &other.name, &other.working_dir, &other.host)
            }
            _ => false,
        };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(pair, same);
        same
    }
}

async fn bundle(store: &dyn Store, team: &TeamRef) -> Option<TeamBundle> {
    let TeamRef::File(digest) = team else { return None };
    let blob = store.blob(digest.clone()).await.ok()??;
    TeamBundle::decode(&blob).ok()
}

/// Whether an unfinished task needs a process. A session that waits for its next message needs none: whoever sends
/// one starts one.
pub fn needs_process(task: &TaskState) -> bool {
    let waits = |wait: &WaitState| wait.on == WaitReason::Letter;
    !(task.unread == 0 && task.waiting.as_ref().is_some_and(waits))
}

impl Backend {
    /// Whether a team is this one, or an earlier version of its file that works in the same directory.
    pub(crate) async fn is_version_of(&self, served: &ServedTeam, team: &TeamRef) -> bool {
        let store = self.longhaul().store();
        self.0.versions.are_versions(&**store, served.team.reference(), team).await
    }

    /// Makes sure that a process runs the unfinished tasks of the teams, also those of earlier versions of their
    /// files.
    ///
    /// # Errors
    /// Fails if the store cannot be read, or if no process can run a task.
    pub async fn carry_unfinished(&self) -> Result<(), BackendError> {
        let at_work = self.longhaul().store().teams_at_work().await.map_err(LonghaulError::from)?;
        if at_work.is_empty() {
            return Ok(());
        }
        let open = self.longhaul().list(TaskFilter::default().live()).await?;
        for team in at_work {
            let Some(task) = open.iter().find(|task| task.team == team && needs_process(task)) else {
                continue;
            };
            for served in self.teams() {
                if self.is_version_of(served, &team).await {
                    self.carry(task.id).await?;
                    break;
                }
            }
        }
        Ok(())
    }
}
