//! What a transaction writes: as many statements as there are tables, whatever the number of rows, sent together with
//! the commit.

use std::time::Duration;

use jiff::Timestamp;
use tokio_postgres::Error;

use super::connect::{ANSWER, ServerConnection};
use super::errors::{Meaning, is_refusal, meaning};
use super::rows::{self, FOLD};
use crate::entry::{Entry, Record, TeamRef};
use crate::id::{TaskId, WorkerId};
use crate::store::StoreError;
use crate::task::TaskState;

const INSERT_TASKS: &str = "INSERT INTO @.tasks (id, status, team, agent, parent, root, continues, retries, attempt, worker, created, quiet, \
     seq, format, fold, state) \
     SELECT u.id, u.status, u.team, u.agent, u.parent, u.root, u.continues, u.retries, u.attempt, u.worker, u.created, \
     u.quiet, u.seq, $15, $16, u.state \
     FROM unnest($1::text[], $2::smallint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], \
     $9::bigint[], $10::text[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bytea[]) \
     AS u(id, status, team, agent, parent, root, continues, retries, attempt, worker, created, quiet, seq, state)";
/// The ids are named twice so that no plan reads all tasks.
const UPDATE_TASKS: &str = "UPDATE @.tasks t SET status = u.status, attempt = u.attempt, worker = u.worker, quiet = u.quiet, seq = u.seq, \
     format = greatest(t.format, $8), fold = $9, state = u.state \
     FROM unnest($1::text[], $2::smallint[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[], $7::bytea[]) \
     AS u(id, status, attempt, worker, quiet, seq, state) WHERE t.id = ANY($1) AND t.id = u.id";
const INSERT_JOURNAL: &str = "INSERT INTO @.journal (task, seq, at, kind, format, tx, k, letter, entry) \
     SELECT u.task, u.seq, u.at, u.kind, $7, $8, $9, u.letter, u.entry \
     FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::smallint[], $5::bytea[], $6::bytea[]) \
     AS u(task, seq, at, kind, letter, entry)";
const INSERT_USES: &str = "INSERT INTO @.blob_uses (task, digest) SELECT * FROM unnest($1::text[], $2::text[]) \
                           ON CONFLICT DO NOTHING";
/// Whether a transaction was committed: its token stands where its first entry would be.
const TOKEN: &str = "SELECT 1 FROM @.journal WHERE task = $1 AND seq = $2 AND tx = $3";

/// The statements, to be prepared before.
pub(super) const STATEMENTS: [&str; 5] = [INSERT_TASKS, UPDATE_TASKS, INSERT_JOURNAL, INSERT_USES, TOKEN];

/// Why a transaction was not done.
#[derive(Debug)]
pub(super) enum TransactionFailure {
    /// Nothing was written.
    Failed(Meaning, StoreError),
    /// The connection broke after the commit was sent and before its answer came.
    Unknown,
}

impl TransactionFailure {
    pub(super) fn of(connection: &ServerConnection, error: &Error) -> TransactionFailure {
        TransactionFailure::Failed(meaning(error), connection.server.name.server_error(error))
    }

    /// Of the statements of a transaction, of which all after the first that failed have failed for that.
    pub(super) fn of_first<'a>(
        connection: &ServerConnection,
        errors: impl Iterator<Item = &'a Error>,
    ) -> Option<TransactionFailure> {
        let mut first = None;
        for error in errors {
            // "current transaction is aborted": not the cause.
            let is_cause = error.code().is_none_or(|code| code.code() != "25P02");
            if is_cause && first.is_none() {
                first = Some(error);
            }
        }
        first.map(|error| TransactionFailure::of(connection, error))
    }

    pub(super) fn timeout(connection: &ServerConnection) -> TransactionFailure {
        TransactionFailure::Failed(Meaning::Lost, connection.server.name.timed_out())
    }
}

/// Waits for an answer, but not for ever.
pub(super) async fn in_time<T>(
    connection: &ServerConnection,
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<T, TransactionFailure> {
    match tokio::time::timeout(ANSWER, answer).await {
        Ok(answer) => answer.map_err(|error| TransactionFailure::of(connection, &error)),
        Err(_) => Err(TransactionFailure::timeout(connection)),
    }
}

/// Where to look whether a transaction was committed.
#[derive(Debug, Clone)]
pub(super) struct Marker {
    task: String,
    seq: i64,
    token: i64,
}

impl Marker {
    /// Whether its transaction was committed. Its tasks must be locked, so that nothing of it can still be under way.
    pub(super) async fn is_there(&self, connection: &ServerConnection) -> Result<bool, Error> {
        Ok(connection.row(TOKEN, &[&self.task, &self.seq, &self.token]).await?.is_some())
    }

    pub(super) fn task(&self) -> &str {
        &self.task
    }
}

/// The columns of tasks.
#[derive(Default)]
struct TaskColumns {
    id: Vec<String>,
    status: Vec<i16>,
    attempt: Vec<i64>,
    worker: Vec<Option<String>>,
    quiet: Vec<Option<i64>>,
    seq: Vec<i64>,
    state: Vec<Vec<u8>>,
}

/// The columns of tasks that never change.
#[derive(Default)]
struct FixedColumns {
    team: Vec<String>,
    agent: Vec<String>,
    parent: Vec<Option<String>>,
    root: Vec<String>,
    continues: Vec<Option<String>>,
    retries: Vec<Option<String>>,
    created: Vec<i64>,
}

#[derive(Default)]
struct JournalColumns<'a> {
    task: Vec<String>,
    seq: Vec<i64>,
    at: Vec<i64>,
    kind: Vec<i16>,
    letter: Vec<Option<Vec<u8>>>,
    entry: Vec<&'a [u8]>,
}

