//! The run's own side of its journal: what it writes, what it owes, and what others have written meanwhile.

use std::ops::Range;
use std::time::Duration;

use tokio::time::Instant;

use super::recall::read_all;
use super::{Halt, LOOK_ANYWAY, Run};
use crate::entry::{Entry, Record};
use crate::id::Seq;
use crate::store::{Batch, Fence, Store, StoreError};

impl Run {
    /// Writes entries down, and what is owed before them; when this returns they are part of the task.
    pub(super) async fn note(&mut self, entries: Vec<Entry>) -> Result<(), Halt> {
        let owed = self.owed.take();
        let paid = owed.len() as u64;
        let time = self.corrected_time().filter(|_| !matches!(entries[..], [Entry::Worked { .. }]));
        let all: Vec<Entry> = owed.into_iter().chain(time).chain(entries).collect();
        let count = all.len() as u64;
        let batch = Batch::one(self.head.id, Fence::Attempt(self.attempt), all.clone());
        let last = append(&*self.around.store, batch).await?.first().copied().unwrap_or_default();
        let first = Seq((last.0 + 1).saturating_sub(count));
        // What was owed is in the conversation already.
        let known = first..Seq(first.0 + paid);
        if first.0 != self.head.seq.0 + 1 {
            // Somebody wrote in between: take all of it in, in its order.
            return self.read_on(known).await;
        }
        let at = self.around.store.now();
        for entry in all {
            let record = Record { seq: Seq(self.head.seq.0 + 1), at, entry };
            self.take_in(&record, &known)?;
        }
        Ok(())
    }

    /// Goes on as if this were written down; it is before the next entry is, or soon. Only for what may be lost without
    /// harm: it is then done again.
    pub(super) fn owe(&mut self, entries: Vec<Entry>) {
        let (seq, at) = (self.head.seq, self.around.store.now());
        for entry in entries {
            let record = Record { seq, at, entry };
            self.turn.apply(&record);
            self.owed.add(record.entry);
        }
    }

    /// Writes down what is owed.
    pub(super) async fn pay(&mut self) -> Result<(), Halt> {
        if self.owed.is_empty() { Ok(()) } else { self.note(Vec::new()).await }
    }

    /// Writes entries down that are only right as long as nobody has written to the task since; false if somebody has,
    /// and then that is taken in.
    pub(super) async fn note_unless_moved(&mut self, entries: Vec<Entry>) -> Result<bool, Halt> {
        self.pay().await?;
        let mut batch = Batch::one(self.head.id, Fence::Attempt(self.attempt), entries);
        batch.writes[0].after = Some(self.head.seq);
        let moved = match append(&*self.around.store, batch).await {
            Ok(_) => false,
            Err(StoreError::Moved { .. }) => true,
            Err(error) => return Err(error.into()),
        };
        self.catch_up().await?;
        Ok(!moved)
    }

    /// Takes in what others have written. If the task was taken away, this is the end of the run.
    pub(super) async fn catch_up(&mut self) -> Result<(), Halt> {
        let term = self.tenure.now();
        self.read_on(Seq(0)..Seq(0)).await?;
        self.tenure.confirm(term);
        self.note_time().await
    }

    /// Returns when the task surely is this run's: before anything is done that others can see. Costs next to nothing
    /// as long as the lease is renewed in time.
    pub(super) async fn be_sure(&mut self) -> Result<(), Halt> {
        while !self.tenure.is_sure() {
            self.tenure.renewed().await;
            self.catch_up().await?;
        }
        Ok(())
    }

    /// The same, and the store has said so too: before something is done to other tasks because of this one.
    pub(super) async fn be_owner(&mut self) -> Result<(), Halt> {
        self.be_sure().await?;
        let ask = Batch::one(self.head.id, Fence::Attempt(self.attempt), Vec::new());
        append(&*self.around.store, ask).await?;
        Ok(())
    }

    /// Takes in what the journal has beyond what is known; the conversation has what is in `known`.
    pub(super) async fn read_on(&mut self, known: Range<Seq>) -> Result<(), Halt> {
        self.look_at = Instant::now() + LOOK_ANYWAY;
        for record in read_all(&*self.around.store, self.head.id, self.head.seq).await? {
            self.take_in(&record, &known)?;
        }
        Ok(())
    }

    fn take_in(&mut self, record: &Record, known: &Range<Seq>) -> Result<(), Halt> {
        let task = self.head.id;
        // A run never reads of its own end: the journal went on without it.
        if matches!(record.entry, Entry::Claimed { .. } | Entry::Released { .. } | Entry::Finished(_)) {
            return Err(Halt::Lost);
        }
        self.head.step(record).map_err(|why| Halt::from(StoreError::Illegal { task, why }))?;
        if known.contains(&record.seq) {
            return Ok(());
        }
        self.turn.apply(record);
        if matches!(record.entry, Entry::Compacted { .. }) {
            self.memo.forget();
        }
        Ok(())
    }
}

/// Appends, and tries again for a while where that may help: a full disk or a lock may pass.
pub(crate) async fn append(store: &dyn Store, batch: Batch) -> Result<Vec<Seq>, StoreError> {
    let mut pause = Duration::from_millis(100);
    loop {
        match store.append(batch.clone()).await {
            Err(StoreError::Database { what, passing: true }) if pause < Duration::from_secs(5) => {
                tracing::warn!(error = what, "the store did not take an entry; trying again");
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
            other => return other,
        }
    }
}
