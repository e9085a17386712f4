//! The tool `list_directory`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::file_roots::FileRoots;
use super::path_resolver::RootedPath;
use super::walk::FileKind;
use super::{FileOp, FileOpOutput};
use crate::tool::ToolError;
use crate::toolset::text::{group_digits, pluralize};

/// How many entries are shown, and how many are counted.
const MAX_SHOWN: usize = 1_000;
const MAX_SEEN: usize = 100_000;

#[derive(Clone, Copy)]
pub(super) struct ListDirectory;

#[derive(Deserialize, Serialize, JsonSchema)]
pub(super) struct ListDirectoryArgs {
    /// The directory, relative to the working directory; the working directory itself if left out.
    path: Option<String>,
}

impl FileOp for ListDirectory {
    type Args = ListDirectoryArgs;
    const NAME: &'static str = "list_directory";
    const DESCRIPTION: &'static str =
        "Lists a directory: subdirectories end in '/', files come with their size.";

    fn run(&self, args: ListDirectoryArgs, roots: &FileRoots) -> Result<FileOpOutput, ToolError> {
        let typed = args.path.as_deref().unwrap_or(".");
        let place = roots.resolve(typed)?;
        let failed = |error| roots.read_error(typed, &error);
        if !roots.metadata(&place).map_err(failed)?.is_dir() {
            return Err(ToolError::Retry(format!("'{typed}' is not a directory: use read_file")));
        }
        let listing = roots.open_dir(&place).and_then(|dir| dir.entries()).map_err(failed)?;
        let mut names: Vec<_> =
            listing.take(MAX_SEEN).filter_map(Result::ok).map(|entry| entry.file_name()).collect();
        names.sort_unstable();
        if names.is_empty() {
            return Ok(format!("{} is empty", roots.display_path(&place)).into());
        }
        let seen = names.len();
        let ignored = roots.ignores_in(&place);
        let (mut shown, mut hidden, mut looked_at) = (Vec::new(), 0, 0);
        for name in &names {
            if shown.len() == MAX_SHOWN {
                break;
            }
            roots.check_cancelled()?;
            looked_at += 1;
            let entry = RootedPath { root: place.root, rel: place.rel.join(name) };
            let (line, kind) = describe(roots, &entry);
            if ignored(&entry, kind) { hidden += 1 } else { shown.push(line) }
        }
        if hidden > 0 {
            shown.push(format!("[{} more, which version control ignores]", group_digits(hidden)));
        }
        if looked_at < seen {
            let more = if seen == MAX_SEEN { "at least " } else { "" };
            shown.push(format!("[… {more}{} more entries …]", group_digits((seen - looked_at) as u64)));
        }
        Ok(shown.join("\n").into())
    }
}

fn describe(roots: &FileRoots, place: &RootedPath) -> (String, FileKind) {
    let name = place.rel.file_name().unwrap_or_default().display();
    match roots.metadata(place) {
        Ok(meta) if meta.is_dir() => (format!("{name}/"), FileKind::Dir),
        Ok(meta) if meta.is_file() => (format!("{name}  {}", pluralize(meta.len(), "byte")), FileKind::File),
        Ok(meta) if meta.is_symlink() => {
            (format!("{name} -> {}", roots.read_link(place).display()), FileKind::Link)
        }
        Ok(_) => (format!("{name}  (not a file)"), FileKind::Other),
        Err(_) => (format!("{name}  (cannot be read)"), FileKind::Other),
    }
}
