//! A URL with places for arguments.

/// The part of a URL in which an argument stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Host,
    Path,
    Query,
}

/// A URL, taken apart at its `${name}`s.
#[derive(Debug)]
pub(super) struct Template {
    text: String,
    pieces: Vec<Piece>,
}

#[derive(Debug)]
enum Piece {
    Text(String),
    Argument(String, Part),
}

impl Template {
    pub(super) fn read(text: &str) -> Result<Template, String> {
        let text = text.trim();
        let mut pieces = Vec::new();
        let (mut rest, mut before) = (text, String::new());
        while let Some(at) = rest.find("${") {
            before += &rest[..at];
            pieces.push(Piece::Text(rest[..at].to_owned()));
            let Some(end) = rest[at..].find('}') else {
                return Err("a '${' has no '}'".to_owned());
            };
            let name = rest[at + 2..at + end].trim();
            if name.is_empty() || !name.chars().all(|c| c.is_alphanumeric() || "_-.".contains(c)) {
                return Err(format!("'${{{name}}}' is not the name of an argument"));
            }
            pieces.push(Piece::Argument(name.to_owned(), part_after(&before)?));
            before.push('x');
            rest = &rest[at + end + 1..];
        }
        pieces.push(Piece::Text(rest.to_owned()));
        Ok(Template { text: text.to_owned(), pieces })
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Argument(name, _) => Some(name.as_str()),
            Piece::Text(_) => None,
        })
    }

    pub(super) fn filled(
        &self,
        fill: impl Fn(&str, Part) -> Result<String, String>,
    ) -> Result<String, String> {
        let mut filled = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => filled += text,
                Piece::Argument(name, part) => filled += &fill(name, *part)?,
            }
        }
        Ok(filled)
    }
}

/// The part of a URL that comes after these words.
fn part_after(before: &str) -> Result<Part, String> {
    let Some((_, rest)) = before.split_once("://") else {
        return Err("an argument cannot stand before '://'".to_owned());
    };
    match (rest.contains(['?', '#']), rest.contains('/')) {
        (true, _) => Ok(Part::Query),
        (false, true) => Ok(Part::Path),
        (false, false) => Ok(Part::Host),
    }
}
