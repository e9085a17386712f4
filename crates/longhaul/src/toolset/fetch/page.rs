//! Converts a response to readable text.

use std::collections::HashMap;

use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};
use htmd::element_handler::Handlers;
use htmd::{Element, HtmlToMarkdown};
use reqwest::Url;

use super::PageFormat;
use super::html_text::{element_text, html_to_text};

/// The kind of content of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PageKind {
    Html,
    Text,
    /// Content that is not text.
    Other,
    /// The server does not say.
    Unknown,
}

impl PageKind {
    /// Determines the kind by the content type.
    pub(super) fn from_content_type(content_type: &str) -> PageKind {
        let plain = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let words =
            ["json", "xml", "javascript", "ecmascript", "yaml", "toml", "csv", "graphql", "sql", "x-sh"];
        let (kind, what) = plain.split_once('/').unwrap_or((plain.as_str(), ""));
        match (kind, what) {
            ("", _) => PageKind::Unknown,
            ("text", "html") | ("application", "xhtml+xml") => PageKind::Html,
            ("text", _) => PageKind::Text,
            ("image", "svg+xml") => PageKind::Text,
            ("application", what) if words.iter().any(|word| what.contains(word)) => PageKind::Text,
            ("message", _) => PageKind::Text,
            _ => PageKind::Other,
        }
    }

    /// Determines the kind by the content.
    pub(super) fn guess(bytes: &[u8]) -> PageKind {
        if bytes.contains(&0) {
            return PageKind::Other;
        }
        let begin = String::from_utf8_lossy(&bytes[..bytes.len().min(512)]).trim_start().to_ascii_lowercase();
        match begin.starts_with("<!doctype html") || begin.starts_with("<html") {
            true => PageKind::Html,
            false => PageKind::Text,
        }
    }
}

/// Decodes a page. The encoding is the one of the byte order mark, or of the content type; else UTF-8 if the
/// bytes are valid UTF-8; else the one that the page declares, or Windows-1252.
pub(super) fn decode_text(bytes: &[u8], content_type: &str, cut: bool) -> String {
    let named = |text: &str| {
        let at = text.to_ascii_lowercase().find("charset=")? + "charset=".len();
        let label: String = text[at..]
            .trim_start_matches(['"', '\''])
            .chars()
            .take_while(|c| c.is_ascii_alphanumeric() || "-_:.".contains(*c))
            .collect();
        Encoding::for_label(label.as_bytes())
    };
    let in_page = || named(&String::from_utf8_lossy(&bytes[..bytes.len().min(1024)]));
    let encoding = Encoding::for_bom(bytes).map(|(encoding, _)| encoding).or_else(|| named(content_type));
    let is_utf8 = || match std::str::from_utf8(bytes) {
        Ok(_) => true,
        // The end of the text splits a character.
        Err(error) => cut && error.error_len().is_none(),
    };
    let encoding = match (encoding, PageKind::from_content_type(content_type)) {
        (Some(encoding), _) => encoding,
        (None, _) if is_utf8() => UTF_8,
        (None, PageKind::Html | PageKind::Unknown) => in_page().unwrap_or(WINDOWS_1252),
        (None, _) => WINDOWS_1252,
    };
    encoding.decode(bytes).0.into_owned()
}

/// Renders an HTML page in the requested format; returns the text and the title.
pub(super) fn render_html(html: String, format: PageFormat, base: &Url) -> (String, Option<String>) {
    let title = element_text(&html, "title");
    let text = match format {
        PageFormat::Html => html,
        PageFormat::Text => html_to_text(&html),
        PageFormat::Markdown => with_room(|| markdown(&html, base)).unwrap_or_else(|| html_to_text(&html)),
    };
    (text, title)
}

/// The stack size for walking a tree. In a debug build one level takes about 8 KiB, and the deepest allowed
/// tree has three levels for each level counted.
const ROOM: usize = 32 << 20;

/// Runs `act` on a thread with a large stack.
fn with_room<T: Send>(act: impl FnOnce() -> Option<T> + Send) -> Option<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(ROOM).spawn_scoped(scope, act);
        thread.ok()?.join().ok()?
    })
}

