//! Errors in a script, with their position.

use std::fmt;
use std::path::PathBuf;

use serde_saphyr::{Location, MessageFormatter as _, UserMessageFormatter};

/// Why a script cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelScriptError {
    /// The file cannot be read.
    #[error("the script {} cannot be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        source: std::io::Error,
    },
    /// The script has an error.
    #[error(transparent)]
    Invalid(Box<ScriptProblem>),
}

/// An error in a script: where it is, the line, and what is expected.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScriptProblem {
    /// The name of the script.
    pub script: String,
    /// The line, from 1; 0 if it is unknown.
    pub line: u64,
    /// The column, from 1; 0 if it is unknown.
    pub column: u64,
    /// What is wrong, and what is expected.
    pub message: String,
    /// The line of the script, shortened.
    pub text: String,
}

impl std::error::Error for ScriptProblem {}

impl fmt::Display for ScriptProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            return write!(f, "{}: {}", self.script, self.message);
        }
        write!(f, "{}:{}:{}: {}", self.script, self.line, self.column, self.message)?;
        if self.text.trim().is_empty() { Ok(()) } else { write!(f, "\n  {} | {}", self.line, self.text) }
    }
}

/// The name and the text of a script, to show errors in.
#[derive(Clone, Copy)]
pub(super) struct ScriptSource<'a> {
    pub(super) name: &'a str,
    pub(super) yaml: &'a str,
}

impl ScriptSource<'_> {
    /// An error at a position.
    pub(super) fn error_at(&self, at: Location, message: impl Into<String>) -> ModelScriptError {
        self.wrong_at(at.line(), at.column(), message.into())
    }

    /// An error in the `line`-th line of a text that begins at `at`.
    pub(super) fn error_in_text(&self, at: Location, line: usize, message: String) -> ModelScriptError {
        // Only a literal block has its text on lines of its own, beginning after its mark.
        let above = (1..at.line()).rev().find(|n| !self.line(*n).trim().is_empty());
        let mark = above.filter(|n| opens_block(self.line(*n)));
        match (mark, u64::try_from(line)) {
            (Some(mark), Ok(line)) => {
                let line = mark + line;
                let indent = self.line(line).chars().take_while(|c| *c == ' ').count();
                self.wrong_at(line, u64::try_from(indent).unwrap_or(0) + 1, message)
            }
            _ => self.error_at(at, message),
        }
    }

    /// Converts an error of the YAML parser.
    pub(super) fn yaml_error(&self, error: &serde_saphyr::Error) -> ModelScriptError {
        let (line, column) = match error.location() {
            Some(at) if at != Location::UNKNOWN => (at.line(), at.column()),
            _ => (0, 0),
        };
        let message = UserMessageFormatter.format_message(error.without_snippet());
        let message = match &*message {
            "invalid u16" | "invalid u32" | "invalid u64" => {
                "expected a whole number, not negative".to_owned()
            }
            other => other.to_owned(),
        };
        self.wrong_at(line, column, message)
    }

    fn wrong_at(&self, line: u64, column: u64, message: String) -> ModelScriptError {
        let shown = self.line(line).trim_end().chars().take(120);
        let text = shown.map(|c| if c.is_control() { ' ' } else { c }).collect();
        ModelScriptError::Invalid(Box::new(ScriptProblem {
            script: self.name.to_owned(),
            line,
            column,
            message,
            text,
        }))
    }

    fn line(&self, line: u64) -> &str {
        let index = usize::try_from(line).ok().and_then(|n| n.checked_sub(1));
        index.and_then(|n| self.yaml.lines().nth(n)).unwrap_or_default()
    }
}

/// Whether a line ends with the mark of a literal block, such as `|` or `|-`.
fn opens_block(line: &str) -> bool {
    let code = line.split_once(" #").map_or(line, |(code, _)| code).trim_end();
    code.trim_end_matches(|c: char| matches!(c, '-' | '+') || c.is_ascii_digit()).ends_with('|')
}
