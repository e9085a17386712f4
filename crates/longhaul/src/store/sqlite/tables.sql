-- What all migrations together make of an empty file.
CREATE TABLE tasks (
    n         INTEGER PRIMARY KEY,    -- the order of submission
    id        TEXT    NOT NULL UNIQUE,
    status    INTEGER NOT NULL,
    team      TEXT    NOT NULL,
    agent     TEXT    NOT NULL,
    parent    TEXT,
    root      TEXT    NOT NULL,
    attempt   INTEGER NOT NULL,
    worker    TEXT,
    created   INTEGER NOT NULL,       -- milliseconds since 1970
    head      BLOB    NOT NULL,       -- the fold of the journal, as JSON
    sum       INTEGER,                -- see checksum.rs
    continues TEXT,                   -- the task whose conversation it goes on with
    retries   TEXT,                   -- the task whose order it has again
    quiet     INTEGER                 -- when anything last happened to it, milliseconds since 1970; NULL if it is open
);
CREATE INDEX tasks_by_status        ON tasks(status, team);
CREATE INDEX tasks_by_root          ON tasks(root, status);
CREATE INDEX tasks_by_worker        ON tasks(worker)    WHERE worker IS NOT NULL;
CREATE INDEX tasks_by_continues     ON tasks(continues) WHERE continues IS NOT NULL;
CREATE INDEX tasks_by_retries       ON tasks(retries)   WHERE retries IS NOT NULL;
CREATE INDEX tasks_by_quiet         ON tasks(quiet);
CREATE INDEX tasks_by_created       ON tasks(created);
CREATE INDEX tasks_by_agent         ON tasks(agent);
CREATE INDEX tasks_by_parent_status ON tasks(parent, status);

CREATE TABLE journal (
    row    INTEGER PRIMARY KEY,       -- the order of all entries of all tasks
    task   INTEGER NOT NULL,          -- tasks.n
    seq    INTEGER NOT NULL,
    at     INTEGER NOT NULL,          -- milliseconds since 1970
    kind   INTEGER NOT NULL,
    format INTEGER NOT NULL,
    letter TEXT,                      -- the id of the letter, if it is one
    entry  BLOB    NOT NULL,
    sum    INTEGER
);
CREATE UNIQUE INDEX journal_by_task ON journal(task, seq);
CREATE UNIQUE INDEX letters ON journal(task, letter) WHERE letter IS NOT NULL;

CREATE TABLE workers (
    id          TEXT PRIMARY KEY,
    lease_until INTEGER NOT NULL,     -- milliseconds since 1970
    renewals    INTEGER NOT NULL DEFAULT 0,
    length      INTEGER NOT NULL DEFAULT 0  -- of the lease, milliseconds; 0: not known
) WITHOUT ROWID;

CREATE TABLE kept (
    digest TEXT PRIMARY KEY,
    bytes  BLOB NOT NULL,
    at     INTEGER NOT NULL DEFAULT 0 -- when it was last kept, milliseconds since 1970
);
CREATE TABLE keeps (                  -- which journals refer to what is kept
    digest TEXT    NOT NULL,
    task   INTEGER NOT NULL,          -- tasks.n
    PRIMARY KEY (task, digest)
) WITHOUT ROWID;
CREATE INDEX keeps_by_digest ON keeps(digest);
CREATE TABLE loose (                  -- what is kept, and perhaps not referred to: looked at when something is deleted
    digest TEXT PRIMARY KEY,
    at     INTEGER NOT NULL           -- kept.at
) WITHOUT ROWID;
CREATE INDEX loose_by_at ON loose(at);

CREATE TABLE slips (
    name    TEXT PRIMARY KEY,
    written INTEGER NOT NULL,         -- how often
    bytes   BLOB    NOT NULL,
    sum     INTEGER
);
CREATE INDEX slips_by_task ON slips(substr(name, instr(name, ':') + 1));

CREATE TABLE store (
    id    TEXT    NOT NULL,           -- of this database and its copies, at random
    since INTEGER NOT NULL            -- the last row of the journal that may be without a checksum
);
INSERT INTO store (id, since) VALUES (lower(hex(randomblob(16))), 0);

CREATE TABLE garbage (                -- tasks that are deleted, and whose journals are not yet
    task INTEGER PRIMARY KEY          -- tasks.n
);
