//! Renders blocks of a transcript.

use jiff::Timestamp;
use longhaul::entry::Sender;
use longhaul::id::Seq;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::graphemes::{grapheme_width, truncate_graphemes, wrap_graphemes};
use super::theme::Theme;
use super::transcript::{TranscriptBlock, TranscriptBlockKind, TuiCallResult};
use crate::view::markdown::{self, SyntaxHighlighter, stable_prefix_len};
use crate::view::text_format::{format_clock, format_duration, pluralize};
use crate::view::{Ink, status_glyph};

/// How many lines of an unfolded output to show.
const OUTPUT_LINES: usize = 200;
/// How many lines of a folded letter to show.
const LETTER_LINES: usize = 3;

/// The width and theme to render with.
#[derive(Clone, Copy)]
pub(crate) struct BlockRenderer<'a> {
    pub(crate) theme: Theme,
    pub(crate) highlighter: &'a SyntaxHighlighter,
    pub(crate) columns: usize,
    pub(crate) now: Timestamp,
}

impl BlockRenderer<'_> {
    /// Wraps a text.
    pub(crate) fn wrapped(self, ink: Ink, text: &str) -> Vec<Line<'static>> {
        self.hanging("", Style::new(), self.theme.ink(ink), text)
    }

    /// Wraps a text with a prefix on the first line, and the same indent on the others.
    fn hanging(self, before: &str, sign: Style, style: Style, text: &str) -> Vec<Line<'static>> {
        let hang = grapheme_width(before);
        let line = |(index, text): (usize, String)| {
            let before = if index == 0 { before.to_owned() } else { " ".repeat(hang) };
            Line::from(vec![Span::styled(before, sign), Span::styled(text, style)])
        };
        wrap_graphemes(text, self.columns.saturating_sub(hang)).into_iter().enumerate().map(line).collect()
    }

    /// Renders Markdown.
    pub(crate) fn markdown_lines(self, text: &str) -> Vec<Line<'static>> {
        let line = |spans: Vec<markdown::MarkdownSpan>| {
            spans
                .into_iter()
                .map(|span| Span::styled(span.text, self.theme.convert_style(span.style)))
                .collect::<Line<'static>>()
        };
        markdown::render_spans(text, self.columns, self.highlighter).into_iter().map(line).collect()
    }
}

/// The layout of a streaming reply. Parts that can no longer change are laid out once.
#[derive(Debug, Clone, Default)]
pub(crate) struct LiveReplyLayout {
    /// The block, and its width.
    of: Option<(Seq, usize)>,
    /// How much of its text is laid out for good.
    settled: usize,
    lines: Vec<Line<'static>>,
}

