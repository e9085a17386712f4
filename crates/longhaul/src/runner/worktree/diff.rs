//! The difference between a task's branch or worktree and what it began with, as a reader gets it.

use std::collections::HashMap;
use std::path::PathBuf;

use crate::transcript::LineKind;

/// How many files are listed.
const FILES: usize = 1_000;
/// How many lines of one file are shown.
const FILE_LINES: usize = 2_000;
/// How many lines are shown in all.
const ALL_LINES: usize = 12_000;
/// How much of a line is shown, in bytes.
const LINE_BYTES: usize = 1_000;

/// Where the work of a task with `isolation: worktree` is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorktreePlace {
    /// The branch.
    pub branch: String,
    /// The worktree; `None` if it was removed and only the branch is left.
    pub path: Option<PathBuf>,
}

/// What a task has changed in its worktree and on its branch, committed or not.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorktreeDiff {
    /// Where the work is.
    pub place: WorktreePlace,
    /// The commit that it is compared with: the newest one that the branch has in common with the repository's HEAD.
    pub base: String,
    /// The newest commits since then, the newest first.
    pub commits: Vec<DiffCommit>,
    /// The changed files.
    pub files: Vec<FileDiff>,
    /// Whether there is more than is shown.
    pub is_partial: bool,
}

/// A commit on the branch of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DiffCommit {
    /// Its abbreviated id.
    pub id: String,
    /// The first line of its message.
    pub subject: String,
}

/// How a file has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FileDiffKind {
    /// It is new.
    Added,
    /// It is gone.
    Removed,
    /// Its content or its mode is another.
    Changed,
    /// It has another name, and perhaps another content.
    Renamed,
    /// It is new, and a repository of its own; git says nothing about its content.
    Repository,
}

/// The difference of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileDiff {
    /// Its path in the repository.
    pub path: String,
    /// Its path before, if it was renamed.
    pub old_path: Option<String>,
    /// How it has changed.
    pub kind: FileDiffKind,
    /// How many lines are new; `None` for a file that is not text.
    pub added: Option<u64>,
    /// How many lines are gone; `None` for a file that is not text.
    pub removed: Option<u64>,
    /// The lines: new, gone and around them. `Note` begins a part of the file, or says something about it.
    pub lines: Vec<(LineKind, String)>,
    /// Whether lines are left out.
    pub is_cut: bool,
}

impl FileDiff {
    pub(super) fn new(path: String, kind: FileDiffKind) -> FileDiff {
        let (added, removed) = (None, None);
        FileDiff { path, old_path: None, kind, added, removed, lines: Vec::new(), is_cut: false }
    }

    /// Whether it is not text: its content is not shown.
    pub fn is_binary(&self) -> bool {
        self.added.is_none() && self.kind != FileDiffKind::Repository
    }
}

/// Parses the output of `git diff --raw --numstat --patch -z`. All three parts are in the same order. Returns
/// the files, and whether something was left out; an output that ends too early is left out, too.
pub(super) fn parse(bytes: &[u8]) -> (Vec<FileDiff>, bool) {
    let mut rest = bytes;
    let mut files = Vec::new();
    // How many parts each file has in the patch: a change of its type is told as a removal and an addition.
    let mut parts = Vec::new();
    while rest.first() == Some(&b':') {
        let Some((file, many)) = raw_entry(&mut rest) else { return (files, true) };
        files.push(file);
        parts.push(many);
    }
    let mut by_path: HashMap<String, usize> =
        files.iter().enumerate().map(|(at, file)| (file.path.clone(), at)).collect();
    while rest.first().is_some_and(|byte| *byte != 0) {
        let Some((path, added, removed)) = numstat(&mut rest) else { return (files, true) };
        if let Some(at) = by_path.remove(&path) {
            (files[at].added, files[at].removed) = (added, removed);
        }
    }
    let mut left = ALL_LINES;
    let text = String::from_utf8_lossy(rest.get(1..).unwrap_or_default());
    let mut sections = sections(&text);
    for (file, parts) in files.iter_mut().zip(parts) {
        for _ in 0..parts {
            match sections.next() {
                Some(section) => show(file, section, &mut left),
                None => file.is_cut = true,
            }
        }
    }
    let is_partial = files.len() > FILES;
    files.truncate(FILES);
    (files, is_partial)
}

