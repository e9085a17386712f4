//! The shell grammar, as far as needed to find commands and their words.

use super::words::joined;
use super::{DEEPEST, MOST, ShellWord, WordPiece};

/// A command as written: its assignments and its words.
#[derive(Debug, Default)]
pub(super) struct SimpleCommand {
    pub(super) sets: Vec<(String, ShellWord)>,
    pub(super) words: Vec<ShellWord>,
}

/// Where a list of commands ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ListEnd {
    Text,
    Paren,
    /// `;;` or `esac`.
    Arm,
}

/// What ended a list or a command.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ClosedBy {
    Esac,
    Other,
}

/// A here-document that starts after the next line break.
pub(super) struct HereDocument {
    end: String,
    tabs: bool,
    plain: bool,
}

pub(super) type ParseResult<T> = Result<T, ShellSyntaxError>;

/// Why a command line cannot be read with certainty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct ShellSyntaxError(pub(super) &'static str);

/// The parser's results.
#[derive(Debug, Default)]
pub(super) struct ParsedCommands {
    pub(super) commands: Vec<SimpleCommand>,
    /// Quoted texts that a shell may still evaluate.
    pub(super) nested: Vec<String>,
}

pub(super) struct ShellParser<'a> {
    pub(super) text: Vec<char>,
    pub(super) at: usize,
    depth: usize,
    pub(super) found: &'a mut ParsedCommands,
    here: Vec<HereDocument>,
    /// The nesting depth of `((`, which only some shells treat as arithmetic.
    pub(super) arithmetic: usize,
}

/// Parses all commands of a text. What was found before an error stays.
pub(super) fn parse(text: &str, depth: usize, found: &mut ParsedCommands) -> ParseResult<()> {
    if text.contains('\0') {
        return Err(ShellSyntaxError("it has a zero byte in it"));
    }
    let mut parser = ShellParser::new(text, depth, found);
    parser.list(ListEnd::Text)?;
    parser.documents_read()
}

/// Characters that are never part of a word.
pub(super) fn is_meta(c: char) -> bool {
    matches!(c, '|' | '&' | ';' | '(' | ')' | '<' | '>' | ' ' | '\t' | '\n')
}

fn is_name(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !text.is_empty() && !text.starts_with(|c: char| c.is_ascii_digit()) && text.chars().all(fits)
}

