//! The tool traits, the context of a call, and tool errors.
//!
//! Authors write a [`Tool`]: typed arguments, an `async fn`. The engine sees its twin, [`DynTool`], which also takes
//! what a model really sends for arguments.

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

use crate::dispatch::{Caller, DispatchError, Dispatcher, EarlierResult};
use crate::entry::{ModelChoice, Question, QuestionAnswer, SamplingUsage};
use crate::id::{AgentName, CallId, TaskId};
use crate::model::{Model, ToolSpec};
use crate::permission::{RuleNames, ToolIdentity};

mod ask_model;
mod arguments;
mod storage;

pub use arguments::{ArgumentAliases, canonical_arguments, parse_arguments, parse_arguments_with_aliases};
pub use storage::{StorageScope, ToolStorage};

/// A tool, as its author writes it.
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
    /// What it is called with. A field's doc comment tells the model what to put there. It is also written back as JSON:
    /// that is what permission rules, hooks and people see of a call.
    type Args: DeserializeOwned + Serialize + JsonSchema + Send;

    /// Its name.
    fn name(&self) -> &str;

    /// What it does, for the model.
    fn description(&self) -> String;

    /// How it behaves.
    fn effects(&self) -> ToolEffects {
        ToolEffects::default()
    }

    /// Other names that models give its arguments: `(other, own)`. A call may use either, but not both, and a permission
    /// rule may name either. Declare them here and not as serde aliases, of which rules know nothing.
    fn aliases(&self) -> ArgumentAliases {
        &[]
    }

    /// What it acts with besides its arguments, in words that follow "it runs": "in a sandbox, without network". What a person
    /// allows one tool is not allowed another of its name that runs otherwise.
    fn setting(&self) -> Option<String> {
        None
    }

    /// Does it.
    fn call(
        &self,
        args: Self::Args,
        context: &CallContext,
    ) -> impl Future<Output = Result<ToolOutput, ToolError>> + Send;
}

/// How a tool behaves; what is not declared is not assumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ToolEffects {
    /// It changes nothing.
    pub read_only: bool,
    /// Doing it twice is as good as doing it once, so that a call that a crash interrupted may be made again.
    pub repeatable: bool,
    /// It looks at tasks or waits for them; doing that again and again is no sign of a loop.
    pub polls_tasks: bool,
    /// It changes nothing but what is Longhaul's own: tasks, and the lists and notes of an agent. Nobody need be asked.
    pub internal: bool,
    /// It gives work to other agents.
    pub launches: bool,
}

impl ToolEffects {
    const NOTHING: ToolEffects = ToolEffects {
        read_only: false,
        repeatable: false,
        polls_tasks: false,
        internal: false,
        launches: false,
    };
    /// Changes nothing, and so may be repeated.
    pub const READ_ONLY: ToolEffects =
        ToolEffects { read_only: true, repeatable: true, ..ToolEffects::NOTHING };
    /// Changes something, but the same call changes it only once.
    pub const REPEATABLE: ToolEffects = ToolEffects { repeatable: true, ..ToolEffects::NOTHING };
    /// Changes only what is Longhaul's own, and the same call only once.
    pub const INTERNAL: ToolEffects =
        ToolEffects { repeatable: true, internal: true, ..ToolEffects::NOTHING };
    /// Looks at tasks, or waits for them.
    pub const POLLS_TASKS: ToolEffects =
        ToolEffects { read_only: true, repeatable: true, polls_tasks: true, internal: true, launches: false };
    /// Gives work to other agents, and by the same call only once.
    pub const LAUNCHES: ToolEffects = ToolEffects { launches: true, ..ToolEffects::INTERNAL };

    /// Whether nobody need be asked before it is called, where no pattern says otherwise.
    pub fn is_harmless(self) -> bool {
        self.read_only || self.internal
    }
}

/// What a tool gave.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolOutput {
    /// What the model sees.
    pub text: String,
    /// Whether the text tells of a failure. Unlike a [`ToolError`], such an output can still have collected tasks.
    pub is_error: bool,
    /// Tasks whose final result is in the text, so that no letter need tell of it.
    pub collected: Vec<TaskId>,
    /// The agent that goes on with the conversation.
    pub handoff: Option<AgentName>,
    /// The model that is asked from now on.
    pub model: Option<ModelChoice>,
}

impl<S: Into<String>> From<S> for ToolOutput {
    fn from(text: S) -> Self {
        ToolOutput { text: text.into(), ..ToolOutput::default() }
    }
}

