//! Checks whether the stored data is what was written, and repairs what can be repaired.
//!
//! The journal is authoritative. The row of a task is derived from it: a damaged one is rebuilt. A damaged
//! journal cannot be rebuilt; its task is reported and left alone.

use std::collections::{BTreeSet, HashSet};

use rusqlite::{Connection, Row, params};

use super::checksum::RowChecksum;
use super::errors::{DatabasePath, OrStoreError as _};
use super::reader::ReadConnection;
use super::rows;
use super::transaction::WriteConnection;
use crate::entry::Entry;
use crate::id::{Digest, Seq, TaskId, WorkerId};
use crate::store::saved_state;
use crate::store::{DamagedTask, StoreError, TaskFilter};
use crate::task::TaskState;

/// How many problems are listed.
const NAMED: usize = 20;

/// The result of checking tasks.
#[derive(Default)]
pub(super) struct CheckReport {
    /// Tasks that cannot be loaded.
    pub(super) damage: Vec<DamagedTask>,
    /// Numbers of the tasks whose rows have to be rebuilt.
    pub(super) rows_to_rebuild: Vec<i64>,
}

impl ReadConnection {
    /// Checks the tasks that match; if `journals` is set, also the journals of the unfinished ones.
    pub(super) fn find_damaged(&self, which: &TaskFilter, journals: bool) -> Result<CheckReport, StoreError> {
        let transaction = self.connection.unchecked_transaction().or_store_error(&self.place)?;
        let mut checked = CheckReport::default();
        let mut statement = self.connection.prepare_cached(rows::NTH_TASK).or_store_error(&self.place)?;
        for n in self.to_check(which)? {
            let mut found = statement.query([n]).or_store_error(&self.place)?;
            let Some(row) = found.next().or_store_error(&self.place)? else { continue };
            match self.check_one(row, journals) {
                Ok(true) => {}
                Ok(false) => checked.rows_to_rebuild.push(n),
                Err(error @ StoreError::Database { .. }) => return Err(error),
                Err(error) => checked.damage.extend(damage(row, &error)),
            }
        }
        drop(statement);
        drop(transaction);
        Ok(checked)
    }

    /// The numbers of the tasks that match. A filter for unfinished tasks also selects those with a damaged
    /// status.
    fn to_check(&self, which: &TaskFilter) -> Result<Vec<i64>, StoreError> {
        let mut numbers = self.numbers(which)?;
        if !which.status.is_empty() && which.status.iter().all(|status| !status.is_final()) {
            let found = seem_open(&self.connection).or_store_error(&self.place)?;
            let fits = TaskFilter { status: Vec::new(), ..which.clone() };
            let all = fits == TaskFilter::default();
            let fits: HashSet<i64> = match all {
                true => HashSet::new(),
                false => self.numbers(&fits)?.into_iter().collect(),
            };
            numbers.extend(found.into_iter().filter(|n| all || fits.contains(n)));
            numbers.sort_unstable();
            numbers.dedup();
        }
        Ok(numbers)
    }

    /// Whether the row of a task is correct. Fails if the task cannot be loaded.
    fn check_one(&self, row: &Row<'_>, journals: bool) -> Result<bool, StoreError> {
        let rows::LoadedState { n, state, whole, .. } =
            rows::load_state(&self.connection, &self.place, row, None)?;
        if !whole {
            return Ok(false);
        }
        if !differing_columns(row, &state).is_empty() {
            rows::rebuild_state(&self.connection, &self.place, row)?;
            return Ok(false);
        }
        if journals && !state.status.is_final() {
            let records = rows::read_journal(&self.connection, &self.place, state.id, n, Seq(0), usize::MAX)?;
            let illegal = |why| StoreError::Illegal { task: state.id, why };
            let folded = TaskState::from_journal(state.id, &records).map_err(illegal)?;
            match folded {
                Some(folded) if folded.seq == state.seq => return Ok(folded == state),
                _ => {
                    return Err(self
                        .place
                        .damaged_error(format_args!("the end of the journal of task {}", state.id)));
                }
            }
        }
        Ok(true)
    }
}

/// The report on a task that cannot be loaded.
fn damage(row: &Row<'_>, error: &StoreError) -> Option<DamagedTask> {
    let text = |column: usize| row.get_ref(column).ok()?.as_str().ok()?.parse::<TaskId>().ok();
    let task = match error {
        StoreError::BadEntry { task, .. } | StoreError::Illegal { task, .. } => Some(*task),
        _ => None,
    };
    let task = task.or_else(|| text(1)).or_else(|| text(8))?;
    Some(DamagedTask { task, root: text(8).unwrap_or(task), why: error.to_string() })
}

