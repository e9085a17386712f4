//! Server-sent event streams, for tests of their readers.

use crate::model::ModelErrorKind;
use crate::model::wire::sse::SseParser;

/// The events of a stream that arrives in these pieces: name and data of each.
pub fn sse_events<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Result<Vec<(String, String)>, ModelErrorKind> {
    let mut sse = SseParser::default();
    let mut events = Vec::new();
    for piece in pieces {
        sse.feed(piece, |event| {
            events.push((event.name.to_owned(), event.data.to_owned()));
            Ok(())
        })?;
    }
    sse.finish(|event| {
        events.push((event.name.to_owned(), event.data.to_owned()));
        Ok(())
    })?;
    Ok(events)
}
