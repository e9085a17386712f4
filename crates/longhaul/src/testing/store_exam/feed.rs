//! Questions about the feed: every entry once, in one order, from any position.

use super::StoreFactory;
use super::setup::{ExamSetup, cancelled, claim, ids, letter, owner, replied, stop};
use crate::entry::Entry;
use crate::id::{Seq, TaskId};
use crate::store::{Batch, FeedItem, FeedPosition, FeedScope, Fence, StoreError};

impl ExamSetup {
    /// Reads the feed from a position to its end, in pages of this size.
    async fn feed(&self, scope: FeedScope, after: FeedPosition, page: usize) -> Vec<FeedItem> {
        let (mut items, mut at) = (Vec::new(), after);
        loop {
            let read = self.store.read_feed(scope, at, page).await.expect("the feed is read");
            assert!(read.items.len() <= page && read.position >= at);
            assert!(read.items.last().is_none_or(|last| last.position() <= read.position));
            at = read.position;
            items.extend(read.items);
            if !read.more {
                assert!(at <= self.store.feed_end().await.expect("there is an end"));
                return items;
            }
        }
    }

    async fn feed_start(&self) -> FeedPosition {
        self.store.feed_start().await.expect("there is a start")
    }
}

fn entries(items: &[FeedItem]) -> Vec<(TaskId, Seq)> {
    let entry = |item: &FeedItem| match item {
        FeedItem::Entry { task, record, .. } => Some((*task, record.seq)),
        FeedItem::Deleted { .. } => None,
    };
    items.iter().filter_map(entry).collect()
}

/// All entries, those of batches and claims too, in the order in which they were written; each scope has its
/// own, in pages of any size, and with the same positions.
pub async fn the_feed_has_every_entry_once_and_in_order(make: StoreFactory<'_>) {
    let s = ExamSetup::new(make);
    let start = s.feed_start().await;
    assert!(s.feed(FeedScope::All, start, 10).await.is_empty());
    let a = s.task().await;
    let b = s.task().await;
    let child = s.child(a).await;
    assert_eq!(ids(&s.claim(claim("w", 9)).await.unwrap()), [a, b, child]);
    s.write(b, Fence::Anyone, vec![letter("one")]).await.unwrap();
    // A letter that is there already is no entry.
    s.write(b, Fence::Anyone, vec![letter("one"), letter("two")]).await.unwrap();
    let both = Batch::one(a, owner(1), vec![replied("x"), replied("y")]);
    s.store.append(both.and_write(child, owner(1), vec![replied("z")])).await.unwrap();
    assert!(s.write(b, owner(7), vec![replied("refused")]).await.is_err());
    s.write(child, owner(1), vec![replied("last")]).await.unwrap();

    let all = s.feed(FeedScope::All, start, 100).await;
    assert!(all.windows(2).all(|two| two[0].position() < two[1].position()));
    let mut of_batch = entries(&all[8..11]);
    of_batch.sort();
    let mut expected = vec![(a, Seq(3)), (a, Seq(4)), (child, Seq(3))];
    expected.sort();
    assert_eq!(of_batch, expected, "in either order");
    let rest = [(a, 1), (b, 1), (child, 1), (a, 2), (b, 2), (child, 2), (b, 3), (b, 4)];
    assert_eq!(entries(&all[..8]), rest.map(|(task, seq)| (task, Seq(seq))));
    assert_eq!(entries(&all[11..]), [(child, Seq(4))]);
    for item in &all {
        let FeedItem::Entry { task, root, record, .. } = item else { panic!("{item:?}") };
        assert_eq!(*root, if *task == b { b } else { a });
        let read = s.store.read(*task, Seq(record.seq.0 - 1), 1).await.unwrap();
        assert_eq!(read, std::slice::from_ref(record));
    }
    let nobody = s.fresh_id();
    let scopes = [
        FeedScope::All,
        FeedScope::Task(a),
        FeedScope::Task(child),
        FeedScope::Tree(a),
        FeedScope::Tree(b),
        FeedScope::Tree(child),
        FeedScope::Task(nobody),
    ];
    for scope in scopes {
        for (nth, after) in std::iter::once(start).chain(all.iter().map(FeedItem::position)).enumerate() {
            let contains = |item: &&FeedItem| match item {
                FeedItem::Entry { task, root, .. } => scope.contains(*task, *root),
                FeedItem::Deleted { .. } => false,
            };
            let expected: Vec<FeedItem> = all[nth..].iter().filter(contains).cloned().collect();
            for page in [1, 2, 3, 100] {
                assert_eq!(
                    s.feed(scope, after, page).await,
                    expected,
                    "{scope:?} after {after}, {page} a page"
                );
            }
        }
    }
    let again = s.feed(FeedScope::All, all[5].position().just_before(), 1).await;
    assert_eq!(again, all[5..], "right before an entry is a position too");
}

