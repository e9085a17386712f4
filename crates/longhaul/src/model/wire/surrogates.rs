//! Repairs split characters: some providers split a text into events in the middle of a surrogate pair.
//!
//! JSON can hold half a pair (`"\ud83d"`), a Rust string cannot. A half is stored as a private-use character
//! until its other half comes.

use std::borrow::Cow;

/// The private-use range for halves: beyond what fonts and standards use.
const PLANE: u32 = 0x0010_F000;
const FIRST: u32 = 0xD800;
const FIRST_LOW: u32 = 0xDC00;
const LAST: u32 = 0xDFFF;

/// Decodes a JSON string with halves of pairs, as private-use characters. `None` if it is not a string.
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

/// Joins halves that are next to each other.
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

/// Whether a text may contain halves: only characters of the last plane begin with this byte.
fn may_have(text: &str) -> bool {
    memchr::memchr(0xF4, text.as_bytes()).is_some()
}

/// Joins the halves in a text, and turns those without a partner into replacement characters.
pub(super) fn repair(text: String) -> String {
    if !may_have(&text) {
        return text;
    }
    joined(&text).chars().map(|c| if unit(c).is_some() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// Puts the kept half in front of the next piece. A first half at the end of the piece is kept again.
pub(super) fn join_piece<'a>(kept: &mut Option<char>, piece: &'a str) -> Cow<'a, str> {
    if kept.is_none() && !may_have(piece) {
        return Cow::Borrowed(piece);
    }
    let mut whole: String = kept.take().into_iter().collect();
    whole.push_str(piece);
    let mut whole = joined(&whole);
    if whole.chars().next_back().is_some_and(is_high) {
        *kept = whole.pop();
    }
    Cow::Owned(repair(whole))
}
