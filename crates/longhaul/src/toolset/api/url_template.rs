//! A URL with placeholders for arguments.

use crate::toolset::http_client::RemoteToolError;

/// The part of a URL that a placeholder is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UrlPart {
    Host,
    Path,
    Query,
}

/// A URL, split at its `${name}` placeholders.
#[derive(Debug)]
pub(super) struct UrlTemplate {
    text: String,
    pieces: Vec<UrlPiece>,
}

#[derive(Debug)]
enum UrlPiece {
    Text(String),
    Argument(String, UrlPart),
}

impl UrlTemplate {
    pub(super) fn parse(text: &str) -> Result<UrlTemplate, RemoteToolError> {
        let text = text.trim();
        let mut pieces = Vec::new();
        let (mut rest, mut before) = (text, String::new());
        while let Some(at) = rest.find("${") {
            before += &rest[..at];
            pieces.push(UrlPiece::Text(rest[..at].to_owned()));
            let Some(end) = rest[at..].find('}') else {
                return Err(RemoteToolError("a '${' has no '}'".to_owned()));
            };
            let name = rest[at + 2..at + end].trim();
            if name.is_empty() || !name.chars().all(|c| c.is_alphanumeric() || "_-.".contains(c)) {
                return Err(RemoteToolError(format!("'${{{name}}}' is not the name of an argument")));
            }
            pieces.push(UrlPiece::Argument(name.to_owned(), part_after(&before)?));
            before.push('x');
            rest = &rest[at + end + 1..];
        }
        pieces.push(UrlPiece::Text(rest.to_owned()));
        Ok(UrlTemplate { text: text.to_owned(), pieces })
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|piece| match piece {
            UrlPiece::Argument(name, _) => Some(name.as_str()),
            UrlPiece::Text(_) => None,
        })
    }

    pub(super) fn fill(
        &self,
        fill: impl Fn(&str, UrlPart) -> Result<String, RemoteToolError>,
    ) -> Result<String, RemoteToolError> {
        let mut filled = String::new();
        for piece in &self.pieces {
            match piece {
                UrlPiece::Text(text) => filled += text,
                UrlPiece::Argument(name, part) => filled += &fill(name, *part)?,
            }
        }
        Ok(filled)
    }
}

/// Returns the part of a URL that follows this prefix.
fn part_after(before: &str) -> Result<UrlPart, RemoteToolError> {
    let Some((_, rest)) = before.split_once("://") else {
        return Err(RemoteToolError("an argument cannot stand before '://'".to_owned()));
    };
    match (rest.contains(['?', '#']), rest.contains('/')) {
        (true, _) => Ok(UrlPart::Query),
        (false, true) => Ok(UrlPart::Path),
        (false, false) => Ok(UrlPart::Host),
    }
}
