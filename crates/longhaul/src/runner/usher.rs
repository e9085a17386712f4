//! Hooks at their moments: before and after calls, when a task begins and ends, when a person is asked.
//!
//! What the model sees because of a hook is written down before it counts: arguments that were changed with `Called`,
//! what was said to a result with `Returned`, what was said at the beginning with `Nudged`. So a task that is carried
//! on has the same conversation, and no hook is heard a second time about what is written down.

use std::path::PathBuf;
use std::sync::Arc;

use super::leave::Door;
use super::settle::HOOK_HURRY;
use super::{Halt, Run, append, heard, overdue, rights_of};
use crate::agent::Agent;
use crate::entry::{Entry, HookFailure, Nudge, Outcome};
use crate::hook::{Counsel, Hooks, Moment, Occasion};
use crate::id::TaskId;
use crate::message::Call;
use crate::message::envelope::escape;
use crate::permission::{Permissions, Rights, arguments};
use crate::store::{Batch, Fence, Store};
use crate::tool::{CallContext, ProcessSlots, ToolError, ToolOutput};
use crate::turn::Act;

/// How much of what hooks say the model is told, and how much of an output they are told, in bytes.
const TOLD: usize = 16 * 1024;

/// Whoever hears the hooks about one call.
pub(super) struct Usher {
    hooks: Arc<Hooks>,
    occasion: Occasion,
    dir: Option<PathBuf>,
    processes: ProcessSlots,
    /// The rights of the task where a hook allows what the agent itself would have to ask for.
    pub(super) eased: Option<Arc<Rights>>,
    /// Whether the person who started the tree has approved of everything that is not denied.
    pub(super) approved: bool,
}

impl Usher {
    /// What the hooks say to a call that is to be made.
    pub(super) async fn before(&self, call: &Call) -> Counsel {
        let which = self.hooks.before(&call.tool);
        if which.is_empty() {
            return Counsel::default();
        }
        let occasion = self.about(Moment::PreToolUse, call);
        let _slot = self.processes.take(|_| ()).await;
        self.hooks.run(&which, self.dir.as_deref(), &occasion).await
    }

    /// What the hooks say to what a call has returned; the model is told.
    pub(super) async fn after(
        &self,
        call: &Call,
        result: &Result<ToolOutput, ToolError>,
        context: &CallContext,
        door: &Door,
    ) -> Vec<String> {
        let which = self.hooks.after(&call.tool);
        if which.is_empty() {
            return Vec::new();
        }
        let mut occasion = self.about(Moment::PostToolUse, call);
        let (text, is_error) = match result {
            Ok(output) => (output.text.clone(), output.is_error),
            Err(error) => (error.to_string(), true),
        };
        (occasion.tool_response, occasion.tool_error) = (Some(text), Some(is_error));
        let _slot = self.processes.take(|_| ()).await;
        let mut counsel = self.hooks.run(&which, self.dir.as_deref(), &occasion).await;
        door.report(&mut counsel);
        counsel.notes.iter().for_each(|note| context.progress(note.clone()));
        // The call has been made: whoever would not have it can only say so.
        counsel.blocked.into_iter().filter(|why| !why.is_empty()).chain(counsel.context).collect()
    }

    fn about(&self, moment: Moment, call: &Call) -> Occasion {
        let mut occasion = self.occasion.clone();
        occasion.hook_event_name = moment;
        occasion.tool_name = Some(call.tool.clone());
        occasion.tool_input = Some(arguments(&call.arguments));
        occasion
    }
}

/// What hooks said, as the model reads it: below something, or as a message.
pub(super) fn told(moment: Moment, words: &[String]) -> Option<String> {
    let words: Vec<&str> = words.iter().map(|text| text.trim()).filter(|text| !text.is_empty()).collect();
    if words.is_empty() {
        return None;
    }
    let all = words.join("\n");
    let shown = &all[..all.floor_char_boundary(TOLD)];
    let more = if shown.len() < all.len() { "\n[… cut here]" } else { "" };
    let name = moment.as_str();
    Some(format!("<hook event=\"{name}\">\n{}{more}\n</hook>", escape(shown)))
}

/// The failures of hooks, as they are written down.
pub(super) fn failed(failures: Vec<HookFailure>) -> impl Iterator<Item = Entry> {
    failures.into_iter().map(|failure| Entry::HookFailed(Box::new(failure)))
}

