//! Renders Markdown for a terminal: wrapped to the width, with aligned tables and highlighted code.

mod aligned;
mod highlight;
mod html;
mod span;
mod source;
mod table;
mod span_wrap;

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use super::live_region::StyledLine;
use super::sanitize;
use super::text_format::display_width;
pub(crate) use highlight::SyntaxHighlighter;
pub(crate) use html::{escaped, html};
use source::MarkdownParser;
use span::FAINT;
pub(crate) use span::{MarkdownSpan, Style};
use span_wrap::{break_line, kept, wrap_spans};
use table::MarkdownTable;

/// The indent of code.
const INDENT: &str = "  ";

fn parser(source: &str) -> Parser<'_> {
    Parser::new_ext(
        source,
        Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS,
    )
}

/// Returns the length of the prefix of a growing text whose rendering can no longer change: everything but
/// the last block.
pub(crate) fn stable_prefix_len(source: &str) -> usize {
    // An incomplete line may still become anything.
    let source = &source[..source.rfind('\n').map_or(0, |at| at + 1)];
    let (mut depth, mut last) = (0_usize, 0);
    for (event, range) in parser(source).into_offset_iter() {
        if depth == 0 && !matches!(event, Event::End(_)) {
            last = range.start;
        }
        match event {
            Event::Start(_) => depth += 1,
            Event::End(_) => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    // The space between two blocks belongs to the second: an indent decides what it is.
    source[..last].rfind('\n').map_or(0, |at| at + 1)
}

/// Renders a text as terminal lines, without any control sequences from the text. Code lines may be wider, so
/// that they can be copied.
pub(crate) fn render(source: &str, columns: usize, highlighter: &SyntaxHighlighter) -> Vec<StyledLine> {
    parse_lines(source, columns, highlighter).iter().map(|spans| span::styled_line(spans)).collect()
}

/// Renders a text as lines of styled spans, none wider than `columns`.
pub(crate) fn render_spans(
    source: &str,
    columns: usize,
    highlighter: &SyntaxHighlighter,
) -> Vec<Vec<MarkdownSpan>> {
    parse_lines(source, columns, highlighter)
        .into_iter()
        .flat_map(|spans| break_line(spans, columns))
        .collect()
}

fn parse_lines(source: &str, columns: usize, highlighter: &SyntaxHighlighter) -> Vec<Vec<MarkdownSpan>> {
    let source = sanitize(source);
    let mut page = MarkdownRenderer {
        columns: columns.max(20),
        highlighter,
        lines: Vec::new(),
        margins: Vec::new(),
        begun: false,
    };
    page.blocks(&mut MarkdownParser::new(&source), true);
    page.lines
}

/// The prefix of a part's lines: for the first, and for the others.
struct Margin {
    first: Option<MarkdownSpan>,
    rest: MarkdownSpan,
}

struct MarkdownRenderer<'a> {
    columns: usize,
    highlighter: &'a SyntaxHighlighter,
    lines: Vec<Vec<MarkdownSpan>>,
    margins: Vec<Margin>,
    /// Whether the current part has begun: then an empty line precedes its next block.
    begun: bool,
}

type MarkdownParserMut<'a, 'b> = &'a mut MarkdownParser<'b>;

impl MarkdownRenderer<'_> {
    /// Returns how many columns are left between the margins.
    fn room(&self) -> usize {
        let margins: usize = self.margins.iter().map(|margin| display_width(&margin.rest.text)).sum();
        self.columns.saturating_sub(margins).max(10)
    }

    fn line(&mut self, spans: &[MarkdownSpan]) {
        let mut all: Vec<MarkdownSpan> = Vec::new();
        for margin in &mut self.margins {
            all.push(margin.first.take().unwrap_or_else(|| margin.rest.clone()));
        }
        all.extend(spans.iter().cloned());
        self.lines.push(all);
    }

    /// Adds an empty line if the part has begun.
    fn gap(&mut self, loose: bool) {
        if self.begun && loose {
            self.line(&[]);
        }
        self.begun = true;
    }

    /// Renders all blocks of a part, up to its end. A tight list has no empty lines between them.
    fn blocks(&mut self, events: MarkdownParserMut<'_, '_>, loose: bool) {
        self.begun = false;
        let (mut spans, mut aligned) = (Vec::new(), false);
        while let Some(event) = events.next() {
            // Text outside a paragraph: an item of a tight list.
            if let Some(tag) = block(&event) {
                self.flush(&mut spans, aligned);
                self.gap(loose);
                self.block(tag, events, loose);
                self.begun = true;
                continue;
            }
            match event {
                Event::End(_) => break,
                Event::Rule => {
                    self.flush(&mut spans, aligned);
                    self.gap(loose);
                    let rule = "─".repeat(self.room());
                    self.line(&[MarkdownSpan::new(FAINT, rule)]);
                }
                Event::Html(html) => spans.push(MarkdownSpan::new(FAINT, sanitize(&html))),
                event => {
                    if spans.is_empty() {
                        aligned = events.begin_words();
                    }
                    inline(event, events, Style::new(), &mut spans);
                }
            }
        }
        self.flush(&mut spans, aligned);
    }

    fn flush(&mut self, spans: &mut Vec<MarkdownSpan>, aligned: bool) {
        if spans.iter().any(|span| !span.text.trim().is_empty()) {
            self.begun = true;
            for line in laid(spans, self.room(), aligned) {
                self.line(&line);
            }
        }
        spans.clear();
    }

    fn block(&mut self, tag: Tag<'_>, events: MarkdownParserMut<'_, '_>, loose: bool) {
        match tag {
            Tag::Heading { level, .. } => {
                let style = match level {
                    HeadingLevel::H1 => Style::new().bold().underline(),
                    HeadingLevel::H2 | HeadingLevel::H3 => Style::new().bold(),
                    _ => Style::new().bold().dimmed(),
                };
                self.paragraph(events, style);
            }
            Tag::Paragraph => self.paragraph(events, Style::new()),
            Tag::HtmlBlock => {
                let mut spans = Vec::new();
                for event in events.by_ref() {
                    match event {
                        Event::End(_) => break,
                        Event::Html(html) | Event::Text(html) => {
                            spans.push(MarkdownSpan::new(FAINT, sanitize(&html)))
                        }
                        _ => {}
                    }
                }
                self.flush(&mut spans, false);
            }
            Tag::BlockQuote(_) => {
                let bar = MarkdownSpan::new(FAINT, "│ ");
                self.within(Margin { first: None, rest: bar }, events, true);
            }
            Tag::CodeBlock(kind) => self.code(&kind, events),
            Tag::List(first) => self.list(first, events),
            Tag::Table(alignments) => {
                let table = MarkdownTable::parse(events, alignments);
                for line in table.lines(self.room()) {
                    self.line(&line);
                }
            }
            _ => self.blocks(events, loose),
        }
    }

    fn paragraph(&mut self, events: MarkdownParserMut<'_, '_>, style: Style) {
        let mut spans = Vec::new();
        let aligned = events.begin_paragraph();
        inlines(events, style, &mut spans);
        events.end_words();
        for line in laid(&spans, self.room(), aligned) {
            self.line(&line);
        }
    }

    fn within(&mut self, margin: Margin, events: MarkdownParserMut<'_, '_>, loose: bool) {
        self.margins.push(margin);
        self.blocks(events, loose);
        // The item is empty: show its bullet anyway.
        if self.margins.last().is_some_and(|margin| margin.first.is_some()) {
            self.line(&[]);
        }
        self.margins.pop();
    }

    fn list(&mut self, first: Option<u64>, events: MarkdownParserMut<'_, '_>) {
        let mut number = first;
        let mut begun = false;
        while let Some(event) = events.next() {
            let Event::Start(Tag::Item) = event else { break };
            // The first item shows whether a list is loose: it contains a paragraph, or plain text.
            let loose = matches!(events.peek(), Some(Event::Start(Tag::Paragraph)));
            if begun && loose {
                self.line(&[]);
            }
            begun = true;
            let sign = match &mut number {
                Some(number) => {
                    let sign = format!("{number}. ");
                    *number += 1;
                    sign
                }
                None => "• ".to_owned(),
            };
            let rest = MarkdownSpan::new(Style::new(), " ".repeat(display_width(&sign)));
            self.within(Margin { first: Some(MarkdownSpan::new(FAINT, sign)), rest }, events, loose);
        }
    }

    fn code(&mut self, kind: &CodeBlockKind<'_>, events: MarkdownParserMut<'_, '_>) {
        let mut text = String::new();
        for event in events.by_ref() {
            match event {
                Event::End(TagEnd::CodeBlock) => break,
                Event::Text(more) => text.push_str(&more),
                _ => {}
            }
        }
        let language = match kind {
            CodeBlockKind::Fenced(info) => info.split([' ', ',', '{']).next().unwrap_or_default().to_owned(),
            CodeBlockKind::Indented => String::new(),
        };
        for mut spans in self.highlighter.highlight(&language, &sanitize(&text)) {
            spans.insert(0, MarkdownSpan::new(Style::new(), INDENT));
            self.line(&spans);
        }
    }
}

