//! The tool traits, the context of a call, and tool errors.
//!
//! Authors implement [`Tool`]: typed arguments and an `async fn`. The engine uses [`DynTool`], which also
//! accepts arguments the way models actually write them.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;

use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::dispatch::{Caller, DispatchError, Dispatcher, EarlierLaunch};
use crate::entry::{FileChange, ModelChoice, Question, QuestionAnswer, SamplingUsage};
use crate::id::{AgentName, CallId, TaskId};
use crate::model::{Model, ToolSpec};
use crate::permission::{RuleNames, ToolIdentity};

mod ask_model;
mod arguments;
mod description;
mod storage;

pub use arguments::{ArgumentAliases, canonical_arguments, parse_arguments, parse_arguments_with_aliases};
pub use ask_model::{AskModelError, BudgetDenial};
pub use description::{ArgumentDescription, ToolDescription};
pub use storage::{StorageScope, ToolStorage};

/// A tool, as its author implements it.
///
/// ```
/// use longhaul::tool::{CallContext, ToolEffects, Tool, ToolError, ToolOutput};
///
/// struct Sqrt;
///
/// #[derive(serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
/// struct SqrtArgs {
///     /// The number, not below 0.
///     of: f64,
/// }
///
/// impl Tool for Sqrt {
///     type Args = SqrtArgs;
///
///     fn name(&self) -> &str {
///         "sqrt"
///     }
///
///     fn description(&self) -> String {
///         "The square root of a number.".to_owned()
///     }
///
///     fn effects(&self) -> ToolEffects {
///         ToolEffects::READ_ONLY
///     }
///
///     async fn call(&self, args: SqrtArgs, _: &CallContext) -> Result<ToolOutput, ToolError> {
///         if args.of < 0.0 {
///             return Err(ToolError::Retry("`of` must not be below 0".to_owned()));
///         }
///         Ok(args.of.sqrt().to_string().into())
///     }
/// }
/// # use longhaul::tool::DynTool;
/// # assert_eq!(DynTool::spec(&Sqrt).parameters["properties"]["of"]["description"], "The number, not below 0.");
/// ```
pub trait Tool: Send + Sync + 'static {
    /// Its arguments. A field's doc comment tells the model what to put there. The arguments are also
    /// serialized back to JSON, which is what permission rules, hooks and people see of a call.
    type Args: DeserializeOwned + Serialize + JsonSchema + Send;

    /// Its name.
    fn name(&self) -> &str;

    /// What it does, for the model.
    fn description(&self) -> String;

    /// What it affects.
    fn effects(&self) -> ToolEffects {
        ToolEffects::default()
    }

    /// Other names that models use for its arguments: `(other, own)`. A call may use either, but not both,
    /// and a permission rule may name either. Declare them here and not as serde aliases: rules do not know
    /// those.
    fn aliases(&self) -> ArgumentAliases {
        &[]
    }

    /// How it runs, apart from its arguments, in words that follow "it runs": "in a sandbox, without
    /// network". An approval for one tool does not cover a tool of the same name that runs differently.
    fn setting(&self) -> Option<String> {
        None
    }

    /// What a call would do to a file, for the person who is asked to approve it. Changes nothing.
    fn preview(
        &self,
        _args: Self::Args,
        _context: &CallContext,
    ) -> impl Future<Output = Option<FileChange>> + Send {
        std::future::ready(None)
    }

    /// Runs the tool.
    fn call(
        &self,
        args: Self::Args,
        context: &CallContext,
    ) -> impl Future<Output = Result<ToolOutput, ToolError>> + Send;
}

/// What a tool affects. Anything not declared is not assumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct ToolEffects {
    /// It changes nothing.
    pub read_only: bool,
    /// Running it twice has the same effect as running it once, so a call interrupted by a crash may be
    /// repeated.
    pub repeatable: bool,
    /// It looks at tasks or waits for them. Repeating it does not count as a loop.
    pub polls_tasks: bool,
    /// It changes only Longhaul's own data: tasks, and an agent's lists and notes. It needs no approval.
    pub internal: bool,
    /// It launches tasks of other agents.
    pub launches: bool,
    /// It stops tasks of other agents.
    pub stops_tasks: bool,
}

