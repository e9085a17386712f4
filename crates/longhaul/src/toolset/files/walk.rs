//! Walks the roots in path order, without following links, and within limits.

use std::ffi::OsStr;
use std::io::Read as _;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::file_roots::{FileRoots, SkipRule};
use super::path_resolver::RootedPath;
use crate::tool::ToolError;
use crate::toolset::text::{group_digits, pluralize};

/// How many files one walk visits, and how many directory entries in all.
const MAX_FILES: u64 = 20_000;
const MAX_ENTRIES: u64 = 10 * MAX_FILES;
/// Report progress after this many files.
const PROGRESS_EVERY: u64 = 400;
/// Directories that tools generate.
const GENERATED_DIRS: [&str; 3] = [".git", "target", "node_modules"];
/// How many bytes of an ignore file are read.
const MAX_IGNORE: u64 = 256 * 1024;

/// The options of a walk.
#[derive(Default)]
pub(super) struct WalkOptions {
    /// Whether to skip hidden files.
    pub(super) skip_hidden: bool,
    /// How many levels to descend; 1 is what is directly below the start.
    pub(super) depth: Option<usize>,
    /// Patterns to skip besides.
    pub(super) exclude: Option<Gitignore>,
}

/// An entry that a walk visits.
pub(super) struct WalkEntry {
    pub(super) place: RootedPath,
    pub(super) kind: FileKind,
    /// The depth below the start; the start itself is 0.
    pub(super) depth: usize,
    ignores: Option<Arc<IgnoreChain>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FileKind {
    File,
    Dir,
    Link,
    Other,
}

/// Why a file was not read: it cannot be, or the call was cancelled.
pub(super) enum FileReadError {
    Unreadable,
    Stopped(ToolError),
}

impl From<std::io::Error> for FileReadError {
    fn from(_: std::io::Error) -> Self {
        FileReadError::Unreadable
    }
}

/// What a walk left out.
#[derive(Default)]
pub(super) struct WalkSummary {
    pub(super) truncated: bool,
    unreadable: u64,
}

impl FileRoots {
    /// Visits `start` and everything below it. Links are reported, not followed.
    pub(super) fn walk(
        &self,
        start: RootedPath,
        how: &WalkOptions,
        mut visit: impl FnMut(&WalkEntry) -> Result<ControlFlow<()>, ToolError>,
    ) -> Result<WalkSummary, ToolError> {
        let mut summary = WalkSummary::default();
        let (mut files, mut entries) = (0, 0);
        let ignores = self.ignores_above(&start);
        let kind = match self.metadata(&start) {
            Ok(meta) => kind_of(meta.file_type()),
            Err(error) => return Err(self.read_error(&self.display_path(&start), &error)),
        };
        let mut ahead = vec![WalkEntry { place: start, kind, depth: 0, ignores }];
        while let Some(mut seen) = ahead.pop() {
            self.check_cancelled()?;
            if seen.kind == FileKind::File {
                if files == MAX_FILES {
                    summary.truncated = true;
                    break;
                }
                files += 1;
                if files.is_multiple_of(PROGRESS_EVERY) {
                    self.context.progress(format!("… {}", pluralize(files, "file")));
                }
            }
            if visit(&seen)?.is_break() {
                break;
            }
            if seen.kind != FileKind::Dir || how.depth.is_some_and(|most| seen.depth >= most) {
                continue;
            }
            let Ok(listing) = self.open_dir(&seen.place).and_then(|dir| dir.entries()) else {
                summary.unreadable += 1;
                continue;
            };
            self.add_ignores(&mut seen);
            let mut below = Vec::new();
            for entry in listing {
                if entries == MAX_ENTRIES {
                    summary.truncated = true;
                    break;
                }
                entries += 1;
                let Ok((name, kind)) = entry.and_then(|entry| Ok((entry.file_name(), entry.file_type()?)))
                else {
                    summary.unreadable += 1;
                    continue;
                };
                let place = RootedPath { root: seen.place.root, rel: seen.place.rel.join(&name) };
                let kind = kind_of(kind);
                if !self.passes(how, &seen, &place, &name, kind) {
                    continue;
                }
                below.push(WalkEntry { place, kind, depth: seen.depth + 1, ignores: seen.ignores.clone() });
            }
            below.sort_unstable_by(|a, b| b.place.rel.cmp(&a.place.rel));
            ahead.append(&mut below);
        }
        Ok(summary)
    }

