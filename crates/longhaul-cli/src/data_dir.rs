//! Where tasks are kept, and the files of this machine.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use etcetera::BaseStrategy as _;
use longhaul::TaskId;
use longhaul::entry::ExpectedAnswer;
use longhaul::id::QuestionId;
use longhaul::store::{SqliteStore, Store};

use crate::exit::{CliError, CliExitCode};
#[cfg(feature = "postgres")]
use crate::store_address::host_dir;
use crate::store_address::{PostgresUrl, STORE_VARIABLE, StoreAddress, host_id};

/// The name of the database in its directory.
const DATABASE: &str = "longhaul.db";

/// The data directory: the files of this machine, and where the tasks are kept.
#[derive(Clone)]
pub(crate) struct DataDir {
    /// What the person typed to choose it, for the commands that are suggested.
    flags: String,
    /// Whether it is the user's own data directory, and not a chosen one.
    is_default: bool,
    /// The database file. With another store there is none, and only its directory is used.
    pub(crate) database: PathBuf,
    /// The PostgreSQL database that holds the tasks instead of the file.
    postgres: Option<PostgresUrl>,
}

impl DataDir {
    /// Returns the chosen location, or the user's data directory. Fails if there is none.
    pub(crate) fn resolve(chosen: Option<&Path>) -> Result<DataDir, CliError> {
        let database = match chosen {
            Some(chosen) if is_database(chosen) => chosen.to_owned(),
            Some(chosen) => chosen.join(DATABASE),
            None => etcetera::choose_base_strategy()
                .map_err(|error| {
                    CliError::new(
                        CliExitCode::Store,
                        format!("there is no data directory to keep tasks in: {error}"),
                    )
                    .with_hint("`--data DIR` says where to keep them")
                })?
                .data_dir()
                .join("longhaul")
                .join(DATABASE),
        };
        let flags = chosen.map(|path| format!(" --data {}", quoted(path))).unwrap_or_default();
        Ok(DataDir { flags, is_default: chosen.is_none(), database, postgres: None })
    }

    /// Returns the location of the tasks: as `--store` says, or else the environment, or else in the data
    /// directory. Fails if the store cannot be one.
    pub(crate) fn with_store(
        data: Option<&Path>,
        flag: Option<&str>,
        variable: Option<&str>,
    ) -> Result<DataDir, CliError> {
        let address = match (flag, variable) {
            (Some(flag), _) => StoreAddress::from_flag(flag)?,
            (None, Some(variable)) => StoreAddress::from_trusted(variable)?,
            (None, None) => return DataDir::resolve(data),
        };
        let typed = flag.map(|flag| format!(" --store {}", quoted(Path::new(flag)))).unwrap_or_default();
        match address {
            StoreAddress::File(path) => {
                let found = DataDir::resolve(Some(&path))?;
                Ok(DataDir { flags: typed, ..found })
            }
            StoreAddress::Postgres(url) => {
                let found = DataDir::resolve(data)?;
                let flags = format!("{}{typed}", found.flags);
                Ok(DataDir { flags, postgres: Some(url), ..found })
            }
        }
    }

    /// Returns the PostgreSQL database, if the tasks are in one.
    pub(crate) fn postgres(&self) -> Option<&PostgresUrl> {
        self.postgres.as_ref()
    }

    /// Returns the machine that a task is bound to which is started here: this one, if others share its store.
    pub(crate) fn bound_host(&self) -> Option<String> {
        self.postgres.is_some().then(host_id)
    }

    /// Returns the store as people see it, without a password.
    pub(crate) fn store_name(&self) -> String {
        match &self.postgres {
            Some(url) => url.shown(),
            None => std::path::absolute(&self.database)
                .unwrap_or_else(|_| self.database.clone())
                .display()
                .to_string(),
        }
    }

