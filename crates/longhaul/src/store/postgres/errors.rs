//! Errors of a PostgreSQL server, worded so that its owner knows what to do. None contains a user or a password.

use std::sync::Arc;

use tokio_postgres::Error;
use tokio_postgres::config::Host;
use tokio_postgres::error::{Severity, SqlState};

use super::options::PostgresOptions;
use crate::store::{DatabaseFault, StoreError};

/// The database of a store: every error names it.
#[derive(Debug, Clone)]
pub(super) struct DatabaseName(Arc<Named>);

#[derive(Debug)]
struct Named {
    /// For people.
    name: String,
    database: String,
    /// What must not be in an error.
    secrets: Vec<String>,
}

/// What an error of the server means for whoever asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The transaction met another one and was undone: it can be run again at once.
    Again,
    /// The connection is lost, or the server is starting or stopping.
    Lost,
    /// Someone held a lock for too long.
    Locked,
    /// There is no room on the server's disk.
    Full,
    /// Trying again does not help.
    Permanent,
}

/// What an error means.
pub(super) fn meaning(error: &Error) -> Meaning {
    let Some(database) = error.as_db_error() else {
        let text = error.to_string();
        // The only errors that are not about the connection.
        let ours = [
            "error serializing parameter",
            "error deserializing column",
            "invalid column",
            "invalid parameter",
        ];
        let expected = ["query returned an unexpected number of rows", "authentication error"];
        let permanent = ours.iter().chain(&expected).any(|start| text.starts_with(start));
        return if permanent { Meaning::Permanent } else { Meaning::Lost };
    };
    match database.code().code() {
        "40001" | "40P01" | "23505" => Meaning::Again,
        "55P03" => Meaning::Locked,
        "53100" => Meaning::Full,
        // Read-only: a primary that was replaced. Too many connections; cancelled; a server that starts or stops.
        "25006" | "25P03" | "53300" | "57P01" | "57P02" | "57P03" | "57P05" | "57014" => Meaning::Lost,
        code if code.starts_with("08") => Meaning::Lost,
        // A server that is out of memory, or has an I/O error, may be well again later.
        code if code.starts_with("53") || code.starts_with("58") => Meaning::Lost,
        _ if is_fatal(error) && !is_unwelcome(database.code()) => Meaning::Lost,
        _ => Meaning::Permanent,
    }
}

/// Whether the server refused what it was asked to do, and goes on: then nothing of it was done.
///
/// A pooler that has lost its server says so with an error of its own, of class 08; nobody knows then what was done. So it is
/// with 40003.
pub(super) fn is_refusal(error: &Error) -> bool {
    let Some(database) = error.as_db_error() else { return false };
    let code = database.code().code();
    !is_fatal(error) && !code.starts_with("08") && code != "40003"
}

/// Whether the connection ended with this error. A pooler says it only in words for people.
fn is_fatal(error: &Error) -> bool {
    error.as_db_error().is_some_and(|error| match error.parsed_severity() {
        Some(severity) => matches!(severity, Severity::Fatal | Severity::Panic),
        None => matches!(error.severity(), "FATAL" | "PANIC"),
    })
}

/// Whether the server refused the connection for what we asked, not for how it is.
fn is_unwelcome(code: &SqlState) -> bool {
    code.code().starts_with("28") || *code == SqlState::INVALID_CATALOG_NAME || code.code().starts_with("42")
}

impl DatabaseName {
    pub(super) fn new(options: &PostgresOptions) -> DatabaseName {
        let config = &options.config;
        let ports = config.get_ports();
        let port = |nth: usize| ports.get(nth).or(ports.first()).copied().unwrap_or(5432);
        let hosts: Vec<String> = config
            .get_hosts()
            .iter()
            .enumerate()
            .map(|(nth, host)| match host {
                Host::Tcp(name) => format!("{name}:{}", port(nth)),
                Host::Unix(path) => path.display().to_string(),
            })
            .collect();
        let hosts = if hosts.is_empty() { "this machine".to_owned() } else { hosts.join(", ") };
        let user = config.get_user().unwrap_or_default();
        let database = config.get_dbname().unwrap_or(user).to_owned();
        let password = config.get_password().map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        let secrets = password.into_iter().chain([user.to_owned()]).filter(|word| !word.is_empty()).collect();
        let name = match config.get_dbname() {
            Some(name) => format!("the PostgreSQL database '{name}' on {hosts} (schema {})", options.schema),
            None => format!("the PostgreSQL database on {hosts} (schema {})", options.schema),
        };
        DatabaseName(Arc::new(Named { name, database, secrets }))
    }