/// Elements that are skipped: scripts, decoration and navigation.
const UNREAD: [&str; 17] = [
    "head", "script", "style", "noscript", "template", "svg", "canvas", "iframe", "object", "embed", "nav",
    "button", "select", "input", "textarea", "dialog", "math",
];

/// Converts the page to Markdown with absolute links; `None` if its tree is too deep to walk.
fn markdown(html: &str, base: &Url) -> Option<String> {
    if !can_be_walked(html) {
        return None;
    }
    let (links, images) = (base.clone(), base.clone());
    let converter = HtmlToMarkdown::builder()
        .skip_tags(UNREAD.to_vec())
        .add_handler(vec!["a"], move |handlers: &dyn Handlers, element: Element<'_>| {
            let content = handlers.walk_children(element.node).content;
            let text = content.split_whitespace().collect::<Vec<_>>().join(" ");
            let link = attribute(&element, "href").and_then(|href| whole(&links, &href));
            Some(match link {
                Some(link) if !text.is_empty() => format!("[{text}]({link})").into(),
                _ => content.into(),
            })
        })
        .add_handler(vec!["img"], move |_: &dyn Handlers, element: Element<'_>| {
            let alt = attribute(&element, "alt").unwrap_or_default();
            let alt = alt.split_whitespace().collect::<Vec<_>>().join(" ");
            let source = attribute(&element, "src").and_then(|src| whole(&images, &src));
            match source {
                Some(source) if !alt.is_empty() => Some(format!("![{alt}]({source})").into()),
                _ => Some(alt.into()),
            }
        })
        .build();
    converter.convert(html).ok()
}

fn attribute(element: &Element<'_>, name: &str) -> Option<String> {
    element.attrs.iter().find(|attribute| &*attribute.name.local == name).map(|found| found.value.to_string())
}

/// Makes a link absolute. Returns `None` for fragments, `data:` URLs and other links that lead to no page.
fn whole(base: &Url, link: &str) -> Option<String> {
    let link = link.trim();
    if link.is_empty() || link.starts_with('#') {
        return None;
    }
    let url = base.join(link).ok()?;
    let shown = url.as_str().replace('(', "%28").replace(')', "%29");
    matches!(url.scheme(), "http" | "https" | "mailto").then_some(shown)
}

/// How deep elements may be nested, and how many formatting elements may be left open: the parser opens them
/// again in every block that follows.
const DEEPEST: usize = 250;
const MOST_REOPENED: usize = 100;

const VOID: [&str; 14] = [
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr",
    "param",
];
const CLOSED_BY_NEXT: [&str; 14] = [
    "p", "li", "dt", "dd", "td", "th", "tr", "thead", "tbody", "tfoot", "option", "optgroup", "colgroup",
    "body",
];
const REOPENED: [&str; 14] =
    ["a", "b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong", "tt", "u"];

