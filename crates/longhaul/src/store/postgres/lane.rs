//! A lane: one connection that writes, and a queue before it. What waits together goes into one transaction.
//!
//! **An answer that is lost.** If the connection breaks after a commit was sent, nobody knows whether it was done. Every
//! entry has the random token of its transaction. The lane runs the same group again, which first takes the same locks
//! (so nothing of the broken connection can still be under way), and looks whether the token stands where its first entry
//! would be. Only then it answers. So an error of this store means that nothing was written.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};

use super::Shared;
use super::appends::{AppendGroup, AppendRequest};
use super::claims::ClaimGroup;
use super::connect::{Server, ServerConnection};
use super::deletion::Deletion;
use super::errors::{Meaning, meaning};
use super::import::Import;
use super::values::{BlobWrite, Rebuild, ValueWrite};
use super::write_set::TransactionFailure;
use crate::id::Seq;
use crate::store::{ClaimRequest, ClaimedTask, DatabaseFault, StoreError};

/// How many requests one transaction takes, at most.
const TOGETHER: usize = 512;
/// How many bytes one transaction takes, at most, unless a single request has more.
const BYTES_TOGETHER: usize = 8 << 20;
/// From this many requests on, it is worth waiting for more.
const CROWD: usize = 8;
/// How often a transaction that met others is run again.
const TRIES: u32 = 20;

pub(super) type LaneReply<T> = oneshot::Sender<Result<T, StoreError>>;

/// What a lane is asked to do.
pub(super) enum LaneRequest {
    Append(AppendRequest, LaneReply<Vec<Seq>>),
    Claim(ClaimRequest, LaneReply<Vec<ClaimedTask>>),
    Import(Import, LaneReply<()>),
    Delete(Deletion, LaneReply<()>),
    PutValue(ValueWrite, LaneReply<bool>),
    PutBlob(BlobWrite, LaneReply<()>),
    Rebuild(Rebuild, LaneReply<()>),
}

/// A transaction that can be run again until it is known how it went.
pub(super) trait LaneOperation: Send {
    type Answer: Send;
    /// Runs it once. What it finds out about earlier tries, it finds out first.
    fn attempt(
        &mut self,
        connection: &ServerConnection,
        shared: &Shared,
    ) -> impl Future<Output = Result<Self::Answer, TransactionFailure>> + Send;
    /// Whether an earlier try may have been committed.
    fn is_unsure(&self) -> bool;
}

/// The queue before a lane.
#[derive(Clone)]
pub(super) struct LaneQueue(mpsc::UnboundedSender<LaneRequest>);

impl LaneQueue {
    /// Asks, and waits for the answer.
    pub(super) async fn ask<T>(
        &self,
        shared: &Shared,
        request: impl FnOnce(LaneReply<T>) -> LaneRequest,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.0.send(request(reply)).map_err(|_| StoreError::Closed)?;
        answer.await.unwrap_or_else(|_| Err(shared.server.name.lane_lost()))
    }
}

/// A lane. It ends when its queue is dropped and empty.
pub(super) struct Lane {
    server: Arc<Server>,
    shared: Arc<Shared>,
    connection: Option<ServerConnection>,
    requests: mpsc::UnboundedReceiver<LaneRequest>,
    /// How many requests the last transaction had.
    last: usize,
}

#[derive(Default)]
struct GatheredRequests {
    appends: Vec<(AppendRequest, LaneReply<Vec<Seq>>)>,
    claims: Vec<(ClaimRequest, LaneReply<Vec<ClaimedTask>>)>,
    others: Vec<LaneRequest>,
    bytes: usize,
}

impl GatheredRequests {
    fn add(&mut self, request: LaneRequest) {
        match request {
            LaneRequest::Append(append, reply) => {
                self.bytes += append.bytes();
                self.appends.push((append, reply));
            }
            LaneRequest::Claim(claim, reply) => self.claims.push((claim, reply)),
            other => self.others.push(other),
        }
    }

    fn len(&self) -> usize {
        self.appends.len() + self.claims.len() + self.others.len()
    }

    fn has_room(&self) -> bool {
        self.len() < TOGETHER && self.bytes < BYTES_TOGETHER
    }
}

impl Lane {
    /// Starts a lane.
    pub(super) fn start(shared: Arc<Shared>) -> LaneQueue {
        let (queue, requests) = mpsc::unbounded_channel();
        let server = shared.server.clone();
        let lane = Lane { server: server.clone(), shared, connection: None, requests, last: 0 };
        server.tasks.spawn(lane.run());
        LaneQueue(queue)
    }

    async fn run(mut self) {
        while let Some(first) = self.requests.recv().await {
            let taken = self.gather(first).await;
            self.last = taken.len();
            self.append_all(taken.appends).await;
            self.claim_all(taken.claims).await;
            for request in taken.others {
                self.run_one(request).await;
            }
        }
    }

    /// Takes what is in the queue, and lets callers that just got an answer send their next request: otherwise many
    /// callers split into two halves that take turns, and need twice as many commits.
    async fn gather(&mut self, first: LaneRequest) -> GatheredRequests {
        let mut taken = GatheredRequests::default();
        taken.add(first);
        let mut rounds = 0;
        loop {
            while taken.has_room()
                && let Ok(request) = self.requests.try_recv()
            {
                taken.add(request);
            }
            let crowd = self.last.max(taken.len());
            if !taken.has_room() || crowd < CROWD || taken.len() >= crowd / 4 * 3 || rounds >= 16 {
                return taken;
            }
            rounds += 1;
            tokio::task::yield_now().await;
        }
    }

