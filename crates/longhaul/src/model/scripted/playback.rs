//! Streams a turn of a script.

use std::mem;
use std::time::Duration;

use super::script::{
    ModelScript, ScriptPlaybackError, ScriptTurn, ScriptedFailure, StreamPace, describe_template_failure,
};
use super::template_context::TemplateContext;
use super::{NAME, ScriptedModel};
use crate::message::{Block, Call, Message, Reply, StopReason, Usage};
use crate::model::{ModelError, ModelErrorKind, ModelRequest, ReplyChunk};

/// The rest of a reply that is being streamed.
pub(super) struct ScriptPlayback<'a> {
    request: Option<(&'a ModelScript, ModelRequest<'a>)>,
    take: Option<PlannedReply>,
}

/// The chunks to stream, and how the reply ends.
struct PlannedReply {
    reasoning: UnsentText,
    text: UnsentText,
    pace: StreamPace,
    chunks: u32,
    ending: PlannedEnd,
}

enum PlannedEnd {
    Done(Box<Reply>),
    Fails(ModelError),
    Hangs,
    Over,
}

/// A text that is partly streamed.
#[derive(Default)]
struct UnsentText {
    text: String,
    sent: usize,
}

impl UnsentText {
    fn new(text: String) -> Self {
        UnsentText { text, sent: 0 }
    }

    /// The next `chunk` characters.
    fn next(&mut self, chunk: usize) -> Option<String> {
        let rest = self.text.get(self.sent..).filter(|rest| !rest.is_empty())?;
        let len = if chunk >= rest.len() {
            rest.len()
        } else {
            rest.char_indices().nth(chunk).map_or(rest.len(), |(index, _)| index)
        };
        if self.sent == 0 && len == self.text.len() {
            return Some(mem::take(&mut self.text));
        }
        let piece = rest.get(..len)?.to_owned();
        self.sent += len;
        Some(piece)
    }
}

impl<'a> ScriptPlayback<'a> {
    pub(super) fn new(model: &'a ScriptedModel, request: ModelRequest<'a>) -> Self {
        ScriptPlayback { request: Some((&model.script, request)), take: None }
    }

    pub(super) async fn next(&mut self) -> Option<Result<ReplyChunk, ModelError>> {
        if let Some((script, request)) = self.request.take() {
            match PlannedReply::new(script, &request) {
                Ok(take) => {
                    rest_for(take.pace.delay).await;
                    self.take = Some(take);
                }
                Err(why) => {
                    let kind = ModelErrorKind::Rejected(format!("{}: {why}", script.name()));
                    return Some(Err(ModelError { model: NAME.to_owned(), kind, retry_after: None }));
                }
            }
        }
        let take = self.take.as_mut()?;
        if let Some(chunk) = take.chunk() {
            if take.chunks > 0 {
                rest_for(take.pace.pause).await;
            }
            take.chunks += 1;
            return Some(Ok(chunk));
        }
        match mem::replace(&mut take.ending, PlannedEnd::Over) {
            PlannedEnd::Done(reply) => Some(Ok(ReplyChunk::Done(reply))),
            PlannedEnd::Fails(error) => Some(Err(error)),
            PlannedEnd::Hangs => std::future::pending().await,
            PlannedEnd::Over => None,
        }
    }
}

