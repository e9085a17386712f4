//! Converts between Longhaul's types and SQLite's columns.

use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, Row, params};

use super::checksum::RowChecksum;
use super::errors::{DatabasePath, OrStoreError as _};
use crate::entry::{Entry, EntryCodecError, Record, Submission};
use crate::id::{Seq, TaskId, TaskKey};
pub(super) use crate::store::columns::{
    EncodedEntries, encode, number, quiet_column, team_from_text, team_text,
};
use crate::store::saved_state;
use crate::store::{StoreError, StoredValue, TaskFilter};
use crate::task::{Status, TaskState};

/// The columns of a task: its state is read from them, and the checksum is computed over them.
pub(super) const TASK: &str = "n, id, head, sum, status, team, agent, parent, root, attempt, worker, created, \
                               continues, retries, quiet";
/// The row of a task, by its id.
pub(super) const ONE_TASK: &str = "SELECT n, id, head, sum, status, team, agent, parent, root, attempt, worker, created, \
                                   continues, retries, quiet FROM tasks WHERE id = ?1";
/// The row of a task, by its number.
pub(super) const NTH_TASK: &str = "SELECT n, id, head, sum, status, team, agent, parent, root, attempt, worker, created, \
                                   continues, retries, quiet FROM tasks WHERE n = ?1";

/// A part of a journal: the columns that [`read_record`] reads.
const JOURNAL: &str = "SELECT seq, at, format, entry, task, kind, letter, sum, row > (SELECT since FROM store) \
                       FROM journal WHERE task = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3";

/// Reads an entry from the columns of [`JOURNAL`], and checks it.
pub(super) fn read_record(task: TaskId, row: &Row<'_>) -> Result<Record, StoreError> {
    let number = |column: usize| row.get_ref(column).ok().and_then(|value| value.as_i64().ok());
    let seq = Seq(number(0).and_then(|seq| u64::try_from(seq).ok()).unwrap_or_default());
    let unreadable = |why: &str| {
        let why = EntryCodecError::Unreadable(format!("{why}; put a backup of the database in its place"));
        StoreError::BadEntry { task, seq, why }
    };
    let wrong = || unreadable("its content does not match its checksum");
    let letter = row.get_ref(6).ok().and_then(|letter| letter.as_bytes_or_null().ok()).ok_or_else(wrong)?;
    let bytes = row.get_ref(3).ok().and_then(|entry| entry.as_bytes().ok()).ok_or_else(wrong)?;
    let fields = (number(0), number(1), number(2), number(4), number(5));
    let (Some(place), Some(at), Some(format), Some(n), Some(kind)) = fields else { return Err(wrong()) };
    match row.get_ref(7) {
        Ok(ValueRef::Integer(sum))
            if sum == RowChecksum::for_entry(n, place, at, kind, format, letter, bytes) => {}
        // Written before checksums existed.
        Ok(ValueRef::Null) if number(8) != Some(1) => {}
        _ => return Err(wrong()),
    }
    let at = jiff::Timestamp::from_millisecond(at).map_err(|_| wrong())?;
    let format = u16::try_from(format).map_err(|_| wrong())?;
    let entry = Entry::decode(format, bytes).map_err(|why| StoreError::BadEntry { task, seq, why })?;
    Ok(Record { seq, at, entry })
}

/// Reads a stored value from the columns name, written, bytes, sum; `None` if it is damaged.
pub(super) fn read_stored_value(row: &Row<'_>) -> Option<(String, StoredValue)> {
    let name = row.get_ref(0).ok()?.as_str().ok()?;
    let written = row.get_ref(1).ok()?.as_i64().ok()?;
    let bytes = row.get_ref(2).ok()?.as_blob().ok()?;
    match row.get_ref(3).ok()? {
        ValueRef::Null => {}
        ValueRef::Integer(sum) if sum == RowChecksum::for_stored_value(name, written, bytes) => {}
        _ => return None,
    }
    Some((name.to_owned(), StoredValue { version: u64::try_from(written).ok()?, bytes: bytes.to_vec() }))
}

/// A state loaded from the database.
pub(super) struct LoadedState {
    /// The number of the task.
    pub(super) n: i64,
    pub(super) state: TaskState,
    /// The position up to which it was stored; the rest was read from the journal.
    pub(super) saved: Seq,
    /// Whether the row's checksum is correct.
    pub(super) whole: bool,
}

