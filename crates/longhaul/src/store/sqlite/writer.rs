//! The thread that writes: many errands in one transaction, answered when it is on disk.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::errors::{DatabasePath, OrStoreError as _};
use super::rows::EncodedEntries;
use super::transaction::WriteConnection;
use super::watch::HintSender;
use super::worker_locks::WorkerLocks;
use super::{Durability, SqliteOptions};
use crate::id::{Digest, Seq, TaskId, WorkerId};
use crate::store::leases::LeaseWatch;
use crate::store::validate::WriteDraft;
use crate::store::{ClaimRequest, ClaimedTask, CountCondition, StoreError};

/// How many errands are run in one transaction, at most.
const TOGETHER: usize = 512;
/// How many make a crowd, for whom it is worth while to wait for more.
const CROWD: usize = 8;
/// How long after the last transaction the next one begins at least, while there is a crowd: each costs the disk the
/// same, whatever is in it, and a model takes a thousand times as long to think.
const PACE: Duration = Duration::from_millis(3);
/// How long to wait for more, at most: less than a commit takes.
const WAIT: Duration = Duration::from_micros(100);
/// How long to wait for more as long as there are only live words.
const WAIT_WHEN_LIVE: Duration = Duration::from_millis(2);

/// How many tasks are deleted in one transaction, unless somebody wants more to go at once: others are to be let through.
const DELETED_TOGETHER: usize = 40;
/// How long nothing is deleted after something was: time for other processes, which look twice a millisecond whether it is their
/// turn.
const LET_THROUGH: Duration = Duration::from_millis(2);

/// What the writer is asked to do. It may have to try twice, so it only borrows this.
pub(super) enum WriterRequest {
    Append {
        drafts: Vec<WriteDraft>,
        encoded: EncodedEntries,
        only_if: Vec<CountCondition>,
    },
    Claim(ClaimRequest),
    Renew {
        worker: WorkerId,
        lease: Duration,
    },
    Retire(WorkerId),
    PutBlob {
        digest: Digest,
        bytes: Vec<u8>,
    },
    PutStoredValue {
        name: String,
        after: u64,
        bytes: Vec<u8>,
    },
    Delete(Vec<(TaskId, Seq)>),
    /// Clear away more of what deleted tasks have left.
    DeleteLeftovers,
    /// Rows of tasks, by their numbers, that are to be made again from their journals.
    RebuildRows(Vec<i64>),
    /// What a test does in the writer's place.
    #[cfg(test)]
    Test {
        durable: bool,
        act: WriterTestAction,
    },
}

#[cfg(test)]
pub(super) type WriterTestAction = Box<dyn FnMut(&Connection) -> Result<(), StoreError> + Send>;

impl WriterRequest {
    /// Whether it must be on disk before it is answered.
    pub(super) fn is_durable(&self) -> bool {
        match self {
            WriterRequest::Append { drafts, .. } => {
                !drafts.iter().flat_map(|d| &d.entries).all(|line| line.record.entry.is_live())
            }
            // A lease is worth nothing after a power cut, and what is cleared away can be cleared away again.
            WriterRequest::Renew { .. } | WriterRequest::Retire(_) | WriterRequest::DeleteLeftovers => false,
            WriterRequest::Claim(_)
            | WriterRequest::PutBlob { .. }
            | WriterRequest::PutStoredValue { .. }
            | WriterRequest::Delete(_)
            | WriterRequest::RebuildRows(_) => true,
            #[cfg(test)]
            WriterRequest::Test { durable, .. } => *durable,
        }
    }
}

impl WriterRequest {
    /// How many tasks it deletes; `None` if it is about something else.
    fn deletes(&self) -> Option<usize> {
        match self {
            WriterRequest::Delete(tasks) => Some(tasks.len()),
            WriterRequest::DeleteLeftovers => Some(DELETED_TOGETHER),
            _ => None,
        }
    }
}

/// What the writer answers.
pub(super) enum WriterReply {
    EndSeqs(Vec<Seq>),
    Claimed(Vec<ClaimedTask>),
    Flag(bool),
    Done,
}

struct QueuedRequest {
    request: WriterRequest,
    reply: oneshot::Sender<Result<WriterReply, StoreError>>,
}

/// The handle of the thread. It ends, after all that was asked before, when this is dropped.
pub(super) struct WriterHandle {
    queue: Option<Sender<QueuedRequest>>,
    thread: Option<JoinHandle<()>>,
    place: DatabasePath,
}

impl WriterHandle {
    pub(super) fn start(
        connection: Connection,
        place: DatabasePath,
        options: SqliteOptions,
        others: (WorkerLocks, Arc<LeaseWatch>),
        bell: Arc<HintSender>,
    ) -> Result<WriterHandle, StoreError> {
        let (queue, errands) = channel();
        let durability = options.durability;
        let desk = WriteConnection::new(connection, place.clone(), options, others, bell)?;
        let mut scribe = WriterThread { connection: desk, durability, synchronous: None };
        let thread = std::thread::Builder::new()
            .name("longhaul-store".into())
            .spawn(move || scribe.run_loop(&errands))
            .map_err(|e| place.error(format_args!("cannot be written: no thread could be started ({e})")))?;
        Ok(WriterHandle { queue: Some(queue), thread: Some(thread), place })
    }

    /// Has something done, and waits until it is on disk.
    pub(super) async fn request(&self, ask: WriterRequest) -> Result<WriterReply, StoreError> {
        let (answer, answered) = oneshot::channel();
        let queue = self.queue.as_ref().ok_or(StoreError::Closed)?;
        queue
            .send(QueuedRequest { request: ask, reply: answer })
            .map_err(|_| self.place.writer_lost_error())?;
        // A writer that dies drops its queue, and with it the other end of this.
        answered.await.unwrap_or_else(|_| Err(self.place.writer_lost_error()))
    }
}

