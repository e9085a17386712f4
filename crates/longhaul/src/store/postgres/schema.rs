//! The tables, and how they are made and changed.
//!
//! Only [`migrate`] changes tables. A store that is opened checks them and says what to do if they are not there.

use std::sync::Arc;

use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use super::connect::{Server, ServerConnection};
use crate::store::StoreError;

/// The oldest server that has all that is used.
const OLDEST_SERVER: i32 = 140_000;

/// The migration from version `n` to version `n + 1`. A released step is never changed.
///
/// Ids are compared byte by byte (`COLLATE "C"`), so that ranges of them are found by an index, whatever the server's
/// language is. Entries are bytes: text cannot hold a zero byte here. There are no foreign keys: each would lock a row
/// once more, and what is written was validated before.
const STEPS: [&str; 1] = ["
    CREATE TABLE @.meta (
        version int    NOT NULL,        -- of the tables
        oldest  int    NOT NULL,        -- the oldest version whose programs can work with them
        store   bigint NOT NULL,        -- of this store and its copies, at random: 32 bits
        base    bigint NOT NULL         -- what the numbers of transactions are counted from: see feed.rs
    );
    CREATE TABLE @.tasks (
        id        text COLLATE \"C\" PRIMARY KEY,
        n         bigint   NOT NULL GENERATED ALWAYS AS IDENTITY,   -- the order of submission
        status    smallint NOT NULL,
        team      text COLLATE \"C\" NOT NULL,
        agent     text COLLATE \"C\" NOT NULL,
        parent    text COLLATE \"C\",
        root      text COLLATE \"C\" NOT NULL,
        continues text COLLATE \"C\",
        retries   text COLLATE \"C\",
        attempt   bigint   NOT NULL,
        worker    text COLLATE \"C\",
        created   bigint   NOT NULL,    -- milliseconds since 1970
        quiet     bigint,               -- when anything last happened to it; NULL if it is open
        seq       bigint   NOT NULL,    -- the end of its journal
        format    int      NOT NULL,    -- the newest format in its journal
        fold      int      NOT NULL,    -- the version of the fold that made its state
        state     bytea    NOT NULL
    ) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
    CREATE UNIQUE INDEX tasks_in_order ON @.tasks (n);
    CREATE INDEX tasks_pending  ON @.tasks (team, n)   WHERE status = 0;
    CREATE INDEX tasks_live     ON @.tasks (n)         WHERE status < 2;
    CREATE INDEX tasks_tree     ON @.tasks (root, n);
    CREATE INDEX tasks_children ON @.tasks (parent, n) WHERE parent IS NOT NULL;
    CREATE INDEX tasks_worker   ON @.tasks (worker)    WHERE worker IS NOT NULL;
    CREATE INDEX tasks_chain    ON @.tasks (continues) WHERE continues IS NOT NULL;
    CREATE INDEX tasks_retries  ON @.tasks (retries)   WHERE retries IS NOT NULL;
    CREATE INDEX tasks_quiet    ON @.tasks (quiet)     WHERE quiet IS NOT NULL;
    CREATE INDEX tasks_created  ON @.tasks USING brin (created);

    CREATE SEQUENCE @.feed_positions;
    CREATE TABLE @.journal (            -- only ever inserted into, and deleted with its task
        task   text COLLATE \"C\" NOT NULL,
        seq    bigint   NOT NULL,
        at     bigint   NOT NULL,       -- milliseconds since 1970
        kind   smallint NOT NULL,
        format int      NOT NULL,
        tx     bigint   NOT NULL,       -- the token of its transaction: see lane.rs
        k      bigint   NOT NULL,       -- its place in the feed, with pos: see feed.rs
        pos    bigint   NOT NULL DEFAULT nextval('@.feed_positions'),
        letter bytea,                   -- of a letter: 16 bytes of the SHA-256 of its id
        entry  bytea    NOT NULL,
        PRIMARY KEY (task, seq) INCLUDE (k, pos)
    ) WITH (autovacuum_vacuum_insert_scale_factor = 0.05);
    CREATE UNIQUE INDEX letters ON @.journal (task, letter) WHERE letter IS NOT NULL;
    CREATE INDEX feed ON @.journal (k, pos);

    CREATE TABLE @.deletion (           -- the place of the last deletion in the feed
        one bool PRIMARY KEY CHECK (one),
        k   bigint NOT NULL,
        pos bigint NOT NULL
    );
    INSERT INTO @.deletion VALUES (true, 0, 0);

    CREATE TABLE @.workers (
        id       text COLLATE \"C\" PRIMARY KEY,
        until    bigint NOT NULL,       -- milliseconds since 1970, by the server's clock
        renewals bigint NOT NULL,
        length   bigint NOT NULL        -- milliseconds
    ) WITH (fillfactor = 50);

    CREATE TABLE @.blobs (
        digest text COLLATE \"C\" PRIMARY KEY,
        at     bigint NOT NULL,         -- when it was last stored
        bytes  bytea  NOT NULL
    );
    CREATE TABLE @.blob_uses (          -- which journals refer to a blob
        task   text COLLATE \"C\" NOT NULL,
        digest text COLLATE \"C\" NOT NULL,
        PRIMARY KEY (task, digest)
    );
    CREATE INDEX blob_uses_by_digest ON @.blob_uses (digest);
    CREATE TABLE @.loose_blobs (        -- perhaps not referred to: looked at when something is deleted
        digest text COLLATE \"C\" PRIMARY KEY,
        at     bigint NOT NULL          -- blobs.at
    );
    CREATE INDEX loose_blobs_by_age ON @.loose_blobs (at);

    CREATE TABLE @.stored_values (
        name    bytea  PRIMARY KEY,
        task    text COLLATE \"C\",     -- whose it is
        version bigint NOT NULL,
        txs     bigint[] NOT NULL,      -- the tokens of the last transactions that wrote it
        bytes   bytea  NOT NULL
    );
    CREATE INDEX stored_values_of_task ON @.stored_values (task) WHERE task IS NOT NULL;

    CREATE TABLE @.scopes (name text PRIMARY KEY);  -- locked, so that two do not both take the last place
    INSERT INTO @.scopes VALUES ('limits');

    INSERT INTO @.meta VALUES (0, 0, ('x' || substr(md5(gen_random_uuid()::text), 1, 8))::bit(32)::bigint, 0);
"];

/// The version of the tables that this Longhaul makes.
const VERSION: i32 = STEPS.len() as i32;
/// The oldest version whose programs can work with what this one makes.
const OLDEST: i32 = 1;

const VERSIONS: &str = "SELECT version, oldest FROM @.meta";
/// Whether the newest entry has a number that no transaction of this server had yet: see [`rebase`].
const FOREIGN: &str = "SELECT coalesce((SELECT max(k) FROM @.journal), 0) >= \
                       pg_snapshot_xmax(pg_current_snapshot())::text::bigint + (SELECT base FROM @.meta)";

/// What is known about the tables.
enum Tables {
    None,
    Of { version: i32, oldest: i32 },
}

async fn look(connection: &ServerConnection) -> Result<Tables, Error> {
    match connection.row(VERSIONS, &[]).await {
        Ok(Some(row)) => Ok(Tables::Of { version: row.try_get(0)?, oldest: row.try_get(1)? }),
        Ok(None) => Ok(Tables::None),
        Err(error)
            if matches!(error.code(), Some(&SqlState::UNDEFINED_TABLE | &SqlState::INVALID_SCHEMA_NAME)) =>
        {
            Ok(Tables::None)
        }
        Err(error) => Err(error),
    }
}

async fn check_server(connection: &ServerConnection) -> Result<(), StoreError> {
    let name = &connection.server.name;
    let row = connection.row("SELECT current_setting('server_version_num')::int", &[]).await;
    let row = row.map_err(|error| name.server_error(&error))?;
    let version: i32 = row.and_then(|row| row.try_get(0).ok()).unwrap_or_default();
    if version < OLDEST_SERVER {
        return Err(name.error(format_args!(
            "is on a server of version {}: Longhaul needs PostgreSQL {} or newer. Nothing was changed in it",
            version / 10_000,
            OLDEST_SERVER / 10_000
        )));
    }
    Ok(())
}

/// Checks that the tables are there and that this Longhaul can use them.
pub(super) async fn check(connection: &ServerConnection) -> Result<(), StoreError> {
    let name = &connection.server.name;
    check_server(connection).await?;
    let failed = |error: Error| name.server_error(&error);
    match look(connection).await.map_err(failed)? {
        Tables::None => return Err(name.no_tables()),
        Tables::Of { version, .. } if version < VERSION => {
            return Err(name.error(format_args!(
                "has tables of an earlier Longhaul (version {version}; this one needs {VERSION}). Nothing was changed in \
                 it; run `longhaul store migrate`, and start again"
            )));
        }
        Tables::Of { version, oldest } if oldest > VERSION => {
            return Err(name.error(format_args!(
                "has tables of a newer Longhaul (version {version}; this one knows up to {VERSION}). Nothing was changed \
                 in it; upgrade Longhaul (`longhaul store migrate` does not go back)"
            )));
        }
        Tables::Of { .. } => {}
    }
    let foreign = connection.row(FOREIGN, &[]).await.map_err(failed)?;
    if foreign.is_some_and(|row| row.try_get(0).unwrap_or(false)) {
        return Err(name.error(format_args!(
            "was restored from a dump of another server: run `longhaul store migrate` once, so that the order of its \
             entries goes on, and start again"
        )));
    }
    Ok(())
}

/// How durable a commit is there.
const DURABILITY: &str = "SELECT current_setting('fsync'), current_setting('synchronous_commit'), \
                          current_setting('synchronous_standby_names'), (SELECT count(*) FROM pg_stat_replication)";

/// Says so if the server is set up to lose what it acknowledged.
pub(super) async fn warn_of_losses(connection: &ServerConnection) {
    let Ok(Some(row)) = connection.row(DURABILITY, &[]).await else { return };
    let setting = |column: usize| row.try_get::<_, &str>(column).unwrap_or_default();
    if setting(0) == "off" || setting(1) == "off" {
        tracing::warn!(
            "`fsync` or `synchronous_commit` is off on the PostgreSQL server: what was acknowledged may be lost in a crash"
        );
    }
    if setting(2).is_empty() && row.try_get::<_, i64>(3).unwrap_or_default() > 0 {
        tracing::warn!(
            "the PostgreSQL server has replicas, and none is synchronous (`synchronous_standby_names`): a failover may lose \
             what was acknowledged last"
        );
    }
}

/// Makes the tables, or brings them up to date. Whoever comes second waits, and finds them done.
pub(super) async fn migrate(server: &Arc<Server>) -> Result<(), StoreError> {
    let failed = |error: Error| server.name.server_error(&error);
    let connection = server.connect().await.map_err(failed)?;
    check_server(&connection).await?;
    let migrated = migrate_locked(&connection).await;
    if migrated.is_err() {
        let _ = connection.batch("ROLLBACK").await;
    }
    match migrated.map_err(failed)? {
        None => Ok(()),
        Some(version) => Err(server.name.error(format_args!(
            "has tables of a newer Longhaul (version {version}; this one knows up to {VERSION}). Nothing was changed in \
             it; upgrade Longhaul"
        ))),
    }
}

/// Returns the version of the tables if it is from the future.
async fn migrate_locked(connection: &ServerConnection) -> Result<Option<i32>, Error> {
    let schema = &connection.server.options().schema;
    connection.batch("BEGIN; SET LOCAL lock_timeout = '60s'").await?;
    // One at a time for each schema.
    connection.query("SELECT pg_advisory_xact_lock(hashtextextended($1, 20))", &[schema]).await?;
    let there = connection.row("SELECT 1 FROM pg_namespace WHERE nspname = $1", &[schema]).await?;
    if there.is_none() {
        connection.batch(&format!("CREATE SCHEMA \"{}\"", schema.replace('"', "\"\""))).await?;
    }
    // Asked without an error, which would end the transaction.
    let has_tables = connection
        .row("SELECT 1 FROM pg_tables WHERE schemaname = $1 AND tablename = 'meta'", &[schema])
        .await?
        .is_some();
    let (from, oldest) = match has_tables {
        false => (0, 0),
        true => match look(connection).await? {
            Tables::None => (0, 0),
            Tables::Of { version, oldest } => (version, oldest),
        },
    };
    if oldest > VERSION {
        connection.batch("ROLLBACK").await?;
        return Ok(Some(from));
    }
    for step in STEPS.iter().skip(usize::try_from(from).unwrap_or_default()) {
        connection.batch(step).await?;
    }
    if from < VERSION {
        connection.execute("UPDATE @.meta SET version = $1, oldest = $2", &[&VERSION, &OLDEST]).await?;
    }
    rebase(connection).await?;
    connection.batch("COMMIT").await?;
    Ok(None)
}

/// Entries are ordered by the numbers of transactions, which begin again on another server. After a dump was restored
/// there, the numbers of this one are counted from the last entry on.
async fn rebase(connection: &ServerConnection) -> Result<(), Error> {
    let sql = "UPDATE @.meta SET base = (SELECT max(k) FROM @.journal) + 1 \
               WHERE coalesce((SELECT max(k) FROM @.journal), 0) >= \
                     pg_snapshot_xmax(pg_current_snapshot())::text::bigint + base";
    connection.execute(sql, &[]).await.map(drop)
}