impl ToolEffects {
    const NOTHING: ToolEffects = ToolEffects {
        read_only: false,
        repeatable: false,
        polls_tasks: false,
        internal: false,
        launches: false,
        stops_tasks: false,
    };
    /// Changes nothing, and so may be repeated.
    pub const READ_ONLY: ToolEffects =
        ToolEffects { read_only: true, repeatable: true, ..ToolEffects::NOTHING };
    /// Changes something, but repeating the call changes nothing more.
    pub const REPEATABLE: ToolEffects = ToolEffects { repeatable: true, ..ToolEffects::NOTHING };
    /// Changes only Longhaul's own data, and repeating the call changes nothing more.
    pub const INTERNAL: ToolEffects =
        ToolEffects { repeatable: true, internal: true, ..ToolEffects::NOTHING };
    /// Looks at tasks, or waits for them.
    pub const POLLS_TASKS: ToolEffects =
        ToolEffects { read_only: true, polls_tasks: true, ..ToolEffects::INTERNAL };
    /// Launches tasks of other agents, and repeating the call launches nothing more.
    pub const LAUNCHES: ToolEffects = ToolEffects { launches: true, ..ToolEffects::INTERNAL };
    /// Stops tasks of other agents.
    pub const STOPS_TASKS: ToolEffects = ToolEffects { stops_tasks: true, ..ToolEffects::INTERNAL };

    /// Describes the effects in a few words: `only reads`, `changes things`.
    pub fn summary(self) -> &'static str {
        match self {
            ToolEffects { read_only: true, .. } => "only reads",
            ToolEffects { launches: true, .. } => "starts tasks",
            ToolEffects { internal: true, .. } => "changes only Longhaul's own data",
            ToolEffects { repeatable: true, .. } => "changes things, safe to repeat",
            _ => "changes things",
        }
    }

    /// Whether it needs no approval, unless a pattern says otherwise.
    pub fn is_harmless(self) -> bool {
        self.read_only || self.internal
    }
}

/// A call in progress.
pub type CallFuture<'a> = BoxFuture<'a, Result<ToolOutput, ToolError>>;

/// What a call would do to a file, in progress.
pub type PreviewFuture<'a> = BoxFuture<'a, Option<FileChange>>;

fluent_setters!(ToolEffects {
    read_only: bool,
    repeatable: bool,
    polls_tasks: bool,
    internal: bool,
    launches: bool,
    stops_tasks: bool,
});

/// The output of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ToolOutput {
    /// What the model sees.
    pub text: String,
    /// Whether the text reports a failure. Unlike a [`ToolError`], such an output can still have collected
    /// tasks.
    pub is_error: bool,
    /// Tasks whose final result is in the text, so that no letter about them is needed.
    pub collected: Vec<TaskId>,
    /// Whether all the caller's tasks had ended, so that looking at them again shows the same.
    pub all_ended: bool,
    /// The agent that continues the conversation.
    pub handoff: Option<AgentName>,
    /// The model that continues the conversation.
    pub model: Option<ModelChoice>,
}

fluent_setters!(ToolOutput {
    text: String,
    is_error: bool,
    collected: Vec<TaskId>,
    all_ended: bool,
    handoff: Option<AgentName>,
    model: Option<ModelChoice>,
});

impl<S: Into<String>> From<S> for ToolOutput {
    fn from(text: S) -> Self {
        ToolOutput { text: text.into(), ..ToolOutput::default() }
    }
}

/// Why a tool failed, and how the engine reacts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolError {
    /// The call was invalid: the model is told why and may call again.
    #[error("{0}")]
    Retry(String),
    /// The tool failed: the model sees why and adapts.
    #[error("{0}")]
    Failed(String),
    /// The run cannot continue: the task fails.
    #[error("{0}")]
    Fatal(String),
}

impl From<DispatchError> for ToolError {
    fn from(error: DispatchError) -> Self {
        match error {
            DispatchError::Store(error) => ToolError::Fatal(error.to_string()),
            DispatchError::Stopping
            | DispatchError::Limit { .. }
            | DispatchError::TooDeep { .. }
            | DispatchError::MailboxFull(_) => ToolError::Failed(error.to_string()),
            _ => ToolError::Retry(error.to_string()),
        }
    }
}

