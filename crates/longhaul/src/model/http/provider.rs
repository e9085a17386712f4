//! A model behind HTTP.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::pin::Pin;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use jiff::Timestamp;
use tokio::time::{Instant, Sleep, timeout};

use super::exchange::{Answer, Body};
use super::gate::{Gate, Next, Seat, Ticket};
use super::{Endpoint, Http, foreign, limits};
use crate::message::{Block, Reply, StopReason, Usage};
use crate::model::prices::Price;
use crate::model::settings::ModelSettings;
use crate::model::wire::names::meant;
use crate::model::wire::{Parser, TextCalls, Wire, text_calls};
use crate::model::{Chunk, Model, ModelError, ModelErrorKind, ReplyStream, Request};

/// No more is read of an answer that is an error.
const ERROR_BODY: usize = 64 * 1024;
/// How long the end of such an answer, or of one that is complete, is waited for.
const LAST_BYTES: Duration = Duration::from_secs(2);

/// A model behind HTTP: a wire, spoken at an endpoint.
pub struct Provider {
    name: String,
    wire: Box<dyn Wire>,
    settings: ModelSettings,
    endpoint: Endpoint,
    url: reqwest::Url,
    http: Http,
    gate: std::sync::Arc<Gate>,
    pub(super) price: Option<Price>,
    window: Option<u64>,
    /// Small models write calls as text now and then. What the settings say counts more.
    pub(super) reads_text_calls: bool,
    /// Whether its provider tells with each reply what it cost.
    pub(super) tells_cost: bool,
}

impl Provider {
    pub(super) fn new(
        http: Http,
        name: &str,
        wire: Box<dyn Wire>,
        settings: ModelSettings,
        endpoint: Endpoint,
    ) -> Provider {
        let gate = http.gate(&endpoint);
        let price = http.options().prices.of(name);
        let url = endpoint.url(&wire.path(&settings));
        // A server of one's own is started with the window that it has room for, and is told of it in the team file.
        let window = settings.context_size.or_else(|| crate::model::windows::window(&settings.model));
        Provider {
            name: name.to_owned(),
            wire,
            settings,
            endpoint,
            url,
            http,
            gate,
            price,
            window,
            reads_text_calls: false,
            tells_cost: false,
        }
    }

    #[cfg(test)]
    pub(super) fn path(&self) -> String {
        self.wire.path(&self.settings)
    }

    #[cfg(test)]
    pub(super) fn url(&self) -> String {
        self.url.to_string()
    }

    #[cfg(test)]
    pub(super) fn options(&self) -> &serde_json::Map<String, serde_json::Value> {
        &self.settings.provider_opts
    }

    #[cfg(test)]
    pub(super) fn header(&self, name: &str) -> Option<String> {
        Some(self.endpoint.headers().get(name)?.to_str().ok()?.to_owned())
    }

    fn first_byte(&self) -> Duration {
        self.endpoint.first_byte.unwrap_or(self.http.options().first_byte)
    }

    /// What went wrong, fit to be shown.
    fn error(&self, kind: ModelErrorKind, retry_after: Option<Duration>) -> ModelError {
        let clean = |text| self.endpoint.scrub(text);
        let kind = match kind {
            ModelErrorKind::RateLimited(text) => ModelErrorKind::RateLimited(clean(text)),
            ModelErrorKind::Server { status, message } => {
                ModelErrorKind::Server { status, message: clean(message) }
            }
            ModelErrorKind::Unreachable(text) => ModelErrorKind::Unreachable(clean(text)),
            ModelErrorKind::Cut(text) => ModelErrorKind::Cut(clean(text)),
            ModelErrorKind::TooLarge(text) => ModelErrorKind::TooLarge(clean(text)),
            ModelErrorKind::Silent(time) => ModelErrorKind::Silent(time),
            ModelErrorKind::Rejected(text) => ModelErrorKind::Rejected(clean(text)),
        };
        // Whatever this request met: nobody comes back while the gate is closed.
        let retry_after = retry_after.max(self.gate.left().filter(|_| kind.is_passing()));
        ModelError { model: self.name.clone(), kind, retry_after }
    }

    /// Sends the request, and hears whether the provider takes it.
    async fn send(&self, request: &Request<'_>) -> Result<Answer, ModelError> {
        let body = self
            .wire
            .body(request, &self.settings, request.memo)
            .map_err(|why| self.error(ModelErrorKind::Rejected(why), None))?;
        let sent = self.http.line().send(&self.endpoint, self.url.clone(), body);
        let silent = ModelErrorKind::Silent(self.first_byte());
        let answer = match timeout(self.first_byte(), sent).await {
            Ok(answer) => answer.map_err(|kind| self.error(kind, None))?,
            Err(_) => return Err(self.error(silent, None)),
        };
        if (200..300).contains(&answer.status) {
            self.gate.answered();
            if let Some(what) = foreign::by_headers(&answer.headers) {
                return Err(self.no_answer(what));
            }
            return Ok(answer);
        }
        Err(self.refused(answer).await)
    }

