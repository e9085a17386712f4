//! Server-sent events: the same whatever the chunking, and the same as a reader that has the whole stream before it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use longhaul::testing::sse_events;
use longhaul_fuzz::{bounded, cuts};

fuzz_target!(|data: &[u8]| {
    let (stream, cuts) = cuts(data);
    bounded(stream.len(), || {
        let whole = sse_events([stream]).expect("nothing so short is too long");
        assert_eq!(sse_events(pieces(stream, &cuts)).expect("nor are its pieces"), whole, "cut at {cuts:?}");
        assert_eq!(sse_events(stream.chunks(1)).expect("nor are its bytes"), whole, "byte by byte");
        assert_eq!(naive(stream), whole, "read at once");
    });
});

fn pieces<'a>(stream: &'a [u8], cuts: &'a [usize]) -> impl Iterator<Item = &'a [u8]> {
    let starts = std::iter::once(0).chain(cuts.iter().copied());
    let ends = cuts.iter().copied().chain([stream.len()]);
    starts.zip(ends).map(|(start, end)| &stream[start..end])
}

fn begins_json(line: &str) -> bool {
    matches!(line.as_bytes().trim_ascii_start().first(), Some(b'{' | b'['))
}

/// What the stream says to somebody who takes his time.
fn naive(stream: &[u8]) -> Vec<(String, String)> {
    let stream = stream.strip_prefix(b"\xef\xbb\xbf").unwrap_or(stream);
    let mut lines: Vec<&[u8]> = Vec::new();
    let mut rest = stream;
    while let Some(at) = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n')) {
        lines.push(&rest[..at]);
        rest = rest[at..].strip_prefix(b"\r\n").unwrap_or(&rest[at + 1..]);
    }
    lines.push(rest);
    lines.push(b"");

    let (mut events, mut name, mut data, mut stray) =
        (Vec::new(), String::new(), Vec::<String>::new(), false);
    for line in lines {
        let line = String::from_utf8_lossy(line);
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        let ours = matches!(field, "data" | "event" | "error");
        if line.is_empty() || (ours && stray) {
            let whole = data.join("\n");
            if !whole.is_empty() {
                events.push((name.clone(), whole));
            }
            (name, data, stray) = (String::new(), Vec::new(), false);
        }
        match field {
            "data" => data.push(value.to_owned()),
            "event" => name = value.to_owned(),
            "error" => {
                name = "error".to_owned();
                data.push(value.to_owned());
            }
            _ if stray || (data.is_empty() && begins_json(&line)) => {
                stray = true;
                data.push(line.into_owned());
            }
            _ => {}
        }
    }
    events
}
