//! `list_directory`.

use std::fs;
use std::path::Path;

use schemars::JsonSchema;
use serde::Deserialize;

use super::Look;
use super::ground::{Ground, cannot_read};
use crate::tool::ToolError;
use crate::toolset::text::{counted, grouped};

/// How many entries are shown, and how many are looked at to know how many there are.
const MAX_SHOWN: usize = 1_000;
const MAX_SEEN: usize = 100_000;

#[derive(Clone, Copy)]
pub(super) struct ListDirectory;

#[derive(Deserialize, JsonSchema)]
pub(super) struct ListDirectoryArgs {
    /// The directory, relative to the working directory; the working directory itself if left out.
    path: Option<String>,
}

impl Look for ListDirectory {
    type Args = ListDirectoryArgs;
    const NAME: &'static str = "list_directory";
    const DESCRIPTION: &'static str =
        "Lists a directory: subdirectories end in '/', files come with their size.";

    fn look(self, args: ListDirectoryArgs, ground: &Ground) -> Result<String, ToolError> {
        let typed = args.path.as_deref().unwrap_or(".");
        let path = ground.find(typed)?;
        if !path.is_dir() {
            return Err(ToolError::Retry(format!("'{typed}' is not a directory: use read_file")));
        }
        let listing = fs::read_dir(&path).map_err(|error| cannot_read(typed, &error))?;
        let mut paths: Vec<_> =
            listing.take(MAX_SEEN).filter_map(Result::ok).map(|entry| entry.path()).collect();
        paths.sort_unstable();
        if paths.is_empty() {
            return Ok(format!("{} is empty", ground.shown(&path)));
        }
        let mut shown = Vec::with_capacity(paths.len().min(MAX_SHOWN));
        for path in paths.iter().take(MAX_SHOWN) {
            ground.go_on()?;
            shown.push(entry(path));
        }
        let mut text = shown.join("\n");
        if paths.len() > MAX_SHOWN {
            let more = if paths.len() == MAX_SEEN { "at least " } else { "" };
            text += &format!("\n[… {more}{} more entries …]", grouped((paths.len() - MAX_SHOWN) as u64));
        }
        Ok(text)
    }
}

fn entry(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().display();
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => format!("{name}/"),
        Ok(meta) if meta.is_file() => format!("{name}  {}", counted(meta.len(), "byte")),
        Ok(meta) if meta.is_symlink() => {
            format!("{name} -> {}", fs::read_link(path).unwrap_or_default().display())
        }
        Ok(_) => format!("{name}  (not a file)"),
        Err(_) => format!("{name}  (cannot be read)"),
    }
}
