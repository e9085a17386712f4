//! Questions to a person, and their answers.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::permission::{Pattern, PatternError, ToolIdentity};

/// A question that only a person can answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// The text of the question.
    pub text: String,
    /// The expected kind of answer.
    pub wants: ExpectedAnswer,
}

impl Question {
    /// The question in one line, at most 300 characters.
    pub fn headline(&self) -> String {
        let line = self.text.split_whitespace().collect::<Vec<_>>().join(" ");
        match line.char_indices().nth(299) {
            Some((cut, c)) if cut + c.len_utf8() < line.len() => format!("{}…", &line[..cut]),
            _ => line,
        }
    }
}

/// The kinds of answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExpectedAnswer {
    /// Approval or denial of this call.
    Leave {
        /// The tool.
        tool: String,
        /// The arguments as the tool will read them.
        arguments: String,
        /// Why a person has to approve this call even if a rule allows it: it may do something that a rule
        /// denies.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
        /// The identity of the tool. The approval covers only this tool.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        identity: Option<Box<ToolIdentity>>,
        /// How the tool differs from the one that was approved before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        changed: Option<String>,
        /// What the call does to a file, as its tool saw the file when the question was asked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file: Option<Box<FileChange>>,
    },
    /// Free text, or JSON that matches the schema if there is one.
    Words {
        /// The JSON schema of the answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        schema: Option<Value>,
    },
}

impl ExpectedAnswer {
    /// The approval of a call that nothing else is known about.
    pub fn approval(tool: impl Into<String>, arguments: impl Into<String>) -> ExpectedAnswer {
        let (why, identity, changed, file) = (None, None, None, None);
        ExpectedAnswer::Leave { tool: tool.into(), arguments: arguments.into(), why, identity, changed, file }
    }
}

/// What a call would do to a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChange {
    /// The file, as the tool names it.
    pub path: String,
    /// Whether the file exists: its content is replaced or changed.
    pub exists: bool,
    /// The difference: lines with ` `, `-` or `+` in front, shortened if there are very many.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub diff: String,
    /// Why there is no difference to show: the file is binary or too large, or the call would fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// The answer to a question, or why there is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuestionAnswer {
    /// A person answered: free text, or `yes`, `no` or `always`.
    Given(String),
    /// A person declined to answer.
    Declined,
    /// Nobody was there, for this reason.
    Nobody(String),
}

impl fmt::Display for QuestionAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QuestionAnswer::Given(words) => f.write_str(words),
            QuestionAnswer::Declined => f.write_str("declined"),
            QuestionAnswer::Nobody(why) => f.write_str(why),
        }
    }
}

/// A person's decision on a call: `yes`, `no [reason]` or `always [exact|program|tool|pattern]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Approval {
    /// Allow it this time.
    Yes,
    /// Deny it, with an optional reason.
    No(Option<String>),
    /// Allow it this time, and from now on for the whole tree.
    Always(GrantScope),
}

/// What an approval allows from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GrantScope {
    /// This call with exactly these arguments.
    Exact,
    /// The program of this command, with any arguments.
    Program,
    /// Every call of this tool.
    Tool,
    /// Calls that match a pattern.
    Pattern(Pattern),
}

impl GrantScope {
    /// The pattern that this scope allows for a call. Fails with the reason if there is none.
    pub fn pattern(&self, tool: &str, arguments: &Value) -> Result<Pattern, PatternError> {
        match self {
            GrantScope::Exact => Pattern::for_call(tool, arguments),
            GrantScope::Program => Pattern::for_program(tool, arguments),
            GrantScope::Tool => Pattern::for_tool(tool),
            GrantScope::Pattern(pattern) if pattern.definitely_matches(tool, arguments) => {
                Ok(pattern.clone())
            }
            GrantScope::Pattern(pattern) => Err(PatternError(format!(
                "the pattern '{pattern}' does not allow the call of '{tool}' that is asked about"
            ))),
        }
    }
}

/// Why a text is no answer to an approval request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApprovalError {
    /// It is none of the valid answers.
    #[error(
        "'{0}' is no answer to this: say `yes`, `no`, `no REASON`, `always` or `always exact` (this very call, in this \
         tree), `always program` (this program with any arguments), `always tool` (every call of the tool) or \
         `always PATTERN` (as `always shell:cmd=git *`)"
    )]
    NoAnswer(String),
    /// The pattern after `always` is wrong.
    #[error(transparent)]
    Pattern(#[from] PatternError),
}

impl Approval {
    /// Parses a decision. Fails with a text that lists the valid answers.
    ///
    /// ```
    /// use longhaul::entry::Approval;
    /// assert_eq!(Approval::parse("no, use a branch"), Ok(Approval::No(Some("use a branch".to_owned()))));
    /// assert!(Approval::parse("perhaps").is_err());
    /// ```
    pub fn parse(words: &str) -> Result<Approval, ApprovalError> {
        let words = words.trim();
        let end = words.find(|c: char| !c.is_alphanumeric()).unwrap_or(words.len());
        let (first, rest) = words.split_at(end);
        let rest =
            rest.trim_start_matches(|c: char| c.is_whitespace() || matches!(c, ',' | ':' | ';')).trim();
        let rest = (!rest.is_empty()).then_some(rest);
        match (first.to_lowercase().as_str(), rest) {
            ("yes" | "y", None) => Ok(Approval::Yes),
            ("no" | "n", reason) => Ok(Approval::No(reason.map(str::to_owned))),
            ("always", None | Some("exact")) => Ok(Approval::Always(GrantScope::Exact)),
            ("always", Some("program")) => Ok(Approval::Always(GrantScope::Program)),
            ("always", Some("tool")) => Ok(Approval::Always(GrantScope::Tool)),
            ("always", Some(pattern)) => Ok(Approval::Always(GrantScope::Pattern(Pattern::parse(pattern)?))),
            _ => Err(ApprovalError::NoAnswer(words.chars().take(60).collect())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leave_is_given_and_refused_in_few_words() {
        let reason = |text: &str| Ok(Approval::No(Some(text.to_owned())));
        assert_eq!(Approval::parse(" Yes "), Ok(Approval::Yes));
        assert_eq!(Approval::parse("y"), Ok(Approval::Yes));
        assert_eq!(Approval::parse("no"), Ok(Approval::No(None)));
        assert_eq!(Approval::parse("No: not on Fridays"), reason("not on Fridays"));
        assert_eq!(Approval::parse("n because"), reason("because"));
        for (words, grant) in [
            ("always", GrantScope::Exact),
            ("Always exact", GrantScope::Exact),
            ("always program", GrantScope::Program),
            ("always: tool", GrantScope::Tool),
        ] {
            assert_eq!(Approval::parse(words), Ok(Approval::Always(grant)), "{words}");
        }
        let pattern = Pattern::parse("shell:cmd=git *").unwrap();
        assert_eq!(
            Approval::parse("always shell:cmd=git *"),
            Ok(Approval::Always(GrantScope::Pattern(pattern)))
        );
        for wrong in ["", "perhaps", "yes but not now", "nope", "yesterday", "always shell:cmd=["] {
            assert!(Approval::parse(wrong).is_err(), "{wrong}");
        }
    }
}
