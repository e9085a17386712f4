//! Checks the links that a server asks a person to open.

use std::net::IpAddr;

use reqwest::Url;

use super::limits;

/// A link that may be shown, and its host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CheckedLink {
    pub(super) url: String,
    pub(super) host: String,
}

/// Why a page is not shown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct LinkRefused(String);

/// Accepts a web page: `https`, or `http` on this machine. Rejects schemes that run or read something when
/// opened.
pub(super) fn check_link(typed: &str) -> Result<CheckedLink, LinkRefused> {
    if typed.len() > limits::LINK {
        return Err(LinkRefused(format!("its address is longer than {} bytes", limits::LINK)));
    }
    let url = Url::parse(typed).map_err(|_| LinkRefused("it is not a URL".to_owned()))?;
    let host = url.host_str().filter(|host| !host.is_empty());
    let Some(host) = host.filter(|_| matches!(url.scheme(), "http" | "https")) else {
        return Err(LinkRefused(format!("only https: pages are shown, not '{}:'", url.scheme())));
    };
    if url.scheme() == "http" && !is_loopback(host) {
        return Err(LinkRefused(format!(
            "http: pages are only shown if they are on this machine, and {host} is not"
        )));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(LinkRefused("a name before the host could be mistaken for it".to_owned()));
    }
    Ok(CheckedLink { url: url.as_str().to_owned(), host: host.to_owned() })
}

/// Checks whether the host of a URL is this machine, by its name.
pub(super) fn is_loopback(host: &str) -> bool {
    let literal = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || literal.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_of_the_web_are_shown() {
        for (typed, host) in [
            ("https://example.com/a?b#c", "example.com"),
            ("http://127.0.0.1:99/", "127.0.0.1"),
            ("http://[::1]/", "[::1]"),
            ("HTTP://LocalHost/", "localhost"),
            // A host that imitates another is shown in its encoded form.
            ("https://ехample.com/", "xn--ample-ywe6i.com"),
        ] {
            assert_eq!(check_link(typed).unwrap().host, host, "{typed}");
        }
        for typed in [
            "javascript:alert(1)",
            "JaVaScRiPt:alert(1)",
            "java\nscript:alert(1)",
            "file:///etc/passwd",
            "data:text/html,<p>",
            "vbscript:x",
            "ftp://example.com/",
            "http://example.com/",
            "http://127.0.0.1.evil.example/",
            "https://good.example@evil.example/",
            "https://",
            "/path",
            "",
        ] {
            assert!(check_link(typed).is_err(), "{typed}");
        }
        assert!(check_link(&format!("https://example.com/{}", "a".repeat(5000))).is_err());
        // A link must not be able to imitate a line of our own output.
        assert!(!check_link("https://example.com/a\n\u{1b}[2Jb").unwrap().url.contains(['\n', '\u{1b}']));
    }
}