/// Takes the text up to the next NUL.
fn field<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let end = rest.iter().position(|byte| *byte == 0)?;
    let field = &rest[..end];
    *rest = &rest[end + 1..];
    Some(field)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// `:100644 100644 ID ID M`, then the path, or two.
fn raw_entry(rest: &mut &[u8]) -> Option<(FileDiff, usize)> {
    let status = field(rest)?.rsplit(|byte| *byte == b' ').next()?.first().copied()?;
    let first = text(field(rest)?);
    let kind = match status {
        b'A' => FileDiffKind::Added,
        b'D' => FileDiffKind::Removed,
        b'R' | b'C' => FileDiffKind::Renamed,
        _ => FileDiffKind::Changed,
    };
    let mut file = FileDiff::new(first, kind);
    if kind == FileDiffKind::Renamed {
        file.old_path = Some(std::mem::replace(&mut file.path, text(field(rest)?)));
    }
    Some((file, if status == b'T' { 2 } else { 1 }))
}

/// `1 TAB 2 TAB path`, or `1 TAB 2 TAB`, then both paths. A file that is not text has `-` for both numbers.
fn numstat(rest: &mut &[u8]) -> Option<(String, Option<u64>, Option<u64>)> {
    let line = field(rest)?;
    let mut columns = line.splitn(3, |byte| *byte == b'\t');
    let number = |column: Option<&[u8]>| std::str::from_utf8(column?).ok()?.parse().ok();
    let (added, removed) = (number(columns.next()), number(columns.next()));
    let path = columns.next()?;
    if !path.is_empty() {
        return Some((text(path), added, removed));
    }
    field(rest)?;
    Some((text(field(rest)?), added, removed))
}

/// The parts of a patch. A line of a file never begins with `diff`: it has a sign in front.
fn sections(patch: &str) -> impl Iterator<Item = &str> {
    let mut rest = patch;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = rest.find("\ndiff --git ").map_or(rest.len(), |at| at + 1);
        let (section, after) = rest.split_at(end);
        rest = after;
        Some(section)
    })
}

/// Adds the lines of a part of the patch to its file.
fn show(file: &mut FileDiff, section: &str, left: &mut usize) {
    let mut is_head = true;
    for line in section.strip_suffix('\n').unwrap_or(section).split('\n') {
        is_head &= !line.starts_with("@@ ");
        let said = match line.split_at_checked(1) {
            _ if is_head => head_note(line),
            Some(("@" | "\\", _)) => Some((LineKind::Note, line.trim_start_matches("\\ "))),
            Some(("+", text)) => Some((LineKind::Added, text)),
            Some(("-", text)) => Some((LineKind::Removed, text)),
            Some((" ", text)) => Some((LineKind::Same, text)),
            _ => None,
        };
        let Some((kind, text)) = said else { continue };
        if *left == 0 || file.lines.len() >= FILE_LINES {
            file.is_cut = true;
            return;
        }
        *left -= 1;
        let shown = &text[..text.floor_char_boundary(LINE_BYTES)];
        let dots = if shown.len() < text.len() { " …" } else { "" };
        file.lines.push((kind, format!("{shown}{dots}")));
    }
}

