//! The feed: the entries of all journals in the order in which they were written.

use std::fmt;
use std::str::FromStr;

use crate::entry::Record;
use crate::id::TaskId;

/// A place in a store's feed. Only the store that made it can read on from it.
///
/// Positions of one store are ordered. Everything else about them is the store's own business: keep them as
/// text, and hand them back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FeedPosition {
    store: u32,
    major: u64,
    minor: u64,
}

impl FeedPosition {
    /// A position, for implementations of [`Store`](super::Store). `store` tells stores apart, and the others
    /// order the entries of one store: first by `major`, then by `minor`, which is at least 1 for an entry.
    pub fn new(store: u32, major: u64, minor: u64) -> FeedPosition {
        FeedPosition { store, major, minor }
    }

    /// The number of the store that made it.
    pub fn store(self) -> u32 {
        self.store
    }

    /// The first number of its order.
    pub fn major(self) -> u64 {
        self.major
    }

    /// The second number of its order.
    pub fn minor(self) -> u64 {
        self.minor
    }

    /// A position right before this one: reading on from it gives the entry of this one again.
    pub fn just_before(self) -> FeedPosition {
        FeedPosition { minor: self.minor.saturating_sub(1), ..self }
    }
}

impl fmt::Display for FeedPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}.{}.{}", self.store, self.major, self.minor)
    }
}

/// Why a text is not a [`FeedPosition`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a position in the feed")]
pub struct ParseFeedPositionError(pub String);

impl FromStr for FeedPosition {
    type Err = ParseFeedPositionError;

    fn from_str(text: &str) -> Result<Self, ParseFeedPositionError> {
        let number = |part: &str| part.parse().ok().filter(|_| part.bytes().all(|b| b.is_ascii_digit()));
        let hex = |part: &str| {
            let fits = part.len() == 8 && part.bytes().all(|b| b.is_ascii_hexdigit());
            fits.then(|| u32::from_str_radix(part, 16).ok()).flatten()
        };
        let parts: Vec<&str> = text.split('.').collect();
        let read = match parts[..] {
            [store, major, minor] => hex(store).zip(number(major)).zip(number(minor)),
            _ => None,
        };
        read.map(|((store, major), minor)| FeedPosition { store, major, minor })
            .ok_or_else(|| ParseFeedPositionError(text.chars().take(60).collect()))
    }
}

/// Which journals a reader of the feed wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FeedScope {
    /// All.
    All,
    /// Those of the tree with this root.
    Tree(TaskId),
    /// That of this task.
    Task(TaskId),
}

impl FeedScope {
    /// Whether a task of a tree is in it.
    pub fn contains(self, task: TaskId, root: TaskId) -> bool {
        match self {
            FeedScope::All => true,
            FeedScope::Tree(tree) => tree == root,
            FeedScope::Task(id) => id == task,
        }
    }
}

/// An item of the feed.
#[derive(Debug, Clone, PartialEq)]
pub enum FeedItem {
    /// An entry of a journal.
    Entry {
        /// Its position.
        position: FeedPosition,
        /// The task.
        task: TaskId,
        /// The root of the task's tree.
        root: TaskId,
        /// The entry.
        record: Record,
    },
    /// Tasks were deleted here, with all their entries. Only the last deletion is reported.
    Deleted {
        /// Its position.
        position: FeedPosition,
    },
}

impl FeedItem {
    /// Its position.
    pub fn position(&self) -> FeedPosition {
        match self {
            FeedItem::Entry { position, .. } | FeedItem::Deleted { position } => *position,
        }
    }
}

/// A part of the feed.
#[derive(Debug, Clone, PartialEq)]
pub struct FeedPage {
    /// The items, in order.
    pub items: Vec<FeedItem>,
    /// Read on from here.
    pub position: FeedPosition,
    /// Whether there is more.
    pub more: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_read_back_as_it_was_shown() {
        for position in [FeedPosition::new(0, 0, 0), FeedPosition::new(u32::MAX, u64::MAX, 7)] {
            assert_eq!(position.to_string().parse(), Ok(position));
        }
        for wrong in ["", "1", "0.0.0", "00000000.0.", "00000000.0.-1", "00000000.+1.0", "zz000000.0.0", "é"]
        {
            assert!(wrong.parse::<FeedPosition>().is_err(), "{wrong}");
        }
        assert!(FeedPosition::new(1, 0, 9) < FeedPosition::new(1, 1, 1));
    }
}