/// The context of a tool call.
#[derive(Clone)]
pub struct CallContext {
    /// The task and agent that make the call.
    pub caller: Caller,
    /// The id of the call; it stays the same after a restart.
    pub call: CallId,
    /// Access to other tasks.
    pub dispatcher: Arc<dyn Dispatcher>,
    /// Fires when the task is stopping: return, and leave nothing running.
    pub cancel: CancellationToken,
    /// Fires when a person moves this call to the background: stop waiting for other tasks, and return that
    /// they continue.
    pub backgrounded: CancellationToken,
    /// The caller's earlier launches with the same arguments, or with similar ones if it has read their results; the
    /// latest first.
    pub earlier: Vec<EarlierLaunch>,
    /// The working directory of the task.
    pub working_dir: Option<PathBuf>,
    /// The model of the calling agent.
    pub model: Arc<dyn Model>,
    /// Durable storage for what the tool must still know after a restart.
    pub storage: ToolStorage,
    /// Limits how many child processes run at once. A tool that starts one takes a slot first
    /// ([`CallContext::process_slot`]).
    pub processes: ProcessSlots,
    /// Sends signals to the runner.
    pub(crate) runner: RunnerChannel,
}

impl CallContext {
    /// Reports progress to anyone following the task.
    pub fn progress(&self, text: impl Into<String>) {
        self.runner.send(CallSignal::Progress(text.into()));
    }

    /// Waits for a slot to start a child process, and reports the wait as progress. Keep the returned slot
    /// while the process runs, and do not wait for other tasks while holding it.
    ///
    /// # Errors
    /// When the task is being stopped: nothing was started then.
    pub async fn process_slot(&self) -> Result<ProcessSlot, ToolError> {
        let waits = |most| {
            self.progress(format!(
                "waiting to start a process: {most} are running, which is the limit (limits.processes)"
            ));
        };
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => {
                Err(ToolError::Failed("[the task is being stopped: the command was not run]".to_owned()))
            }
            slot = self.processes.acquire(waits) => Ok(slot),
        }
    }

    /// Asks a person. The question is shown in every attached terminal and survives a restart. If nobody can
    /// answer, the result says so. While all calls of a task wait for people or other tasks, the task
    /// occupies no seat.
    pub async fn ask(&self, question: Question) -> QuestionAnswer {
        let (reply, answer) = tokio::sync::oneshot::channel();
        self.runner.send(CallSignal::AsksPerson { call: self.call, question: Box::new(question), reply });
        answer.await.unwrap_or_else(|_| QuestionAnswer::Nobody("the task is being stopped".to_owned()))
    }

    /// Declares that this call now only waits for other tasks. While all calls of a task wait, the task
    /// occupies no seat. It gets one again when the guard is dropped and the runner continues.
    pub fn waits_for(&self, tasks: Vec<TaskId>) -> WaitingGuard {
        self.runner.send(CallSignal::WaitsForTasks { call: self.call, tasks });
        WaitingGuard { runner: self.runner.clone(), call: self.call }
    }
}

/// Limits how many child processes tool calls and hooks run at once. Clones share the slots.
#[derive(Debug, Clone)]
pub struct ProcessSlots {
    slots: Arc<Semaphore>,
    most: usize,
}

/// Permission to run one child process, until dropped.
#[derive(Debug)]
pub struct ProcessSlot {
    _permit: Option<OwnedSemaphorePermit>,
}

impl ProcessSlots {
    /// Creates `most` slots, at least one.
    pub fn new(most: usize) -> Self {
        let most = most.clamp(1, Semaphore::MAX_PERMITS);
        ProcessSlots { slots: Arc::new(Semaphore::new(most)), most }
    }

