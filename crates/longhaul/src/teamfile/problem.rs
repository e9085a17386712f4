//! Errors and warnings of a team file, as data and as a text that shows the line.

use std::fmt::Write as _;

use serde::Serialize;

/// A span in a file: line and column from 1, counted in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SourceSpan {
    /// The line.
    pub line: u32,
    /// The column.
    pub column: u32,
    /// The length in characters.
    pub length: u32,
}

impl SourceSpan {
    /// The beginning of the file.
    pub const START: SourceSpan = SourceSpan { line: 1, column: 1, length: 1 };
}

/// The severity of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The team runs, but not exactly as the file says.
    Warning,
    /// The team does not run.
    Error,
}

impl Severity {
    /// The lower-case name.
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

/// What is wrong, for programs that decide by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ProblemKind {
    /// Something in the file, as the message says.
    #[default]
    Content,
    /// The file is empty.
    EmptyFile,
    /// Team files refer to each other in a cycle.
    Cycle,
    /// The file is valid and only the environment lacks something: a key or a variable.
    Environment,
}

/// An error or a warning in a team file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// How severe it is.
    pub severity: Severity,
    /// Where it is.
    #[serde(flatten)]
    pub at: SourceSpan,
    /// The path to the key, such as `agents.root.toolsets[0].type`; empty for the file itself.
    pub path: String,
    /// What is wrong.
    pub message: String,
    /// How to fix it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// What is wrong, for programs.
    #[serde(skip)]
    pub kind: ProblemKind,
}

impl Problem {
    /// An error at this place and path of the file.
    pub fn error(at: SourceSpan, path: &str, message: impl Into<String>) -> Problem {
        let (message, kind) = (plain(message.into()), ProblemKind::default());
        Problem { severity: Severity::Error, at, path: path.to_owned(), message, help: None, kind }
    }

    /// A warning at this place and path of the file.
    pub fn warning(at: SourceSpan, path: &str, message: impl Into<String>) -> Problem {
        Problem { severity: Severity::Warning, ..Problem::error(at, path, message) }
    }

    /// Says how to fix it.
    pub fn with_help(mut self, help: impl Into<String>) -> Problem {
        self.help = Some(plain(help.into()));
        self
    }

    pub(super) fn with_kind(self, kind: ProblemKind) -> Problem {
        Problem { kind, ..self }
    }

    /// Whether it keeps the team from running.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// Renders the problem with its line and a mark below the span.
    ///
    /// `name` is the name of the file and `text` its content. The result contains no terminal escape
    /// sequences.
    pub fn render(&self, name: &str, text: &str) -> String {
        let SourceSpan { line, column, length } = self.at;
        let mut rendered = format!("{}: {}\n", self.severity.as_str(), self.message);
        let gutter = line.to_string().len();
        let _ = writeln!(rendered, "{:gutter$}--> {name}:{line}:{column}", "");
        let shown = text.lines().nth((line as usize).saturating_sub(1)).unwrap_or_default();
        let (shown, column) = window(shown, column as usize);
        if !shown.trim().is_empty() {
            let marks = (length as usize).clamp(1, shown.chars().count().saturating_sub(column - 1).max(1));
            let _ = writeln!(rendered, "{:gutter$} |", "");
            let _ = writeln!(rendered, "{line} | {shown}");
            let _ = writeln!(
                rendered,
                "{:gutter$} | {:before$}{}",
                "",
                "",
                "^".repeat(marks),
                before = column - 1
            );
        }
        if let Some(help) = &self.help {
            let _ = writeln!(rendered, "{:gutter$} = help: {help}", "");
        }
        rendered
    }
}

/// The maximum number of errors that are reported for a file, and of warnings.
pub(super) const MAX_PROBLEMS: usize = 100;

/// Collects problems. Only the first ones are kept, to bound the cost of a file.
#[derive(Debug, Default)]
pub(super) struct ProblemList {
    problems: Vec<Problem>,
    errors: usize,
    warnings: usize,
}

impl ProblemList {
    /// Adds a problem.
    pub(super) fn push(&mut self, problem: Problem) {
        let count = if problem.is_error() { &mut self.errors } else { &mut self.warnings };
        *count += 1;
        if *count <= MAX_PROBLEMS {
            self.problems.push(problem);
        }
    }

    /// Whether no more errors are reported, so that there is no need to look for more.
    pub(super) fn is_full(&self) -> bool {
        self.errors >= MAX_PROBLEMS
    }

    pub(super) fn as_slice(&self) -> &[Problem] {
        &self.problems
    }

    /// Adds all problems of another list.
    pub(super) fn append(&mut self, others: ProblemList) {
        let dropped =
            (others.errors.saturating_sub(MAX_PROBLEMS), others.warnings.saturating_sub(MAX_PROBLEMS));
        others.problems.into_iter().for_each(|problem| self.push(problem));
        self.errors += dropped.0;
        self.warnings += dropped.1;
    }

    /// The problems in the order of the file. If some were dropped, the last one says so.
    pub(super) fn into_sorted(mut self) -> Vec<Problem> {
        self.problems.sort_by_key(|problem| (problem.at.line, problem.at.column));
        self.problems.dedup();
        let last = self.problems.last().map_or(SourceSpan::START, |problem| problem.at);
        let more = |severity, what| Problem {
            severity,
            ..Problem::error(
                last,
                "",
                format!("only the first {MAX_PROBLEMS} {what} are shown; there may be more"),
            )
            .with_help("fix these first")
        };
        // After enough errors, the checks stop early.
        if self.errors >= MAX_PROBLEMS {
            self.problems.push(more(Severity::Error, "errors"));
        } else if self.warnings > MAX_PROBLEMS {
            self.problems.push(more(Severity::Warning, "warnings"));
        }
        self.problems
    }
}

/// The maximum width of a displayed line.
const WIDTH: usize = 110;

/// Replaces control characters: messages quote the file, which may contain anything.
fn plain(text: String) -> String {
    match text.contains(char::is_control) {
        true => text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect(),
        false => text,
    }
}

/// The part of a line around a column, and the position of the column in it.
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
