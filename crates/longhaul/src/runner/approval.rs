//! Approval of calls: which calls may start, and the open questions to a person.
//!
//! A call that needs approval is not recorded as started before it is approved. So a crash during the wait is
//! harmless: the same question is asked again, under the same id.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::call_hooks::CallHooks;
use super::open_tools::OpenTool;
use super::{Halt, TaskRun};
use crate::agent::Unattended;
use crate::conversation::{CallQuestion, PendingCall};
use crate::entry::{
    Approval, Entry, ExpectedAnswer, FileChange, HookFailure, Question, QuestionAnswer, WaitReason,
};
use crate::hook::{HookDecision, HookVerdict};
use crate::id::{CallId, QuestionId};
use crate::message::Call;
use crate::permission::{Consent, PermissionRequest, PermissionVerdict, Rights, arguments};
use crate::tool::{CallContext, ToolError};

/// How much of a call's arguments the text of a question shows; its `wants` field has all of them.
const SHOWN: usize = 2000;

/// What a call asks its runner before it starts.
pub(super) enum ApprovalRequest {
    /// Asks a person whether the call may be made.
    Ask { call: CallId, question: Box<Question>, reply: oneshot::Sender<QuestionAnswer> },
    /// The call is approved: record its start.
    Begin { call: CallId, tool: Arc<str>, arguments: Option<String>, go: oneshot::Sender<()> },
    /// Hooks for the call failed: record that.
    HooksFailed(Vec<HookFailure>),
}

/// Checks a call before its tool runs.
pub(super) struct ApprovalGate {
    pub(super) rights: Option<Arc<Rights>>,
    /// The base of relative paths.
    pub(super) directory: Option<PathBuf>,
    pub(super) requests: mpsc::UnboundedSender<ApprovalRequest>,
    pub(super) stop: CancellationToken,
    pub(super) abandon: CancellationToken,
}

/// Why a call was not made.
pub(super) enum Denied {
    /// It is denied, or nobody could approve it.
    Refused(ToolError),
    /// It needs approval, and nobody was there.
    Unattended(ToolError),
    /// It was cancelled while it waited, to be made later or never.
    Cancelled,
}

impl ApprovalGate {
    /// Returns when the call is approved and its start is recorded, with the text of hooks for the model.
    /// Hooks may have changed the call's arguments.
    pub(super) async fn request_approval(
        &self,
        pending: &mut PendingCall,
        open: &OpenTool,
        hooks: Option<&CallHooks>,
        context: &CallContext,
    ) -> Result<HookVerdict, Denied> {
        let refused = |why| Err(Denied::Refused(ToolError::Failed(why)));
        let mut verdict = self.verdict(&pending.call, open);
        let (mut hook_verdict, mut arguments) = (HookVerdict::default(), None);
        if let Some(hooks) = hooks
            && !matches!(verdict, PermissionVerdict::Refuse(_))
        {
            hook_verdict = tokio::select! {
                biased;
                () = self.stop.cancelled() => return Err(Denied::Cancelled),
                hook_verdict = hooks.run_before(&pending.call) => hook_verdict,
            };
            self.report_hook_failures(&mut hook_verdict);
            if let Some(why) = &hook_verdict.blocked {
                return refused(blocked(&pending.call.tool, why));
            }
            if let Some(updated) = hook_verdict.updated_input.take() {
                let updated = serde_json::Value::Object(updated).to_string();
                pending.call.arguments = open.tool.canonical_arguments(&updated).map_err(Denied::Refused)?;
                arguments = Some(pending.call.arguments.clone());
                verdict = self.verdict(&pending.call, open);
            }
            verdict = match hook_verdict.decision {
                Some(HookDecision::Allow) => self::verdict(
                    hooks.rights_if_hook_allows.as_deref(),
                    &pending.call,
                    open,
                    self.directory.as_deref(),
                ),
                Some(HookDecision::Ask) if !hooks.approved => verdict.stricter(PermissionVerdict::Ask),
                _ => verdict,
            };
        }
        match verdict {
            PermissionVerdict::Run => {}
            PermissionVerdict::Refuse(why) => return refused(why),
            PermissionVerdict::Ask | PermissionVerdict::Unsure(_) => {
                let why = match verdict {
                    PermissionVerdict::Unsure(why) => Some(why),
                    _ => None,
                };
                let (reply, answer) = oneshot::channel();
                // The tool itself looks at the file: it finds it where the call will find it.
                let file = tokio::select! {
                    biased;
                    () = self.stop.cancelled() => return Err(Denied::Cancelled),
                    file = open.tool.preview(&pending.call.arguments, context) => file,
                };
                let question = approval_question(&pending.call, why, open, file);
                let _ = self.requests.send(ApprovalRequest::Ask {
                    call: pending.id,
                    question: Box::new(question),
                    reply,
                });
                check_answer(&pending.call.tool, self.wait_for_runner(answer).await?)?;
            }
        }
        let (go, begun) = oneshot::channel();
        let tool = pending.call.tool.as_str().into();
        let _ = self.requests.send(ApprovalRequest::Begin { call: pending.id, tool, arguments, go });
        self.wait_for_runner(begun).await?;
        Ok(hook_verdict)
    }

