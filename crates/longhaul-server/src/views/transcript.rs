//! Transcripts as JSON: the telling that the terminal shows, with the same words.

use jiff::Timestamp;
use longhaul::EventKind;
use longhaul::transcript::{
    Detail, ItemKind, Level, Phrase, Tone, TranscriptItem, describe, describe_end, describe_question,
    format_call, question_lines, sender,
};
use serde::Serialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::question::LineView;

/// How much of a call is in its gist, in characters.
const GIST: usize = 120;

/// An item of a transcript.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ItemView {
    /// The entry of the journal that it began with.
    pub seq: u64,
    /// When that was.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// What it is: `order`, `thought`, `said`, `call`, `letter`, `asked`, `note` or `end`.
    pub kind: String,
    /// What it is in one line.
    pub gist: String,
    /// How it matters: `plain`, `strong`, `faint`, `busy`, `attention`, or the status of the task.
    pub tone: String,
    /// Everything else, by kind. `said`, `thought`: `text`, `live`. `call`: `call`, `tool`, `arguments`,
    /// `progress`, `output`, `is_error`, `lines`, `returned`. `letter`: `id`, `from`, `text`, `ended`, `read`.
    /// `asked`: `question`, `text`, `lines`, `answer`. `order`: the order. `note`: `text`, `level`. `end`:
    /// `status`, `error`, `cut_short`.
    #[serde(flatten)]
    #[schema(value_type = Object, additional_properties)]
    pub detail: Map<String, Value>,
}

/// A part of a transcript.
#[derive(Debug, Serialize, ToSchema)]
pub struct TranscriptPage {
    /// The items, oldest first.
    pub items: Vec<ItemView>,
    /// The last entry of the journal that is included. Events with a larger `seq` come after this.
    pub seq: u64,
    /// Pass this as `before` for older items; null if there are none.
    pub before: Option<u64>,
}

/// The words for an event, for those who show it: `label`, `text`, `tone` and `level`. `None` for streamed
/// text, which is its own words.
pub fn words(event: &EventKind) -> Option<Value> {
    if matches!(event, EventKind::Text { .. } | EventKind::Reasoning { .. }) {
        return None;
    }
    let phrase = describe(event, Detail::Brief);
    Some(json!({
        "label": phrase.label, "text": phrase.text, "tone": tone(phrase.tone), "level": level(phrase.level),
    }))
}

fn tone(tone: Tone) -> &'static str {
    match tone {
        Tone::Plain => "plain",
        Tone::Strong => "strong",
        Tone::Faint => "faint",
        Tone::Busy => "busy",
        Tone::Attention => "attention",
        Tone::Status(status) => status.as_str(),
    }
}

fn level(level: Level) -> &'static str {
    match level {
        Level::Main => "main",
        Level::Routine => "routine",
        Level::Trace => "trace",
    }
}

impl From<&TranscriptItem> for ItemView {
    fn from(item: &TranscriptItem) -> ItemView {
        let (kind, gist, tone, detail) = parts(&item.kind);
        let detail = match detail {
            Value::Object(detail) => detail,
            _ => Map::new(),
        };
        ItemView { seq: item.seq.0, at: item.at, kind: kind.to_owned(), gist, tone: tone.to_owned(), detail }
    }
}

fn parts(kind: &ItemKind) -> (&'static str, String, &'static str, Value) {
    let first_line = |text: &str| {
        let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        longhaul::transcript::one_line(&line.chars().take(GIST).collect::<String>())
    };
    match kind {
        ItemKind::Order(order) => {
            let detail = json!({ "order": serde_json::to_value(order).unwrap_or_default() });
            ("order", order.headline(), tone(Tone::Strong), detail)
        }
        ItemKind::Thought { text, live } => {
            ("thought", first_line(text), tone(Tone::Faint), json!({ "text": text, "live": live }))
        }
        ItemKind::Said { text, live } => {
            ("said", first_line(text), tone(Tone::Plain), json!({ "text": text, "live": live }))
        }
        ItemKind::Call { call, tool, arguments, progress, result } => {
            let failed = result.as_ref().is_some_and(|result| result.is_error);
            let how = match result {
                None => Tone::Busy,
                Some(_) if failed => Tone::Attention,
                Some(_) => Tone::Plain,
            };
            let detail = json!({
                "call": call.to_string(), "tool": tool, "arguments": arguments, "progress": progress,
                "output": result.as_ref().map(|result| &result.output),
                "is_error": result.as_ref().map(|result| result.is_error),
                "lines": result.as_ref().map(|result| result.lines),
                "returned": result.as_ref().map(|result| result.returned),
            });
            ("call", format_call(tool, arguments, GIST), tone(how), detail)
        }
        ItemKind::Letter { id, from, text, ended, read } => {
            let from = sender(from);
            let gist = format!("{from}: {}", first_line(text));
            let detail =
                json!({ "id": id.as_str(), "from": from, "text": text, "ended": ended, "read": read });
            ("letter", gist, tone(Tone::Plain), detail)
        }
        ItemKind::Asked { question, asks, answer } => {
            let lines: Vec<LineView> = question_lines(asks).into_iter().map(LineView::from).collect();
            let answer = answer.as_ref().map(ToString::to_string);
            let how = if answer.is_none() { Tone::Attention } else { Tone::Plain };
            let detail = json!({
                "question": question.to_string(), "text": describe_question(asks), "lines": lines,
                "answer": answer,
            });
            ("asked", asks.headline(), tone(how), detail)
        }
        ItemKind::Note(phrase @ Phrase { tone: how, level: who, .. }) => {
            let text = phrase.sentence();
            ("note", text.clone(), tone(*how), json!({ "text": text, "level": level(*who) }))
        }
        ItemKind::End { status, error, cut_short } => {
            let detail = json!({ "status": status, "error": error, "cut_short": cut_short });
            (
                "end",
                describe_end(*status, error.as_deref(), cut_short.as_deref()),
                tone(Tone::Status(*status)),
                detail,
            )
        }
    }
}
