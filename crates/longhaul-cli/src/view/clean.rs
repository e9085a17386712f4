//! Words of models and tools, made harmless for a terminal.

/// The text without escape sequences, control characters and reversals of direction; line breaks and tabs stay.
pub(crate) fn clean(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\x1b' => skip_escape(&mut rest),
            // The same in one character each: C1.
            '\u{9b}' => skip_csi(&mut rest),
            '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}' => skip_string(&mut rest),
            '\n' => clean.push(c),
            '\t' => clean.push_str("    "),
            c if c.is_control() => {}
            // They make a text read otherwise than it is.
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{feff}' => {}
            c => clean.push(c),
        }
    }
    clean
}

/// The text as one line: what is between its words is one space.
pub(crate) fn one_line(text: &str) -> String {
    clean(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

type Rest<'a> = std::iter::Peekable<std::str::Chars<'a>>;

/// Passes over what comes after an escape. Of a string that never ends only the beginning is passed over: without
/// its escape it is plain text, and nothing is swallowed.
fn skip_escape(rest: &mut Rest<'_>) {
    match rest.peek() {
        Some('[') => {
            rest.next();
            skip_csi(rest);
        }
        Some(']' | 'P' | 'X' | '^' | '_') => {
            rest.next();
            skip_string(rest);
        }
        Some('(' | ')' | '*' | '+' | '#' | '%' | ' ') => {
            rest.next();
            rest.next_if(|c| !c.is_control());
        }
        _ => {
            rest.next_if(|c| !c.is_control());
        }
    }
}

fn skip_csi(rest: &mut Rest<'_>) {
    while rest.next_if(|c| ('\u{20}'..='\u{3f}').contains(c)).is_some() {}
    rest.next_if(|c| ('\u{40}'..='\u{7e}').contains(c));
}

fn skip_string(rest: &mut Rest<'_>) {
    let mut ahead = rest.clone();
    while let Some(c) = ahead.next() {
        let ends = match c {
            '\x07' | '\u{9c}' => true,
            '\x1b' => ahead.next_if_eq(&'\\').is_some(),
            '\n' => return,
            _ => false,
        };
        if ends {
            *rest = ahead;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_stays_as_it_is() {
        for text in ["", "Grüße, 世界 👩‍👩‍👧", "two\nlines", "[31m is no escape without one"]
        {
            assert_eq!(clean(text), text);
        }
        assert_eq!(clean("a\tb\r\nc"), "a    b\nc");
    }

    #[test]
    fn nothing_that_a_terminal_obeys_gets_through() {
        for (text, left) in [
            ("\x1b[31mred\x1b[0m", "red"),
            ("\x1b[2J\x1b[Hgone", "gone"),
            ("\x1b]0;title\x07text", "text"),
            ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
            ("\x1bP1$r0m\x1b\\dcs", "dcs"),
            ("\x1bcreset", "reset"),
            ("\x1b(0lqk", "lqk"),
            ("\u{9b}31mc1", "c1"),
            ("\u{9d}52;c;eA==\u{9c}clip", "clip"),
            ("\u{90}q\x1b\\sixel \u{9d}0;title\x07c1", "sixel c1"),
            ("\x1b]52;c;eA==\x07clip", "clip"),
            ("bell\x07 back\x08 del\x7f nul\0", "bell back del nul"),
            ("over\rwritten", "overwritten"),
            ("abc\u{202e}cba\u{2066}x", "abccbax"),
            ("end\x1b", "end"),
            ("end\x1b[", "end"),
            ("\x1b\x1b[31mtwice", "twice"),
        ] {
            assert_eq!(clean(text), left, "{text:?}");
        }
    }

    #[test]
    fn an_escape_without_an_end_swallows_nothing() {
        assert_eq!(clean("\x1b]0;never ends, and on it goes"), "0;never ends, and on it goes");
        assert_eq!(clean("\x1b]0;broken\nnext \x07line"), "0;broken\nnext line");
    }

    #[test]
    fn no_control_is_left_whatever_comes() {
        let mut seed = 7_u64;
        for _ in 0..2000 {
            let text: String = (0..40)
                .map(|_| {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let pick = (seed >> 33) as u32;
                    if pick.is_multiple_of(3) { '\x1b' } else { char::from_u32(pick % 0xff).unwrap_or('x') }
                })
                .collect();
            assert!(clean(&text).chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
        }
    }

    #[test]
    fn one_line_is_one_line() {
        assert_eq!(one_line("  a\n\n b\x1b[1m\tc "), "a b c");
    }
}