    /// Takes a slot. If none is free, calls `waits` and waits for one, first come, first served.
    pub async fn acquire(&self, waits: impl FnOnce(usize)) -> ProcessSlot {
        if let Ok(slot) = self.slots.clone().try_acquire_owned() {
            return ProcessSlot { _permit: Some(slot) };
        }
        waits(self.most);
        // The semaphore is never closed.
        ProcessSlot { _permit: self.slots.clone().acquire_owned().await.ok() }
    }
}

impl Default for ProcessSlots {
    fn default() -> Self {
        ProcessSlots::new(crate::dispatch::TaskLimits::default().processes)
    }
}

/// What a running call tells its runner.
#[derive(Debug)]
pub(crate) enum CallSignal {
    /// A progress message.
    Progress(String),
    /// The call now only waits for other tasks.
    WaitsForTasks {
        call: CallId,
        /// The tasks it waits for.
        tasks: Vec<TaskId>,
    },
    /// The call asks a person.
    AsksPerson {
        call: CallId,
        /// Boxed, like everything large: the channel has room for 32 signals.
        question: Box<Question>,
        /// Receives the answer.
        reply: tokio::sync::oneshot::Sender<QuestionAnswer>,
    },
    /// The call no longer waits.
    WorksAgain { call: CallId },
    /// The call wants to ask the model. The budgets decide whether it may.
    WantsModel {
        /// The approximate size of the request, in tokens.
        tokens: u64,
        /// Receives the decision, with the reason if it is no.
        reply: tokio::sync::oneshot::Sender<Result<(), BudgetDenial>>,
    },
    /// The call has asked the model.
    Sampled {
        /// The tokens and cost.
        sampled: Box<SamplingUsage>,
        /// Fires when they are on disk.
        noted: tokio::sync::oneshot::Sender<()>,
    },
}

/// The channel from a call to its runner.
#[derive(Clone)]
pub(crate) struct RunnerChannel {
    signals: tokio::sync::mpsc::UnboundedSender<CallSignal>,
    /// Held while asking the model: one request at a time, so that a budget is exceeded by at most one
    /// request.
    model: Arc<tokio::sync::Mutex<()>>,
}

impl RunnerChannel {
    /// Creates a channel and its receiving end.
    pub(crate) fn new() -> (RunnerChannel, tokio::sync::mpsc::UnboundedReceiver<CallSignal>) {
        let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
        (RunnerChannel { signals: sender, model: Arc::default() }, receiver)
    }

    fn send(&self, signal: CallSignal) {
        // The receiver is gone only when the task is being torn down; then the signal is irrelevant.
        let _ = self.signals.send(signal);
    }
}

/// While it exists, its call only waits for other tasks.
pub struct WaitingGuard {
    runner: RunnerChannel,
    call: CallId,
}

impl Drop for WaitingGuard {
    fn drop(&mut self) {
        self.runner.send(CallSignal::WorksAgain { call: self.call });
    }
}

/// A tool as the engine uses it. Every [`Tool`] implements it. Tools whose arguments are only known at run
/// time implement it directly.
pub trait DynTool: Send + Sync + 'static {
    /// The name, description and parameters that the model sees.
    fn spec(&self) -> ToolSpec;

    /// What it affects.
    fn effects(&self) -> ToolEffects;

    /// The tool that this one wraps: the methods below ask that one, unless the wrapper has its own.
    fn wrapped(&self) -> Option<&dyn DynTool> {
        None
    }

    /// The arguments as the tool reads them: with its own names and in canonical form. Permission rules,
    /// hooks and people see these, and the tool is called with them. The error is written for the model.
    fn canonical_arguments(&self, arguments: &str) -> Result<String, ToolError> {
        self.wrapped().map_or_else(|| Ok(arguments.to_owned()), |tool| tool.canonical_arguments(arguments))
    }

    /// Further names by which permission rules know the tool and its arguments.
    fn rule_names(&self) -> RuleNames {
        self.wrapped().map(DynTool::rule_names).unwrap_or_default()
    }

    /// Its identity, which an approval is tied to: see [`ToolIdentity`]. The toolset may be left out.
    fn identity(&self) -> ToolIdentity {
        let own = || identity_from_spec(&self.spec(), self.effects());
        self.wrapped().map_or_else(own, DynTool::identity)
    }

    /// What a call would do to a file: see [`Tool::preview`].
    fn preview<'a>(&'a self, arguments: &'a str, context: &'a CallContext) -> PreviewFuture<'a> {
        match self.wrapped() {
            Some(tool) => tool.preview(arguments, context),
            None => Box::pin(std::future::ready(None)),
        }
    }

    /// Runs the tool, with the arguments as the model wrote them or as
    /// [`canonical_arguments`](Self::canonical_arguments) returned them.
    fn call<'a>(&'a self, arguments: &'a str, context: &'a CallContext) -> CallFuture<'a>;
}

