//! Parses a command line like a shell, to find every command that it would run.
//!
//! The result is for rules that deny or ask, so it errs on the safe side: it finds too many commands rather
//! than too few, follows both `dash` and `bash` where they differ, and says so if a line cannot be reduced to
//! plain words. Even for a hostile line, the time is proportional to its length.

mod parse;
mod programs;
mod scripts;
mod words;

/// The longest line that is parsed, in bytes.
const LONGEST: usize = 64 * 1024;
/// How deep nested commands are searched.
const DEEPEST: usize = 24;
/// How many commands of a line are checked.
const MOST: usize = 4000;

/// A part of a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum WordPiece {
    /// This text.
    Text(String),
    /// Unknown before it runs.
    Gap,
}

/// A word of a command, without its quotes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ShellWord {
    pub(super) pieces: Vec<WordPiece>,
    /// Whether a gap in it may become several words, or none.
    splits: bool,
    /// Whether any of it was quoted.
    quoted: bool,
}

impl ShellWord {
    fn text(text: &str) -> ShellWord {
        ShellWord { pieces: vec![WordPiece::Text(text.to_owned())], ..ShellWord::default() }
    }

    fn gap() -> ShellWord {
        ShellWord { pieces: vec![WordPiece::Gap], splits: true, quoted: false }
    }

    fn push(&mut self, c: char) {
        match self.pieces.last_mut() {
            Some(WordPiece::Text(text)) => text.push(c),
            _ => self.pieces.push(WordPiece::Text(c.to_string())),
        }
    }

    fn push_gap(&mut self, splits: bool) {
        self.splits |= splits;
        if self.pieces.last() != Some(&WordPiece::Gap) {
            self.pieces.push(WordPiece::Gap);
        }
    }

    /// The text, if all of it is known.
    fn known(&self) -> Option<&str> {
        match self.pieces.as_slice() {
            [] => Some(""),
            [WordPiece::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The known start of it.
    fn start(&self) -> &str {
        match self.pieces.first() {
            Some(WordPiece::Text(text)) => text,
            _ => "",
        }
    }

    /// The name of the program, if it is known: the part after the last `/`.
    pub(super) fn program(&self) -> Option<&str> {
        match self.pieces.last() {
            Some(WordPiece::Text(text)) => match text.rsplit_once('/') {
                Some((_, name)) if !self.splits && !name.is_empty() => Some(name),
                _ => self.known(),
            },
            _ => self.known(),
        }
    }
}

/// A command that a line runs, or may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ShellCommand {
    pub(super) words: Vec<ShellWord>,
    /// Whether it certainly runs as a command, as far as the line says.
    pub(super) sure: bool,
}

/// The commands of a line.
#[derive(Debug, Default)]
pub(super) struct CommandLine {
    pub(super) commands: Vec<ShellCommand>,
    /// Why it may run other commands than these.
    pub(super) unclear: Option<String>,
}

impl CommandLine {
    fn unclear(&mut self, why: impl Into<String>) {
        self.unclear.get_or_insert_with(|| why.into());
    }
}

pub(super) fn parse_command_line(line: &str) -> CommandLine {
    let mut found = CommandLine::default();
    collect_line(line, &mut found, 0, true);
    found
}

fn collect_line(line: &str, found: &mut CommandLine, depth: usize, sure: bool) {
    if line.len() > LONGEST || depth > DEEPEST {
        return found.unclear("it is too long, or too deeply nested, to be read");
    }
    let mut parsed = parse::ParsedCommands::default();
    if let Err(why) = parse::parse(line, depth, &mut parsed)
        && sure
    {
        found.unclear(why.to_string());
    }
    for command in parsed.commands {
        programs::collect_command(command, found, depth, sure);
    }
    for text in parsed.nested {
        collect_line(&text, found, depth + 1, false);
    }
}
