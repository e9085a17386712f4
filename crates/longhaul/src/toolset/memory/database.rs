//! The SQLite file with the memories and their full-text index.
//!
//! The table is the one that docker-agent writes, so its files keep working. Triggers keep the index up to
//! date, whichever program writes to the table.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::{
    Connection, ErrorCode, OptionalExtension as _, Row, TransactionBehavior, params, params_from_iter,
};
use serde::Serialize;

/// How long to wait for another process that is writing.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// How many memories, and how many bytes of them, are shown at once.
const MOST: usize = 500;
const MOST_BYTES: usize = 256 << 10;

/// A stored memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct MemoryRow {
    pub(super) id: String,
    pub(super) created_at: String,
    pub(super) memory: String,
    pub(super) category: String,
}

/// The memories found, and how many more there are.
#[derive(Debug, Default)]
pub(super) struct MemoryMatches {
    pub(super) memories: Vec<MemoryRow>,
    pub(super) left_out: usize,
}

/// An open database of memories.
pub(super) struct MemoryDatabase(Connection);

impl MemoryDatabase {
    /// Opens the file, or creates it.
    pub(super) fn open(path: &Path) -> rusqlite::Result<MemoryDatabase> {
        let connection = Connection::open(path)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        write_ahead(&connection)?;
        let mut database = MemoryDatabase(connection);
        database.prepare()?;
        Ok(database)
    }

    fn prepare(&mut self) -> rusqlite::Result<()> {
        if self.is_prepared()? {
            return Ok(());
        }
        let transaction = self.0.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute_batch(
            "CREATE TABLE IF NOT EXISTS memories \
             (id TEXT PRIMARY KEY, created_at TEXT, memory TEXT, category TEXT DEFAULT '')",
        )?;
        let has_category = transaction
            .prepare("SELECT 1 FROM pragma_table_info('memories') WHERE name = 'category'")?
            .exists([])?;
        if !has_category {
            transaction.execute_batch("ALTER TABLE memories ADD COLUMN category TEXT DEFAULT ''")?;
        }
        transaction.execute_batch(
            "CREATE VIRTUAL TABLE IF NOT EXISTS memory_words USING fts5
                 (memory, category, content = 'memories', tokenize = 'porter unicode61 remove_diacritics 2');
             CREATE TRIGGER IF NOT EXISTS memory_added AFTER INSERT ON memories BEGIN
                 INSERT INTO memory_words (rowid, memory, category) VALUES (new.rowid, new.memory, new.category);
             END;
             CREATE TRIGGER IF NOT EXISTS memory_deleted AFTER DELETE ON memories BEGIN
                 INSERT INTO memory_words (memory_words, rowid, memory, category)
                     VALUES ('delete', old.rowid, old.memory, old.category);
             END;
             CREATE TRIGGER IF NOT EXISTS memory_updated AFTER UPDATE ON memories BEGIN
                 INSERT INTO memory_words (memory_words, rowid, memory, category)
                     VALUES ('delete', old.rowid, old.memory, old.category);
                 INSERT INTO memory_words (rowid, memory, category) VALUES (new.rowid, new.memory, new.category);
             END;
             INSERT INTO memory_words (memory_words) VALUES ('rebuild');",
        )?;
        transaction.commit()
    }

    /// Checks whether the schema is complete: the last object that setup creates exists.
    fn is_prepared(&self) -> rusqlite::Result<bool> {
        let sql = "SELECT 1 FROM sqlite_schema WHERE type = 'trigger' AND name = 'memory_updated'";
        self.0.prepare(sql)?.exists([])
    }

    /// Adds a memory under the first of these ids that is free. An id that is taken by the same text belongs
    /// to an earlier attempt of the same call, and is returned.
    pub(super) fn add(
        &mut self,
        ids: impl Iterator<Item = String>,
        text: &str,
        category: &str,
        now: &str,
    ) -> rusqlite::Result<Option<String>> {
        let transaction = self.0.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for id in ids {
            let there: Option<String> = transaction
                .query_row("SELECT memory FROM memories WHERE id = ?1", [&id], |row| row.get(0))
                .optional()?;
            match there {
                Some(there) if there == text => return Ok(Some(id)),
                Some(_) => {}
                None => {
                    let sql =
                        "INSERT INTO memories (id, created_at, memory, category) VALUES (?1, ?2, ?3, ?4)";
                    transaction.execute(sql, params![id, now, text, category])?;
                    transaction.commit()?;
                    return Ok(Some(id));
                }
            }
        }
        Ok(None)
    }

    /// Changes a memory; returns whether it exists.
    pub(super) fn update(&self, id: &str, text: &str, category: Option<&str>) -> rusqlite::Result<bool> {
        let sql = "UPDATE memories SET memory = ?2, category = coalesce(?3, category) WHERE id = ?1";
        Ok(self.0.execute(sql, params![id, text, category])? > 0)
    }