    /// Something that no model answers, with a status that says that all is well.
    fn no_answer(&self, what: &str) -> ModelError {
        let why = format!(
            "{} answered with {what}, not with a model's reply: is base_url right, and is nothing between that asks for a \
             login?",
            self.endpoint.host()
        );
        self.error(ModelErrorKind::Rejected(why), None)
    }

    async fn refused(&self, mut answer: Answer) -> ModelError {
        let mut said = Vec::new();
        while let Ok(Ok(Some(bytes))) = timeout(LAST_BYTES, answer.body.next()).await {
            said.extend_from_slice(&bytes);
            if said.len() > ERROR_BODY {
                break;
            }
        }
        let kind = self.wire.refusal(answer.status, &said);
        let wish = match kind.is_passing() {
            true => limits::wish(&answer.headers, answer.status == 429, Timestamp::now())
                .or_else(|| self.wire.retry_after(&said)),
            false => None,
        };
        if let Some(wish) = wish {
            self.gate.close(wish);
        }
        self.error(kind, wish)
    }

    fn complete(&self, mut reply: Reply, request: &Request<'_>) -> Reply {
        if self.settings.reads_text_calls.unwrap_or(self.reads_text_calls)
            // Where JSON was asked for, JSON is the answer.
            && self.settings.structured_output.is_none()
            && request.output.is_none()
            && reply.stop == StopReason::End
            && reply.calls().next().is_none()
        {
            read_text_calls(&mut reply, request);
        }
        for block in &mut reply.blocks {
            if let Block::Call(call) = block
                && let Some(name) = meant(&call.tool, request.tools).filter(|name| *name != call.tool)
            {
                call.tool = name.to_owned();
            }
        }
        if reply.model.is_empty() {
            reply.model.clone_from(&self.settings.model);
        }
        // An alias has the price of the model that answered.
        let maker = self.name.split('/').next().unwrap_or_default();
        let price = self.price.or_else(|| self.http.options().prices.of(&format!("{maker}/{}", reply.model)));
        // Whoever does not say what was used has not said that it was nothing.
        let used = reply.usage != Usage::default();
        reply.cost =
            reply.cost.or_else(|| Some(price.filter(|price| used || price.is_free())?.of(&reply.usage)));
        reply
    }
}

impl Model for Provider {
    fn name(&self) -> &str {
        &self.name
    }

    fn stream<'a>(&'a self, request: Request<'a>) -> ReplyStream<'a> {
        let mut hasher = DefaultHasher::new();
        (request.task, request.turn, request.retry).hash(&mut hasher);
        // In two waves, not one by one, so that a provider that is not ready yet need not be asked often to learn it.
        let jitter = (hasher.finish() % 2) as f64 / 2.0;
        let ticket = self.gate.line_up(request.retry > 0, jitter);
        let talk = Talk {
            model: self,
            request,
            heard: VecDeque::new(),
            fresh: Vec::new(),
            failed: None,
            stage: Stage::Door { ticket, held: false },
        };
        // Boxed: what an unfolding stream goes on with is moved for each item that it gives.
        stream::unfold(Box::new(talk), async |mut talk| talk.next().await.map(|item| (item, talk))).boxed()
    }

    fn window(&self) -> Option<u64> {
        self.window
    }

    fn unpriced(&self) -> Option<String> {
        (self.price.is_none() && !self.tells_cost).then(|| self.name.clone())
    }
}

impl std::fmt::Debug for Provider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Provider")
            .field("name", &self.name)
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

/// One request on its way, and its answer.
struct Talk<'a> {
    model: &'a Provider,
    request: Request<'a>,
    heard: VecDeque<Chunk>,
    /// What was just parsed, on its way there.
    fresh: Vec<Chunk>,
    failed: Option<ModelError>,
    stage: Stage,
}

enum Stage {
    Door { ticket: Ticket, held: bool },
    Send(Seat),
    Listen(Ear),
    Over,
}

/// An answer that is being heard.
struct Ear {
    body: Body,
    parser: Box<dyn Parser>,
    begun: bool,
    alarm: Alarm,
    /// Given back when the answer has ended.
    _seat: Seat,
}

