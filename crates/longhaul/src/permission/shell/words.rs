//! The words of a command line, without their quotes. Expansions are gaps.

use super::parse::{ListEnd, ParseResult, ShellParser, ShellSyntaxError, is_meta};
use super::{ShellWord, WordPiece};

/// How far to search for the end of a bracket; a longer one may end anywhere.
const FAR: usize = 512;

impl ShellParser<'_> {
    /// Parses a required word.
    pub(super) fn word_there(&mut self) -> ParseResult<ShellWord> {
        let from = self.at;
        let word = self.word()?;
        if self.at > from { Ok(word) } else { Err(ShellSyntaxError("a word is missing in it")) }
    }

    pub(super) fn word(&mut self) -> ParseResult<ShellWord> {
        let mut word = ShellWord::default();
        let mut first = true;
        // From the first brace or class on, the result is unknown.
        let mut open = None;
        while let Some(c) = self.peek() {
            let begins = std::mem::take(&mut first);
            match c {
                '<' | '>' if self.ahead(2).ends_with('(') && !begins => {
                    self.at += 2;
                    self.deeper(|parser| parser.list(ListEnd::Paren))?;
                    word.push_gap(false);
                }
                c if is_meta(c) => break,
                '\\' => {
                    self.at += 1;
                    word.quoted = true;
                    word.push(self.text.get(self.at).copied().unwrap_or('\\'));
                    self.at += 1;
                }
                '\'' => {
                    self.at += 1;
                    word.quoted = true;
                    self.single(&mut word)?;
                }
                '"' => self.double(&mut word)?,
                '$' => self.dollar(&mut word, false)?,
                '`' => self.backquote(&mut word, false)?,
                '*' | '?' => {
                    self.at += 1;
                    word.push_gap(false);
                }
                '[' if open.is_none() && self.closes("]=", &[]) => {
                    return Err(ShellSyntaxError("it sets a part of a list"));
                }
                '[' if open.is_none() && self.closes("]", &[]) => open = self.opens(&mut word, false),
                '{' if open.is_none() && self.closes("}", &[",", ".."]) => open = self.opens(&mut word, true),
                '~' if begins => {
                    word.push_gap(false);
                    while self.peek().is_some_and(|c| !is_meta(c) && c != '/') {
                        self.at += 1;
                    }
                }
                c => {
                    self.at += 1;
                    word.push(c);
                }
            }
        }
        if let Some(at) = open {
            word.pieces.truncate(at + 1);
        }
        word.pieces = joined(std::mem::take(&mut word.pieces));
        let may_run = |text: &str| text.contains("$(") || text.contains('`');
        if word.quoted {
            for piece in &word.pieces {
                if let WordPiece::Text(text) = piece
                    && may_run(text)
                {
                    self.found.nested.push(text.clone());
                }
            }
        }
        Ok(word)
    }

    /// A gap that includes everything that follows in the word.
    fn opens(&mut self, word: &mut ShellWord, splits: bool) -> Option<usize> {
        self.at += 1;
        word.splits |= splits;
        word.pieces.push(WordPiece::Gap);
        Some(word.pieces.len() - 1)
    }

    /// Whether a bracket that is open here may be closed in this word, with one of these in between.
    fn closes(&self, close: &str, between: &[&str]) -> bool {
        let rest = self.text[self.at + 1..].iter().take_while(|c| !matches!(c, ' ' | '\t' | '\n'));
        let rest: String = rest.take(FAR).collect();
        let between = between.is_empty() || between.iter().any(|text| rest.contains(text));
        rest.len() >= FAR || (rest.contains(close) && between)
    }

    /// The rest of a single-quoted text.
    fn single(&mut self, word: &mut ShellWord) -> ParseResult<()> {
        loop {
            let Some(c) = self.text.get(self.at).copied() else {
                return Err(ShellSyntaxError("a quote in it is not closed"));
            };
            self.at += 1;
            if c == '\'' {
                return Ok(());
            }
            word.push(c);
        }
    }

    fn double(&mut self, word: &mut ShellWord) -> ParseResult<()> {
        self.at += 1;
        word.quoted = true;
        loop {
            match self.peek() {
                None => return Err(ShellSyntaxError("a quote in it is not closed")),
                Some('"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some('\\') => {
                    let next = self.text.get(self.at + 1).copied();
                    if !matches!(next, Some('$' | '`' | '"' | '\\')) {
                        word.push('\\');
                    }
                    next.into_iter().for_each(|c| word.push(c));
                    self.at += 2;
                }
                Some('$') => self.dollar(word, true)?,
                Some('`') => self.backquote(word, true)?,
                Some(c) => {
                    self.at += 1;
                    word.push(c);
                }
            }
        }
    }

    pub(super) fn dollar(&mut self, word: &mut ShellWord, in_double: bool) -> ParseResult<()> {
        self.at += 1;
        match self.peek() {
            Some('(') => {
                self.at += 1;
                if self.peek() != Some('(') {
                    self.deeper(|parser| parser.list(ListEnd::Paren))?;
                } else if let Some(end) = self.arithmetic_end() {
                    self.deeper(|parser| parser.expansions(end))?;
                    self.at = end;
                    self.eat(')');
                    self.eat(')');
                } else {
                    self.arithmetic += 1;
                    self.deeper(|parser| parser.list(ListEnd::Paren))?;
                    self.arithmetic -= 1;
                }
                word.push_gap(!in_double);
            }
            Some('{') => {
                self.at += 1;
                self.deeper(|parser| parser.parameter(in_double))?;
                word.push_gap(!in_double);
            }
            Some('\'') if !in_double => self.escaped_text(word)?,
            Some('"') if !in_double => self.double(word)?,
            Some(c) if c.is_ascii_alphabetic() || c == '_' => {
                while self.peek().is_some_and(|c| c.is_ascii_alphanumeric() || c == '_') {
                    self.at += 1;
                }
                word.push_gap(!in_double);
            }
            Some(c) if c.is_ascii_digit() || matches!(c, '@' | '*' | '#' | '?' | '$' | '!' | '-') => {
                self.at += 1;
                word.push_gap(c == '@' || (!in_double && !matches!(c, '#' | '?' | '$')));
            }
            _ => word.push('$'),
        }
        Ok(())
    }

    /// The position of the `))` that ends the arithmetic that starts here, if it is arithmetic.
    fn arithmetic_end(&mut self) -> Option<usize> {
        let mut open = 1;
        for at in self.at..self.text.len() {
            match self.text[at] {
                '(' => open += 1,
                ')' => open -= 1,
                '\'' | '"' | '\\' | '#' | ';' => return None,
                _ => {}
            }
            if open == 1 {
                return (self.text.get(at + 1) == Some(&')')).then_some(at);
            }
        }
        None
    }

    /// The rest of `${…}`.
    fn parameter(&mut self, in_double: bool) -> ParseResult<()> {
        let mut unused = ShellWord::default();
        loop {
            match self.peek() {
                None => return Err(ShellSyntaxError("a '${' in it is not closed")),
                Some('}') => {
                    self.at += 1;
                    return Ok(());
                }
                Some('\\') => self.at += 2,
                Some('\'' | '"') if in_double => {
                    return Err(ShellSyntaxError("it has quotes in a '${' that shells read differently"));
                }
                Some('\'') => {
                    self.at += 1;
                    self.single(&mut unused)?;
                }
                Some('"') => self.double(&mut unused)?,
                Some('$') => self.dollar(&mut unused, in_double)?,
                Some('`') => self.backquote(&mut unused, in_double)?,
                Some('@') if self.ahead(3) == "@P}" => {
                    return Err(ShellSyntaxError(
                        "it expands a variable as a prompt, which runs what is in it",
                    ));
                }
                Some(_) => self.at += 1,
            }
        }
    }

    pub(super) fn backquote(&mut self, word: &mut ShellWord, in_double: bool) -> ParseResult<()> {
        self.at += 1;
        let mut text = String::new();
        loop {
            let Some(c) = self.text.get(self.at).copied() else {
                return Err(ShellSyntaxError("a backquote in it is not closed"));
            };
            self.at += 1;
            match c {
                '`' => break,
                '\\' => {
                    let next = self.text.get(self.at).copied();
                    let taken = matches!(next, Some('`' | '\\' | '$')) || (in_double && next == Some('"'));
                    if !taken {
                        text.push('\\');
                    }
                    text.extend(next);
                    self.at += 1;
                }
                c => text.push(c),
            }
        }
        self.inside(&text, |inner| inner.list(ListEnd::Text).map(drop))?;
        word.push_gap(!in_double);
        Ok(())
    }

    /// `$'…'`: one shell expands its escapes, another reads a `$` and a quoted text.
    fn escaped_text(&mut self, word: &mut ShellWord) -> ParseResult<()> {
        self.at += 1;
        word.quoted = true;
        loop {
            let Some(c) = self.text.get(self.at).copied() else {
                return Err(ShellSyntaxError("a quote in it is not closed"));
            };
            self.at += 1;
            match c {
                '\'' => return Ok(()),
                '\\' => {
                    if self.text.get(self.at) == Some(&'\'') {
                        return Err(ShellSyntaxError(
                            "it has a quote in \"$'\" that shells read differently",
                        ));
                    }
                    self.escape(word);
                }
                c => word.push(c),
            }
        }
    }

    /// The character with this number.
    fn code(&mut self, radix: u32, most: usize, from: usize) -> Option<char> {
        let digits: String = self.text[from..].iter().take(most).take_while(|c| c.is_digit(radix)).collect();
        self.at = from + digits.len();
        u32::from_str_radix(&digits, radix).ok().and_then(char::from_u32)
    }

    fn escape(&mut self, word: &mut ShellWord) {
        let Some(c) = self.text.get(self.at).copied() else { return };
        self.at += 1;
        let from = self.at;
        let made = match c {
            'n' => Some('\n'),
            't' => Some('\t'),
            'r' => Some('\r'),
            'a' => Some('\x07'),
            'b' => Some('\x08'),
            'e' | 'E' => Some('\x1b'),
            'f' => Some('\x0c'),
            'v' => Some('\x0b'),
            'x' => self.code(16, 2, from),
            'u' => self.code(16, 4, from),
            'U' => self.code(16, 8, from),
            '0'..='7' => self.code(8, 3, from - 1),
            'c' => {
                self.at += 1;
                None
            }
            c => Some(c),
        };
        match made {
            Some(c) => word.push(c),
            None => word.push_gap(false),
        }
    }
}

/// Removes empty pieces, and joins adjacent texts.
pub(super) fn joined(pieces: Vec<WordPiece>) -> Vec<WordPiece> {
    let mut all: Vec<WordPiece> = Vec::with_capacity(pieces.len());
    for piece in pieces {
        match (all.last_mut(), piece) {
            (_, WordPiece::Text(text)) if text.is_empty() => {}
            (Some(WordPiece::Text(before)), WordPiece::Text(text)) => before.push_str(&text),
            (Some(WordPiece::Gap), WordPiece::Gap) => {}
            (_, piece) => all.push(piece),
        }
    }
    all
}
