//! The difference between two texts, line by line. Pure and bounded.

/// How many unchanged lines to show around a change.
const CONTEXT: usize = 3;
/// How many lines a difference has at most.
const MOST_LINES: usize = 400;
/// Above this many comparisons, the changed part is shown as removed and added in one piece.
const MOST_WORK: usize = 4_000_000;

/// The difference as lines with ` `, `-` or `+` in front; `…` stands for unchanged lines left out. A change of
/// line endings alone, or of the last line's end, is shown as a changed line.
pub(super) fn diff_lines(before: &str, after: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) =
        (before.split_inclusive('\n').collect(), after.split_inclusive('\n').collect());
    let first = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    let (old_rest, new_rest) = (&old[first..], &new[first..]);
    let last = old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(|(old, new)| old == new).count();
    let (old_mid, new_mid) = (&old_rest[..old_rest.len() - last], &new_rest[..new_rest.len() - last]);
    let mut lines: Vec<(char, &str)> = old[..first].iter().map(|line| (' ', *line)).collect();
    lines.extend(changed_lines(old_mid, new_mid));
    lines.extend(old[old.len() - last..].iter().map(|line| (' ', *line)));
    with_context(&lines)
}

/// The changed part: the longest common lines stay.
fn changed_lines<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<(char, &'a str)> {
    let all = |sign, lines: &[&'a str]| lines.iter().map(|line| (sign, *line)).collect::<Vec<_>>();
    if old.len().saturating_mul(new.len()) > MOST_WORK {
        return [all('-', old), all('+', new)].concat();
    }
    // common[i][j]: the length of the longest common lines of old[i..] and new[j..].
    let width = new.len() + 1;
    let mut common = vec![0_u32; (old.len() + 1) * width];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            common[i * width + j] = match old[i] == new[j] {
                true => common[(i + 1) * width + j + 1] + 1,
                false => common[(i + 1) * width + j].max(common[i * width + j + 1]),
            };
        }
    }
    let (mut i, mut j, mut lines) = (0, 0, Vec::new());
    while i < old.len() && j < new.len() {
        if old[i] == new[j] {
            lines.push((' ', old[i]));
            (i, j) = (i + 1, j + 1);
        } else if common[(i + 1) * width + j] >= common[i * width + j + 1] {
            lines.push(('-', old[i]));
            i += 1;
        } else {
            lines.push(('+', new[j]));
            j += 1;
        }
    }
    [lines, all('-', &old[i..]), all('+', &new[j..])].concat()
}

fn with_context(lines: &[(char, &str)]) -> String {
    let changes: Vec<usize> = (0..lines.len()).filter(|at| lines[*at].0 != ' ').collect();
    let mut shown = Vec::new();
    let mut next = 0;
    for change in changes {
        let from = change.saturating_sub(CONTEXT).max(next);
        if from > next {
            shown.push("…".to_owned());
        }
        let to = (change + CONTEXT + 1).min(lines.len());
        shown.extend((from..to.max(from)).map(|at| format!("{}{}", lines[at].0, line_text(lines, at))));
        next = next.max(to);
    }
    if !shown.is_empty() && next < lines.len() {
        shown.push("…".to_owned());
    }
    if shown.len() > MOST_LINES {
        let more = shown.len() - MOST_LINES;
        shown.truncate(MOST_LINES);
        shown.push(format!("… {more} more lines of the difference"));
    }
    shown.join("\n")
}

/// A line without its end; a changed line shows an end that is not a plain line break.
fn line_text(lines: &[(char, &str)], at: usize) -> String {
    let (sign, line) = lines[at];
    match line.strip_suffix('\n') {
        Some(line) => line.to_owned(),
        None if sign == ' ' => line.to_owned(),
        None => format!("{line} (no line break at the end)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_lines_are_shown_with_a_few_around_them() {
        let before = "a\nb\nc\nd\ne\nf\ng\nh\n";
        assert_eq!(
            diff_lines(before, &before.replace("e\n", "E\nF\n")),
            "…\n b\n c\n d\n-e\n+E\n+F\n f\n g\n h"
        );
        assert_eq!(diff_lines(before, before), "");
        assert_eq!(diff_lines("", "x\ny\n"), "+x\n+y");
        assert_eq!(diff_lines("x\n", ""), "-x");
        assert_eq!(diff_lines("a\nb\nc\n", "b\nc\nd\n"), "-a\n b\n c\n+d");
    }

    #[test]
    fn a_missing_or_different_line_end_is_a_change() {
        assert_eq!(diff_lines("a\n", "a"), "-a\n+a (no line break at the end)");
        assert_eq!(diff_lines("a\r\n", "a\n"), "-a\r\n+a");
    }

    #[test]
    fn a_long_difference_is_bounded_and_says_so() {
        let (before, after) = ("x\n".repeat(5_000), "y\n".repeat(5_000));
        let diff = diff_lines(&before, &after);
        assert_eq!(diff.lines().count(), MOST_LINES + 1);
        assert!(diff.ends_with("… 9600 more lines of the difference"), "{}", &diff[diff.len() - 60..]);
    }
}
