//! Converts between Longhaul's types and the columns of the tables.

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use tokio_postgres::{Error, Row};

use super::connect::ServerConnection;
use super::sql_value::SqlValue;
use crate::entry::{Entry, EntryCodecError, Record};
use crate::id::{LetterId, Seq, TaskId};
pub(super) use crate::store::columns::{
    EncodedEntries, encode, number, quiet_column, team_from_text, team_text,
};
use crate::store::{StoreError, TaskFilter, saved_state};
use crate::task::TaskState;

/// The version of the fold that makes saved states. A state of another version is made anew from its journal.
pub(super) const FOLD: i32 = 1;

/// What a letter is found by: its id may be longer than a row of an index.
pub(super) fn letter_key(letter: &LetterId) -> Vec<u8> {
    Sha256::digest(letter.as_str().as_bytes())[..16].to_vec()
}

/// A state as it is stored. JSON can represent every state; if not, the empty column makes readers fold the journal.
pub(super) fn state_column(state: &TaskState) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(400);
    if saved_state::write(state, &mut bytes).is_err() {
        bytes.clear();
    }
    bytes
}

/// A task id in a column.
pub(super) fn task_id(row: &Row, column: usize) -> Result<Option<TaskId>, Error> {
    Ok(row.try_get::<_, Option<&str>>(column)?.and_then(|id| id.parse().ok()))
}

/// The columns that [`saved`] reads, of `t`.
macro_rules! state_columns {
    () => {
        "t.id, t.fold, t.seq, t.state"
    };
}
pub(super) use state_columns;

/// The state in the columns of [`state_columns`], from the first one on; `None` if it has to be made from the journal.
pub(super) fn saved(row: &Row, from: usize) -> Result<(Option<TaskId>, Option<TaskState>), Error> {
    let id = task_id(row, from)?;
    let (fold, seq): (i32, i64) = (row.try_get(from + 1)?, row.try_get(from + 2)?);
    let state = saved_state::read(row.try_get(from + 3)?);
    let state = state.filter(|state| fold == FOLD && Some(state.id) == id && number(state.seq.0) == seq);
    Ok((id, state))
}

/// A part of a journal: the columns that [`record`] reads.
pub(super) const JOURNAL: &str =
    "SELECT seq, at, format, entry FROM @.journal WHERE task = $1 AND seq > $2 ORDER BY seq LIMIT $3";

/// The entry in the columns seq, at, format and entry, from the first one on.
pub(super) fn record(task: TaskId, row: &Row, from: usize) -> Result<Result<Record, StoreError>, Error> {
    let (seq, at): (i64, i64) = (row.try_get(from)?, row.try_get(from + 1)?);
    let (format, bytes): (i32, &[u8]) = (row.try_get(from + 2)?, row.try_get(from + 3)?);
    let seq = Seq(u64::try_from(seq).unwrap_or_default());
    let at = Timestamp::from_millisecond(at).unwrap_or_default();
    let entry = Entry::decode(u16::try_from(format).unwrap_or(u16::MAX), bytes);
    Ok(entry.map(|entry| Record { seq, at, entry }).map_err(|why| StoreError::BadEntry { task, seq, why }))
}

/// The records in the rows of [`JOURNAL`]. Fails if there is a gap between them.
pub(super) fn records(
    task: TaskId,
    after: Seq,
    rows: &[Row],
) -> Result<Result<Vec<Record>, StoreError>, Error> {
    let mut records = Vec::with_capacity(rows.len());
    let mut expected = Seq(after.0.saturating_add(1));
    for row in rows {
        let record = match record(task, row, 0)? {
            Ok(record) => record,
            Err(error) => return Ok(Err(error)),
        };
        if record.seq != expected {
            let why = EntryCodecError::Unreadable("it is missing".to_owned());
            return Ok(Err(StoreError::BadEntry { task, seq: expected, why }));
        }
        expected = Seq(expected.0.saturating_add(1));
        records.push(record);
    }
    Ok(Ok(records))
}

