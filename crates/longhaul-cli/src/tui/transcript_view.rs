//! Renders blocks of a transcript.

use jiff::Timestamp;
use longhaul::id::Seq;
use longhaul::transcript::{
    CallOutput, ItemKind, Level, TranscriptItem, arguments_text, describe_end, describe_question,
    format_call, one_line, sanitize, sender,
};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::graphemes::{grapheme_width, truncate_graphemes, wrap_graphemes};
use super::theme::Theme;
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

pub(crate) fn transcript_lines(
    item: &TranscriptItem,
    opened: bool,
    renderer: BlockRenderer<'_>,
    growing: &mut LiveReplyLayout,
) -> Vec<Line<'static>> {
    let ink = |ink| renderer.theme.ink(ink);
    let gap = || vec![Line::default()];
    match &item.kind {
        ItemKind::Order(_) => renderer.hanging("› ", ink(Ink::Id), ink(Ink::Strong), &item_text(&item.kind)),
        ItemKind::Said { text, live: true } => {
            [gap(), growing.layout(item.seq, &sanitize(text), renderer)].concat()
        }
        ItemKind::Said { text, .. } => [gap(), renderer.markdown_lines(&sanitize(text))].concat(),
        ItemKind::Thought { text, live } => {
            let text = sanitize(text);
            let lines = renderer.hanging("~ ", ink(Ink::Faint), ink(Ink::Faint), text.trim());
            match (opened, live) {
                (true, _) => lines,
                // Show the end: the current thought is the most interesting.
                (false, true) => lines[lines.len().saturating_sub(3)..].to_vec(),
                (false, false) => {
                    let text = truncate_graphemes(&one_line(&text), renderer.columns.saturating_sub(2));
                    renderer.hanging("~ ", ink(Ink::Faint), ink(Ink::Faint), &text)
                }
            }
        }
        ItemKind::Call { tool, arguments, progress, result, .. } => {
            let summary = call_summary(tool, arguments);
            let mut lines =
                vec![call_line(item, &summary, progress.as_deref(), result.as_ref(), opened, renderer)];
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
                let arguments = arguments_text(arguments);
                if !arguments.is_empty() {
                    lines.extend(part(Ink::Faint, &arguments));
                }
                if let Some(got) = result {
                    let ink = if got.is_error { Ink::Bad } else { Ink::Plain };
                    lines.extend(part(ink, &sanitize(&got.output)));
                }
            }
            lines
        }
        ItemKind::Letter { from, .. } => {
            let text = format!("{}: {}", sender(from), item_text(&item.kind));
            let mut lines = renderer.hanging("» ", ink(Ink::Attention), ink(Ink::Plain), &text);
            if !opened && lines.len() > LETTER_LINES {
                let more = lines.len() - LETTER_LINES;
                lines.truncate(LETTER_LINES);
                lines.push(Line::styled(format!("  … {}", pluralize(more, "more line")), ink(Ink::Faint)));
            }
            [gap(), lines].concat()
        }
        ItemKind::Asked { answer, .. } => {
            let (mut lines, text) = (gap(), item_text(&item.kind));
            lines.extend(renderer.hanging("? ", ink(Ink::Attention), ink(Ink::Attention), &text));
            if let Some(answer) = answer {
                let answer = one_line(&answer.to_string());
                lines.extend(renderer.hanging("  → ", ink(Ink::Faint), ink(Ink::Plain), &answer));
            }
            lines
        }
        ItemKind::Note(phrase) if phrase.level > Level::Main => Vec::new(),
        ItemKind::Note(phrase) => {
            renderer.hanging("· ", ink(Ink::Faint), ink(phrase.tone.into()), &phrase.sentence())
        }
        ItemKind::End { status, error, cut_short } => {
            let text = describe_end(*status, error.as_deref(), cut_short.as_deref());
            let style = ink(Ink::for_status(*status));
            [gap(), renderer.hanging(&format!("{} ", status_glyph(*status)), style, style, &text)].concat()
        }
    }
}

