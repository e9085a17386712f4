//! What is wrong with a team file: as data, and as a text that shows the place.

use std::fmt::Write as _;

use serde::Serialize;

/// A place in a file: line and column from 1, counted in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SourceSpan {
    /// The line.
    pub line: u32,
    /// The column.
    pub column: u32,
    /// How many characters are meant.
    pub length: u32,
}

impl SourceSpan {
    /// Where the file begins.
    pub const START: SourceSpan = SourceSpan { line: 1, column: 1, length: 1 };
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The team runs, though not quite as it is written.
    Warning,
    /// The team does not run.
    Error,
}

impl Severity {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

/// Something that is wrong with a team file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// Where it is.
    #[serde(flatten)]
    pub at: SourceSpan,
    /// The way to it, such as `agents.root.toolsets[0].type`; empty for the file itself.
    pub path: String,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
}

impl Problem {
    pub(super) fn error(at: SourceSpan, path: &str, message: impl Into<String>) -> Problem {
        let message = plain(message.into());
        Problem { severity: Severity::Error, at, path: path.to_owned(), message, help: None }
    }

    pub(super) fn warning(at: SourceSpan, path: &str, message: impl Into<String>) -> Problem {
        Problem { severity: Severity::Warning, ..Problem::error(at, path, message) }
    }

    pub(super) fn with_help(mut self, help: impl Into<String>) -> Problem {
        self.help = Some(plain(help.into()));
        self
    }

    /// Whether the file is right, and only something is not set here: a key, or a variable.
    pub fn is_environment_problem(&self) -> bool {
        self.message.contains("needs a key") || self.message.starts_with("the variable")
    }

    /// Whether the team does not run with it.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// The problem, with the line that it is in and a mark below the place.
    ///
    /// `name` is what the file is called and `text` what is in it. Nothing in the result commands a terminal.
    pub fn render(&self, name: &str, text: &str) -> String {
        let SourceSpan { line, column, length } = self.at;
        let mut told = format!("{}: {}\n", self.severity.as_str(), self.message);
        let gutter = line.to_string().len();
        let _ = writeln!(told, "{:gutter$}--> {name}:{line}:{column}", "");
        let shown = text.lines().nth((line as usize).saturating_sub(1)).unwrap_or_default();
        let (shown, column) = window(shown, column as usize);
        if !shown.trim().is_empty() {
            let marks = (length as usize).clamp(1, shown.chars().count().saturating_sub(column - 1).max(1));
            let _ = writeln!(told, "{:gutter$} |", "");
            let _ = writeln!(told, "{line} | {shown}");
            let _ =
                writeln!(told, "{:gutter$} | {:before$}{}", "", "", "^".repeat(marks), before = column - 1);
        }
        if let Some(help) = &self.help {
            let _ = writeln!(told, "{:gutter$} = help: {help}", "");
        }
        told
    }
}

/// As many errors of a file are told, and as many warnings.
pub(super) const MAX_PROBLEMS: usize = 100;

/// What is wrong, as it is found. Of very much only the first is kept, so that no file costs much more than it says.
#[derive(Debug, Default)]
pub(super) struct ProblemList {
    problems: Vec<Problem>,
    errors: usize,
    warnings: usize,
}

impl ProblemList {
    /// Tells a problem.
    pub(super) fn push(&mut self, problem: Problem) {
        let count = if problem.is_error() { &mut self.errors } else { &mut self.warnings };
        *count += 1;
        if *count <= MAX_PROBLEMS {
            self.problems.push(problem);
        }
    }

    /// Whether no further error is told: then there is no need to look for one.
    pub(super) fn is_full(&self) -> bool {
        self.errors >= MAX_PROBLEMS
    }

    /// What is kept of it so far.
    pub(super) fn as_slice(&self) -> &[Problem] {
        &self.problems
    }

    /// All that others have found, too.
    pub(super) fn append(&mut self, others: ProblemList) {
        let dropped =
            (others.errors.saturating_sub(MAX_PROBLEMS), others.warnings.saturating_sub(MAX_PROBLEMS));
        others.problems.into_iter().for_each(|problem| self.push(problem));
        self.errors += dropped.0;
        self.warnings += dropped.1;
    }

    /// What is told in the end, in the order of the file; and whether there is more, in the last of it.
    pub(super) fn into_sorted(mut self) -> Vec<Problem> {
        self.problems.sort_by_key(|problem| (problem.at.line, problem.at.column));
        self.problems.dedup();
        let last = self.problems.last().map_or(SourceSpan::START, |problem| problem.at);
        let more = |severity, what| Problem {
            severity,
            ..Problem::error(
                last,
                "",
                format!("no more than {MAX_PROBLEMS} {what} are told, and there may be others"),
            )
            .with_help("mend these first")
        };
        // Where enough is told nobody looks further.
        if self.errors >= MAX_PROBLEMS {
            self.problems.push(more(Severity::Error, "errors"));
        } else if self.warnings > MAX_PROBLEMS {
            self.problems.push(more(Severity::Warning, "warnings"));
        }
        self.problems
    }
}

/// How much of a line is shown.
const WIDTH: usize = 110;

/// A text with nothing in it that commands a terminal: words of the file are quoted, and they may have anything in them.
fn plain(text: String) -> String {
    match text.contains(char::is_control) {
        true => text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect(),
        false => text,
    }
}

/// The part of a line that has a column in it, and where the column is in that.
fn window(line: &str, column: usize) -> (String, usize) {
    let skipped = if column > WIDTH - 20 { column - WIDTH / 2 } else { 0 };
    let shown: String = line.trim_end().chars().skip(skipped).take(WIDTH).collect();
    let mut shown = plain(shown);
    if line.trim_end().chars().count() > skipped + WIDTH {
        shown.push('…');
    }
    match skipped {
        0 => (shown, column),
        _ => (format!("…{shown}"), column - skipped + 1),
    }
}
