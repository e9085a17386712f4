//! Formats and parses times, numbers and text widths.

use std::time::Duration;

use jiff::Timestamp;
use unicode_width::UnicodeWidthStr as _;

pub(crate) use longhaul::transcript::{
    format_count, format_dollars, format_duration, format_time_left, pluralize,
};

pub(crate) use super::graphemes::{grapheme_width as display_width, truncate_graphemes as truncate};

/// Formats how long ago something was: `just now`, `3 min ago`, `5 h ago`, `2 days ago`.
pub(crate) fn format_ago(then: Timestamp, now: Timestamp) -> String {
    match now.duration_since(then).as_secs() {
        ..5 => "just now".to_owned(),
        s @ ..60 => format!("{s} s ago"),
        s @ ..3600 => format!("{} min ago", s / 60),
        s @ ..86_400 => format!("{} h ago", s / 3600),
        s @ ..172_800 => format!("{} day ago", s / 86_400),
        s => format!("{} days ago", s / 86_400),
    }
}

/// Formats the local time of day.
pub(crate) fn format_clock(at: Timestamp) -> String {
    at.to_zoned(jiff::tz::TimeZone::system()).strftime("%H:%M:%S").to_string()
}

/// Formats date and time.
pub(crate) fn format_timestamp(at: Timestamp) -> String {
    at.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string()
}

/// Formats a number in short form: `950`, `12.3k`, `1.2M`.
pub(crate) fn format_short_count(number: u64) -> String {
    let scaled = |unit: u64| (number / (unit / 10)) as f64 / 10.0;
    match number {
        0..1_000 => number.to_string(),
        1_000..100_000 => format!("{:.1}k", scaled(1_000)),
        100_000..1_000_000 => format!("{}k", number / 1_000),
        1_000_000..1_000_000_000 => format!("{:.1}M", scaled(1_000_000)),
        _ => format!("{:.1}G", scaled(1_000_000_000)),
    }
}

/// Formats a size: `812 B`, `34 KB`, `1.2 MB`, `56 GB`.
pub(crate) fn format_bytes(number: u64) -> String {
    let units = ["B", "KB", "MB", "GB", "TB"];
    let mut unit = 0;
    let mut scaled = number as f64;
    while scaled >= 1000.0 && unit + 1 < units.len() {
        scaled /= 1000.0;
        unit += 1;
    }
    let digits = usize::from(unit > 0 && scaled < 10.0);
    format!("{scaled:.digits$} {}", units[unit])
}

/// What an argument has to look like.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InvalidArgument(pub(crate) &'static str);

impl std::fmt::Display for InvalidArgument {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for InvalidArgument {}

/// Parses a duration: `30s`, `500ms`, `1h30m`, or plain seconds.
pub(crate) fn parse_duration(typed: &str) -> Result<Duration, InvalidArgument> {
    let wrong = || InvalidArgument("a time looks like 30s, 5m, 1h30m or 500ms");
    if let Ok(seconds) = typed.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).map_err(|_| wrong());
    }
    let span: jiff::SignedDuration = typed.parse().map_err(|_| wrong())?;
    Duration::try_from(span).map_err(|_| wrong())
}

/// Parses an age: what [`parse_duration`] accepts, and days and weeks. Rejects a plain number: `prune
/// --older-than 30` hardly means seconds.
pub(crate) fn parse_age(typed: &str) -> Result<Duration, InvalidArgument> {
    let wrong = || InvalidArgument("an age looks like 90s, 30m, 12h, 7d or 2w");
    if typed.parse::<f64>().is_ok() {
        return Err(wrong());
    }
    if let Ok(time) = parse_duration(typed) {
        return Ok(time);
    }
    let span: jiff::Span = typed.parse().map_err(|_| wrong())?;
    let time = span.to_duration(jiff::SpanRelativeTo::days_are_24_hours()).map_err(|_| wrong())?;
    Duration::try_from(time).map_err(|_| wrong())
}

/// Parses an amount of money: `5`, `0.25`, `$1`.
pub(crate) fn parse_dollars(typed: &str) -> Result<f64, InvalidArgument> {
    let wrong = || InvalidArgument("an amount of dollars looks like 5 or 0.25");
    typed.trim().trim_start_matches('$').parse().map_err(|_| wrong())
}

/// Formats the cost of tasks: `–` if nothing was used, `?` if unknown, with `+` if part of it is unknown.
pub(crate) fn format_price(cost: u64, unpriced: u64) -> String {
    match (cost, unpriced) {
        (0, 0) => "–".to_owned(),
        (0, _) => "?".to_owned(),
        (cost, 0) => format_dollars(cost),
        (cost, _) => format!("{}+", format_dollars(cost)),
    }
}