/// Reads a state from the columns [`TASK`], and applies the journal entries beyond it. Rebuilds it from the
/// journal if it is damaged, or if an earlier version of Longhaul wrote it in a format that is no longer
/// read. `asked` is the id it was found by.
pub(super) fn load_state(
    connection: &Connection,
    place: &DatabasePath,
    row: &Row<'_>,
    asked: Option<TaskId>,
) -> Result<LoadedState, StoreError> {
    let n = row.get(0).or_store_error(place)?;
    let whole = is_whole(row);
    let stored = row.get_ref(2).ok().and_then(|state| state.as_bytes().ok());
    if whole
        && let Some(mut state) = stored.and_then(saved_state::read)
        && asked.is_none_or(|asked| asked == state.id)
    {
        let saved = state.seq;
        apply_journal_tail(connection, place, n, &mut state)?;
        return Ok(LoadedState { n, state, saved, whole });
    }
    let state = rebuild_state(connection, place, row)?;
    Ok(LoadedState { n, state, saved: Seq(0), whole: false })
}

/// Whether the checksum of a task's row is correct. A row from before checksums existed counts as correct.
pub(super) fn is_whole(row: &Row<'_>) -> bool {
    match row.get_ref(3) {
        Ok(ValueRef::Null) => true,
        Ok(ValueRef::Integer(sum)) => RowChecksum::for_task_row(row) == Some(sum),
        _ => false,
    }
}

/// The id of a task, as far as its row tells, which may be damaged.
pub(super) fn task_id(row: &Row<'_>) -> Option<TaskId> {
    row.get_ref(1).ok()?.as_str().ok()?.parse().ok()
}

/// Rebuilds a state from the journal of the task in this row. Only the task's number in the row is trusted.
pub(super) fn rebuild_state(
    connection: &Connection,
    place: &DatabasePath,
    row: &Row<'_>,
) -> Result<TaskState, StoreError> {
    let n = row.get(0).or_store_error(place)?;
    let stored = row.get_ref(1).ok().and_then(|id| id.as_str().ok()).unwrap_or_default();
    let named = stored.parse::<TaskId>().ok();
    let no_name =
        || place.damaged_error(format_args!("the row of task number {n}, with its id ('{stored}'),"));
    let journal = match named {
        Some(id) => read_journal(connection, place, id, n, Seq(0), usize::MAX)?,
        None => {
            let nobody = TaskKey::named("").candidate_ids().next().ok_or_else(no_name)?;
            read_journal(connection, place, nobody, n, Seq(0), usize::MAX).map_err(|_| no_name())?
        }
    };
    let id = match journal.first().map(|record| &record.entry) {
        Some(Entry::Submitted(submitted)) => true_id(submitted, stored, named),
        _ => named,
    };
    let id = id.ok_or_else(no_name)?;
    match TaskState::from_journal(id, &journal) {
        Ok(Some(state)) => Ok(state),
        Ok(None) => Err(place.damaged_error(format_args!("task {id}, which has no journal,"))),
        Err(why) => Err(StoreError::Illegal { task: id, why }),
    }
}

/// The id of a task whose stored id may be damaged: a root refers to itself, and an id is derived from the
/// key.
fn true_id(submitted: &Submission, stored: &str, named: Option<TaskId>) -> Option<TaskId> {
    if submitted.parent.is_none() {
        return Some(submitted.root);
    }
    let is_near = |id: &TaskId| {
        let id = id.to_string();
        id.len() == stored.len()
            && id.bytes().zip(stored.bytes()).filter(|(one, two)| one != two).count() <= 1
    };
    submitted.key.candidate_ids().find(is_near).or(named)
}

/// Applies the end of a journal to a state. Of an unreadable entry only the position counts: one damaged
/// journal must not hide its task from lists, or keep it from being ended.
fn apply_journal_tail(
    connection: &Connection,
    place: &DatabasePath,
    n: i64,
    state: &mut TaskState,
) -> Result<(), StoreError> {
    let mut statement = connection.prepare_cached(JOURNAL).or_store_error(place)?;
    let mut rows = statement.query(params![n, number(state.seq.0), i64::MAX]).or_store_error(place)?;
    while let Some(row) = rows.next().or_store_error(place)? {
        let seq = row.get::<_, i64>(0).ok().and_then(|seq| u64::try_from(seq).ok());
        let taken = read_record(state.id, row).ok().map(|record| state.apply(&record));
        if !matches!(taken, Some(Ok(()))) {
            state.seq = Seq(seq.unwrap_or(state.seq.0 + 1));
        }
    }
    Ok(())
}