    /// Deletes a memory; returns whether it existed.
    pub(super) fn delete(&self, id: &str) -> rusqlite::Result<bool> {
        Ok(self.0.execute("DELETE FROM memories WHERE id = ?1", [id])? > 0)
    }

    /// Returns all memories, newest first.
    pub(super) fn all(&self) -> rusqlite::Result<MemoryMatches> {
        let sql = format!("SELECT {COLUMNS} FROM memories m ORDER BY m.rowid DESC");
        self.find(&sql, vec![])
    }

    /// Finds memories that contain these words, best match first, optionally only of one category.
    pub(super) fn search(&self, query: &str, category: Option<&str>) -> rusqlite::Result<MemoryMatches> {
        let words = words(query);
        if words.is_empty() {
            let sql = format!("SELECT {COLUMNS} FROM memories m WHERE {IN_CATEGORY} ORDER BY m.rowid DESC");
            return self.find(&sql, vec![category.map(str::to_owned)]);
        }
        // Use the text as a query if SQLite accepts it as one.
        if is_query(query)
            && let Ok(found) = self.matching(query.to_owned(), &[], category)
        {
            return Ok(found);
        }
        let quoted: Vec<String> = words.iter().map(|word| format!("{}*", quoted(word))).collect();
        self.matching(quoted.join(" "), &words, category)
    }

    /// Returns the index matches of a query, then memories that contain the words elsewhere: as parts of
    /// words, or in languages without spaces between words.
    fn matching(
        &self,
        query: String,
        words: &[&str],
        category: Option<&str>,
    ) -> rusqlite::Result<MemoryMatches> {
        let parts: Vec<String> =
            (0..words.len()).map(|n| format!("m.memory LIKE ?{} ESCAPE '\\'", n + 3)).collect();
        let somewhere = match parts.is_empty() {
            true => String::new(),
            false => format!("UNION ALL SELECT m.rowid, 1e9 FROM memories m WHERE {}", parts.join(" AND ")),
        };
        let sql = format!(
            "WITH hits (hit, score) AS MATERIALIZED (
                 SELECT rowid, bm25(memory_words, 1.0, 0.5) FROM memory_words WHERE memory_words MATCH ?2
                 {somewhere}
             ),
             best AS (SELECT hit, min(score) AS score FROM hits GROUP BY hit)
             SELECT {COLUMNS} FROM best JOIN memories m ON m.rowid = best.hit WHERE {IN_CATEGORY}
             ORDER BY best.score, m.rowid DESC"
        );
        let mut values = vec![category.map(str::to_owned), Some(query)];
        values.extend(words.iter().map(|word| Some(like(word))));
        self.find(&sql, values)
    }

    fn find(&self, sql: &str, values: Vec<Option<String>>) -> rusqlite::Result<MemoryMatches> {
        let mut statement = self.0.prepare(sql)?;
        let mut rows = statement.query(params_from_iter(values))?;
        let (mut found, mut bytes) = (MemoryMatches::default(), 0);
        while let Some(row) = rows.next()? {
            let memory = memory(row)?;
            bytes += memory.memory.len();
            match found.memories.len() < MOST && (bytes <= MOST_BYTES || found.memories.is_empty()) {
                true => found.memories.push(memory),
                false => found.left_out += 1,
            }
        }
        Ok(found)
    }
}

const COLUMNS: &str = "m.id, coalesce(m.created_at, ''), coalesce(m.memory, ''), coalesce(m.category, '')";
const IN_CATEGORY: &str = "(?1 IS NULL OR lower(m.category) = lower(?1))";

fn memory(row: &Row<'_>) -> rusqlite::Result<MemoryRow> {
    Ok(MemoryRow { id: row.get(0)?, created_at: row.get(1)?, memory: row.get(2)?, category: row.get(3)? })
}

/// Splits a query into words: everything that contains a letter or a digit.
fn words(query: &str) -> Vec<&str> {
    let parts = query.split(|c: char| c.is_whitespace() || c.is_control());
    parts.filter(|word| word.chars().any(char::is_alphanumeric)).take(32).collect()
}

/// Checks whether a text uses query syntax: operators in capitals, or quotes around several words.
fn is_query(query: &str) -> bool {
    let operators = ["AND", "OR", "NOT"];
    query.split_whitespace().any(|word| operators.contains(&word)) || query.matches('"').count() == 2
}

/// Quotes a word so that the query takes it literally.
fn quoted(word: &str) -> String {
    format!("\"{}\"", word.replace('"', "\"\""))
}

fn like(word: &str) -> String {
    let escaped = word.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_");
    format!("%{escaped}%")
}

/// Switches to the write-ahead log, in which readers and a writer do not block each other. Retries, because
/// SQLite's busy timeout does not cover two programs that switch at once.
fn write_ahead(connection: &Connection) -> rusqlite::Result<()> {
    let until = Instant::now() + BUSY_TIMEOUT;
    loop {
        match connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())) {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && Instant::now() < until =>
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            other => return other,
        }
    }
}
