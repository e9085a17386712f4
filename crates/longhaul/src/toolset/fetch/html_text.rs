//! Converts HTML to plain text tag by tag. It builds no tree, so no nesting is too deep for it.

/// Elements whose content is not text for readers.
const UNREAD: [&str; 12] = [
    "script", "style", "noscript", "template", "svg", "canvas", "iframe", "object", "head", "nav", "select",
    "math",
];
/// Elements that begin and end a line.
const LINES: [&str; 31] = [
    "address",
    "article",
    "aside",
    "blockquote",
    "br",
    "caption",
    "dd",
    "details",
    "div",
    "dl",
    "dt",
    "figcaption",
    "figure",
    "footer",
    "form",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "header",
    "hr",
    "li",
    "main",
    "ol",
    "p",
    "pre",
    "section",
    "table",
    "tr",
];

/// Returns the text of a page.
pub(super) fn html_to_text(html: &str) -> String {
    let mut text = TextBuilder::default();
    let mut rest = html;
    while let Some(at) = rest.find('<') {
        text.add(&rest[..at]);
        rest = &rest[at..];
        let Some(tag) = HtmlTag::read(rest) else {
            text.add("<");
            rest = &rest[1..];
            continue;
        };
        rest = &rest[tag.length..];
        if !tag.closes && UNREAD.contains(&tag.name.as_str()) {
            rest = after_end(rest, &tag.name);
        }
        match tag.name.as_str() {
            "td" | "th" => text.space(),
            name if LINES.contains(&name) => text.line(),
            _ => {}
        }
    }
    text.add(rest);
    text.done.trim().to_owned()
}

/// Returns the text of the first element with this name, such as the title of a page.
pub(super) fn element_text(html: &str, name: &str) -> Option<String> {
    let mut rest = html;
    while let Some(at) = rest.find('<') {
        rest = &rest[at..];
        match HtmlTag::read(rest) {
            Some(tag) if tag.name == name && !tag.closes => {
                let inner = &rest[tag.length..];
                return Some(html_to_text(&inner[..end_of(inner, name).0])).filter(|text| !text.is_empty());
            }
            Some(tag) => rest = &rest[tag.length..],
            None => rest = &rest[1..],
        }
    }
    None
}

/// A tag, a comment or a declaration.
struct HtmlTag {
    name: String,
    closes: bool,
    length: usize,
}

impl HtmlTag {
    /// Parses the tag that the text begins with; `None` if the `<` does not begin a tag.
    fn read(html: &str) -> Option<HtmlTag> {
        let nameless = |length| Some(HtmlTag { name: String::new(), closes: false, length });
        if let Some(comment) = html.strip_prefix("<!--") {
            return nameless(comment.find("-->").map_or(html.len(), |end| end + 7));
        }
        let closes = html[1..].starts_with('/');
        let begin = if closes { 2 } else { 1 };
        let first = html[begin..].chars().next()?;
        if matches!(first, '!' | '?') {
            return nameless(html.find('>').map_or(html.len(), |end| end + 1));
        }
        if !first.is_ascii_alphabetic() {
            return None;
        }
        let name: String = html[begin..].chars().take_while(|c| c.is_ascii_alphanumeric()).collect();
        let length = tag_end(html.as_bytes());
        Some(HtmlTag { name: name.to_ascii_lowercase(), closes, length })
    }
}

/// Returns the end of a tag: the first `>` that is not in quotes.
fn tag_end(html: &[u8]) -> usize {
    let mut quote = None;
    for (at, byte) in html.iter().enumerate() {
        match (quote, byte) {
            (None, b'>') => return at + 1,
            // Quotes count only around the value of an attribute.
            (None, b'"' | b'\'') if html[..at].ends_with(b"=") => quote = Some(*byte),
            (Some(open), byte) if open == *byte => quote = None,
            _ => {}
        }
    }
    html.len()
}

/// Returns where an element's end tag begins and where it ends.
fn end_of(html: &str, name: &str) -> (usize, usize) {
    let mut from = 0;
    while let Some(at) = html[from..].find("</").map(|at| at + from) {
        let rest = &html[at + 2..];
        let named = rest.get(..name.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(name));
        if named && !rest[name.len()..].starts_with(|c: char| c.is_ascii_alphanumeric()) {
            return (at, at + tag_end(&html.as_bytes()[at..]));
        }
        from = at + 2;
    }
    (html.len(), html.len())
}