/// Reads a journal by the number of its task. Fails if there is a gap between entries.
pub(super) fn read_journal(
    connection: &Connection,
    place: &DatabasePath,
    task: TaskId,
    n: i64,
    after: Seq,
    limit: usize,
) -> Result<Vec<Record>, StoreError> {
    let mut statement = connection.prepare_cached(JOURNAL).or_store_error(place)?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut rows = statement.query(params![n, number(after.0), limit]).or_store_error(place)?;
    let mut records = Vec::new();
    let mut expected = Seq(after.0.saturating_add(1));
    while let Some(row) = rows.next().or_store_error(place)? {
        let record = read_record(task, row)?;
        if record.seq != expected {
            let why = EntryCodecError::Unreadable("it is missing".to_owned());
            return Err(StoreError::BadEntry { task, seq: expected, why });
        }
        expected = Seq(expected.0.saturating_add(1));
        records.push(record);
    }
    Ok(records)
}

/// The SQL condition of a filter, without its limit, and the values of its parameters.
///
/// One term uses an index: the one that leaves the fewest tasks, as far as that is known. The `+` before the
/// columns of the others keeps SQLite, which has no statistics, from choosing another.
pub(super) fn filter_condition(filter: &TaskFilter) -> (String, Vec<Value>) {
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
    let text = |id: &TaskId| vec![Value::Text(id.to_string())];
    let mut terms = SqlTerms::default();
    if let Some(worker) = worker {
        terms.add("worker", "= ?", vec![Value::Text(worker.as_str().to_owned())]);
    }
    if let Some(old) = retries {
        terms.add("retries", "= ?", text(old));
    }
    if let Some(old) = continues {
        terms.add("continues", "= ?", text(old));
    }
    match &parents[..] {
        [] => {}
        [parent] => terms.add("parent", "= ?", text(parent)),
        several => {
            let several: Vec<String> = several.iter().map(|id| format!("\"{id}\"")).collect();
            let several = Value::Text(format!("[{}]", several.join(",")));
            terms.add("parent", "IN (SELECT value FROM json_each(?))", vec![several]);
        }
    }
    // Roots of one status are in submission order in the index of parents: see `parts_in_order`.
    let by_root_status = *roots
        && terms.terms.is_empty()
        && root.is_none()
        && status.len() == 1
        && since.is_none()
        && agents.is_empty();
    if by_root_status {
        terms.add("parent", "IS NULL", Vec::new());
    }
    let of_parent = worker.is_none() && retries.is_none() && continues.is_none();
    let shares_index = !terms.terms.is_empty() && of_parent || root.is_some() && terms.terms.is_empty();
    if let Some(root) = root {
        terms.add("root", "= ?", text(root));
    }
    let among: Vec<String> = status.iter().map(|s| (*s as u8).to_string()).collect();
    let among = match &among[..] {
        [one] => format!("= {one}"),
        several => format!("IN ({})", several.join(",")),
    };
    let is_live = !status.is_empty() && status.iter().all(|status| !status.is_final());
    match shares_index {
        // The status is in the index of the parent, and of the root.
        true if !status.is_empty() => terms.terms.push(format!("status {among}")),
        false if is_live => {
            terms.by_status = terms.terms.is_empty();
            terms.add("status", &among, Vec::new());
        }
        _ => {}
    }
    if let Some(since) = active_since {
        let since = Value::Integer(not_before(*since));
        match terms.terms.is_empty() {
            true => terms.add(
                "n",
                "IN (SELECT n FROM tasks WHERE status IN (0,1) UNION ALL SELECT n FROM tasks WHERE quiet >= ?)",
                vec![since],
            ),
            false => {
                terms.terms.push("(status < 2 OR quiet >= ?)".to_owned());
                terms.values.push(since);
            }
        }
    }
    if let Some(before) = quiet_before {
        terms.add("quiet", "< ?", vec![Value::Integer(not_before(*before))]);
    }
    if let Some(since) = since {
        terms.add("created", ">= ?", vec![Value::Integer(not_before(*since))]);
    }
    if !agents.is_empty() {
        let among = vec!["?"; agents.len()].join(",");
        let agents = agents.iter().map(|agent| Value::Text(agent.to_string())).collect();
        terms.add("agent", &format!("IN ({among})"), agents);
    }
    if !status.is_empty() && !shares_index && !is_live {
        terms.by_status = terms.terms.is_empty();
        terms.add("status", &among, Vec::new());
    }
    if !teams.is_empty() {
        let among = vec!["?"; teams.len()].join(",");
        // The index of the status has the team too.
        let column = if terms.terms.len() == 1 && terms.by_status { "team" } else { "+team" };
        terms.terms.push(format!("{column} IN ({among})"));
        terms.values.extend(teams.iter().map(|team| Value::Text(team_text(team))));
    }
    if let Some(before) = before {
        terms.add("created", "< ?", vec![Value::Integer(not_before(*before))]);
    }
    if *roots && !by_root_status {
        terms.add("parent", "IS NULL", Vec::new());
    }
    if let Some(task) = submitted_before {
        // Every index ends with the number of the task, so this narrows the range of any of them.
        terms.terms.push("n < (SELECT older.n FROM tasks AS older WHERE older.id = ?)".to_owned());
        terms.values.push(Value::Text(task.to_string()));
    }
    let all = if terms.terms.is_empty() { "1".to_owned() } else { terms.terms.join(" AND ") };
    (all, terms.values)
}

