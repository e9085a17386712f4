//! Adds whole journals of another store.

use tokio_postgres::Error;

use super::Shared;
use super::appends::NOW_AND_PLACE;
use super::connect::ServerConnection;
use super::lane::{LaneOperation, random_token};
use super::sql_value::SqlValue;
use super::write_set::{self, Marker, TransactionFailure, WriteSet, in_time};
use crate::entry::Record;
use crate::id::TaskId;
use crate::store::copy::folded;
use crate::store::{Hint, StoreError};
use crate::task::TaskState;

const THERE: &str = "SELECT id FROM @.tasks WHERE id = ANY($1) LIMIT 1";

/// A state, and the entries that made it.
type EncodedJournal = (TaskState, Vec<(Record, Vec<u8>)>);

/// Journals that are added in one transaction.
pub(super) struct Import {
    journals: Vec<EncodedJournal>,
    unsure: Option<Marker>,
}

impl Import {
    /// Fails if one of them is not the journal of a task.
    pub(super) fn new(journals: Vec<(TaskId, Vec<Record>)>) -> Result<Import, StoreError> {
        let mut encoded = Vec::with_capacity(journals.len());
        for (task, records) in journals {
            let state = folded(task, &records)?;
            let encode = |record: Record| match record.entry.encode() {
                Ok(bytes) => Ok((record, bytes)),
                Err(why) => Err(StoreError::BadEntry { task, seq: record.seq, why }),
            };
            encoded.push((state, records.into_iter().map(encode).collect::<Result<_, _>>()?));
        }
        Ok(Import { journals: encoded, unsure: None })
    }
}

impl LaneOperation for Import {
    /// Why nothing was added, if there is a reason.
    type Answer = Option<StoreError>;

    fn is_unsure(&self) -> bool {
        self.unsure.is_some()
    }

    async fn attempt(
        &mut self,
        connection: &ServerConnection,
        shared: &Shared,
    ) -> Result<Self::Answer, TransactionFailure> {
        if let Some(marker) = &self.unsure
            && in_time(connection, marker.is_there(connection)).await?
        {
            return Ok(None);
        }
        if self.journals.is_empty() {
            return Ok(None);
        }
        let ids: Vec<String> = self.journals.iter().map(|(state, _)| state.id.to_string()).collect();
        in_time(connection, async {
            connection.prepare_all(&write_set::STATEMENTS).await?;
            connection.prepare_all(&[NOW_AND_PLACE, THERE]).await
        })
        .await?;
        let ids: [&dyn SqlValue; 1] = [&ids];
        let begin = async {
            let (begun, there, now) = futures::join!(
                connection.begin(true),
                connection.query(THERE, &ids),
                connection.query(NOW_AND_PLACE, &[])
            );
            begun?;
            let (there, now) = (there?, now?);
            let place: i64 = now.first().map_or(Ok(0), |row| row.try_get(1))?;
            let there = there.first().and_then(|row| row.try_get::<_, &str>(0).ok()?.parse().ok());
            Ok::<_, Error>((there, place))
        };
        let (there, place) = in_time(connection, begin).await?;
        if let Some(task) = there {
            in_time(connection, connection.batch("ROLLBACK")).await?;
            return Ok(Some(StoreError::Exists(task)));
        }
        let mut set = WriteSet::default();
        for (state, records) in &self.journals {
            set.insert(state);
            for (record, bytes) in records {
                set.append(state.id, record, bytes);
            }
        }
        let token = random_token();
        let marker = set.marker(token);
        match set.commit(connection, token, place).await {
            Ok(()) => {
                shared.signals.written(vec![Hint::Lagged]);
                Ok(None)
            }
            Err(TransactionFailure::Unknown) => {
                self.unsure = marker;
                Err(TransactionFailure::Unknown)
            }
            Err(failure) => Err(failure),
        }
    }
}
