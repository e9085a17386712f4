//! Breaking pieces of text into lines between words.

use unicode_width::UnicodeWidthChar as _;

use super::ink::Span;
use crate::view::words::width;

/// The pieces as lines of at most so many columns. A word that is wider than a line is broken.
pub(super) fn wrapped(spans: &[Span], columns: usize) -> Vec<Vec<Span>> {
    let columns = columns.max(1);
    let mut lines: Vec<Vec<Span>> = vec![Vec::new()];
    let mut used = 0;
    for word in words(spans) {
        match word {
            Word::Break => {
                lines.push(Vec::new());
                used = 0;
            }
            Word::Space(span) => {
                // At the beginning of a line there is none; one at its end is cut.
                if used > 0 {
                    used += 1;
                    lines.last_mut().into_iter().for_each(|line| line.push(span.clone()));
                }
            }
            Word::Of(pieces) => {
                let wide: usize = pieces.iter().map(|piece| width(&piece.text)).sum();
                if used > 0 && used + wide > columns {
                    lines.push(Vec::new());
                    used = 0;
                }
                pieces.iter().for_each(|piece| fill(&mut lines, &mut used, piece, columns));
            }
        }
    }
    lines
}

/// A line as lines of at most so many columns, broken wherever that is.
pub(super) fn broken(line: Vec<Span>, columns: usize) -> Vec<Vec<Span>> {
    if line.iter().map(|span| width(&span.text)).sum::<usize>() <= columns {
        return vec![line];
    }
    let mut lines = vec![Vec::new()];
    let mut used = 0;
    line.iter().for_each(|piece| fill(&mut lines, &mut used, piece, columns));
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
                c if c.is_whitespace() && c != '\u{a0}' => match words.last() {
                    None | Some(Word::Space(_) | Word::Break) => {}
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
