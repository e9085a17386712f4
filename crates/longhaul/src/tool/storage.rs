//! Durable storage for tools.

use std::sync::Arc;

use crate::dispatch::Caller;
use crate::entry::Entry;
use crate::id::{Seq, TaskId};
use crate::store::{Store, StoreError};
use crate::tool::ToolError;

/// Which tasks share a stored value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StorageScope {
    /// One conversation: the task and every task it continues.
    Conversation,
    /// All tasks of the tree.
    Tree,
}

/// Small storage that is as durable as the journal. A value stored here is available to every later call of
/// the same conversation or tree, in any process.
#[derive(Clone)]
pub struct ToolStorage {
    store: Arc<dyn Store>,
    task: TaskId,
    root: TaskId,
}

impl ToolStorage {
    /// The storage of a caller.
    pub fn new(store: Arc<dyn Store>, caller: &Caller) -> Self {
        ToolStorage { store, task: caller.task, root: caller.root }
    }

    /// The value stored under a name; empty if there is none.
    pub async fn read(&self, whose: StorageScope, name: &str) -> Result<Vec<u8>, ToolError> {
        let stored = self.store.stored_value(&self.stored_value_key(whose, name).await?).await;
        Ok(stored.map_err(fatal)?.bytes)
    }

    /// Updates the value stored under a name. `change` gets the current value and returns the new one and a
    /// result. It runs again if another writer was faster.
    pub async fn update<T>(
        &self,
        whose: StorageScope,
        name: &str,
        mut change: impl FnMut(&[u8]) -> Result<(Vec<u8>, T), ToolError>,
    ) -> Result<T, ToolError> {
        let key = self.stored_value_key(whose, name).await?;
        loop {
            let stored = self.store.stored_value(&key).await.map_err(fatal)?;
            let (bytes, answer) = change(&stored.bytes)?;
            if bytes == stored.bytes
                || self.store.put_stored_value(&key, stored.version, bytes).await.map_err(fatal)?
            {
                return Ok(answer);
            }
        }
    }

    async fn stored_value_key(&self, whose: StorageScope, name: &str) -> Result<String, ToolError> {
        let (kind, task) = match whose {
            StorageScope::Conversation => ("task", self.task),
            StorageScope::Tree => ("tree", self.root),
        };
        let first = first_of_chain(&*self.store, task).await.map_err(fatal)?;
        Ok(format!("{kind}:{first}:{name}"))
    }
}

/// The first task of the conversation that this task continues.
async fn first_of_chain(store: &dyn Store, mut task: TaskId) -> Result<TaskId, StoreError> {
    loop {
        let first = store.read(task, Seq(0), 1).await?;
        match first.first().map(|record| &record.entry) {
            Some(Entry::Submitted(submitted)) => match submitted.continues {
                Some(old) => task = old,
                None => return Ok(task),
            },
            _ => return Ok(task),
        }
    }
}

/// A store failure is not shown to the model: it ends the run.
fn fatal(error: StoreError) -> ToolError {
    ToolError::Fatal(error.to_string())
}
