//! What the tests of the engine are made of: models and tools that wait for a gate instead of a time.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use longhaul::agent::AgentBuilder;
use longhaul::entry::{Entry, Letter, Record};
use longhaul::id::Seq;
use longhaul::message::{Message, Reply};
use longhaul::model::{Model, ModelError, ModelRequest, ToolSpec};
use longhaul::supervisor::TaskEvents;
use longhaul::testing::{FnModel, ReplyBuilder, reply};
use longhaul::tool::{CallContext, CallFuture, DynTool, ToolEffects, ToolError, ToolOutput};
use longhaul::toolset::Tools;
use longhaul::{
    Agent, Event, EventKind, Longhaul, Order, Policy, Snapshot, Status, SubAgentDialect, TaskId, Team,
};
use serde_json::json;
use tokio::sync::Semaphore;

/// Fails instead of hanging. Time is paused in most tests, so that this costs nothing.
pub(crate) async fn within<F: IntoFuture>(what: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(900), what.into_future()).await.expect("it hangs")
}

/// Where a model or a tool waits until the test lets it go on.
#[derive(Clone)]
pub(crate) struct Gate {
    came: Arc<Semaphore>,
    open: Arc<Semaphore>,
}

impl Gate {
    pub(crate) fn new() -> Gate {
        Gate { came: Arc::new(Semaphore::new(0)), open: Arc::new(Semaphore::new(0)) }
    }

    /// For who has to wait.
    pub(crate) async fn pass(&self) {
        self.came.add_permits(1);
        self.open.acquire().await.unwrap().forget();
    }

    /// For the test: until so many have come.
    pub(crate) async fn came(&self, many: u32) {
        within(self.came.acquire_many(many)).await.unwrap().forget();
    }

    /// For the test: lets so many go on.
    pub(crate) fn open(&self, many: usize) {
        self.open.add_permits(many);
    }

    /// A model whose answers can wait here.
    pub(crate) fn model<F>(&self, answer: impl Fn(Gate, Asked) -> F + Send + Sync + 'static) -> Arc<dyn Model>
    where
        F: Future<Output = ReplyBuilder> + Send + 'static,
    {
        let gate = self.clone();
        slow(move |asked| answer(gate.clone(), asked))
    }

    /// A tool whose calls can wait here.
    pub(crate) fn tool<F>(
        &self,
        name: &'static str,
        act: impl Fn(Gate, String, CallContext) -> F + Send + Sync + 'static,
    ) -> Tools
    where
        F: Future<Output = Result<ToolOutput, ToolError>> + Send + 'static,
    {
        let gate = self.clone();
        tool(name, move |arguments, context| act(gate.clone(), arguments, context))
    }
}

/// What a model was asked, to keep.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) task: TaskId,
    pub(crate) agent: String,
    pub(crate) turn: u32,
    pub(crate) retry: u32,
    pub(crate) order: String,
    /// All messages, in short: `u:` user, `a:` assistant, `t:` tool.
    pub(crate) said: Vec<String>,
    pub(crate) tools: Vec<String>,
}

impl Asked {
    fn of(request: &ModelRequest<'_>) -> Asked {
        let short = |message: &Message| match message {
            Message::User(text) => format!("u:{text}"),
            Message::Assistant(reply) => format!("a:{}", reply.text()),
            Message::Tool(result) => format!("t:{}", result.output),
        };
        let said: Vec<String> = request.messages.iter().map(short).collect();
        Asked {
            task: request.task,
            agent: request.agent.to_string(),
            turn: request.turn,
            retry: request.retry,
            order: said.first().map(|text| text[2..].to_owned()).unwrap_or_default(),
            tools: request.tools.iter().map(|spec| spec.name.clone()).collect(),
            said,
        }
    }

    pub(crate) fn last(&self) -> &str {
        self.said.last().map_or("", String::as_str)
    }