    /// An error that a retry does not fix.
    pub(super) fn error(&self, what: std::fmt::Arguments<'_>) -> StoreError {
        self.failed(what, DatabaseFault::Permanent)
    }

    /// An error that may pass. Nothing was written.
    pub(super) fn busy(&self, what: std::fmt::Arguments<'_>) -> StoreError {
        self.failed(what, DatabaseFault::Busy)
    }

    fn failed(&self, what: std::fmt::Arguments<'_>, fault: DatabaseFault) -> StoreError {
        let mut name = self.0.name.clone();
        name.replace_range(..1, &name[..1].to_uppercase());
        StoreError::Database { what: format!("{name} {what}."), fault }
    }

    /// Stored data is not what was written.
    pub(super) fn damaged(&self, what: std::fmt::Arguments<'_>) -> StoreError {
        let name = &self.0.name;
        StoreError::Damaged { what: format!("{what} is damaged; it is in {name}; restore a backup") }
    }

    /// The background task of a connection is gone, which is always a bug in Longhaul.
    pub(super) fn lane_lost(&self) -> StoreError {
        self.error(format_args!("is no longer written to, for a fault in Longhaul; start the program again"))
    }

    pub(super) fn timed_out(&self) -> StoreError {
        self.busy(format_args!("does not answer. Nothing was stored; check the server and the network"))
    }

    /// The text of an error without what is secret.
    fn clean(&self, error: &Error) -> String {
        let mut text = match error.as_db_error() {
            Some(error) => format!("{} ({})", error.message(), error.code().code()),
            None => {
                let source = std::error::Error::source(error).map(ToString::to_string);
                source.map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
            }
        };
        for secret in &self.0.secrets {
            // A short name may be part of any word.
            text = match secret.len() {
                0..4 => text.replace(&format!("\"{secret}\""), "that name"),
                _ => text.replace(secret.as_str(), "***"),
            };
        }
        text.chars().take(400).collect()
    }

    /// Converts an error of the server to one for its owner.
    pub(super) fn server_error(&self, error: &Error) -> StoreError {
        let why = self.clean(error);
        let code = error.code().map(SqlState::code).unwrap_or_default();
        match code {
            "28P01" | "28000" => {
                return self.error(format_args!(
                    "refuses the user or the password of the store's address. Check both, and pg_hba.conf on the server"
                ));
            }
            "3D000" => {
                return self.error(format_args!(
                    "cannot be opened: there is no database '{}' on this server. Create it (`createdb`), then run \
                     `longhaul store migrate`",
                    self.0.database
                ));
            }
            "42501" => {
                return self.error(format_args!(
                    "cannot be used: the user of the store's address may not ({why}). Grant it the schema and its tables"
                ));
            }
            "3F000" | "42P01" => return self.no_tables(),
            _ => {}
        }
        if error.to_string().starts_with("authentication error") || why.contains("password missing") {
            return self.error(format_args!(
                "asks for a password, and the store's address has none that it accepts ({why})"
            ));
        }
        if why.contains("server does not support TLS") {
            return self.error(format_args!(
                "cannot be reached over TLS: the server does not offer it. Turn on `ssl` on the server; only a connection \
                 to this machine may be without"
            ));
        }
        if why.contains("certificate") || why.contains("TLS handshake") {
            return self.error(format_args!(
                "cannot be reached over TLS: {why}. If the server has a certificate of your own, name its authority with \
                 `sslrootcert=FILE`"
            ));
        }
        match meaning(error) {
            Meaning::Full => {
                let what = format!(
                    "The disk of {} is full ({why}). This was not stored; all that was acknowledged before is. Free some \
                     space on the server: the store works on as soon as there is room.",
                    self.0.name
                );
                StoreError::Database { what, fault: DatabaseFault::DiskFull }
            }
            Meaning::Lost => self.busy(format_args!(
                "cannot be reached, or is restarting ({why}). This was not stored; all that was acknowledged before is"
            )),
            Meaning::Locked => self.busy(format_args!(
                "is locked by another session, and stayed so while Longhaul waited ({why}). See who holds it in \
                 pg_stat_activity, and try again"
            )),
            Meaning::Again => self.busy(format_args!("is too busy ({why}): others changed the same again and again")),
            Meaning::Permanent => self.error(format_args!("could not be used ({why})")),
        }
    }

    pub(super) fn no_tables(&self) -> StoreError {
        self.error(format_args!(
            "has no tables of Longhaul yet: run `longhaul store migrate` once, and start again"
        ))
    }
}
