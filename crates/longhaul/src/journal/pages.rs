//! Reads a journal page by page, ahead of the consumer.

use std::collections::VecDeque;

use futures::{Stream, StreamExt as _};

use crate::entry::Record;
use crate::id::{Seq, TaskId};
use crate::store::{Store, StoreError, StoreFuture};

/// How many entries a page has.
const PAGE: usize = 1000;
/// How many pages are read at once.
const AT_ONCE: usize = 3;

/// A journal after an entry, to its end, page by page. While you process one page, the next ones are being
/// read.
pub fn pages(
    store: &dyn Store,
    task: TaskId,
    after: Seq,
) -> impl Stream<Item = Result<Vec<Record>, StoreError>> {
    futures::stream::unfold(
        Some(PageReader { store, task, next: after, asked: VecDeque::new() }),
        |reading| async {
            let mut reading = reading?;
            // Most journals have one page: only request more when it is full.
            reading.ask_for(1);
            let page = reading.asked.pop_front()?.await;
            match page {
                Ok(page) if page.is_empty() => None,
                // There are no gaps between entries, so the start of the next page is known. It may have been
                // read before this one was full; then this one is the last.
                Ok(page) if page.len() == PAGE => {
                    reading.ask_for(AT_ONCE);
                    Some((Ok(page), Some(reading)))
                }
                last => Some((last, None)),
            }
        },
    )
    .fuse()
}

struct PageReader<'a> {
    store: &'a dyn Store,
    task: TaskId,
    /// The entry after which the next page starts.
    next: Seq,
    asked: VecDeque<StoreFuture<'a, Vec<Record>>>,
}

impl PageReader<'_> {
    fn ask_for(&mut self, pages: usize) {
        while self.asked.len() < pages {
            self.asked.push_back(self.store.read(self.task, self.next, PAGE));
            self.next = Seq(self.next.0 + PAGE as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Entry, LiveTextKind, Order, Submission, TeamRef};
    use crate::id::{Attempt, TaskKey, WorkerId};
    use crate::store::{Batch, ClaimRequest, Fence, MemoryStore};
    use std::time::Duration;

    #[tokio::test]
    async fn nothing_is_missing_and_nothing_is_twice() {
        for entries in [2, PAGE - 1, PAGE, PAGE + 1, 4 * PAGE, 5 * PAGE + 7] {
            let (store, key) = (MemoryStore::new(), TaskKey::named("long"));
            let id = key.candidate_ids().next().unwrap();
            let submitted = Submission::root(id, key, Order::new("a", "x"), TeamRef::Named("t".into()));
            store
                .append(Batch::one(id, Fence::New, vec![Entry::Submitted(Box::new(submitted))]))
                .await
                .unwrap();
            let worker = WorkerId::from("w");
            store.renew_lease(worker.clone(), Duration::from_secs(600)).await.unwrap();
            let teams = vec![TeamRef::Named("t".into())];
            store
                .claim(ClaimRequest { worker, teams, roots: None, fresh_only: true, except: vec![], max: 1 })
                .await
                .unwrap();
            let said = || Entry::Said { voice: LiveTextKind::Text, text: "x".to_owned() };
            let more = (2..entries).map(|_| said()).collect();
            store.append(Batch::one(id, Fence::Attempt(Attempt(1)), more)).await.unwrap();
            for after in [0, 1, PAGE as u64, entries as u64] {
                let mut pages = std::pin::pin!(pages(&store, id, Seq(after)));
                let mut read = Vec::new();
                while let Some(page) = pages.next().await {
                    read.push(page.unwrap());
                }
                assert!(pages.next().await.is_none(), "and it stays at its end");
                let read: Vec<u64> = read.into_iter().flatten().map(|record| record.seq.0).collect();
                assert_eq!(read, (after + 1..=entries as u64).collect::<Vec<_>>(), "{entries} after {after}");
            }
        }
    }
}