/// What is worth telling before the first changed line: another mode.
fn head_note(line: &str) -> Option<(LineKind, &str)> {
    let is_mode = line.starts_with("old mode ") || line.starts_with("new mode ");
    let is_special = line.starts_with("new file mode ") && !line.ends_with("100644");
    (is_mode || is_special).then_some((LineKind::Note, line))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &[u8] = b":100644 120000 587be6b 0000000 T\0b.txt\0:100644 100644 bf30bca 0000000 M\0bin\0\
        :100644 100644 71ac1b5 b9a82af R087\0a.txt\0moved.txt\0:000000 100755 0000000 3e75765 A\0we ird\nn\xff.txt\0\
        1\t1\tb.txt\0-\t-\tbin\x001\t1\t\0a.txt\0moved.txt\x002\t0\twe ird\nn\xff.txt\0\0\
        diff --git a/b.txt b/b.txt\ndeleted file mode 100644\nindex 587be6b..0000000\n--- a/b.txt\n+++ /dev/null\n\
        @@ -1 +0,0 @@\n-x\ndiff --git a/b.txt b/b.txt\nnew file mode 120000\nindex 0000000..e132db2\n--- /dev/null\n\
        +++ b/b.txt\n@@ -0,0 +1 @@\n+zzz\n\\ No newline at end of file\ndiff --git a/bin b/bin\n\
        index bf30bca..6c612ad 100644\nBinary files a/bin and b/bin differ\ndiff --git a/a.txt b/moved.txt\n\
        similarity index 87%\nrename from a.txt\nrename to moved.txt\n--- a/a.txt\n+++ b/moved.txt\n@@ -5,4 +5,4 @@ d\n \
        e\n \n---- h\n+++ H\ndiff --git \"a/we ird\\nn\" \"b/we ird\\nn\"\nnew file mode 100755\n--- /dev/null\n+++ \"b/w\"\n\
        @@ -0,0 +1,2 @@\n+diff --git a/x b/x\n+new\n";

    fn shown(file: &FileDiff) -> Vec<String> {
        let sign = |kind: &LineKind| match kind {
            LineKind::Added => "+",
            LineKind::Removed => "-",
            LineKind::Same => " ",
            _ => "@",
        };
        file.lines.iter().map(|(kind, text)| format!("{}{text}", sign(kind))).collect()
    }

    #[test]
    fn what_git_writes_becomes_files_and_lines() {
        let (files, is_partial) = parse(OUTPUT);
        assert!(!is_partial);
        let about: Vec<_> =
            files.iter().map(|file| (&*file.path, file.kind, file.added, file.removed)).collect();
        assert_eq!(
            about,
            [
                ("b.txt", FileDiffKind::Changed, Some(1), Some(1)),
                ("bin", FileDiffKind::Changed, None, None),
                ("moved.txt", FileDiffKind::Renamed, Some(1), Some(1)),
                ("we ird\nn\u{fffd}.txt", FileDiffKind::Added, Some(2), Some(0)),
            ]
        );
        assert_eq!(files[2].old_path.as_deref(), Some("a.txt"));
        assert!(files[1].is_binary() && files[1].lines.is_empty() && !files[0].is_binary());
        assert_eq!(
            shown(&files[0]),
            [
                "@@@ -1 +0,0 @@",
                "-x",
                "@new file mode 120000",
                "@@@ -0,0 +1 @@",
                "+zzz",
                "@No newline at end of file"
            ]
        );
        assert_eq!(shown(&files[2]), ["@@@ -5,4 +5,4 @@ d", " e", " ", "---- h", "+++ H"]);
        assert_eq!(
            shown(&files[3]),
            ["@new file mode 100755", "@@@ -0,0 +1,2 @@", "+diff --git a/x b/x", "+new"]
        );
    }

    #[test]
    fn an_output_that_ends_anywhere_is_parsed_as_far_as_it_goes() {
        for end in 0..OUTPUT.len() {
            let (files, _) = parse(&OUTPUT[..end]);
            assert!(files.len() <= 4);
        }
        let (files, _) = parse(&OUTPUT[..OUTPUT.len() - 120]);
        assert!(files[3].is_cut, "{files:?}");
        assert_eq!(parse(b""), (Vec::new(), false));
    }

    #[test]
    fn many_lines_long_lines_and_many_files_are_cut() {
        let mut patch =
            b":100644 100644 a b M\0f\x003000\t0\tf\0\0diff --git a/f b/f\n@@ -1 +1,3000 @@\n".to_vec();
        (0..3_000).for_each(|_| patch.extend(format!("+{}\n", "ü".repeat(900)).bytes()));
        let (files, _) = parse(&patch);
        assert_eq!((files[0].lines.len(), files[0].is_cut, files[0].added), (FILE_LINES, true, Some(3_000)));
        assert!(files[0].lines.iter().all(|(_, text)| text.len() <= LINE_BYTES + 4));
        let many: Vec<u8> =
            (0..1_500).flat_map(|n| format!(":000000 100644 a b A\0f{n}\0").into_bytes()).collect();
        let (files, is_partial) = parse(&many);
        assert_eq!((files.len(), is_partial), (FILES, true));
    }
}