async fn rest_for(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

impl PlannedReply {
    fn new(script: &ModelScript, request: &ModelRequest<'_>) -> Result<PlannedReply, ScriptPlaybackError> {
        let turn = script.find_turn(request)?;
        let mishap = usize::try_from(request.retry).ok().and_then(|retry| turn.errors.get(retry));
        let mut take = PlannedReply {
            reasoning: UnsentText::default(),
            text: UnsentText::default(),
            pace: turn.pace,
            chunks: 0,
            ending: PlannedEnd::Over,
        };
        match mishap {
            Some(ScriptedFailure::Status { status, retry_after, message }) => {
                take.ending = PlannedEnd::Fails(failure(*status, *retry_after, message));
                return Ok(take);
            }
            Some(ScriptedFailure::Empty) => {
                take.ending = PlannedEnd::Done(Box::new(reply(request, Vec::new(), turn)));
                return Ok(take);
            }
            Some(ScriptedFailure::Cut | ScriptedFailure::Hang) | None => {}
        }
        let blocks =
            blocks(script, request, turn).map_err(|error| describe_template_failure(request, &error))?;
        for block in &blocks {
            match block {
                Block::Text(text) => take.text = UnsentText::new(text.clone()),
                Block::Reasoning { text, .. } => take.reasoning = UnsentText::new(text.clone()),
                Block::Call(_) => {}
            }
        }
        match mishap {
            None => take.ending = PlannedEnd::Done(Box::new(reply(request, blocks, turn))),
            Some(ScriptedFailure::Hang) => {
                let first = take.chunk();
                take.text = UnsentText::default();
                take.reasoning = UnsentText::default();
                match first {
                    Some(ReplyChunk::Text(text)) => take.text = UnsentText::new(text),
                    Some(ReplyChunk::Reasoning(text)) => take.reasoning = UnsentText::new(text),
                    _ => {}
                }
                take.ending = PlannedEnd::Hangs;
            }
            Some(_) => {
                let half = take.text.text.chars().count() / 2;
                take.text.text = take.text.text.chars().take(half).collect();
            }
        }
        Ok(take)
    }

    fn chunk(&mut self) -> Option<ReplyChunk> {
        let thought = self.reasoning.next(self.pace.chunk).map(ReplyChunk::Reasoning);
        thought.or_else(|| self.text.next(self.pace.chunk).map(ReplyChunk::Text))
    }
}

fn failure(status: u16, retry_after: Option<Duration>, message: &str) -> ModelError {
    let kind = match status {
        429 => ModelErrorKind::RateLimited(message.to_owned()),
        // These are transient; the other 4xx statuses are not.
        408 | 409 | 500.. => ModelErrorKind::Server { status, message: message.to_owned() },
        _ if message.is_empty() => ModelErrorKind::Rejected(status.to_string()),
        _ => ModelErrorKind::Rejected(format!("{status} {message}")),
    };
    ModelError { model: NAME.to_owned(), kind, retry_after }
}

fn blocks(
    script: &ModelScript,
    request: &ModelRequest<'_>,
    turn: &ScriptTurn,
) -> Result<Vec<Block>, minijinja::Error> {
    let mut seen = None;
    let mut context = || seen.get_or_insert_with(|| TemplateContext::new(request).into_value()).clone();
    let texts = usize::from(turn.text.is_some()) + usize::from(turn.reasoning.is_some());
    let mut blocks = Vec::with_capacity(texts + turn.calls.len());
    if let Some(reasoning) = &turn.reasoning {
        let text = script.templates.render_text(reasoning, &mut context)?;
        if !text.is_empty() {
            blocks.push(Block::Reasoning { text, opaque: None });
        }
    }
    if let Some(text) = &turn.text {
        let text = script.templates.render_text(text, &mut context)?;
        if !text.is_empty() {
            blocks.push(Block::Text(text));
        }
    }
    for (index, (tool, arguments)) in turn.calls.iter().enumerate() {
        blocks.push(Block::Call(Call {
            id: format!("call_{}_{index}", u64::from(request.turn) + 1),
            tool: tool.clone(),
            arguments: script.templates.render_arguments(arguments, &mut context)?,
        }));
    }
    Ok(blocks)
}

fn reply(request: &ModelRequest<'_>, blocks: Vec<Block>, turn: &ScriptTurn) -> Reply {
    let usage = turn.usage.unwrap_or_else(|| estimate(request, &blocks));
    let stop = if blocks.is_empty() && turn.stop == StopReason::Calls { StopReason::End } else { turn.stop };
    Reply { blocks, stop, usage, model: NAME.to_owned(), cost: Some(0) }
}

/// Estimates the usage at four bytes per token. The last reply holds the usage so far, so only new messages
/// are counted.
fn estimate(request: &ModelRequest<'_>, blocks: &[Block]) -> Usage {
    let tokens = |bytes: usize| u64::try_from(bytes.div_ceil(4)).unwrap_or(u64::MAX);
    let mut input = 0;
    let mut known = false;
    for message in request.messages.iter().rev() {
        match message {
            Message::User(text) => input += tokens(text.len()),
            Message::Tool(result) => input += tokens(result.output.len()),
            Message::Assistant(reply) => {
                input += reply.usage.total();
                known = true;
                break;
            }
        }
    }
    if !known {
        input += tokens(request.system.len());
    }
    let (mut output, mut reasoning) = (0, 0);
    for block in blocks {
        match block {
            Block::Text(text) => output += tokens(text.len()),
            Block::Reasoning { text, .. } => reasoning += tokens(text.len()),
            Block::Call(call) => output += tokens(call.tool.len() + call.arguments.len()),
        }
    }
    Usage { input, output: output + reasoning, reasoning, ..Usage::default() }
}
