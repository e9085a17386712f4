//! Halves of characters: some providers cut a text into events in the middle of a surrogate pair.
//!
//! JSON may say half a pair (`"\ud83d"`), a string of ours cannot. Until its other half comes, one is kept as a character of a
//! private plane.

/// Where halves are kept: behind all that fonts and standards use.
const PLANE: u32 = 0x0010_F000;
const FIRST: u32 = 0xD800;
const FIRST_LOW: u32 = 0xDC00;
const LAST: u32 = 0xDFFF;

/// The text of a JSON string that has halves of characters in it, with their stand-ins; nothing if it is no string.
pub(super) fn decode_json_string(literal: &str) -> Option<String> {
    let body = literal.trim().strip_prefix('"')?.strip_suffix('"')?;
    let mut text = String::with_capacity(body.len());
    let mut rest = body.chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            text.push(c);
            continue;
        }
        text.push(match rest.next()? {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'u' => {
                let digits = rest.as_str().get(..4)?;
                let unit = u32::from_str_radix(digits, 16).ok()?;
                rest = rest.as_str().get(4..)?.chars();
                char::from_u32(if (FIRST..=LAST).contains(&unit) { PLANE + unit - FIRST } else { unit })?
            }
            other => other,
        });
    }
    Some(joined(&text))
}

fn unit(c: char) -> Option<u32> {
    let at = u32::from(c).checked_sub(PLANE)? + FIRST;
    (at <= LAST).then_some(at)
}

fn is_high(c: char) -> bool {
    unit(c).is_some_and(|unit| unit < FIRST_LOW)
}

/// Puts halves together that stand side by side.
fn joined(text: &str) -> String {
    let mut whole = String::with_capacity(text.len());
    for c in text.chars() {
        let pair = whole.chars().next_back().and_then(unit).filter(|high| *high < FIRST_LOW).zip(unit(c));
        match pair.filter(|(_, low)| *low >= FIRST_LOW) {
            Some((high, low)) => {
                whole.pop();
                whole.extend(char::from_u32(0x1_0000 + ((high - FIRST) << 10) + (low - FIRST_LOW)));
            }
            None => whole.push(c),
        }
    }
    whole
}

/// Whether there may be halves in a text: of all characters only those of the last plane begin like this.
fn may_have(text: &str) -> bool {
    memchr::memchr(0xF4, text.as_bytes()).is_some()
}

/// A text in which halves have found each other, and those that have not are marks of what is lost.
pub(super) fn repair(text: String) -> String {
    if !may_have(&text) {
        return text;
    }
    joined(&text).chars().map(|c| if unit(c).is_some() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// A piece of a text behind what was kept of the one before it. The first half of a character at its end is kept.
pub(super) fn join_piece(kept: &mut Option<char>, piece: String) -> String {
    if kept.is_none() && !may_have(&piece) {
        return piece;
    }
    let mut whole: String = kept.take().into_iter().collect();
    whole.push_str(&piece);
    let mut whole = joined(&whole);
    if whole.chars().next_back().is_some_and(is_high) {
        *kept = whole.pop();
    }
    repair(whole)
}