    /// Sends the failures of hooks to the runner to be recorded.
    pub(super) fn report_hook_failures(&self, verdict: &mut HookVerdict) {
        if !verdict.failures.is_empty() {
            let _ = self.requests.send(ApprovalRequest::HooksFailed(std::mem::take(&mut verdict.failures)));
        }
    }

    pub(super) fn verdict(&self, call: &Call, open: &OpenTool) -> PermissionVerdict {
        verdict(self.rights.as_deref(), call, open, self.directory.as_deref())
    }

    /// Whether calls may need a person's approval at all.
    pub(super) fn asks_people(&self) -> bool {
        self.rights.as_ref().is_some_and(|rights| !rights.approved)
    }

    /// Waits for the runner's reply, unless the call is cancelled meanwhile.
    async fn wait_for_runner<T>(&self, said: oneshot::Receiver<T>) -> Result<T, Denied> {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(Denied::Cancelled),
            () = self.abandon.cancelled() => Err(Denied::Cancelled),
            said = said => said.map_err(|_| Denied::Cancelled),
        }
    }
}

/// The verdict on a call. The arguments are as the tool reads them.
fn verdict(
    rights: Option<&Rights>,
    call: &Call,
    open: &OpenTool,
    directory: Option<&Path>,
) -> PermissionVerdict {
    let Some(rights) = rights else { return PermissionVerdict::Run };
    let request = PermissionRequest::new(&call.tool, arguments(&call.arguments))
        .with_rule_names(&open.tool.rule_names());
    let request = request.in_directory(directory).with_changed_tool(open.changed.is_some());
    rights.decide_request(&request, open.effects.is_harmless())
}

/// The message for the model about a call that a hook blocked.
fn blocked(tool: &str, why: &str) -> String {
    let why = if why.is_empty() { String::new() } else { format!(": {why}") };
    format!("This call of '{tool}' was not made: a hook blocked it{why}")
}

fn approval_question(
    call: &Call,
    why: Option<String>,
    open: &OpenTool,
    file: Option<FileChange>,
) -> Question {
    let Call { tool, arguments, .. } = call;
    let shown = &arguments[..arguments.floor_char_boundary(SHOWN)];
    let more = if shown.len() < arguments.len() { "…" } else { "" };
    let text = match &why {
        None => format!("May {tool} be called with {shown}{more}?"),
        Some(why) => format!("May {tool} be called with {shown}{more}? A person has to decide: {why}."),
    };
    let identity = Some(Box::new((*open.identity).clone()));
    let wants = ExpectedAnswer::Leave {
        tool: tool.clone(),
        arguments: arguments.clone(),
        why,
        identity,
        changed: None,
        file: file.map(Box::new),
    };
    let question = Question { text, wants };
    match &open.changed {
        Some(changed) => noting(question, changed),
        None => question,
    }
}

/// Adds to a question how the tool differs from the one that was approved before.
fn noting(mut question: Question, what: &str) -> Question {
    if let ExpectedAnswer::Leave { changed, .. } = &mut question.wants {
        // Kept whole and in front of other changes: the text may be cut where it is shown.
        question.text = format!("{} Note: {what}.", question.text);
        *changed = Some(match changed.take() {
            Some(more) => format!("{more}; {what}"),
            None => what.to_owned(),
        });
    }
    question
}

/// Whether an answer to one question also answers the other: an earlier version of Longhaul may have worded
/// it differently.
fn asks_the_same(had: &Question, asks: &Question) -> bool {
    match (&had.wants, &asks.wants) {
        (
            ExpectedAnswer::Leave { tool, arguments: text, identity, .. },
            ExpectedAnswer::Leave { tool: now, arguments: now_text, identity: now_identity, .. },
        ) => {
            let same = match (identity, now_identity) {
                (Some(seen), Some(now)) => seen.covers(now),
                (None, Some(now)) => !now.is_from_server(),
                (_, None) => true,
            };
            same && tool == now && arguments(text) == arguments(now_text)
        }
        _ => had == asks,
    }
}

