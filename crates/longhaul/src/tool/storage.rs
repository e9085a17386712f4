//! Where a tool notes what it must still know after a restart.

use std::sync::Arc;

use crate::dispatch::Caller;
use crate::entry::Entry;
use crate::id::{Seq, TaskId};
use crate::store::{Store, StoreError};
use crate::tool::ToolError;

/// Whose note it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StorageScope {
    /// Of one conversation: the task, and all that it continues.
    Conversation,
    /// Of all tasks of the tree.
    Tree,
}

/// A small memory that is as durable as the journal. What a tool notes here it finds again in every later call of the
/// same task or tree, in whatever process that is made.
#[derive(Clone)]
pub struct ToolStorage {
    store: Arc<dyn Store>,
    task: TaskId,
    root: TaskId,
}

impl ToolStorage {
    /// The scratch of whoever calls.
    pub fn new(store: Arc<dyn Store>, caller: &Caller) -> Self {
        ToolStorage { store, task: caller.task, root: caller.root }
    }

    /// What is noted under a name; nothing, if nothing ever was.
    pub async fn read(&self, whose: StorageScope, name: &str) -> Result<Vec<u8>, ToolError> {
        let slip = self.store.stored_value(&self.stored_value_key(whose, name).await?).await;
        Ok(slip.map_err(fatal)?.bytes)
    }

    /// Changes what is noted under a name. `change` is given what is there and says what is to be there, and what to
    /// answer; it is asked again if somebody else wrote in between.
    pub async fn update<T>(
        &self,
        whose: StorageScope,
        name: &str,
        mut change: impl FnMut(&[u8]) -> Result<(Vec<u8>, T), ToolError>,
    ) -> Result<T, ToolError> {
        let key = self.stored_value_key(whose, name).await?;
        loop {
            let slip = self.store.stored_value(&key).await.map_err(fatal)?;
            let (bytes, answer) = change(&slip.bytes)?;
            if bytes == slip.bytes
                || self.store.put_stored_value(&key, slip.version, bytes).await.map_err(fatal)?
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

/// The task with which the conversation of this one began.
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

/// A store that does not answer is not the model's business: the run ends.
fn fatal(error: StoreError) -> ToolError {
    ToolError::Fatal(error.to_string())
}
