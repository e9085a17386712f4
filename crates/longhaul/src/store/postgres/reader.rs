//! The connections that read: a few, each shared by many readers. What is asked at the same moment is sent together.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tokio_postgres::{Error, Row};

use super::connect::{ANSWER, Server, ServerConnection};
use super::errors::{DatabaseName, Meaning, meaning};
use super::rows::{self, JOURNAL, state_columns};
use crate::entry::{Record, TeamRef};
use crate::id::{Digest, Seq, TaskId};
use crate::store::{MAX_MATCHES, StoreError, StoredValue, TaskFilter, single_match};
use crate::task::TaskState;

/// Connections for what can be asked twice.
pub(super) struct ReadConnections {
    server: Arc<Server>,
    connections: Vec<Mutex<Option<Arc<ServerConnection>>>>,
    next: AtomicUsize,
}

impl ReadConnections {
    /// With this many connections, and a first one.
    pub(super) fn new(
        server: Arc<Server>,
        connections: usize,
        first: Option<ServerConnection>,
    ) -> ReadConnections {
        let mut connections: Vec<_> = (0..connections.max(1)).map(|_| Mutex::default()).collect();
        connections[0] = Mutex::new(first.map(Arc::new));
        ReadConnections { server, connections, next: AtomicUsize::new(0) }
    }

    pub(super) fn server_name(&self) -> &DatabaseName {
        &self.server.name
    }

    async fn connection(&self) -> Result<Arc<ServerConnection>, Error> {
        let nth = self.next.fetch_add(1, Ordering::Relaxed) % self.connections.len();
        let mut slot = self.connections[nth].lock().await;
        if let Some(connection) = slot.as_ref().filter(|connection| !connection.is_closed()) {
            connection.trim();
            return Ok(connection.clone());
        }
        let connection = Arc::new(self.server.connect().await?);
        *slot = Some(connection.clone());
        Ok(connection)
    }

    /// Reads, and tries again for a while if the connection is lost. Only for what can be asked twice.
    pub(super) async fn run<T, F, Fut>(&self, read: F) -> Result<T, StoreError>
    where
        F: Fn(Arc<ServerConnection>) -> Fut,
        Fut: Future<Output = Result<T, Error>> + Send,
    {
        let deadline = Instant::now() + self.server.options().retry_for;
        let mut pause = Duration::from_millis(10);
        loop {
            let asked = tokio::time::timeout(ANSWER, async { read(self.connection().await?).await }).await;
            let Ok(answer) = asked else { return Err(self.server.name.timed_out()) };
            match answer {
                Ok(found) => return Ok(found),
                Err(error)
                    if matches!(meaning(&error), Meaning::Lost | Meaning::Again)
                        && Instant::now() < deadline =>
                {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_millis(500));
                }
                Err(error) => return Err(self.server.name.server_error(&error)),
            }
        }
    }

    pub(super) async fn read(
        &self,
        task: TaskId,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        let (id, from, most) = (task.to_string(), rows::number(after.0), rows::number(limit as u64));
        let read = |connection: Arc<ServerConnection>| {
            let id = &id;
            async move { rows::records(task, after, &connection.query(JOURNAL, &[id, &from, &most]).await?) }
        };
        self.run(read).await?
    }

    pub(super) async fn task_state(&self, task: TaskId) -> Result<Option<TaskState>, StoreError> {
        const ONE: &str = concat!("SELECT ", state_columns!(), " FROM @.tasks t WHERE t.id = $1");
        let id = task.to_string();
        let read = |connection: Arc<ServerConnection>| {
            let id = &id;
            async move {
                match connection.row(ONE, &[id]).await? {
                    None => Ok(Ok(None)),
                    Some(row) => Ok(load(&connection, &row).await?.map(Some)),
                }
            }
        };
        self.run(read).await?
    }

    pub(super) async fn list(&self, filter: &TaskFilter) -> Result<Vec<TaskState>, StoreError> {
        let read = |connection: Arc<ServerConnection>| async move {
            let found = newest(&connection, state_columns!(), filter).await?;
            load_all(&connection, &found).await
        };
        self.run(read).await
    }

    pub(super) async fn ids(&self, filter: &TaskFilter) -> Result<Vec<TaskId>, StoreError> {
        let read = |connection: Arc<ServerConnection>| async move {
            let found = newest(&connection, "t.id", filter).await?;
            let ids: Result<Vec<_>, Error> = found.iter().map(|row| rows::task_id(row, 0)).collect();
            Ok(ids?.into_iter().flatten().collect())
        };
        self.run(read).await
    }

    pub(super) async fn count(&self, filter: &TaskFilter) -> Result<usize, StoreError> {
        let most = filter.limit.map_or(i64::MAX, |limit| rows::number(limit as u64));
        let read = |connection: Arc<ServerConnection>| async move { count(&connection, filter, most).await };
        Ok(usize::try_from(self.run(read).await?).unwrap_or_default())
    }

    pub(super) async fn teams_at_work(&self) -> Result<Vec<TeamRef>, StoreError> {
        const TEAMS: &str = "SELECT DISTINCT t.team FROM @.tasks t WHERE t.status < 2";
        let read = |connection: Arc<ServerConnection>| async move {
            let found = connection.query(TEAMS, &[]).await?;
            let teams: Result<Vec<_>, Error> =
                found.iter().map(|row| Ok(rows::team_from_text(row.try_get(0)?))).collect();
            Ok(teams?.into_iter().flatten().collect())
        };
        self.run(read).await
    }

    pub(super) async fn find(&self, typed: &str) -> Result<TaskId, StoreError> {
        const WHOLE: &str = "SELECT id FROM @.tasks WHERE id = $1";
        const BEGINS: &str = "SELECT id FROM @.tasks WHERE id >= $1 AND id < $2 ORDER BY id LIMIT $3";
        if let Ok(id) = typed.parse::<TaskId>() {
            let text = id.to_string();
            let read = |connection: Arc<ServerConnection>| {
                let text = &text;
                async move { connection.row(WHOLE, &[text]).await }
            };
            if self.run(read).await?.is_some() {
                return Ok(id);
            }
        }
        let Some(begins) = TaskId::parse_prefix(typed) else { return single_match(typed, Vec::new()) };
        // '~' comes after every character of an id.
        let (from, to) = (format!("t-{begins}"), format!("t-{begins}~"));
        let most = rows::number(MAX_MATCHES as u64);
        let read = |connection: Arc<ServerConnection>| {
            let (from, to) = (&from, &to);
            async move {
                let found = connection.query(BEGINS, &[from, to, &most]).await?;
                found.iter().map(|row| rows::task_id(row, 0)).collect::<Result<Vec<_>, Error>>()
            }
        };
        single_match(typed, self.run(read).await?.into_iter().flatten().collect())
    }

    pub(super) async fn blob(&self, digest: &Digest) -> Result<Option<Vec<u8>>, StoreError> {
        const BLOB: &str = "SELECT bytes FROM @.blobs WHERE digest = $1";
        let read = |connection: Arc<ServerConnection>| async move {
            let row = connection.row(BLOB, &[&digest.as_str()]).await?;
            row.map(|row| row.try_get::<_, Vec<u8>>(0)).transpose()
        };
        match self.run(read).await? {
            None => Ok(None),
            Some(bytes) if Digest::of_bytes(&bytes) == *digest => Ok(Some(bytes)),
            Some(_) => Err(self.server.name.damaged(format_args!("The blob {digest}"))),
        }
    }

    pub(super) async fn stored_value_names(&self) -> Result<Vec<String>, StoreError> {
        let read = |connection: Arc<ServerConnection>| async move {
            let rows = connection.query("SELECT name FROM @.stored_values ORDER BY name", &[]).await?;
            let name = |row: &tokio_postgres::Row| Ok(String::from_utf8_lossy(row.try_get(0)?).into_owned());
            rows.iter().map(name).collect()
        };
        self.run(read).await
    }

    pub(super) async fn stored_value(&self, name: &str) -> Result<StoredValue, StoreError> {
        const VALUE: &str = "SELECT version, bytes FROM @.stored_values WHERE name = $1";
        let read = |connection: Arc<ServerConnection>| async move {
            match connection.row(VALUE, &[&name.as_bytes()]).await? {
                None => Ok(StoredValue::default()),
                Some(row) => {
                    let version = u64::try_from(row.try_get::<_, i64>(0)?).unwrap_or_default();
                    Ok(StoredValue { version, bytes: row.try_get(1)? })
                }
            }
        };
        self.run(read).await
    }
}