/// Why a tool gave nothing, and what is to be done about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolError {
    /// The call was wrong: the model is told how, and may call again.
    #[error("{0}")]
    Retry(String),
    /// It did not work: the model sees why, and adapts.
    #[error("{0}")]
    Failed(String),
    /// The run cannot go on: the task fails.
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

/// What a tool is given with a call.
#[derive(Clone)]
pub struct CallContext {
    /// Who calls.
    pub caller: Caller,
    /// Which call it is; the same after a restart.
    pub call: CallId,
    /// The way to other tasks.
    pub dispatcher: Arc<dyn Dispatcher>,
    /// Fires when the task is to stop: give up what you are doing, and leave nothing running.
    pub cancel: CancellationToken,
    /// Fires when a person does not want this call to wait for other tasks: return, and say that they go on.
    pub backgrounded: CancellationToken,
    /// What the caller has launched before with the words of this call, or much the same, and has the results of; the last first.
    pub earlier: Vec<EarlierResult>,
    /// Where the task works.
    pub working_dir: Option<PathBuf>,
    /// The model of the agent that calls.
    pub model: Arc<dyn Model>,
    /// Where a tool notes what it must still know after a restart.
    pub storage: ToolStorage,
    /// How many processes may run at once: a tool that starts one takes a slot first ([`CallContext::process_slot`]).
    pub processes: ProcessSlots,
    /// The way back to the runner.
    pub runner: RunnerChannel,
}

impl CallContext {
    /// Tells how far the tool is, for whoever watches.
    pub fn progress(&self, text: impl Into<String>) {
        self.runner.send(CallSignal::Progress(text.into()));
    }

    /// Waits until one more process may be started, and says so meanwhile. Keep what is returned while the process runs, and
    /// wait for no other task with it.
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

    /// Asks a person. It is shown wherever one is attached, and survives a restart; where nobody can answer, that is
    /// the answer. While all calls of a task wait, for a person or for other tasks, it needs no seat.
    pub async fn ask(&self, question: Question) -> QuestionAnswer {
        let (reply, answer) = tokio::sync::oneshot::channel();
        self.runner.send(CallSignal::AsksPerson { call: self.call, question, reply });
        answer.await.unwrap_or_else(|_| QuestionAnswer::Nobody("the task is being stopped".to_owned()))
    }

    /// Says that this call now only waits for other tasks: while all calls of a task do, it needs no seat. It
    /// has one again when the guard is gone and the runner goes on.
    pub fn waits_for(&self, tasks: Vec<TaskId>) -> WaitingGuard {
        self.runner.send(CallSignal::WaitsForTasks { call: self.call, tasks });
        WaitingGuard { runner: self.runner.clone(), call: self.call }
    }
}

/// How many processes tool calls and hooks may run at once. Clones share the slots.
#[derive(Debug, Clone)]
pub struct ProcessSlots {
    slots: Arc<Semaphore>,
    most: usize,
}

/// Leave to run a process, until this is dropped.
#[derive(Debug)]
pub struct ProcessSlot {
    _permit: Option<OwnedSemaphorePermit>,
}

impl ProcessSlots {
    /// So many at once; at least one.
    pub fn new(most: usize) -> Self {
        let most = most.clamp(1, Semaphore::MAX_PERMITS);
        ProcessSlots { slots: Arc::new(Semaphore::new(most)), most }
    }

    /// Takes a slot; if none is free, says so to `waits` and waits for one. First come, first served.
    pub async fn acquire(&self, waits: impl FnOnce(usize)) -> ProcessSlot {
        if let Ok(slot) = self.slots.clone().try_acquire_owned() {
            return ProcessSlot { _permit: Some(slot) };
        }
        waits(self.most);
        // Nobody ever closes it.
        ProcessSlot { _permit: self.slots.clone().acquire_owned().await.ok() }
    }
}

impl Default for ProcessSlots {
    fn default() -> Self {
        ProcessSlots::new(crate::dispatch::TaskLimits::default().processes)
    }
}

