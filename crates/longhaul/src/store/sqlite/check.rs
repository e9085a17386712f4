//! Whether what is stored is what was written, and what becomes of what is not.
//!
//! The journal is the truth. The row of a task derives from it: one that is damaged is made again. A journal that is
//! damaged cannot be; its task is named, and left alone.

use rusqlite::{Connection, Row, params};

use super::apply::Desk;
use super::checksum::Sum;
use super::errors::{OrTrouble as _, Place};
use super::reader::Reader;
use super::{rows, saved};
use crate::entry::Entry;
use crate::id::{Digest, Seq, TaskId, WorkerId};
use crate::store::{Damage, StoreError};
use crate::task::Head;

/// How much that is wrong is named.
const NAMED: usize = 20;

/// What a look at all tasks found.
#[derive(Default)]
pub(super) struct Checked {
    /// Tasks that cannot be loaded.
    pub(super) damage: Vec<Damage>,
    /// Tasks, by number, whose rows are to be made again.
    pub(super) mend: Vec<i64>,
}

impl Reader {
    /// Looks at every task; of those that have not ended, at their journals as well if that is wanted.
    pub(super) fn check(&self, journals: bool) -> Result<Checked, StoreError> {
        let mut checked = Checked::default();
        let sql = format!("SELECT {} FROM tasks ORDER BY n", rows::TASK);
        let mut statement = self.connection.prepare_cached(&sql).or_trouble(&self.place)?;
        let mut found = statement.query([]).or_trouble(&self.place)?;
        while let Some(row) = found.next().or_trouble(&self.place)? {
            match self.check_one(row, journals) {
                Ok(true) => {}
                Ok(false) => checked.mend.push(row.get(0).or_trouble(&self.place)?),
                Err(error @ StoreError::Database { .. }) => return Err(error),
                Err(error) => checked.damage.extend(damage(row, &error)),
            }
        }
        Ok(checked)
    }

    /// Whether the row of a task is as it should be; an error if the task cannot be loaded.
    fn check_one(&self, row: &Row<'_>, journals: bool) -> Result<bool, StoreError> {
        let rows::Found { n, head, whole, .. } = rows::head(&self.connection, &self.place, row, None)?;
        if !whole {
            return Ok(false);
        }
        if !differs(row, &head).is_empty() {
            rows::fold(&self.connection, &self.place, row)?;
            return Ok(false);
        }
        if journals && !head.status.is_final() {
            let told = rows::journal(&self.connection, &self.place, head.id, n, Seq(0), usize::MAX)?;
            let illegal = |why| StoreError::Illegal { task: head.id, why };
            let folded = Head::of(head.id, &told).map_err(illegal)?;
            match folded {
                Some(folded) if folded.seq == head.seq => return Ok(folded == head),
                _ => {
                    return Err(self
                        .place
                        .damaged(format_args!("the end of the journal of task {}", head.id)));
                }
            }
        }
        Ok(true)
    }
}

/// What is told of a task that cannot be loaded.
fn damage(row: &Row<'_>, error: &StoreError) -> Option<Damage> {
    let text = |column: usize| row.get_ref(column).ok()?.as_str().ok()?.parse::<TaskId>().ok();
    let task = match error {
        StoreError::Entry { task, .. } | StoreError::Illegal { task, .. } => Some(*task),
        _ => None,
    };
    let task = task.or_else(|| text(1)).or_else(|| text(8))?;
    Some(Damage { task, root: text(8).unwrap_or(task), why: error.to_string() })
}

/// In which columns the row of a task is not what its head says.
fn differs(row: &Row<'_>, head: &Head) -> Vec<&'static str> {
    let text =
        |column: usize| row.get_ref(column).ok().and_then(|value| value.as_str_or_null().ok().flatten());
    let number = |column: usize| row.get_ref(column).ok().and_then(|value| value.as_i64().ok());
    let mut differs = Vec::new();
    let mut compare = |name: &'static str, same: bool| {
        if !same {
            differs.push(name);
        }
    };
    compare("id", text(1) == Some(&head.id.to_string()));
    compare("status", number(4) == Some(head.status as i64));
    compare("team", text(5) == Some(&rows::team(&head.team)));
    compare("agent", text(6) == Some(head.agent.as_str()));
    compare("parent", text(7) == head.parent.map(|parent| parent.to_string()).as_deref());
    compare("root", text(8) == Some(&head.root.to_string()));
    compare("attempt", number(9) == Some(head.attempt.0.into()));
    compare("worker", text(10) == head.worker.as_ref().map(WorkerId::as_str));
    compare("created", number(11) == Some(head.created.as_millisecond()));
    differs
}

impl Desk {
    /// Makes the rows of tasks again from their journals.
    pub(super) fn mend(&mut self, tasks: &[i64]) -> Result<(), StoreError> {
        self.save_heads()?;
        for n in tasks {
            let sql = format!("SELECT {} FROM tasks WHERE n = ?1", rows::TASK);
            let mut statement = self.connection.prepare_cached(&sql).or_trouble(&self.place)?;
            let mut found = statement.query([n]).or_trouble(&self.place)?;
            let Some(row) = found.next().or_trouble(&self.place)? else { continue };
            // Whoever looked has named it, if its journal is damaged as well.
            let Ok(head) = rows::fold(&self.connection, &self.place, row) else { continue };
            let mut bytes = Vec::new();
            let _ = saved::write(&head, &mut bytes);
            let sum = Sum::of_task(*n, &head, &bytes);
            let sql = "UPDATE tasks SET id = ?2, status = ?3, team = ?4, agent = ?5, parent = ?6, root = ?7, \
                       attempt = ?8, worker = ?9, created = ?10, head = ?11, sum = ?12 WHERE n = ?1";
            let columns = params![
                n,
                head.id.to_string(),
                head.status as u8,
                rows::team(&head.team),
                head.agent.as_str(),
                head.parent.map(|p| p.to_string()),
                head.root.to_string(),
                head.attempt.0,
                head.worker.as_ref().map(WorkerId::as_str),
                head.created.as_millisecond(),
                bytes,
                sum,
            ];
            self.execute(sql, columns)?;
        }
        self.heads.forget();
        Ok(())
    }
}

