//! Between Longhaul's words and SQLite's columns.

use rusqlite::types::Value;
use rusqlite::{Connection, Row, params};

use super::errors::{OrTrouble as _, Place};
use super::saved;
use crate::entry::{Entry, Record, TeamRef};
use crate::id::{Seq, TaskId};
use crate::store::judge::Draft;
use crate::store::{Filter, StoreError};
use crate::task::Head;

/// The entries of each draft as they are stored.
pub(super) type Encoded = Vec<Vec<Vec<u8>>>;

/// Encodes the entries of some drafts.
pub(super) fn encode(drafts: &[Draft]) -> Result<Encoded, StoreError> {
    let one = |draft: &Draft| {
        let lines = draft.lines.iter().zip(1..);
        let encode = |(line, nth): (&crate::store::judge::Line, u64)| {
            let seq = Seq(draft.after.unwrap_or_default().0 + nth);
            line.record.entry.encode().map_err(|why| StoreError::Entry { task: draft.task, seq, why })
        };
        lines.map(encode).collect()
    };
    drafts.iter().map(one).collect()
}

/// A team as text.
pub(super) fn team(team: &TeamRef) -> String {
    match team {
        TeamRef::Named(name) => format!("named:{name}"),
        TeamRef::File(digest) => format!("file:{digest}"),
    }
}

/// A number of ours as one of SQLite's.
pub(super) fn number(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// Reads an entry from the columns seq, at, format, entry.
pub(super) fn record(task: TaskId, row: &Row<'_>) -> rusqlite::Result<Result<Record, StoreError>> {
    let seq = Seq(u64::try_from(row.get::<_, i64>(0)?).unwrap_or_default());
    let at = jiff::Timestamp::from_millisecond(row.get(1)?).unwrap_or_default();
    let format = row.get(2)?;
    let bytes = row.get_ref(3)?.as_bytes()?;
    let entry = Entry::decode(format, bytes).map_err(|why| StoreError::Entry { task, seq, why });
    Ok(entry.map(|entry| Record { seq, at, entry }))
}

/// A head as it is in the database.
pub(super) struct Found {
    /// The number of the task.
    pub(super) n: i64,
    pub(super) head: Head,
    /// Up to where it was stored; the rest was read from the journal.
    pub(super) saved: Seq,
}

/// Reads a head from the columns n, id, head, and takes in what its journal has beyond it; makes it again from the
/// journal if an earlier Longhaul wrote it in a form that is no longer read.
pub(super) fn head(connection: &Connection, place: &Place, row: &Row<'_>) -> Result<Found, StoreError> {
    let n = row.get(0).or_trouble(place)?;
    let bytes = row.get_ref(2).and_then(|head| Ok(head.as_bytes()?)).or_trouble(place)?;
    if let Some(mut head) = saved::read(bytes) {
        let saved = head.seq;
        catch_up(connection, place, n, &mut head)?;
        return Ok(Found { n, head, saved });
    }
    let id = row.get_ref(1).and_then(|id| Ok(id.as_str()?)).or_trouble(place)?;
    let id: TaskId = id.parse().map_err(|e| place.wrong(format_args!("is damaged: {e}")))?;
    let journal = journal(connection, place, id, n, Seq(0), usize::MAX)?;
    match Head::of(id, &journal) {
        Ok(Some(head)) => Ok(Found { n, head, saved: Seq(0) }),
        Ok(None) => Err(place.wrong(format_args!("is damaged: task {id} has no journal"))),
        Err(why) => Err(StoreError::Illegal { task: id, why }),
    }
}

/// Takes the end of a journal into a head. An entry there that cannot be read counts for its place only: one damaged
/// journal must not hide its task from lists, nor keep it from being ended.
fn catch_up(connection: &Connection, place: &Place, n: i64, head: &mut Head) -> Result<(), StoreError> {
    let mut statement = connection.prepare_cached(JOURNAL).or_trouble(place)?;
    let mut rows = statement.query(params![n, number(head.seq.0), i64::MAX]).or_trouble(place)?;
    while let Some(row) = rows.next().or_trouble(place)? {
        let seq = Seq(u64::try_from(row.get::<_, i64>(0).or_trouble(place)?).unwrap_or_default());
        let taken = record(head.id, row).or_trouble(place)?.ok().map(|record| head.step(&record));
        if !matches!(taken, Some(Ok(()))) {
            head.seq = seq;
        }
    }
    Ok(())
}

const JOURNAL: &str =
    "SELECT seq, at, format, entry FROM journal WHERE task = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3";

/// Reads a journal by the number of its task.
pub(super) fn journal(
    connection: &Connection,
    place: &Place,
    task: TaskId,
    n: i64,
    after: Seq,
    limit: usize,
) -> Result<Vec<Record>, StoreError> {
    let mut statement = connection.prepare_cached(JOURNAL).or_trouble(place)?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut rows = statement.query(params![n, number(after.0), limit]).or_trouble(place)?;
    let mut records = Vec::new();
    while let Some(row) = rows.next().or_trouble(place)? {
        records.push(record(task, row).or_trouble(place)??);
    }
    Ok(records)
}

/// The condition of a filter, but for its limit, and what is to be put in for its question marks.
pub(super) fn condition(filter: &Filter) -> (String, Vec<Value>) {
    let Filter { status, root, parent, agent, roots, since, limit: _ } = filter;
    let mut terms = Vec::new();
    let mut values = Vec::new();
    if !status.is_empty() {
        let among: Vec<String> = status.iter().map(|s| (*s as u8).to_string()).collect();
        terms.push(format!("status IN ({})", among.join(",")));
    }
    let mut equal = |column: &str, operator: &str, value: Value| {
        terms.push(format!("{column} {operator} ?"));
        values.push(value);
    };
    if let Some(root) = root {
        equal("root", "=", Value::Text(root.to_string()));
    }
    if let Some(parent) = parent {
        equal("parent", "=", Value::Text(parent.to_string()));
    }
    if let Some(agent) = agent {
        equal("agent", "=", Value::Text(agent.to_string()));
    }
    if let Some(since) = since {
        // A journal keeps whole milliseconds: one that began in the middle of this one began before it.
        let part = i64::from(since.as_nanosecond().rem_euclid(1_000_000) != 0);
        equal("created", ">=", Value::Integer(since.as_nanosecond().div_euclid(1_000_000) as i64 + part));
    }
    if *roots {
        terms.push("parent IS NULL".to_owned());
    }
    let all = if terms.is_empty() { "1".to_owned() } else { terms.join(" AND ") };
    (all, values)
}