    async fn append_all(&mut self, requests: Vec<(AppendRequest, LaneReply<Vec<Seq>>)>) {
        if requests.is_empty() {
            return;
        }
        let (requests, replies): (Vec<_>, Vec<_>) = requests.into_iter().unzip();
        let mut group = AppendGroup::new(requests);
        match self.settle(&mut group).await {
            Ok(answers) => {
                for (reply, answer) in replies.into_iter().zip(answers) {
                    // The caller may be gone.
                    let _ = reply.send(answer);
                }
            }
            // One of them may be the cause: the others must not fail with it.
            Err(StoreError::Database { fault: DatabaseFault::Permanent, .. }) if replies.len() > 1 => {
                for (request, reply) in group.into_requests().into_iter().zip(replies) {
                    let mut alone = AppendGroup::new(vec![request]);
                    let answer = self.settle(&mut alone).await;
                    let _ =
                        reply.send(answer.and_then(|mut all| all.pop().unwrap_or(Err(StoreError::Closed))));
                }
            }
            Err(error) => {
                for reply in replies {
                    let _ = reply.send(Err(error.clone()));
                }
            }
        }
    }

    async fn claim_all(&mut self, claims: Vec<(ClaimRequest, LaneReply<Vec<ClaimedTask>>)>) {
        for (mut group, replies) in ClaimGroup::groups(claims) {
            match self.settle(&mut group).await {
                Ok(claimed) => {
                    for (reply, tasks) in replies.into_iter().zip(claimed) {
                        let _ = reply.send(Ok(tasks));
                    }
                }
                Err(error) => {
                    for reply in replies {
                        let _ = reply.send(Err(error.clone()));
                    }
                }
            }
        }
    }

    async fn run_one(&mut self, request: LaneRequest) {
        match request {
            LaneRequest::Import(mut import, reply) => {
                let answer = self.settle(&mut import).await;
                let _ = reply.send(answer.and_then(|found| found.map_or(Ok(()), Err)));
            }
            LaneRequest::Delete(mut deletion, reply) => drop(reply.send(self.settle(&mut deletion).await)),
            LaneRequest::PutValue(mut write, reply) => drop(reply.send(self.settle(&mut write).await)),
            LaneRequest::PutBlob(mut write, reply) => drop(reply.send(self.settle(&mut write).await)),
            LaneRequest::Rebuild(mut rebuild, reply) => drop(reply.send(self.settle(&mut rebuild).await)),
            LaneRequest::Append(..) | LaneRequest::Claim(..) => {}
        }
    }

    /// Runs an operation until it is known how it went.
    ///
    /// Tries again after what passes: for a while if nothing was written, and for as long as it takes if that is not
    /// known.
    async fn settle<O: LaneOperation>(&mut self, operation: &mut O) -> Result<O::Answer, StoreError> {
        let deadline = Instant::now() + self.server.options().retry_for;
        let mut pause = Duration::from_millis(2);
        let mut tries = 0;
        loop {
            let shared = self.shared.clone();
            let (meaning, error) = match self.connect().await {
                Err((meaning, error)) => (meaning, error),
                Ok(connection) => match operation.attempt(connection, &shared).await {
                    Ok(answer) => return Ok(answer),
                    Err(TransactionFailure::Unknown) => {
                        tracing::warn!("the answer to a commit was lost; looking whether it was done");
                        self.connection = None;
                        continue;
                    }
                    Err(TransactionFailure::Failed(meaning, error)) => {
                        // Undoes what was begun; a connection that cannot even do that is of no use.
                        let undone = match meaning {
                            Meaning::Lost => false,
                            _ => connection.batch("ROLLBACK").await.is_ok(),
                        };
                        if !undone {
                            self.connection = None;
                        }
                        (meaning, error)
                    }
                },
            };
            tries += 1;
            let again = match meaning {
                Meaning::Again => tries < TRIES,
                Meaning::Lost => Instant::now() < deadline,
                Meaning::Locked | Meaning::Full | Meaning::Permanent => false,
            };
            if !again && !operation.is_unsure() {
                return Err(error);
            }
            // Two that met should not meet again.
            let odd = Duration::from_micros(random_token().unsigned_abs() % 2000);
            tokio::time::sleep(pause + odd).await;
            let most = if meaning == Meaning::Again { 50 } else { 500 };
            pause = (pause * 2).min(Duration::from_millis(most));
        }
    }

    async fn connect(&mut self) -> Result<&ServerConnection, (Meaning, StoreError)> {
        if self.connection.as_ref().is_none_or(ServerConnection::is_closed) {
            let connected = self.server.connect().await;
            let connected =
                connected.map_err(|error| (meaning(&error), self.server.name.server_error(&error)))?;
            self.connection = Some(connected);
        }
        self.connection
            .as_ref()
            .inspect(|connection| connection.trim())
            .ok_or((Meaning::Lost, StoreError::Closed))
    }
}

/// A random number, for the token of a transaction.
pub(super) fn random_token() -> i64 {
    let (time, random) = uuid::Uuid::now_v7().as_u64_pair();
    (time.rotate_left(16) ^ random).cast_signed()
}
