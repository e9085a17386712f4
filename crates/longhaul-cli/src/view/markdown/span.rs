//! Styled pieces of text.

pub(crate) use anstyle::Style;
use anstyle::{AnsiColor, Color};

use crate::view::live_region::StyledLine;
use crate::view::text_format::display_width;

/// For decoration that is not part of the text.
pub(super) const FAINT: Style = Style::new().dimmed();
/// For inline code.
pub(super) const CODE: Color = Color::Ansi(AnsiColor::Cyan);

/// A piece of text in one style.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MarkdownSpan {
    pub(crate) style: Style,
    pub(crate) text: String,
}

impl MarkdownSpan {
    pub(super) fn new(style: Style, text: impl Into<String>) -> MarkdownSpan {
        MarkdownSpan { style, text: text.into() }
    }
}

/// Joins spans to a line, without trailing space.
pub(super) fn styled_line(spans: &[MarkdownSpan]) -> StyledLine {
    let plain: String = spans.iter().map(|span| span.text.as_str()).collect();
    let mut left = plain.trim_end().len();
    let (mut text, mut open) = (String::new(), Style::new());
    for span in spans {
        let piece = &span.text[..span.text.floor_char_boundary(left.min(span.text.len()))];
        left -= piece.len();
        if piece.is_empty() {
            continue;
        }
        if span.style != open {
            text.push_str(&format!("{open:#}{}", span.style));
            open = span.style;
        }
        text.push_str(piece);
    }
    text.push_str(&format!("{open:#}"));
    StyledLine { width: display_width(plain.trim_end()), text }
}
