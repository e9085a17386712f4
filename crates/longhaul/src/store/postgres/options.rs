//! How to reach a PostgreSQL store: its URL, taken apart and checked before anything is connected.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

use crate::store::{Clock, DatabaseFault, StoreError};

/// The schema that holds the tables unless the URL names one.
const SCHEMA: &str = "longhaul";

/// Options for opening a [`PostgresStore`](super::PostgresStore).
///
/// They hold the password, if there is one: it is not shown by `Debug`, and no error contains it.
#[derive(Clone)]
#[non_exhaustive]
pub struct PostgresOptions {
    pub(super) config: Config,
    /// The schema with the tables: one schema is one store.
    pub schema: String,
    /// How many connections append. One is enough for most: what waits together shares a transaction. From two on,
    /// the last one is for claims, limited submissions and deletions only.
    pub lanes: usize,
    /// Whether there is a pooler in between that changes the server connection after each transaction (PgBouncer in
    /// transaction mode, any version). Nothing is then set, prepared or listened to on a connection: every statement is
    /// parsed each time, and others' writes are looked for once a second.
    pub pooled: bool,
    /// A file with certificates (PEM) to trust, besides those of this machine.
    pub root_certificates: Option<PathBuf>,
    /// How long an operation keeps trying while the server cannot be reached, before it fails.
    pub retry_for: Duration,
    /// A directory of this machine, where each process that uses the store holds a lock for its worker. If a process
    /// dies, the others that name the same directory notice it within a second; without one, its lease has to run out.
    /// Created when it is needed. Machines must not share it.
    pub worker_locks: Option<PathBuf>,
    /// A clock instead of the server's, for tests.
    pub(super) clock: Option<Clock>,
    /// What is broken on purpose.
    #[cfg(test)]
    pub(super) mutant: Option<super::Mutant>,
}

fluent_setters!(PostgresOptions {
    schema: String,
    lanes: usize,
    pooled: bool,
    root_certificates: Option<PathBuf>,
    retry_for: Duration,
    worker_locks: Option<PathBuf>,
    /// Uses this clock instead of the server's, to date entries and to judge leases. For tests: all stores on one
    /// schema must share it.
    clock: Clock => Some(clock),
});

impl PostgresOptions {
    /// Reads a URL: `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, with any parameter of `libpq` that
    /// `tokio-postgres` knows, and with these:
    ///
    /// - `schema=NAME`: the schema with the tables, `longhaul` if not given;
    /// - `pooled=true`: there is a pooler in transaction mode in between;
    /// - `sslrootcert=FILE`: certificates to trust besides those of this machine.
    ///
    /// Several hosts may be given (`HOST1:PORT,HOST2:PORT`): the one that takes writes is used, also after a failover.
    /// A connection to another machine is always encrypted, and its certificate verified. Fails if this is not such
    /// a URL; the error does not repeat it.
    pub fn new(url: &str) -> Result<PostgresOptions, StoreError> {
        if !(url.starts_with("postgres://") || url.starts_with("postgresql://")) {
            return Err(refused("it does not begin with postgres://"));
        }
        let (address, query) = url.split_once('?').unwrap_or((url, ""));
        let mut own = OwnParameters::default();
        let mut rest = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            if !own.take(pair)? {
                rest.push(pair);
            }
        }
        let whole =
            if rest.is_empty() { address.to_owned() } else { format!("{address}?{}", rest.join("&")) };
        let mut config: Config = whole.parse().map_err(|error| refused(&why_not_parsed(&error)))?;
        config.ssl_mode(own.ssl_mode(&config)?);
        // Of several servers, the one that takes writes: a primary that was replaced would show what was.
        if config.get_hosts().len() > 1 {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        if config.get_application_name().is_none() {
            config.application_name("longhaul");
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(Duration::from_secs(5));
        }
        // A peer that is gone without a word is noticed before a lease ends.
        config.keepalives_idle(Duration::from_secs(5));
        config.keepalives_interval(Duration::from_secs(2));
        config.keepalives_retries(3);
        config.tcp_user_timeout(Duration::from_secs(10));
        Ok(PostgresOptions {
            config,
            schema: own.schema.unwrap_or_else(|| SCHEMA.to_owned()),
            lanes: 2,
            pooled: own.pooled,
            root_certificates: own.root_certificates,
            retry_for: Duration::from_secs(5),
            worker_locks: None,
            clock: None,
            #[cfg(test)]
            mutant: None,
        })
    }
}