/// The columns in which the row of a task differs from its state.
fn differing_columns(row: &Row<'_>, state: &TaskState) -> Vec<&'static str> {
    let text =
        |column: usize| row.get_ref(column).ok().and_then(|value| value.as_str_or_null().ok().flatten());
    let number = |column: usize| row.get_ref(column).ok().and_then(|value| value.as_i64().ok());
    let mut differs = Vec::new();
    let mut compare = |name: &'static str, same: bool| {
        if !same {
            differs.push(name);
        }
    };
    compare("id", text(1) == Some(&state.id.to_string()));
    compare("status", number(4) == Some(state.status as i64));
    compare("team", text(5) == Some(&rows::team_text(&state.team)));
    compare("agent", text(6) == Some(state.agent.as_str()));
    compare("parent", text(7) == state.parent.map(|parent| parent.to_string()).as_deref());
    compare("root", text(8) == Some(&state.root.to_string()));
    compare("attempt", number(9) == Some(state.attempt.0.into()));
    compare("worker", text(10) == state.worker.as_ref().map(WorkerId::as_str));
    compare("created", number(11) == Some(state.created.as_millisecond()));
    compare("continues", text(12) == state.continues.map(|old| old.to_string()).as_deref());
    compare("retries", text(13) == state.retries.map(|old| old.to_string()).as_deref());
    compare("quiet", number(14) == rows::quiet_column(state));
    differs
}

impl WriteConnection {
    /// Rebuilds the rows of tasks from their journals.
    pub(super) fn rebuild_rows(&mut self, tasks: &[i64]) -> Result<(), StoreError> {
        self.save_states()?;
        for n in tasks {
            let mut statement = self.connection.prepare_cached(rows::NTH_TASK).or_store_error(&self.place)?;
            let mut found = statement.query([n]).or_store_error(&self.place)?;
            let Some(row) = found.next().or_store_error(&self.place)? else { continue };
            // If its journal is damaged too, the check has already reported it.
            let Ok(state) = rows::rebuild_state(&self.connection, &self.place, row) else { continue };
            let mut bytes = Vec::new();
            let _ = saved_state::write(&state, &mut bytes);
            let sum = RowChecksum::for_task(*n, &state, &bytes);
            let sql = "UPDATE tasks SET id = ?2, status = ?3, team = ?4, agent = ?5, parent = ?6, root = ?7, \
                       attempt = ?8, worker = ?9, created = ?10, head = ?11, sum = ?12, continues = ?13, \
                       retries = ?14, quiet = ?15 WHERE n = ?1";
            let columns = params![
                n,
                state.id.to_string(),
                state.status as u8,
                rows::team_text(&state.team),
                state.agent.as_str(),
                state.parent.map(|p| p.to_string()),
                state.root.to_string(),
                state.attempt.0,
                state.worker.as_ref().map(WorkerId::as_str),
                state.created.as_millisecond(),
                bytes,
                sum,
                state.continues.map(|old| old.to_string()),
                state.retries.map(|old| old.to_string()),
                rows::quiet_column(&state),
            ];
            self.execute(sql, columns)?;
        }
        self.states.clear();
        Ok(())
    }
}

/// The numbers of the tasks that are unfinished by one of the two columns that say so.
fn seem_open(connection: &Connection) -> rusqlite::Result<Vec<i64>> {
    let sql = "SELECT n FROM tasks WHERE quiet IS NULL UNION SELECT n FROM tasks WHERE status IN (0,1)";
    let mut statement = connection.prepare_cached(sql)?;
    statement.query_map([], |row| row.get(0))?.collect()
}

/// Everything in a database that is damaged, as text.
pub(super) fn find_damage(
    connection: &Connection,
    place: &DatabasePath,
    current: bool,
) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare(&format!("PRAGMA integrity_check({NAMED})"))?;
    let lines = statement.query_map([], |row| row.get::<_, String>(0))?;
    let mut wrong: Vec<String> =
        lines.collect::<rusqlite::Result<Vec<_>>>()?.into_iter().filter(|line| line != "ok").collect();
    // An older file has other columns; it is migrated when it is opened.
    if current {
        let numbers = connection
            .prepare("SELECT n FROM tasks ORDER BY n")?
            .query_map([], |row| row.get(0))?
            .collect::<Result<Vec<i64>, _>>()?;
        check_tasks(connection, place, &numbers, &mut wrong)?;
        check_orphans(connection, &mut wrong)?;
        let digests = texts(connection, "SELECT DISTINCT digest FROM kept")?;
        check_blobs(connection, &digests, true, &mut wrong)?;
        let teams = texts(connection, "SELECT DISTINCT team FROM tasks")?;
        check_teams(connection, &teams, &mut wrong)?;
        check_stored_values(connection, "SELECT name, written, bytes, sum FROM slips", None, &mut wrong)?;
    }
    Ok(first_of(wrong))
}

