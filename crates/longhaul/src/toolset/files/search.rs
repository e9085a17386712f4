//! The tool `search_files_content`.

use std::ops::ControlFlow;

use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::file_roots::FileRoots;
use super::lines::LineReader;
use super::path_resolver::RootedPath;
use super::walk::{FileKind, FileReadError, WalkOptions, exclude_patterns};
use super::{FileOp, FileOpOutput, paths};
use crate::tool::{ArgumentAliases, ToolError};
use crate::toolset::fn_tool::flag;
use crate::toolset::text::{pluralize, truncate};

/// How many matches are shown, and how many characters of a line.
const MAX_MATCHES: usize = 200;
const MAX_SHOWN: usize = 200;
/// How many bytes of a line are searched.
const MAX_LINE: usize = 64 * 1024;

#[derive(Clone, Copy)]
pub(super) struct SearchFilesContent;

#[derive(Deserialize, Serialize, JsonSchema)]
pub(super) struct SearchFilesContentArgs {
    /// The text to look for, exactly as it is written in the file; or a regular expression, with `is_regex`.
    query: String,
    /// Whether `query` is a regular expression, which is searched for line by line.
    #[serde(default, deserialize_with = "flag")]
    is_regex: bool,
    /// The file or directory to search, relative to the working directory; all of it if left out.
    path: Option<String>,
    /// What to leave out: patterns as in a .gitignore, like `*.min.js` or `dist/`.
    #[serde(default, rename = "excludePatterns", deserialize_with = "paths")]
    #[schemars(with = "Vec<String>")]
    exclude_patterns: Vec<String>,
}

impl FileOp for SearchFilesContent {
    type Args = SearchFilesContentArgs;
    const NAME: &'static str = "search_files_content";
    const ALIASES: ArgumentAliases = &[("exclude_patterns", "excludePatterns")];
    const DESCRIPTION: &'static str = "Finds the lines that contain a text, in all files below a directory: \
        'path:line: text'. Binary files, symbolic links, .git, target and node_modules are not searched.";

    fn run(&self, args: SearchFilesContentArgs, roots: &FileRoots) -> Result<FileOpOutput, ToolError> {
        let query = SearchQuery::new(args.query, args.is_regex)?;
        let start = roots.resolve(args.path.as_deref().unwrap_or("."))?;
        let how = WalkOptions {
            exclude: exclude_patterns(roots, &start, &args.exclude_patterns)?,
            ..WalkOptions::default()
        };
        let is_one_file = roots.metadata(&start).is_ok_and(|metadata| metadata.is_file());
        let mut found = SearchResults::default();
        let summary = roots.walk(start, &how, |seen| {
            if seen.kind == FileKind::File {
                match found.search(&seen.place, &query, roots) {
                    Err(FileReadError::Stopped(error)) => return Err(error),
                    Err(FileReadError::Unreadable) => found.unread += 1,
                    Ok(()) => {}
                }
            }
            Ok(if found.more { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;

        let mut text = match found.matches.as_slice() {
            // Small models search for the same again and again, although the file is short.
            [] if is_one_file && found.files == 1 => {
                "no match in this file. To see what is in it, use read_file.".to_owned()
            }
            [] => format!("no match in {}", pluralize(found.files, "file")),
            matches => matches.join("\n"),
        };
        if found.more {
            text += &format!("\n[… stopped after {MAX_MATCHES} matches: narrow `query` or `path` …]");
        }
        if found.long > 0 {
            text += &format!(
                "\n[{} searched only up to {}]",
                pluralize(found.long, "very long line"),
                pluralize(MAX_LINE as u64, "byte")
            );
        }
        Ok((text + &summary.markers(found.unread)).into())
    }
}

enum SearchQuery {
    Text(String),
    Pattern(Regex),
}

impl SearchQuery {
    fn new(query: String, is_regex: bool) -> Result<Self, ToolError> {
        if query.is_empty() || query.contains('\n') {
            return Err(ToolError::Retry("`query` must be some text of one line".to_owned()));
        }
        if !is_regex {
            return Ok(SearchQuery::Text(query));
        }
        let wrong = |error| ToolError::Retry(format!("`query` is no regular expression: {error}"));
        Regex::new(&query).map(SearchQuery::Pattern).map_err(wrong)
    }

    /// Returns where in a line the match is.
    fn find(&self, line: &str) -> Option<usize> {
        match self {
            SearchQuery::Text(text) => line.find(text),
            SearchQuery::Pattern(pattern) => pattern.find(line).map(|found| found.start()),
        }
    }
}

#[derive(Default)]
struct SearchResults {
    matches: Vec<String>,
    files: u64,
    unread: u64,
    long: u64,
    /// Whether there are more matches than are shown.
    more: bool,
}

impl SearchResults {
    fn search(
        &mut self,
        place: &RootedPath,
        query: &SearchQuery,
        roots: &FileRoots,
    ) -> Result<(), FileReadError> {
        let Some(opened) = roots.open_file(place)? else { return Ok(()) };
        let Some(mut lines) = LineReader::open(opened.file, MAX_LINE)? else { return Ok(()) };
        self.files += 1;
        for number in 1_u64.. {
            roots.check_cancelled().map_err(FileReadError::Stopped)?;
            let Some(line) = lines.next()? else { break };
            self.long += u64::from(line.missing > 0);
            let Some(at) = query.find(&line.text) else { continue };
            if self.matches.len() == MAX_MATCHES {
                self.more = true;
                break;
            }
            self.matches.push(format!(
                "{}:{number}: {}",
                roots.display_path(place),
                excerpt_around(&line.text, at)
            ));
        }
        Ok(())
    }
}

/// Returns a line, or the part of a long line around the match.
fn excerpt_around(line: &str, at: usize) -> String {
    let before = line[..at].chars().count();
    if before <= MAX_SHOWN / 2 {
        return truncate(line.trim_end(), MAX_SHOWN);
    }
    let start = line.char_indices().nth(before - MAX_SHOWN / 4).map_or(0, |(start, _)| start);
    format!("…{}", truncate(line[start..].trim_end(), MAX_SHOWN))
}
