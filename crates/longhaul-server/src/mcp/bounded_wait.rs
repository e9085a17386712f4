//! Waits for tasks within the time limits of clients: shows progress, and asks the person at the client.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use longhaul::TaskId;
use longhaul::dispatch::WaitMode;
use longhaul::entry::EntryKind;
use longhaul::store::{EntryKinds, Hint, HintStream};
use longhaul::task::TaskState;
use longhaul::toolset::client_tools::{LONGEST_WAIT, PendingQuestion, progress_text};
use rmcp::RoleServer;
use rmcp::model::{ClientCapabilities, ProgressNotificationParam, ProtocolVersion};
use rmcp::service::RequestContext;
use serde_json::Value;
use tokio::time::Instant;

use super::questions::{elicitation, question_key};
use super::team_tasks::TeamTasks;
use crate::problem::Problem;

/// How often to show progress. Some clients give up after a minute without any.
const PROGRESS: Duration = Duration::from_secs(5);

/// How a client can be asked something during a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Elicits {
    /// Not at all.
    No,
    /// By a request to the client.
    ByRequest,
    /// By an intermediate result: the client repeats the call with the answers.
    ByRetry,
}

impl Elicits {
    fn for_client(context: &RequestContext<RoleServer>) -> Elicits {
        if !has_forms(context.client_capabilities().as_ref()) {
            return Elicits::No;
        }
        let newer = |version: ProtocolVersion| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str();
        match context.protocol_version().is_some_and(newer) {
            true => Elicits::ByRetry,
            false => Elicits::ByRequest,
        }
    }
}

/// Whether a client can show forms. A client that names no mode can.
fn has_forms(capabilities: Option<&ClientCapabilities>) -> bool {
    let elicitation = capabilities.and_then(|capabilities| capabilities.elicitation.as_ref());
    elicitation.is_some_and(|modes| modes.form.is_some() || modes.url.is_none())
}

/// How a wait ended.
#[derive(Debug)]
pub(super) enum WaitEnd {
    /// The tasks have ended.
    Over,
    /// The time is up, or the client does not wait any more.
    TimedOut,
    /// Nothing goes on before a person answers, and the client cannot ask them now.
    NeedsPerson,
    /// The client has to ask these questions and repeat the call.
    Ask(Vec<PendingQuestion>),
}

/// A wait for tasks.
pub(super) struct BoundedWait<'a> {
    pub(super) tasks: &'a TeamTasks,
    pub(super) context: &'a RequestContext<RoleServer>,
    pub(super) ids: Vec<TaskId>,
    pub(super) mode: WaitMode,
    pub(super) timeout: Duration,
    /// The questions that this call has shown already.
    pub(super) shown: BTreeSet<String>,
}

impl BoundedWait<'_> {
    pub(super) async fn run(&mut self) -> Result<WaitEnd, Problem> {
        let elicits = Elicits::for_client(self.context);
        // Subscribe before the first look, so that no change is missed.
        let mut hints = self.tasks.longhaul().store().hints();
        let begun = Instant::now();
        let mut deadline = begun + self.timeout;
        let mut beat = tokio::time::interval_at(begun + PROGRESS, PROGRESS);
        let mut asking: Option<BoxFuture<'static, (PendingQuestion, Option<Value>)>> = None;
        loop {
            let states = self.states().await?;
            if is_over(self.mode, &states) {
                return Ok(WaitEnd::Over);
            }
            let open: Vec<&TaskState> = states.iter().filter(|state| !state.status.is_final()).collect();
            let (questions, all_blocked) = self.questions(&open).await?;
            let fresh: Vec<PendingQuestion> = questions
                .into_iter()
                .filter(|question| !self.shown.contains(&question_key(question)))
                .collect();
            match (elicits, &asking, fresh.first()) {
                (Elicits::ByRetry, _, Some(_)) => return Ok(WaitEnd::Ask(fresh)),
                (Elicits::ByRequest, None, Some(first)) => {
                    self.shown.insert(question_key(first));
                    // A person needs longer than a model.
                    deadline = deadline.max(begun + LONGEST_WAIT);
                    asking = Some(self.ask(first.clone(), deadline - Instant::now()));
                }
                (_, None, _) if all_blocked => return Ok(WaitEnd::NeedsPerson),
                _ => {}
            }
            let roots: HashSet<TaskId> = states.iter().map(|state| state.root).collect();
            let next_reply = async {
                match asking.as_mut() {
                    Some(asking) => asking.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = next_change(&mut hints, &roots) => {}
                (question, reply) = next_reply => {
                    asking = None;
                    if let Some(reply) = reply {
                        self.tasks.reply(&question, &reply).await?;
                    }
                }
                _ = beat.tick() => self.show_progress(begun, &open).await,
                () = tokio::time::sleep_until(deadline) => return Ok(WaitEnd::TimedOut),
                () = self.context.ct.cancelled() => return Ok(WaitEnd::TimedOut),
            }
        }
    }

    async fn states(&self) -> Result<Vec<TaskState>, Problem> {
        let mut states = Vec::with_capacity(self.ids.len());
        for id in &self.ids {
            states.push(self.tasks.longhaul().state(*id).await?);
        }
        Ok(states)
    }

    /// The open questions of these tasks, and whether each of the tasks has one.
    async fn questions(&self, open: &[&TaskState]) -> Result<(Vec<PendingQuestion>, bool), Problem> {
        let (mut all, mut roots, mut free) = (Vec::new(), HashSet::new(), false);
        for state in open {
            if roots.insert(state.root) {
                let questions = self.tasks.questions(state).await?;
                free |= questions.is_empty();
                all.extend(questions);
            }
        }
        Ok((all, !free && !open.is_empty()))
    }

    /// Asks the person at the client. No reply means that the question stays open.
    fn ask(
        &self,
        question: PendingQuestion,
        timeout: Duration,
    ) -> BoxFuture<'static, (PendingQuestion, Option<Value>)> {
        let peer = self.context.peer.clone();
        async move {
            let params = elicitation(&question);
            let reply = peer.create_elicitation_with_timeout(params, Some(timeout)).await;
            let reply = reply.ok().and_then(|reply| serde_json::to_value(reply).ok());
            (question, reply)
        }
        .boxed()
    }

    async fn show_progress(&self, begun: Instant, open: &[&TaskState]) {
        let Some(token) = self.context.meta.get_progress_token() else { return };
        let now = self.tasks.now();
        let words: Vec<String> = open.iter().take(3).map(|state| progress_text(state, 0, now)).collect();
        let progress = ProgressNotificationParam::new(token, begun.elapsed().as_secs_f64().round())
            .with_message(words.join("; "));
        // A client that has left does not see it.
        let _ = self.context.peer.notify_progress(progress).await;
    }
}

fn is_over(mode: WaitMode, states: &[TaskState]) -> bool {
    match mode {
        WaitMode::All => states.iter().all(|state| state.status.is_final()),
        WaitMode::Any => states.iter().any(|state| state.status.is_final()),
    }
}

/// Waits until something happened in these trees that a wait cares about.
async fn next_change(hints: &mut HintStream, roots: &HashSet<TaskId>) {
    let matter = EntryKinds::from_kinds([
        EntryKind::Asked,
        EntryKind::Answered,
        EntryKind::Finished,
        EntryKind::StopRequested,
    ]);
    loop {
        match hints.next().await {
            Some(Hint::Task { root, kinds, .. }) if roots.contains(&root) && kinds.intersects(matter) => {
                return;
            }
            Some(Hint::Task { .. }) => {}
            Some(Hint::Lagged) => return,
            None => std::future::pending().await,
        }
    }
}
