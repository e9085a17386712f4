//! Who shows streamed text while it is written. Nobody else needs it more than once a second.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::id::TaskId;

/// The trees whose streamed text is shown, in this process and in others.
#[derive(Clone, Default)]
pub(crate) struct LiveReaders(Arc<Mutex<LiveTrees>>);

#[derive(Default)]
struct LiveTrees {
    here: HashMap<TaskId, usize>,
    elsewhere: HashSet<TaskId>,
}

/// Shows the streamed text of a tree until it is dropped. Made by
/// [`Store::read_live`](super::Store::read_live).
#[must_use = "it ends when it is dropped"]
pub struct LiveReader {
    readers: LiveReaders,
    root: TaskId,
    /// Tells other processes; whatever it is, dropping it ends that.
    _announced: Option<Box<dyn Send + Sync>>,
}

impl LiveReaders {
    /// Adds a reader of this process. `announced` tells other processes about it until it is dropped.
    pub(crate) fn add(&self, root: TaskId, announced: Option<Box<dyn Send + Sync>>) -> LiveReader {
        *self.lock().here.entry(root).or_default() += 1;
        LiveReader { readers: self.clone(), root, _announced: announced }
    }

    /// Replaces what is known about other processes.
    pub(crate) fn set_elsewhere(&self, roots: HashSet<TaskId>) {
        self.lock().elsewhere = roots;
    }

    /// Whether anyone shows the streamed text of this tree.
    pub(crate) fn contains(&self, root: TaskId) -> bool {
        let trees = self.lock();
        trees.here.contains_key(&root) || trees.elsewhere.contains(&root)
    }

    fn lock(&self) -> MutexGuard<'_, LiveTrees> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for LiveReader {
    fn drop(&mut self) {
        let mut trees = self.readers.lock();
        if let Some(count) = trees.here.get_mut(&self.root) {
            *count -= 1;
            if *count == 0 {
                trees.here.remove(&self.root);
            }
        }
    }
}

impl std::fmt::Debug for LiveReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LiveReader").field("root", &self.root).finish_non_exhaustive()
    }
}
