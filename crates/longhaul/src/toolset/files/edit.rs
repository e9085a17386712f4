//! Replaces parts of a text, all or none, and keeps its line endings.

use memchr::memmem;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::tool::ToolError;
use crate::toolset::text::truncate;

/// One replacement.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub(super) struct Edit {
    /// The text to replace, exactly as it is in the file; it must be there exactly once, so take as many lines around it
    /// as that needs.
    // Its aliases are in the ALIASES of `edit_file` too, for permission rules.
    #[serde(rename = "oldText", alias = "old_text")]
    pub(super) old_text: String,
    /// What stands there instead.
    #[serde(rename = "newText", alias = "new_text")]
    pub(super) new_text: String,
}

/// Applies all edits in order and returns the new text, or what is wrong with the first that fails.
pub(super) fn apply_edits(text: &[u8], edits: &[Edit]) -> Result<Vec<u8>, ToolError> {
    let mut text = text.to_vec();
    for (i, edit) in edits.iter().enumerate() {
        text = apply_edit(&text, edit).map_err(|why| match edits.len() {
            1 => why,
            _ => ToolError::Retry(format!("edit {} of {}: {why}", i + 1, edits.len())),
        })?;
    }
    Ok(text)
}

fn apply_edit(text: &[u8], edit: &Edit) -> Result<Vec<u8>, ToolError> {
    if edit.old_text.is_empty() {
        return Err(ToolError::Retry(
            "`oldText` is empty: say which text to replace, or use write_file for a new file".to_owned(),
        ));
    }
    for (old, new) in spellings(text, edit) {
        match places(text, old.as_bytes()).as_slice() {
            [] => {}
            [at] => return Ok([&text[..*at], new.as_bytes(), &text[at + old.len()..]].concat()),
            many => {
                let lines: Vec<_> = many.iter().map(|at| line_of(text, *at).to_string()).collect();
                return Err(ToolError::Retry(format!(
                    "`oldText` is there {} times (lines {}): take more of the lines around it, so that it fits only one \
                     place",
                    if many.len() > MAX_PLACES {
                        format!("more than {MAX_PLACES}")
                    } else {
                        many.len().to_string()
                    },
                    lines.join(", ")
                )));
            }
        }
    }
    // An edit of the last line may include a line end that the file does not have.
    if let Some(old) = edit.old_text.strip_suffix('\n').map(|old| old.trim_end_matches('\r'))
        && !old.is_empty()
    {
        let bare = Edit { old_text: old.to_owned(), new_text: without_end(&edit.new_text).to_owned() };
        for (old, new) in spellings(text, &bare) {
            if text.ends_with(old.as_bytes()) {
                return Ok([&text[..text.len() - old.len()], new.as_bytes()].concat());
            }
        }
    }
    Err(ToolError::Retry(not_found(text, &edit.old_text)))
}

fn without_end(text: &str) -> &str {
    text.strip_suffix('\n').map_or(text, |text| text.strip_suffix('\r').unwrap_or(text))
}

/// Converts the line endings of the edit to those of the file: models write either kind.
fn spellings(text: &[u8], edit: &Edit) -> Vec<(String, String)> {
    let plain = |text: &str| text.replace("\r\n", "\n");
    let unix = (plain(&edit.old_text), plain(&edit.new_text));
    let dos = (unix.0.replace('\n', "\r\n"), unix.1.replace('\n', "\r\n"));
    let exact = (edit.old_text.clone(), edit.new_text.clone());
    let ends = text.iter().filter(|byte| **byte == b'\n').count();
    let dos_ends = memmem::find_iter(text, b"\r\n").count();
    let mut spellings = match (dos_ends, ends) {
        (0, _) => vec![exact, unix],
        (dos_ends, ends) if dos_ends == ends => vec![dos, exact],
        _ => vec![exact, dos, unix],
    };
    spellings.dedup();
    spellings
}

const MAX_PLACES: usize = 10;