/// Everything in a database that is not as it should be, in words.
pub(super) fn wrong(connection: &Connection, place: &Place, current: bool) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare(&format!("PRAGMA integrity_check({NAMED})"))?;
    let lines = statement.query_map([], |row| row.get::<_, String>(0))?;
    let mut wrong: Vec<String> =
        lines.collect::<rusqlite::Result<Vec<_>>>()?.into_iter().filter(|line| line != "ok").collect();
    // An older file has other columns; it is brought up to date when it is opened.
    if current {
        tasks(connection, place, &mut wrong)?;
        kept(connection, &mut wrong)?;
        slips(connection, &mut wrong)?;
    }
    if wrong.len() > NAMED {
        let more = wrong.len() - NAMED;
        wrong.truncate(NAMED);
        wrong.push(format!("and {more} more"));
    }
    Ok(wrong)
}

/// Journals, and the rows that derive from them.
fn tasks(connection: &Connection, place: &Place, wrong: &mut Vec<String>) -> rusqlite::Result<()> {
    let mut statement = connection.prepare(&format!("SELECT {} FROM tasks ORDER BY n", rows::TASK))?;
    let mut found = statement.query([])?;
    while let Some(row) = found.next()? {
        let n: i64 = row.get(0)?;
        let name = rows::id(row).map_or_else(|| format!("task number {n}"), |id| format!("task {id}"));
        let head = match rows::fold(connection, place, row) {
            Ok(head) => head,
            Err(error) => {
                wrong.push(match error {
                    StoreError::Entry { seq, why, .. } => {
                        format!("{name}: entry {seq} of its journal: {why}")
                    }
                    other => format!("{name}: {other}"),
                });
                continue;
            }
        };
        let stored = row.get_ref(2)?.as_bytes().ok().and_then(saved::read);
        let mut columns = differs(row, &head);
        // Earlier versions did not keep the time at work.
        let timed = |found: Head| Head { worked: head.worked, counting: head.counting, ..found };
        let stale = rows::head(connection, place, row, None).map(|found| timed(found.head));
        // A head may be some entries behind; with those it is the same.
        if stored.is_some() && stale.as_ref().ok() != Some(&head) {
            columns.push("head");
        }
        if !rows::is_whole(row) && columns.is_empty() {
            columns.push("checksum");
        }
        if !columns.is_empty() {
            wrong.push(format!(
                "{name}: its row is damaged ({}); `longhaul tasks` makes it again from the journal",
                columns.join(", ")
            ));
        }
        references(
            connection,
            n,
            &name,
            &rows::journal(connection, place, head.id, n, Seq(0), usize::MAX),
            wrong,
        )?;
    }
    let orphans = "SELECT DISTINCT task FROM journal WHERE task <> 0 AND task NOT IN (SELECT n FROM tasks)";
    let mut statement = connection.prepare(orphans)?;
    for n in statement.query_map([], |row| Ok(row.get::<_, i64>(0).unwrap_or_default()))? {
        wrong.push(format!("the journal of task number {} is there, but not the task", n?));
    }
    Ok(())
}

/// What the columns `kind` and `letter` of a journal, and the table of references to what is kept, say beside the entries.
fn references(
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
            wrong.push(format!("{name}: entry {} of its journal is not filed as what it is", record.seq));
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

/// What is kept by digest, and teams that should be.
fn kept(connection: &Connection, wrong: &mut Vec<String>) -> rusqlite::Result<()> {
    let mut statement = connection.prepare("SELECT digest, bytes FROM kept")?;
    let mut found = statement.query([])?;
    while let Some(row) = found.next()? {
        let digest = String::from_utf8_lossy(row.get_ref(0)?.as_bytes().unwrap_or_default()).into_owned();
        let same = row.get_ref(1)?.as_blob().is_ok_and(|bytes| Digest::of(bytes).as_str() == digest);
        if !same {
            let users = "SELECT id FROM tasks WHERE team = 'file:' || ?1 OR n IN (SELECT task FROM keeps WHERE digest = ?1)";
            let mut users = connection.prepare_cached(users)?;
            let users = users.query_map([&digest], |row| row.get::<_, String>(0))?;
            let users: Vec<String> = users.flatten().take(5).collect();
            let of = if users.is_empty() { String::new() } else { format!(" (of {})", users.join(", ")) };
            wrong.push(format!("what is kept under the digest {digest}{of} is damaged"));
        }
    }
    let missing = "SELECT team, min(id) FROM tasks WHERE team LIKE 'file:%' \
                   AND substr(team, 6) NOT IN (SELECT digest FROM kept) GROUP BY team";
    let mut statement = connection.prepare(missing)?;
    let teams = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
    for (team, task) in teams.flatten() {
        wrong.push(format!("task {task}: its team ({team}) is missing"));
    }
    Ok(())
}

fn slips(connection: &Connection, wrong: &mut Vec<String>) -> rusqlite::Result<()> {
    let mut statement = connection.prepare("SELECT name, written, bytes, sum FROM slips")?;
    let mut found = statement.query([])?;
    while let Some(row) = found.next()? {
        if rows::slip(row).is_none() {
            let name = String::from_utf8_lossy(row.get_ref(0)?.as_bytes().unwrap_or_default()).into_owned();
            wrong.push(format!("the note '{name}' is damaged"));
        }
    }
    Ok(())
}