/// Like [`find_damage`], only for the unfinished tasks and the newest ones, with everything that belongs to
/// them: the cost does not grow with the number of ended tasks.
pub(super) fn find_damage_in_newest(
    connection: &Connection,
    place: &DatabasePath,
    newest: usize,
) -> rusqlite::Result<Vec<String>> {
    let mut numbers: BTreeSet<i64> = seem_open(connection)?.into_iter().collect();
    let newest = rows::number(newest as u64);
    let mut statement = connection.prepare("SELECT n FROM tasks ORDER BY n DESC LIMIT ?1")?;
    numbers.extend(statement.query_map([newest], |row| row.get(0))?.collect::<Result<Vec<i64>, _>>()?);
    let numbers: Vec<i64> = numbers.into_iter().collect();
    let mut wrong = Vec::new();
    check_tasks(connection, place, &numbers, &mut wrong)?;
    let (mut digests, mut teams) = (BTreeSet::new(), BTreeSet::new());
    for n in &numbers {
        let mut statement = connection.prepare_cached("SELECT digest FROM keeps WHERE task = ?1")?;
        digests.extend(statement.query_map([n], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()?);
        let mut statement = connection.prepare_cached("SELECT id, team FROM tasks WHERE n = ?1")?;
        let mut found = statement.query([n])?;
        let Some(row) = found.next()? else { continue };
        teams.extend(row.get_ref(1)?.as_str().ok().map(str::to_owned));
        if let Some(id) = rows::task_id(row) {
            let own = "SELECT name, written, bytes, sum FROM slips WHERE substr(name, instr(name, ':') + 1) = ?1 \
                       OR (substr(name, instr(name, ':') + 1) >= ?1 || ':' AND substr(name, instr(name, ':') + 1) < ?1 || ';')";
            check_stored_values(connection, own, Some(id), &mut wrong)?;
        }
    }
    digests.extend(teams.iter().filter_map(|team| team.strip_prefix("file:")).map(str::to_owned));
    check_blobs(connection, &digests.into_iter().collect::<Vec<_>>(), false, &mut wrong)?;
    check_teams(connection, &teams.into_iter().collect::<Vec<_>>(), &mut wrong)?;
    Ok(first_of(wrong))
}

fn texts(connection: &Connection, sql: &str) -> rusqlite::Result<Vec<String>> {
    let text = |row: &Row<'_>| {
        Ok(String::from_utf8_lossy(row.get_ref(0)?.as_bytes().unwrap_or_default()).into_owned())
    };
    connection.prepare(sql)?.query_map([], text)?.collect()
}

fn first_of(mut wrong: Vec<String>) -> Vec<String> {
    if wrong.len() > NAMED {
        let more = wrong.len() - NAMED;
        wrong.truncate(NAMED);
        wrong.push(format!("and {more} more"));
    }
    wrong
}

/// Journals, and the rows derived from them.
fn check_tasks(
    connection: &Connection,
    place: &DatabasePath,
    numbers: &[i64],
    wrong: &mut Vec<String>,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare(rows::NTH_TASK)?;
    for n in numbers.iter().copied() {
        let mut found = statement.query([n])?;
        let Some(row) = found.next()? else { continue };
        let name = rows::task_id(row).map_or_else(|| format!("task number {n}"), |id| format!("task {id}"));
        let state = match rows::rebuild_state(connection, place, row) {
            Ok(state) => state,
            Err(error) => {
                wrong.push(match error {
                    StoreError::BadEntry { seq, why, .. } => {
                        format!("{name}: entry {seq} of its journal: {why}")
                    }
                    other => format!("{name}: {other}"),
                });
                continue;
            }
        };
        let stored = row.get_ref(2)?.as_bytes().ok().and_then(saved_state::read);
        let mut columns = differing_columns(row, &state);
        // Earlier versions did not store the working time.
        let timed = |found: TaskState| TaskState {
            worked: state.worked,
            counting: state.counting,
            changed: state.changed,
            changing: state.changing.clone(),
            ..found
        };
        let stale = rows::load_state(connection, place, row, None).map(|found| timed(found.state));
        // A stored state may be some entries behind; with those applied it must be the same.
        if stored.is_some() && stale.as_ref().ok() != Some(&state) {
            columns.push("head");
        }
        if !rows::is_whole(row) && columns.is_empty() {
            columns.push("checksum");
        }
        if !columns.is_empty() {
            wrong.push(format!(
                "{name}: its row is damaged ({}); listing the tasks rebuilds it from the journal",
                columns.join(", ")
            ));
        }
        check_references(
            connection,
            n,
            &name,
            &rows::read_journal(connection, place, state.id, n, Seq(0), usize::MAX),
            wrong,
        )?;
    }
    Ok(())
}

