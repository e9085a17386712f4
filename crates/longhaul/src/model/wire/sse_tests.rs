use proptest::prelude::*;

use super::*;

type SseRecord = Vec<(String, String)>;

/// The events of a stream that comes in these pieces.
fn events<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> SseRecord {
    let mut sse = SseParser::default();
    let mut seen = Vec::new();
    let mut each = |e: &SseEvent<'_>| {
        seen.push((e.name.to_owned(), e.data.to_owned()));
        Ok(())
    };
    for piece in pieces {
        sse.feed(piece, &mut each).unwrap();
    }
    sse.finish(&mut each).unwrap();
    seen
}

/// The events of a stream, the same wherever it is split in two, and byte by byte.
fn seen(stream: &[u8]) -> SseRecord {
    let whole = events([stream]);
    assert_eq!(events(stream.chunks(1)), whole);
    for at in 0..=stream.len() {
        assert_eq!(events([&stream[..at], &stream[at..]]), whole, "cut at {at}");
    }
    whole
}

fn data(stream: &str) -> Vec<String> {
    seen(stream.as_bytes()).into_iter().map(|(_, data)| data).collect()
}

#[test]
fn all_three_line_ends_are_line_ends() {
    assert_eq!(data("data: a\n\ndata: b\r\n\r\ndata: c\r\rdata: d\n\r\n"), ["a", "b", "c", "d"]);
}

#[test]
fn comments_and_fields_that_nobody_asked_for_are_left_out() {
    assert_eq!(data(": OPENROUTER PROCESSING\n\n:\n\nid: 7\nretry: 10\ndata: a\n: ping\n\nfoo\n\n"), ["a"]);
}

#[test]
fn data_lines_are_put_together() {
    assert_eq!(data("data: a\ndata:b\ndata\ndata:  c\n\n"), ["a\nb\n\n c"]);
}

#[test]
fn an_event_has_a_name_until_it_is_over() {
    let stream = b"event: ping\ndata: 1\n\ndata: 2\n\nevent:lost\n\ndata: 3\n\n";
    let expected = [("ping", "1"), ("", "2"), ("", "3")].map(|(e, d)| (e.to_owned(), d.to_owned()));
    assert_eq!(seen(stream), expected);
}

#[test]
fn a_byte_order_mark_is_not_part_of_the_first_line_only() {
    assert_eq!(data("\u{feff}data: a\n\n\u{feff}data: b\n\ndata: c\n\n"), ["a", "c"]);
}

#[test]
fn characters_may_be_cut_and_may_be_broken() {
    assert_eq!(data("data: grüß 🦀 漢字\n\n"), ["grüß 🦀 漢字"]);
    assert_eq!(seen(b"data: a\xffb\n\n")[0].1, "a\u{fffd}b");
}

#[test]
fn the_last_event_needs_no_blank_line() {
    assert_eq!(data("data: a\n\ndata: [DONE]"), ["a", "[DONE]"]);
    assert_eq!(data("data: a\r"), ["a"]);
}

#[test]
fn an_empty_event_is_none() {
    assert_eq!(data("\n\ndata:\n\ndata\n\ndata: \n\n"), [""; 0]);
}

#[test]
fn json_without_a_field_is_an_event() {
    assert_eq!(data("\n  {\"error\": \"no\"}\n"), ["  {\"error\": \"no\"}"]);
    assert_eq!(data("{\n  \"a\": 1,\n  \"b\": 2\n}"), ["{\n  \"a\": 1,\n  \"b\": 2\n}"]);
    assert_eq!(data("data: a\n\n{\"error\":1}\ndata: b\n\n"), ["a", "{\"error\":1}", "b"]);
    assert_eq!(data("data: a\n\n{\"error\":1}\n\ndata: b\n\n"), ["a", "{\"error\":1}", "b"]);
}

#[test]
fn an_error_field_is_an_event_named_so() {
    assert_eq!(seen(b"error: {\"code\":500}\n\n"), [("error".to_owned(), "{\"code\":500}".to_owned())]);
}

#[test]
fn what_never_ends_is_an_error() {
    let mut sse = SseParser::default();
    let piece = vec![b'a'; 1 << 20];
    let mut fed = 0;
    while sse.feed(&piece, |_| Ok(())).is_ok() {
        fed += 1;
        assert!(fed <= 16);
    }
    let mut sse = SseParser::default();
    let piece = [b"data: ", piece.as_slice(), b"\n"].concat();
    fed = 0;
    while sse.feed(&piece, |_| Ok(())).is_ok() {
        fed += 1;
        assert!(fed <= 16);
    }
}

#[test]
fn an_answer_that_never_ends_is_an_error() {
    let mut sse = SseParser::default();
    let piece = [b"data: ".as_slice(), &vec![b'a'; 1 << 20], b"\n\n"].concat();
    let mut fed = 0;
    while sse.feed(&piece, |_| Ok(())).is_ok() {
        fed += 1;
        assert!(fed <= 64);
    }
    assert_eq!(fed, 63);
}

#[test]
fn an_error_of_the_reader_is_passed_on() {
    let wrong = || Err(ModelErrorKind::Truncated("wrong".into()));
    assert_eq!(SseParser::default().feed(b"data: a\n\ndata: b\n\n", |_| wrong()), wrong());
}

proptest! {
    #[test]
    fn any_bytes_give_the_same_however_they_are_cut(
        lines in prop::collection::vec(
            prop_oneof![
                "(data|event|error|id|:)?(: ?)?[a-zü🦀{\\[]{0,4}(\n|\r|\r\n)".prop_map(String::into_bytes),
                prop::collection::vec(any::<u8>(), 0..4),
            ],
            0..20,
        ),
        size in 1_usize..9,
    ) {
        let stream = lines.concat();
        let whole = events([stream.as_slice()]);
        prop_assert_eq!(events(stream.chunks(size)), whole);
    }
}

#[test]
fn a_stream_or_an_event_that_does_not_end_is_not_asked_for_again() {
    let event = format!("data: {}\n\n", "x".repeat(1 << 20));
    let mut sse = SseParser::default();
    let ended = (0..70).find_map(|_| sse.feed(event.as_bytes(), |_| Ok(())).err()).unwrap();
    assert!(matches!(&ended, ModelErrorKind::TooLarge(why) if why.contains("64 MiB")), "{ended}");
    assert!(!ended.is_transient() && !ended.is_outage());
    let mut sse = SseParser::default();
    let line = "x".repeat(1 << 20);
    let ended = (0..20).find_map(|_| sse.feed(line.as_bytes(), |_| Ok(())).err()).unwrap();
    assert!(matches!(&ended, ModelErrorKind::TooLarge(why) if why.contains("4 MiB")), "{ended}");
}
