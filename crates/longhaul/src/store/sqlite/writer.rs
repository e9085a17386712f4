//! The writer thread: takes many requests into one transaction, and replies when it is on disk.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::errors::{DatabasePath, OrStoreError as _};
use super::recent::RecentTasks;
use super::rows::EncodedEntries;
use super::transaction::WriteConnection;
use super::watch::HintSender;
use super::{Durability, SqliteOptions};
use crate::entry::Record;
use crate::id::{Digest, Seq, TaskId, WorkerId};
use crate::store::leases::LeaseWatch;
use crate::store::validate::WriteDraft;
use crate::store::worker_locks::WorkerLocks;
use crate::store::{ClaimRequest, ClaimedTask, CountCondition, DatabaseFault, StoreError};
use crate::task::TaskState;

/// How many requests one transaction takes, at most.
const TOGETHER: usize = 512;
/// From this many requests on, it is worth waiting for more.
const CROWD: usize = 8;
/// The minimum time between two transactions while there are many requests: each costs the disk the same,
/// whatever is in it, and a model takes a thousand times as long.
const PACE: Duration = Duration::from_millis(3);
/// How long to wait for more requests, at most: less than a commit takes.
const WAIT: Duration = Duration::from_micros(100);
/// How long to wait for more requests while there is only streamed text.
const WAIT_WHEN_LIVE: Duration = Duration::from_millis(2);

/// How many tasks one transaction deletes, unless a single request deletes more: others should get their
/// turn.
const DELETED_TOGETHER: usize = 40;
/// How long to pause between deletions: time for other processes, which try to get the lock twice a
/// millisecond.
const LET_THROUGH: Duration = Duration::from_millis(2);