/// What an answer means for a call, and the message for the model if it is no.
fn check_answer(tool: &str, answer: QuestionAnswer) -> Result<(), Denied> {
    let explain = |what: String| {
        let then = "Do not make this call again. Do without it, or say what you could not do.";
        ToolError::Failed(format!("This call of '{tool}' was not made: {what}. {then}"))
    };
    let refused = |what: String| Err(Denied::Refused(explain(what)));
    match answer {
        QuestionAnswer::Given(words) => match Approval::parse(&words) {
            Ok(Approval::Yes | Approval::Always(_)) => Ok(()),
            Ok(Approval::No(None)) => refused("a person was asked, and said no".to_owned()),
            Ok(Approval::No(Some(why))) => refused(format!("a person was asked, and said no: {why}")),
            Err(_) => refused(format!("a person was asked, and said: {words}")),
        },
        QuestionAnswer::Declined => refused("a person was asked, and would not say".to_owned()),
        QuestionAnswer::Nobody(why) => {
            Err(Denied::Unattended(explain(format!("somebody has to allow it, and {why}"))))
        }
    }
}

/// Open questions and pending starts of the running calls.
#[derive(Default)]
pub(super) struct PendingQuestions {
    pending: Vec<PendingQuestion>,
    beginning: Vec<(CallId, Entry, oneshot::Sender<()>)>,
    /// The questions asked in this attempt: an id is used once.
    named: Vec<QuestionId>,
}

struct PendingQuestion {
    question: QuestionId,
    reply: oneshot::Sender<QuestionAnswer>,
    due: Option<Instant>,
}

impl PendingQuestions {
    /// The calls that wait for an answer.
    pub(super) fn waiting_calls(&self) -> impl Iterator<Item = CallId> {
        self.pending.iter().map(|pending| pending.question.call)
    }

    /// The calls that may start as soon as there is a seat.
    pub(super) fn ready_calls(&self) -> impl Iterator<Item = CallId> {
        self.beginning.iter().map(|(call, _, _)| *call)
    }

    /// When the first open question expires.
    pub(super) fn due(&self) -> Option<Instant> {
        self.pending.iter().filter_map(|pending| pending.due).min()
    }

    pub(super) fn add_ready_call(
        &mut self,
        call: CallId,
        tool: Arc<str>,
        arguments: Option<String>,
        effects: bool,
        foreign: bool,
        go: oneshot::Sender<()>,
    ) {
        self.beginning.push((call, Entry::Called { call, tool, arguments, effects, foreign }, go));
    }

    /// Drops all open questions and pending starts.
    pub(super) fn clear(&mut self) {
        self.pending.clear();
        self.beginning.clear();
    }

    /// The id of a tool's question: the one it had before a restart, or the next one of its call.
    fn name(&mut self, call: CallId, asks: &Question, before: &[CallQuestion]) -> QuestionId {
        let own = |question: &QuestionId| question.call == call;
        let had = before.iter().filter(|asked| own(&asked.question));
        let same = had.clone().find(|asked| {
            asked.question.nth > 0 && asked.asks == *asks && !self.named.contains(&asked.question)
        });
        let last = had.map(|asked| asked.question).chain(self.named.iter().copied()).filter(own);
        let next = last.map(|question| question.nth).max().unwrap_or(0) + 1;
        let name = same.map_or(QuestionId { call, nth: next }, |asked| asked.question);
        self.named.push(name);
        name
    }
}

impl TaskRun {
    /// Whether a call needs no approval of a person or a hook, so that it starts together with the reply that
    /// made it.
    pub(super) fn starts_without_approval(&self, call: &Call) -> bool {
        // A tool that does not exist does not run anyway; the model is told when it would run.
        let Some(open) = self.tools.tool(&call.tool) else { return true };
        // Nor does a call with invalid arguments.
        let Ok(arguments) = open.tool.canonical_arguments(&call.arguments) else { return true };
        let call = Call { arguments, ..call.clone() };
        let directory = self.order.working_dir.as_deref();
        !self.has_pre_tool_hooks(&call.tool)
            && verdict(self.rights.as_deref(), &call, open, directory) == PermissionVerdict::Run
    }