/// Journals without a task, unless they are about to be deleted.
fn check_orphans(connection: &Connection, wrong: &mut Vec<String>) -> rusqlite::Result<()> {
    let orphans = "SELECT DISTINCT task FROM journal WHERE task <> 0 AND task NOT IN (SELECT n FROM tasks) \
                   AND task NOT IN (SELECT task FROM garbage)";
    let mut statement = connection.prepare(orphans)?;
    for n in statement.query_map([], |row| Ok(row.get::<_, i64>(0).unwrap_or_default()))? {
        wrong.push(format!("the journal of task number {} exists, but not the task", n?));
    }
    Ok(())
}

/// The columns `kind` and `letter` of a journal, and the table of references to blobs, compared with the
/// entries.
fn check_references(
    connection: &Connection,
    n: i64,
    name: &str,
    journal: &Result<Vec<crate::entry::Record>, StoreError>,
    wrong: &mut Vec<String>,
) -> rusqlite::Result<()> {
    let Ok(journal) = journal else { return Ok(()) };
    let mut statement =
        connection.prepare_cached("SELECT kind, letter FROM journal WHERE task = ?1 ORDER BY seq")?;
    let mut columns = statement.query([n])?;
    for record in journal {
        let Some(row) = columns.next()? else { break };
        let letter = match &record.entry {
            Entry::Letter(letter) => Some(letter.id.as_str()),
            _ => None,
        };
        let kind = row.get_ref(0)?.as_i64().ok();
        let stored = row.get_ref(1)?.as_str_or_null().ok().flatten();
        if kind != Some(record.entry.kind() as i64) || stored != letter {
            wrong.push(format!("{name}: entry {} of its journal has wrong index columns", record.seq));
        }
        if let Entry::Returned(returned) = &record.entry
            && let Some(whole) = &returned.whole
        {
            let sql = "SELECT 1 FROM keeps WHERE task = ?1 AND digest = ?2";
            if !connection.prepare_cached(sql)?.exists(params![n, whole.as_str()])? {
                wrong.push(format!("{name}: its reference to the output {whole} is missing"));
            }
            let sql = "SELECT 1 FROM kept WHERE digest = ?1";
            if !connection.prepare_cached(sql)?.exists([whole.as_str()])? {
                wrong.push(format!("{name}: its output {whole} is missing"));
            }
        }
    }
    Ok(())
}

/// Blobs, and whether they must exist.
fn check_blobs(
    connection: &Connection,
    digests: &[String],
    must: bool,
    wrong: &mut Vec<String>,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare("SELECT bytes FROM kept WHERE digest = ?1")?;
    for digest in digests {
        let mut found = statement.query([digest])?;
        let same = match found.next()? {
            Some(row) => {
                row.get_ref(0)?.as_blob().is_ok_and(|bytes| Digest::of_bytes(bytes).as_str() == *digest)
            }
            None => !must,
        };
        if !same {
            let users = "SELECT id FROM tasks WHERE team = 'file:' || ?1 OR n IN (SELECT task FROM keeps WHERE digest = ?1)";
            let mut users = connection.prepare_cached(users)?;
            let users = users.query_map([digest], |row| row.get::<_, String>(0))?;
            let users: Vec<String> = users.flatten().take(5).collect();
            let of = if users.is_empty() { String::new() } else { format!(" (of {})", users.join(", ")) };
            wrong.push(format!("the blob {digest}{of} is damaged"));
        }
    }
    Ok(())
}

/// Teams that must be stored.
fn check_teams(connection: &Connection, teams: &[String], wrong: &mut Vec<String>) -> rusqlite::Result<()> {
    for team in teams {
        let Some(digest) = team.strip_prefix("file:") else { continue };
        if connection.prepare_cached("SELECT 1 FROM kept WHERE digest = ?1")?.exists([digest])? {
            continue;
        }
        let mut statement = connection.prepare_cached("SELECT id FROM tasks WHERE team = ?1 LIMIT 1")?;
        for task in statement.query_map([team], |row| row.get::<_, String>(0))?.flatten() {
            wrong.push(format!("task {task}: its team ({team}) is missing"));
        }
    }
    Ok(())
}

fn check_stored_values(
    connection: &Connection,
    sql: &str,
    of: Option<TaskId>,
    wrong: &mut Vec<String>,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut found = statement.query(rusqlite::params_from_iter(of.map(|task| task.to_string())))?;
    while let Some(row) = found.next()? {
        if rows::read_stored_value(row).is_none() {
            let name = String::from_utf8_lossy(row.get_ref(0)?.as_bytes().unwrap_or_default()).into_owned();
            wrong.push(format!("the stored value '{name}' is damaged"));
        }
    }
    Ok(())
}