/// Writes the failures of hooks down that nothing waits for. The task may have ended.
async fn write_failures(store: &dyn Store, task: TaskId, failures: Vec<HookFailure>) {
    if failures.is_empty() {
        return;
    }
    let batch = Batch::one(task, Fence::Anyone, failed(failures).collect());
    if let Err(error) = append(store, batch).await {
        tracing::warn!(%task, %error, "the failure of a hook could not be written down");
    }
}

impl Run {
    /// Whoever hears the hooks about a call, if there are any for its tool.
    pub(super) fn usher(&self, act: &Act) -> Option<Usher> {
        let hooks = &self.agent.hooks;
        let tool = &act.call.tool;
        let before = !hooks.before(tool).is_empty();
        if !before && hooks.after(tool).is_empty() {
            return None;
        }
        let mut occasion = self.occasion(Moment::PreToolUse, &self.agent);
        occasion.tool_use_id = Some(act.id.to_string());
        let dir = self.order.working_dir.clone();
        let eased = if before { self.eased() } else { None };
        let (approved, processes) = (self.order.approved, self.around.processes.clone());
        Some(Usher { hooks: hooks.clone(), occasion, dir, processes, eased, approved })
    }

    /// Whether a call is heard about before it is made.
    pub(super) fn is_heard_about(&self, tool: &str) -> bool {
        !self.agent.hooks.before(tool).is_empty()
    }

    /// Whether hooks have heard, or will hear, of a call of this tool.
    pub(super) fn is_hooked(&self, tool: &str) -> bool {
        self.is_heard_about(tool) || !self.agent.hooks.after(tool).is_empty()
    }

    /// The rights with nothing that the agent itself has to ask for. What it must not do stays so, and what those
    /// above it have to ask for is still asked.
    fn eased(&self) -> Option<Arc<Rights>> {
        let above = rights_of(&self.team, &self.above, None, &self.order);
        let Some(own) = self.team.permissions_of(&self.agent.name) else { return above };
        let all = Permissions::parse(["*"], [""; 0], [""; 0]).unwrap_or_default();
        let lenient = Arc::new(Permissions { deny: own.deny.clone(), ..all });
        let levels = above.iter().flat_map(|rights| &rights.levels).cloned().chain([lenient]).collect();
        Some(Arc::new(Rights { levels, approved: self.order.approved }))
    }

    fn occasion(&self, moment: Moment, agent: &Agent) -> Occasion {
        let dir = self.order.working_dir.as_deref();
        Occasion::new(moment, self.head.id, self.head.root, &agent.name, dir)
    }

    /// The agent that the task was given to: its hooks hear of the beginning and the end.
    fn first_agent(&self) -> Arc<Agent> {
        let name = self.order.agent.as_ref().unwrap_or(self.team.root());
        self.team.agent(name).unwrap_or(&self.agent).clone()
    }

    /// Whether hooks are to be heard about the beginning of the task.
    pub(super) fn is_to_be_greeted(&self) -> bool {
        self.turn.is_untouched() && {
            let hooks = &self.first_agent().hooks;
            !hooks.task_start.is_empty() || (self.is_session() && !hooks.session_start.is_empty())
        }
    }

    /// Whether a person started it.
    fn is_session(&self) -> bool {
        self.head.parent.is_none()
    }

    /// Hears the hooks about the beginning of the task, and writes that down.
    pub(super) async fn greet(&mut self) -> Result<(), Halt> {
        let agent = self.first_agent();
        let hooks = agent.hooks.clone();
        let session = if self.is_session() { &hooks.session_start[..] } else { &[] };
        let (mut parts, mut entries) = (Vec::new(), Vec::new());
        for (moment, which) in [(Moment::SessionStart, session), (Moment::TaskStart, &hooks.task_start[..])] {
            let which: Vec<_> = which.iter().collect();
            if which.is_empty() {
                continue;
            }
            let mut occasion = self.occasion(moment, &agent);
            occasion.source = Some(if self.head.continues.is_some() { "resume" } else { "startup" });
            let dir = self.order.working_dir.clone();
            self.be_sure().await?;
            let counsel = self.unless_halted(hooks.run(&which, dir.as_deref(), &occasion)).await?;
            self.log(moment, &counsel);
            entries.extend(failed(counsel.failures));
            parts.extend(told(moment, &counsel.context));
        }
        entries.push(Entry::Nudged { why: Nudge::Begun, text: parts.join("\n\n").into() });
        self.note(entries).await
    }