    /// Asks a person to approve a call, unless a person has already approved such calls for the whole tree.
    pub(super) async fn ask_approval(
        &mut self,
        asking: &mut PendingQuestions,
        call: CallId,
        mut asks: Question,
        reply: oneshot::Sender<QuestionAnswer>,
    ) -> Result<(), Halt> {
        if let ExpectedAnswer::Leave { tool, arguments: text, why, identity, .. } = &asks.wants {
            let root = self.context.store.task_state(self.state.root).await?;
            let args = arguments(text);
            let granted = root.map(|root| root.granted).unwrap_or_default();
            let means = |consent: &&Consent| consent.pattern.grants(tool, &args, why.is_some());
            let allow: Vec<&Consent> = granted.iter().filter(means).collect();
            if allow.iter().any(|consent| consent.applies_to(identity.as_deref())) {
                let _ = reply.send(QuestionAnswer::Given("yes".to_owned()));
                return Ok(());
            }
            if let (Some(consent), Some(now)) = (allow.last(), identity.as_deref()) {
                asks = noting(asks.clone(), &consent.mismatch_reason(now));
            }
        }
        self.ask_person(asking, QuestionId { call, nth: 0 }, asks, reply).await
    }

    /// Asks a person a tool's question.
    pub(super) async fn ask_question(
        &mut self,
        asking: &mut PendingQuestions,
        call: CallId,
        asks: Question,
        reply: oneshot::Sender<QuestionAnswer>,
    ) -> Result<(), Halt> {
        let question = asking.name(call, &asks, self.conversation.questions());
        self.ask_person(asking, question, asks, reply).await
    }

    async fn ask_person(
        &mut self,
        asking: &mut PendingQuestions,
        question: QuestionId,
        asks: Question,
        reply: oneshot::Sender<QuestionAnswer>,
    ) -> Result<(), Halt> {
        let known = self
            .conversation
            .questions()
            .iter()
            .find(|had| had.question == question && asks_the_same(&had.asks, &asks));
        if let Some(answer) = known.and_then(|asked| asked.answer.clone()) {
            let _ = reply.send(answer);
            return Ok(());
        }
        let policy = self.context.unattended.unwrap_or(self.policy.unattended);
        if policy == Unattended::Deny && !self.context.attended {
            let mut why = "nobody is there who could be asked".to_owned();
            if let ExpectedAnswer::Leave { changed: Some(changed), .. } = &asks.wants {
                why += &format!(" ({changed})");
            }
            let _ = reply.send(QuestionAnswer::Nobody(why));
            return Ok(());
        }
        let timeout = self.ask_timeout();
        let until = timeout
            .and_then(|timeout| jiff::SignedDuration::try_from(timeout).ok())
            .and_then(|timeout| self.context.store.now().checked_add(timeout).ok());
        let due = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let words = asks.text.clone();
        self.append_entries(vec![Entry::Asked { question, asks: Box::new(asks), until }]).await?;
        self.run_user_input_hooks(Some(words));
        asking.pending.push(PendingQuestion { question, reply, due });
        Ok(())
    }

    /// How long to wait for a person's answer.
    fn ask_timeout(&self) -> Option<std::time::Duration> {
        self.context.ask_timeout.or(self.policy.ask_timeout)
    }

    /// Passes on the answers that have arrived.
    pub(super) fn deliver_answers(&self, asking: &mut PendingQuestions) {
        for PendingQuestion { question, reply, due } in std::mem::take(&mut asking.pending) {
            let asked = self.conversation.questions().iter().find(|asked| asked.question == question);
            match asked.and_then(|asked| asked.answer.clone()) {
                Some(answer) => drop(reply.send(answer)),
                None if reply.is_closed() => {}
                None => asking.pending.push(PendingQuestion { question, reply, due }),
            }
        }
    }

    /// Closes the questions that expired. An answer that arrives at the same moment counts.
    pub(super) async fn expire_questions(&mut self, asking: &PendingQuestions) -> Result<(), Halt> {
        let now = Instant::now();
        let limit = self.ask_timeout().unwrap_or_default();
        for pending in asking.pending.iter().filter(|pending| pending.due.is_some_and(|due| due <= now)) {
            let question = pending.question;
            while self.state.asked.iter().any(|asked| asked.question == question) {
                let answer = QuestionAnswer::Nobody(format!("nobody answered within {limit:?}"));
                self.append_unless_moved(vec![Entry::Answered { question, answer }]).await?;
            }
        }
        Ok(())
    }

    /// Records the start of the approved calls, and lets them run.
    pub(super) async fn start_approved_calls(&mut self, asking: &mut PendingQuestions) -> Result<(), Halt> {
        let (entries, gates): (Vec<_>, Vec<_>) =
            asking.beginning.drain(..).map(|(_, entry, go)| (entry, go)).unzip();
        self.append_entries(entries).await?;
        for go in gates {
            let _ = go.send(());
        }
        Ok(())
    }

    /// The wait entry for a task whose calls wait for a person.
    pub(super) fn waiting_for_person_entry(&self) -> Option<Entry> {
        let asked = self.state.asked.first()?;
        Some(Entry::Waiting { on: WaitReason::Person(asked.text.clone()), until: asked.until })
    }
}
