//! What the targets share: how an input is read, what work may cost, and the exam that every stream parser sits.

use std::time::Duration;

use cpu_time::ThreadTime;
use longhaul::AgentName;
use longhaul::message::{Block, Message, Reply, StopReason, ToolResult};
use longhaul::model::settings::ModelSettings;
use longhaul::model::wire::openai_chat::{OpenAiChat, Quirks};
use longhaul::model::wire::openai_responses::OpenAiResponses;
use longhaul::model::wire::{Anthropic, Gemini, WireCache, WireProtocol};
use longhaul::model::{ModelErrorKind, ModelRequest, ReplyChunk};
use peak_alloc::PeakAlloc;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// The stream in an input, and where it is cut: the last byte says how often, two bytes before it each place.
pub fn cuts(data: &[u8]) -> (&[u8], Vec<usize>) {
    let Some((last, rest)) = data.split_last() else { return (data, Vec::new()) };
    let tail = (usize::from(*last) % 16 * 2).min(rest.len() & !1);
    let (stream, places) = rest.split_at(rest.len() - tail);
    let place = |two: &[u8]| usize::from(u16::from_le_bytes([two[0], two[1]])) % (stream.len() + 1);
    let mut cuts: Vec<usize> = places.chunks_exact(2).map(place).collect();
    cuts.sort_unstable();
    (stream, cuts)
}

/// Does something with an input of this length, and looks what memory it took at most. The small trees that JSON
/// becomes are what costs most: a hundred bytes and more for each that was read.
pub fn bounded<R>(length: usize, work: impl FnOnce() -> R) -> R {
    within(64 * 1024 + 1024 * length, work)
}

/// Does something, and looks that it takes less than this many bytes of memory at most, and less than a second. The
/// second is one of the processor: a machine that is busy, or was stopped for a while, has nothing to do with it.
pub fn within<R>(most: usize, work: impl FnOnce() -> R) -> R {
    let (before, began) = (HEAP.current_usage(), ThreadTime::now());
    HEAP.reset_peak_usage();
    let result = work();
    let took = HEAP.peak_usage().saturating_sub(before);
    assert!(took < most, "{took} bytes of memory, where {most} are enough");
    let took = began.elapsed();
    assert!(took < Duration::from_secs(1), "{took:?} of the processor's time");
    result
}

/// What came of an answer: the reply or the error, and what was said and thought on the way.
#[derive(Debug, PartialEq)]
struct ParseOutcome {
    reply: Result<Reply, ModelErrorKind>,
    said: String,
    thought: String,
    /// After how many pieces it said that it was over.
    over: Option<usize>,
}

/// What a parser is put to.
pub struct Exam<'a> {
    /// The wire.
    pub wire: &'a dyn WireProtocol,
    /// An answer in which none of these is written does not say why it stopped.
    pub stops: &'a [&'a str],
}

impl Exam<'_> {
    /// Puts the parser to this input.
    pub fn sit(&self, data: &[u8]) {
        let (stream, cuts) = cuts(data);
        bounded(stream.len(), || {
            let whole = self.feed(stream, []);
            let same = |other: &ParseOutcome, how: &str| {
                assert_eq!(
                    (&other.reply, &other.said, &other.thought),
                    (&whole.reply, &whole.said, &whole.thought),
                    "{how}"
                );
            };
            same(&self.feed(stream, cuts.iter().copied()), "cut");
            let bytes = self.feed(stream, 1..stream.len());
            same(&bytes, "byte by byte");
            // Who has heard that it is over has heard all of it.
            if let Some(at) = bytes.over {
                same(&self.feed(&stream[..at], []), "until it was over");
            }
            self.never_without_a_stop(stream, &whole);
            if let Ok(reply) = &whole.reply {
                fit(reply, &whole);
            }
        });
    }

    fn feed(&self, stream: &[u8], cuts: impl IntoIterator<Item = usize>) -> ParseOutcome {
        let mut parser = self.wire.parser();
        let mut came = ParseOutcome {
            reply: Ok(Reply::default()),
            said: String::new(),
            thought: String::new(),
            over: None,
        };
        let mut at = 0;
        for cut in cuts.into_iter().chain([stream.len()]) {
            let mut chunks = Vec::new();
            let fed = parser.feed(&stream[at..cut], &mut chunks);
            at = cut;
            for chunk in chunks {
                match chunk {
                    ReplyChunk::Text(text) => came.said.push_str(&text),
                    ReplyChunk::Reasoning(text) => came.thought.push_str(&text),
                    other => panic!("a parser does not say {other:?}"),
                }
            }
            if let Err(error) = fed {
                came.reply = Err(error);
                return came;
            }
            if parser.is_complete() {
                came.over.get_or_insert(at);
            }
        }
        came.reply = parser.finish();
        came
    }

    /// An answer that does not say why it stopped was cut: the whole, and what of it lies before it says so.
    fn never_without_a_stop(&self, stream: &[u8], whole: &ParseOutcome) {
        // What is escaped may be written without being seen.
        if find(stream, b"\\u").is_some() {
            return;
        }
        match self.stops.iter().filter_map(|stop| find(stream, stop.as_bytes())).min() {
            None => assert!(whole.reply.is_err(), "{:?}", whole.reply),
            Some(at) => {
                let reply = self.feed(&stream[..at], []).reply;
                assert!(reply.is_err(), "{reply:?}");
            }
        }
    }
}

/// What holds for every reply.
fn fit(reply: &Reply, whole: &ParseOutcome) {
    assert!(whole.said.len() <= reply.text().len(), "what was said is in it");
    assert!(whole.thought.len() <= reply.reasoning().len(), "what was thought is in it");
    let mut ids: Vec<&str> = reply.calls().map(|call| call.id.as_str()).collect();
    let calls = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert!(ids.len() == calls && !ids.contains(&""), "each call has an id of its own");
    assert!(reply.stop != StopReason::Calls || calls > 0);
    assert!(reply.blocks.iter().all(|block| !matches!(block, Block::Text(text) if text.is_empty())));
    goes_back(reply);
}

/// It can be sent back, to its own provider and to every other.
fn goes_back(reply: &Reply) {
    let mut messages = vec![Message::User("go".into()), Message::Assistant(reply.clone().into())];
    messages.extend(reply.calls().map(|call| {
        Message::Tool(ToolResult {
            call: call.id.as_str().into(),
            tool: call.tool.as_str().into(),
            output: "done".into(),
            is_error: false,
        })
    }));
    let chat = OpenAiChat::new(Quirks::for_provider("openrouter"));
    let wires: [&dyn WireProtocol; 4] = [&chat, &OpenAiResponses::new(), &Anthropic, &Gemini];
    for wire in wires {
        let (agent, memo) = (AgentName::from("solo"), WireCache::default());
        let request = ModelRequest {
            task: "t-7f3k2".parse().expect("an id"),
            root: "t-7f3k2".parse().expect("an id"),
            depth: 0,
            agent: &agent,
            system: "Be brief.",
            messages: &messages,
            tools: &[],
            output: None,
            turn: 1,
            retry: 0,
            wire_cache: &memo,
            text_delay: None,
        };
        let settings = ModelSettings { model: reply.model.clone(), ..ModelSettings::default() };
        if let Ok(body) = wire.request_body(&request, &settings, &memo) {
            let read = serde_json::from_slice::<serde_json::Value>(&body);
            assert!(read.is_ok(), "{read:?}: {}", String::from_utf8_lossy(&body));
        }
    }
}

fn find(text: &[u8], word: &[u8]) -> Option<usize> {
    text.windows(word.len()).position(|window| window == word)
}