    /// How often a text was said to the model, or by it.
    pub(crate) fn times(&self, text: &str) -> usize {
        self.said.iter().map(|said| said.matches(text).count()).sum()
    }

    /// The first id of a task that a tool returned.
    pub(crate) fn id(&self) -> String {
        let all = self.said.join(" ");
        let at = all.find("t-").expect("an id");
        all[at..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '-').collect()
    }
}

/// A model that is a plain function.
pub(crate) fn model(answer: impl Fn(Asked) -> ReplyBuilder + Send + Sync + 'static) -> Arc<dyn Model> {
    Arc::new(FnModel::new(move |request| answer(Asked::of(request))))
}

/// A model that waits for something.
pub(crate) fn slow<F>(answer: impl Fn(Asked) -> F + Send + Sync + 'static) -> Arc<dyn Model>
where
    F: Future<Output = ReplyBuilder> + Send + 'static,
{
    Arc::new(FnModel::try_new(move |request| {
        let answer = answer(Asked::of(request));
        async move { Ok::<Reply, ModelError>(answer.await.into()) }
    }))
}

/// A model whose answers can wait at a gate, and that gate.
pub(crate) fn gated<F>(answer: impl Fn(Gate, Asked) -> F + Send + Sync + 'static) -> (Gate, Arc<dyn Model>)
where
    F: Future<Output = ReplyBuilder> + Send + 'static,
{
    let gate = Gate::new();
    let model = gate.model(answer);
    (gate, model)
}

/// A model that fails.
pub(crate) fn failing<F>(answer: impl Fn(Asked) -> F + Send + Sync + 'static) -> Arc<dyn Model>
where
    F: Future<Output = Result<ReplyBuilder, ModelError>> + Send + 'static,
{
    Arc::new(FnModel::try_new(move |request| answer(Asked::of(request))))
}

type Act = dyn Fn(String, CallContext) -> CallFuture<'static> + Send + Sync;

/// A tool that is a function.
pub(crate) struct FnTool {
    name: &'static str,
    effects: ToolEffects,
    act: Box<Act>,
}

pub(crate) fn tool<F>(
    name: &'static str,
    act: impl Fn(String, CallContext) -> F + Send + Sync + 'static,
) -> Tools
where
    F: Future<Output = Result<ToolOutput, ToolError>> + Send + 'static,
{
    tool_of(ToolEffects::default(), name, act)
}

/// A tool that is a function, and behaves in this manner.
pub(crate) fn tool_of<F>(
    effects: ToolEffects,
    name: &'static str,
    act: impl Fn(String, CallContext) -> F + Send + Sync + 'static,
) -> Tools
where
    F: Future<Output = Result<ToolOutput, ToolError>> + Send + 'static,
{
    let act =
        Box::new(move |arguments, context| -> BoxFuture<'static, _> { Box::pin(act(arguments, context)) });
    Tools::new().with_dyn(Arc::new(FnTool { name, effects, act }))
}

impl DynTool for FnTool {
    fn spec(&self) -> ToolSpec {
        let parameters = json!({"type": "object", "properties": {}});
        ToolSpec { name: self.name.to_owned(), description: String::new(), parameters }
    }

    fn effects(&self) -> ToolEffects {
        self.effects
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a CallContext) -> CallFuture<'a> {
        (self.act)(arguments.to_owned(), context.clone())
    }
}

pub(crate) fn agent(name: &str, model: &Arc<dyn Model>) -> AgentBuilder {
    Agent::builder(name).model(model.clone())
}

/// A lead with one worker, in the dialect of team files, both with one model.
pub(crate) fn pair(model: &Arc<dyn Model>) -> AgentBuilder {
    agent("lead", model)
        .sub_agent(agent("worker", model).build().unwrap())
        .dialect(SubAgentDialect::Background)
}

pub(crate) fn team(agent: AgentBuilder) -> Team {
    Team::new(agent.build().unwrap()).unwrap()
}

pub(crate) async fn start(agent: AgentBuilder) -> Longhaul {
    Longhaul::builder(team(agent)).start().await.unwrap()
}

/// A call that launches the worker.
pub(crate) fn launch(reply: ReplyBuilder, task: &str) -> ReplyBuilder {
    reply.call("run_background_agent", json!({"agent": "worker", "task": task}))
}

pub(crate) fn wait_for(id: &str) -> ReplyBuilder {
    reply().call("wait_background_agents", json!({"task_ids": [id]}))
}

/// Submits to the root and waits for the end.
pub(crate) async fn ask(longhaul: &Longhaul, order: Order) -> Snapshot {
    let id = longhaul.submit(order).await.unwrap();
    end(longhaul, id).await
}

pub(crate) async fn end(longhaul: &Longhaul, id: TaskId) -> Snapshot {
    within(longhaul.wait([id])).await.unwrap().tasks.remove(0)
}

pub(crate) async fn journal(longhaul: &Longhaul, id: TaskId) -> Vec<Record> {
    longhaul.store().read(id, Seq(0), 100_000).await.unwrap()
}

pub(crate) async fn letters(longhaul: &Longhaul, id: TaskId) -> Vec<Letter> {
    let letter = |record: Record| match record.entry {
        Entry::Letter(letter) => Some(*letter),
        _ => None,
    };
    journal(longhaul, id).await.into_iter().filter_map(letter).collect()
}

pub(crate) async fn children(longhaul: &Longhaul, id: TaskId) -> Vec<longhaul::task::TaskState> {
    longhaul.list(longhaul::store::TaskFilter::children(id)).await.unwrap()
}

/// Waits until a task stands like this.
pub(crate) async fn until(longhaul: &Longhaul, id: TaskId, is: impl Fn(&longhaul::task::TaskState) -> bool) {
    let mut events = longhaul.events(id, Seq(0));
    loop {
        if is(&longhaul.snapshot(id).await.unwrap().state) {
            return;
        }
        within(events.next()).await.expect("it ended before it stood like that").unwrap();
    }
}

pub(crate) async fn all(events: TaskEvents) -> Vec<Event> {
    within(events.map(Result::unwrap).collect()).await
}

/// The text that events tell of a task, as somebody puts it together who reads them.
pub(crate) fn text(events: &[Event], task: TaskId) -> String {
    let (mut whole, mut live) = (String::new(), String::new());
    for event in events.iter().filter(|event| event.task == task) {
        match &event.kind {
            EventKind::Text { text } => live.push_str(text),
            EventKind::Usage { .. } => whole.push_str(&std::mem::take(&mut live)),
            what if what.voids_partial_reply() => live.clear(),
            _ => {}
        }
    }
    whole + &live
}

/// A place where a model notes what it was asked.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<Asked>>>);

impl Log {
    pub(crate) fn note(&self, asked: &Asked) {
        self.0.lock().unwrap().push(asked.clone());
    }

    pub(crate) fn all(&self) -> Vec<Asked> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn of(&self, agent: &str) -> Vec<Asked> {
        self.all().into_iter().filter(|asked| asked.agent == agent).collect()
    }
}

/// An output without the note that leads a model on after a `transfer_task`.
pub(crate) fn without_note(output: &str) -> String {
    const END: &str = "write your answer now, in words.";
    let Some((before, rest)) = output.split_once("\n\nNote: this task is done, ") else {
        return output.to_owned();
    };
    let (_, after) = rest.split_once(END).expect("the end of the note");
    format!("{before}{}", without_note(after))
}

pub(crate) fn assert_done(snapshot: &Snapshot) {
    assert_eq!(snapshot.state.status, Status::Completed, "{:?}", snapshot.state.error);
}

pub(crate) fn policy(change: impl FnOnce(&mut Policy)) -> Policy {
    let mut policy = Policy::default();
    change(&mut policy);
    policy
}