impl<'a> ShellParser<'a> {
    fn new(text: &str, depth: usize, found: &'a mut ParsedCommands) -> ShellParser<'a> {
        let text = text.chars().collect();
        ShellParser { text, at: 0, depth, found, here: Vec::new(), arithmetic: 0 }
    }

    /// The next character. A backslash before a line break is skipped, together with the line break.
    pub(super) fn peek(&mut self) -> Option<char> {
        while self.text.get(self.at) == Some(&'\\') && self.text.get(self.at + 1) == Some(&'\n') {
            self.at += 2;
        }
        self.text.get(self.at).copied()
    }

    pub(super) fn eat(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        self.at += usize::from(found);
        found
    }

    /// The next characters, without line continuations.
    pub(super) fn ahead(&mut self, count: usize) -> String {
        let from = self.at;
        let mut ahead = String::new();
        while ahead.len() < count
            && let Some(c) = self.peek()
        {
            ahead.push(c);
            self.at += 1;
        }
        self.at = from;
        ahead
    }

    fn blanks(&mut self) {
        while self.eat(' ') || self.eat('\t') {}
        if self.peek() == Some('#') {
            while self.text.get(self.at).is_some_and(|c| *c != '\n') {
                self.at += 1;
            }
        }
    }

    /// Skips blanks and line breaks.
    fn space(&mut self) -> ParseResult<()> {
        loop {
            self.blanks();
            if !self.eat('\n') {
                return Ok(());
            }
            for here in std::mem::take(&mut self.here) {
                self.document(&here)?;
            }
        }
    }

    fn documents_read(&self) -> ParseResult<()> {
        match self.here.is_empty() {
            true => Ok(()),
            false => Err(ShellSyntaxError("a here-document does not begin where it should")),
        }
    }

    pub(super) fn deeper<T>(&mut self, work: impl FnOnce(&mut Self) -> ParseResult<T>) -> ParseResult<T> {
        if self.depth >= DEEPEST {
            return Err(ShellSyntaxError("it is too deeply nested to be read"));
        }
        self.depth += 1;
        let done = work(self);
        self.depth -= 1;
        done
    }

    /// Parses another text, one level deeper.
    pub(super) fn inside(
        &mut self,
        text: &str,
        work: impl FnOnce(&mut ShellParser<'_>) -> ParseResult<()>,
    ) -> ParseResult<()> {
        if self.depth >= DEEPEST {
            return Err(ShellSyntaxError("it is too deeply nested to be read"));
        }
        let mut inner = ShellParser::new(text, self.depth + 1, self.found);
        work(&mut inner)?;
        inner.documents_read()
    }

    /// Parses commands up to and including an end.
    pub(super) fn list(&mut self, end: ListEnd) -> ParseResult<ClosedBy> {
        loop {
            self.space()?;
            match self.peek() {
                None if end == ListEnd::Text => return Ok(ClosedBy::Other),
                None => return Err(ShellSyntaxError("something in it is not closed")),
                Some(')') if end == ListEnd::Paren => {
                    self.at += 1;
                    return self.documents_read().map(|()| ClosedBy::Other);
                }
                Some(')') => return Err(ShellSyntaxError("it has a ')' too many")),
                Some(';') => {
                    self.at += 1;
                    if self.eat(';') || self.eat('&') {
                        self.eat('&');
                        if end == ListEnd::Arm {
                            return Ok(ClosedBy::Other);
                        }
                    }
                }
                Some('&') if self.ahead(2) == "&>" => {
                    self.command(end)?;
                }
                Some('|' | '&') => self.at += 1,
                Some('(') => {
                    self.at += 1;
                    let arithmetic = usize::from(self.peek() == Some('('));
                    self.arithmetic += arithmetic;
                    self.deeper(|parser| parser.list(ListEnd::Paren))?;
                    self.arithmetic -= arithmetic;
                }
                Some(_) => {
                    if self.command(end)? == ClosedBy::Esac {
                        return Ok(ClosedBy::Esac);
                    }
                }
            }
        }
    }

    /// Parses one command, or the words before one.
    fn command(&mut self, end: ListEnd) -> ParseResult<ClosedBy> {
        let mut simple = SimpleCommand::default();
        // Where one shell continues a command and another starts the next.
        let mut also = Vec::new();
        loop {
            self.blanks();
            match self.peek() {
                Some('&') if self.ahead(2) == "&>" => {
                    self.at += 1;
                    self.redirect(&mut simple)?;
                    also.push(simple.words.len());
                }
                None | Some('\n' | ';' | '|' | '&' | ')') => break,
                Some('<' | '>') => self.redirect(&mut simple)?,
                Some('(') if simple.words.len() == 1 && simple.sets.is_empty() => {
                    self.at += 1;
                    self.blanks();
                    return match self.eat(')') {
                        // A function body follows.
                        true => Ok(ClosedBy::Other),
                        false => Err(ShellSyntaxError("it has a '(' where none can be")),
                    };
                }
                Some('(') => return Err(ShellSyntaxError("it has a '(' where none can be")),
                Some(_) => {
                    let word = self.word()?;
                    let plain = word.known().filter(|_| !word.quoted).map(str::to_owned);
                    if plain.as_deref().is_some_and(is_descriptor) && matches!(self.peek(), Some('<' | '>')) {
                        continue;
                    }
                    let assigns = self.assignment(&word)?;
                    if simple.words.is_empty() {
                        if let Some(sets) = assigns {
                            simple.sets.extend(sets);
                            continue;
                        }
                        if let Some(plain) = plain.filter(|_| simple.sets.is_empty())
                            && let Some(closed) = self.reserved(&plain, end)?
                        {
                            return Ok(closed);
                        }
                    } else if let Some(sets) = assigns.filter(|sets| sets.len() > 1) {
                        simple.words.extend(sets.into_iter().map(|(_, value)| value));
                        continue;
                    }
                    simple.words.push(word);
                }
            }
        }
        for from in also.into_iter().filter(|from| *from < simple.words.len()) {
            self.keep(SimpleCommand { sets: Vec::new(), words: simple.words[from..].to_vec() })?;
        }
        self.keep(simple)?;
        Ok(ClosedBy::Other)
    }

    fn keep(&mut self, simple: SimpleCommand) -> ParseResult<()> {
        if simple.words.is_empty() && simple.sets.is_empty() {
            return Ok(());
        }
        if self.found.commands.len() >= MOST {
            return Err(ShellSyntaxError("it has too many commands to be read"));
        }
        self.found.commands.push(simple);
        Ok(())
    }

    /// The assignments of a word, if it may be one; all of a list.
    fn assignment(&mut self, word: &ShellWord) -> ParseResult<Option<Vec<(String, ShellWord)>>> {
        let Some((name, value)) = split_assignment(word) else { return Ok(None) };
        let mut sets = vec![(name.clone(), value)];
        if word.known().is_some_and(|text| text.ends_with('=')) && self.eat('(') {
            loop {
                self.space()?;
                match self.peek() {
                    None => return Err(ShellSyntaxError("a list in it is not closed")),
                    Some(')') => break self.at += 1,
                    Some(_) => {
                        let value = self.word_there()?;
                        sets.push((name.clone(), value));
                    }
                }
            }
            sets.push((name, ShellWord::default()));
        }
        Ok(Some(sets))
    }

    /// Handles a reserved word at the start of a command.
    fn reserved(&mut self, word: &str, end: ListEnd) -> ParseResult<Option<ClosedBy>> {
        match word {
            "if" | "then" | "else" | "elif" | "fi" | "do" | "done" | "while" | "until" | "!" | "{" | "}" => {}
            "esac" if end == ListEnd::Arm => return Ok(Some(ClosedBy::Esac)),
            "time" => {
                self.blanks();
                if self.ahead(1) == "-" {
                    return Ok(None);
                }
            }
            "for" | "select" => self.loop_words()?,
            "case" => self.arms()?,
            "function" => {
                self.blanks();
                self.word_there()?;
                self.blanks();
                if self.eat('(') {
                    self.blanks();
                    self.eat(')');
                }
            }
            "coproc" => self.coprocess_name()?,
            _ => return Ok(None),
        }
        Ok(Some(ClosedBy::Other))
    }

    /// Parses `for NAME`, and `in WORDS` if that follows.
    fn loop_words(&mut self) -> ParseResult<()> {
        self.blanks();
        if self.peek() == Some('(') {
            return Ok(());
        }
        self.word_there()?;
        self.space()?;
        let from = self.at;
        if self.peek().is_none_or(is_meta) || self.word()?.known() != Some("in") {
            self.at = from;
            return Ok(());
        }
        loop {
            self.blanks();
            match self.peek() {
                None | Some('\n' | ';' | '&') => return Ok(()),
                Some(_) => drop(self.word_there()?),
            }
        }
    }

    fn arms(&mut self) -> ParseResult<()> {
        self.blanks();
        self.word_there()?;
        self.space()?;
        if self.word_there()?.known() != Some("in") {
            return Err(ShellSyntaxError("a `case` in it has no `in`"));
        }
        loop {
            self.space()?;
            let open = self.eat('(');
            self.blanks();
            let first = self.word_there()?;
            if !open && !first.quoted && first.known() == Some("esac") {
                return Ok(());
            }
            loop {
                self.blanks();
                if self.eat(')') {
                    break;
                }
                if !self.eat('|') {
                    return Err(ShellSyntaxError("a `case` in it cannot be read"));
                }
                self.blanks();
                self.word_there()?;
            }
            if self.deeper(|parser| parser.list(ListEnd::Arm))? == ClosedBy::Esac {
                return Ok(());
            }
        }
    }

    /// Parses the name of a coprocess, which only appears before a compound command.
    fn coprocess_name(&mut self) -> ParseResult<()> {
        self.blanks();
        let from = self.at;
        if self.peek().is_none_or(is_meta) {
            return Ok(());
        }
        self.word()?;
        self.blanks();
        let name_ends = self.at;
        let compound = match self.peek() {
            Some('(') => true,
            Some(c) if !is_meta(c) => {
                let word = self.word()?;
                let words = ["{", "if", "while", "until", "for", "case", "select", "[["];
                word.known().is_some_and(|word| words.contains(&word))
            }
            _ => false,
        };
        self.at = if compound { name_ends } else { from };
        Ok(())
    }

    /// Parses `<`, `>` and what follows them.
    fn redirect(&mut self, simple: &mut SimpleCommand) -> ParseResult<()> {
        let reads = self.peek() == Some('<');
        self.at += 1;
        if self.eat('(') {
            self.deeper(|parser| parser.list(ListEnd::Paren))?;
            simple.words.push(ShellWord { pieces: vec![WordPiece::Gap], splits: false, quoted: true });
            return Ok(());
        }
        if reads && self.eat('<') {
            if !self.eat('<') {
                return self.document_begins();
            }
        } else if !(self.eat('&') || self.eat('>') || reads) {
            self.eat('|');
        }
        self.blanks();
        if matches!(self.ahead(2).as_str(), "<(" | ">(") {
            self.at += 2;
            return self.deeper(|parser| parser.list(ListEnd::Paren)).map(drop);
        }
        self.word_there().map(drop)
    }

    fn document_begins(&mut self) -> ParseResult<()> {
        if self.arithmetic > 0 {
            return Err(ShellSyntaxError("it has a '<<' that shells read differently"));
        }
        let tabs = self.eat('-');
        self.blanks();
        let (mut end, mut plain) = (String::new(), false);
        while let Some(c) = self.peek().filter(|c| !is_meta(*c)) {
            self.at += 1;
            match c {
                '\'' | '"' => {
                    plain = true;
                    loop {
                        match self.text.get(self.at) {
                            None | Some('\\' | '$' | '`') => return Err(unclear_document()),
                            Some(own) if *own == c => break self.at += 1,
                            Some(own) => end.push(*own),
                        }
                        self.at += 1;
                    }
                }
                '\\' => {
                    plain = true;
                    end.extend(self.text.get(self.at));
                    self.at += 1;
                }
                '$' | '`' => return Err(unclear_document()),
                c => end.push(c),
            }
        }
        if end.contains('\n') || (end.is_empty() && !plain) {
            return Err(unclear_document());
        }
        self.here.push(HereDocument { end, tabs, plain });
        Ok(())
    }

    fn document(&mut self, here: &HereDocument) -> ParseResult<()> {
        let mut body = String::new();
        loop {
            let rest = &self.text[self.at.min(self.text.len())..];
            if rest.is_empty() {
                break;
            }
            let long = rest.iter().position(|c| *c == '\n').unwrap_or(rest.len());
            let line: String = rest[..long].iter().collect();
            self.at += long + 1;
            let line = if here.tabs { line.trim_start_matches('\t') } else { &line };
            if line == here.end {
                break;
            }
            body.push_str(line);
            body.push('\n');
            if !here.plain && line.chars().rev().take_while(|c| *c == '\\').count() % 2 == 1 {
                return Err(unclear_document());
            }
        }
        self.at = self.at.min(self.text.len());
        if here.plain { Ok(()) } else { self.inside(&body, |inner| inner.expansions(usize::MAX)) }
    }

    /// Parses only expansions, up to a position.
    pub(super) fn expansions(&mut self, end: usize) -> ParseResult<()> {
        let mut unused = ShellWord::default();
        while self.at < end
            && let Some(c) = self.peek()
        {
            match c {
                '\\' => self.at += 2,
                '$' => self.dollar(&mut unused, true)?,
                '`' => self.backquote(&mut unused, true)?,
                _ => self.at += 1,
            }
        }
        Ok(())
    }
}

fn unclear_document() -> ShellSyntaxError {
    ShellSyntaxError("a here-document in it cannot be read")
}

/// The number of a descriptor before a redirection, or `{name}` for one.
fn is_descriptor(word: &str) -> bool {
    let named = word.strip_prefix('{').and_then(|word| word.strip_suffix('}'));
    (!word.is_empty() && word.chars().all(|c| c.is_ascii_digit())) || named.is_some_and(is_name)
}

/// The name and the value of an assignment, or of one in a list.
fn split_assignment(word: &ShellWord) -> Option<(String, ShellWord)> {
    let (first, rest) = word.pieces.split_first()?;
    let WordPiece::Text(text) = first else { return None };
    let of = |text: &str, rest: &[WordPiece]| {
        let mut pieces = vec![WordPiece::Text(text.to_owned())];
        pieces.extend_from_slice(rest);
        ShellWord { pieces: joined(pieces), splits: false, quoted: word.quoted }
    };
    if let Some((name, value)) = text.split_once('=') {
        let name = name.strip_suffix('+').unwrap_or(name);
        return is_name(name).then(|| (name.to_owned(), of(value, rest)));
    }
    None
}