/// Returns where the text occurs, overlaps included: at most one more than [`MAX_PLACES`].
fn places(text: &[u8], old: &[u8]) -> Vec<usize> {
    let finder = memmem::Finder::new(old);
    let (mut places, mut from) = (Vec::new(), 0);
    while let Some(at) = finder.find(&text[from..]) {
        places.push(from + at);
        if places.len() > MAX_PLACES {
            break;
        }
        from += at + 1;
    }
    places
}

fn line_of(text: &[u8], at: usize) -> usize {
    text[..at].iter().filter(|byte| **byte == b'\n').count() + 1
}

/// How many lines of a file are compared, and how many are shown.
const MAX_COMPARED: usize = 100_000;
const MAX_SHOWN: usize = 12;

/// The error for a text that does not occur. It shows the most similar lines.
fn not_found(text: &[u8], old: &str) -> String {
    let text = String::from_utf8_lossy(text);
    let lines: Vec<&str> = text.lines().take(MAX_COMPARED).collect();
    let wanted: Vec<&str> = old.lines().skip_while(|line| line.trim().is_empty()).take(MAX_SHOWN).collect();
    let Some((start, likeness)) = nearest(&lines, &wanted) else {
        return "`oldText` is not in the file, nor anything like it: read the file and copy the text from there"
            .to_owned();
    };
    let why = match likeness {
        NearMatch::IgnoringWhitespace => "these lines are the same but for spaces and tabs",
        NearMatch::Similar => "these lines are the most like it",
    };
    let shown: Vec<_> = (start..lines.len().min(start + wanted.len()))
        .map(|i| format!("{:>6}  {}", i + 1, truncate(lines[i], 200)))
        .collect();
    format!(
        "`oldText` is not in the file; {why}:\n{}\nCopy the text exactly as it is there.",
        shown.join("\n")
    )
}

enum NearMatch {
    IgnoringWhitespace,
    Similar,
}

/// Returns where the most similar lines begin.
fn nearest(lines: &[&str], wanted: &[&str]) -> Option<(usize, NearMatch)> {
    if wanted.is_empty() {
        return None;
    }
    let plain = |line: &str| line.split_whitespace().collect::<String>();
    let flat: Vec<String> = lines.iter().map(|line| plain(line)).collect();
    let wanted_flat: Vec<String> = wanted.iter().map(|line| plain(line)).collect();
    let mut best = (0, 0);
    for start in 0..lines.len() {
        let pairs = wanted_flat.iter().zip(&flat[start..]);
        let same = pairs.filter(|(wanted, line)| wanted == line && !wanted.is_empty()).count();
        if same > best.1 {
            best = (start, same);
        }
    }
    let full = wanted_flat.iter().filter(|line| !line.is_empty()).count();
    if best.1 == full && full > 0 {
        return Some((best.0, NearMatch::IgnoringWhitespace));
    }
    if best.1 > 0 {
        return Some((best.0, NearMatch::Similar));
    }
    // No line is equal: compare the words of the longest line.
    let (offset, longest) = wanted.iter().enumerate().max_by_key(|(_, line)| line.trim().len())?;
    let sought = words(longest);
    let shared = |line: &str| {
        let found = words(line);
        let both = sought.iter().filter(|word| found.contains(word)).count();
        (2 * both * 100) / (sought.len() + found.len()).max(1)
    };
    let scores = lines.iter().enumerate().map(|(i, line)| (shared(line), i));
    let (score, at) = scores.max_by_key(|(score, i)| (*score, usize::MAX - i))?;
    (score >= 40).then(|| (at.saturating_sub(offset), NearMatch::Similar))
}

