//! Bells: who wants to hear of which task. One listener to a store's hints rings them for everybody else.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use indexmap::IndexSet;
use tokio::sync::Notify;

use super::{Hint, Hints, Kinds};
use crate::entry::Kind;
use crate::id::TaskId;

/// The bells of a process. Clones ring the same bells.
#[derive(Clone, Default)]
pub struct Bells(Arc<Mutex<Board>>);

#[derive(Default)]
struct Board {
    next: u64,
    tasks: HashMap<TaskId, Vec<Wire>>,
    trees: HashMap<TaskId, Vec<Wire>>,
    all: Vec<Wire>,
}

struct Wire {
    number: u64,
    kinds: Kinds,
    bell: Arc<Rung>,
}

/// What a bell is hung up for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Task(TaskId),
    Tree(TaskId),
    All,
}

#[derive(Default)]
struct Rung {
    notify: Notify,
    what: Mutex<Heard>,
}

/// What a bell was rung for since somebody last answered it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Heard {
    /// These tasks have something new.
    pub tasks: IndexSet<TaskId>,
    /// Hints were lost: any task may have something new.
    pub lagged: bool,
}

impl Bells {
    /// A bell that rings when one of these kinds of entries is appended to one of these tasks.
    pub fn for_tasks(&self, tasks: &[TaskId], kinds: Kinds) -> Bell {
        self.hang(tasks.iter().map(|t| Place::Task(*t)).collect(), kinds)
    }

    /// A bell that rings for any task of a tree.
    pub fn for_tree(&self, root: TaskId, kinds: Kinds) -> Bell {
        self.hang(vec![Place::Tree(root)], kinds)
    }

    /// A bell that rings for any task.
    pub fn for_all(&self, kinds: Kinds) -> Bell {
        self.hang(vec![Place::All], kinds)
    }

    /// Rings for every hint until the store is gone.
    pub async fn listen(&self, mut hints: Hints) {
        while let Some(hint) = hints.next().await {
            self.ring(hint);
        }
    }

    /// Rings as if a task had been submitted just now: whoever runs tasks looks.
    pub(crate) fn wake(&self, root: TaskId) {
        self.ring(Hint::Task { task: root, root, kinds: Kinds::of([Kind::Submitted]) });
    }

    fn hang(&self, places: Vec<Place>, kinds: Kinds) -> Bell {
        let rung = Arc::new(Rung::default());
        let mut board = self.board();
        let number = board.next;
        board.next += 1;
        for place in &places {
            board.wires(*place).push(Wire { number, kinds, bell: rung.clone() });
        }
        drop(board);
        Bell { bells: self.clone(), number, places, rung }
    }

    fn ring(&self, hint: Hint) {
        let board = self.board();
        match hint {
            Hint::Task { task, root, kinds } => {
                let wires = [board.tasks.get(&task), board.trees.get(&root), Some(&board.all)];
                for wire in wires.into_iter().flatten().flatten().filter(|wire| wire.kinds.has(kinds)) {
                    wire.bell.ring(|heard| {
                        heard.tasks.insert(task);
                    });
                }
            }
            Hint::Lagged => {
                for wire in board.tasks.values().chain(board.trees.values()).flatten().chain(&board.all) {
                    wire.bell.ring(|heard| heard.lagged = true);
                }
            }
        }
    }

    fn board(&self) -> std::sync::MutexGuard<'_, Board> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Board {
    fn wires(&mut self, place: Place) -> &mut Vec<Wire> {
        match place {
            Place::Task(task) => self.tasks.entry(task).or_default(),
            Place::Tree(root) => self.trees.entry(root).or_default(),
            Place::All => &mut self.all,
        }
    }
}

impl Rung {
    fn ring(&self, note: impl FnOnce(&mut Heard)) {
        note(&mut self.what.lock().unwrap_or_else(PoisonError::into_inner));
        self.notify.notify_one();
    }
}

/// One bell. It hears what happens from the moment it is hung up; taken down when dropped.
pub struct Bell {
    bells: Bells,
    number: u64,
    places: Vec<Place>,
    rung: Arc<Rung>,
}

impl Bell {
    /// Waits until it is rung, if it has not been since last time.
    pub async fn rung(&self) -> Heard {
        loop {
            self.rung.notify.notified().await;
            let heard = std::mem::take(&mut *self.rung.what.lock().unwrap_or_else(PoisonError::into_inner));
            if heard != Heard::default() {
                return heard;
            }
        }
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        let mut board = self.bells.board();
        for place in &self.places {
            let wires = board.wires(*place);
            wires.retain(|wire| wire.number != self.number);
            let empty = wires.is_empty();
            match place {
                Place::Task(task) if empty => drop(board.tasks.remove(task)),
                Place::Tree(root) if empty => drop(board.trees.remove(root)),
                _ => {}
            }
        }
    }
}
