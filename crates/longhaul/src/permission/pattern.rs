//! A pattern: a tool, and conditions on its arguments.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::command::{NEVER, climbs, is_command, parts, straight};
use super::glob::{Glob, lower};

/// How long a pattern may be, in bytes.
const LONGEST: usize = 2048;

/// How deep lists in lists are looked into, each as it is written and each of what is in it. Deeper ones may be anything.
const DEEPEST: usize = 8;

/// Calls that are meant: `tool`, `tool*`, `tool:arg=glob`, `tool:arg=glob:arg2=glob`.
///
/// Upper and lower case are the same. In a glob `*` stands for any text, across `/` and spaces too; `?` for one
/// character; `[a-z]` for one of some; `\` before any of these, or before `:`, for the character itself. A `:` begins a
/// condition only where a name and a `=` follow, so `fetch:url=https://host:8080/*` has one condition.
///
/// ```
/// use longhaul::permission::Pattern;
/// let pattern = Pattern::parse("shell:cmd=git *:cwd=src*")?;
/// assert_eq!(pattern.to_string(), "shell:cmd=git *:cwd=src*");
/// assert!(Pattern::parse("shell:cmd=[a").is_err());
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pattern {
    text: String,
    tool: Glob,
    conditions: Vec<Condition>,
}

#[derive(Clone, PartialEq, Eq)]
struct Condition {
    argument: String,
    glob: Glob,
    is_command: bool,
}

impl Pattern {
    /// The pattern of a text. The error says what is wrong with it, and names it.
    pub fn parse(text: &str) -> Result<Pattern, String> {
        let shown: String = text.chars().take(120).collect();
        let wrong = |why: &str| format!("the permission pattern '{shown}' is wrong: {why}");
        if text.len() > LONGEST {
            return Err(wrong(&format!("it is longer than {LONGEST} bytes")));
        }
        let mut pieces = pieces(text).into_iter();
        let tool = pieces.next().unwrap_or_default().trim();
        if tool.is_empty() {
            return Err(wrong("it names no tool; '*' names all"));
        }
        if tool.ends_with(':') && !tool.ends_with("\\:") {
            return Err(wrong(
                "nothing follows its last ':'; a condition is written ':argument=glob', and '\\:' for the character",
            ));
        }
        let glob = |text: &str| Glob::parse(text).map_err(|why| wrong(&why));
        let condition = |piece: &str| {
            let (argument, text) = piece.split_once('=').unwrap_or((piece, ""));
            Ok(Condition {
                argument: argument.to_owned(),
                glob: glob(text)?,
                is_command: is_command(argument),
            })
        };
        let conditions = pieces.map(condition).collect::<Result<_, String>>()?;
        Ok(Pattern { text: text.to_owned(), tool: glob(tool)?, conditions })
    }

    /// The pattern of all calls of one tool.
    pub fn of_tool(tool: &str) -> Result<Pattern, String> {
        let mut text = String::new();
        for c in tool.chars() {
            if matches!(c, '*' | '?' | '[' | ']' | '\\' | ':') {
                text.push('\\');
            }
            text.push(c);
        }
        Pattern::parse(&text)
    }

    /// Whether a call is certainly meant: for what it allows. Wildcards match nothing in a command line that would make
    /// another command of it, and nothing that goes up in a path.
    pub fn is_surely(&self, tool: &str, arguments: &Value) -> bool {
        self.tool.matches(&lower(tool), &[]) && self.conditions.iter().all(|c| c.surely(arguments))
    }

    /// Whether a call may be meant: for what it denies or asks about. A command line is meant if any command in it is,
    /// and arguments that cannot be read may be anything.
    pub fn might_be(&self, tool: &str, arguments: &Value) -> bool {
        self.tool.matches(&lower(tool), &[]) && self.conditions.iter().all(|c| c.maybe(arguments))
    }
}

impl Condition {
    fn surely(&self, arguments: &Value) -> bool {
        let mut found = Vec::new();
        find(arguments, &self.argument, &mut found);
        !found.is_empty() && found.into_iter().all(|value| self.surely_is(value, 0))
    }

    fn surely_is(&self, value: &Value, depth: usize) -> bool {
        match value {
            Value::String(text) => self.surely_text(text),
            Value::Array(_) if depth >= DEEPEST => false,
            Value::Array(all) if !all.is_empty() => {
                all.iter().all(|one| self.surely_is(one, depth + 1)) || self.surely_text(&value.to_string())
            }
            other => self.surely_text(&other.to_string()),
        }
    }

    fn surely_text(&self, text: &str) -> bool {
        let never: &[char] = if self.is_command { &NEVER } else { &[] };
        let strays = !self.is_command && self.glob.is_wild() && climbs(text) && !self.glob.names("..");
        !strays && self.glob.matches(&lower(text), never)
    }

    fn maybe(&self, arguments: &Value) -> bool {
        if !arguments.is_object() {
            return true;
        }
        let mut found = Vec::new();
        find(arguments, &self.argument, &mut found);
        found.into_iter().any(|value| self.maybe_is(value, 0))
    }

    fn maybe_is(&self, value: &Value, depth: usize) -> bool {
        match value {
            Value::String(text) => self.maybe_text(text),
            Value::Array(_) if depth >= DEEPEST => true,
            Value::Array(all) => {
                let words: Vec<&str> = all.iter().filter_map(Value::as_str).collect();
                all.iter().any(|one| self.maybe_is(one, depth + 1))
                    || self.maybe_text(&value.to_string())
                    || (self.is_command && self.maybe_text(&words.join(" ")))
            }
            other => self.maybe_text(&other.to_string()),
        }
    }

    fn maybe_text(&self, text: &str) -> bool {
        let text = lower(text);
        let more = if self.is_command { parts(&text) } else { vec![straight(&text)] };
        self.glob.matches(&text, &[]) || more.iter().any(|text| self.glob.matches(text, &[]))
    }
}

/// The values of an argument, found by its name or by a dotted path to it, in whatever case.
fn find<'a>(value: &'a Value, path: &str, found: &mut Vec<&'a Value>) {
    let mut look = |key: &str, value: &'a Value| {
        let (Some(head), Some(rest)) = (path.get(..key.len()), path.get(key.len()..)) else { return };
        if key.is_empty() || !head.eq_ignore_ascii_case(key) {
            return;
        }
        match rest.strip_prefix('.') {
            Some(rest) => find(value, rest, found),
            None if rest.is_empty() => found.push(value),
            None => {}
        }
    };
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| look(key, value)),
        Value::Array(all) => all.iter().enumerate().for_each(|(at, value)| look(&at.to_string(), value)),
        _ => {}
    }
}

/// The tool and the conditions of a pattern. A `:` begins a condition only where a name and a `=` follow.
fn pieces(text: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let (mut from, mut escaped) = (0, false);
    for (at, c) in text.char_indices() {
        if c == ':' && !escaped && begins_condition(&text[at + 1..]) {
            pieces.push(&text[from..at]);
            from = at + 1;
        }
        escaped = c == '\\' && !escaped;
    }
    pieces.push(&text[from..]);
    pieces
}

fn begins_condition(rest: &str) -> bool {
    let name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    rest.split_once('=').is_some_and(|(before, _)| !before.is_empty() && before.chars().all(name))
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pattern({:?})", self.text)
    }
}

impl std::str::FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Pattern::parse(text)
    }
}

impl TryFrom<String> for Pattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Pattern::parse(&text)
    }
}

impl From<Pattern> for String {
    fn from(pattern: Pattern) -> String {
        pattern.text
    }
}