fn words(line: &str) -> Vec<&str> {
    let mut words: Vec<&str> = line
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
        .take(50)
        .collect();
    words.sort_unstable();
    words.dedup();
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(old: &str, new: &str) -> Edit {
        Edit { old_text: old.to_owned(), new_text: new.to_owned() }
    }

    fn applied(text: &str, edits: &[Edit]) -> Result<String, String> {
        let applied = apply_edits(text.as_bytes(), edits).map_err(|why| why.to_string())?;
        Ok(String::from_utf8(applied).unwrap())
    }

    #[test]
    fn edits_are_made_one_after_the_other() {
        let edits = [edit("two", "2"), edit("2\nthree", "2\n3")];
        assert_eq!(applied("one\ntwo\nthree\n", &edits), Ok("one\n2\n3\n".to_owned()));
        assert_eq!(applied("a b a", &[edit("a b", "x"), edit("a", "y")]), Ok("x y".to_owned()));
    }

    #[test]
    fn line_ends_stay_as_they_are() {
        let dos = "one\r\ntwo\r\nthree";
        for (old, new) in [("one\ntwo", "1\n2"), ("one\r\ntwo", "1\r\n2"), ("one\r\ntwo", "1\n2")] {
            assert_eq!(applied(dos, &[edit(old, new)]), Ok("1\r\n2\r\nthree".to_owned()), "{old:?}");
        }
        assert_eq!(applied(dos, &[edit("two", "two\nhalf")]), Ok("one\r\ntwo\r\nhalf\r\nthree".to_owned()));
        assert_eq!(applied("a\nb\n", &[edit("a\r\nb", "x\r\ny")]), Ok("x\ny\n".to_owned()));
        // Mixed line endings: lines that are not edited keep theirs.
        assert_eq!(applied("a\r\nb\nc\r\n", &[edit("b\nc", "B\nC")]), Ok("a\r\nB\nC\r\n".to_owned()));
        assert_eq!(applied("a\r\nb\nc\r\n", &[edit("a\nb", "A\nB")]), Ok("A\r\nB\nc\r\n".to_owned()));
    }

    #[test]
    fn a_missing_last_line_end_stays_missing() {
        assert_eq!(applied("one\ntwo", &[edit("two\n", "2\n")]), Ok("one\n2".to_owned()));
        assert_eq!(applied("one\r\ntwo", &[edit("one\ntwo\n", "1\n2\n")]), Ok("1\r\n2".to_owned()));
        assert_eq!(applied("one\ntwo\n", &[edit("two\n", "2\n")]), Ok("one\n2\n".to_owned()));
    }

    #[test]
    fn bytes_that_are_no_text_are_kept() {
        let text = b"caf\xe9 one\nb\xff\n";
        assert_eq!(apply_edits(text, &[edit("one", "two")]).unwrap(), b"caf\xe9 two\nb\xff\n");
    }

    #[test]
    fn what_is_there_twice_is_not_guessed() {
        let why = applied("x = 1\ny = 1\nx = 1\n", &[edit("x = 1", "x = 2")]).unwrap_err();
        assert!(why.contains("is there 2 times (lines 1, 3)"), "{why}");
        let why = applied("aaa", &[edit("aa", "b")]).unwrap_err();
        assert!(why.contains("2 times"), "{why}");
        let why = applied(&"x\n".repeat(50), &[edit("x", "y")]).unwrap_err();
        assert!(why.contains("more than 10 times"), "{why}");
    }

    #[test]
    fn what_is_not_there_is_shown_what_is_nearest() {
        let text = "fn main() {\n    let answer = 42;\n    println!(\"{answer}\");\n}\n";
        let why = applied(text, &[edit("  let answer = 42;\n  println!(\"{answer}\");", "x")]).unwrap_err();
        assert!(why.contains("the same but for spaces and tabs"), "{why}");
        assert!(why.contains("     2      let answer = 42;\n     3      println!"), "{why}");
        let why = applied(text, &[edit("let answer = 41;", "x")]).unwrap_err();
        assert!(why.contains("most like it:\n     2      let answer = 42;"), "{why}");
        let why = applied(text, &[edit("something else entirely", "x")]).unwrap_err();
        assert!(why.contains("nor anything like it"), "{why}");
    }

    #[test]
    fn one_bad_edit_of_several_is_named_and_none_is_made() {
        let why = applied("one two", &[edit("one", "1"), edit("three", "3")]).unwrap_err();
        assert!(why.starts_with("edit 2 of 2: "), "{why}");
        assert!(applied("one", &[edit("", "x")]).unwrap_err().contains("`oldText` is empty"));
    }
}
