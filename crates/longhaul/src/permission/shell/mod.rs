//! Reads a command line as a shell does, to know every command that it would run.
//!
//! The reading is for rules that deny or ask, so it errs on one side: it finds more commands than there are rather than
//! fewer, follows `dash` and `bash` where the two differ, and says so when a line cannot be brought to plain words.
//! Whatever is hostile about a line costs time in proportion to its length.

mod parse;
mod programs;
mod scripts;
mod words;

/// The longest line that is read, in bytes.
const LONGEST: usize = 64 * 1024;
/// How deep commands are looked for in commands.
const DEEPEST: usize = 24;
/// How many commands of a line are looked at.
const MOST: usize = 4000;

/// A part of a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    /// This text.
    Text(String),
    /// Nobody knows what before it runs.
    Gap,
}

/// A word of a command, without its quotes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) pieces: Vec<Piece>,
    /// Whether a gap in it may turn out to be several words, or none.
    splits: bool,
    /// Whether any of it was quoted.
    quoted: bool,
}

impl Word {
    fn text(text: &str) -> Word {
        Word { pieces: vec![Piece::Text(text.to_owned())], ..Word::default() }
    }

    fn gap() -> Word {
        Word { pieces: vec![Piece::Gap], splits: true, quoted: false }
    }

    fn push(&mut self, c: char) {
        match self.pieces.last_mut() {
            Some(Piece::Text(text)) => text.push(c),
            _ => self.pieces.push(Piece::Text(c.to_string())),
        }
    }

    fn push_gap(&mut self, splits: bool) {
        self.splits |= splits;
        if self.pieces.last() != Some(&Piece::Gap) {
            self.pieces.push(Piece::Gap);
        }
    }

    /// The text, if all of it is known.
    fn known(&self) -> Option<&str> {
        match self.pieces.as_slice() {
            [] => Some(""),
            [Piece::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// What it begins with.
    fn start(&self) -> &str {
        match self.pieces.first() {
            Some(Piece::Text(text)) => text,
            _ => "",
        }
    }

    /// The name of the program that it is, if that is known: what follows the last `/`.
    pub(super) fn program(&self) -> Option<&str> {
        match self.pieces.last() {
            Some(Piece::Text(text)) => match text.rsplit_once('/') {
                Some((_, name)) if !self.splits && !name.is_empty() => Some(name),
                _ => self.known(),
            },
            _ => self.known(),
        }
    }
}

/// A command that a line runs, or may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Command {
    pub(super) words: Vec<Word>,
    /// Whether it is certainly run as a command, as far as the line says.
    pub(super) sure: bool,
}

/// What a line runs.
#[derive(Debug, Default)]
pub(super) struct Line {
    pub(super) commands: Vec<Command>,
    /// Why it may run other commands than these.
    pub(super) unclear: Option<String>,
}

impl Line {
    fn unclear(&mut self, why: impl Into<String>) {
        self.unclear.get_or_insert_with(|| why.into());
    }
}

/// Reads a command line.
pub(super) fn read(line: &str) -> Line {
    let mut found = Line::default();
    read_into(line, &mut found, 0, true);
    found
}

fn read_into(line: &str, found: &mut Line, depth: usize, sure: bool) {
    if line.len() > LONGEST || depth > DEEPEST {
        return found.unclear("it is too long, or too deeply nested, to be read");
    }
    let mut parsed = parse::Found::default();
    if let Err(why) = parse::parse(line, depth, &mut parsed)
        && sure
    {
        found.unclear(why);
    }
    for command in parsed.commands {
        programs::look(command, found, depth, sure);
    }
    for text in parsed.aside {
        read_into(&text, found, depth + 1, false);
    }
}