impl LiveReplyLayout {
    fn layout(&mut self, seq: Seq, text: &str, renderer: BlockRenderer<'_>) -> Vec<Line<'static>> {
        let of = Some((seq, renderer.columns));
        if self.of != of || !text.is_char_boundary(self.settled) {
            *self = LiveReplyLayout { of, ..LiveReplyLayout::default() };
        }
        let more = stable_prefix_len(&text[self.settled..]);
        let (lines, rest) = (&mut self.lines, &text[self.settled..]);
        append_part(lines, renderer.markdown_lines(&rest[..more]));
        self.settled += more;
        let mut lines = self.lines.clone();
        append_part(&mut lines, renderer.markdown_lines(&rest[more..]));
        lines
    }
}

/// Appends a part, with an empty line before it.
fn append_part(lines: &mut Vec<Line<'static>>, more: Vec<Line<'static>>) {
    if !lines.is_empty() && !more.is_empty() {
        lines.push(Line::default());
    }
    lines.extend(more);
}

/// Renders a block of the transcript.
pub(crate) fn transcript_lines(
    block: &TranscriptBlock,
    opened: bool,
    renderer: BlockRenderer<'_>,
    growing: &mut LiveReplyLayout,
) -> Vec<Line<'static>> {
    let ink = |ink| renderer.theme.ink(ink);
    let gap = || vec![Line::default()];
    match &block.kind {
        TranscriptBlockKind::Order { text } => renderer.hanging("› ", ink(Ink::Id), ink(Ink::Strong), text),
        TranscriptBlockKind::Text { text, live: true } => {
            [gap(), growing.layout(block.seq, text, renderer)].concat()
        }
        TranscriptBlockKind::Text { text, .. } => [gap(), renderer.markdown_lines(text)].concat(),
        TranscriptBlockKind::Thought { text, live } => {
            let lines = renderer.hanging("~ ", ink(Ink::Faint), ink(Ink::Faint), text.trim());
            match (opened, live) {
                (true, _) => lines,
                // Show the end: the current thought is the most interesting.
                (false, true) => lines[lines.len().saturating_sub(3)..].to_vec(),
                (false, false) => {
                    let text =
                        truncate_graphemes(&crate::view::one_line(text), renderer.columns.saturating_sub(2));
                    renderer.hanging("~ ", ink(Ink::Faint), ink(Ink::Faint), &text)
                }
            }
        }
        TranscriptBlockKind::Call { summary, arguments, progress, result, .. } => {
            let mut lines =
                vec![call_line(block, summary, progress.as_deref(), result.as_ref(), opened, renderer)];
            if opened {
                let part = |ink, text: &str| {
                    let inner = BlockRenderer { columns: renderer.columns.saturating_sub(4), ..renderer };
                    let mut lines = inner.wrapped(ink, text.trim_end());
                    if lines.len() > OUTPUT_LINES {
                        let more = lines.len() - OUTPUT_LINES;
                        lines.truncate(OUTPUT_LINES);
                        lines.push(Line::styled(
                            format!("… {more} more lines"),
                            renderer.theme.ink(Ink::Faint),
                        ));
                    }
                    lines.into_iter().map(|mut line| {
                        line.spans.insert(0, Span::raw("    "));
                        line
                    })
                };
                if !arguments.is_empty() {
                    lines.extend(part(Ink::Faint, arguments));
                }
                if let Some(got) = result {
                    lines.extend(part(if got.is_error { Ink::Bad } else { Ink::Plain }, &got.text));
                }
            }
            lines
        }
        TranscriptBlockKind::Letter { from, text, .. } => {
            let mut lines = renderer.hanging(
                "» ",
                ink(Ink::Attention),
                ink(Ink::Plain),
                &format!("{}: {text}", sender(from)),
            );
            if !opened && lines.len() > LETTER_LINES {
                let more = lines.len() - LETTER_LINES;
                lines.truncate(LETTER_LINES);
                lines.push(Line::styled(format!("  … {}", pluralize(more, "more line")), ink(Ink::Faint)));
            }
            [gap(), lines].concat()
        }
        TranscriptBlockKind::Asked { text, answer, .. } => {
            let mut lines = gap();
            lines.extend(renderer.hanging("? ", ink(Ink::Attention), ink(Ink::Attention), text));
            if let Some(answer) = answer {
                lines.extend(renderer.hanging("  → ", ink(Ink::Faint), ink(Ink::Plain), answer));
            }
            lines
        }
        TranscriptBlockKind::Note { minor: true, .. } => Vec::new(),
        TranscriptBlockKind::Note { ink: of, text, .. } => {
            renderer.hanging("· ", ink(Ink::Faint), ink(*of), text)
        }
        TranscriptBlockKind::End { status, error } => {
            let text = match error {
                Some(error) => format!("{status}: {error}"),
                None => status.to_string(),
            };
            let style = ink(Ink::for_status(*status));
            [gap(), renderer.hanging(&format!("{} ", status_glyph(*status)), style, style, &text)].concat()
        }
    }
}

fn call_line(
    block: &TranscriptBlock,
    summary: &str,
    progress: Option<&str>,
    result: Option<&TuiCallResult>,
    opened: bool,
    renderer: BlockRenderer<'_>,
) -> Line<'static> {
    let ink = |ink| renderer.theme.ink(ink);
    let (end, style) = match (result, progress) {
        (Some(got), _) => {
            let took = std::time::Duration::try_from(got.at.duration_since(block.at)).unwrap_or_default();
            match got.is_error {
                true => (format!("✗ {}", format_duration(took)), ink(Ink::Bad)),
                false => {
                    (format!("{} {}", pluralize(got.lines, "line"), format_duration(took)), ink(Ink::Faint))
                }
            }
        }
        (None, Some(progress)) => {
            (format!("… {}", truncate_graphemes(progress, renderer.columns / 3)), ink(Ink::Busy))
        }
        (None, None) => ("…".to_owned(), ink(Ink::Busy)),
    };
    let room = renderer.columns.saturating_sub(grapheme_width(&end) + 4);
    let summary = truncate_graphemes(summary, room);
    let gap = room - grapheme_width(&summary).min(room) + 2;
    // The tool's name has another style than its arguments.
    let (name, rest) = summary.split_at(summary.find('(').unwrap_or(summary.len()));
    Line::from(vec![
        Span::styled(if opened { "▾ " } else { "▸ " }, ink(Ink::Faint)),
        Span::styled(name.to_owned(), ink(Ink::Id)),
        Span::styled(rest.to_owned(), Style::new()),
        Span::raw(" ".repeat(gap)),
        Span::styled(end, style),
    ])
}