/// A request to the writer. It may have to run twice, so the writer only borrows it.
pub(super) enum WriterRequest {
    Append {
        drafts: Vec<WriteDraft>,
        encoded: EncodedEntries,
        only_if: Arc<[CountCondition]>,
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
    /// Add whole journals, each with its encoded entries.
    Import(Vec<ImportedJournal>),
    Delete(Vec<(TaskId, Seq)>),
    /// Delete more of what deleted tasks have left.
    DeleteLeftovers,
    /// Rebuild the rows of these tasks, by number, from their journals.
    RebuildRows(Vec<i64>),
    /// What a test runs on the writer thread.
    #[cfg(test)]
    Test {
        durable: bool,
        act: WriterTestAction,
    },
}

/// The journal of a task that is added whole.
pub(super) struct ImportedJournal {
    pub(super) state: Arc<TaskState>,
    pub(super) records: Vec<(Record, Vec<u8>)>,
}

#[cfg(test)]
pub(super) type WriterTestAction = Box<dyn FnMut(&Connection) -> Result<(), StoreError> + Send>;

impl WriterRequest {
    /// Whether it must be on disk before the reply.
    pub(super) fn is_durable(&self) -> bool {
        match self {
            WriterRequest::Append { drafts, .. } => {
                !drafts.iter().flat_map(|d| &d.entries).all(|line| line.record.entry.is_live())
            }
            // A lease is worth nothing after a power failure, and a deletion of leftovers can be repeated.
            WriterRequest::Renew { .. } | WriterRequest::Retire(_) | WriterRequest::DeleteLeftovers => false,
            WriterRequest::Claim(_)
            | WriterRequest::PutBlob { .. }
            | WriterRequest::PutStoredValue { .. }
            | WriterRequest::Import(_)
            | WriterRequest::Delete(_)
            | WriterRequest::RebuildRows(_) => true,
            #[cfg(test)]
            WriterRequest::Test { durable, .. } => *durable,
        }
    }
}

impl WriterRequest {
    /// How many tasks it deletes; `None` for other requests.
    fn deletes(&self) -> Option<usize> {
        match self {
            WriterRequest::Delete(tasks) => Some(tasks.len()),
            WriterRequest::DeleteLeftovers => Some(DELETED_TOGETHER),
            _ => None,
        }
    }
}

/// The writer's reply.
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

/// The handle of the writer thread. When it is dropped, the thread finishes all earlier requests and ends.
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
        (hints, recent): (Arc<HintSender>, Arc<RecentTasks>),
    ) -> Result<WriterHandle, StoreError> {
        let (queue, requests) = channel();
        let durability = options.durability;
        let write_connection =
            WriteConnection::new(connection, place.clone(), options, others, hints, recent)?;
        let mut writer = WriterThread { connection: write_connection, durability, synchronous: None };
        let thread = std::thread::Builder::new()
            .name("longhaul-store".into())
            .spawn(move || writer.run_loop(&requests))
            .map_err(|e| place.error(format_args!("cannot be written: no thread could be started ({e})")))?;
        Ok(WriterHandle { queue: Some(queue), thread: Some(thread), place })
    }

    /// Sends a request, and waits until it is on disk.
    pub(super) async fn request(&self, ask: WriterRequest) -> Result<WriterReply, StoreError> {
        let (answer, answered) = oneshot::channel();
        let queue = self.queue.as_ref().ok_or(StoreError::Closed)?;
        queue
            .send(QueuedRequest { request: ask, reply: answer })
            .map_err(|_| self.place.writer_lost_error())?;
        // A writer that dies drops its queue, and with it the sender of this reply.
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

/// Takes what is in the queue, and waits briefly for more.
///
/// Callers that just got a reply are about to send the next request. Without a short wait for them, many
/// callers split into two halves that take turns, and need twice as many commits. Streamed text is never
/// urgent, until an urgent request arrives.
fn gather(first: QueuedRequest, requests: &Receiver<QueuedRequest>, last: usize) -> Vec<QueuedRequest> {
    let mut together = vec![first];
    together.extend(requests.try_iter().take(TOGETHER - 1));
    let begun = Instant::now();
    let crowd = (last + together.len()).min(TOGETHER);
    let mut seen = 0;
    let mut hurry = false;
    while together.len() < TOGETHER {
        hurry |= together.iter().skip(seen).any(|request| request.request.is_durable());
        seen = together.len();
        let (wait, nap) = match hurry {
            false => (WAIT_WHEN_LIVE, WAIT_WHEN_LIVE / 8),
            true if crowd >= CROWD && seen < crowd / 4 * 3 => (WAIT, WAIT / 2),
            true => break,
        };
        if begun.elapsed() >= wait {
            break;
        }
        // A sleep instead of waiting for the next one: waking up for each would cost more than it saves.
        std::thread::sleep(nap);
        together.extend(requests.try_iter().take(TOGETHER - seen));
    }
    together
}

/// Splits requests so that no part deletes more than a few tasks. Their order stays.
fn parts(requests: Vec<QueuedRequest>) -> Vec<Vec<QueuedRequest>> {
    let mut parts = Vec::new();
    let (mut part, mut deleted) = (Vec::new(), 0);
    for request in requests {
        let more = request.request.deletes().unwrap_or_default();
        if deleted > 0 && deleted + more > DELETED_TOGETHER {
            parts.push(std::mem::take(&mut part));
            deleted = 0;
        }
        deleted += more;
        part.push(request);
    }
    parts.push(part);
    parts
}

/// The writer thread.
struct WriterThread {
    connection: WriteConnection,
    durability: Durability,
    /// Whether a commit currently waits for the disk.
    synchronous: Option<bool>,
}

impl WriterThread {
    fn run_loop(&mut self, requests: &Receiver<QueuedRequest>) {
        let mut last = 0;
        let mut begun = Instant::now();
        let mut deleted: Option<Instant> = None;
        while let Ok(first) = requests.recv() {
            if last >= CROWD {
                std::thread::sleep(PACE.saturating_sub(begun.elapsed()));
            }
            begun = Instant::now();
            let together = gather(first, requests, last);
            last = together.len();
            for part in parts(together) {
                let deletes = part.iter().any(|request| request.request.deletes().is_some());
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

    /// A process that deletes much fills the log, so it runs the checkpoints itself before others have to:
    /// they check at four times the size. If that cannot be set, nothing changes.
    fn checkpoint_often(&self) {
        let _ = self.connection.connection.execute_batch("PRAGMA wal_autocheckpoint = 1000");
    }

    fn run(&mut self, mut requests: Vec<QueuedRequest>) {
        match self.transact(&mut requests) {
            Ok(answers) => {
                for (request, answer) in requests.into_iter().zip(answers) {
                    // The caller may be gone.
                    let _ = request.reply.send(answer);
                }
            }
            // One of them may be the cause (a text that is too large, a damaged page): the others must not
            // fail with it.
            Err(StoreError::Database { fault: DatabaseFault::Permanent, .. }) if requests.len() > 1 => {
                requests.into_iter().for_each(|request| self.run(vec![request]));
            }
            Err(error) => {
                for request in requests {
                    let _ = request.reply.send(Err(error.clone()));
                }
            }
        }
    }

    /// Runs requests in one transaction. A rejected request has written nothing; one that breaks the database
    /// breaks the whole transaction.
    fn transact(
        &mut self,
        requests: &mut [QueuedRequest],
    ) -> Result<Vec<Result<WriterReply, StoreError>>, StoreError> {
        self.wait_for_disk(requests.iter().any(|e| e.request.is_durable()))?;
        let transacted = self.connection.begin().and_then(|()| {
            let mut answers = Vec::with_capacity(requests.len());
            for request in requests {
                match self.connection.run(&mut request.request) {
                    Err(broken @ StoreError::Database { .. }) => return Err(broken),
                    answer => answers.push(answer),
                }
            }
            self.connection.commit()?;
            tracing::trace!(target: "longhaul::store::commit", requests = answers.len());
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
