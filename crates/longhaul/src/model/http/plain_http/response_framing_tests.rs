use proptest::prelude::*;

use super::*;

fn start(text: &str) -> ResponseStart {
    ResponseStart::parse(&mut text.into()).unwrap().unwrap()
}

/// Decodes a body that comes in such pieces. Returns the data, and what comes after the body.
fn decode(
    decoder: &mut BodyDecoder,
    body: &[u8],
    pieces: &[usize],
) -> Result<(Vec<u8>, usize), FramingError> {
    let (mut data, mut at, mut pieces) = (Vec::new(), 0, pieces.iter().cycle());
    while at < body.len() && !decoder.is_over() {
        let size = pieces.next().copied().unwrap_or(usize::MAX).min(body.len() - at);
        let mut piece = body[at..at + size].to_vec();
        let decoded = decoder.decode(&mut piece)?;
        data.extend_from_slice(&piece[..decoded.data]);
        at += decoded.used;
        if decoded.used < size {
            assert!(decoder.is_over());
        }
    }
    Ok((data, body.len() - at))
}

#[test]
fn a_start_is_parsed_once_it_is_complete() {
    let text = "HTTP/1.1 429 Slow down\r\nRetry-After: 3\r\nX: a\r\nx: b\r\nContent-Length: 2\r\n\r\n{}";
    for end in 0..text.len() - 2 {
        assert!(ResponseStart::parse(&mut text[..end].into()).unwrap().is_none(), "{end}");
    }
    let mut bytes = text.into();
    let start = ResponseStart::parse(&mut bytes).unwrap().unwrap();
    assert_eq!((start.status.as_u16(), bytes.as_slice()), (429, b"{}".as_slice()));
    assert_eq!(start.headers["retry-after"], "3");
    assert_eq!(start.headers.get_all("x").iter().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!((start.body, start.keeps_alive), (BodyDecoder::Length(2), true));
}

#[test]
fn lengths_that_agree_are_one_length() {
    let twice = start("HTTP/1.1 200 OK\r\ncontent-length: 5, 5\r\ncontent-length: 5\r\n\r\n");
    assert_eq!(twice.body, BodyDecoder::Length(5));
}

#[test]
fn how_a_body_is_framed() {
    for (headers, body, keeps_alive) in [
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked", BodyDecoder::chunked(), true),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked, gzip", BodyDecoder::UntilClose, true),
        ("HTTP/1.1 304 Same\r\ncontent-length: 5", BodyDecoder::Length(0), true),
        (
            "HTTP/1.0 200 OK\r\ncontent-length: 5\r\nconnection: keep-alive, close",
            BodyDecoder::Length(5),
            false,
        ),
    ] {
        let start = start(&format!("{headers}\r\n\r\n"));
        assert_eq!((start.body, start.keeps_alive), (body, keeps_alive), "{headers}");
    }
    // Servers say that they are still at work, for as long as they are.
    let interim = "HTTP/1.1 102 Processing\r\n\r\n".repeat(MAX_START / 10);
    assert_eq!(start(&format!("{interim}HTTP/1.1 200 OK\r\n\r\n")).status, 200);
    // Zeros before the size.
    let mut decoder = BodyDecoder::chunked();
    let decoded = decode(&mut decoder, b"00000000000000000004\r\nword\r\n0\r\n\r\n", &[99]);
    assert_eq!(decoded, Ok((b"word".to_vec(), 0)));
}

#[test]
fn chunks_that_are_malformed_are_an_error_and_never_data() {
    for (body, data) in [
        ("\r\n", ""),
        (";a\r\n", ""),
        ("g\r\n", ""),
        ("-1\r\n", ""),
        ("4\nword", ""),
        ("4\r\nwordX", "word"),
        ("4\r\nword\n0\r\n\r\n", "word"),
        ("11111111111111111\r\n", ""),
        ("000000000000000000000000000000000", ""),
        ("1;aaaaaaaaaa", ""),
        ("0\r\nX: aaaaaaaaaa", ""),
        ("1;a\nb\r\nx", ""),
        ("0\r\nX: y\nZ: a\r\n\r\n", ""),
    ] {
        let (mut decoder, mut got) = (BodyDecoder::chunked(), Vec::new());
        let mut failed = None;
        // What is skipped may not go on for ever.
        let endless = body.chars().last().filter(|last| *last == 'a').into_iter().cycle().take(MAX_SKIPPED);
        for byte in body.chars().chain(endless).map(|byte| byte as u8) {
            let mut piece = [byte];
            match decoder.decode(&mut piece) {
                Ok(decoded) => got.extend_from_slice(&piece[..decoded.data]),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        assert_eq!(failed, Some(FramingError::Chunk), "{body:?}");
        assert!(got.starts_with(data.as_bytes()), "{body:?}");
    }
}

proptest! {
    /// However a body is cut into chunks and pieces, its data comes out, and what follows it is left.
    #[test]
    fn data_comes_out_as_it_went_in(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..12),
        pieces in prop::collection::vec(1..30usize, 1..8),
        after in 0..20usize,
        extension in "(;[a-z]{1,9})?", trailer in "([a-z]{1,9}: [a-z]{0,9}\r\n)?",
    ) {
        let mut body = Vec::new();
        for chunk in &chunks {
            body.extend_from_slice(format!("{:X}{extension}\r\n", chunk.len()).as_bytes());
            body.extend_from_slice(chunk);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(format!("000{extension}\r\n{trailer}\r\n").as_bytes());
        let whole = body.len();
        body.extend(std::iter::repeat_n(b'x', after));
        let mut decoder = BodyDecoder::chunked();
        prop_assert_eq!(decode(&mut decoder, &body, &pieces).unwrap(), (chunks.concat(), after));
        prop_assert!(decoder.is_over());

        let mut cut = BodyDecoder::chunked();
        let end = whole.saturating_sub(1 + after % whole);
        decode(&mut cut, &body[..end], &pieces).unwrap();
        prop_assert_eq!(cut.on_close(), Err(FramingError::CutOff));
    }

    /// Whatever a server sends: no panic, and never more data than bytes.
    #[test]
    fn nonsense_is_an_error_at_most(bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(b'0'), Just(b'\r'), Just(b'\n')], 0..200)) {
        let _ = ResponseStart::parse(&mut bytes.clone());
        let (mut decoder, mut bytes) = (BodyDecoder::chunked(), bytes);
        if let Ok(decoded) = decoder.decode(&mut bytes) {
            prop_assert!(decoded.data <= decoded.used && decoded.used <= bytes.len());
        }
    }
}