impl<T: Tool> DynTool for T {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: Tool::name(self).to_owned(),
            description: Tool::description(self),
            parameters: arguments_schema::<T::Args>(),
        }
    }

    fn effects(&self) -> ToolEffects {
        Tool::effects(self)
    }

    fn canonical_arguments(&self, arguments: &str) -> Result<String, ToolError> {
        canonical_arguments::<T::Args>(arguments, Tool::aliases(self))
    }

    fn rule_names(&self) -> RuleNames {
        RuleNames { aliases: Tool::aliases(self), covered_by: Vec::new() }
    }

    fn identity(&self) -> ToolIdentity {
        let identity = identity_from_spec(&DynTool::spec(self), Tool::effects(self));
        ToolIdentity { setting: Tool::setting(self), ..identity }
    }

    fn preview<'a>(&'a self, arguments: &'a str, context: &'a CallContext) -> PreviewFuture<'a> {
        Box::pin(async move {
            let args = parse_arguments_with_aliases::<T::Args>(arguments, Tool::aliases(self)).ok()?;
            Tool::preview(self, args, context).await
        })
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a CallContext) -> CallFuture<'a> {
        Box::pin(async move {
            let args = parse_arguments_with_aliases::<T::Args>(arguments, Tool::aliases(self))?;
            Tool::call(self, args, context).await
        })
    }
}

pub(crate) fn identity_from_spec(spec: &ToolSpec, effects: ToolEffects) -> ToolIdentity {
    let words = [("read-only", effects.read_only), ("repeatable", effects.repeatable)];
    let hints: Vec<_> = words.iter().filter(|(_, holds)| *holds).map(|(word, _)| *word).collect();
    ToolIdentity {
        hints: hints.join(", "),
        ..ToolIdentity::new(&spec.name, &spec.description, &spec.parameters)
    }
}

/// The JSON schema of a tool's arguments, simple enough for the strictest provider: no references, and
/// optional arguments are not nullable.
pub fn arguments_schema<T: JsonSchema>() -> Value {
    let settings = schemars::generate::SchemaSettings::draft2020_12()
        .with(|settings| settings.inline_subschemas = true)
        .with_transform(schemars::transform::RecursiveTransform(plain));
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    if let Some(object) = schema.as_object_mut() {
        for word in ["$schema", "title", "description"] {
            object.remove(word);
        }
        // Providers require it, even for a tool without arguments.
        object.entry("properties").or_insert_with(|| serde_json::json!({}));
    }
    schema
}

fn plain(schema: &mut schemars::Schema) {
    let Some(object) = schema.as_object_mut() else { return };
    if object.get("default").is_some_and(Value::is_null) {
        object.remove("default");
    }
    let rusty = |format: &str| ["int", "uint", "float", "double"].iter().any(|kind| format.starts_with(kind));
    if object.get("format").and_then(Value::as_str).is_some_and(rusty) {
        object.remove("format");
    }
    if let Some(Value::Array(words)) = object.get_mut("enum") {
        words.retain(|word| !word.is_null());
    }
    if let Some(Value::Array(types)) = object.get_mut("type") {
        types.retain(|kind| kind != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            object.insert("type".into(), only);
        }
    }
    if let Some(Value::Array(choices)) = object.get_mut("anyOf") {
        choices.retain(|choice| *choice != serde_json::json!({"type": "null"}));
        if let [Value::Object(only)] = choices.as_slice() {
            let only = only.clone();
            object.remove("anyOf");
            for (key, value) in only {
                object.entry(key).or_insert(value);
            }
        }
    }
}