fn call_line(
    item: &TranscriptItem,
    summary: &str,
    progress: Option<&str>,
    result: Option<&CallOutput>,
    opened: bool,
    renderer: BlockRenderer<'_>,
) -> Line<'static> {
    let ink = |ink| renderer.theme.ink(ink);
    let (end, style) = match (result, progress) {
        (Some(got), _) => {
            let took =
                std::time::Duration::try_from(got.returned.duration_since(item.at)).unwrap_or_default();
            match got.is_error {
                true => (format!("✗ {}", format_duration(took)), ink(Ink::Bad)),
                false => {
                    (format!("{} {}", pluralize(got.lines, "line"), format_duration(took)), ink(Ink::Faint))
                }
            }
        }
        (None, Some(progress)) => {
            (format!("… {}", truncate_graphemes(&one_line(progress), renderer.columns / 3)), ink(Ink::Busy))
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

/// Returns the text of an item, sanitized.
pub(super) fn item_text(kind: &ItemKind) -> String {
    match kind {
        ItemKind::Order(order) => {
            let more = [("Expected output", &order.expected_output), ("Context", &order.context)];
            let more = more.into_iter().filter_map(|(title, text)| Some((title, text.as_ref()?)));
            let more: String = more.map(|(title, text)| format!("\n\n{title}: {}", sanitize(text))).collect();
            sanitize(&order.task) + &more
        }
        ItemKind::Letter { text, ended: Some(ended), .. } => {
            format!("{} {}: {}", one_line(ended.agent.as_str()), ended.verb(), sanitize(text))
        }
        ItemKind::Said { text, .. } | ItemKind::Thought { text, .. } | ItemKind::Letter { text, .. } => {
            sanitize(text)
        }
        ItemKind::Call { tool, arguments, result, .. } => {
            let result = result.as_ref().map(|got| sanitize(&got.output)).unwrap_or_default();
            format!("{}\n{}\n{result}", call_summary(tool, arguments), arguments_text(arguments))
        }
        ItemKind::Asked { asks, .. } => describe_question(asks),
        ItemKind::Note(phrase) => phrase.sentence(),
        ItemKind::End { status, error, cut_short } => {
            describe_end(*status, error.as_deref(), cut_short.as_deref())
        }
    }
}

fn call_summary(tool: &str, arguments: &str) -> String {
    match (tool, arguments) {
        ("", "") => "a tool".to_owned(),
        (tool, arguments) => format_call(tool, arguments, 400),
    }
}

/// Renders a whole letter.
pub(crate) fn letter_lines(item: &TranscriptItem, renderer: BlockRenderer<'_>) -> Vec<Line<'static>> {
    let ItemKind::Letter { from, read, .. } = &item.kind else { return Vec::new() };
    let (sent, from) = (format!("{} ", format_clock(item.at)), format!("from {}", sender(from)));
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
    lines.extend(renderer.wrapped(Ink::Plain, &item_text(&item.kind)));
    lines.push(Line::default());
    lines
}

/// Renders a block as a line with its time.
pub(crate) fn timeline_lines(
    item: &TranscriptItem,
    before: Option<Timestamp>,
    renderer: BlockRenderer<'_>,
) -> Vec<Line<'static>> {
    let whole = || item_text(&item.kind);
    let (ink, text) = match &item.kind {
        ItemKind::Order(order) => (Ink::Strong, format!("order  {}", sanitize(&order.task))),
        ItemKind::Said { .. } => (Ink::Plain, format!("says  {}", whole())),
        ItemKind::Thought { .. } => (Ink::Faint, format!("thinks  {}", whole())),
        ItemKind::Call { tool, arguments, result, .. } => {
            let summary = call_summary(tool, arguments);
            match result {
                Some(got) if got.is_error => (Ink::Bad, format!("{summary}  failed")),
                Some(got) => {
                    let took = std::time::Duration::try_from(got.returned.duration_since(item.at));
                    (Ink::Id, format!("{summary}  {}", format_duration(took.unwrap_or_default())))
                }
                None => (Ink::Busy, format!("{summary}  …")),
            }
        }
        ItemKind::Letter { from, .. } => (Ink::Plain, format!("letter from {}  {}", sender(from), whole())),
        ItemKind::Asked { answer: Some(answer), .. } => (Ink::Plain, format!("asks  {}  {answer}", whole())),
        ItemKind::Asked { .. } => (Ink::Attention, format!("asks  {}", whole())),
        ItemKind::Note(phrase) => (phrase.tone.into(), phrase.sentence()),
        ItemKind::End { status, .. } => (Ink::for_status(*status), whole()),
    };
    let since = before.and_then(|before| std::time::Duration::try_from(item.at.duration_since(before)).ok());
    let since = since.map(|since| format!("+{}", format_duration(since))).unwrap_or_default();
    let start: String = text.chars().take(2000).collect();
    let room = renderer.columns.saturating_sub(17);
    vec![Line::from(vec![
        Span::styled(format!("{} {since:>6}  ", format_clock(item.at)), renderer.theme.ink(Ink::Faint)),
        Span::styled(truncate_graphemes(&one_line(&start), room), renderer.theme.ink(ink)),
    ])]
}
