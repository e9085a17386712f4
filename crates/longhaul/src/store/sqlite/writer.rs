//! The thread that writes: many errands in one transaction, answered when it is on disk.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::apply::Desk;
use super::errors::{OrTrouble as _, Place};
use super::rows::Encoded;
use super::watch::Bell;
use super::workers::Roll;
use super::{Durability, SqliteOptions};
use crate::id::{Digest, Seq, TaskId, WorkerId};
use crate::store::judge::Draft;
use crate::store::leases::LeaseWatch;
use crate::store::{AtMost, Claim, Claimed, StoreError};

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
pub(super) enum Ask {
    Append {
        drafts: Vec<Draft>,
        encoded: Encoded,
        only_if: Vec<AtMost>,
    },
    Claim(Claim),
    Renew {
        worker: WorkerId,
        lease: Duration,
    },
    Retire(WorkerId),
    Keep {
        digest: Digest,
        bytes: Vec<u8>,
    },
    Slip {
        name: String,
        after: u64,
        bytes: Vec<u8>,
    },
    Delete(Vec<(TaskId, Seq)>),
    /// Clear away more of what deleted tasks have left.
    Clear,
    /// Rows of tasks, by their numbers, that are to be made again from their journals.
    Mend(Vec<i64>),
    /// What a test does in the writer's place.
    #[cfg(test)]
    Test {
        durable: bool,
        act: Act,
    },
}

#[cfg(test)]
pub(super) type Act = Box<dyn FnMut(&Connection) -> Result<(), StoreError> + Send>;

impl Ask {
    /// Whether it must be on disk before it is answered.
    pub(super) fn is_durable(&self) -> bool {
        match self {
            Ask::Append { drafts, .. } => {
                !drafts.iter().flat_map(|d| &d.lines).all(|line| line.record.entry.is_live())
            }
            // A lease is worth nothing after a power cut, and what is cleared away can be cleared away again.
            Ask::Renew { .. } | Ask::Retire(_) | Ask::Clear => false,
            Ask::Claim(_) | Ask::Keep { .. } | Ask::Slip { .. } | Ask::Delete(_) | Ask::Mend(_) => true,
            #[cfg(test)]
            Ask::Test { durable, .. } => *durable,
        }
    }
}

impl Ask {
    /// How many tasks it deletes; `None` if it is about something else.
    fn deletes(&self) -> Option<usize> {
        match self {
            Ask::Delete(tasks) => Some(tasks.len()),
            Ask::Clear => Some(DELETED_TOGETHER),
            _ => None,
        }
    }
}

/// What the writer answers.
pub(super) enum Answer {
    Ends(Vec<Seq>),
    Claimed(Vec<Claimed>),
    Fits(bool),
    Done,
}

struct Errand {
    ask: Ask,
    answer: oneshot::Sender<Result<Answer, StoreError>>,
}

/// The handle of the thread. It ends, after all that was asked before, when this is dropped.
pub(super) struct Writer {
    queue: Option<Sender<Errand>>,
    thread: Option<JoinHandle<()>>,
    place: Place,
}

impl Writer {
    pub(super) fn start(
        connection: Connection,
        place: Place,
        options: SqliteOptions,
        others: (Roll, Arc<LeaseWatch>),
        bell: Arc<Bell>,
    ) -> Result<Writer, StoreError> {
        let (queue, errands) = channel();
        let durability = options.durability;
        let desk = Desk::new(connection, place.clone(), options, others, bell)?;
        let mut scribe = Scribe { desk, durability, synchronous: None };
        let thread = std::thread::Builder::new()
            .name("longhaul-store".into())
            .spawn(move || scribe.work(&errands))
            .map_err(|e| place.wrong(format_args!("cannot be written: no thread could be started ({e})")))?;
        Ok(Writer { queue: Some(queue), thread: Some(thread), place })
    }

    /// Has something done, and waits until it is on disk.
    pub(super) async fn ask(&self, ask: Ask) -> Result<Answer, StoreError> {
        let (answer, answered) = oneshot::channel();
        let queue = self.queue.as_ref().ok_or(StoreError::Closed)?;
        queue.send(Errand { ask, answer }).map_err(|_| self.place.writer_lost())?;
        // A writer that dies drops its queue, and with it the other end of this.
        answered.await.unwrap_or_else(|_| Err(self.place.writer_lost()))
    }
}

impl Drop for Writer {
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
fn gather(first: Errand, errands: &Receiver<Errand>, last: usize) -> Vec<Errand> {
    let mut together = vec![first];
    together.extend(errands.try_iter().take(TOGETHER - 1));
    let begun = Instant::now();
    let crowd = (last + together.len()).min(TOGETHER);
    let mut seen = 0;
    let mut hurry = false;
    while together.len() < TOGETHER {
        hurry |= together.iter().skip(seen).any(|errand| errand.ask.is_durable());
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
fn parts(errands: Vec<Errand>) -> Vec<Vec<Errand>> {
    let mut parts = Vec::new();
    let (mut part, mut deleted) = (Vec::new(), 0);
    for errand in errands {
        let more = errand.ask.deletes().unwrap_or_default();
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
struct Scribe {
    desk: Desk,
    durability: Durability,
    /// Whether a commit waits for the disk, as the connection is set now.
    synchronous: Option<bool>,
}

impl Scribe {
    fn work(&mut self, errands: &Receiver<Errand>) {
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
                let deletes = part.iter().any(|errand| errand.ask.deletes().is_some());
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
        let _ = self.desk.connection.execute_batch("PRAGMA wal_autocheckpoint = 1000");
    }

    fn run(&mut self, mut errands: Vec<Errand>) {
        match self.transact(&mut errands) {
            Ok(answers) => {
                for (errand, answer) in errands.into_iter().zip(answers) {
                    // Whoever asked may no longer want to know.
                    let _ = errand.answer.send(answer);
                }
            }
            // One of them may be to blame (too large a text, a damaged page): the others must not suffer for it.
            Err(StoreError::Database { passing: false, .. }) if errands.len() > 1 => {
                errands.into_iter().for_each(|errand| self.run(vec![errand]));
            }
            Err(error) => {
                for errand in errands {
                    let _ = errand.answer.send(Err(error.clone()));
                }
            }
        }
    }

    /// Runs errands in one transaction. An errand that is refused has written nothing; one that breaks the
    /// database breaks the whole transaction.
    fn transact(&mut self, errands: &mut [Errand]) -> Result<Vec<Result<Answer, StoreError>>, StoreError> {
        self.wait_for_disk(errands.iter().any(|e| e.ask.is_durable()))?;
        let transacted = self.desk.begin().and_then(|()| {
            let mut answers = Vec::with_capacity(errands.len());
            for errand in errands {
                match self.desk.run(&mut errand.ask) {
                    Err(broken @ StoreError::Database { .. }) => return Err(broken),
                    answer => answers.push(answer),
                }
            }
            self.desk.commit()?;
            Ok(answers)
        });
        if transacted.is_err() {
            self.desk.roll_back();
        }
        transacted
    }

    fn wait_for_disk(&mut self, durable: bool) -> Result<(), StoreError> {
        let wait = durable && self.durability == Durability::Full;
        if self.synchronous != Some(wait) {
            let sql = if wait { "PRAGMA synchronous = FULL" } else { "PRAGMA synchronous = NORMAL" };
            self.desk.connection.execute_batch(sql).or_trouble(&self.desk.place)?;
            self.synchronous = Some(wait);
        }
        Ok(())
    }
}
