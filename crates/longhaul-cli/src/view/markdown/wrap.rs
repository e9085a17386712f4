//! Breaking pieces of text into lines between words.

use unicode_width::UnicodeWidthChar as _;

use super::ink::Span;
use crate::view::words::width;

/// The pieces as lines of at most so many columns. A word that is wider than a line is broken.
pub(super) fn wrapped(spans: &[Span], columns: usize) -> Vec<Vec<Span>> {
    let columns = columns.max(1);
    let mut lines: Vec<Vec<Span>> = vec![Vec::new()];
    let mut used = 0;
    // A space is between two words of a line: before a word that goes to the next line, it is none.
    let mut space = None;
    for word in words(spans) {
        match word {
            Word::Break => {
                lines.push(Vec::new());
                (used, space) = (0, None);
            }
            Word::Space(span) => space = Some(span).filter(|_| used > 0),
            Word::Of(pieces) => {
                let wide: usize = pieces.iter().map(|piece| width(&piece.text)).sum();
                let space: Option<Span> = space.take();
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

/// Lines that are to stay as they are, with every space in them. Only one that is too wide is wrapped, on its own.
pub(super) fn kept(spans: &[Span], columns: usize) -> Vec<Vec<Span>> {
    let mut lines: Vec<Vec<Span>> = vec![Vec::new()];
    for span in spans {
        for (index, text) in span.text.split('\n').enumerate() {
            if index > 0 {
                lines.push(Vec::new());
            }
            if !text.is_empty() {
                lines.last_mut().into_iter().for_each(|line| line.push(Span::new(span.style, text)));
            }
        }
    }
    lines.iter_mut().for_each(trim_end);
    lines.into_iter().flat_map(|line| narrowed(line, columns)).collect()
}

/// A line, wrapped where it is too wide; what goes on keeps its indent.
fn narrowed(line: Vec<Span>, columns: usize) -> Vec<Vec<Span>> {
    if line.iter().map(|span| width(&span.text)).sum::<usize>() <= columns {
        return vec![line];
    }
    let blank = |span: &&Span| span.text.trim().is_empty();
    let indent: usize = line.iter().take_while(blank).map(|span| width(&span.text)).sum();
    let first = line
        .iter()
        .find(|span| !blank(span))
        .map_or(0, |span| width(&span.text) - width(span.text.trim_start()));
    let indent = (indent + first).min(columns / 3);
    let mut lines = wrapped(&line, columns - indent);
    lines.iter_mut().for_each(|line| line.insert(0, Span::new(Default::default(), " ".repeat(indent))));
    lines
}

/// Takes away the space at the end of a line: nobody sees it, and it must not become a line of its own.
pub(super) fn trim_end(line: &mut Vec<Span>) {
    while let Some(last) = line.last_mut() {
        last.text.truncate(last.text.trim_end().len());
        if !last.text.is_empty() {
            break;
        }
        line.pop();
    }
}

/// A line as lines of at most so many columns, broken wherever that is.
pub(super) fn broken(mut line: Vec<Span>, columns: usize) -> Vec<Vec<Span>> {
    trim_end(&mut line);
    if line.iter().map(|span| width(&span.text)).sum::<usize>() <= columns {
        return vec![line];
    }
    let mut lines = vec![Vec::new()];
    let mut used = 0;
    line.iter().for_each(|piece| fill(&mut lines, &mut used, piece, columns));
    lines.iter_mut().for_each(trim_end);
    lines
}

/// A piece at the end, on a new line where the last is full.
fn fill(lines: &mut Vec<Vec<Span>>, used: &mut usize, piece: &Span, columns: usize) {
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

/// A character at the end, in the style of a piece.
fn put(lines: &mut [Vec<Span>], piece: &Span, c: char) {
    let Some(line) = lines.last_mut() else { return };
    match line.last_mut() {
        Some(last) if last.style == piece.style => last.text.push(c),
        _ => line.push(Span::new(piece.style, c.to_string())),
    }
}

enum Word {
    /// What is between two spaces, whatever its styles.
    Of(Vec<Span>),
    /// Between two words; several, where somebody has put several: columns may be made of them.
    Space(Span),
    Break,
}

fn words(spans: &[Span]) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    for span in spans {
        for c in span.text.chars() {
            match c {
                '\n' => words.push(Word::Break),
                // One that must not break is part of a word.
                c if c.is_whitespace() && c != '\u{a0}' => match words.last_mut() {
                    None | Some(Word::Break) => {}
                    Some(Word::Space(space)) => space.text.push(' '),
                    Some(Word::Of(_)) => words.push(Word::Space(Span::new(span.style, " "))),
                },
                c => match words.last_mut() {
                    Some(Word::Of(pieces)) => match pieces.last_mut() {
                        Some(last) if last.style == span.style => last.text.push(c),
                        _ => pieces.push(Span::new(span.style, c.to_string())),
                    },
                    _ => words.push(Word::Of(vec![Span::new(span.style, c.to_string())])),
                },
            }
        }
    }
    words
}