/// A reader that reads on while others write finds everything once.
pub async fn a_reader_of_the_feed_misses_nothing(make: StoreFactory<'_>) {
    let s = ExamSetup::new(make);
    let start = s.feed_start().await;
    let writers = (0..4).map(|n| {
        let s = s.clone();
        tokio::spawn(async move {
            for nth in 0..25 {
                let task = s.task().await;
                s.write(task, Fence::Anyone, vec![letter(&format!("{n} {nth}")), letter("more")])
                    .await
                    .unwrap();
            }
        })
    });
    let writers = futures::future::join_all(writers);
    let reader = {
        let s = s.clone();
        tokio::spawn(async move {
            let (mut found, mut at) = (Vec::new(), start);
            while found.len() < 300 {
                let page = s.store.read_feed(FeedScope::All, at, 7).await.unwrap();
                at = page.position;
                found.extend(entries(&page.items));
                tokio::task::yield_now().await;
            }
            found
        })
    };
    for written in writers.await {
        written.unwrap();
    }
    let found = reader.await.unwrap();
    let unique: std::collections::HashSet<_> = found.iter().collect();
    assert_eq!((found.len(), unique.len()), (300, 300));
    assert_eq!(entries(&s.feed(FeedScope::All, start, 1000).await), found);
}

/// What is deleted is no longer in the feed; a reader of all tasks finds where that happened, others do not.
/// Positions before and after it stay valid.
pub async fn deleted_tasks_leave_the_feed(make: StoreFactory<'_>) {
    let s = ExamSetup::new(make);
    let start = s.feed_start().await;
    let (kept, gone) = (s.task().await, s.task().await);
    s.write(gone, Fence::Anyone, vec![stop(), cancelled()]).await.unwrap();
    let before = s.store.feed_end().await.unwrap();
    s.store.delete(vec![(gone, Seq(3))]).await.unwrap();
    let after = s.store.feed_end().await.unwrap();
    assert!(after > before);
    s.write(kept, Fence::Anyone, vec![letter("l")]).await.unwrap();

    let all = s.feed(FeedScope::All, start, 1).await;
    assert_eq!(entries(&all), [(kept, Seq(1)), (kept, Seq(2))]);
    assert!(matches!(all[..], [_, FeedItem::Deleted { .. }, _]), "{all:?}");
    assert_eq!(s.feed(FeedScope::All, before, 9).await, all[1..]);
    assert_eq!(s.feed(FeedScope::All, after, 9).await, all[2..]);
    assert_eq!(entries(&s.feed(FeedScope::Task(kept), start, 9).await).len(), 2);
    assert_eq!(s.feed(FeedScope::Tree(kept), before, 9).await, all[2..]);
    assert!(s.feed(FeedScope::Task(gone), start, 9).await.is_empty());
}

/// A position that this store has not made is refused.
pub async fn a_foreign_position_is_refused(make: StoreFactory<'_>) {
    let s = ExamSetup::new(make);
    let task = s.task().await;
    let end = s.store.feed_end().await.unwrap();
    let foreign = [
        FeedPosition::new(!end.store(), end.major(), end.minor()),
        FeedPosition::new(end.store(), end.major(), end.minor() + 1),
        FeedPosition::new(end.store(), u64::MAX, u64::MAX),
    ];
    for position in foreign {
        for scope in [FeedScope::All, FeedScope::Task(task), FeedScope::Tree(task)] {
            let read = s.store.read_feed(scope, position, 9).await;
            assert!(matches!(read, Err(StoreError::UnknownPosition(named)) if named == position), "{read:?}");
        }
    }
    assert_eq!(end.to_string().parse(), Ok(end));
    let entry = Entry::Continued { by: task };
    assert!(s.write(task, Fence::Anyone, vec![entry]).await.is_err());
    assert_eq!(s.store.feed_end().await.unwrap(), end, "what is refused leaves no trace");
}
