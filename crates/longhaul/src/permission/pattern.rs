//! A pattern: a tool, and conditions on its arguments.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::command_line::{SHELL_METACHARACTERS, has_parent_component, is_command_argument, normalize_path};
use super::glob::{Glob, lowercase};
use super::request::PermissionRequest;
use super::shell::{self, WordPiece};

/// The maximum length of a pattern, in bytes.
const LONGEST: usize = 2048;
/// The maximum length of the pattern of one call, in bytes.
const LONGEST_CALL: usize = 64 * 1024;

/// How deep nested lists are inspected, each as written and element by element. Deeper ones may be anything.
const DEEPEST: usize = 8;

/// Matches calls: `tool`, `tool*`, `tool:arg=glob`, `tool:arg=glob:arg2=glob`.
///
/// Patterns ignore case. In a glob, `*` matches any text, including `/` and spaces; `?` matches one
/// character; `[a-z]` matches one of a class; `\` before any of these, or before `:`, stands for the
/// character itself. A `:` starts a condition only if a name and a `=` follow, so
/// `fetch:url=https://host:8080/*` has one condition.
///
/// ```
/// use longhaul::permission::Pattern;
/// let pattern = Pattern::parse("shell:cmd=git *:cwd=src*")?;
/// assert_eq!(pattern.to_string(), "shell:cmd=git *:cwd=src*");
/// assert!(Pattern::parse("shell:cmd=[a").is_err());
/// # Ok::<(), longhaul::permission::PatternError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pattern {
    text: String,
    tool: Glob,
    conditions: Vec<ArgumentCondition>,
    /// The only arguments that it matches.
    exact: Option<Value>,
}

/// Why there is no such pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PatternError(pub(crate) String);

#[derive(Clone, PartialEq, Eq)]
struct ArgumentCondition {
    argument: String,
    glob: Glob,
    is_command: bool,
}

impl Pattern {
    /// Parses a pattern. Fails with a text that names the pattern and the problem.
    pub fn parse(text: &str) -> Result<Pattern, PatternError> {
        let shown: String = text.chars().take(120).collect();
        let wrong = |why: &str| PatternError(format!("the permission pattern '{shown}' is wrong: {why}"));
        if let Some(call) = text.strip_prefix('=') {
            return Pattern::parse_call(text, call).map_err(wrong);
        }
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
        let glob = |text: &str| Glob::parse(text).map_err(|why| wrong(&why.to_string()));
        let condition = |piece: &str| {
            let (argument, text) = piece.split_once('=').unwrap_or((piece, ""));
            Ok(ArgumentCondition {
                argument: argument.to_owned(),
                glob: glob(text)?,
                is_command: is_command_argument(argument),
            })
        };
        let conditions = pieces.map(condition).collect::<Result<_, PatternError>>()?;
        Ok(Pattern { text: text.to_owned(), tool: glob(tool)?, conditions, exact: None })
    }