impl Drop for WriterHandle {
    fn drop(&mut self) {
        drop(self.queue.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Takes what waits in the queue, and a little more.
///
/// Those who were answered a moment ago are about to ask again. Without a short wait for them a crowd splits into two
/// halves that take turns, and pays for twice as many commits. Live words are in no hurry at all, until something
/// comes that is.
fn gather(first: QueuedRequest, errands: &Receiver<QueuedRequest>, last: usize) -> Vec<QueuedRequest> {
    let mut together = vec![first];
    together.extend(errands.try_iter().take(TOGETHER - 1));
    let begun = Instant::now();
    let crowd = (last + together.len()).min(TOGETHER);
    let mut seen = 0;
    let mut hurry = false;
    while together.len() < TOGETHER {
        hurry |= together.iter().skip(seen).any(|errand| errand.request.is_durable());
        seen = together.len();
        let (wait, nap) = match hurry {
            false => (WAIT_WHEN_LIVE, WAIT_WHEN_LIVE / 8),
            true if crowd >= CROWD && seen < crowd / 4 * 3 => (WAIT, WAIT / 2),
            true => break,
        };
        if begun.elapsed() >= wait {
            break;
        }
        // Not a wait for the next one: to be woken up for each would cost more than it saves.
        std::thread::sleep(nap);
        together.extend(errands.try_iter().take(TOGETHER - seen));
    }
    together
}

/// Parts a crowd of errands so that no part deletes more than a little. Their order stays.
fn parts(errands: Vec<QueuedRequest>) -> Vec<Vec<QueuedRequest>> {
    let mut parts = Vec::new();
    let (mut part, mut deleted) = (Vec::new(), 0);
    for errand in errands {
        let more = errand.request.deletes().unwrap_or_default();
        if deleted > 0 && deleted + more > DELETED_TOGETHER {
            parts.push(std::mem::take(&mut part));
            deleted = 0;
        }
        deleted += more;
        part.push(errand);
    }
    parts.push(part);
    parts
}

/// The one who writes.
struct WriterThread {
    connection: WriteConnection,
    durability: Durability,
    /// Whether a commit waits for the disk, as the connection is set now.
    synchronous: Option<bool>,
}

impl WriterThread {
    fn run_loop(&mut self, errands: &Receiver<QueuedRequest>) {
        let mut last = 0;
        let mut begun = Instant::now();
        let mut deleted: Option<Instant> = None;
        while let Ok(first) = errands.recv() {
            if last >= CROWD {
                std::thread::sleep(PACE.saturating_sub(begun.elapsed()));
            }
            begun = Instant::now();
            let together = gather(first, errands, last);
            last = together.len();
            for part in parts(together) {
                let deletes = part.iter().any(|errand| errand.request.deletes().is_some());
                match deleted.filter(|_| deletes) {
                    Some(before) => std::thread::sleep(LET_THROUGH.saturating_sub(before.elapsed())),
                    None if deletes => self.checkpoint_often(),
                    None => {}
                }
                self.run(part);
                deleted = if deletes { Some(Instant::now()) } else { deleted };
            }
        }
    }

    /// Whoever deletes much fills the log, and takes it into the database itself, before others have to: they check for four times as
    /// much. If that cannot be set, it is as before.
    fn checkpoint_often(&self) {
        let _ = self.connection.connection.execute_batch("PRAGMA wal_autocheckpoint = 1000");
    }

    fn run(&mut self, mut errands: Vec<QueuedRequest>) {
        match self.transact(&mut errands) {
            Ok(answers) => {
                for (errand, answer) in errands.into_iter().zip(answers) {
                    // Whoever asked may no longer want to know.
                    let _ = errand.reply.send(answer);
                }
            }
            // One of them may be to blame (too large a text, a damaged page): the others must not suffer for it.
            Err(StoreError::Database { transient: false, .. }) if errands.len() > 1 => {
                errands.into_iter().for_each(|errand| self.run(vec![errand]));
            }
            Err(error) => {
                for errand in errands {
                    let _ = errand.reply.send(Err(error.clone()));
                }
            }
        }
    }

    /// Runs errands in one transaction. An errand that is refused has written nothing; one that breaks the
    /// database breaks the whole transaction.
    fn transact(
        &mut self,
        errands: &mut [QueuedRequest],
    ) -> Result<Vec<Result<WriterReply, StoreError>>, StoreError> {
        self.wait_for_disk(errands.iter().any(|e| e.request.is_durable()))?;
        let transacted = self.connection.begin().and_then(|()| {
            let mut answers = Vec::with_capacity(errands.len());
            for errand in errands {
                match self.connection.run(&mut errand.request) {
                    Err(broken @ StoreError::Database { .. }) => return Err(broken),
                    answer => answers.push(answer),
                }
            }
            self.connection.commit()?;
            Ok(answers)
        });
        if transacted.is_err() {
            self.connection.roll_back();
        }
        transacted
    }

    fn wait_for_disk(&mut self, durable: bool) -> Result<(), StoreError> {
        let wait = durable && self.durability == Durability::Full;
        if self.synchronous != Some(wait) {
            let sql = if wait { "PRAGMA synchronous = FULL" } else { "PRAGMA synchronous = NORMAL" };
            self.connection.connection.execute_batch(sql).or_store_error(&self.connection.place)?;
            self.synchronous = Some(wait);
        }
        Ok(())
    }
}