impl std::fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresOptions")
            .field("hosts", &self.config.get_hosts())
            .field("database", &self.config.get_dbname())
            .field("schema", &self.schema)
            .field("lanes", &self.lanes)
            .field("pooled", &self.pooled)
            .finish_non_exhaustive()
    }
}

/// The parameters that are ours, or that we read in our own way.
#[derive(Default)]
struct OwnParameters {
    schema: Option<String>,
    pooled: bool,
    root_certificates: Option<PathBuf>,
    encryption: Option<String>,
}

impl OwnParameters {
    /// Takes a parameter if it is one of these.
    fn take(&mut self, pair: &str) -> Result<bool, StoreError> {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        match name {
            "schema" => {
                let value = decoded(value);
                if value.is_empty() || value.len() > 63 || value.contains(['"', '\0']) {
                    return Err(refused("its `schema` is not a name"));
                }
                self.schema = Some(value);
            }
            "pooled" => match value {
                "true" | "1" => self.pooled = true,
                "false" | "0" => self.pooled = false,
                _ => return Err(refused("its `pooled` is neither true nor false")),
            },
            "sslrootcert" => self.root_certificates = Some(PathBuf::from(decoded(value))),
            "sslmode" => self.encryption = Some(value.to_owned()),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn ssl_mode(&self, config: &Config) -> Result<SslMode, StoreError> {
        let local = is_local(config);
        match self.encryption.as_deref() {
            Some("require" | "verify-ca" | "verify-full") => Ok(SslMode::Require),
            None | Some("prefer" | "allow" | "disable") if local => Ok(SslMode::Disable),
            None | Some("prefer" | "allow") => Ok(SslMode::Require),
            Some("disable") => Err(refused(
                "it says `sslmode=disable`, but a connection to another machine is always encrypted",
            )),
            Some(_) => Err(refused("its `sslmode` is not one of disable, prefer, require, verify-full")),
        }
    }
}

/// Whether every host is this machine.
fn is_local(config: &Config) -> bool {
    let loopback =
        |name: &str| name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    let hosts = config.get_hosts().iter().all(|host| match host {
        Host::Tcp(name) => loopback(name),
        Host::Unix(_) => true,
    });
    hosts && config.get_hostaddrs().iter().all(IpAddr::is_loopback)
}

/// What is wrong with a URL, without any part of it but the name of a parameter.
fn why_not_parsed(error: &tokio_postgres::Error) -> String {
    let why = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    let harmless = why.starts_with("unknown option") || why.starts_with("invalid value for option");
    if harmless { why } else { "it cannot be read".to_owned() }
}

fn refused(why: &str) -> StoreError {
    let what = format!(
        "This is not the address of a PostgreSQL store: {why}. It looks like postgres://USER@HOST/DATABASE?schema=NAME"
    );
    StoreError::Database { what, fault: DatabaseFault::Permanent }
}

/// Decodes `%20` and the like.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, more @ ..] = rest {
        let code = more.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let code = code.filter(|_| *first == b'%').and_then(|two| u8::from_str_radix(two, 16).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &more[2..] } else { more };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_read_and_never_repeated() {
        let options =
            PostgresOptions::new("postgres://zoe:s3cret@db.example/tasks?schema=a%20b&pooled=true").unwrap();
        assert_eq!((options.schema.as_str(), options.pooled), ("a b", true));
        assert_eq!(options.config.get_ssl_mode(), SslMode::Require, "another machine");
        assert!(!format!("{options:?}").contains("s3cret") && !format!("{options:?}").contains("zoe"));
        for local in ["postgres://localhost/x", "postgres://127.0.0.1/x", "postgres:///x?host=/tmp"] {
            assert_eq!(
                PostgresOptions::new(local).unwrap().config.get_ssl_mode(),
                SslMode::Disable,
                "{local}"
            );
        }
        let wanted = PostgresOptions::new("postgres://localhost/x?sslmode=verify-full").unwrap();
        assert_eq!(wanted.config.get_ssl_mode(), SslMode::Require);
        for wrong in [
            "s3cret",
            "mysql://zoe:s3cret@h/d",
            "postgres://zoe:s3cret@h/d?sslmode=disable",
            "postgres://zoe:s3cret@h/d?sslmode=s3cret",
            "postgres://zoe:s3cret@h/d?nonsense=s3cret",
            "postgres://zoe:s3cret@h:port/d",
            "postgres://h/d?schema=",
            "postgres://h/d?pooled=s3cret",
        ] {
            let error = PostgresOptions::new(wrong).unwrap_err().to_string();
            assert!(!error.contains("s3cret") && !error.contains("zoe"), "{error}");
        }
    }
}
