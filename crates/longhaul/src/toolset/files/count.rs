//! The tool `count_lines`.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::file_roots::FileRoots;
use super::lines::LineReader;
use super::path_resolver::RootedPath;
use super::walk::{FileKind, FileReadError, WalkOptions};
use super::{FileOp, FileOpOutput};
use crate::tool::ToolError;
use crate::toolset::text::{group_digits, pluralize};

/// How many file types get their own row.
const MAX_ROWS: usize = 100;

#[derive(Clone, Copy)]
pub(super) struct CountLines;

#[derive(Deserialize, Serialize, JsonSchema)]
pub(super) struct CountLinesArgs {
    /// The file or directory to count, relative to the working directory; all of it if left out.
    path: Option<String>,
}

#[derive(Clone, Copy, Default)]
struct LineCount {
    files: u64,
    lines: u64,
}

impl LineCount {
    fn add(&mut self, other: LineCount) {
        self.files += other.files;
        self.lines += other.lines;
    }
}

impl FileOp for CountLines {
    type Args = CountLinesArgs;
    const NAME: &'static str = "count_lines";
    const DESCRIPTION: &'static str = "Counts text files and their lines below a directory, by file extension. Binary and \
        hidden files, symbolic links, .git, target and node_modules are not counted.";

    fn run(&self, args: CountLinesArgs, roots: &FileRoots) -> Result<FileOpOutput, ToolError> {
        let start = roots.resolve(args.path.as_deref().unwrap_or("."))?;
        let mut tallies: BTreeMap<String, LineCount> = BTreeMap::new();
        let (mut binary, mut unread) = (0, 0);
        let how = WalkOptions { skip_hidden: true, ..WalkOptions::default() };
        let summary = roots.walk(start, &how, |seen| {
            if seen.kind != FileKind::File {
                return Ok(ControlFlow::Continue(()));
            }
            match lines_of(&seen.place, roots) {
                Ok(Some(lines)) => {
                    let kind = extension(&seen.place.rel);
                    tallies.entry(kind).or_default().add(LineCount { files: 1, lines });
                }
                Ok(None) => binary += 1,
                Err(FileReadError::Unreadable) => unread += 1,
                Err(FileReadError::Stopped(error)) => return Err(error),
            }
            Ok(ControlFlow::Continue(()))
        })?;

        let mut text = table(tallies);
        if binary > 0 {
            text += &format!("\n[{} not counted]", pluralize(binary, "binary file"));
        }
        Ok((text + &summary.markers(unread)).into())
    }
}

fn lines_of(place: &RootedPath, roots: &FileRoots) -> Result<Option<u64>, FileReadError> {
    let opened = roots.open_file(place)?.ok_or(FileReadError::Unreadable)?;
    match LineReader::open(opened.file, 0)? {
        Some(lines) => lines.count(|| roots.check_cancelled().map_err(FileReadError::Stopped)).map(Some),
        None => Ok(None),
    }
}

fn extension(path: &Path) -> String {
    path.extension().map_or("(none)".to_owned(), |extension| extension.to_string_lossy().to_lowercase())
}

/// Formats the table: file types with the most lines first, the total last.
fn table(tallies: BTreeMap<String, LineCount>) -> String {
    let mut kinds: Vec<_> = tallies.into_iter().collect();
    kinds.sort_by_key(|(_, tally)| std::cmp::Reverse(tally.lines));
    let mut total = LineCount::default();
    kinds.iter().for_each(|(_, tally)| total.add(*tally));
    if kinds.len() > MAX_ROWS {
        let mut others = LineCount::default();
        kinds.drain(MAX_ROWS..).for_each(|(_, tally)| others.add(tally));
        kinds.push(("(others)".to_owned(), others));
    }
    kinds.push(("total".to_owned(), total));

    let wide = kinds.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0).max("extension".len());
    let mut text = format!("{:wide$}  {:>7}  {:>11}", "extension", "files", "lines");
    for (name, tally) in kinds {
        text +=
            &format!("\n{name:wide$}  {:>7}  {:>11}", group_digits(tally.files), group_digits(tally.lines));
    }
    text
}
