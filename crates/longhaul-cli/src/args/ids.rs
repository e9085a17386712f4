//! Shell completion of task ids.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use longhaul::store::{SqliteStore, TaskFilter};

use crate::data_dir::DataDir;
use crate::store_address::STORE_VARIABLE;
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
    let typed_flag = |flag| value_of(flag, std::env::args_os());
    let data = typed_flag("--data").or_else(|| std::env::var_os("LONGHAUL_DATA")).map(PathBuf::from);
    let store = typed_flag("--store").and_then(|store| store.into_string().ok());
    let variable = std::env::var(STORE_VARIABLE).ok();
    let data_dir = DataDir::with_store(data.as_deref(), store.as_deref(), variable.as_deref());
    // Another machine is not asked while someone types.
    let Some(data_dir) = data_dir.ok().filter(|found| found.postgres().is_none()) else { return Vec::new() };
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

/// Returns the value of a flag in the arguments.
fn value_of(name: &str, args: impl Iterator<Item = OsString>) -> Option<OsString> {
    let args: Vec<OsString> = args.collect();
    let after =
        args.iter().zip(args.iter().skip(1)).find(|(flag, _)| *flag == name).map(|(_, value)| value.clone());
    let joined = |arg: &OsString| Some(arg.to_str()?.strip_prefix(name)?.strip_prefix('=')?.into());
    after.or_else(|| args.iter().find_map(joined))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_database_is_the_one_that_is_typed() {
        let typed = |words: &str| value_of("--data", words.split(' ').map(OsString::from));
        assert_eq!(typed("longhaul -- longhaul --data here show t-"), Some(OsString::from("here")));
        assert_eq!(typed("longhaul -- longhaul show --data=there t-"), Some(OsString::from("there")));
        assert_eq!(typed("longhaul -- longhaul show t-"), None);
    }
}