    /// `=tool {…}`: one call, with its arguments as JSON.
    fn parse_call(text: &str, call: &str) -> Result<Pattern, &'static str> {
        if text.len() > LONGEST_CALL {
            return Err("it is longer than 64 KiB");
        }
        let json = call.find('{').ok_or("after '=' it has to name a tool and its arguments: '=tool {…}'")?;
        let (tool, arguments) = call.split_at(json);
        if tool.trim().is_empty() {
            return Err("it names no tool");
        }
        let exact = serde_json::from_str(arguments).map_err(|_| "what follows the tool is no JSON object")?;
        let tool = Glob::parse(&escaped(tool.trim())).map_err(|_| "it names no tool")?;
        Ok(Pattern { text: text.to_owned(), tool, conditions: Vec::new(), exact: Some(exact) })
    }

    /// A pattern for all calls of one tool.
    pub fn for_tool(tool: &str) -> Result<Pattern, PatternError> {
        Pattern::parse(&escaped(tool))
    }

    /// A pattern for one call with exactly these arguments.
    pub fn for_call(tool: &str, arguments: &Value) -> Result<Pattern, PatternError> {
        if !arguments.is_object() || tool.contains('{') {
            return Err(PatternError(
                "no pattern can name this very call: say `yes`, or `always tool`".to_owned(),
            ));
        }
        Pattern::parse(&format!("={tool} {arguments}"))
    }

    /// A pattern for one program with any arguments. Fails unless the call runs one plain command.
    pub fn for_program(tool: &str, arguments: &Value) -> Result<Pattern, PatternError> {
        let fields = arguments.as_object().into_iter().flatten();
        let lines: Vec<_> = fields.filter(|(name, _)| is_command_argument(name)).collect();
        let [(name, Value::String(line))] = lines[..] else {
            return Err(PatternError("this call runs no command line: say `exact` or `tool`".to_owned()));
        };
        let Some(program) = plain_program(line) else {
            return Err(PatternError(
                "this is not one plain command, or its program runs others: say `exact` or `tool`".to_owned(),
            ));
        };
        Pattern::parse(&format!("{}:{name}={} *", escaped(tool), escaped(&program)))
    }

    /// Whether it certainly matches a call; used for patterns that allow. In a command line, wildcards match
    /// nothing that would start another command; in a path, nothing that goes up.
    pub fn definitely_matches(&self, tool: &str, arguments: &Value) -> bool {
        self.tool.matches(&lowercase(tool), &[])
            && self.exact.as_ref().is_none_or(|exact| exact == arguments)
            && self.conditions.iter().all(|c| c.definitely_matches(arguments))
    }

    /// Whether it certainly matches a request, by any name of its arguments.
    pub(super) fn allows(&self, request: &PermissionRequest) -> bool {
        let arguments = if self.exact.is_some() { request.given_arguments() } else { request.arguments() };
        self.definitely_matches(request.tool(), arguments)
    }

    /// Whether it may match a call; used for patterns that deny or ask. It matches a command line if it
    /// matches any command in it, and arguments that cannot be read may be anything.
    pub fn may_match(&self, tool: &str, arguments: &Value) -> bool {
        self.match_request(&PermissionRequest::new(tool, arguments.clone())) != PatternMatch::No
    }

    /// Whether it matches a request; used for patterns that deny or ask.
    pub fn match_request(&self, request: &PermissionRequest) -> PatternMatch {
        if !request.tools().any(|tool| self.tool.matches(&lowercase(tool), &[])) {
            return PatternMatch::No;
        }
        if let Some(exact) = &self.exact {
            let is = exact == request.given_arguments() || !request.given_arguments().is_object();
            return if is { PatternMatch::Yes } else { PatternMatch::No };
        }
        self.conditions.iter().fold(PatternMatch::Yes, |so_far, condition| match so_far {
            PatternMatch::No => PatternMatch::No,
            so_far => so_far.and(condition.match_request(request)),
        })
    }

    /// Whether it approves a call that would otherwise need approval. A call that may be something that a
    /// rule denies is only approved by the pattern of exactly that call.
    pub(crate) fn grants(&self, tool: &str, arguments: &Value, unsure: bool) -> bool {
        (self.exact.is_some() || !unsure) && self.definitely_matches(tool, arguments)
    }
}

/// Whether a pattern matches a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PatternMatch {
    /// It does not match.
    No,
    /// It may match: that is unknown before the call runs, for this reason.
    Unclear(String),
    /// It matches.
    Yes,
}

impl PatternMatch {
    /// Both must match.
    fn and(self, other: PatternMatch) -> PatternMatch {
        match (self, other) {
            (PatternMatch::No, _) | (_, PatternMatch::No) => PatternMatch::No,
            (why @ PatternMatch::Unclear(_), _) | (_, why @ PatternMatch::Unclear(_)) => why,
            (PatternMatch::Yes, PatternMatch::Yes) => PatternMatch::Yes,
        }
    }

    /// One must match.
    fn or(self, other: impl FnOnce() -> PatternMatch) -> PatternMatch {
        match self {
            PatternMatch::Yes => PatternMatch::Yes,
            PatternMatch::No => other(),
            why @ PatternMatch::Unclear(_) => match other() {
                PatternMatch::Yes => PatternMatch::Yes,
                _ => why,
            },
        }
    }
}

impl ArgumentCondition {
    fn definitely_matches(&self, arguments: &Value) -> bool {
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
        let never: &[char] = if self.is_command { &SHELL_METACHARACTERS } else { &[] };
        let strays = !self.is_command
            && self.glob.is_wild()
            && has_parent_component(text)
            && !self.glob.contains_literal("..");
        !strays && self.glob.matches(&lowercase(text), never)
    }

    fn match_request(&self, request: &PermissionRequest) -> PatternMatch {
        if !request.arguments().is_object() {
            return PatternMatch::Yes;
        }
        let mut found = Vec::new();
        find(request.arguments(), &self.argument, &mut found);
        found.into_iter().fold(PatternMatch::No, |so_far, value| so_far.or(|| self.means(value, request, 0)))
    }

    fn means(&self, value: &Value, request: &PermissionRequest, depth: usize) -> PatternMatch {
        match value {
            Value::String(text) => self.means_text(text, request),
            Value::Array(_) if depth >= DEEPEST => PatternMatch::Yes,
            Value::Array(all) => {
                let words: Vec<&str> = all.iter().filter_map(Value::as_str).collect();
                let each = all
                    .iter()
                    .fold(PatternMatch::No, |so_far, one| so_far.or(|| self.means(one, request, depth + 1)));
                let each = each.or(|| self.means_text(&value.to_string(), request));
                if self.is_command { each.or(|| self.means_text(&words.join(" "), request)) } else { each }
            }
            other => self.means_text(&other.to_string(), request),
        }
    }

