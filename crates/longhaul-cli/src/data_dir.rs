//! The location of the database.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use etcetera::BaseStrategy as _;
use longhaul::TaskId;
use longhaul::entry::ExpectedAnswer;
use longhaul::id::QuestionId;
use longhaul::store::{SqliteStore, Store};

use crate::exit::{CliError, CliExitCode};

/// The name of the database in its directory.
const DATABASE: &str = "longhaul.db";

/// The data directory.
#[derive(Clone)]
pub(crate) struct DataDir {
    /// The directory or file from `--data`, if given.
    chosen: Option<PathBuf>,
    /// The database file.
    pub(crate) database: PathBuf,
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
        Ok(DataDir { chosen: chosen.map(Path::to_owned), database })
    }

    /// Returns the value for `--data` with which another process finds the same database.
    pub(crate) fn data(&self) -> &Path {
        if self.database.file_name() == Some(DATABASE.as_ref()) { self.path() } else { &self.database }
    }

    /// Opens the database, or creates it.
    pub(crate) fn open_store(&self) -> Result<Arc<dyn Store>, CliError> {
        let store = Arc::new(SqliteStore::open(&self.database)?);
        // Restrict the default directory to its owner. Leave a chosen directory as it is.
        if self.chosen.is_none() {
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
        match &self.chosen {
            Some(directory) => format!("longhaul --data {}", quoted(directory)),
            None => "longhaul".to_owned(),
        }
    }
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
