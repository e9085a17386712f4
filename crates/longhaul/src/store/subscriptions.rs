//! Subscriptions to tasks: one listener reads a store's hints and wakes everyone who subscribed to the task.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use indexmap::IndexSet;
use tokio::sync::Notify;

use super::{EntryKinds, Hint, HintStream};
use crate::entry::EntryKind;
use crate::id::TaskId;

/// The subscriptions of a process. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Subscriptions(Arc<Mutex<SubscriptionTable>>);

#[derive(Default)]
struct SubscriptionTable {
    next: u64,
    tasks: HashMap<TaskId, Vec<Subscriber>>,
    trees: HashMap<TaskId, Vec<Subscriber>>,
    all: Vec<Subscriber>,
}

struct Subscriber {
    number: u64,
    kinds: EntryKinds,
    signal: Arc<WakeSignal>,
}

/// What a subscription covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SubscriptionScope {
    Task(TaskId),
    Tree(TaskId),
    All,
}

#[derive(Default)]
struct WakeSignal {
    notify: Notify,
    pending: Mutex<Wake>,
}

/// What woke a subscription since the last wake was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Wake {
    /// These tasks have something new.
    pub(crate) tasks: IndexSet<TaskId>,
    /// Hints were lost: any task may have something new.
    pub(crate) lagged: bool,
}

impl Subscriptions {
    /// Subscribes to entries of these kinds in these tasks.
    pub(crate) fn for_tasks(&self, tasks: &[TaskId], kinds: EntryKinds) -> Subscription {
        self.subscribe(tasks.iter().map(|t| SubscriptionScope::Task(*t)).collect(), kinds)
    }

    /// Subscribes to entries of these kinds in any task of a tree.
    pub(crate) fn for_tree(&self, root: TaskId, kinds: EntryKinds) -> Subscription {
        self.subscribe(vec![SubscriptionScope::Tree(root)], kinds)
    }

    /// Subscribes to entries of these kinds in any task.
    pub(crate) fn for_all(&self, kinds: EntryKinds) -> Subscription {
        self.subscribe(vec![SubscriptionScope::All], kinds)
    }

    /// Wakes subscriptions for every hint until the store is closed.
    pub(crate) async fn forward_hints(&self, mut hints: HintStream) {
        while let Some(hint) = hints.next().await {
            self.notify(hint);
        }
    }

    /// Wakes subscriptions as if a task had just been submitted, so that workers look for tasks.
    pub(crate) fn announce_submitted(&self, root: TaskId) {
        self.notify(Hint::Task { task: root, root, kinds: EntryKinds::from_kinds([EntryKind::Submitted]) });
    }

    fn subscribe(&self, places: Vec<SubscriptionScope>, kinds: EntryKinds) -> Subscription {
        let wake = Arc::new(WakeSignal::default());
        let mut board = self.table();
        let number = board.next;
        board.next += 1;
        for place in &places {
            board.subscribers(*place).push(Subscriber { number, kinds, signal: wake.clone() });
        }
        drop(board);
        Subscription { subscriptions: self.clone(), number, scopes: places, signal: wake }
    }

    fn notify(&self, hint: Hint) {
        let board = self.table();
        match hint {
            Hint::Task { task, root, kinds } => {
                let wires = [board.tasks.get(&task), board.trees.get(&root), Some(&board.all)];
                for wire in wires.into_iter().flatten().flatten().filter(|wire| wire.kinds.intersects(kinds))
                {
                    wire.signal.notify(|pending| {
                        pending.tasks.insert(task);
                    });
                }
            }
            Hint::Lagged => {
                for wire in board.tasks.values().chain(board.trees.values()).flatten().chain(&board.all) {
                    wire.signal.notify(|pending| pending.lagged = true);
                }
            }
        }
    }

    fn table(&self) -> std::sync::MutexGuard<'_, SubscriptionTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SubscriptionTable {
    fn subscribers(&mut self, place: SubscriptionScope) -> &mut Vec<Subscriber> {
        match place {
            SubscriptionScope::Task(task) => self.tasks.entry(task).or_default(),
            SubscriptionScope::Tree(root) => self.trees.entry(root).or_default(),
            SubscriptionScope::All => &mut self.all,
        }
    }
}

impl WakeSignal {
    fn notify(&self, note: impl FnOnce(&mut Wake)) {
        note(&mut self.pending.lock().unwrap_or_else(PoisonError::into_inner));
        self.notify.notify_one();
    }
}

/// One subscription. It covers changes from its creation until it is dropped.
pub(crate) struct Subscription {
    subscriptions: Subscriptions,
    number: u64,
    scopes: Vec<SubscriptionScope>,
    signal: Arc<WakeSignal>,
}

impl Subscription {
    /// Waits until it is woken. Returns at once if it was woken since the last call.
    pub(crate) async fn next_wake(&self) -> Wake {
        loop {
            self.signal.notify.notified().await;
            let pending =
                std::mem::take(&mut *self.signal.pending.lock().unwrap_or_else(PoisonError::into_inner));
            if pending != Wake::default() {
                return pending;
            }
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut board = self.subscriptions.table();
        for place in &self.scopes {
            let wires = board.subscribers(*place);
            wires.retain(|wire| wire.number != self.number);
            let empty = wires.is_empty();
            match place {
                SubscriptionScope::Task(task) if empty => drop(board.tasks.remove(task)),
                SubscriptionScope::Tree(root) if empty => drop(board.trees.remove(root)),
                _ => {}
            }
        }
    }
}