/// A filter whose tasks an index may have in submission order.
pub(super) struct FilterPart {
    pub(super) filter: TaskFilter,
    pub(super) in_order: bool,
}

/// Splits a filter into parts that together match what it matches. If it has a limit and an index has each
/// part in order, no more than the limit need be read of each.
pub(super) fn parts_in_order(filter: &TaskFilter) -> Vec<FilterPart> {
    let by_status = match filter.parents.len() {
        0 => filter.root.is_some(),
        parents => parents == 1,
    };
    if filter.limit.is_some()
        && !filter.status.is_empty()
        && by_status
        && filter.retries.is_none()
        && filter.continues.is_none()
    {
        let part = |status: &Status| FilterPart {
            filter: TaskFilter { status: vec![*status], ..filter.clone() },
            in_order: true,
        };
        return filter.status.iter().map(part).collect();
    }
    let narrowed = TaskFilter {
        submitted_before: None,
        limit: None,
        roots: false,
        status: Vec::new(),
        ..filter.clone()
    };
    if filter.limit.is_some() && filter.roots && narrowed == TaskFilter::default() {
        let every = if filter.status.is_empty() { &Status::ALL[..] } else { &filter.status };
        let part = |status: &Status| FilterPart {
            filter: TaskFilter { status: vec![*status], ..filter.clone() },
            in_order: true,
        };
        return every.iter().map(part).collect();
    }
    let all = TaskFilter { submitted_before: None, limit: None, ..filter.clone() } == TaskFilter::default();
    vec![FilterPart { filter: filter.clone(), in_order: all }]
}

/// The value for `LIMIT`.
pub(super) fn filter_limit(filter: &TaskFilter) -> Value {
    Value::Integer(filter.limit.and_then(|limit| i64::try_from(limit).ok()).unwrap_or(i64::MAX))
}

/// The terms of a condition; the first uses an index.
#[derive(Default)]
struct SqlTerms {
    terms: Vec<String>,
    values: Vec<Value>,
    /// Whether the first is the status.
    by_status: bool,
}

impl SqlTerms {
    fn add(&mut self, column: &str, is: &str, values: Vec<Value>) {
        let no_index = if self.terms.is_empty() { "" } else { "+" };
        self.terms.push(format!("{no_index}{column} {is}"));
        self.values.extend(values);
    }
}

/// The first whole millisecond that is not before this time: a journal keeps whole milliseconds, rounded
/// down.
fn not_before(time: jiff::Timestamp) -> i64 {
    let part = i64::from(time.as_nanosecond().rem_euclid(1_000_000) != 0);
    i64::try_from(time.as_nanosecond().div_euclid(1_000_000)).unwrap_or(i64::MAX).saturating_add(part)
}
