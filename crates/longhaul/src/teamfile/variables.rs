//! Variables in texts: `${env.NAME}`, `${NAME}` and `$NAME`. `$$` is a dollar.

use std::collections::HashSet;
use std::fmt;

use super::LARGEST;
use super::near::listed;

/// Why the variables of a text cannot be filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unfilled {
    /// These are not set; each once, in the order of the text.
    Unset(Vec<String>),
    /// The text would be longer than a team file may be.
    TooLong,
}

impl fmt::Display for Unfilled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfilled::Unset(names) => match names.as_slice() {
                [one] => write!(f, "the variable {one} is not set"),
                many => {
                    let names: Vec<&str> = many.iter().map(String::as_str).collect();
                    write!(f, "the variables {} are not set", listed(&names))
                }
            },
            Unfilled::TooLong => {
                write!(f, "with its variables filled in, the text is longer than {LARGEST} bytes")
            }
        }
    }
}

impl std::error::Error for Unfilled {}

/// A text with its variables filled in, at most [`LARGEST`] bytes of it. What a variable is set to is not looked into.
///
/// ```
/// use longhaul::teamfile::{Unfilled, fill};
///
/// let home = |name: &str| (name == "HOME").then(|| "/home/me".to_owned());
/// assert_eq!(fill("${env.HOME}/x, $HOME/y, costs $$5", &home), Ok("/home/me/x, /home/me/y, costs $5".to_owned()));
/// let unset = Unfilled::Unset(vec!["USER".to_owned(), "PASSWORD".to_owned()]);
/// assert_eq!(fill("${USER}:$PASSWORD", &home), Err(unset));
/// ```
pub fn fill(text: &str, lookup: &dyn Fn(&str) -> Option<String>) -> Result<String, Unfilled> {
    let mut filled = String::with_capacity(text.len().min(LARGEST));
    let mut unset: Vec<String> = Vec::new();
    let mut told: HashSet<&str> = HashSet::new();
    for piece in pieces(text) {
        match piece {
            Piece::Text(text) => filled.push_str(text),
            Piece::Variable { name, otherwise } => match lookup(name).or(otherwise.map(str::to_owned)) {
                Some(value) => filled.push_str(&value),
                None if told.insert(name) => unset.push(name.to_owned()),
                None => {}
            },
        }
        if filled.len() > LARGEST {
            return Err(Unfilled::TooLong);
        }
    }
    if unset.is_empty() { Ok(filled) } else { Err(Unfilled::Unset(unset)) }
}

/// The names of the variables in a text that have nothing to fall back on.
pub fn variables(text: &str) -> Vec<&str> {
    let name = |piece| match piece {
        Piece::Variable { name, otherwise: None } => Some(name),
        _ => None,
    };
    pieces(text).filter_map(name).collect()
}

/// The names of all variables in a text, also of those that have something to fall back on.
pub(super) fn all_variables(text: &str) -> Vec<&str> {
    let name = |piece| match piece {
        Piece::Variable { name, .. } => Some(name),
        Piece::Text(_) => None,
    };
    pieces(text).filter_map(name).collect()
}

enum Piece<'a> {
    Text(&'a str),
    Variable { name: &'a str, otherwise: Option<&'a str> },
}

fn pieces(text: &str) -> impl Iterator<Item = Piece<'_>> {
    // Where no brace is closed any more, none is looked for.
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

/// The first piece of a text, and what comes after it. `braces`: whether a brace is closed in it.
fn next(text: &str, braces: bool) -> (Piece<'_>, &str) {
    let Some(after) = text.strip_prefix('$') else {
        let end = text.find('$').unwrap_or(text.len());
        let (plain, rest) = text.split_at(end);
        return (Piece::Text(plain), rest);
    };
    if let Some(rest) = after.strip_prefix('$') {
        return (Piece::Text("$"), rest);
    }
    let inside = after.strip_prefix('{').filter(|_| braces);
    if let Some((inside, rest)) = inside.and_then(|inside| inside.split_once('}')) {
        let (name, otherwise) = match inside.split_once(":-") {
            Some((name, otherwise)) => (name, Some(otherwise)),
            None => (inside, None),
        };
        let name = name.trim().strip_prefix("env.").unwrap_or(name.trim());
        if !name.is_empty() && name.len() == name_length(name) {
            return (Piece::Variable { name, otherwise }, rest);
        }
        // Not a variable, but something that only looks like one.
        let length = text.len() - rest.len();
        return (Piece::Text(&text[..length]), rest);
    }
    match name_length(after) {
        0 => (Piece::Text("$"), after),
        length => {
            let (name, rest) = after.split_at(length);
            (Piece::Variable { name, otherwise: None }, rest)
        }
    }
}

/// How many bytes at the beginning are the name of a variable.
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
            assert_eq!(fill(text, &set), Ok(filled.to_owned()), "{text}");
        }
        assert_eq!(fill("${A:-b}", &|_| None), Ok("b".to_owned()));
        assert_eq!(fill("$A}${A", &set), Ok("<A>}${A".to_owned()));
        assert_eq!(fill("$A $A $B", &|_| None), Err(Unfilled::Unset(vec!["A".to_owned(), "B".to_owned()])));
        assert_eq!(variables("$A ${env.B} ${C:-d} $$E"), ["A", "B"]);
    }

    #[test]
    fn values_are_not_looked_into() {
        let set = |name: &str| Some(format!("$A${{{name}}}$$"));
        assert_eq!(fill("$A-${B}", &set), Ok("$A${A}$$-$A${B}$$".to_owned()));
    }

    /// A text whose every variable is long takes no more memory than a team file.
    #[test]
    fn what_grows_without_end_is_an_error() {
        let long = |_: &str| Some("x".repeat(1 << 16));
        assert_eq!(fill(&"$A".repeat(1 << 19), &long), Err(Unfilled::TooLong));
        assert_eq!(fill(&"$A".repeat(16), &long).unwrap().len(), LARGEST);
    }

    /// Each of these is quadratic where every piece is looked for in all that comes after it, or before it.
    #[test]
    fn long_texts_are_read_once() {
        let open = "${".repeat(LARGEST / 2);
        assert_eq!(fill(&open, &|_| None), Ok(open.clone()));
        let many: String = (0..150_000).map(|n| format!("$A{n}")).collect();
        let Err(Unfilled::Unset(unset)) = fill(&many, &|_| None) else { panic!("none is set") };
        assert_eq!((unset.len(), unset[149_999].as_str()), (150_000, "A149999"));
    }
}
