//! Reads from the headers of a response how long to wait before a retry.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use reqwest::header::HeaderMap;

/// The longest delay that is accepted from a provider.
const MAX_DELAY: Duration = Duration::from_secs(48 * 3600);

/// How long to wait before a retry, from whichever header says so. The rate limit headers count only if
/// `limited`, because providers send them with every response.
pub(super) fn delay_from_headers(headers: &HeaderMap, limited: bool, now: Timestamp) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let in_words = text("retry-after-ms")
        .and_then(|ms| seconds(ms.parse::<f64>().ok()? / 1000.0))
        .or_else(|| text("retry-after").and_then(|when| parse_delay(when, now)));
    in_words
        .or_else(|| exhausted_limit_delay(headers, now).filter(|_| limited))
        .map(|delay| delay.min(MAX_DELAY))
}

/// The longest time until one of the exhausted limits resets. If the provider does not say how much is left
/// of any limit, all of them count.
fn exhausted_limit_delay(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let (mut spent, mut untold) = (None, None);
    for (name, value) in headers {
        let name = name.as_str();
        if !name.contains("ratelimit") || !name.contains("reset") {
            continue;
        }
        let Some(left) = value.to_str().ok().and_then(|when| parse_delay(when.trim(), now)) else { continue };
        let remaining = headers.get(name.replace("reset", "remaining")).and_then(|n| n.to_str().ok());
        match remaining.map(|n| n.trim().parse::<f64>()) {
            Some(Ok(n)) if n > 0.0 => {}
            Some(_) => spent = spent.max(Some(left)),
            None => untold = untold.max(Some(left)),
        }
    }
    spent.or(untold)
}

/// Parses a delay: seconds, `6m0.5s`, a date, or Unix time in seconds or milliseconds.
fn parse_delay(text: &str, now: Timestamp) -> Option<Duration> {
    if let Ok(number) = text.parse::<f64>() {
        return match number {
            n if n > 1e11 => until(Timestamp::from_millisecond(n as i64).ok()?, now),
            n if n > 1e9 => until(Timestamp::from_second(n as i64).ok()?, now),
            n => seconds(n),
        };
    }
    if let Ok(date) = text.parse::<Timestamp>() {
        return until(date, now);
    }
    if let Ok(date) = jiff::fmt::rfc2822::parse(text) {
        return until(date.timestamp(), now);
    }
    span(text)
}

fn until(then: Timestamp, now: Timestamp) -> Option<Duration> {
    Some(Duration::try_from(then.duration_since(now).max(SignedDuration::ZERO)).unwrap_or_default())
}

fn seconds(n: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(n).ok()
}

/// `1h2m3.5s`, `20ms`.
fn span(text: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(digits);
        let letters = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let unit = match unit {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return None,
        };
        total = total.checked_add(seconds(number.parse::<f64>().ok()? * unit)?)?;
        rest = tail;
    }
    (!text.is_empty()).then_some(total)
}

#[cfg(test)]
mod tests {
    use reqwest::header::{HeaderName, HeaderValue};

    use super::*;

    fn delay_millis(pairs: &[(&'static str, &'static str)]) -> Option<u128> {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        let now: Timestamp = "2026-11-15T12:00:00Z".parse().unwrap();
        delay_from_headers(&pairs.iter().map(pair).collect(), true, now).map(|delay| delay.as_millis())
    }

    #[test]
    fn every_way_of_saying_when_is_understood() {
        assert_eq!(delay_millis(&[("retry-after", "2")]), Some(2_000));
        assert_eq!(delay_millis(&[("retry-after", "0.5")]), Some(500));
        assert_eq!(delay_millis(&[("retry-after", "Sun, 15 Nov 2026 12:00:07 GMT")]), Some(7_000));
        assert_eq!(delay_millis(&[("retry-after", "Sun, 15 Nov 2026 11:00:00 GMT")]), Some(0));
        assert_eq!(delay_millis(&[("retry-after", "2"), ("retry-after-ms", "1250")]), Some(1_250));
        assert_eq!(delay_millis(&[("x-ratelimit-reset-requests", "6m0.5s")]), Some(360_500));
        assert_eq!(delay_millis(&[("x-ratelimit-reset-requests", "20ms")]), Some(20));
        assert_eq!(delay_millis(&[("x-ratelimit-reset", "1794744003000")]), Some(3_000));
        assert_eq!(delay_millis(&[("x-ratelimit-reset", "1794744003")]), Some(3_000));
        assert_eq!(
            delay_millis(&[("anthropic-ratelimit-tokens-reset", "2026-11-15T12:00:09Z")]),
            Some(9_000)
        );
    }

    #[test]
    fn only_limits_that_are_used_up_count() {
        let both = [
            ("x-ratelimit-remaining-requests", "12"),
            ("x-ratelimit-reset-requests", "8m"),
            ("x-ratelimit-remaining-tokens", "0"),
            ("x-ratelimit-reset-tokens", "3s"),
        ];
        assert_eq!(delay_millis(&both), Some(3_000));
        assert_eq!(delay_millis(&both[..2]), None);
    }

    #[test]
    fn nonsense_is_no_wish_and_a_year_is_not_believed() {
        for nonsense in ["", "soon", "-5", "NaN", "inf", "5 parsecs", "1.2.3s", "s"] {
            assert_eq!(delay_millis(&[("retry-after", nonsense)]), None, "{nonsense}");
        }
        assert_eq!(delay_millis(&[("retry-after", "31536000")]), Some(MAX_DELAY.as_millis()));
        assert_eq!(
            delay_millis(&[("retry-after", "Sat, 15 Nov 2036 12:00:07 GMT")]),
            Some(MAX_DELAY.as_millis())
        );
        assert_eq!(delay_millis(&[]), None);
    }
}
