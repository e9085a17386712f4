//! Finds tasks that cannot be loaded.

use std::sync::Arc;

use super::connect::ServerConnection;
use super::reader::{self, ReadConnections};
use super::rows::{self, state_columns};
use crate::id::TaskId;
use crate::store::{DamagedTask, StoreError, TaskFilter};
use crate::task::TaskState;

/// What was found.
#[derive(Default)]
pub(super) struct Findings {
    pub(super) damaged: Vec<DamagedTask>,
    /// Tasks whose state is wrong and whose journal is not.
    pub(super) to_rebuild: Vec<TaskId>,
}

/// Looks at the tasks that match; at the whole journals of those that have not ended, if asked to.
pub(super) async fn find(
    pool: &ReadConnections,
    filter: &TaskFilter,
    journals: bool,
) -> Result<Findings, StoreError> {
    const COLUMNS: &str = concat!(state_columns!(), ", t.root");
    let read = |connection: Arc<ServerConnection>| async move {
        let mut findings = Findings::default();
        for row in reader::newest(&connection, COLUMNS, filter).await? {
            let (Some(task), saved) = rows::saved(&row, 0)? else { continue };
            let root = rows::task_id(&row, 4)?.unwrap_or(task);
            let whole = match &saved {
                Some(state) if !journals || state.status.is_final() => continue,
                _ => rows::rebuild(&connection, task).await?,
            };
            // Read once more: an entry may have come between the two.
            let is_same = |whole: &TaskState| {
                saved.as_ref().is_some_and(|saved| saved == whole || saved.seq < whole.seq)
            };
            match whole {
                Ok(whole) if is_same(&whole) => {}
                Ok(_) => findings.to_rebuild.push(task),
                Err(error) => findings.damaged.push(DamagedTask { task, root, why: error.to_string() }),
            }
        }
        Ok(findings)
    };
    pool.run(read).await
}
