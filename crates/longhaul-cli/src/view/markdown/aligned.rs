//! Detects paragraphs laid out with spaces: columns, box drawings, file trees. Markdown would join their
//! lines.

/// Returns whether the lines of a paragraph should stay as they are: at least two of them, and at least half,
/// contain columns or drawn lines.
pub(super) fn is_aligned(paragraph: &str) -> bool {
    let lines = paragraph.trim_end().lines().count();
    let laid = paragraph.lines().filter(|line| is_laid_out(line.trim())).count();
    laid >= 2 && laid * 2 >= lines
}

fn is_laid_out(line: &str) -> bool {
    let drawn = |c: char| ('\u{2500}'..='\u{257f}').contains(&c);
    line.contains(drawn) || line.starts_with("+-") || line.starts_with('|') || has_columns(line)
}

/// Returns whether there is more than one space between two words. Two after a sentence do not count.
fn has_columns(line: &str) -> bool {
    let mut rest = line;
    while let Some(at) = rest.find("  ") {
        let (before, after) = (&rest[..at], rest[at..].trim_start());
        let wide = rest.len() - at - after.len();
        if wide > 2 || !before.ends_with(['.', '!', '?', ':', ';', ',']) {
            return true;
        }
        rest = after;
    }
    false
}