    /// Returns a name for the store that is short and fits into the name of a file.
    pub(crate) fn file_stem(&self) -> std::ffi::OsString {
        match &self.postgres {
            None => self.database.file_name().unwrap_or_default().to_owned(),
            Some(url) => {
                let digest = longhaul::id::Digest::of_bytes(url.shown().as_bytes());
                let short: String =
                    digest.as_str().chars().filter(char::is_ascii_hexdigit).take(12).collect();
                format!("postgres-{short}").into()
            }
        }
    }

    /// Gives a command of this program the same data directory and the same store. A URL is passed in the
    /// environment, where others cannot see it.
    pub(crate) fn configure(&self, command: &mut tokio::process::Command) {
        let data = match &self.postgres {
            None => self.data(),
            Some(_) => self.path(),
        };
        command.arg("--data").arg(std::path::absolute(data).unwrap_or_else(|_| data.to_owned()));
        match &self.postgres {
            None => command.env_remove(STORE_VARIABLE),
            Some(url) => command.env(STORE_VARIABLE, url.expose()),
        };
    }

    /// Returns the value for `--data` with which another process finds the same database.
    pub(crate) fn data(&self) -> &Path {
        if self.database.file_name() == Some(DATABASE.as_ref()) { self.path() } else { &self.database }
    }

    /// Opens the store. A database file that does not exist is created.
    pub(crate) async fn open_store(&self) -> Result<Arc<dyn Store>, CliError> {
        if let Some(url) = &self.postgres {
            // Lock files, logs and tokens are kept here.
            let _ = std::fs::create_dir_all(self.path());
            return open_postgres(url, self.path()).await;
        }
        let store = Arc::new(SqliteStore::open(&self.database)?);
        // Restrict the default directory to its owner. Leave a chosen directory as it is.
        if self.is_default {
            use std::os::unix::fs::PermissionsExt as _;
            let directory = self.path();
            if directory.metadata().is_ok_and(|is| is.permissions().mode() & 0o077 != 0) {
                let _ = std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o700));
            }
        }
        Ok(store)
    }

    /// Returns the shell command for a subcommand with its arguments.
    pub(crate) fn shell_command(&self, what: &str) -> String {
        format!("{} {what}", self.longhaul())
    }

    /// Returns the shell command that sends a message to a task.
    pub(crate) fn send_command(&self, task: TaskId) -> String {
        self.shell_command(&format!("send {task} …"))
    }

    /// Returns the shell command that resumes a tree.
    pub(crate) fn resume_command(&self, root: TaskId) -> String {
        self.shell_command(&format!("resume {root}"))
    }

    /// Returns the shell command that shows a task.
    pub(crate) fn show_command(&self, task: TaskId) -> String {
        self.shell_command(&format!("show {task}"))
    }

    /// Returns the shell command that retries a task.
    pub(crate) fn retry_command(&self, task: TaskId) -> String {
        self.shell_command(&format!("retry {task}"))
    }

    /// Returns the shell command that watches a tree of another process.
    pub(crate) fn attach_command(&self, root: TaskId) -> String {
        self.shell_command(&format!("attach {root}"))
    }

    /// Returns the directory of the database.
    pub(crate) fn path(&self) -> &Path {
        let parent = self.database.parent().filter(|parent| !parent.as_os_str().is_empty());
        parent.unwrap_or(Path::new("."))
    }

    /// Returns the shell command that answers a task. Pass `named` if the task has several open questions.
    pub(crate) fn answer_command(
        &self,
        task: TaskId,
        named: Option<QuestionId>,
        wants: &ExpectedAnswer,
    ) -> String {
        let which = named.map(|question| format!(" --question {question}")).unwrap_or_default();
        let words = match wants {
            ExpectedAnswer::Leave { .. } => "yes|no|always",
            ExpectedAnswer::Words { schema: None } => "TEXT",
            ExpectedAnswer::Words { schema: Some(_) } => "JSON",
        };
        self.shell_command(&format!("answer {task}{which} {words}"))
    }

    fn longhaul(&self) -> String {
        format!("longhaul{}", self.flags)
    }
}

