//! Makes the text of models and tools safe for a terminal. Drops nothing that could hide something: control
//! characters and invisible characters are replaced by visible ones.

/// Makes control and invisible characters visible: `␛]0;…`, `⟨U+202E⟩`. Keeps line breaks, and removes codes
/// that only set colours. Use this for text to read, and [`escape_invisible`] for text to approve.
pub fn sanitize(text: &str) -> String {
    sanitize_with(text, false)
}

/// Makes every control and invisible character visible and removes nothing. Use this for the arguments of
/// calls.
pub fn escape_invisible(text: &str) -> String {
    sanitize_with(text, true)
}

/// Sanitizes a text and joins it into one line, with single spaces between words.
pub fn one_line(text: &str) -> String {
    sanitize(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Like `escape_invisible`, with visible line breaks, because one may end a command.
pub fn escape_invisible_line(text: &str) -> String {
    escape_invisible(text.trim_end()).split('\n').map(one_line).collect::<Vec<_>>().join(" ⏎ ")
}

/// Removes control and reordering characters from typed or pasted text. Keeps line breaks and tabs.
pub fn strip_control_chars(text: &str) -> String {
    text.chars().filter(|c| matches!(c, '\n' | '\t') || !(c.is_control() || is_reordering(*c))).collect()
}

/// Escapes invisible characters in JSON as `\uXXXX`, which keeps the value.
pub fn escape_invisible_json(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        if c == '\x7f' || ('\u{80}'..='\u{9f}').contains(&c) || is_invisible(c) {
            c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| text.push_str(&format!("\\u{unit:04x}")));
        } else {
            text.push(c);
        }
    }
    text
}

fn sanitize_with(text: &str, strict: bool) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    let mut before = '\n';
    while let Some(c) = rest.next() {
        match c {
            '\r' if rest.peek() == Some(&'\n') => continue,
            '\n' => shown.push(c),
            '\t' => shown.push_str("    "),
            '\x1b' if !strict && skip_colour(&mut rest) => continue,
            '\0'..='\x1f' => shown.extend(char::from_u32(0x2400 + u32::from(c))),
            '\x7f' => shown.push('␡'),
            c if c.is_control() => name(c, &mut shown),
            c if !strict && joins(before, c, rest.peek().copied()) => shown.push(c),
            c if is_invisible(c) || (strict && is_odd_space(c)) => name(c, &mut shown),
            c => shown.push(c),
        }
        before = c;
    }
    shown
}

fn name(c: char, shown: &mut String) {
    shown.push_str(&format!("⟨U+{:04X}⟩", u32::from(c)));
}

/// Skips the rest of a colour sequence, which contains no text.
fn skip_colour(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) -> bool {
    let mut ahead = rest.clone();
    if ahead.next() != Some('[') {
        return false;
    }
    while ahead.next_if(|c| c.is_ascii_digit() || matches!(c, ';' | ':')).is_some() {}
    let is_colour = ahead.next() == Some('m');
    if is_colour {
        *rest = ahead;
    }
    is_colour
}

