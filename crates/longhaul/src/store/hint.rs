//! Hints that a journal has grown.

use std::sync::Arc;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use crate::entry::EntryKind;
use crate::id::TaskId;

/// How many hints a receiver may fall behind before it gets [`Hint::Lagged`].
pub(super) const HINT_CAPACITY: usize = 4096;

/// A hint that a task's journal has grown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hint {
    /// These kinds of entries were appended to this task.
    Task {
        /// The task.
        task: TaskId,
        /// Its tree.
        root: TaskId,
        /// The kinds of the appended entries.
        kinds: EntryKinds,
    },
    /// Hints were lost: check everything you follow.
    Lagged,
}

/// A set of entry kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EntryKinds(pub(super) u32);

impl EntryKinds {
    /// Every kind.
    pub const ALL: EntryKinds = EntryKinds(u32::MAX);

    /// The set of these kinds.
    pub fn from_kinds(kinds: impl IntoIterator<Item = EntryKind>) -> Self {
        EntryKinds(kinds.into_iter().fold(0, |set, kind| set | 1 << kind as u8))
    }

    /// The set without one kind.
    pub fn without(self, kind: EntryKind) -> EntryKinds {
        EntryKinds(self.0 & !(1 << kind as u8))
    }

    /// Whether the sets have a kind in common.
    pub fn intersects(self, other: EntryKinds) -> bool {
        self.0 & other.0 != 0
    }

    /// The kinds of both sets.
    pub fn union(self, other: EntryKinds) -> EntryKinds {
        EntryKinds(self.0 | other.0)
    }
}

/// A stream of hints.
pub struct HintStream(BoxStream<'static, Hint>);

impl HintStream {
    /// Wraps the hints of a store. A store that loses hints sends [`Hint::Lagged`] instead; the stream ends
    /// when the store is closed.
    pub fn new(hints: impl Stream<Item = Hint> + Send + 'static) -> Self {
        HintStream(Box::pin(hints))
    }

    pub(crate) fn from_channel(receiver: Receiver<Hint>) -> Self {
        HintStream::new(received(receiver).map(|hint| hint.unwrap_or(Hint::Lagged)))
    }

    /// Like [`from_channel`](Self::from_channel), for hints that are sent together.
    pub(crate) fn from_batches(receiver: Receiver<Arc<[Hint]>>) -> Self {
        let hints = |batch: Option<Arc<[Hint]>>| batch.unwrap_or_else(|| Arc::new([Hint::Lagged]));
        let each = |hints: Arc<[Hint]>| futures::stream::iter((0..hints.len()).map(move |nth| hints[nth]));
        HintStream::new(received(receiver).map(hints).flat_map(each))
    }

    /// The next hint; `None` when the store is closed.
    pub async fn next(&mut self) -> Option<Hint> {
        self.0.next().await
    }
}

/// The received values, with `None` for a gap.
fn received<T: Clone + Send + 'static>(receiver: Receiver<T>) -> impl Stream<Item = Option<T>> {
    futures::stream::unfold(receiver, |mut receiver| async move {
        match receiver.recv().await {
            Ok(sent) => Some((Some(sent), receiver)),
            Err(RecvError::Lagged(_)) => Some((None, receiver)),
            Err(RecvError::Closed) => None,
        }
    })
}