    fn means_text(&self, text: &str, request: &PermissionRequest) -> PatternMatch {
        if self.glob.matches(&lowercase(text), &[]) {
            return PatternMatch::Yes;
        }
        if self.is_command {
            return self.means_line(&request.parsed_command_line(text));
        }
        let paths = request.path_spellings(text).into_iter().map(|path| lowercase(&path));
        match paths.chain([normalize_path(&lowercase(text))]).any(|path| self.glob.matches(&path, &[])) {
            true => PatternMatch::Yes,
            false => PatternMatch::No,
        }
    }

    fn means_line(&self, line: &shell::CommandLine) -> PatternMatch {
        let found = line
            .commands
            .iter()
            .fold(PatternMatch::No, |so_far, command| so_far.or(|| self.means_command(command)));
        match &line.unclear {
            Some(why) => found.or(|| PatternMatch::Unclear(why.clone())),
            None => found,
        }
    }

    /// Compares a command with and without the path of its program.
    fn means_command(&self, command: &shell::ShellCommand) -> PatternMatch {
        let mut parts: Vec<Option<String>> = Vec::new();
        for (at, word) in command.words.iter().enumerate() {
            if at > 0 {
                parts.push(Some(" ".to_owned()));
            }
            parts.extend(word.pieces.iter().map(|piece| match piece {
                WordPiece::Text(text) => Some(lowercase(text)),
                WordPiece::Gap => None,
            }));
        }
        let short = command.words.first().and_then(shell::ShellWord::program).map(|name| {
            let own = command.words.first().map_or(0, |word| word.pieces.len());
            let mut short = vec![Some(lowercase(name))];
            short.extend_from_slice(&parts[own..]);
            short
        });
        let compare = |parts: &[Option<String>]| {
            let filled =
                |gap: &str| parts.iter().map(|part| part.as_deref().unwrap_or(gap)).collect::<String>();
            let known = parts.iter().all(Option::is_some);
            let everywhere =
                ["", "\u{f8ff}", "\u{f8ff} \u{f8ff}"].iter().all(|gap| self.glob.matches(&filled(gap), &[]));
            let parts: Vec<Option<&str>> = parts.iter().map(Option::as_deref).collect();
            match (known, everywhere) {
                (_, true) if command.sure => PatternMatch::Yes,
                (_, true) => PatternMatch::Unclear("it may run a command that is denied".to_owned()),
                (true, false) => PatternMatch::No,
                (false, false) if self.glob.could_match(&parts) => {
                    PatternMatch::Unclear("some of its words are known only when it runs".to_owned())
                }
                (false, false) => PatternMatch::No,
            }
        };
        // If the path is only partly known, only the name of the program counts.
        let path_known = command.words.first().is_none_or(|word| !word.pieces.contains(&WordPiece::Gap));
        match short {
            Some(short) if !path_known => compare(&short),
            Some(short) => compare(&short).or(|| compare(&parts)),
            None => compare(&parts),
        }
    }
}

/// The program name of a line that is one plain command and runs no other.
fn plain_program(line: &str) -> Option<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | '+');
    let name = line.split([' ', '\t']).next().filter(|name| !name.is_empty() && name.chars().all(plain))?;
    let read = shell::parse_command_line(line);
    let known = |command: &shell::ShellCommand| {
        command.words.iter().flat_map(|word| &word.pieces).all(|piece| matches!(piece, WordPiece::Text(_)))
    };
    let only = read.commands.len() == 1 && read.commands.iter().all(known) && read.unclear.is_none();
    (only && !line.contains(SHELL_METACHARACTERS) && line.len() > name.len()).then(|| name.to_owned())
}

/// A pattern that matches only this text.
fn escaped(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\' | ':') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

fn is_argument(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'))
}

/// The values of an argument, found by its name or by a dotted path to it, ignoring case.
fn find<'a>(value: &'a Value, path: &str, found: &mut Vec<&'a Value>) {
    let mut look = |key: &str, value: &'a Value| {
        let (Some(start), Some(rest)) = (path.get(..key.len()), path.get(key.len()..)) else { return };
        if key.is_empty() || !start.eq_ignore_ascii_case(key) {
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

/// Splits a pattern into the tool and its conditions. A `:` starts a condition only if a name and a `=`
/// follow.
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
    rest.split_once('=').is_some_and(|(before, _)| is_argument(before))
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
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        Pattern::parse(text)
    }
}

impl TryFrom<String> for Pattern {
    type Error = PatternError;

    fn try_from(text: String) -> Result<Self, PatternError> {
        Pattern::parse(&text)
    }
}

impl From<Pattern> for String {
    fn from(pattern: Pattern) -> String {
        pattern.text
    }
}
