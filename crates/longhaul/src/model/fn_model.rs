use std::future::{self, Future};

use futures::future::BoxFuture;
use futures::stream::{self, StreamExt as _};

use super::{Model, ModelError, ModelRequest, ReplyChunk, ReplyStream};
use crate::message::{Block, Reply};

type ReplyChunks = Vec<Result<ReplyChunk, ModelError>>;
type ReplyFn = dyn for<'r> Fn(&ModelRequest<'r>) -> BoxFuture<'static, ReplyChunks> + Send + Sync;

/// A model that is a function, for tests.
///
/// ```
/// # use longhaul::testing::{FnModel, reply};
/// let model = FnModel::new(|request| match request.turn {
///     0 => reply().call("shell", serde_json::json!({ "command": "ls" })),
///     _ => reply().text("Two files."),
/// });
/// ```
pub struct FnModel {
    name: String,
    answer: Box<ReplyFn>,
}

impl FnModel {
    /// A model that always answers. Each text is streamed in one piece.
    pub fn new<R: Into<Reply>>(answer: impl Fn(&ModelRequest<'_>) -> R + Send + Sync + 'static) -> Self {
        Self::from_reply_fn(move |request| Box::pin(future::ready(pieces(answer(request).into()))))
    }

    /// A model that may wait, or fail.
    ///
    /// The future owns what it needs: copy that from the request before the `async` block.
    pub fn try_new<R, F>(answer: impl Fn(&ModelRequest<'_>) -> F + Send + Sync + 'static) -> Self
    where
        R: Into<Reply>,
        F: Future<Output = Result<R, ModelError>> + Send + 'static,
    {
        Self::from_reply_fn(move |request| {
            let answer = answer(request);
            Box::pin(async move {
                match answer.await {
                    Ok(reply) => pieces(reply.into()),
                    Err(error) => vec![Err(error)],
                }
            })
        })
    }

    /// A model that streams exactly these chunks. Without [`ReplyChunk::Done`] or an error at the end, the
    /// reply counts as cut off.
    pub fn streaming(
        answer: impl Fn(&ModelRequest<'_>) -> Vec<Result<ReplyChunk, ModelError>> + Send + Sync + 'static,
    ) -> Self {
        Self::from_reply_fn(move |request| Box::pin(future::ready(answer(request))))
    }

    /// The same model under another name. The default is `function`.
    pub fn named(self, name: impl Into<String>) -> Self {
        FnModel { name: name.into(), ..self }
    }

    fn from_reply_fn(
        answer: impl for<'r> Fn(&ModelRequest<'r>) -> BoxFuture<'static, ReplyChunks> + Send + Sync + 'static,
    ) -> Self {
        FnModel { name: "function".to_owned(), answer: Box::new(answer) }
    }
}

impl Model for FnModel {
    fn name(&self) -> &str {
        &self.name
    }

    fn stream<'a>(&'a self, request: ModelRequest<'a>) -> ReplyStream<'a> {
        // The function is called when the stream is polled, not before.
        let answer = async move { (self.answer)(&request).await };
        let pieces = stream::once(answer).flat_map(stream::iter);
        let named = pieces.map(|piece| match piece {
            Ok(ReplyChunk::Done(mut reply)) if reply.model.is_empty() => {
                reply.model.clone_from(&self.name);
                Ok(ReplyChunk::Done(reply))
            }
            other => other,
        });
        named.boxed()
    }
}

impl std::fmt::Debug for FnModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FnModel").field("name", &self.name).finish_non_exhaustive()
    }
}

fn pieces(reply: Reply) -> ReplyChunks {
    let mut pieces: ReplyChunks = reply
        .blocks
        .iter()
        .filter_map(|block| match block {
            Block::Text(text) => Some(Ok(ReplyChunk::Text(text.clone()))),
            Block::Reasoning { text, .. } => Some(Ok(ReplyChunk::Reasoning(text.clone()))),
            Block::Call(_) => None,
        })
        .collect();
    pieces.push(Ok(ReplyChunk::Done(Box::new(reply))));
    pieces
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use serde_json::json;

    use super::*;
    use crate::id::{AgentName, TaskKey};
    use crate::message::StopReason;
    use crate::model::ModelErrorKind;
    use crate::model::wire::WireCache;
    use crate::testing::reply;

    async fn ask(model: &FnModel, turn: u32) -> ReplyChunks {
        let agent = AgentName::from("lead");
        let task = TaskKey::named("test").candidate_ids().next().unwrap();
        let request = ModelRequest {
            task,
            root: task,
            depth: 0,
            agent: &agent,
            system: "",
            messages: &[],
            tools: &[],
            output: None,
            turn,
            retry: 0,
            wire_cache: &WireCache::default(),
            text_delay: None,
        };
        model.stream(request).collect().await
    }

    #[tokio::test]
    async fn a_reply_is_streamed_and_then_given_whole() {
        let model = FnModel::new(|request| {
            reply().reasoning("hm").text(format!("turn {}", request.turn)).call("ls", json!({ "dir": "." }))
        });
        let pieces = ask(&model, 3).await;
        let [Ok(ReplyChunk::Reasoning(hm)), Ok(ReplyChunk::Text(text)), Ok(ReplyChunk::Done(done))] =
            pieces.as_slice()
        else {
            panic!("{pieces:?}")
        };
        assert_eq!((hm.as_str(), text.as_str()), ("hm", "turn 3"));
        assert_eq!((done.text().as_str(), done.reasoning().as_str()), ("turn 3", "hm"));
        assert_eq!((done.stop, done.model.as_str()), (StopReason::Calls, "function"));
        let call = done.calls().next().unwrap();
        assert_eq!(
            (call.id.as_str(), call.tool.as_str(), call.arguments.as_str()),
            ("call_0", "ls", r#"{"dir":"."}"#)
        );
    }

    #[tokio::test]
    async fn a_failure_is_the_only_piece() {
        let error = ModelError {
            model: "m".to_owned(),
            kind: ModelErrorKind::RateLimited(String::new()),
            retry_after: None,
        };
        let given = error.clone();
        let model = FnModel::try_new(move |request| {
            let (given, turn) = (given.clone(), request.turn);
            async move { if turn == 0 { Err(given) } else { Ok(reply().text("better")) } }
        });
        assert_eq!(ask(&model, 0).await, [Err(error)]);
        assert_eq!(ask(&model, 1).await.len(), 2);
    }

    #[tokio::test]
    async fn pieces_come_as_they_are_and_nothing_is_asked_before_the_stream_is_polled() {
        let asked = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&asked);
        let model = FnModel::streaming(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            vec![Ok(ReplyChunk::Text("cut he".to_owned()))]
        })
        .named("cutter");
        let agent = AgentName::from("lead");
        let task = TaskKey::named("test").candidate_ids().next().unwrap();
        drop(model.stream(ModelRequest {
            task,
            root: task,
            depth: 0,
            agent: &agent,
            system: "",
            messages: &[],
            tools: &[],
            output: None,
            turn: 0,
            retry: 0,
            wire_cache: &WireCache::default(),
            text_delay: None,
        }));
        assert_eq!(asked.load(Ordering::Relaxed), 0);
        assert_eq!(ask(&model, 0).await, [Ok(ReplyChunk::Text("cut he".to_owned()))]);
        assert_eq!((asked.load(Ordering::Relaxed), model.name()), (1, "cutter"));
    }
}