/// Returns the sender of a letter.
fn sender(from: &Sender) -> String {
    match from {
        Sender::Person => "you".to_owned(),
        Sender::Task(id) => id.to_string(),
        Sender::System => "longhaul".to_owned(),
    }
}

/// Renders a whole letter.
pub(crate) fn letter_lines(block: &TranscriptBlock, renderer: BlockRenderer<'_>) -> Vec<Line<'static>> {
    let TranscriptBlockKind::Letter { from, text, read, .. } = &block.kind else { return Vec::new() };
    let (sent, from) = (format!("{} ", format_clock(block.at)), format!("from {}", sender(from)));
    // Show whether the task has read it, and when if there is room.
    let (read, ink) = match read {
        Some(at) => (format!(" · read by the task at {}", format_clock(*at)), Ink::Faint),
        None => (" · not read yet".to_owned(), Ink::Attention),
    };
    let fits = grapheme_width(&sent) + grapheme_width(&from) + grapheme_width(&read) <= renderer.columns;
    let read = if fits || ink == Ink::Attention { read } else { " · read".to_owned() };
    let mut lines = vec![Line::from(vec![
        Span::styled(sent, renderer.theme.ink(Ink::Faint)),
        Span::styled(from, renderer.theme.ink(Ink::Strong)),
        Span::styled(read, renderer.theme.ink(ink)),
    ])];
    lines.extend(renderer.wrapped(Ink::Plain, text));
    lines.push(Line::default());
    lines
}

/// Renders a block as a line with its time.
pub(crate) fn timeline_lines(
    block: &TranscriptBlock,
    before: Option<Timestamp>,
    renderer: BlockRenderer<'_>,
) -> Vec<Line<'static>> {
    let (ink, text) = match &block.kind {
        TranscriptBlockKind::Order { text } => (Ink::Strong, format!("submitted  {text}")),
        TranscriptBlockKind::Text { text, .. } => (Ink::Plain, format!("said  {text}")),
        TranscriptBlockKind::Thought { text, .. } => (Ink::Faint, format!("thought  {text}")),
        TranscriptBlockKind::Call { summary, result: Some(got), .. } if got.is_error => {
            (Ink::Bad, format!("{summary}  failed"))
        }
        TranscriptBlockKind::Call { summary, result: Some(got), .. } => {
            let took = std::time::Duration::try_from(got.at.duration_since(block.at)).unwrap_or_default();
            (Ink::Id, format!("{summary}  {}", format_duration(took)))
        }
        TranscriptBlockKind::Call { summary, .. } => (Ink::Busy, format!("{summary}  …")),
        TranscriptBlockKind::Letter { from, text, .. } => {
            (Ink::Plain, format!("letter from {}  {text}", sender(from)))
        }
        TranscriptBlockKind::Asked { text, answer: Some(answer), .. } => {
            (Ink::Plain, format!("asked  {text}  {answer}"))
        }
        TranscriptBlockKind::Asked { text, .. } => (Ink::Attention, format!("asks  {text}")),
        TranscriptBlockKind::Note { ink, text, .. } => (*ink, text.clone()),
        TranscriptBlockKind::End { status, error } => (
            Ink::for_status(*status),
            format!("{status}{}", error.as_ref().map(|e| format!(": {e}")).unwrap_or_default()),
        ),
    };
    let since = before.and_then(|before| std::time::Duration::try_from(block.at.duration_since(before)).ok());
    let since = since.map(|since| format!("+{}", format_duration(since))).unwrap_or_default();
    let start: String = text.chars().take(2000).collect();
    let room = renderer.columns.saturating_sub(17);
    vec![Line::from(vec![
        Span::styled(format!("{} {since:>6}  ", format_clock(block.at)), renderer.theme.ink(Ink::Faint)),
        Span::styled(truncate_graphemes(&crate::view::one_line(&start), room), renderer.theme.ink(ink)),
    ])]
}
