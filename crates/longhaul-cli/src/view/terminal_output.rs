//! The terminal we write to: how wide it is, and whether it takes colours.

use std::io::{IsTerminal as _, Write};

use anstyle::{AnsiColor, Style};
use longhaul::Status;
use longhaul::task::TaskState;

use super::sanitize::escape_invisible_json;
use super::text_format;
use crate::exit::CliError;

/// Which of our two outputs.
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

    /// Writes all of it, as soon as somebody reads it.
    pub(crate) async fn write_when_read(self, text: String) -> std::io::Result<()> {
        // On a thread of its own: a reader who does not read holds up that one only.
        tokio::task::spawn_blocking(move || self.write(&text))
            .await
            .unwrap_or_else(|error| Err(std::io::Error::other(error)))
    }

    /// Writes all of it at once.
    pub(super) fn write(self, text: &str) -> std::io::Result<()> {
        let all = |mut out: Box<dyn Write>| out.write_all(text.as_bytes()).and_then(|()| out.flush());
        match self {
            OutputStream::Stdout => all(Box::new(std::io::stdout().lock())),
            OutputStream::Stderr => all(Box::new(std::io::stderr().lock())),
        }
    }
}

/// What an output is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TerminalOutput {
    /// Which.
    pub(crate) stream: OutputStream,
    /// Whether colours are wanted.
    pub(crate) color: bool,
    /// Whether lines can be drawn over.
    pub(crate) live: bool,
}

impl TerminalOutput {
    /// An output as it is.
    pub(crate) fn for_stream(out: OutputStream) -> TerminalOutput {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let choice = match out {
            OutputStream::Stdout => anstream::AutoStream::choice(&std::io::stdout()),
            OutputStream::Stderr => anstream::AutoStream::choice(&std::io::stderr()),
        };
        let color = choice != anstream::ColorChoice::Never;
        TerminalOutput { stream: out, color, live: out.is_terminal() && (cfg!(windows) || !dumb) }
    }

    /// How many columns and rows there are; of what is not a terminal, many.
    pub(crate) fn size(self) -> (usize, usize) {
        let size = match self.stream {
            OutputStream::Stdout => terminal_size::terminal_size_of(std::io::stdout()),
            OutputStream::Stderr => terminal_size::terminal_size_of(std::io::stderr()),
        };
        size.map_or((200, 1000), |(width, height)| {
            (usize::from(width.0).max(20), usize::from(height.0).max(4))
        })
    }

    /// How many columns a text may have; where nobody counts them, no bound.
    pub(crate) fn wrap(self, text: &str) -> String {
        if self.stream.is_terminal() { text_format::wrap_text(text, self.size().0) } else { text.to_owned() }
    }

    /// The same, where so many columns are taken by something else.
    pub(crate) fn wrap_within(self, text: &str, taken: usize) -> String {
        match self.stream.is_terminal() {
            true => text_format::wrap_text(text, self.size().0.saturating_sub(taken)),
            false => text.to_owned(),
        }
    }

    /// The text in an ink.
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

    /// Writes lines, all at once.
    pub(crate) fn print_lines(self, lines: &[String]) -> Result<(), CliError> {
        match lines {
            [] => Ok(()),
            lines => self.print_line(&lines.join("\n")),
        }
    }

    /// Writes a value as a line of JSON to standard output, with the version of the form it is in.
    pub(crate) fn print_json(self, value: &impl serde::Serialize) -> Result<(), CliError> {
        TerminalOutput { stream: OutputStream::Stdout, ..self }
            .print_line(&TerminalOutput::to_json_line(value)?)
    }

    /// A value as a line of JSON, with the version of the form it is in.
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

/// What a colour is for.
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

    /// The ink of a status.
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

/// The sign of a status.
pub(crate) fn status_glyph(status: Status) -> &'static str {
    match status {
        Status::Pending => "○",
        Status::Running => "●",
        Status::Completed => "✓",
        Status::Failed => "✗",
        Status::Cancelled => "⊘",
    }
}

/// The word for where a task stands, and its ink. A running task that waits says so, and so does one that ran before,
/// and that nobody runs now.
pub(crate) fn status_label(head: &TaskState) -> (&'static str, &'static str, Ink) {
    match (head.status, &head.waiting) {
        (Status::Running, _) if !head.asked.is_empty() => ("?", "asks", Ink::Attention),
        (Status::Running, Some(_)) => ("◌", "waiting", Ink::Attention),
        (Status::Running, None) if head.stop.is_some() => ("●", "stopping", Ink::Attention),
        (Status::Pending, _) if head.attempt.0 > 0 => ("◇", "interrupted", Ink::Attention),
        (status, _) => (status_glyph(status), status.as_str(), Ink::for_status(status)),
    }
}