/// Opens a PostgreSQL database.
#[cfg(feature = "postgres")]
async fn open_postgres(url: &PostgresUrl, data: &Path) -> Result<Arc<dyn Store>, CliError> {
    // All processes of this user find each other there, whatever their data directories are.
    let own = etcetera::choose_base_strategy().map(|base| base.data_dir().join("longhaul"));
    let locks = own.unwrap_or_else(|_| data.to_owned()).join("workers").join(host_dir());
    let options = longhaul::store::PostgresOptions::new(url.expose())?.worker_locks(Some(locks));
    Ok(Arc::new(longhaul::store::PostgresStore::open(options).await?))
}

/// Creates the tables of a PostgreSQL database, or brings them up to date.
#[cfg(feature = "postgres")]
pub(crate) async fn migrate_postgres(url: &PostgresUrl) -> Result<(), CliError> {
    let options = longhaul::store::PostgresOptions::new(url.expose())?;
    Ok(longhaul::store::PostgresStore::migrate(&options).await?)
}

/// Says that this program cannot open a PostgreSQL database.
#[cfg(not(feature = "postgres"))]
async fn open_postgres(url: &PostgresUrl, _: &Path) -> Result<Arc<dyn Store>, CliError> {
    Err(without_postgres(url))
}

/// Says that this program cannot open a PostgreSQL database.
#[cfg(not(feature = "postgres"))]
pub(crate) async fn migrate_postgres(url: &PostgresUrl) -> Result<(), CliError> {
    Err(without_postgres(url))
}

#[cfg(not(feature = "postgres"))]
fn without_postgres(url: &PostgresUrl) -> CliError {
    let what = format!("this longhaul was built without PostgreSQL, and cannot open {}", url.shown());
    CliError::new(CliExitCode::Store, what)
        .with_hint("build one with it: `cargo build --release -p longhaul-cli --features postgres`")
}

/// Returns whether a path is a database rather than its directory: an existing file, or a path with a
/// database extension.
fn is_database(path: &Path) -> bool {
    let named =
        path.extension().is_some_and(|end| ["db", "sqlite", "sqlite3"].iter().any(|known| end == *known));
    path.is_file() || (named && !path.is_dir())
}

/// Quotes a path for the shell.
fn quoted(path: &Path) -> String {
    let path = path.display().to_string();
    let plain = |c: char| c.is_alphanumeric() || "/._-+:@\\".contains(c);
    if !path.is_empty() && path.chars().all(plain) {
        path
    } else {
        format!("'{}'", path.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_has_any_name_and_a_directory_has_one_of_ours() {
        let dir = std::env::temp_dir();
        let resolve = |path: &Path| DataDir::resolve(Some(path)).unwrap();
        assert_eq!(resolve(&dir).database, dir.join("longhaul.db"));
        assert_eq!(resolve(&dir).data(), dir);
        for name in ["tasks.db", "x.sqlite", "y.sqlite3"] {
            let file = dir.join("nowhere").join(name);
            assert_eq!(
                (resolve(&file).database.clone(), resolve(&file).data()),
                (file.clone(), file.as_path())
            );
            assert_eq!(resolve(&file).path(), dir.join("nowhere"));
        }
        assert_eq!(resolve(Path::new("tasks.db")).path(), Path::new("."));
        assert_eq!(resolve(Path::new("some.thing")).database, Path::new("some.thing/longhaul.db"));
    }

    #[test]
    fn a_path_can_be_pasted_into_a_shell() {
        assert_eq!(quoted(Path::new("/tmp/a-b_c.d")), "/tmp/a-b_c.d");
        assert_eq!(quoted(Path::new("my dir")), "'my dir'");
        assert_eq!(quoted(Path::new("it's")), r"'it'\''s'");
    }
}
