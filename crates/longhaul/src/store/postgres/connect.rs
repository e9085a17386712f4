//! Connections to the server, and the statements that are prepared on them.
//!
//! A pooler in transaction mode hands a connection of the server to someone else after each transaction, so nothing may be
//! left on it: no setting, no `LISTEN`, and no statement with a name. Behind one, every statement is sent whole, with the
//! types of its parameters, in the same one message.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio::sync::mpsc;
use tokio_postgres::{AsyncMessage, Client, Error, Notification, Row, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_util::task::TaskTracker;

use super::errors::DatabaseName;
use super::options::PostgresOptions;
use super::sql_value::{Values, typed, untyped};
use crate::store::StoreError;

/// How long any answer of the server is waited for: long past its own limits for locks.
pub(super) const ANSWER: Duration = Duration::from_secs(30);
/// How many statements a connection keeps, at most.
const STATEMENTS: usize = 200;
/// What a session is set to. A store that has just been made has no statistics, and the server would read whole tables;
/// compiling a plan costs more than running it. A client that hangs must not hold its locks for long.
const SESSION: &str = "SET enable_seqscan = off; SET jit = off; SET lock_timeout = '5s'; \
                       SET idle_in_transaction_session_timeout = '10s'; SET client_min_messages = error";
/// The same for one transaction, behind a pooler.
const LOCALLY: &str = "SET LOCAL enable_seqscan = off; SET LOCAL jit = off; SET LOCAL lock_timeout = '5s'; \
                       SET LOCAL idle_in_transaction_session_timeout = '10s'";

/// What is needed to connect.
pub(super) struct Server {
    options: PostgresOptions,
    tls: MakeRustlsConnect,
    pub(super) name: DatabaseName,
    /// The schema as SQL has it, with its dot.
    schema: String,
    /// What runs in the background for the store. All of it ends when the store is dropped.
    pub(super) tasks: TaskTracker,
}

impl Server {
    pub(super) fn new(options: PostgresOptions) -> Result<Server, StoreError> {
        let name = DatabaseName::new(&options);
        let tls = tls(&options, &name)?;
        let schema = format!("\"{}\".", options.schema.replace('"', "\"\""));
        Ok(Server { options, tls, name, schema, tasks: TaskTracker::new() })
    }

    pub(super) fn options(&self) -> &PostgresOptions {
        &self.options
    }

    /// A statement with the name of the schema in place of `@.`.
    pub(super) fn sql(&self, template: &str) -> String {
        #[cfg(test)]
        if self.format() > crate::entry::FORMAT {
            // What is of its own format, it can read.
            let template = template.replace("at, format", "at, least(format, 1)");
            return template
                .replace("j.at, j.format", "j.at, least(j.format, 1)")
                .replace("@.", &self.schema);
        }
        template.replace("@.", &self.schema)
    }

    /// The newest format that is read, in which everything is written.
    pub(super) fn format(&self) -> u16 {
        #[cfg(test)]
        if self.options.mutant == Some(super::Mutant::Newer) {
            return crate::entry::FORMAT + 1;
        }
        crate::entry::FORMAT
    }

    /// Connects.
    pub(super) async fn connect(self: &Arc<Self>) -> Result<ServerConnection, Error> {
        self.connect_listening(None).await
    }

    /// Connects, and hands over what others notify.
    pub(super) async fn connect_listening(
        self: &Arc<Self>,
        heard: Option<mpsc::UnboundedSender<Notification>>,
    ) -> Result<ServerConnection, Error> {
        let (client, mut driver) = self.options.config.connect(self.tls.clone()).await?;
        let mut messages = futures::stream::poll_fn(move |context| driver.poll_message(context));
        // Ends when the client is dropped, or the connection breaks.
        self.tasks.spawn(async move {
            while let Some(message) = messages.next().await {
                match (message, &heard) {
                    (Ok(AsyncMessage::Notification(note)), Some(heard)) => drop(heard.send(note)),
                    (Ok(_), _) => {}
                    // Every request that waits for an answer hears of it too.
                    (Err(_), _) => break,
                }
            }
        });
        if !self.options.pooled {
            client.batch_execute(SESSION).await?;
        }
        Ok(ServerConnection { client, server: self.clone(), statements: Mutex::default() })
    }
}

fn tls(options: &PostgresOptions, name: &DatabaseName) -> Result<MakeRustlsConnect, StoreError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let failed = |why: String| name.error(format_args!("cannot be reached over TLS: {why}"));
    let mut roots = Vec::new();
    if let Some(path) = &options.root_certificates {
        let unreadable =
            |why: &dyn std::fmt::Display| failed(format!("{} cannot be read ({why})", path.display()));
        let found = CertificateDer::pem_file_iter(path).map_err(|why| unreadable(&why))?;
        for certificate in found {
            roots.push(certificate.map_err(|why| unreadable(&why))?);
        }
    }
    let config = rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|why| failed(why.to_string()))?;
    // Not asked for the machine's certificates where none are needed: there may be none.
    let plain = options.config.get_ssl_mode() == tokio_postgres::config::SslMode::Disable;
    let config = if plain {
        config.with_root_certificates(rustls::RootCertStore::empty())
    } else {
        let verifier = rustls_platform_verifier::Verifier::new_with_extra_roots(roots, provider)
            .map_err(|why| failed(why.to_string()))?;
        config.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
    };
    Ok(MakeRustlsConnect::new(config.with_no_client_auth()))
}

