//! Variables in texts: `${env.NAME}`, `${NAME}` and `$NAME`. `$$` is a dollar.

use std::collections::HashSet;
use std::fmt;

use super::suggestions::join_bounded;
use super::{MAX_TEAM_FILE_BYTES, ProblemKind};

/// Why the variables of a text cannot be filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum VariableError {
    /// These variables are not set; each once, in the order of the text.
    Unset(Vec<String>),
    /// The result would be longer than a team file may be.
    TooLong,
}

impl VariableError {
    pub(super) fn problem_kind(&self) -> ProblemKind {
        match self {
            VariableError::Unset(_) => ProblemKind::Environment,
            VariableError::TooLong => ProblemKind::Content,
        }
    }
}

impl fmt::Display for VariableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VariableError::Unset(names) => match names.as_slice() {
                [one] => write!(f, "the variable {one} is not set"),
                many => {
                    let names: Vec<&str> = many.iter().map(String::as_str).collect();
                    write!(f, "the variables {} are not set", join_bounded(&names))
                }
            },
            VariableError::TooLong => {
                write!(f, "with its variables filled in, the text is longer than {MAX_TEAM_FILE_BYTES} bytes")
            }
        }
    }
}

impl std::error::Error for VariableError {}

/// Fills in the variables of a text. The result has at most [`MAX_TEAM_FILE_BYTES`] bytes. Values are not
/// expanded again.
///
/// Fails if a variable without a default is not set, or the result is too long.
///
/// ```
/// use longhaul::teamfile::{VariableError, fill_variables};
///
/// let home = |name: &str| (name == "HOME").then(|| "/home/me".to_owned());
/// assert_eq!(fill_variables("${env.HOME}/x, $HOME/y, costs $$5", &home), Ok("/home/me/x, /home/me/y, costs $5".to_owned()));
/// let unset = VariableError::Unset(vec!["USER".to_owned(), "PASSWORD".to_owned()]);
/// assert_eq!(fill_variables("${USER}:$PASSWORD", &home), Err(unset));
/// ```
pub fn fill_variables(text: &str, lookup: &dyn Fn(&str) -> Option<String>) -> Result<String, VariableError> {
    let mut filled = String::with_capacity(text.len().min(MAX_TEAM_FILE_BYTES));
    let mut unset: Vec<String> = Vec::new();
    let mut reported: HashSet<&str> = HashSet::new();
    for piece in pieces(text) {
        match piece {
            VariablePiece::Text(text) => filled.push_str(text),
            VariablePiece::Variable { name, otherwise } => {
                match lookup(name).or(otherwise.map(str::to_owned)) {
                    Some(value) => filled.push_str(&value),
                    None if reported.insert(name) => unset.push(name.to_owned()),
                    None => {}
                }
            }
        }
        if filled.len() > MAX_TEAM_FILE_BYTES {
            return Err(VariableError::TooLong);
        }
    }
    if unset.is_empty() { Ok(filled) } else { Err(VariableError::Unset(unset)) }
}

/// The names of the variables in a text that have no default.
pub fn required_variables(text: &str) -> Vec<&str> {
    let name = |piece| match piece {
        VariablePiece::Variable { name, otherwise: None } => Some(name),
        _ => None,
    };
    pieces(text).filter_map(name).collect()
}

/// The names of all variables in a text, including those with a default.
pub(super) fn all_variables(text: &str) -> Vec<&str> {
    let name = |piece| match piece {
        VariablePiece::Variable { name, .. } => Some(name),
        VariablePiece::Text(_) => None,
    };
    pieces(text).filter_map(name).collect()
}

enum VariablePiece<'a> {
    Text(&'a str),
    Variable { name: &'a str, otherwise: Option<&'a str> },
}

fn pieces(text: &str) -> impl Iterator<Item = VariablePiece<'_>> {
    // After the last closing brace, do not search for another.
    let closed = text.rfind('}').map_or("", |at| &text[at..]).len();
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (piece, after) = next(rest, rest.len() >= closed && closed > 0);
        rest = after;
        Some(piece)
    })
}