    fn passes(
        &self,
        how: &WalkOptions,
        above: &WalkEntry,
        place: &RootedPath,
        name: &OsStr,
        kind: FileKind,
    ) -> bool {
        if self.is_hidden(place) {
            return false;
        }
        if how.skip_hidden && name.as_encoded_bytes().starts_with(b".") {
            return false;
        }
        if self.access.skip != SkipRule::Nothing && GENERATED_DIRS.iter().any(|generated| name == *generated)
        {
            return false;
        }
        if above.ignores.is_none() && how.exclude.is_none() {
            return true;
        }
        let whole = self.full_path(place);
        let is_dir = kind == FileKind::Dir;
        let excluded = how.exclude.as_ref().is_some_and(|list| list.matched(&whole, is_dir).is_ignore());
        !excluded && !above.ignores.as_ref().is_some_and(|list| list.hides(&whole, is_dir))
    }

    /// Returns a check whether version control ignores an entry of a directory. Always false if the toolset
    /// does not use ignore files.
    pub(super) fn ignores_in(&self, dir: &RootedPath) -> impl Fn(&RootedPath, FileKind) -> bool + '_ {
        let mut seen =
            WalkEntry { place: dir.clone(), kind: FileKind::Dir, depth: 0, ignores: self.ignores_above(dir) };
        self.add_ignores(&mut seen);
        move |place, kind| {
            let hides = |list: &Arc<IgnoreChain>| list.hides(&self.full_path(place), kind == FileKind::Dir);
            seen.ignores.as_ref().is_some_and(hides)
        }
    }

    /// Returns the ignore patterns of the directories above a path, from its root down.
    fn ignores_above(&self, place: &RootedPath) -> Option<Arc<IgnoreChain>> {
        if self.access.skip != SkipRule::Gitignored {
            return None;
        }
        let mut ignores = None;
        let mut above: Vec<&Path> = place.rel.ancestors().skip(1).collect();
        above.reverse();
        for rel in above {
            let place = RootedPath { root: place.root, rel: rel.to_owned() };
            let mut seen = WalkEntry { place, kind: FileKind::Dir, depth: 0, ignores };
            self.add_ignores(&mut seen);
            ignores = seen.ignores;
        }
        ignores
    }

    fn add_ignores(&self, seen: &mut WalkEntry) {
        if self.access.skip != SkipRule::Gitignored {
            return;
        }
        let mut builder = GitignoreBuilder::new(self.full_path(&seen.place));
        let mut any = false;
        for name in [".gitignore", ".ignore", ".git/info/exclude"] {
            let place = RootedPath { root: seen.place.root, rel: seen.place.rel.join(name) };
            let Ok(Some(opened)) = self.open_file(&place) else { continue };
            let mut bytes = Vec::new();
            if opened.file.take(MAX_IGNORE).read_to_end(&mut bytes).is_err() {
                continue;
            }
            for line in String::from_utf8_lossy(&bytes).lines() {
                // An invalid pattern ignores nothing.
                any |= builder.add_line(None, line).is_ok();
            }
        }
        if any && let Ok(own) = builder.build() {
            seen.ignores = Some(Arc::new(IgnoreChain { own, above: seen.ignores.take() }));
        }
    }
}

/// The ignore patterns of a directory and of those above it. The nearest match decides.
struct IgnoreChain {
    own: Gitignore,
    above: Option<Arc<IgnoreChain>>,
}

impl IgnoreChain {
    fn hides(&self, path: &Path, is_dir: bool) -> bool {
        let mut list = Some(self);
        while let Some(ignores) = list {
            match ignores.own.matched(path, is_dir) {
                ignore::Match::None => list = ignores.above.as_deref(),
                found => return found.is_ignore(),
            }
        }
        false
    }
}

/// Builds a matcher from patterns, as if they were in a `.gitignore` at a path.
pub(super) fn exclude_patterns(
    roots: &FileRoots,
    at: &RootedPath,
    lines: &[String],
) -> Result<Option<Gitignore>, ToolError> {
    if lines.is_empty() {
        return Ok(None);
    }
    let mut builder = GitignoreBuilder::new(roots.full_path(at));
    for line in lines {
        let wrong = |error| ToolError::Retry(format!("the pattern '{line}' makes no sense: {error}"));
        builder.add_line(None, line).map_err(wrong)?;
    }
    let wrong = |error| ToolError::Retry(format!("the patterns make no sense: {error}"));
    builder.build().map(Some).map_err(wrong)
}

fn kind_of(kind: cap_std::fs::FileType) -> FileKind {
    match () {
        () if kind.is_file() => FileKind::File,
        () if kind.is_dir() => FileKind::Dir,
        () if kind.is_symlink() => FileKind::Link,
        () => FileKind::Other,
    }
}

impl WalkSummary {
    /// Returns the markers for what was left out, and for `unread` more files that could not be read.
    pub(super) fn markers(&self, unread: u64) -> String {
        let mut text = String::new();
        if self.truncated {
            text +=
                &format!("\n[… more than {} files: the rest was not looked at …]", group_digits(MAX_FILES));
        }
        match self.unreadable + unread {
            0 => {}
            n => text += &format!("\n[{} could not be read]", pluralize(n, "path")),
        }
        text
    }
}