fn laid(spans: &[MarkdownSpan], columns: usize, aligned: bool) -> Vec<Vec<MarkdownSpan>> {
    if aligned { kept(spans, columns) } else { wrap_spans(spans, columns) }
}

/// Returns the tag if a block begins here.
fn block<'a>(event: &Event<'a>) -> Option<Tag<'a>> {
    match event {
        Event::Start(tag) => match tag {
            Tag::Emphasis | Tag::Strong | Tag::Strikethrough | Tag::Link { .. } | Tag::Image { .. } => None,
            tag => Some(tag.clone()),
        },
        _ => None,
    }
}

/// Collects the inline spans up to the end of the part.
fn inlines(events: MarkdownParserMut<'_, '_>, style: Style, spans: &mut Vec<MarkdownSpan>) {
    while let Some(event) = events.next() {
        if let Event::End(_) = event {
            return;
        }
        inline(event, events, style, spans);
    }
}

fn inline(event: Event<'_>, events: MarkdownParserMut<'_, '_>, style: Style, spans: &mut Vec<MarkdownSpan>) {
    match event {
        // Sanitize after the parser has resolved character references.
        Event::Text(text) => spans.push(MarkdownSpan::new(style, sanitize(&text))),
        Event::Code(text) => spans.push(MarkdownSpan::new(style.fg_color(Some(span::CODE)), sanitize(&text))),
        Event::SoftBreak => spans.push(MarkdownSpan::new(style, events.soft_break())),
        Event::HardBreak => spans.push(MarkdownSpan::new(style, "\n")),
        Event::Html(html) | Event::InlineHtml(html) => spans.push(MarkdownSpan::new(FAINT, sanitize(&html))),
        Event::TaskListMarker(done) => spans.push(MarkdownSpan::new(style, if done { "☑ " } else { "☐ " })),
        Event::Start(Tag::Emphasis) => inlines(events, style.italic(), spans),
        Event::Start(Tag::Strong) => inlines(events, style.bold(), spans),
        Event::Start(Tag::Strikethrough) => inlines(events, style.strikethrough(), spans),
        Event::Start(Tag::Link { dest_url, .. }) => {
            let mut inner = Vec::new();
            inlines(events, style.underline(), &mut inner);
            let shown: String = inner.iter().map(|span| span.text.as_str()).collect();
            let address = sanitize(&dest_url);
            spans.append(&mut inner);
            if !address.is_empty() && shown != address && format!("mailto:{shown}") != address {
                spans.push(MarkdownSpan::new(FAINT, format!(" ({address})")));
            }
        }
        Event::Start(Tag::Image { dest_url, .. }) => {
            let mut inner = vec![MarkdownSpan::new(FAINT, "image: ")];
            inlines(events, style, &mut inner);
            spans.append(&mut inner);
            spans.push(MarkdownSpan::new(FAINT, format!(" ({})", sanitize(&dest_url))));
        }
        Event::Start(_) => inlines(events, style, spans),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
