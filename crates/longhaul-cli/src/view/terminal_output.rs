//! The output stream: its width, and whether it supports colours.

use std::io::{IsTerminal as _, Write};

use anstyle::{AnsiColor, Style};
use longhaul::Status;
use longhaul::task::TaskState;

use super::text_format;
use crate::exit::CliError;
use longhaul::transcript::{Standing, Tone, escape_invisible_json};

/// Stdout or stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum OutputStream {
    #[default]
    Stdout,
    Stderr,
}

impl OutputStream {
    fn is_terminal(self) -> bool {
        match self {
            OutputStream::Stdout => std::io::stdout().is_terminal(),
            OutputStream::Stderr => std::io::stderr().is_terminal(),
        }
    }

    /// Writes the text, and returns when the reader has taken it.
    pub(crate) async fn write_when_read(self, text: String) -> std::io::Result<()> {
        // On a separate thread, so that a slow reader blocks nothing else.
        tokio::task::spawn_blocking(move || self.write(&text))
            .await
            .unwrap_or_else(|error| Err(std::io::Error::other(error)))
    }

    /// Writes the text at once.
    pub(super) fn write(self, text: &str) -> std::io::Result<()> {
        let all = |mut out: Box<dyn Write>| out.write_all(text.as_bytes()).and_then(|()| out.flush());
        match self {
            OutputStream::Stdout => all(Box::new(std::io::stdout().lock())),
            OutputStream::Stderr => all(Box::new(std::io::stderr().lock())),
        }
    }
}

/// The properties of an output stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TerminalOutput {
    pub(crate) stream: OutputStream,
    /// Whether to use colours.
    pub(crate) color: bool,
    /// Whether lines can be redrawn.
    pub(crate) live: bool,
}

impl TerminalOutput {
    /// Detects the properties of a stream.
    pub(crate) fn for_stream(out: OutputStream) -> TerminalOutput {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let choice = match out {
            OutputStream::Stdout => anstream::AutoStream::choice(&std::io::stdout()),
            OutputStream::Stderr => anstream::AutoStream::choice(&std::io::stderr()),
        };
        let color = choice != anstream::ColorChoice::Never;
        TerminalOutput { stream: out, color, live: out.is_terminal() && (cfg!(windows) || !dumb) }
    }

    /// Returns columns and rows. Large values if the stream is not a terminal.
    pub(crate) fn size(self) -> (usize, usize) {
        let size = match self.stream {
            OutputStream::Stdout => terminal_size::terminal_size_of(std::io::stdout()),
            OutputStream::Stderr => terminal_size::terminal_size_of(std::io::stderr()),
        };
        size.map_or((200, 1000), |(width, height)| {
            (usize::from(width.0).max(20), usize::from(height.0).max(4))
        })
    }

    /// Wraps a text to the width of the terminal. Does nothing if the stream is not a terminal.
    pub(crate) fn wrap(self, text: &str) -> String {
        if self.stream.is_terminal() { text_format::wrap_text(text, self.size().0) } else { text.to_owned() }
    }

    /// Does the same as `wrap`, with some columns taken by something else.
    pub(crate) fn wrap_within(self, text: &str, taken: usize) -> String {
        match self.stream.is_terminal() {
            true => text_format::wrap_text(text, self.size().0.saturating_sub(taken)),
            false => text.to_owned(),
        }
    }

    /// Colours a text.
    pub(crate) fn paint(self, ink: Ink, text: &str) -> String {
        if !self.color || text.is_empty() {
            return text.to_owned();
        }
        let style = ink.style();
        format!("{style}{text}{style:#}")
    }

    /// Writes a line.
    pub(crate) fn print_line(self, text: &str) -> Result<(), CliError> {
        Ok(self.stream.write(&format!("{text}\n"))?)
    }

    /// Writes several lines at once.
    pub(crate) fn print_lines(self, lines: &[String]) -> Result<(), CliError> {
        match lines {
            [] => Ok(()),
            lines => self.print_line(&lines.join("\n")),
        }
    }

    /// Writes a value to stdout as a line of JSON, with the version of its format.
    pub(crate) fn print_json(self, value: &impl serde::Serialize) -> Result<(), CliError> {
        TerminalOutput { stream: OutputStream::Stdout, ..self }
            .print_line(&TerminalOutput::to_json_line(value)?)
    }

    /// Returns a value as a line of JSON, with the version of its format.
    pub(crate) fn to_json_line(value: &impl serde::Serialize) -> Result<String, CliError> {
        #[derive(serde::Serialize)]
        struct Versioned<'a, T> {
            v: u8,
            #[serde(flatten)]
            value: &'a T,
        }
        Ok(escape_invisible_json(&serde_json::to_string(&Versioned { v: 1, value })?))
    }
}

/// The purpose of a colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ink {
    Plain,
    Strong,
    Faint,
    Id,
    Good,
    Bad,
    Busy,
    Attention,
}

impl Ink {
    fn style(self) -> Style {
        let color = |color: AnsiColor| color.on_default();
        match self {
            Ink::Plain => Style::new(),
            Ink::Strong => Style::new().bold(),
            Ink::Faint => Style::new().dimmed(),
            Ink::Id | Ink::Busy => color(AnsiColor::Cyan),
            Ink::Good => color(AnsiColor::Green),
            Ink::Bad => color(AnsiColor::Red).bold(),
            Ink::Attention => color(AnsiColor::Yellow),
        }
    }

    pub(crate) fn for_status(status: Status) -> Ink {
        match status {
            Status::Pending => Ink::Faint,
            Status::Running => Ink::Busy,
            Status::Completed => Ink::Good,
            Status::Failed => Ink::Bad,
            Status::Cancelled => Ink::Attention,
        }
    }
}

impl From<Tone> for Ink {
    fn from(tone: Tone) -> Ink {
        match tone {
            Tone::Plain => Ink::Plain,
            Tone::Strong => Ink::Strong,
            Tone::Faint => Ink::Faint,
            Tone::Busy => Ink::Busy,
            Tone::Attention => Ink::Attention,
            Tone::Status(status) => Ink::for_status(status),
        }
    }
}

pub(crate) fn status_glyph(status: Status) -> &'static str {
    match status {
        Status::Pending => "○",
        Status::Running => "●",
        Status::Completed => "✓",
        Status::Failed => "✗",
        Status::Cancelled => "⊘",
    }
}

/// Returns the glyph, the word and the ink for how a task stands.
pub(crate) fn status_label(state: &TaskState) -> (&'static str, &'static str, Ink) {
    let standing = Standing::of(state);
    let glyph = match standing {
        Standing::Asks => "?",
        Standing::Waiting => "◌",
        Standing::Interrupted => "◇",
        _ => status_glyph(state.status),
    };
    (glyph, standing.as_str(), standing.tone().into())
}