/// What a call tells its runner while it runs.
#[derive(Debug)]
pub enum CallSignal {
    /// How far it is.
    Progress(String),
    /// It only waits for other tasks now.
    WaitsForTasks {
        /// Which call.
        call: CallId,
        /// For which tasks.
        tasks: Vec<TaskId>,
    },
    /// It asks a person.
    AsksPerson {
        /// Which call.
        call: CallId,
        /// What it asks.
        question: Question,
        /// Where the answer goes.
        reply: tokio::sync::oneshot::Sender<QuestionAnswer>,
    },
    /// It does something itself again.
    WorksAgain {
        /// Which call.
        call: CallId,
    },
    /// It wants to ask the model. Whether it may is for the budgets to say.
    WantsModel {
        /// How many tokens what it asks has, about.
        tokens: u64,
        /// Where the answer goes: why not, if it may not.
        reply: tokio::sync::oneshot::Sender<Result<(), String>>,
    },
    /// It has asked the model.
    Sampled {
        /// What that has used.
        sampled: Box<SamplingUsage>,
        /// Told when it is written down.
        noted: tokio::sync::oneshot::Sender<()>,
    },
}

/// The line from a call to its runner.
#[derive(Clone)]
pub struct RunnerChannel {
    signals: tokio::sync::mpsc::UnboundedSender<CallSignal>,
    /// Whoever has it may ask the model: one at a time, so that a budget is passed by one request and not by many.
    model: Arc<tokio::sync::Mutex<()>>,
}

impl RunnerChannel {
    /// A line, and the end where it is heard.
    pub fn new() -> (RunnerChannel, tokio::sync::mpsc::UnboundedReceiver<CallSignal>) {
        let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
        (RunnerChannel { signals: sender, model: Arc::default() }, receiver)
    }

    fn send(&self, signal: CallSignal) {
        // Nobody listens any more when the task is being torn down; then nobody needs to know either.
        let _ = self.signals.send(signal);
    }
}

/// While it lives, its call only waits for other tasks.
pub struct WaitingGuard {
    runner: RunnerChannel,
    call: CallId,
}

impl Drop for WaitingGuard {
    fn drop(&mut self) {
        self.runner.send(CallSignal::WorksAgain { call: self.call });
    }
}

/// A tool, as the engine sees it. Every [`Tool`] is one; tools whose arguments are only known at run time
/// implement it themselves.
pub trait DynTool: Send + Sync + 'static {
    /// What the model is told of it.
    fn spec(&self) -> ToolSpec;

    /// How it behaves.
    fn effects(&self) -> ToolEffects;

    /// The arguments as the tool will read them: under its own names, and in the form that it makes of them. Permission
    /// rules, hooks and people see these, and the tool is called with them. The error is for the model.
    fn canonical_arguments(&self, arguments: &str) -> Result<String, ToolError> {
        Ok(arguments.to_owned())
    }

    /// By which names permission rules know the tool and its arguments, besides its own.
    fn rule_names(&self) -> RuleNames {
        RuleNames::default()
    }

    /// What it is, for whoever consents to its calls: see [`ToolIdentity`]. Who wraps a tool hands on that of the tool inside.
    /// Its toolset need not be said.
    fn identity(&self) -> ToolIdentity {
        identity_from_spec(&self.spec(), self.effects())
    }

    /// Does it, with the arguments as the model wrote them or as [`canonical_arguments`](Self::canonical_arguments) made them.
    fn call<'a>(
        &'a self,
        arguments: &'a str,
        context: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>>;
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

    fn call<'a>(
        &'a self,
        arguments: &'a str,
        context: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let args = parse_arguments_with_aliases::<T::Args>(arguments, Tool::aliases(self))?;
            Tool::call(self, args, context).await
        })
    }
}

/// What a tool is by what it says of itself.
pub(crate) fn identity_from_spec(spec: &ToolSpec, manner: ToolEffects) -> ToolIdentity {
    let words = [("read-only", manner.read_only), ("repeatable", manner.repeatable)];
    let hints: Vec<_> = words.iter().filter(|(_, holds)| *holds).map(|(word, _)| *word).collect();
    ToolIdentity {
        hints: hints.join(", "),
        ..ToolIdentity::new(&spec.name, &spec.description, &spec.parameters)
    }
}

/// The JSON schema of a tool's arguments, as plain as the pickiest provider wants it: nothing is referred to, and
/// what may be left out is not nullable besides.
pub fn arguments_schema<T: JsonSchema>() -> Value {
    let settings = schemars::generate::SchemaSettings::draft2020_12()
        .with(|settings| settings.inline_subschemas = true)
        .with_transform(schemars::transform::RecursiveTransform(plain));
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    if let Some(object) = schema.as_object_mut() {
        for word in ["$schema", "title", "description"] {
            object.remove(word);
        }
        // Providers insist on it, also where a tool takes nothing.
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
