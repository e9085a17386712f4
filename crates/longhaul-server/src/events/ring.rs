//! The newest events, in a ring of bounded size. Pure: it reads nothing and waits for nothing.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use axum::body::Bytes;
use longhaul::store::{FeedPosition, FeedScope};
use tokio::sync::Notify;

use super::frame::{EventId, Frame, FrameScope};

/// The newest events.
pub(super) struct Ring {
    /// The most bytes, but for a single event that is larger.
    most: usize,
    bytes: usize,
    frames: VecDeque<Frame>,
    /// The number of the first frame; numbers are never reused.
    first: u64,
    /// Every event after this position is here; `None` while the hub does not read.
    floor: Option<FeedPosition>,
    scopes: HashMap<FeedScope, ScopeEntry>,
}

struct ScopeEntry {
    notify: Arc<Notify>,
    watchers: usize,
    /// The number after the last frame of this scope that was dropped.
    dropped: u64,
}

/// Where a reader enters the ring.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Entrance {
    /// The hub does not read yet.
    NotYet,
    /// It has to read from the store first.
    Behind,
    /// At the frame with this number.
    At(u64),
}

/// What a reader finds in the ring.
#[derive(Debug)]
pub(super) enum Found {
    /// Events for it were dropped before it read them.
    Lagging,
    /// These frames, which may be none, and the number of the next.
    Frames(Vec<Frame>, u64),
}

impl Ring {
    pub(super) fn new(most: usize) -> Ring {
        Ring { most, bytes: 0, frames: VecDeque::new(), first: 0, floor: None, scopes: HashMap::new() }
    }

    /// Begins to keep events, with those after this position.
    pub(super) fn begin(&mut self, position: FeedPosition) {
        self.clear();
        self.floor = Some(position);
    }