/// Returns whether a character changes the display order of others.
fn is_reordering(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns whether a character is invisible or moves others.
fn is_invisible(c: char) -> bool {
    is_reordering(c)
        || matches!(
            c,
            '\u{ad}'
                | '\u{34f}'
                | '\u{115f}'
                | '\u{1160}'
                | '\u{17b4}'
                | '\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200d}'
                | '\u{2028}'
                | '\u{2029}'
                | '\u{2060}'..='\u{206f}'
                | '\u{3164}'
                | '\u{fe00}'..='\u{fe0f}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff0}'..='\u{fffb}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

/// Returns whether a character looks like a space but is none to a shell.
fn is_odd_space(c: char) -> bool {
    c != ' ' && c.is_whitespace() || c == '\u{2800}'
}

/// Returns whether an invisible character is used as intended: to join emoji, or letters in scripts that need
/// it.
fn joins(before: char, c: char, after: Option<char>) -> bool {
    let needs = |c: char| !c.is_ascii() && !c.is_control() && !is_invisible(c) && !c.is_whitespace();
    match c {
        '\u{fe0e}' | '\u{fe0f}' => needs(before) && !before.is_alphabetic() || before.is_ascii_digit(),
        '\u{200c}' | '\u{200d}' => (needs(before) || before == '\u{fe0f}') && after.is_some_and(needs),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_stays_as_it_is() {
        for text in
            ["", "Grüße, 世界 👩‍👩‍👧 ❤️ 🏳️‍🌈 می‌خواهم e\u{301}", "two\nlines", "[31m is no escape without one"]
        {
            assert_eq!(sanitize(text), text);
        }
        assert_eq!(sanitize("a\tb\r\nc"), "a    b\nc");
    }

    /// Input, sanitized and escaped output; `None` if both outputs are equal.
    const FORMS: [(&str, &str, Option<&str>); 29] = [
        ("\x1b[31mred\x1b[0m", "␛[31mred␛[0m", Some("red")),
        ("\x1b[2J\x1b[Hgone", "␛[2J␛[Hgone", None),
        ("\x1b]0;title\x07text", "␛]0;title␇text", None),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "␛]8;;http://evil␛\\link␛]8;;␛\\", None),
        ("\x1bP1$r0m\x1b\\dcs", "␛P1$r0m␛\\dcs", None),
        ("\x1b_apc\x1b\\", "␛_apc␛\\", None),
        ("\x1b^pm\x1b\\", "␛^pm␛\\", None),
        ("\x1bXsos\x1b\\", "␛Xsos␛\\", None),
        ("\x1bcreset", "␛creset", None),
        ("\x1b(0lqk", "␛(0lqk", None),
        ("\u{9b}31mc1", "⟨U+009B⟩31mc1", None),
        ("\u{9d}52;c;eA==\u{9c}clip", "⟨U+009D⟩52;c;eA==⟨U+009C⟩clip", None),
        ("\u{90}q\u{98}s\u{9e}p\u{9f}a", "⟨U+0090⟩q⟨U+0098⟩s⟨U+009E⟩p⟨U+009F⟩a", None),
        ("\u{85}", "⟨U+0085⟩", None),
        ("bell\x07 back\x08 del\x7f nul\0", "bell␇ back␈ del␡ nul␀", None),
        ("over\rwritten", "over␍written", None),
        ("abc\u{202e}cba\u{2066}x", "abc⟨U+202E⟩cba⟨U+2066⟩x", None),
        ("a\u{200e}b\u{200f}c\u{61c}d", "a⟨U+200E⟩b⟨U+200F⟩c⟨U+061C⟩d", None),
        ("su\u{200b}do", "su⟨U+200B⟩do", None),
        ("su\u{200d}do", "su⟨U+200D⟩do", None),
        ("su\u{ad}do\u{feff}\u{2060}", "su⟨U+00AD⟩do⟨U+FEFF⟩⟨U+2060⟩", None),
        ("x\u{e0072}\u{e006d}", "x⟨U+E0072⟩⟨U+E006D⟩", None),
        ("a\u{2028}b", "a⟨U+2028⟩b", None),
        ("a\u{a0}b", "a⟨U+00A0⟩b", Some("a\u{a0}b")),
        ("end\x1b", "end␛", None),
        ("end\x1b[", "end␛[", None),
        ("\x1b\x1b[31mtwice", "␛␛[31mtwice", Some("␛twice")),
        ("\x1b[31;touch x", "␛[31;touch x", None),
        ("a\u{fe0f}b", "a⟨U+FE0F⟩b", None),
    ];

    #[test]
    fn what_a_terminal_obeys_or_hides_is_shown_and_nothing_is_dropped() {
        for (text, strictly, read) in FORMS {
            assert_eq!(escape_invisible(text), strictly, "{text:?}");
            assert_eq!(sanitize(text), read.unwrap_or(strictly), "{text:?}");
        }
    }

    #[test]
    fn no_control_is_left_whatever_comes() {
        let mut seed = 7_u64;
        for _ in 0..2000 {
            let text: String = (0..40)
                .map(|_| {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let pick = (seed >> 33) as u32;
                    if pick.is_multiple_of(3) { '\x1b' } else { char::from_u32(pick % 0x2100).unwrap_or('x') }
                })
                .collect();
            for shown in [sanitize(&text), escape_invisible(&text), escape_invisible_line(&text)] {
                assert!(shown.chars().all(|c| c == '\n' || !c.is_control() && !is_reordering(c)), "{text:?}");
            }
            let seen = |text: &str| text.chars().filter(|c| c.is_ascii_alphanumeric()).collect::<String>();
            let words = seen(&text);
            let mut shown = escape_invisible(&text)
                .chars()
                .filter(|c| c.is_ascii_alphanumeric())
                .collect::<Vec<_>>()
                .into_iter();
            assert!(words.chars().all(|c| shown.any(|own| own == c)), "all of it is there: {text:?}");
        }
    }

    #[test]
    fn a_very_long_line_is_shown_whole() {
        let text = format!("echo {}\x1b]0;; touch HIDDEN # \x07", "x".repeat(1_000_000));
        let shown = escape_invisible(&text);
        assert!(shown.ends_with("␛]0;; touch HIDDEN # ␇") && shown.len() > 1_000_000);
    }

    #[test]
    fn one_line_is_one_line() {
        assert_eq!(one_line("  a\n\n b\x1b[1m\tc "), "a b c");
        assert_eq!(escape_invisible_line("echo a\nrm  -r b\n"), "echo a ⏎ rm -r b");
        assert_eq!(escape_invisible_line("a\x1b[1mb"), "a␛[1mb");
    }

    #[test]
    fn json_shows_all_its_characters_and_stays_the_same_value() {
        let text = "a\u{9b}31m\u{202e}b\u{200b}\u{e0072}c\x7f\x1b ü 世 👩‍👩‍👧";
        let json = serde_json::to_string(text).unwrap();
        let shown = escape_invisible_json(&json);
        assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), text);
        assert!(
            shown.contains("\\u202e") && shown.contains("\\u009b") && shown.contains("\\udb40\\udc72"),
            "{shown}"
        );
        assert!(shown.contains("ü 世"), "{shown}");
        assert!(shown.chars().all(|c| !c.is_control() && !is_invisible(c)), "{shown}");
    }
}
