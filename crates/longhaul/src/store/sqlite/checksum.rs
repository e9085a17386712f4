//! Checksums of rows: a byte that changed on disk is detected when the row is read.
//!
//! CRC-32 detects every change of up to 32 consecutive bits in a row and costs less than a microsecond. It
//! does not protect against someone who can write the file and knows this. Rows from before checksums existed
//! have none; they are recognized by the end of the journal when checksums were introduced (`store.since`).

use rusqlite::Row;
use rusqlite::types::ValueRef;

use super::rows;
use crate::id::WorkerId;
use crate::task::TaskState;

/// A checksum being computed.
pub(super) struct RowChecksum(crc32fast::Hasher);

impl RowChecksum {
    fn new(table: u8) -> RowChecksum {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&[table]);
        RowChecksum(hasher)
    }

    fn number(mut self, number: i64) -> RowChecksum {
        self.0.update(&number.to_le_bytes());
        self
    }

    fn bytes(mut self, bytes: Option<&[u8]>) -> RowChecksum {
        match bytes {
            None => self.0.update(&[0]),
            Some(bytes) => {
                self.0.update(&[1]);
                self.0.update(&(bytes.len() as u64).to_le_bytes());
                self.0.update(bytes);
            }
        }
        self
    }

    fn finish(self) -> i64 {
        i64::from(self.0.finalize())
    }

    /// The checksum of a journal row.
    pub(super) fn for_entry(
        task: i64,
        seq: i64,
        at: i64,
        kind: i64,
        format: i64,
        letter: Option<&[u8]>,
        entry: &[u8],
    ) -> i64 {
        let sum = RowChecksum::new(1).number(task).number(seq).number(at).number(kind).number(format);
        sum.bytes(letter).bytes(Some(entry)).finish()
    }

    /// The checksum of a task's row: its columns and the stored state.
    pub(super) fn for_task(n: i64, state: &TaskState, stored: &[u8]) -> i64 {
        let (id, root, team) = (state.id.to_string(), state.root.to_string(), rows::team_text(&state.team));
        let parent = state.parent.map(|parent| parent.to_string());
        let worker = state.worker.as_ref().map(WorkerId::as_str);
        let sum = RowChecksum::new(2).number(n).bytes(Some(id.as_bytes())).number(state.status as i64);
        let sum = sum.bytes(Some(team.as_bytes())).bytes(Some(state.agent.as_str().as_bytes()));
        let sum = sum.bytes(parent.as_ref().map(String::as_bytes)).bytes(Some(root.as_bytes()));
        let sum = sum.number(i64::from(state.attempt.0)).bytes(worker.map(str::as_bytes));
        sum.number(state.created.as_millisecond()).bytes(Some(stored)).finish()
    }

    /// The checksum of a row with the columns of [`rows::TASK`]; `None` if a column has the wrong type.
    pub(super) fn for_task_row(row: &Row<'_>) -> Option<i64> {
        let number = |column: usize| row.get_ref(column).ok()?.as_i64().ok();
        let text = |column: usize| row.get_ref(column).ok()?.as_str().ok().map(str::as_bytes);
        let perhaps = |column: usize| match row.get_ref(column) {
            Ok(ValueRef::Null) => Some(None),
            Ok(ValueRef::Text(text)) => Some(Some(text)),
            _ => None,
        };
        let state = row.get_ref(2).ok()?.as_blob().ok()?;
        let sum = RowChecksum::new(2).number(number(0)?).bytes(Some(text(1)?)).number(number(4)?);
        let sum = sum.bytes(Some(text(5)?)).bytes(Some(text(6)?));
        let sum = sum.bytes(perhaps(7)?).bytes(Some(text(8)?));
        let sum = sum.number(number(9)?).bytes(perhaps(10)?);
        Some(sum.number(number(11)?).bytes(Some(state)).finish())
    }

    /// The checksum of a stored value.
    pub(super) fn for_stored_value(name: &str, written: i64, bytes: &[u8]) -> i64 {
        RowChecksum::new(3).bytes(Some(name.as_bytes())).number(written).bytes(Some(bytes)).finish()
    }
}