    /// Forgets all events.
    pub(super) fn clear(&mut self) {
        self.first += self.frames.len() as u64;
        self.frames.clear();
        (self.bytes, self.floor) = (0, None);
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn watchers(&self) -> usize {
        self.scopes.values().map(|scope| scope.watchers).sum()
    }

    /// Registers a watcher of a scope.
    pub(super) fn enter(&mut self, scope: FeedScope) -> Arc<Notify> {
        let entry = self.scopes.entry(scope).or_insert_with(|| ScopeEntry {
            notify: Arc::new(Notify::new()),
            watchers: 0,
            dropped: 0,
        });
        entry.watchers += 1;
        entry.notify.clone()
    }

    /// Unregisters a watcher of a scope.
    pub(super) fn leave(&mut self, scope: FeedScope) {
        if let Some(entry) = self.scopes.get_mut(&scope) {
            entry.watchers -= 1;
            if entry.watchers == 0 {
                self.scopes.remove(&scope);
            }
        }
    }

    /// Adds frames, drops the oldest, and wakes those who wait for them.
    pub(super) fn append(&mut self, frames: Vec<Frame>) {
        let mut wakes: HashMap<FeedScope, Arc<Notify>> = HashMap::new();
        for frame in frames {
            for scope in self.scopes_of(&frame.scope) {
                if let Some(entry) = self.scopes.get(&scope) {
                    wakes.entry(scope).or_insert_with(|| entry.notify.clone());
                }
            }
            self.bytes += size(&frame);
            self.frames.push_back(frame);
        }
        while self.bytes > self.most && self.frames.len() > 1 {
            self.drop_first();
        }
        wakes.values().for_each(|notify| notify.notify_waiters());
    }

    /// Wakes everyone, because something else than the events has changed.
    pub(super) fn wake_all(&self) {
        self.scopes.values().for_each(|entry| entry.notify.notify_waiters());
    }

    fn drop_first(&mut self) {
        let Some(frame) = self.frames.pop_front() else { return };
        self.bytes -= size(&frame);
        self.first += 1;
        self.floor = Some(frame.position);
        let dropped = self.first;
        for scope in self.scopes_of(&frame.scope) {
            if let Some(entry) = self.scopes.get_mut(&scope) {
                entry.dropped = dropped;
            }
        }
    }

    fn scopes_of(&self, scope: &FrameScope) -> Vec<FeedScope> {
        match *scope {
            FrameScope::Task { task, root, .. } => {
                vec![FeedScope::All, FeedScope::Tree(root), FeedScope::Task(task)]
            }
            FrameScope::Everyone => self.scopes.keys().copied().collect(),
        }
    }

    /// Where a reader that has seen everything up to an id enters.
    pub(super) fn entrance(&self, after: EventId) -> Entrance {
        let Some(floor) = self.floor else { return Entrance::NotYet };
        if after.position < floor || (after.position == floor && after.seen.is_some()) {
            return Entrance::Behind;
        }
        let skipped = self.frames.partition_point(|frame| !after.is_before(frame));
        Entrance::At(self.first + skipped as u64)
    }

    /// The frames for a reader from a number on, at most about this many bytes.
    pub(super) fn read(
        &self,
        scope: FeedScope,
        from: u64,
        most: usize,
        mut wanted: impl FnMut(&Frame) -> bool,
    ) -> Found {
        if self.scopes.get(&scope).is_some_and(|entry| entry.dropped > from) || self.floor.is_none() {
            return Found::Lagging;
        }
        let skip = usize::try_from(from.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let (mut found, mut bytes, mut next) = (Vec::new(), 0, from.max(self.first));
        for frame in self.frames.iter().skip(skip) {
            if bytes >= most {
                break;
            }
            next += 1;
            let in_scope = match frame.scope {
                FrameScope::Task { task, root, .. } => scope.contains(task, root),
                FrameScope::Everyone => true,
            };
            if in_scope && wanted(frame) {
                bytes += frame.bytes.len();
                found.push(frame.clone());
            }
        }
        Found::Frames(found, next)
    }
}

/// What a frame counts for.
fn size(frame: &Frame) -> usize {
    std::mem::size_of::<Frame>() + Bytes::len(&frame.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul::TaskId;

    fn position(row: u64) -> FeedPosition {
        FeedPosition::new(1, 0, row)
    }

    fn task(nth: usize) -> TaskId {
        longhaul::id::TaskKey::named(&nth.to_string()).candidate_ids().next().unwrap()
    }

    /// The `nth` of `of` events of the entry at a row.
    fn frame(id: TaskId, row: u64, nth: u32, of: u32) -> Frame {
        let scope = FrameScope::Task { task: id, root: id, child_of: None, is_end: false };
        let seen = (nth + 1 < of).then_some(nth + 1);
        let id = EventId { position: position(row), seen };
        Frame { position: position(row), nth, id, scope, bytes: Bytes::from(vec![b'x'; 1000]) }
    }

    fn rows(found: Found) -> Vec<u64> {
        let Found::Frames(frames, _) = found else { panic!("{found:?}") };
        frames.iter().map(|frame| frame.position.minor()).collect()
    }

    #[test]
    fn a_reader_enters_where_it_has_been() {
        let mut ring = Ring::new(1 << 20);
        let after = |row, seen| EventId { position: position(row), seen };
        assert_eq!(ring.entrance(after(0, None)), Entrance::NotYet);
        ring.begin(position(10));
        ring.append(vec![frame(task(0), 11, 0, 1), frame(task(1), 12, 0, 2), frame(task(1), 12, 1, 2)]);
        assert_eq!(ring.entrance(after(9, None)), Entrance::Behind);
        assert_eq!(ring.entrance(after(10, None)), Entrance::At(0));
        assert_eq!(ring.entrance(after(10, Some(1))), Entrance::Behind);
        assert_eq!(ring.entrance(after(11, None)), Entrance::At(1));
        assert_eq!(ring.entrance(after(12, Some(1))), Entrance::At(2), "in the middle of an entry");
        assert_eq!(ring.entrance(after(12, None)), Entrance::At(3));
        assert_eq!(ring.entrance(after(99, None)), Entrance::At(3), "further than the hub");
    }

    #[test]
    fn only_who_misses_something_is_lagging() {
        let mut ring = Ring::new(10_000);
        ring.begin(position(0));
        let (busy, quiet) = (FeedScope::Task(task(0)), FeedScope::Task(task(1)));
        ring.enter(busy);
        ring.enter(quiet);
        ring.append((1..100).map(|row| frame(task(0), row, 0, 1)).collect());
        assert!(ring.bytes() <= 10_000);
        assert!(matches!(ring.read(busy, 0, usize::MAX, |_| true), Found::Lagging));
        assert!(rows(ring.read(quiet, 0, usize::MAX, |_| true)).is_empty(), "nothing was for it");
        ring.append(vec![frame(task(1), 100, 0, 1)]);
        assert_eq!(rows(ring.read(quiet, 0, usize::MAX, |_| true)), [100]);
        assert_eq!(rows(ring.read(busy, 97, usize::MAX, |_| true)), [98, 99]);
        let Found::Frames(some, next) = ring.read(busy, 97, 1, |_| true) else { panic!() };
        assert_eq!((some.len(), next), (1, 98), "a part at a time");
        ring.leave(quiet);
        assert_eq!(ring.watchers(), 1);
    }

    #[test]
    fn one_event_that_is_too_large_is_kept_alone() {
        let mut ring = Ring::new(500);
        ring.begin(position(0));
        ring.enter(FeedScope::All);
        ring.append(vec![frame(task(0), 1, 0, 1), frame(task(0), 2, 0, 1)]);
        assert_eq!(rows(ring.read(FeedScope::All, 1, usize::MAX, |_| true)), [2]);
    }
}