/// The state in a row; made from the journal if it cannot be read.
pub(super) async fn load(
    connection: &ServerConnection,
    row: &Row,
) -> Result<Result<TaskState, StoreError>, Error> {
    match rows::saved(row, 0)? {
        (_, Some(state)) => Ok(Ok(state)),
        (Some(id), None) => rows::rebuild(connection, id).await,
        (None, None) => Ok(Err(connection.server.name.damaged(format_args!("The id of a task")))),
    }
}

/// The states in some rows. A task that cannot be loaded must not hide the others; `check` reports it.
pub(super) async fn load_all(connection: &ServerConnection, found: &[Row]) -> Result<Vec<TaskState>, Error> {
    let mut states = Vec::with_capacity(found.len());
    for row in found {
        match load(connection, row).await? {
            Ok(state) => states.push(state),
            Err(error) => tracing::warn!(%error, "a task that cannot be loaded is left out"),
        }
    }
    Ok(states)
}

/// The columns of the tasks that match, in order; of the newest if there is a limit.
pub(super) async fn newest(
    connection: &ServerConnection,
    columns: &str,
    filter: &TaskFilter,
) -> Result<Vec<Row>, Error> {
    let (condition, mut values) = rows::filter_condition(filter);
    let Some(limit) = filter.limit else {
        let sql = format!("SELECT {columns} FROM @.tasks t WHERE {condition} ORDER BY t.n");
        return connection.query(&sql, &rows::borrowed(&values)).await;
    };
    values.push(Box::new(rows::number(limit as u64)));
    let sql = format!(
        "SELECT {columns} FROM @.tasks t WHERE {condition} ORDER BY t.n DESC LIMIT ${}",
        values.len()
    );
    let mut found = connection.query(&sql, &rows::borrowed(&values)).await?;
    found.reverse();
    Ok(found)
}

/// How many tasks match. Never counts further than to `most`.
pub(super) async fn count(
    connection: &ServerConnection,
    filter: &TaskFilter,
    most: i64,
) -> Result<i64, Error> {
    let (condition, mut values) = rows::filter_condition(filter);
    values.push(Box::new(most));
    let sql = count_sql(&condition, values.len());
    let row = connection.row(&sql, &rows::borrowed(&values)).await?;
    row.map_or(Ok(0), |row| row.try_get(0))
}

/// Prepares what [`count`] asks.
pub(super) async fn prepare_count(connection: &ServerConnection, filter: &TaskFilter) -> Result<(), Error> {
    let (condition, values) = rows::filter_condition(filter);
    connection.prepare_all(&[&count_sql(&condition, values.len() + 1)]).await
}

fn count_sql(condition: &str, limit: usize) -> String {
    format!("SELECT count(*) FROM (SELECT 1 FROM @.tasks t WHERE {condition} LIMIT ${limit}) AS counted")
}