/// What a transaction writes.
#[derive(Default)]
pub(super) struct WriteSet<'a> {
    new: TaskColumns,
    fixed: FixedColumns,
    changed: TaskColumns,
    journal: JournalColumns<'a>,
    uses: (Vec<String>, Vec<String>),
}

impl TaskColumns {
    fn push(&mut self, state: &TaskState) {
        self.id.push(state.id.to_string());
        self.status.push(i16::from(state.status as u8));
        self.attempt.push(i64::from(state.attempt.0));
        self.worker.push(state.worker.as_ref().map(|worker| WorkerId::as_str(worker).to_owned()));
        self.quiet.push(rows::quiet_column(state));
        self.seq.push(rows::number(state.seq.0));
        self.state.push(rows::state_column(state));
    }
}

impl<'a> WriteSet<'a> {
    /// A task that is new, as it is after all its entries.
    pub(super) fn insert(&mut self, state: &TaskState) {
        let text = |id: Option<TaskId>| id.map(|id| id.to_string());
        self.new.push(state);
        self.fixed.team.push(rows::team_text(&state.team));
        self.fixed.agent.push(state.agent.to_string());
        self.fixed.parent.push(text(state.parent));
        self.fixed.root.push(state.root.to_string());
        self.fixed.continues.push(text(state.continues));
        self.fixed.retries.push(text(state.retries));
        self.fixed.created.push(state.created.as_millisecond());
        if let TeamRef::File(digest) = &state.team {
            self.uses.0.push(state.id.to_string());
            self.uses.1.push(digest.as_str().to_owned());
        }
    }

    /// A task that is there, as it is after all its entries.
    pub(super) fn update(&mut self, state: &TaskState) {
        self.changed.push(state);
    }

    /// An entry. The entries of a task come in order.
    pub(super) fn append(&mut self, task: TaskId, record: &Record, bytes: &'a [u8]) {
        self.journal.task.push(task.to_string());
        self.journal.seq.push(rows::number(record.seq.0));
        self.journal.at.push(Timestamp::as_millisecond(record.at));
        self.journal.kind.push(i16::from(record.entry.kind() as u8));
        self.journal.letter.push(match &record.entry {
            Entry::Letter(letter) => Some(rows::letter_key(&letter.id)),
            _ => None,
        });
        self.journal.entry.push(bytes);
        if let Entry::Returned(returned) = &record.entry
            && let Some(whole) = &returned.whole
        {
            self.uses.0.push(task.to_string());
            self.uses.1.push(whole.as_str().to_owned());
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.journal.seq.is_empty()
    }

    /// Where to look whether it was written.
    pub(super) fn marker(&self, token: i64) -> Option<Marker> {
        let (task, seq) = (self.journal.task.first()?.clone(), *self.journal.seq.first()?);
        Some(Marker { task, seq, token })
    }

    /// Writes everything and commits. `k` is its place in the feed.
    pub(super) async fn commit(
        &self,
        connection: &ServerConnection,
        token: i64,
        k: i64,
    ) -> Result<(), TransactionFailure> {
        let (format, fold) = (i32::from(connection.server.format()), FOLD);
        let insert = async {
            let (new, fixed) = (&self.new, &self.fixed);
            match new.id.is_empty() {
                true => Ok(0),
                false => {
                    connection
                        .execute(
                            INSERT_TASKS,
                            &[
                                &new.id,
                                &new.status,
                                &fixed.team,
                                &fixed.agent,
                                &fixed.parent,
                                &fixed.root,
                                &fixed.continues,
                                &fixed.retries,
                                &new.attempt,
                                &new.worker,
                                &fixed.created,
                                &new.quiet,
                                &new.seq,
                                &new.state,
                                &format,
                                &fold,
                            ],
                        )
                        .await
                }
            }
        };
        let update = async {
            let changed = &self.changed;
            match changed.id.is_empty() {
                true => Ok(0),
                false => {
                    connection
                        .execute(
                            UPDATE_TASKS,
                            &[
                                &changed.id,
                                &changed.status,
                                &changed.attempt,
                                &changed.worker,
                                &changed.quiet,
                                &changed.seq,
                                &changed.state,
                                &format,
                                &fold,
                            ],
                        )
                        .await
                }
            }
        };
        let append = async {
            let JournalColumns { task, seq, at, kind, letter, entry } = &self.journal;
            connection
                .execute(INSERT_JOURNAL, &[task, seq, at, kind, letter, entry, &format, &token, &k])
                .await
        };
        let uses = async {
            match self.uses.0.is_empty() {
                true => Ok(0),
                false => connection.execute(INSERT_USES, &[&self.uses.0, &self.uses.1]).await,
            }
        };
        // Polled in this order, so sent in this order.
        let sent = async { futures::join!(insert, update, append, uses, connection.batch("COMMIT")) };
        let Ok((insert, update, append, uses, commit)) =
            tokio::time::timeout(ANSWER + Duration::from_secs(1), sent).await
        else {
            return Err(TransactionFailure::Unknown);
        };
        let refused: Vec<&Error> =
            [insert.as_ref().err(), update.as_ref().err(), append.as_ref().err(), uses.as_ref().err()]
                .into_iter()
                .flatten()
                .collect();
        // Refused by the server, which goes on: then the commit was none.
        let is_certain = |error: &&Error| is_refusal(error);
        if let Some(failure) =
            TransactionFailure::of_first(connection, refused.iter().copied().filter(is_certain))
        {
            return Err(failure);
        }
        match commit {
            Ok(()) if refused.is_empty() => Ok(()),
            Err(error) if is_refusal(&error) => Err(TransactionFailure::of(connection, &error)),
            _ => Err(TransactionFailure::Unknown),
        }
    }
}