/// The first piece of a text, and the rest. `braces`: whether the rest contains a closing brace.
fn next(text: &str, braces: bool) -> (VariablePiece<'_>, &str) {
    let Some(after) = text.strip_prefix('$') else {
        let end = text.find('$').unwrap_or(text.len());
        let (plain, rest) = text.split_at(end);
        return (VariablePiece::Text(plain), rest);
    };
    if let Some(rest) = after.strip_prefix('$') {
        return (VariablePiece::Text("$"), rest);
    }
    let inside = after.strip_prefix('{').filter(|_| braces);
    if let Some((inside, rest)) = inside.and_then(|inside| inside.split_once('}')) {
        let (name, otherwise) = match inside.split_once(":-") {
            Some((name, otherwise)) => (name, Some(otherwise)),
            None => (inside, None),
        };
        let name = name.trim().strip_prefix("env.").unwrap_or(name.trim());
        if !name.is_empty() && name.len() == name_length(name) {
            return (VariablePiece::Variable { name, otherwise }, rest);
        }
        // This only looks like a variable.
        let length = text.len() - rest.len();
        return (VariablePiece::Text(&text[..length]), rest);
    }
    match name_length(after) {
        0 => (VariablePiece::Text("$"), after),
        length => {
            let (name, rest) = after.split_at(length);
            (VariablePiece::Variable { name, otherwise: None }, rest)
        }
    }
}

/// The length in bytes of the variable name at the beginning.
fn name_length(text: &str) -> usize {
    let part = |(at, c): (usize, char)| c == '_' || c.is_ascii_alphabetic() || (at > 0 && c.is_ascii_digit());
    text.char_indices().find(|found| !part(*found)).map_or(text.len(), |(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_variable_stays_as_it_is() {
        let set = |name: &str| Some(format!("<{name}>"));
        for (text, filled) in [
            ("", ""),
            ("plain", "plain"),
            ("$", "$"),
            ("a$", "a$"),
            ("$5", "$5"),
            ("${}", "${}"),
            ("${", "${"),
            ("${a b}", "${a b}"),
            ("${headers.X-Y}", "${headers.X-Y}"),
            ("$$NAME", "$NAME"),
            ("$$$NAME", "$<NAME>"),
            ("$A$B", "<A><B>"),
            ("${ env.A }", "<A>"),
            ("${A:-b}", "<A>"),
            ("ü$Aü", "ü<A>ü"),
        ] {
            assert_eq!(fill_variables(text, &set), Ok(filled.to_owned()), "{text}");
        }
        assert_eq!(fill_variables("${A:-b}", &|_| None), Ok("b".to_owned()));
        assert_eq!(fill_variables("$A}${A", &set), Ok("<A>}${A".to_owned()));
        assert_eq!(
            fill_variables("$A $A $B", &|_| None),
            Err(VariableError::Unset(vec!["A".to_owned(), "B".to_owned()]))
        );
        assert_eq!(required_variables("$A ${env.B} ${C:-d} $$E"), ["A", "B"]);
    }

    #[test]
    fn values_are_not_looked_into() {
        let set = |name: &str| Some(format!("$A${{{name}}}$$"));
        assert_eq!(fill_variables("$A-${B}", &set), Ok("$A${A}$$-$A${B}$$".to_owned()));
    }

    /// A text of long variables takes no more memory than a team file.
    #[test]
    fn what_grows_without_end_is_an_error() {
        let long = |_: &str| Some("x".repeat(1 << 16));
        assert_eq!(fill_variables(&"$A".repeat(1 << 19), &long), Err(VariableError::TooLong));
        assert_eq!(fill_variables(&"$A".repeat(16), &long).unwrap().len(), MAX_TEAM_FILE_BYTES);
    }

    /// Each of these takes quadratic time if every piece searches all of the text.
    #[test]
    fn long_texts_are_read_once() {
        let open = "${".repeat(MAX_TEAM_FILE_BYTES / 2);
        assert_eq!(fill_variables(&open, &|_| None), Ok(open.clone()));
        let many: String = (0..150_000).map(|n| format!("$A{n}")).collect();
        let Err(VariableError::Unset(unset)) = fill_variables(&many, &|_| None) else {
            panic!("none is set")
        };
        assert_eq!((unset.len(), unset[149_999].as_str()), (150_000, "A149999"));
    }
}
