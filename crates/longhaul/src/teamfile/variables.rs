//! Variables in texts: `${env.NAME}`, `${NAME}` and `$NAME`. `$$` is a dollar.

/// A text with its variables filled in, or the names of those that are not set.
///
/// ```
/// use longhaul::teamfile::fill;
///
/// let home = |name: &str| (name == "HOME").then(|| "/home/me".to_owned());
/// assert_eq!(fill("${env.HOME}/x, $HOME/y, costs $$5", &home), Ok("/home/me/x, /home/me/y, costs $5".to_owned()));
/// assert_eq!(fill("${USER}:$PASSWORD", &home), Err(vec!["USER".to_owned(), "PASSWORD".to_owned()]));
/// ```
pub fn fill(text: &str, lookup: &dyn Fn(&str) -> Option<String>) -> Result<String, Vec<String>> {
    let mut filled = String::with_capacity(text.len());
    let mut unset: Vec<String> = Vec::new();
    for piece in pieces(text) {
        match piece {
            Piece::Text(text) => filled.push_str(text),
            Piece::Variable { name, otherwise } => match lookup(name).or(otherwise.map(str::to_owned)) {
                Some(value) => filled.push_str(&value),
                None if unset.iter().any(|had| had == name) => {}
                None => unset.push(name.to_owned()),
            },
        }
    }
    if unset.is_empty() { Ok(filled) } else { Err(unset) }
}

/// The names of the variables in a text that have nothing to fall back on.
pub fn variables(text: &str) -> Vec<&str> {
    let name = |piece| match piece {
        Piece::Variable { name, otherwise: None } => Some(name),
        _ => None,
    };
    pieces(text).filter_map(name).collect()
}

enum Piece<'a> {
    Text(&'a str),
    Variable { name: &'a str, otherwise: Option<&'a str> },
}

fn pieces(text: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (piece, after) = next(rest);
        rest = after;
        Some(piece)
    })
}

fn next(text: &str) -> (Piece<'_>, &str) {
    let Some(after) = text.strip_prefix('$') else {
        let end = text.find('$').unwrap_or(text.len());
        let (plain, rest) = text.split_at(end);
        return (Piece::Text(plain), rest);
    };
    if let Some(rest) = after.strip_prefix('$') {
        return (Piece::Text("$"), rest);
    }
    if let Some((inside, rest)) = after.strip_prefix('{').and_then(|inside| inside.split_once('}')) {
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
        assert_eq!(fill("$A $A $B", &|_| None), Err(vec!["A".to_owned(), "B".to_owned()]));
        assert_eq!(variables("$A ${env.B} ${C:-d} $$E"), ["A", "B"]);
    }
}
