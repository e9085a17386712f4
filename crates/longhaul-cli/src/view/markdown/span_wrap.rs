//! Wraps styled text at word boundaries.

use unicode_width::UnicodeWidthChar as _;

use super::span::MarkdownSpan;
use crate::view::text_format::display_width;

/// Wraps spans to this many columns. Breaks words that are wider than a line.
pub(super) fn wrap_spans(spans: &[MarkdownSpan], columns: usize) -> Vec<Vec<MarkdownSpan>> {
    let columns = columns.max(1);
    let mut lines: Vec<Vec<MarkdownSpan>> = vec![Vec::new()];
    let mut used = 0;
    // A space between two words of a line; dropped if the second word goes to the next line.
    let mut space = None;
    for word in words(spans) {
        match word {
            WrapToken::Break => {
                lines.push(Vec::new());
                (used, space) = (0, None);
            }
            WrapToken::Space(span) => space = Some(span).filter(|_| used > 0),
            WrapToken::Text(pieces) => {
                let wide: usize = pieces.iter().map(|piece| display_width(&piece.text)).sum();
                let space: Option<MarkdownSpan> = space.take();
                let gap = space.as_ref().map_or(0, |space| space.text.len());
                if used > 0 && used + gap + wide > columns {
                    lines.push(Vec::new());
                    used = 0;
                } else if let Some(space) = space {
                    used += gap;
                    lines.last_mut().into_iter().for_each(|line| line.push(space.clone()));
                }
                pieces.iter().for_each(|piece| fill(&mut lines, &mut used, piece, columns));
            }
        }
    }
    lines
}

/// Keeps lines and spaces as they are, and wraps only lines that are too wide.
pub(super) fn kept(spans: &[MarkdownSpan], columns: usize) -> Vec<Vec<MarkdownSpan>> {
    let mut lines: Vec<Vec<MarkdownSpan>> = vec![Vec::new()];
    for span in spans {
        for (index, text) in span.text.split('\n').enumerate() {
            if index > 0 {
                lines.push(Vec::new());
            }
            if !text.is_empty() {
                lines.last_mut().into_iter().for_each(|line| line.push(MarkdownSpan::new(span.style, text)));
            }
        }
    }
    lines.iter_mut().for_each(trim_end);
    lines.into_iter().flat_map(|line| narrowed(line, columns)).collect()
}

/// Wraps a line that is too wide. Continued lines keep their indent.
fn narrowed(line: Vec<MarkdownSpan>, columns: usize) -> Vec<Vec<MarkdownSpan>> {
    if line.iter().map(|span| display_width(&span.text)).sum::<usize>() <= columns {
        return vec![line];
    }
    let blank = |span: &&MarkdownSpan| span.text.trim().is_empty();
    let indent: usize = line.iter().take_while(blank).map(|span| display_width(&span.text)).sum();
    let first = line
        .iter()
        .find(|span| !blank(span))
        .map_or(0, |span| display_width(&span.text) - display_width(span.text.trim_start()));
    let indent = (indent + first).min(columns / 3);
    let mut lines = wrap_spans(&line, columns - indent);
    lines
        .iter_mut()
        .for_each(|line| line.insert(0, MarkdownSpan::new(Default::default(), " ".repeat(indent))));
    lines
}

/// Removes trailing space: it is invisible, and must not become a line of its own.
pub(super) fn trim_end(line: &mut Vec<MarkdownSpan>) {
    while let Some(last) = line.last_mut() {
        last.text.truncate(last.text.trim_end().len());
        if !last.text.is_empty() {
            break;
        }
        line.pop();
    }
}

/// Breaks a line after every `columns` columns.
pub(super) fn break_line(mut line: Vec<MarkdownSpan>, columns: usize) -> Vec<Vec<MarkdownSpan>> {
    trim_end(&mut line);
    if line.iter().map(|span| display_width(&span.text)).sum::<usize>() <= columns {
        return vec![line];
    }
    let mut lines = vec![Vec::new()];
    let mut used = 0;
    line.iter().for_each(|piece| fill(&mut lines, &mut used, piece, columns));
    lines.iter_mut().for_each(trim_end);
    lines
}

/// Appends a piece, and starts a new line when the last is full.
fn fill(lines: &mut Vec<Vec<MarkdownSpan>>, used: &mut usize, piece: &MarkdownSpan, columns: usize) {
    for c in piece.text.chars() {
        let wide = c.width().unwrap_or(0);
        if *used > 0 && *used + wide > columns {
            lines.push(Vec::new());
            *used = 0;
        }
        *used += wide;
        put(lines, piece, c);
    }
}

/// Appends a character in the style of a piece.
fn put(lines: &mut [Vec<MarkdownSpan>], piece: &MarkdownSpan, c: char) {
    let Some(line) = lines.last_mut() else { return };
    match line.last_mut() {
        Some(last) if last.style == piece.style => last.text.push(c),
        _ => line.push(MarkdownSpan::new(piece.style, c.to_string())),
    }
}

enum WrapToken {
    /// A word, possibly in several styles.
    Text(Vec<MarkdownSpan>),
    /// The space between two words. Several spaces stay, because they may align columns.
    Space(MarkdownSpan),
    Break,
}

fn words(spans: &[MarkdownSpan]) -> Vec<WrapToken> {
    let mut words: Vec<WrapToken> = Vec::new();
    for span in spans {
        for c in span.text.chars() {
            match c {
                '\n' => words.push(WrapToken::Break),
                // A non-breaking space is part of a word.
                c if c.is_whitespace() && c != '\u{a0}' => match words.last_mut() {
                    None | Some(WrapToken::Break) => {}
                    Some(WrapToken::Space(space)) => space.text.push(' '),
                    Some(WrapToken::Text(_)) => {
                        words.push(WrapToken::Space(MarkdownSpan::new(span.style, " ")))
                    }
                },
                c => match words.last_mut() {
                    Some(WrapToken::Text(pieces)) => match pieces.last_mut() {
                        Some(last) if last.style == span.style => last.text.push(c),
                        _ => pieces.push(MarkdownSpan::new(span.style, c.to_string())),
                    },
                    _ => words.push(WrapToken::Text(vec![MarkdownSpan::new(span.style, c.to_string())])),
                },
            }
        }
    }
    words
}