/// Checks whether the page's tree can be built and walked in reasonable time and without a stack overflow.
/// The estimate is rough but errs on the safe side: no readable page is nested that deep.
fn can_be_walked(html: &str) -> bool {
    let mut open: Vec<&str> = Vec::new();
    let mut reopened: HashMap<String, usize> = HashMap::new();
    for (at, _) in html.match_indices('<') {
        let rest = &html[at + 1..];
        let closes = rest.starts_with('/');
        let rest = rest.trim_start_matches('/');
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        let name = &rest[..end];
        let is = |list: &[&str]| list.iter().any(|other| other.eq_ignore_ascii_case(name));
        if name.is_empty() || is(&VOID) || is(&CLOSED_BY_NEXT) {
            continue;
        }
        if is(&REOPENED) {
            let count = reopened.entry(name.to_ascii_lowercase()).or_default();
            *count = if closes { count.saturating_sub(1) } else { *count + 1 };
            if *count > MOST_REOPENED {
                return false;
            }
        }
        match (closes, open.iter().rposition(|other| other.eq_ignore_ascii_case(name))) {
            (true, Some(place)) => open.truncate(place),
            (true, None) => {}
            (false, _) => open.push(name),
        }
        if open.len() > DEEPEST {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base() -> Url {
        Url::parse("https://example.com/docs/page.html").unwrap()
    }

    #[test]
    fn a_page_becomes_markdown_with_whole_links_and_without_machinery() {
        let html = r##"<html><head><title> A  page </title><style>p{}</style></head><body>
            <nav><a href="/">Home</a></nav><h1>Title</h1><p>See <a href="../other?a=1">the
            other</a> and <a href="#here">here</a> and <a href="javascript:x()">this</a>.</p>
            <ul><li>one</li><li><b>two</b></li></ul><pre><code>let x = 1;
let y = 2;</code></pre><img src="/i.png" alt="A picture"><img src="data:image/png;base64,AAAA" alt="inline">
            <script>alert("no")</script><table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table>
            </body></html>"##;
        let (text, title) = render_html(html.to_owned(), PageFormat::Markdown, &base());
        assert_eq!(title.as_deref(), Some("A page"));
        for part in [
            "# Title",
            "[the other](https://example.com/other?a=1)",
            "and here and this.",
            "**two**",
            "let x = 1;\nlet y = 2;",
            "![A picture](https://example.com/i.png)",
            "| a",
        ] {
            assert!(text.contains(part), "{part} in:\n{text}");
        }
        for part in ["Home", "alert", "javascript", "base64", "p{}", "A  page"] {
            assert!(!text.contains(part), "{part} in:\n{text}");
        }
    }

    #[test]
    fn no_page_is_nested_too_deep_to_be_read() {
        let unclosed = |tag: &str| format!("<{tag}>").repeat(60_000) + "bottom";
        let font: String = (0..15_000).map(|n| format!("<p><font size={n}>x</p>")).collect();
        let hidden = "<div></b>".repeat(30_000) + "bottom";
        for html in [unclosed("div"), unclosed("b"), unclosed("blockquote"), hidden] {
            assert!(render_html(html, PageFormat::Markdown, &base()).0.contains("bottom"));
        }
        assert!(render_html(font, PageFormat::Markdown, &base()).0.contains('x'));
        // The deepest nesting that is still walked.
        let most = "<div>".repeat(DEEPEST - 1) + "<b>bottom</b>" + &"</div>".repeat(DEEPEST - 1);
        assert!(can_be_walked(&most));
        assert!(render_html(most, PageFormat::Markdown, &base()).0.contains("**bottom**"));
        let lists = "<ul><li>".repeat(DEEPEST) + "bottom";
        assert!(render_html(lists, PageFormat::Markdown, &base()).0.contains("bottom"));
    }

    #[test]
    fn bytes_are_decoded_as_they_were_meant() {
        let html = "text/html";
        for (bytes, kind, text) in [
            ("é".as_bytes(), html, "é"),
            (&[0xe9][..], html, "é"),
            (&[0xe9], "text/plain; charset=ISO-8859-1", "é"),
            (&[0xef, 0xbb, 0xbf, b'x'], "text/plain; charset=latin1", "x"),
            (&[0xff, 0xfe, b'x', 0], "text/plain", "x"),
            (&[0x82, 0xa0], "text/html; charset=\"Shift_JIS\"", "あ"),
            (b"<meta charset=koi8-r>\xc1", html, "<meta charset=koi8-r>а"),
            (&[b'x', 0xe2, 0x82], "text/plain", "x\u{fffd}"),
            (b"plain", "text/plain; charset=nonsense", "plain"),
        ] {
            assert_eq!(decode_text(bytes, kind, bytes.len() == 3), text, "{bytes:?} {kind}");
        }
    }

    #[test]
    fn kinds_are_known_by_their_names_and_by_what_is_in_them() {
        for (content_type, kind) in [
            ("text/html; charset=utf-8", PageKind::Html),
            ("TEXT/HTML", PageKind::Html),
            ("application/xhtml+xml", PageKind::Html),
            ("text/markdown", PageKind::Text),
            ("application/json", PageKind::Text),
            ("application/ld+json", PageKind::Text),
            ("application/rss+xml", PageKind::Text),
            ("image/png", PageKind::Other),
            ("application/octet-stream", PageKind::Other),
            ("application/zip", PageKind::Other),
            ("", PageKind::Unknown),
        ] {
            assert_eq!(PageKind::from_content_type(content_type), kind, "{content_type}");
        }
        assert_eq!(PageKind::guess(b"  <!DOCTYPE html><p>"), PageKind::Html);
        assert_eq!(PageKind::guess(b"# Title"), PageKind::Text);
        assert_eq!(PageKind::guess(b"\x89PNG\0"), PageKind::Other);
    }
}
