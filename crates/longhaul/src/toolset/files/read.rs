//! The tools `read_file` and `read_multiple_files`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::file_roots::{FileRoots, cannot_read_error};
use super::lines::LineReader;
use super::{FileOp, FileOpOutput, paths};
use crate::tool::{ArgumentAliases, ToolError};
use crate::toolset::fn_tool::flag;
use crate::toolset::text::{group_digits, pluralize};

/// How many lines are returned by default, and how many bytes at most.
const DEFAULT_LIMIT: u64 = 1_000;
const MAX_BYTES: usize = 64 * 1024;
/// How many files one call may read.
const MAX_FILES: usize = 50;

#[derive(Clone, Copy)]
pub(super) struct ReadFile;

#[derive(Deserialize, Serialize, JsonSchema)]
pub(super) struct ReadFileArgs {
    /// The file, relative to the working directory.
    path: String,
    /// The first line to read, counted from 1; 1 if left out.
    line: Option<u64>,
    /// How many lines to read; 1000 if left out.
    limit: Option<u64>,
}

impl FileOp for ReadFile {
    type Args = ReadFileArgs;
    const NAME: &'static str = "read_file";
    const ALIASES: ArgumentAliases = &[("offset", "line")];
    const DESCRIPTION: &'static str =
        "Reads a text file. A long file comes in parts: the end of a part says with which `line` to go on.";

    fn run(&self, args: ReadFileArgs, roots: &FileRoots) -> Result<FileOpOutput, ToolError> {
        let first = args.line.unwrap_or(1).max(1);
        let last = first.saturating_add(args.limit.unwrap_or(DEFAULT_LIMIT).max(1) - 1);
        read_lines(roots, &args.path, first, last, MAX_BYTES).map(FileOpOutput::from)
    }
}

/// Reads the lines from `first` to `last` of a file, or as many as fit into `room`.
fn read_lines(
    roots: &FileRoots,
    typed: &str,
    first: u64,
    last: u64,
    room: usize,
) -> Result<String, ToolError> {
    let opened = roots.resolve_and_open(typed)?;
    let failed = |error| cannot_read_error(typed, &error);
    let size = opened.meta.len();
    let Some(mut lines) = LineReader::open(opened.file, room).map_err(failed)? else {
        let size = pluralize(size, "byte");
        return Err(ToolError::Failed(format!("'{typed}' is a binary file ({size}), not text")));
    };
    let (mut text, mut number) = (String::new(), 0);
    while let Some(line) = lines.next().map_err(failed)? {
        roots.check_cancelled()?;
        number += 1;
        if number < first {
            continue;
        }
        if number > last || (number > first && text.len() + line.text.len() > room) {
            text += &format!("[… more lines: go on with line {number} …]");
            return Ok(text);
        }
        text += &line.text;
        if line.missing > 0 {
            text += &format!("[… {} bytes of this line left out …]", group_digits(line.missing));
        }
        text.push('\n');
    }
    match number {
        0 => Ok(format!("'{typed}' is empty")),
        lines if lines < first => Err(ToolError::Retry(format!(
            "'{typed}' has only {}: there is no line {first}",
            pluralize(lines, "line")
        ))),
        _ => Ok(text),
    }
}

#[derive(Clone, Copy)]
pub(super) struct ReadMultipleFiles;

#[derive(Deserialize, Serialize, JsonSchema)]
pub(super) struct ReadMultipleFilesArgs {
    /// The files, relative to the working directory; at most 50.
    #[serde(deserialize_with = "paths")]
    #[schemars(with = "Vec<String>")]
    paths: Vec<String>,
    /// Whether to answer with JSON: a list of {path, content}, or {path, error}.
    #[serde(default, deserialize_with = "flag")]
    json: bool,
}

impl FileOp for ReadMultipleFiles {
    type Args = ReadMultipleFilesArgs;
    const NAME: &'static str = "read_multiple_files";
    const ALIASES: ArgumentAliases = &[("path", "paths")];
    const DESCRIPTION: &'static str = "Reads several text files at once. They share the room for one answer: a file \
        that is too long for its share says with which `line` to go on with read_file.";

    fn run(&self, args: ReadMultipleFilesArgs, roots: &FileRoots) -> Result<FileOpOutput, ToolError> {
        if args.paths.is_empty() || args.paths.len() > MAX_FILES {
            return Err(ToolError::Retry(format!("`paths` must be 1 to {MAX_FILES} files")));
        }
        let share = MAX_BYTES / args.paths.len();
        let mut read = Vec::with_capacity(args.paths.len());
        for path in &args.paths {
            roots.check_cancelled()?;
            read.push((path, read_lines(roots, path, 1, u64::MAX, share)));
        }
        if args.json {
            let files: Vec<_> = read
                .iter()
                .map(|(path, read)| match read {
                    Ok(content) => json!({ "path": path, "content": content }),
                    Err(error) => json!({ "path": path, "error": error.to_string() }),
                })
                .collect();
            return Ok(json!(files).to_string().into());
        }
        let shown = read.iter().map(|(path, read)| match read {
            Ok(text) => format!("=== {path} ===\n{text}"),
            Err(error) => format!("=== {path} ===\n[{error}]\n"),
        });
        Ok(shown.collect::<Vec<_>>().join("\n").into())
    }
}