    /// Waits for hooks or toolsets, unless the run is halted: then they are dropped, and ended by that.
    pub(super) async fn unless_halted<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Halt> {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Ok(done),
                () = heard(&self.bell, self.look_at, &self.tenure) => {
                    self.catch_up().await?;
                    if self.head.stop.is_some() {
                        return Err(Halt::Stop);
                    }
                }
                () = self.around.drain.cancelled() => return Err(Halt::Drain),
                () = overdue(self.watch.deadline()) => return Err(self.too_late()),
            }
        }
    }

    /// Notes how the task ends, for the hooks that hear of it when it has.
    pub(super) fn remember(&mut self, outcome: &Outcome) {
        let hooks = &self.first_agent().hooks;
        if hooks.task_end.is_empty() && hooks.session_end.is_empty() {
            return;
        }
        let reason = match outcome {
            Outcome::Completed { .. } => "completed",
            Outcome::Failed { .. } => "failed",
            Outcome::Cancelled { .. } => "cancelled",
        };
        let output = outcome.output();
        let mut occasion = self.occasion(Moment::TaskEnd, &self.first_agent());
        occasion.reason = Some(reason.to_owned());
        occasion.error = outcome.error();
        occasion.output = Some(output[..output.floor_char_boundary(TOLD)].to_owned());
        self.farewell = Some(Box::new(occasion));
    }

    /// Has the hooks hear that the task has ended. It is written down by now, and nothing waits for them but the end of
    /// this run.
    pub(super) async fn take_leave(&mut self) {
        if let Some(mut notices) = self.notices.take() {
            if self.head.stop.is_some() {
                notices.abort_all();
            }
            // When this is dropped, they are ended.
            let heard = async { while notices.join_next().await.is_some() {} };
            self.patiently(HOOK_HURRY, heard).await;
        }
        let Some(mut occasion) = self.farewell.take() else { return };
        self.seat.park();
        let hooks = self.first_agent().hooks.clone();
        let dir = match &self.worktree {
            Some(worktree) if !worktree.is_kept().await => Some(worktree.origin.clone()),
            _ => self.order.working_dir.clone(),
        };
        occasion.cwd = dir.as_ref().map(|dir| dir.display().to_string()).unwrap_or_default();
        let session = if self.is_session() { &hooks.session_end[..] } else { &[] };
        for (moment, which) in [(Moment::TaskEnd, &hooks.task_end[..]), (Moment::SessionEnd, session)] {
            let which: Vec<_> = which.iter().collect();
            if which.is_empty() {
                continue;
            }
            occasion.hook_event_name = moment;
            match self.patiently(HOOK_HURRY, hooks.run(&which, dir.as_deref(), &occasion)).await {
                Some(counsel) => {
                    self.log(moment, &counsel);
                    write_failures(&*self.around.store, self.head.id, counsel.failures).await;
                }
                None => {
                    let task = self.head.id;
                    tracing::warn!(%task, ?moment, "hooks took too long for a task that was stopped, and were ended");
                }
            }
        }
    }

    /// Has the hooks hear that a person is asked, or that a session waits. Nothing waits for them.
    pub(super) fn announce(&mut self, question: Option<String>) {
        if self.agent.hooks.on_user_input.is_empty() {
            return;
        }
        let mut occasion = self.occasion(Moment::OnUserInput, &self.agent);
        occasion.question = question;
        let (hooks, dir) = (self.agent.hooks.clone(), self.order.working_dir.clone());
        let notices = self.notices.get_or_insert_with(Box::default);
        // Those that are done.
        while notices.try_join_next().is_some() {}
        let tenure = self.tenure.clone();
        let (store, task) = (self.around.store.clone(), self.head.id);
        notices.spawn(async move {
            tenure.sure().await;
            let which: Vec<_> = hooks.on_user_input.iter().collect();
            let counsel = hooks.run(&which, dir.as_deref(), &occasion).await;
            write_failures(&*store, task, counsel.failures).await;
        });
    }

    /// What has no other place: what hooks wanted people to know, or to be not done, where nothing can be prevented.
    fn log(&self, moment: Moment, counsel: &Counsel) {
        for note in counsel.blocked.iter().chain(&counsel.notes) {
            tracing::warn!(task = %self.head.id, ?moment, note, "a hook says");
        }
    }
}
