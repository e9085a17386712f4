//! Writes that are one statement each: stored values, blobs, and states that are made anew.

use tokio_postgres::Error;

use super::connect::{ANSWER, ServerConnection};
use super::errors::is_refusal;
use super::lane::{LaneOperation, random_token};
use super::rows;
use super::write_set::{TransactionFailure, in_time};
use super::{Mutant, Shared};
use crate::id::{Digest, TaskId};

const INSERT_VALUE: &str = "INSERT INTO @.stored_values (name, task, version, txs, bytes) \
                            VALUES ($1, $2, 1, ARRAY[$4::bigint], $3) ON CONFLICT DO NOTHING";
/// The tokens of the last eight writers are kept: who looks for its own may come after others.
const UPDATE_VALUE: &str = "UPDATE @.stored_values SET version = version + 1, bytes = $2, \
                            txs = (array_prepend($3::bigint, txs))[1:8] WHERE name = $1 AND version = $4";
/// Locked, so that a broken connection's write has ended.
const IS_MINE: &str = "SELECT $2 = ANY(txs) FROM @.stored_values WHERE name = $1 FOR UPDATE";

const TOUCH_BLOB: &str = "WITH there AS (UPDATE @.blobs SET at = $2 WHERE digest = $1 RETURNING digest) \
                          INSERT INTO @.loose_blobs (digest, at) SELECT digest, $2 FROM there \
                          ON CONFLICT (digest) DO UPDATE SET at = excluded.at";
const INSERT_BLOB: &str = "WITH new AS (INSERT INTO @.blobs (digest, at, bytes) VALUES ($1, $2, $3) \
                           ON CONFLICT (digest) DO UPDATE SET at = excluded.at RETURNING digest) \
                           INSERT INTO @.loose_blobs (digest, at) SELECT digest, $2 FROM new \
                           ON CONFLICT (digest) DO UPDATE SET at = excluded.at";

const LOCK_STATE: &str = "SELECT 1 FROM @.tasks WHERE id = $1 FOR NO KEY UPDATE";
const UPDATE_STATE: &str = "UPDATE @.tasks SET status = $2, attempt = $3, worker = $4, quiet = $5, seq = $6, fold = $7, \
                            state = $8 WHERE id = $1";

/// A write of a stored value.
pub(super) struct ValueWrite {
    name: String,
    after: u64,
    bytes: Vec<u8>,
    token: i64,
    /// Whether an earlier try may have been done.
    unsure: bool,
}

impl ValueWrite {
    pub(super) fn new(name: String, after: u64, bytes: Vec<u8>) -> ValueWrite {
        ValueWrite { name, after, bytes, token: random_token(), unsure: false }
    }

    /// Whether this write is the one that is there.
    async fn is_there(&self, connection: &ServerConnection) -> Result<bool, TransactionFailure> {
        let look = async { connection.row(IS_MINE, &[&self.name.as_bytes(), &self.token]).await };
        let row = in_time(connection, look).await?;
        let mine = row.map_or(Ok(false), |row| row.try_get(0));
        mine.map_err(|error| TransactionFailure::of(connection, &error))
    }

    async fn write(&self, connection: &ServerConnection) -> Result<u64, Error> {
        let name = self.name.as_bytes();
        if self.after > 0 {
            let after = rows::number(self.after);
            return connection.execute(UPDATE_VALUE, &[&name, &self.bytes, &self.token, &after]).await;
        }
        let task = crate::store::task_of_stored_value(&self.name).map(|task| task.to_string());
        connection.execute(INSERT_VALUE, &[&name, &task, &self.bytes, &self.token]).await
    }
}

impl LaneOperation for ValueWrite {
    type Answer = bool;

    fn is_unsure(&self) -> bool {
        self.unsure
    }

    async fn attempt(
        &mut self,
        connection: &ServerConnection,
        shared: &Shared,
    ) -> Result<bool, TransactionFailure> {
        if self.unsure && self.is_there(connection).await? {
            return Ok(true);
        }
        in_time(connection, connection.prepare_all(&[INSERT_VALUE, UPDATE_VALUE, IS_MINE])).await?;
        match tokio::time::timeout(ANSWER, self.write(connection)).await {
            Ok(Ok(1..)) => Ok(true),
            // The write of a broken connection may have been done while this one waited for it.
            Ok(Ok(0)) if self.unsure => self.is_there(connection).await,
            Ok(Ok(0)) => Ok(false),
            Ok(Err(error)) if is_refusal(&error) => Err(TransactionFailure::of(connection, &error)),
            _ => {
                self.unsure = !shared.is_broken(Mutant::NoToken);
                Err(TransactionFailure::Unknown)
            }
        }
    }
}

/// A blob. Storing it twice is the same as storing it once.
pub(super) struct BlobWrite {
    pub(super) digest: Digest,
    pub(super) bytes: Vec<u8>,
}

impl LaneOperation for BlobWrite {
    type Answer = ();

    fn is_unsure(&self) -> bool {
        false
    }

    async fn attempt(
        &mut self,
        connection: &ServerConnection,
        shared: &Shared,
    ) -> Result<(), TransactionFailure> {
        let (digest, at) = (self.digest.as_str(), shared.clock.now_ms());
        let write = async {
            // The bytes are only sent if they are not there.
            if connection.execute(TOUCH_BLOB, &[&digest, &at]).await? == 0 {
                connection.execute(INSERT_BLOB, &[&digest, &at, &self.bytes]).await?;
            }
            Ok(())
        };
        in_time(connection, write).await
    }
}

/// States to make anew from their journals.
pub(super) struct Rebuild(pub(super) Vec<TaskId>);

impl LaneOperation for Rebuild {
    type Answer = ();

    fn is_unsure(&self) -> bool {
        false
    }

    async fn attempt(&mut self, connection: &ServerConnection, _: &Shared) -> Result<(), TransactionFailure> {
        for task in &self.0 {
            let id = task.to_string();
            let rebuild = async {
                connection.begin(true).await?;
                connection.query(LOCK_STATE, &[&id]).await?;
                if let Ok(state) = rows::rebuild(connection, *task).await? {
                    let (status, attempt) = (i16::from(state.status as u8), i64::from(state.attempt.0));
                    let worker = state.worker.as_ref().map(|worker| worker.as_str());
                    let (quiet, seq) = (rows::quiet_column(&state), rows::number(state.seq.0));
                    let (fold, bytes) = (rows::FOLD, rows::state_column(&state));
                    connection
                        .execute(
                            UPDATE_STATE,
                            &[&id, &status, &attempt, &worker, &quiet, &seq, &fold, &bytes],
                        )
                        .await?;
                }
                connection.batch("COMMIT").await
            };
            in_time(connection, rebuild).await?;
        }
        Ok(())
    }
}
