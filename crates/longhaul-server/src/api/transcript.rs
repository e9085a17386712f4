//! `GET /tasks/{id}/transcript`: the newest part first, older parts on demand.

use axum::Json;
use axum::extract::State;
use longhaul::TaskId;
use longhaul::entry::{Entry, Record};
use longhaul::id::Seq;
use longhaul::transcript::{ItemKind, Transcript, TranscriptLimits};
use serde::Deserialize;
use utoipa::IntoParams;

use super::ApiState;
use super::extract::{Id, Params, TaskPath};
use super::list::page_size;
use crate::problem::ProblemDocument;
use crate::views::{ItemView, TranscriptPage};

/// How many items a page has, if the request does not say, and at most. It begins at a reply, so it can have a
/// few more.
const ITEMS: (usize, usize) = (100, 500);
/// How many entries are read at once, at first. Streamed text takes many.
const ENTRIES: u64 = 500;
/// How many entries a page covers, at most: a page can have few items.
const MOST_ENTRIES: usize = 50_000;
/// How much of each text is sent. The journal has all of it.
const LIMITS: TranscriptLimits = TranscriptLimits { text: 64 << 10, call: 16 << 10 };

/// Which part of a transcript to read.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct TranscriptQuery {
    /// Only items before this entry: the `before` of the newer part. Left out, the newest part.
    #[param(minimum = 1)]
    before: Option<u64>,
    /// About how many items. 100 if left out.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
}

/// Read the transcript of a task
///
/// The journal as people read it: texts, calls with their results, letters, questions with their answers, notes.
/// The newest items first; `before` leads to older ones.
#[utoipa::path(get, path = "/tasks/{id}/transcript", tag = "tasks",
    params(TaskPath, TranscriptQuery),
    responses((status = 200, description = "A part of the transcript.", body = TranscriptPage)))]
pub(super) async fn get_transcript(
    State(api): State<ApiState>,
    Id(id): Id,
    Params(query): Params<TranscriptQuery>,
) -> Result<Json<TranscriptPage>, ProblemDocument> {
    let limit = page_size(query.limit, ITEMS.0, ITEMS.1)?;
    let end = api.longhaul().state(id).await?.seq;
    let last = match query.before {
        None => end,
        Some(0) => return Err(ProblemDocument::invalid("before: 0 is too small; the first entry is 1")),
        Some(before) => Seq(before.saturating_sub(1)).min(end),
    };
    let transcript = read_back(&api, id, last, limit).await?;
    // Text that streams before a part that begins with its reply belongs to that part.
    let is_newest = last == end;
    let items = transcript.items.iter().filter(|item| is_newest || !is_live(&item.kind));
    let before = (transcript.after.0 > 0).then_some(transcript.after.0 + 1);
    Ok(Json(TranscriptPage { items: items.map(ItemView::from).collect(), seq: transcript.last.0, before }))
}

fn is_live(kind: &ItemKind) -> bool {
    matches!(kind, ItemKind::Said { live: true, .. } | ItemKind::Thought { live: true, .. })
}

/// Reads back from an entry until there are enough items.
async fn read_back(
    api: &ApiState,
    id: TaskId,
    last: Seq,
    limit: usize,
) -> Result<Transcript, ProblemDocument> {
    let mut records: Vec<Record> = Vec::new();
    let (mut first, mut step) = (last.0, ENTRIES);
    loop {
        let from = first.saturating_sub(step);
        let count = usize::try_from(first - from).unwrap_or(usize::MAX);
        let mut older = api.store().read(id, Seq(from), count).await?;
        older.append(&mut records);
        (records, first, step) = (older, from, step * 2);
        let is_all = first == 0 || records.len() >= MOST_ENTRIES;
        let start = start_of_page(&records, first, is_all);
        if let Some(start) = start {
            let after = if start == 0 { Seq(first) } else { records[start - 1].seq };
            let transcript = Transcript::starting_after(id, after, LIMITS).with_records(&records[start..]);
            if is_all || transcript.items.len() >= limit {
                return Ok(cut(&records, transcript, id, limit));
            }
        }
    }
}

/// Where a part can begin so that calls are with their results: at a reply, or at the start of the journal.
fn start_of_page(records: &[Record], first: u64, is_all: bool) -> Option<usize> {
    if first == 0 {
        return Some(0);
    }
    let reply = records.iter().position(|record| matches!(record.entry, Entry::Replied(_)));
    reply.or(is_all.then_some(0))
}

/// Drops older items that are more than enough, up to a reply.
fn cut(records: &[Record], transcript: Transcript, id: TaskId, limit: usize) -> Transcript {
    let Some(over) = transcript.items.len().checked_sub(limit).filter(|over| *over > 0) else {
        return transcript;
    };
    let wanted = transcript.items[over].seq;
    let reply = |record: &&Record| record.seq <= wanted && matches!(record.entry, Entry::Replied(_));
    match records.iter().filter(|record| record.seq > transcript.after).rfind(reply) {
        Some(record) => {
            let after = Seq(record.seq.0 - 1);
            let kept = records.iter().position(|kept| kept.seq == record.seq).unwrap_or(0);
            Transcript::starting_after(id, after, LIMITS).with_records(&records[kept..])
        }
        None => transcript,
    }
}
