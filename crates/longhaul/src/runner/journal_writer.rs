//! The run's own side of its journal: what it writes, what it owes, and what others have written meanwhile.

use std::ops::Range;
use std::time::Duration;

use tokio::time::Instant;

use super::load_task::read_journal;
use super::{Halt, RECHECK_INTERVAL, TaskRun};
use crate::entry::{Entry, Record};
use crate::id::Seq;
use crate::store::{Batch, Fence, Store, StoreError};

impl TaskRun {
    /// Writes entries down, and what is owed before them; when this returns they are part of the task.
    pub(super) async fn append_entries(&mut self, entries: Vec<Entry>) -> Result<(), Halt> {
        let owed = self.deferred.take();
        let paid = owed.len() as u64;
        let time = self.corrected_time().filter(|_| !matches!(entries[..], [Entry::Worked { .. }]));
        let all: Vec<Entry> = owed.into_iter().chain(time).chain(entries).collect();
        let count = all.len() as u64;
        let batch = Batch::one(self.state.id, Fence::Attempt(self.attempt), all.clone());
        let last = append_with_retry(&*self.context.store, batch).await?.first().copied().unwrap_or_default();
        let first = Seq((last.0 + 1).saturating_sub(count));
        // What was owed is in the conversation already.
        let known = first..Seq(first.0 + paid);
        if first.0 != self.state.seq.0 + 1 {
            // Somebody wrote in between: take all of it in, in its order.
            return self.read_new_entries(known).await;
        }
        let at = self.context.store.now();
        for entry in all {
            let record = Record { seq: Seq(self.state.seq.0 + 1), at, entry };
            self.apply_record(&record, &known)?;
        }
        Ok(())
    }

    /// Goes on as if this were written down; it is before the next entry is, or soon. Only for what may be lost without
    /// harm: it is then done again.
    pub(super) fn defer(&mut self, entries: Vec<Entry>) {
        let (seq, at) = (self.state.seq, self.context.store.now());
        for entry in entries {
            let record = Record { seq, at, entry };
            self.conversation.apply(&record);
            self.deferred.add(record.entry);
        }
    }

    /// Writes down what is owed.
    pub(super) async fn flush(&mut self) -> Result<(), Halt> {
        if self.deferred.is_empty() { Ok(()) } else { self.append_entries(Vec::new()).await }
    }

    /// Writes entries down that are only right as long as nobody has written to the task since; false if somebody has,
    /// and then that is taken in.
    pub(super) async fn append_unless_moved(&mut self, entries: Vec<Entry>) -> Result<bool, Halt> {
        self.flush().await?;
        let mut batch = Batch::one(self.state.id, Fence::Attempt(self.attempt), entries);
        batch.writes[0].after = Some(self.state.seq);
        let moved = match append_with_retry(&*self.context.store, batch).await {
            Ok(_) => false,
            Err(StoreError::JournalMoved { .. }) => true,
            Err(error) => return Err(error.into()),
        };
        self.catch_up().await?;
        Ok(!moved)
    }

    /// Takes in what others have written. If the task was taken away, this is the end of the run.
    pub(super) async fn catch_up(&mut self) -> Result<(), Halt> {
        let term = self.lease.current_term();
        self.read_new_entries(Seq(0)..Seq(0)).await?;
        self.lease.confirm_term(term);
        self.record_time().await
    }

    /// Returns when the task surely is this run's: before anything is done that others can see. Costs next to nothing
    /// as long as the lease is renewed in time.
    pub(super) async fn ensure_lease(&mut self) -> Result<(), Halt> {
        while !self.lease.is_held() {
            self.lease.wait_for_renewal().await;
            self.catch_up().await?;
        }
        Ok(())
    }

    /// The same, and the store has said so too: before something is done to other tasks because of this one.
    pub(super) async fn ensure_owner(&mut self) -> Result<(), Halt> {
        self.ensure_lease().await?;
        let ask = Batch::one(self.state.id, Fence::Attempt(self.attempt), Vec::new());
        append_with_retry(&*self.context.store, ask).await?;
        Ok(())
    }

    /// Takes in what the journal has beyond what is known; the conversation has what is in `known`.
    pub(super) async fn read_new_entries(&mut self, known: Range<Seq>) -> Result<(), Halt> {
        self.recheck_at = Instant::now() + RECHECK_INTERVAL;
        for record in read_journal(&*self.context.store, self.state.id, self.state.seq).await? {
            self.apply_record(&record, &known)?;
        }
        Ok(())
    }

    fn apply_record(&mut self, record: &Record, known: &Range<Seq>) -> Result<(), Halt> {
        let task = self.state.id;
        // A run never reads of its own end: the journal went on without it.
        if matches!(record.entry, Entry::Claimed { .. } | Entry::Released { .. } | Entry::Finished(_)) {
            return Err(Halt::Lost);
        }
        self.state.apply(record).map_err(|why| Halt::from(StoreError::Illegal { task, why }))?;
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

/// Appends, and tries again for a while where that may help: a full disk or a lock may pass.
pub(crate) async fn append_with_retry(store: &dyn Store, batch: Batch) -> Result<Vec<Seq>, StoreError> {
    let mut pause = Duration::from_millis(100);
    loop {
        match store.append(batch.clone()).await {
            Err(StoreError::Database { what, transient: true }) if pause < Duration::from_secs(5) => {
                tracing::warn!(error = what, "the store did not take an entry; trying again");
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
            other => return other,
        }
    }
}
