//! `search_files_content`.

use std::io;
use std::ops::ControlFlow;
use std::path::Path;

use schemars::JsonSchema;
use serde::Deserialize;

use super::Look;
use super::ground::{Ground, Hidden};
use super::lines::Lines;
use crate::tool::ToolError;
use crate::toolset::text::{clipped, counted};

/// How many matches are shown, and how much of a line.
const MAX_MATCHES: usize = 200;
const MAX_SHOWN: usize = 200;
/// How far into a line is searched.
const MAX_LINE: usize = 64 * 1024;

#[derive(Clone, Copy)]
pub(super) struct SearchFilesContent;

#[derive(Deserialize, JsonSchema)]
pub(super) struct SearchFilesContentArgs {
    /// The text to look for, exactly as it is written in the file; not a pattern.
    query: String,
    /// The file or directory to search, relative to the working directory; all of it if left out.
    path: Option<String>,
}

impl Look for SearchFilesContent {
    type Args = SearchFilesContentArgs;
    const NAME: &'static str = "search_files_content";
    const DESCRIPTION: &'static str = "Finds the lines that contain a text, in all files below a directory: \
        'path:line: text'. Binary files, symbolic links, .git, target and node_modules are not searched.";

    fn look(self, args: SearchFilesContentArgs, ground: &Ground) -> Result<String, ToolError> {
        if args.query.is_empty() || args.query.contains('\n') {
            return Err(ToolError::Retry("`query` must be some text of one line".to_owned()));
        }
        let start = ground.find(args.path.as_deref().unwrap_or("."))?;
        let mut found = Found::default();
        let walked = ground.walk(start, Hidden::Seen, |path| {
            if found.search(path, &args.query, ground)?.is_err() {
                found.unread += 1;
            }
            Ok(if found.more { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;

        let mut text = match found.matches.as_slice() {
            [] => format!("no match in {}", counted(found.files, "file")),
            matches => matches.join("\n"),
        };
        if found.more {
            text += &format!("\n[… stopped after {MAX_MATCHES} matches: narrow `query` or `path` …]");
        }
        if found.long > 0 {
            text += &format!(
                "\n[{} searched only up to {}]",
                counted(found.long, "very long line"),
                counted(MAX_LINE as u64, "byte")
            );
        }
        Ok(text + &walked.markers(found.unread))
    }
}

#[derive(Default)]
struct Found {
    matches: Vec<String>,
    files: u64,
    unread: u64,
    long: u64,
    /// Whether there is a match that is not shown.
    more: bool,
}

impl Found {
    /// The outer error ends the search, the inner one is this file's alone.
    fn search(&mut self, path: &Path, query: &str, ground: &Ground) -> Result<io::Result<()>, ToolError> {
        let mut lines = match Lines::open(path, MAX_LINE) {
            Ok(Some(lines)) => lines,
            Ok(None) => return Ok(Ok(())),
            Err(error) => return Ok(Err(error)),
        };
        self.files += 1;
        for number in 1_u64.. {
            ground.go_on()?;
            let line = match lines.next() {
                Ok(Some(line)) => line,
                Ok(None) => break,
                Err(error) => return Ok(Err(error)),
            };
            self.long += u64::from(line.missing > 0);
            let Some(at) = line.text.find(query) else { continue };
            if self.matches.len() == MAX_MATCHES {
                self.more = true;
                break;
            }
            self.matches.push(format!("{}:{number}: {}", ground.shown(path), around(&line.text, at)));
        }
        Ok(Ok(()))
    }
}

/// A line, or the part of a long one where the match is.
fn around(line: &str, at: usize) -> String {
    let before = line[..at].chars().count();
    if before <= MAX_SHOWN / 2 {
        return clipped(line.trim_end(), MAX_SHOWN);
    }
    let start = line.char_indices().nth(before - MAX_SHOWN / 4).map_or(0, |(start, _)| start);
    format!("…{}", clipped(line[start..].trim_end(), MAX_SHOWN))
}
