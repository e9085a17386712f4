//! A run's access to its journal: what it writes, what it defers, and what others have written meanwhile.

use std::ops::Range;

use tokio::time::Instant;

use super::{Halt, RECHECK_INTERVAL, TaskRun};
use crate::entry::{Entry, Record};
use crate::id::Seq;
use crate::journal;
use crate::store::{Batch, Fence, StoreError};

impl TaskRun {
    /// Writes entries, after the deferred ones. When this returns, they are part of the task.
    pub(super) async fn append_entries(&mut self, entries: Vec<Entry>) -> Result<(), Halt> {
        let deferred = self.deferred.take();
        let paid = deferred.len() as u64;
        let time = self.corrected_time().filter(|_| !matches!(entries[..], [Entry::Worked { .. }]));
        let all: Vec<Entry> = deferred.into_iter().chain(time).chain(entries).collect();
        let count = all.len() as u64;
        let batch = Batch::one(self.state.id, Fence::Attempt(self.attempt), all.clone());
        let last = journal::append(&*self.context.store, batch).await?.first().copied().unwrap_or_default();
        let first = Seq((last.0 + 1).saturating_sub(count));
        if first <= self.state.seq {
            // What it had written last is gone, and this stands in its place.
            return Err(Halt::Stale);
        }
        // The deferred entries are already in the conversation.
        let known = first..Seq(first.0 + paid);
        if first.0 != self.state.seq.0 + 1 {
            // Others wrote in between: apply everything, in its order.
            return self.read_new_entries(known).await;
        }
        let at = self.context.store.now();
        for entry in all {
            let record = Record { seq: Seq(self.state.seq.0 + 1), at, entry };
            self.apply_record(&record, &known)?;
        }
        Ok(())
    }

    /// Continues as if these entries were written. They are written before the next entry, or soon. Only for
    /// entries that may be lost without harm, because the work is then repeated.
    pub(super) fn defer(&mut self, entries: Vec<Entry>) {
        let (seq, at) = (self.state.seq, self.context.store.now());
        for entry in entries {
            let record = Record { seq, at, entry };
            self.conversation.apply(&record);
            let is_watched = || self.context.store.is_read_live(self.state.root);
            self.deferred.add(record.entry, is_watched);
        }
    }

    /// Writes the deferred entries.
    pub(super) async fn flush(&mut self) -> Result<(), Halt> {
        if self.deferred.is_empty() { Ok(()) } else { self.append_entries(Vec::new()).await }
    }

    /// Writes entries that are only valid if no one has written to the task since. Returns false if someone
    /// has; the new entries are then applied.
    pub(super) async fn append_unless_moved(&mut self, entries: Vec<Entry>) -> Result<bool, Halt> {
        self.flush().await?;
        let mut batch = Batch::one(self.state.id, Fence::Attempt(self.attempt), entries);
        batch.writes[0].after = Some(self.state.seq);
        let moved = match journal::append(&*self.context.store, batch).await {
            Ok(_) => false,
            Err(StoreError::JournalMoved { .. }) => true,
            Err(error) => return Err(error.into()),
        };
        self.catch_up().await?;
        Ok(!moved)
    }

    /// Applies what others have written. If the task was taken over, the run ends.
    pub(super) async fn catch_up(&mut self) -> Result<(), Halt> {
        let term = self.lease.current_term();
        self.read_new_entries(Seq(0)..Seq(0)).await?;
        self.lease.confirm_term(term);
        self.record_time().await
    }

    /// Returns once this run certainly owns the task; call it before any effect that others can see. Costs
    /// almost nothing while the lease is renewed in time.
    pub(super) async fn ensure_lease(&mut self) -> Result<(), Halt> {
        while !self.lease.is_held() {
            self.lease.wait_for_renewal().await;
            self.catch_up().await?;
        }
        Ok(())
    }

    /// Like [`ensure_lease`](Self::ensure_lease), but the store has confirmed it too; call it before changing
    /// other tasks because of this one.
    pub(super) async fn ensure_owner(&mut self) -> Result<(), Halt> {
        self.ensure_lease().await?;
        let ask = Batch::one(self.state.id, Fence::Attempt(self.attempt), Vec::new());
        journal::append(&*self.context.store, ask).await?;
        Ok(())
    }

    /// Applies new journal entries. The conversation already has those in `known`.
    ///
    /// A store that fails over to a replica may lose live entries: they do not wait for the disk. Others may
    /// then have written in their place. So the last entry that this run knows is read again: what is lost
    /// was written by this run, and what stands in its place was not, so the kinds differ.
    pub(super) async fn read_new_entries(&mut self, known: Range<Seq>) -> Result<(), Halt> {
        self.recheck_at = Instant::now() + RECHECK_INTERVAL;
        let before = Seq(self.state.seq.0.saturating_sub(1));
        let records = journal::read_all(&*self.context.store, self.state.id, before).await?;
        match records.split_first() {
            Some((last, new)) if last.seq == self.state.seq && last.entry.kind() == self.last_kind => {
                new.iter().try_for_each(|record| self.apply_record(record, &known))
            }
            _ => Err(Halt::Stale),
        }
    }

    fn apply_record(&mut self, record: &Record, known: &Range<Seq>) -> Result<(), Halt> {
        let task = self.state.id;
        // A run never reads its own end: another worker has continued the journal.
        if matches!(record.entry, Entry::Claimed { .. } | Entry::Released { .. } | Entry::Finished(_)) {
            return Err(Halt::Lost);
        }
        self.state.apply(record).map_err(|why| Halt::from(StoreError::Illegal { task, why }))?;
        self.last_kind = record.entry.kind();
        if matches!(record.entry, Entry::Replied(_) | Entry::Sampled(_) | Entry::Compacted { .. }) {
            self.ledger.report(&self.state);
        }
        if known.contains(&record.seq) {
            return Ok(());
        }
        self.conversation.apply(record);
        if matches!(record.entry, Entry::Compacted { .. }) {
            self.memo.clear();
        }
        Ok(())
    }
}
