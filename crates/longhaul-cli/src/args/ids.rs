//! Shell completion of task ids.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use longhaul::store::{SqliteStore, TaskFilter};

use crate::data_dir::DataDir;
use crate::view::{one_line, truncate};

/// How many of the newest tasks to consider.
const NEWEST: usize = 200;

/// Completes the id of a task.
pub(crate) fn task_ids() -> ArgValueCompleter {
    ArgValueCompleter::new(candidates)
}

/// Returns the tasks whose ids begin with the typed text, newest first. Does not create a database.
fn candidates(typed: &OsStr) -> Vec<CompletionCandidate> {
    let typed = typed.to_string_lossy().to_lowercase();
    let data = data(std::env::args_os()).or_else(|| std::env::var_os("LONGHAUL_DATA").map(PathBuf::from));
    let Ok(data_dir) = DataDir::resolve(data.as_deref()) else { return Vec::new() };
    // Ignore errors: shell completion is no place to report them.
    let tasks = SqliteStore::peek(&data_dir.database, TaskFilter::newest(NEWEST)).unwrap_or_default();
    let fits = |id: &str| id.starts_with(&typed) || id.trim_start_matches("t-").starts_with(&typed);
    let candidate = |state: longhaul::task::TaskState| {
        let id = state.id.to_string();
        let about = format!("{}: {}", state.status, truncate(&one_line(&state.headline), 60));
        fits(&id).then(|| CompletionCandidate::new(id).help(Some(about.into())))
    };
    tasks.into_iter().rev().filter_map(candidate).collect()
}

/// Returns the value of `--data` in the arguments.
fn data(args: impl Iterator<Item = OsString>) -> Option<PathBuf> {
    let args: Vec<OsString> = args.collect();
    let after =
        args.iter().zip(args.iter().skip(1)).find(|(flag, _)| *flag == "--data").map(|(_, path)| path.into());
    let joined = || args.iter().find_map(|arg| arg.to_str()?.strip_prefix("--data=").map(PathBuf::from));
    after.or_else(joined)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_database_is_the_one_that_is_typed() {
        let typed = |words: &str| data(words.split(' ').map(OsString::from));
        assert_eq!(typed("longhaul -- longhaul --data here show t-"), Some(PathBuf::from("here")));
        assert_eq!(typed("longhaul -- longhaul show --data=there t-"), Some(PathBuf::from("there")));
        assert_eq!(typed("longhaul -- longhaul show t-"), None);
    }
}
