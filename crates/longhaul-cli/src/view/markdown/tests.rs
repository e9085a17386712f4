use super::*;

fn drawn(source: &str, columns: usize) -> Vec<String> {
    render(source, columns, &SyntaxHighlighter::default()).into_iter().map(|line| line.text).collect()
}

/// Renders without colours.
fn plain(source: &str, columns: usize) -> String {
    let lines = render(source, columns, &SyntaxHighlighter::default());
    let text: Vec<String> = lines.iter().map(|line| sanitize(&line.text)).collect();
    for (line, text) in lines.iter().zip(&text) {
        assert_eq!(line.width, display_width(text), "{text:?}");
    }
    text.join("\n")
}

const RICH: &str = r#"# A title

Some *words* in **several** styles, `code` among them, with a [link](https://example.org/page) and one more sentence.

- one
- two, which is so long that it has to go on in the next line of a narrow terminal
  1. first
  2. second
- [x] done

> Quoted words that are long enough to be wrapped in a narrow terminal.
>
> - and a list

```rust
fn main() { println!("hi"); } // a comment
```

| name | count | what it is for |
|:-----|------:|:--------------:|
| alpha | 1 | the first of them all, and the longest story |
| `b` | 22 | short |

---

last
"#;

#[test]
fn it_looks_like_this_on_80_columns() {
    insta::assert_snapshot!(plain(RICH, 80));
}

#[test]
fn it_looks_like_this_on_40_columns() {
    insta::assert_snapshot!(plain(RICH, 40));
}

#[test]
fn nothing_but_code_is_wider_than_the_terminal() {
    for columns in [20, 25, 40, 60, 100] {
        for line in render(RICH, columns, &SyntaxHighlighter::default()) {
            assert!(line.width <= columns || line.text.contains("println"), "{columns}: {}", line.text);
        }
    }
}

#[test]
fn in_pieces_nothing_is_wider_and_nothing_is_lost() {
    let colors = SyntaxHighlighter::default();
    let words = |text: &str| text.split_whitespace().collect::<String>();
    for columns in [20, 25, 40, 60, 100] {
        let lines = render_spans(RICH, columns, &colors);
        let text = |line: &Vec<MarkdownSpan>| line.iter().map(|span| span.text.as_str()).collect::<String>();
        for line in &lines {
            assert!(display_width(&text(line)) <= columns, "{columns}: {line:?}");
        }
        let all: String = lines.iter().map(text).collect();
        assert_eq!(words(&all), words(&sanitize(&drawn(RICH, columns).concat())), "{columns}");
    }
}

#[test]
fn styles_end_with_their_words() {
    assert_eq!(drawn("a **b** c", 80), ["a \x1b[1mb\x1b[0m c"]);
    assert_eq!(drawn("`x`", 80), ["\x1b[36mx\x1b[0m"]);
    let code = drawn("```rust\nlet x = \"s\"; // c\n```", 80).join("\n");
    assert!(code.contains("\x1b[35mlet\x1b[0m") && code.contains("\x1b[32m\"s\"\x1b[0m"), "{code:?}");
    assert!(code.contains("\x1b[2m// c\x1b[0m"), "{code:?}");
}

#[test]
fn no_escape_of_the_text_gets_through() {
    for evil in [
        "\x1b[31mred\x1b[0m",
        "&#27;[2J &#x9b;31m",
        "`\x1b]0;title\x07`",
        "```\n\x1b[2Jcode\n```",
        "[a](<\x1b[2J>)",
        "<b\x1b[2J>",
        "| a |\n|---|\n| &#27;[1m |",
        "![&#27;c](x&#27;y)",
        "```rs&#27;c\nx\n```",
    ] {
        for line in drawn(evil, 40) {
            let rest = line.replace("\x1b[0m", "").replace("\x1b[2m", "").replace("\x1b[36m", "");
            let rest = rest.replace("\x1b[4m", "").replace("\x1b[1m", "");
            assert!(!rest.contains(char::is_control), "{evil:?}: {line:?}");
        }
    }
}

#[test]
fn a_table_without_room_becomes_paragraphs() {
    let table = "| a | b | c | d | e |\n|--|--|--|--|--|\n| one long | two long | three long | four long | five long |\n";
    assert_eq!(plain(table, 20), "a: one long\nb: two long\nc: three long\nd: four long\ne: five long");
}

#[test]
fn all_but_the_last_block_is_settled() {
    let of = |source: &'static str| &source[..stable_prefix_len(source)];
    assert_eq!(of("one\n\ntwo"), "", "a line that is not complete may be anything");
    assert_eq!(of("one\n\ntwo\n"), "one\n\n");
    assert_eq!(of("one"), "");
    assert_eq!(of("- a\n- b\n"), "");
    assert_eq!(of("a\n\n```\ncode\n\nmore\n"), "a\n\n");
    assert_eq!(of("a\n\n    indented\n"), "a\n\n");
    assert_eq!(of("# t\ntext\n"), "# t\n");
    assert_eq!(of("text\n| a |\n"), "");
    assert_eq!(of(""), "");
    assert_eq!(of("a\n\n[ref]: http://x\n\nb\n"), "a\n\n[ref]: http://x\n\n");
}

/// Streaming a text in pieces gives the same result as rendering it at once.
#[test]
fn told_in_pieces_it_is_the_same() {
    let whole = plain(RICH, 60);
    let (mut parts, mut pending) = (Vec::new(), String::new());
    for c in RICH.chars() {
        pending.push(c);
        let at = stable_prefix_len(&pending);
        let rest = pending.split_off(at);
        if !pending.trim().is_empty() {
            parts.push(plain(&pending, 60));
        }
        pending = rest;
    }
    parts.push(plain(&pending, 60));
    assert_eq!(parts.join("\n\n"), whole);
}

#[test]
fn whatever_comes_is_shown_without_a_panic() {
    let mut seed = 3_u64;
    let pieces = [
        "# ", "- ", "> ", "|", "\n", "```", "a", " ", "**", "_", "[x](", ")", "---", "1. ", "<b>", "世",
        "\t", "&#27;", "`",
    ];
    let colors = SyntaxHighlighter::default();
    for _ in 0..1500 {
        let text: String = (0..30)
            .map(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                pieces[(seed >> 33) as usize % pieces.len()]
            })
            .collect();
        let at = stable_prefix_len(&text);
        assert!(text.is_char_boundary(at));
        render(&text, 30, &colors);
    }
}