/// A connection with its prepared statements.
///
/// Requests that are polled together are sent together, in that order, and none waits for the answer of another.
pub(super) struct ServerConnection {
    client: Client,
    pub(super) server: Arc<Server>,
    statements: Mutex<HashMap<String, Statement>>,
}

impl ServerConnection {
    /// Whether it is known to be broken.
    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// The prepared form of a statement that has `@.` before the names of tables.
    async fn prepare(&self, template: &str) -> Result<Statement, Error> {
        let known = || self.statements.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(statement) = known().get(template) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(&self.server.sql(template)).await?;
        known().insert(template.to_owned(), statement.clone());
        Ok(statement)
    }

    /// Forgets statements if there are many: filters have many forms. Never between preparing statements and sending
    /// them: one that has to be prepared first is sent after the others.
    pub(super) fn trim(&self) {
        let mut statements = self.statements.lock().unwrap_or_else(PoisonError::into_inner);
        if statements.len() >= STATEMENTS {
            statements.clear();
        }
    }

    /// Prepares all of these, so that they can be sent without waiting in between. Behind a pooler nothing is prepared.
    pub(super) async fn prepare_all(&self, templates: &[&str]) -> Result<(), Error> {
        if self.server.options.pooled {
            return Ok(());
        }
        for template in templates {
            self.prepare(template).await?;
        }
        Ok(())
    }

    pub(super) async fn query(&self, template: &str, values: Values<'_>) -> Result<Vec<Row>, Error> {
        if self.server.options.pooled {
            return self.client.query_typed(&self.server.sql(template), &typed(values)).await;
        }
        let statement = self.prepare(template).await?;
        self.client.query(&statement, &untyped(values)).await
    }

    /// The only row of the answer, or none.
    pub(super) async fn row(&self, template: &str, values: Values<'_>) -> Result<Option<Row>, Error> {
        Ok(self.query(template, values).await?.into_iter().next())
    }

    /// Runs a statement, and returns how many rows it changed.
    pub(super) async fn execute(&self, template: &str, values: Values<'_>) -> Result<u64, Error> {
        if self.server.options.pooled {
            return self.client.execute_typed(&self.server.sql(template), &typed(values)).await;
        }
        let statement = self.prepare(template).await?;
        self.client.execute(&statement, &untyped(values)).await
    }

    /// Runs statements without parameters.
    pub(super) async fn batch(&self, template: &str) -> Result<(), Error> {
        match template.contains("@.") {
            true => self.client.batch_execute(&self.server.sql(template)).await,
            false => self.client.batch_execute(template).await,
        }
    }

    /// Notifies everyone who listens. On a connection of its own that does not wait for the disk; behind a pooler that is
    /// said in the transaction.
    pub(super) async fn notify(&self, channel: &str, text: &str) -> Result<(), Error> {
        if !self.server.options.pooled {
            return self.query("SELECT pg_notify($1, $2)", &[&channel, &text]).await.map(drop);
        }
        let text = text.replace('\'', "''");
        let sql = format!(
            "BEGIN; SET LOCAL synchronous_commit = off; SELECT pg_notify('{channel}', '{text}'); COMMIT"
        );
        self.client.batch_execute(&sql).await
    }

    /// Begins a transaction. If it is not durable, its commit does not wait for the disk.
    pub(super) async fn begin(&self, durable: bool) -> Result<(), Error> {
        let pooled = self.server.options.pooled;
        if durable && !pooled {
            return self.client.batch_execute("BEGIN ISOLATION LEVEL READ COMMITTED").await;
        }
        let now = if durable { "" } else { "; SET LOCAL synchronous_commit = off" };
        let settings = if pooled { format!("; {LOCALLY}") } else { String::new() };
        self.client.batch_execute(&format!("BEGIN ISOLATION LEVEL READ COMMITTED{now}{settings}")).await
    }
}
