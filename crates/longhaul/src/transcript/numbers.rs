//! Numbers, amounts and times as people read them.

use std::time::Duration;

use jiff::Timestamp;

/// Formats a duration: `0.4s`, `12s`, `1m05s`, `2h03m`, `3d04h`.
pub fn format_duration(time: Duration) -> String {
    match time.as_secs() {
        ..10 => format!("{:.1}s", (time.as_millis() / 100) as f64 / 10.0),
        s @ ..60 => format!("{s}s"),
        s @ ..3600 => format!("{}m{:02}s", s / 60, s % 60),
        s @ ..86_400 => format!("{}h{:02}m", s / 3600, s % 3600 / 60),
        s => format!("{}d{:02}h", s / 86_400, s % 86_400 / 3600),
    }
}

/// Formats the time left until a deadline: `4m05s left`.
pub fn format_time_left(until: Timestamp, now: Timestamp) -> String {
    format!("{} left", format_duration(Duration::try_from(until.duration_since(now)).unwrap_or_default()))
}

/// Formats a number with thousands separators: `12,345`.
pub fn format_count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a count: `1 task`, `3 tasks`.
pub fn pluralize(number: usize, what: &str) -> String {
    format!("{} {what}{}", format_count(number as u64), if number == 1 { "" } else { "s" })
}

/// Formats millionths of a dollar: `$12.30`, `$0.0042`.
pub fn format_dollars(cost: u64) -> String {
    match cost as f64 / 1e6 {
        much if much >= 10.0 => format!("${much:.2}"),
        little => format!("${little:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_formatted_as_people_say_them() {
        let formatted = |ms| format_duration(Duration::from_millis(ms));
        assert_eq!(formatted(0), "0.0s");
        assert_eq!(formatted(9_990), "9.9s");
        assert_eq!(formatted(42_000), "42s");
        assert_eq!(formatted(65_000), "1m05s");
        assert_eq!(formatted(7_380_000), "2h03m");
        assert_eq!(formatted(273_600_000), "3d04h");
    }

    #[test]
    fn numbers_are_formatted_as_people_read_them() {
        assert_eq!(format_count(0), "0");
        assert_eq!(format_count(999), "999");
        assert_eq!(format_count(1_234_567), "1,234,567");
        assert_eq!(pluralize(1, "task"), "1 task");
        assert_eq!(format_dollars(4_200), "$0.0042");
        assert_eq!(format_dollars(12_300_000), "$12.30");
    }
}
