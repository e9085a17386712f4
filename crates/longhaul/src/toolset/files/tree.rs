//! The tool `directory_tree`.

use std::ops::ControlFlow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::file_roots::FileRoots;
use super::walk::{FileKind, WalkOptions};
use super::{FileOp, FileOpOutput};
use crate::tool::ToolError;
use crate::toolset::fn_tool::number;
use crate::toolset::text::group_digits;

/// How many entries are shown.
const MAX_SHOWN: usize = 1_000;

#[derive(Clone, Copy)]
pub(super) struct DirectoryTree;

#[derive(Deserialize, Serialize, JsonSchema)]
pub(super) struct DirectoryTreeArgs {
    /// The directory, relative to the working directory; the working directory itself if left out.
    path: Option<String>,
    /// How many levels below it to show; all if left out.
    #[serde(default, deserialize_with = "number")]
    #[schemars(with = "Option<u32>")]
    max_depth: Option<f64>,
}

impl FileOp for DirectoryTree {
    type Args = DirectoryTreeArgs;
    const NAME: &'static str = "directory_tree";
    const DESCRIPTION: &'static str =
        "Shows a directory with everything below it, indented; directories end in '/'.";

    fn run(&self, args: DirectoryTreeArgs, roots: &FileRoots) -> Result<FileOpOutput, ToolError> {
        let typed = args.path.as_deref().unwrap_or(".");
        let start = roots.resolve(typed)?;
        let failed = |error| roots.read_error(typed, &error);
        if !roots.metadata(&start).map_err(failed)?.is_dir() {
            return Err(ToolError::Retry(format!("'{typed}' is not a directory: use read_file")));
        }
        let mut lines = vec![format!("{}/", roots.display_path(&start))];
        let mut more = false;
        let depth = args.max_depth.map(|depth| depth.max(1.0) as usize);
        let summary = roots.walk(start, &WalkOptions { depth, ..WalkOptions::default() }, |seen| {
            if seen.depth == 0 {
                return Ok(ControlFlow::Continue(()));
            }
            if lines.len() > MAX_SHOWN {
                more = true;
                return Ok(ControlFlow::Break(()));
            }
            let name = seen.place.rel.file_name().unwrap_or_default().display();
            let mark = match seen.kind {
                FileKind::Dir => "/".to_owned(),
                FileKind::File => String::new(),
                FileKind::Link => format!(" -> {}", roots.read_link(&seen.place).display()),
                FileKind::Other => " (not a file)".to_owned(),
            };
            lines.push(format!("{}{name}{mark}", "  ".repeat(seen.depth)));
            Ok(ControlFlow::Continue(()))
        })?;
        let mut text = lines.join("\n");
        if more {
            text += &format!(
                "\n[… more than {} entries: name a directory below, or set `max_depth` …]",
                group_digits(MAX_SHOWN as u64)
            );
        }
        Ok((text + &summary.markers(0)).into())
    }
}
