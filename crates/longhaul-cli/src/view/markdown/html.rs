//! Renders Markdown as inert HTML: no tag or attribute comes from the text, links lead only to the web or to
//! mail addresses, and nothing is loaded.

use pulldown_cmark::{Alignment, Event, HeadingLevel, Tag};

use super::sanitize;
use super::source::MarkdownParser;

/// Escapes text for HTML.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Renders the text as HTML. HTML in the text is shown as source.
pub(crate) fn html(text: &str) -> String {
    let text = sanitize(text);
    let mut events = MarkdownParser::new(&text);
    let mut page = HtmlRenderer::default();
    while let Some(event) = events.next() {
        match event {
            Event::Start(tag) => page.start(tag, &mut events),
            Event::End(_) => {
                events.end_words();
                page.end();
            }
            // Sanitize after the parser has resolved character references.
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => page.text(&text),
            Event::Code(text) => page.html += &format!("<code>{}</code>", escaped(&sanitize(&text))),
            Event::SoftBreak => page.html += &events.soft_break().replacen(' ', "\n", 1),
            Event::HardBreak => page.html += "<br>\n",
            Event::Rule => page.html += "<hr>\n",
            Event::TaskListMarker(done) => page.html += if done { "☑ " } else { "☐ " },
            _ => {}
        }
    }
    while !page.open.is_empty() {
        page.end();
    }
    page.html
}

#[derive(Default)]
struct HtmlRenderer {
    html: String,
    /// The closing tags of the open elements.
    open: Vec<String>,
    /// The open table: the alignment of its columns, the next column, and whether this is the header.
    columns: Vec<Alignment>,
    column: usize,
    head: bool,
}

impl HtmlRenderer {
    fn text(&mut self, text: &str) {
        self.html += &escaped(&sanitize(text));
    }

    fn end(&mut self) {
        self.html += &self.open.pop().unwrap_or_default();
    }

    fn begin(&mut self, begins: &str, ends: impl Into<String>) {
        self.html += begins;
        self.open.push(ends.into());
    }

    fn start(&mut self, tag: Tag<'_>, events: &mut MarkdownParser<'_>) {
        match tag {
            Tag::Paragraph if events.begin_paragraph() => self.begin("<p class=\"aligned\">", "</p>\n"),
            Tag::Paragraph => self.begin("<p>", "</p>\n"),
            // One level below the headings of the page.
            Tag::Heading { level: HeadingLevel::H1, .. } => self.begin("<h4>", "</h4>\n"),
            Tag::Heading { level: HeadingLevel::H2, .. } => self.begin("<h5>", "</h5>\n"),
            Tag::Heading { .. } => self.begin("<h6>", "</h6>\n"),
            Tag::BlockQuote(_) => self.begin("<blockquote>\n", "</blockquote>\n"),
            Tag::CodeBlock(_) => self.begin("<pre><code>", "</code></pre>\n"),
            Tag::HtmlBlock => self.begin("<p class=\"aligned\">", "</p>\n"),
            Tag::List(None) => self.begin("<ul>\n", "</ul>\n"),
            Tag::List(Some(1)) => self.begin("<ol>\n", "</ol>\n"),
            Tag::List(Some(first)) => self.begin(&format!("<ol start=\"{first}\">\n"), "</ol>\n"),
            Tag::Item => self.begin("<li>", "</li>\n"),
            Tag::Table(columns) => {
                self.columns = columns;
                self.begin("<div class=\"table\"><table>\n", "</tbody></table></div>\n");
            }
            Tag::TableHead => {
                (self.column, self.head) = (0, true);
                self.begin("<thead><tr>", "</tr></thead>\n<tbody>\n");
            }
            Tag::TableRow => {
                (self.column, self.head) = (0, false);
                self.begin("<tr>", "</tr>\n");
            }
            Tag::TableCell => {
                let class = match self.columns.get(self.column) {
                    Some(Alignment::Right) => " class=\"right\"",
                    Some(Alignment::Center) => " class=\"center\"",
                    _ => "",
                };
                self.column += 1;
                let name = if self.head { "th" } else { "td" };
                self.begin(&format!("<{name}{class}>"), format!("</{name}>"));
            }
            Tag::Emphasis => self.begin("<em>", "</em>"),
            Tag::Strong => self.begin("<strong>", "</strong>"),
            Tag::Strikethrough => self.begin("<s>", "</s>"),
            Tag::Link { dest_url, .. } => {
                let address = sanitize(&dest_url);
                if leads_out(&address) {
                    let begins =
                        format!("<a href=\"{}\" rel=\"noopener noreferrer nofollow\">", escaped(&address));
                    self.begin(&begins, "</a>");
                } else {
                    self.begin("", skipped(&address));
                }
            }
            Tag::Image { dest_url, .. } => {
                self.begin("<span class=\"meta\">image: </span>", skipped(&sanitize(&dest_url)));
            }
            _ => self.begin("", ""),
        }
    }
}

/// Renders an address as text instead of a link.
fn skipped(address: &str) -> String {
    match address.is_empty() {
        true => String::new(),
        false => format!(" <span class=\"meta\">({})</span>", escaped(address)),
    }
}

/// Returns whether an address may be a link: http, https or mailto.
fn leads_out(address: &str) -> bool {
    let starts = |with: &str| address.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with));
    starts("https://") || starts("http://") || starts("mailto:")
}
