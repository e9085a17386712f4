//! `read_file`.

use schemars::JsonSchema;
use serde::Deserialize;

use super::Look;
use super::ground::{Ground, cannot_read};
use super::lines::Lines;
use crate::tool::ToolError;
use crate::toolset::text::{counted, grouped};

/// How many lines are given when the model does not say, and how many bytes at most.
const DEFAULT_LIMIT: u64 = 1_000;
const MAX_BYTES: usize = 64 * 1024;

#[derive(Clone, Copy)]
pub(super) struct ReadFile;

#[derive(Deserialize, JsonSchema)]
pub(super) struct ReadFileArgs {
    /// The file, relative to the working directory.
    path: String,
    /// The first line to read, counted from 1; 1 if left out.
    offset: Option<u64>,
    /// How many lines to read; 1000 if left out.
    limit: Option<u64>,
}

impl Look for ReadFile {
    type Args = ReadFileArgs;
    const NAME: &'static str = "read_file";
    const DESCRIPTION: &'static str =
        "Reads a text file. A long file comes in parts: the end of a part says with which `offset` to go on.";

    fn look(self, args: ReadFileArgs, ground: &Ground) -> Result<String, ToolError> {
        let typed = args.path.as_str();
        let path = ground.find(typed)?;
        let meta = path.metadata().map_err(|error| cannot_read(typed, &error))?;
        if meta.is_dir() {
            return Err(ToolError::Retry(format!("'{typed}' is a directory: use list_directory")));
        }
        // Opening a pipe would wait for somebody to write into it.
        if !meta.is_file() {
            return Err(ToolError::Failed(format!("'{typed}' is not a plain file")));
        }
        let failed = |error| cannot_read(typed, &error);
        let Some(mut lines) = Lines::open(&path, MAX_BYTES).map_err(failed)? else {
            let size = counted(meta.len(), "byte");
            return Err(ToolError::Failed(format!("'{typed}' is a binary file ({size}), not text")));
        };

        let first = args.offset.unwrap_or(1).max(1);
        let last = first.saturating_add(args.limit.unwrap_or(DEFAULT_LIMIT).max(1) - 1);
        let (mut text, mut number) = (String::new(), 0);
        while let Some(line) = lines.next().map_err(failed)? {
            ground.go_on()?;
            number += 1;
            if number < first {
                continue;
            }
            if number > last || (number > first && text.len() + line.text.len() > MAX_BYTES) {
                text += &format!("[… more lines: go on with offset {number} …]");
                return Ok(text);
            }
            text += &line.text;
            if line.missing > 0 {
                text += &format!("[… {} bytes of this line left out …]", grouped(line.missing));
            }
            text.push('\n');
        }
        match number {
            0 => Ok(format!("'{typed}' is empty")),
            lines if lines < first => Err(ToolError::Retry(format!(
                "'{typed}' has only {}: there is no line {first}",
                counted(lines, "line")
            ))),
            _ => Ok(text),
        }
    }
}
