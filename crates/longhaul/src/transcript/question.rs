//! Questions to a person, laid out for reading: all of the call that is to be approved, and nothing hidden.

use super::call::lay_out_arguments;
use super::phrase::approval_notes;
use super::sanitize::{escape_invisible_line, sanitize};
use crate::entry::{ExpectedAnswer, FileChange, Question};

/// What a line of a question is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineKind {
    /// The tool, an argument, or the text of the question.
    Text,
    /// What to know about the call.
    Note,
    /// An added line of a diff.
    Added,
    /// A removed line of a diff.
    Removed,
    /// An unchanged line of a diff.
    Same,
}

/// A question as lines: the tool, what becomes of the file, all arguments, and notes. A value of several lines
/// is a block of its own. Every control and invisible character of the call is made visible.
pub fn question_lines(asks: &Question) -> Vec<(LineKind, String)> {
    let ExpectedAnswer::Leave { tool, arguments, why, changed, file, .. } = &asks.wants else {
        return split(LineKind::Text, sanitize(&asks.text).trim_end());
    };
    let mut lines = vec![(LineKind::Text, escape_invisible_line(tool))];
    lines.extend(file.iter().flat_map(|file| file_lines(file)));
    for (name, value) in lay_out_arguments(arguments) {
        match (name.is_empty(), value.contains('\n')) {
            (true, _) => lines.extend(indented(LineKind::Text, 2, &value)),
            (false, false) => lines.push((LineKind::Text, format!("  {name}: {value}"))),
            (false, true) => {
                lines.push((LineKind::Text, format!("  {name}:")));
                lines.extend(indented(LineKind::Text, 4, &value));
            }
        }
    }
    lines.extend(
        approval_notes(why.as_deref(), changed.as_deref()).into_iter().map(|note| (LineKind::Note, note)),
    );
    lines
}

/// What a call does to a file: whether it replaces one, and the difference.
fn file_lines(file: &FileChange) -> Vec<(LineKind, String)> {
    let count = |sign: char| file.diff.lines().filter(|line| line.starts_with(sign)).count();
    let path = escape_invisible_line(&file.path);
    let title = match (&file.problem, file.exists) {
        (Some(problem), _) => format!("  {path}: {}", escape_invisible_line(problem)),
        (None, true) => format!("  changes {path}, which exists: +{} −{} lines", count('+'), count('-')),
        (None, false) => format!("  creates {path}, which does not exist yet"),
    };
    let mut lines = vec![(LineKind::Note, title)];
    // The content of a new file is in the arguments.
    let diff = file.diff.lines().filter(|_| file.exists && file.problem.is_none());
    lines.extend(diff.map(|line| {
        let kind = match line.as_bytes().first() {
            Some(b'+') => LineKind::Added,
            Some(b'-') => LineKind::Removed,
            _ => LineKind::Same,
        };
        (kind, format!("  {}", super::sanitize::escape_invisible(line)))
    }));
    lines
}

fn split(kind: LineKind, text: &str) -> Vec<(LineKind, String)> {
    indented(kind, 0, text).collect()
}

fn indented(kind: LineKind, by: usize, text: &str) -> impl Iterator<Item = (LineKind, String)> {
    text.split('\n').map(move |line| (kind, format!("{}{line}", " ".repeat(by))))
}

/// A question in full, as text.
pub fn describe_question(asks: &Question) -> String {
    let lines: Vec<String> = question_lines(asks).into_iter().map(|(_, line)| line).collect();
    let lead = if matches!(asks.wants, ExpectedAnswer::Leave { .. }) { "may it call this?\n" } else { "" };
    format!("{lead}{}", lines.join("\n"))
}