/// Makes the state of a task from its journal.
pub(super) async fn rebuild(
    connection: &ServerConnection,
    task: TaskId,
) -> Result<Result<TaskState, StoreError>, Error> {
    let rows = connection.query(JOURNAL, &[&task.to_string(), &0_i64, &i64::MAX]).await?;
    let name = &connection.server.name;
    Ok(records(task, Seq(0), &rows)?.and_then(|journal| match TaskState::from_journal(task, &journal) {
        Ok(Some(state)) => Ok(state),
        Ok(None) => Err(name.damaged(format_args!("task {task}, which has no journal,"))),
        Err(why) => Err(StoreError::Illegal { task, why }),
    }))
}

/// The values of a condition's parameters.
pub(super) type OwnedValues = Vec<Box<dyn SqlValue + Send>>;

/// The same values as a statement takes them.
pub(super) fn borrowed(values: &OwnedValues) -> Vec<&dyn SqlValue> {
    values.iter().map(|value| &**value as &dyn SqlValue).collect()
}

/// The SQL condition of a filter over the table `t`, without its limit.
///
/// What a partial index asks for is in the text, so that a plan for all values can use it.
pub(super) fn filter_condition(filter: &TaskFilter) -> (String, OwnedValues) {
    let TaskFilter {
        status,
        root,
        parents,
        continues,
        retries,
        agents,
        teams,
        worker,
        roots,
        submitted_before,
        since,
        before,
        active_since,
        quiet_before,
        limit: _,
    } = filter;
    let mut terms = FilterTerms::default();
    let among: Vec<String> = status.iter().map(|status| (*status as u8).to_string()).collect();
    match &among[..] {
        [] => {}
        [one] => terms.fixed(format!("t.status = {one}")),
        several => terms.fixed(format!("t.status IN ({})", several.join(","))),
    }
    if let Some(root) = root {
        terms.add("t.root = ?", root.to_string());
    }
    match &parents[..] {
        [] => {}
        [parent] => terms.add("t.parent = ?", parent.to_string()),
        several => {
            terms.add("t.parent = ANY(?)", several.iter().map(ToString::to_string).collect::<Vec<_>>())
        }
    }
    if let Some(old) = continues {
        terms.add("t.continues = ?", old.to_string());
    }
    if let Some(old) = retries {
        terms.add("t.retries = ?", old.to_string());
    }
    if !agents.is_empty() {
        terms.add("t.agent = ANY(?)", agents.iter().map(ToString::to_string).collect::<Vec<_>>());
    }
    match &teams[..] {
        [] => {}
        [team] => terms.add("t.team = ?", team_text(team)),
        several => terms.add("t.team = ANY(?)", several.iter().map(team_text).collect::<Vec<_>>()),
    }
    if let Some(worker) = worker {
        terms.add("t.worker = ?", worker.as_str().to_owned());
    }
    if *roots {
        terms.fixed("t.parent IS NULL".to_owned());
    }
    if let Some(since) = since {
        terms.add("t.created >= ?", not_before(*since));
    }
    if let Some(before) = before {
        terms.add("t.created < ?", not_before(*before));
    }
    if let Some(since) = active_since {
        terms.add("(t.status < 2 OR t.quiet >= ?)", not_before(*since));
    }
    if let Some(before) = quiet_before {
        terms.add("t.quiet < ?", not_before(*before));
    }
    if let Some(task) = submitted_before {
        terms.add("t.n < (SELECT older.n FROM @.tasks AS older WHERE older.id = ?)", task.to_string());
    }
    let all = if terms.terms.is_empty() { "true".to_owned() } else { terms.terms.join(" AND ") };
    (all, terms.values)
}

#[derive(Default)]
struct FilterTerms {
    terms: Vec<String>,
    values: OwnedValues,
}

impl FilterTerms {
    fn fixed(&mut self, term: String) {
        self.terms.push(term);
    }

    fn add(&mut self, term: &str, value: impl SqlValue + Send + 'static) {
        self.values.push(Box::new(value));
        self.terms.push(term.replace('?', &format!("${}", self.values.len())));
    }
}

/// The first whole millisecond that is not before this time: a journal keeps whole milliseconds, rounded down.
fn not_before(time: Timestamp) -> i64 {
    let part = i64::from(time.as_nanosecond().rem_euclid(1_000_000) != 0);
    i64::try_from(time.as_nanosecond().div_euclid(1_000_000)).unwrap_or(i64::MAX).saturating_add(part)
}