/// Pads a text to exactly this many columns, aligned left.
pub(crate) fn align_left(text: &str, columns: usize) -> String {
    let text = truncate(text, columns);
    let gap = columns.saturating_sub(text.width());
    text + &" ".repeat(gap)
}

/// Pads a text to exactly this many columns, aligned right.
pub(crate) fn align_right(text: &str, columns: usize) -> String {
    let text = truncate(text, columns);
    " ".repeat(columns.saturating_sub(text.width())) + &text
}

/// Wraps a text to this many columns. Continued lines keep their indent.
pub(crate) fn wrap_text(text: &str, columns: usize) -> String {
    let wrapped = text.lines().map(|line| wrap_line(line, columns.max(10)));
    wrapped.collect::<Vec<_>>().join("\n")
}

fn wrap_line(line: &str, columns: usize) -> String {
    if line.width() <= columns {
        return line.to_owned();
    }
    let indent = line.len() - line.trim_start().len();
    // Text after a label ("  Map    12 entries") continues below that text.
    let label = line[indent..].find("  ").map_or(0, |at| {
        let gap = &line[indent + at..];
        at + gap.len() - gap.trim_start().len()
    });
    let hang = if indent + label <= columns / 3 { indent + label } else { indent.min(columns / 3) };
    let mut wrapped = String::new();
    let mut used = 0;
    for (index, word) in line[indent + label..].split_whitespace().enumerate() {
        if index == 0 {
            wrapped.push_str(&line[..indent + label]);
            used = line[..indent + label].width();
        } else if used + 1 + word.width() > columns {
            wrapped.push('\n');
            wrapped.push_str(&" ".repeat(hang));
            used = hang;
        } else {
            wrapped.push(' ');
            used += 1;
        }
        wrapped.push_str(word);
        used += word.width();
    }
    wrapped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_knows_is_not_shown_as_free() {
        assert_eq!(format_price(0, 0), "–");
        assert_eq!(format_price(0, 3), "?");
        assert_eq!(format_price(4_200, 0), "$0.0042");
        assert_eq!(format_price(4_200, 1), "$0.0042+");
    }

    #[test]
    fn times_are_told_as_people_say_them() {
        let at = |second| Timestamp::from_second(second).unwrap();
        assert_eq!(format_ago(at(100), at(90)), "just now");
        assert_eq!(format_ago(at(0), at(200)), "3 min ago");
        assert_eq!(format_ago(at(0), at(90_000)), "1 day ago");
    }

    #[test]
    fn numbers_are_told_as_people_read_them() {
        assert_eq!(format_short_count(999), "999");
        assert_eq!(format_short_count(12_345), "12.3k");
        assert_eq!(format_short_count(999_999), "999k");
        assert_eq!(format_short_count(1_250_000), "1.2M");
        assert_eq!(format_bytes(812), "812 B");
        assert_eq!(format_bytes(1_234_567), "1.2 MB");
        assert_eq!(format_bytes(56_000_000_000), "56 GB");
    }

    #[test]
    fn typed_times_are_understood() {
        assert_eq!(parse_duration("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(parse_duration("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["", "soon", "-1s", "-3", "inf"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn ages_may_be_days_and_weeks() {
        assert_eq!(parse_age("90s"), Ok(Duration::from_secs(90)));
        assert!(parse_age("90").is_err() && parse_age("0").is_err(), "days, or seconds?");
        assert_eq!(parse_age("12h"), Ok(Duration::from_secs(43_200)));
        assert_eq!(parse_age("7d"), Ok(Duration::from_secs(604_800)));
        assert_eq!(parse_age("2w 1d"), Ok(Duration::from_secs(1_296_000)));
        for wrong in ["", "old", "-3d", "1y", "2 months"] {
            assert!(parse_age(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn texts_are_padded_by_the_column() {
        assert_eq!(align_left("ab", 4), "ab  ");
        assert_eq!(align_right("ab", 4), "  ab");
    }

    #[test]
    fn a_long_line_hangs_below_what_it_labels() {
        assert_eq!(wrap_text("  Map  one two three four", 16), "  Map  one two\n  three four");
        assert_eq!(wrap_text("  M  one two three four", 18), "  M  one two three\n     four");
        assert_eq!(wrap_text("fits\n\nhere", 40), "fits\n\nhere");
    }
}