fn after_end<'a>(html: &'a str, name: &str) -> &'a str {
    &html[end_of(html, name).1..]
}

/// Builds a text with normalized white space.
#[derive(Default)]
struct TextBuilder {
    done: String,
    gap: bool,
}

impl TextBuilder {
    fn add(&mut self, raw: &str) {
        if raw.is_empty() {
            return;
        }
        self.gap |= raw.starts_with(char::is_whitespace);
        for word in unescaped(raw).split_whitespace() {
            if self.gap && !self.done.is_empty() && !self.done.ends_with('\n') {
                self.done.push(' ');
            }
            self.done.push_str(word);
            self.gap = true;
        }
        self.gap = raw.ends_with(char::is_whitespace);
    }

    fn space(&mut self) {
        self.gap = true;
    }

    /// Begins a new line; two in a row leave one empty line.
    fn line(&mut self) {
        if !self.done.is_empty() && !self.done.ends_with("\n\n") {
            self.done.push('\n');
        }
        self.gap = false;
    }
}

/// Decodes the entities that are common in pages.
fn unescaped(raw: &str) -> String {
    let mut text = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = rest.find('&') {
        text.push_str(&rest[..at]);
        rest = &rest[at..];
        let end = rest.bytes().take(12).position(|byte| byte == b';');
        match end.and_then(|end| Some((entity(&rest[1..end])?, end))) {
            Some((sign, end)) => {
                text.push(sign);
                rest = &rest[end + 1..];
            }
            None => {
                text.push('&');
                rest = &rest[1..];
            }
        }
    }
    text + rest
}

fn entity(name: &str) -> Option<char> {
    if let Some(number) = name.strip_prefix('#') {
        let code = match number.strip_prefix(['x', 'X']) {
            Some(hex) => u32::from_str_radix(hex, 16).ok()?,
            None => number.parse().ok()?,
        };
        return char::from_u32(code).filter(|sign| !sign.is_control());
    }
    Some(match name {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        "nbsp" => ' ',
        "ndash" => '–',
        "mdash" => '—',
        "hellip" => '…',
        "lsquo" => '‘',
        "rsquo" => '’',
        "ldquo" => '“',
        "rdquo" => '”',
        "laquo" => '«',
        "raquo" => '»',
        "bull" => '•',
        "middot" => '·',
        "copy" => '©',
        "reg" => '®',
        "trade" => '™',
        "times" => '×',
        "euro" => '€',
        "pound" => '£',
        "deg" => '°',
        "auml" => 'ä',
        "ouml" => 'ö',
        "uuml" => 'ü',
        "Auml" => 'Ä',
        "Ouml" => 'Ö',
        "Uuml" => 'Ü',
        "szlig" => 'ß',
        "eacute" => 'é',
        "egrave" => 'è',
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_becomes_its_text() {
        let page = "<!doctype html><html><head><title>T</title></head><body><nav>Home</nav><h1>Big\n news</h1>\
                    <p>One <b>bold</b>word &amp; a&nbsp;half: 1 < 2 &euro; &#8364; &nope;</p><!-- <p>no</p> -->\
                    <script>if (a < b) { '</p>' }</script><ul><li>a</li><li title=\"x > y\">b</li></ul>\
                    <table><tr><td>1</td><td>2</td></tr></table></body></html>";
        let text = html_to_text(page);
        assert_eq!(text, "Big news\n\nOne boldword & a half: 1 < 2 € € &nope;\n\na\n\nb\n\n1 2", "{text}");
        assert_eq!(element_text(page, "title").as_deref(), Some("T"));
        assert_eq!(element_text("<p>none</p>", "title"), None);
    }

    #[test]
    fn broken_pages_end() {
        for (page, text) in [
            ("<", "<"),
            ("a < b", "a < b"),
            ("<p", ""),
            ("<p title=\"never closed>x", ""),
            ("<!-- open", ""),
            ("<script>open", ""),
            ("</", "</"),
            ("&", "&"),
            ("&#xffffffff;&#0;", "&#xffffffff;&#0;"),
            ("é<é>é", "é<é>é"),
        ] {
            assert_eq!(html_to_text(page), text, "{page}");
        }
        let deep = "<div>".repeat(200_000) + "bottom";
        assert_eq!(html_to_text(&deep), "bottom");
    }
}