#[test]
fn no_line_ends_in_space_and_none_is_empty_inside_a_paragraph() {
    let text = "one two three four five six seven eight nine ten eleven twelve\n\n> a quote of several words, too\n\n```\ncode with space at its end                                                            \n```";
    for columns in 20..=80 {
        let lines = render_spans(text, columns, &SyntaxHighlighter::default());
        let plain: Vec<String> =
            lines.iter().map(|line| line.iter().map(|span| span.text.as_str()).collect()).collect();
        assert_eq!(plain.iter().filter(|line| line.trim().is_empty()).count(), 2, "{columns}: {plain:#?}");
        for line in plain {
            assert!(display_width(&line) <= columns && (line.trim_end() == line), "{columns}: {line:?}");
        }
    }
}

#[test]
fn aligned_text_stays_aligned() {
    for text in [
        "name      count\nalpha         1\nb            22",
        "Name:     x\nCount:    3\nand a word",
        "src\n├── main.rs\n│   └── a.rs\n└── lib.rs",
        "+------+---+\n| name | n |\n+------+---+\n| a    | 1 |\n+------+---+",
        "total  3\n  a    1\n  bb   2",
    ] {
        assert_eq!(plain(text, 60), text);
        assert_eq!(plain(&format!("before\n\n{text}\n\nafter"), 60), format!("before\n\n{text}\n\nafter"));
    }
    // In a list and in a quote.
    assert_eq!(plain("- a    1\n  bb   2", 60), "• a    1\n  bb   2");
    assert_eq!(plain("> a    1\n> bb   2", 60), "│ a    1\n│ bb   2");
    // Styles are kept.
    assert_eq!(plain("**name**  count\n**alpha**     1", 60), "name  count\nalpha     1");
    // Lines that do not fit are wrapped, one by one.
    assert_eq!(plain("aaa bbb ccc   ddd eee\nfff ggg   hhh", 20), "aaa bbb ccc   ddd\neee\nfff ggg   hhh");
    assert_eq!(plain("a   b\n  aaa bbb ccc   ddd eee", 20), "a   b\n  aaa bbb ccc   ddd\n  eee");
    // List items may contain columns, too.
    assert_eq!(plain("- alpha   1\n- b      22", 20), "• alpha   1\n• b      22");
}

#[test]
fn sentences_are_no_columns() {
    for text in [
        "One sentence.  Another one.\nA third.  And a fourth.",
        "a line\nanother  line with a slip\na third line",
        "only  one line",
    ] {
        assert_eq!(plain(text, 80), text.replace('\n', " "));
    }
}

#[test]
fn deep_nesting_breaks_nothing() {
    for text in [">".repeat(50_000), "- ".repeat(20_000), "*".repeat(50_000), "[".repeat(50_000)] {
        let text = format!("{text}x");
        let lines = render_spans(&text, 40, &SyntaxHighlighter::default());
        assert!(lines.iter().flatten().any(|span| span.text.contains('x')));
        assert!(html(&text).contains('x'));
    }
}