impl Talk<'_> {
    async fn next(&mut self) -> Option<Result<Chunk, ModelError>> {
        loop {
            if let Some(chunk) = self.heard.pop_front() {
                return Some(Ok(chunk));
            }
            if let Some(error) = self.failed.take() {
                return Some(Err(error));
            }
            match self.step().await {
                Ok(true) => {}
                Ok(false) => return None,
                // Told after what was heard before it. Nothing is open any more.
                Err(error) => self.failed = Some(error),
            }
        }
    }

    /// Goes on by one step; `false` at the end.
    async fn step(&mut self) -> Result<bool, ModelError> {
        let model = self.model;
        // In place: there are hundreds of these for one of the others.
        if let Stage::Listen(ear) = &mut self.stage {
            match ear.listen(model, &mut self.heard, &mut self.fresh).await {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(error) => {
                    self.stage = Stage::Over;
                    return Err(error);
                }
            }
        }
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Door { mut ticket, held } => match ticket.next().await {
                Next::Held(told) => {
                    self.heard.push_back(Chunk::Held(told));
                    self.stage = Stage::Door { ticket, held: true };
                }
                Next::Go(seat) => {
                    self.heard.extend(held.then_some(Chunk::Sent));
                    self.stage = Stage::Send(seat);
                }
            },
            Stage::Send(seat) => {
                // Boxed, so that who waits at the gate stays small.
                let body = Box::pin(model.send(&self.request)).await?.body;
                let (parser, alarm) = (model.wire.parser(), Alarm::new());
                self.stage = Stage::Listen(Ear { body, parser, begun: false, alarm, _seat: seat });
            }
            Stage::Listen(mut ear) => {
                let reply = ear.parser.end().map_err(|kind| model.error(kind, None))?;
                self.heard.push_back(Chunk::Done(Box::new(model.complete(reply, &self.request))));
            }
            Stage::Over => return Ok(false),
        }
        Ok(true)
    }
}

impl Ear {
    /// Hears more of the answer; `false` at its end.
    async fn listen(
        &mut self,
        model: &Provider,
        heard: &mut VecDeque<Chunk>,
        fresh: &mut Vec<Chunk>,
    ) -> Result<bool, ModelError> {
        let over = self.parser.is_over();
        let patience = match (over, self.begun) {
            // All is said; its end is waited for so that the connection can be used again.
            (true, _) => LAST_BYTES,
            (false, true) => model.http.options().silence,
            (false, false) => model.first_byte(),
        };
        let more = match self.alarm.within(patience, self.body.next()).await {
            Some(Ok(more)) => more,
            _ if over => None,
            Some(Err(kind)) => return Err(model.error(kind, None)),
            None => return Err(model.error(ModelErrorKind::Silent(patience), None)),
        };
        let Some(bytes) = more else { return Ok(false) };
        if !self.begun
            && let Some(what) = foreign::by_beginning(&bytes)
        {
            return Err(model.no_answer(what));
        }
        self.begun = true;
        let fed = self.parser.feed(&bytes, fresh);
        fresh.drain(..).for_each(|chunk| hear(heard, chunk));
        fed.map_err(|kind| model.error(kind, None))?;
        Ok(true)
    }
}

/// Takes calls that are written in the text for what they are.
fn read_text_calls(reply: &mut Reply, request: &Request<'_>) {
    let text = reply.text();
    let Some(TextCalls { said, calls }) = text_calls(&text, request.tools) else { return };
    reply.blocks.retain(|block| !matches!(block, Block::Text(_)));
    if !said.trim().is_empty() {
        reply.blocks.push(Block::Text(said.to_owned()));
    }
    reply.blocks.extend(calls.into_iter().map(Block::Call));
    reply.stop = StopReason::Calls;
}

/// A time-out that is set once for an answer, and not for every piece of it.
struct Alarm(Pin<Box<Sleep>>);

impl Alarm {
    fn new() -> Alarm {
        Alarm(Box::pin(tokio::time::sleep(LAST_BYTES)))
    }

    /// What comes within this time; `None` if nothing does.
    async fn within<T>(&mut self, time: Duration, what: impl Future<Output = T>) -> Option<T> {
        let mut what = std::pin::pin!(what);
        let Some(until) = Instant::now().checked_add(time) else { return Some(what.await) };
        if until < self.0.deadline() || self.0.is_elapsed() {
            self.0.as_mut().reset(until);
        }
        loop {
            tokio::select! {
                biased;
                came = what.as_mut() => return Some(came),
                () = self.0.as_mut() => {}
            }
            // It was set when something came earlier: there may be time left.
            if Instant::now() >= until {
                return None;
            }
            self.0.as_mut().reset(until);
        }
    }
}

/// Adds a chunk to those that were heard: what was said in one voice and came at once is one piece.
fn hear(heard: &mut VecDeque<Chunk>, chunk: Chunk) {
    match (heard.back_mut(), chunk) {
        (Some(Chunk::Text(said)), Chunk::Text(more))
        | (Some(Chunk::Reasoning(said)), Chunk::Reasoning(more)) => said.push_str(&more),
        (_, chunk) => heard.push_back(chunk),
    }
}
