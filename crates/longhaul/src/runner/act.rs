//! Running the tool calls of a reply: at once, their results in order.

use std::borrow::Cow;
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::gear::{Gear, OpenTool};
use super::leave::{Asking, Barred, Door, Plea};
use super::worktime::rung;
use super::{Halt, Run, heard, overdue, usher};
use crate::entry::{Entry, Failure, FailureKind, Returned, Voice, Wait};
use crate::hook::Moment;
use crate::id::{CallId, TaskId};
use crate::message::envelope::escape_tags;
use crate::permission::Verdict;
use crate::tool::{CallContext, Line, Scratch, Signal, ToolError, ToolOutput};
use crate::toolset::cut_output;
use crate::turn::Act;

/// How long tools may take to give up what they are doing.
const GRACE: Duration = Duration::from_secs(3);

/// What came of a call; `None` if it was given up while it only waited, to be made again later.
struct Came {
    call: CallId,
    result: Option<Result<ToolOutput, ToolError>>,
    /// What hooks want the model to know with it.
    told: Vec<String>,
    /// Whether nobody was there who could have allowed it.
    unattended: bool,
}

impl Came {
    fn new(call: CallId, result: Option<Result<ToolOutput, ToolError>>) -> Came {
        Came { call, result, told: Vec::new(), unattended: false }
    }
}

impl Run {
    /// Runs these calls to their end, unless the run is halted.
    pub(super) async fn run_calls(&mut self, acts: Vec<Act>) -> Result<(), Halt> {
        self.hold_looks(&acts).await?;
        let (line, mut signals) = Line::new();
        let (pleas, mut pleading) = tokio::sync::mpsc::unbounded_channel();
        let stop = CancellationToken::new();
        let names: HashMap<CallId, String> = acts.iter().map(|act| (act.id, act.call.tool.clone())).collect();
        let mut now = Now {
            give_up: acts.iter().map(|act| (act.id, CancellationToken::new())).collect(),
            hurry: acts.iter().map(|act| (act.id, CancellationToken::new())).collect(),
            ..Now::default()
        };
        let asks_first = |act: &Act| {
            let begun = act.begun || act.interrupted || act.cut;
            !begun && !self.begins_at_once(&act.call)
        };
        let acts = acts.into_iter().map(|act| {
            let asks = asks_first(&act);
            (act, asks)
        });
        let acts: Vec<(Act, bool)> = acts.collect();
        self.note_begun(acts.iter().filter(|(_, asks)| !asks).map(|(act, _)| act)).await?;
        let start = |(act, asks_first): (Act, bool)| {
            let give_up = now.give_up.get(&act.id).cloned().unwrap_or_default();
            let door = Door {
                rights: self.rights.clone(),
                directory: self.order.working_dir.clone(),
                pleas: pleas.clone(),
                stop: stop.clone(),
                give_up,
            };
            let hurry = now.hurry.get(&act.id).cloned().unwrap_or_default();
            self.start(act, &line, door, hurry, asks_first)
        };
        let mut running: FuturesUnordered<_> = acts.into_iter().map(start).collect();
        let mut halt: Option<(Halt, Instant)> = None;
        // A person said so before the process died that was in these calls.
        now.hurry(&self.head.backgrounded);

        while !running.is_empty() {
            let until = halt.as_ref().map(|(_, until)| *until);
            let wants_seat = now.asking.beginning().next().is_some() && self.seat.is_parked();
            // In this order: a tool that talks without end must not drown a stop.
            tokio::select! {
                biased;
                // Whoever ignores the stop for too long is dropped, which ends what it has started.
                () = overdue(until), if until.is_some() => break,
                () = heard(&self.bell, self.look_at, &self.tenure) => {
                    self.catch_up().await?;
                    now.hurry(&self.head.backgrounded);
                    if self.head.stop.is_some() && halt.is_none() {
                        halt = Some((Halt::Stop, Instant::now() + GRACE));
                        stop.cancel();
                    }
                }
                () = self.around.drain.cancelled(), if !now.draining => now.draining = true,
                () = overdue(self.watch.deadline()), if halt.is_none() => {
                    halt = Some((self.too_late(), Instant::now() + GRACE));
                    stop.cancel();
                }
                () = overdue(now.asking.due()) => self.close_overdue(&now.asking).await?,
                () = overdue(now.progress.due) => self.note(now.progress.take()).await?,
                Some(came) = running.next() => {
                    let mut all = vec![came];
                    while let Some(Some(more)) = running.next().now_or_never() {
                        all.push(more);
                    }
                    // What a call said before it returned, and what hooks did to it, comes before its result.
                    while let Ok(signal) = signals.try_recv() {
                        self.hear(signal, &mut now).await?;
                    }
                    while let Ok(plea) = pleading.try_recv() {
                        self.hear_plea(plea, &mut now).await?;
                    }
                    if now.progress.due.is_some() {
                        self.note(now.progress.take()).await?;
                    }
                    all.iter().for_each(|came| drop(now.waiting.remove(&came.call)));
                    let last = running.is_empty() && halt.is_none();
                    if let Some(fatal) = self.note_returned(all, &names, last).await? {
                        halt = halt.or(Some((Halt::Fail(fatal), Instant::now() + GRACE)));
                        stop.cancel();
                    }
                }
                Some(signal) = signals.recv() => self.hear(signal, &mut now).await?,
                Some(plea) = pleading.recv() => self.hear_plea(plea, &mut now).await?,
                () = self.seat.sit(), if wants_seat => {}
                () = rung(self.people.as_ref()) => {}
            }
            self.deliver(&mut now.asking);
            if halt.is_some() {
                // Nobody's answer is waited for any more.
                now.asking.clear();
            } else if now.draining {
                now.give_up_waiting();
            } else if now.asking.beginning().next().is_some() && !self.seat.is_parked() {
                self.begin_calls(&mut now.asking).await?;
            }
            if !running.is_empty() && now.idle() == running.len() {
                self.wait_for(&now).await?;
            }
            // What begins as soon as there is a seat, is not worked on either.
            let queued = if self.seat.is_parked() { now.asking.beginning().count() } else { 0 };
            if halt.is_some() || now.idle() + queued < running.len() {
                self.count(true);
            } else if now.waiting.is_empty() {
                self.count(running.is_empty());
            } else {
                self.count_unless_people_are_waited_for(&now.tasks()).await?;
            }
        }
        self.count(true);
        match halt {
            Some((halt, _)) => Err(halt),
            None if now.give_up.values().any(CancellationToken::is_cancelled) => Err(Halt::Drain),
            None => Ok(()),
        }
    }

    /// Says of calls that were not begun with their reply that they begin now.
    async fn note_begun<'a>(&mut self, acts: impl Iterator<Item = &'a Act>) -> Result<(), Halt> {
        let fresh = acts.filter(|act| !act.begun).map(|act| Entry::Called {
            call: act.id,
            tool: act.call.tool.as_str().into(),
            arguments: None,
        });
        let fresh: Vec<_> = fresh.collect();
        if fresh.is_empty() { Ok(()) } else { self.note(fresh).await }
    }

    fn start(
        &self,
        mut act: Act,
        line: &Line,
        door: Door,
        hurry: CancellationToken,
        asks_first: bool,
    ) -> impl Future<Output = Came> + use<> {
        let context = CallContext {
            scratch: Scratch::new(self.around.store.clone(), &self.caller()),
            caller: self.caller(),
            call: act.id,
            desk: self.around.desk.clone(),
            cancel: door.stop.clone(),
            hurry,
            working_dir: self.order.working_dir.clone(),
            model: self.model().unwrap_or_else(|_| self.agent.model.clone()),
            processes: self.around.processes.clone(),
            line: line.clone(),
        };
        let gear = self.gear.clone();
        let judged_by = self.judged_by.clone().filter(|_| act.begun && !act.interrupted);
        let usher = self.usher(&act).map(Box::new);
        let tenure = self.tenure.clone();
        async move {
            let id = act.id;
            let returned = |result| Came::new(id, Some(result));
            let name = &act.call.tool;
            let Some(open) = gear.tool(name) else {
                let text = format!("There is no tool '{name}'. Your tools are: {}.", gear.names());
                return returned(Err(ToolError::Retry(text)));
            };
            let OpenTool { tool, manner, changed, identity } = open;
            // It began as a call of the tool that the model saw, and nobody was asked about this one.
            let saw = |had: Arc<Gear>| had.tool(name).is_some_and(|had| had.identity.covers(identity));
            if judged_by.is_some_and(|had| !saw(had)) {
                let text = format!(
                    "This call was not made: '{name}' is another tool now than when you called it. Look at its \
                     description and arguments before you call it again."
                );
                return returned(Err(ToolError::Retry(text)));
            }
            if act.cut {
                let text = "This call was not made: your reply ran into its length limit in the middle of it. Make \
                            it again, with less text before it or shorter arguments.";
                return returned(Err(ToolError::Retry(text.to_owned())));
            }
            // Nor is one made again whose tool is another by now.
            if act.interrupted && (!manner.repeatable || changed.is_some()) {
                let text = "This call was interrupted: the program was stopped while it ran. Whether it had an \
                            effect is unknown. Find out before you make it again.";
                return returned(Err(ToolError::Failed(text.to_owned())));
            }
            // Rules, hooks and people see the call as the tool will: it is called with nothing else.
            match tool.canonical(&act.call.arguments) {
                Ok(arguments) => act.call.arguments = arguments,
                Err(error) => return Came::new(act.id, Some(Err(error))),
            }
            let mut told = Vec::new();
            if asks_first {
                tenure.sure().await;
                match Box::pin(door.pass(&mut act, open, usher.as_deref())).await {
                    Ok(counsel) => {
                        counsel.notes.into_iter().for_each(|note| context.progress(note));
                        told.extend(usher::told(Moment::PreToolUse, &counsel.context));
                    }
                    Err(Barred::Refused(error)) => return Came::new(act.id, Some(Err(error))),
                    Err(Barred::Nobody(error)) => {
                        return Came { unattended: true, ..Came::new(act.id, Some(Err(error))) };
                    }
                    Err(Barred::GivenUp) => return Came::new(act.id, None),
                }
            } else if act.interrupted
                && let Verdict::Refuse(why) = door.verdict(&act.call, open)
            {
                return Came::new(act.id, Some(Err(ToolError::Failed(why))));
            }
            if let Some(changed) = changed
                && !door.asks()
                && !manner.is_harmless()
            {
                context.progress(format!("{} is called though {changed}", act.call.tool));
            }
            // The last look before it happens: a process that was stopped here goes on here.
            tenure.sure().await;
            let call =
                AssertUnwindSafe(async { tool.call(&act.call.arguments, &context).await }).catch_unwind();
            let result = tokio::select! {
                result = call => result,
                () = door.give_up.cancelled(), if manner.repeatable => return Came::new(act.id, None),
            };
            let result = result.unwrap_or_else(|panic| {
                Err(ToolError::Failed(format!("the tool failed: {}", said(&*panic))))
            });
            if let Some(usher) = &usher {
                // Of a task that is stopped nobody hears any more.
                tenure.sure().await;
                let heard = tokio::select! {
                    biased;
                    () = door.stop.cancelled() => Vec::new(),
                    heard = Box::pin(usher.after(&act.call, &result, &context, &door)) => heard,
                };
                told.extend(usher::told(Moment::PostToolUse, &heard));
            }
            Came { told, ..Came::new(act.id, Some(result)) }
        }
    }

    /// All calls that still run only wait: others may have the seat.
    async fn wait_for(&mut self, now: &Now) -> Result<(), Halt> {
        self.seat.park();
        let for_tasks = || Entry::Waiting { on: Wait::Tasks(now.tasks()), until: None };
        let person = now.asking.calls().next().and_then(|_| self.wait_for_person());
        let entry = person.unwrap_or_else(for_tasks);
        match (&self.head.waiting, &entry) {
            (Some(waiting), Entry::Waiting { on, .. }) if waiting.on == *on => Ok(()),
            _ => self.note(vec![entry]).await,
        }
    }

    /// Hears what a call tells while it runs.
    async fn hear(&mut self, signal: Signal, now: &mut Now) -> Result<(), Halt> {
        match signal {
            Signal::Progress(text) => now.progress.hear(text),
            Signal::Waits { call, tasks } => drop(now.waiting.insert(call, tasks)),
            Signal::Works { call } => drop(now.waiting.remove(&call)),
            Signal::Asks { call, question, reply } => {
                self.ask_words(&mut now.asking, call, question, reply).await?;
            }
            Signal::WantsModel { tokens, reply } => {
                let may = match self
                    .ledger
                    .check_for(&self.head, self.watch.total(), &*self.around.store, tokens)
                    .await
                {
                    Ok(()) => Ok(()),
                    Err(Halt::Fail(failure)) => Err(failure.to_string()),
                    Err(halt) => return Err(halt),
                };
                let _ = reply.send(may);
            }
            Signal::Sampled { sampled, noted } => {
                self.note(vec![Entry::Sampled(sampled)]).await?;
                let _ = noted.send(());
            }
        }
        Ok(())
    }

    /// Does what a call wants before it begins.
    async fn hear_plea(&mut self, plea: Plea, now: &mut Now) -> Result<(), Halt> {
        match plea {
            // Nobody is asked any more: it is when the task is carried on.
            Plea::Leave { call, .. } if now.draining => now.give_up(call),
            Plea::Leave { call, question, reply } => {
                self.ask_leave(&mut now.asking, call, question, reply).await?;
            }
            Plea::Begins { call, tool, arguments, go } => now.asking.begins(call, tool, arguments, go),
            Plea::HooksFailed(failures) => self.note(usher::failed(failures).collect()).await?,
        }
        Ok(())
    }

    /// Writes results down; the last ones of a reply only soon, if the calls can be made again. Answers with a failure if
    /// one of them ends the run.
    async fn note_returned(
        &mut self,
        came: Vec<Came>,
        names: &HashMap<CallId, String>,
        last: bool,
    ) -> Result<Option<Failure>, Halt> {
        let mut entries = Vec::with_capacity(came.len());
        let mut fatal = None;
        for Came { call, result, told, unattended } in came {
            let Some(result) = result else { continue };
            if unattended {
                let tool = names.get(&call).map_or("", String::as_str).into();
                entries.push(Entry::Denied { call, tool });
            }
            if let Err(ToolError::Fatal(why)) = &result {
                let tool = names.get(&call).map_or("a tool", String::as_str);
                fatal = Some(Failure::new(FailureKind::Tool, format!("{tool}: {why}")));
            }
            let output =
                result.unwrap_or_else(|error| ToolOutput { is_error: true, ..error.to_string().into() });
            let mut returned = self.bounded(call, output).await?;
            // What a tool says must not look like what a hook says to it.
            if names.get(&call).is_some_and(|tool| self.is_hooked(tool))
                && let Cow::Owned(escaped) = escape_tags(&returned.output, &["hook"])
            {
                returned.output = escaped.into();
            }
            if !told.is_empty() {
                returned.output = format!("{}\n\n{}", returned.output, told.join("\n")).into();
            }
            entries.push(Entry::Returned(Box::new(returned)));
        }
        let repeatable = |entry: &Entry| match entry {
            Entry::Returned(returned) => {
                let tool = names.get(&returned.call).map_or("", String::as_str);
                let manner = self.gear.tool(tool).map(|tool| tool.manner);
                // One that changes who goes on, or which letters are shown, is written down first.
                let plain =
                    returned.collected.is_empty() && returned.handoff.is_none() && returned.model.is_none();
                // So is one that hooks have heard of: they would hear of it again.
                plain && !self.is_hooked(tool) && manner.is_some_and(|manner| manner.repeatable)
            }
            _ => false,
        };
        if last && fatal.is_none() && entries.iter().all(repeatable) {
            self.owe(entries);
        } else if !entries.is_empty() {
            self.note(entries).await?;
        }
        Ok(fatal)
    }

    /// What the model sees of an output; one that is too long is kept whole in the store.
    async fn bounded(&self, call: CallId, output: ToolOutput) -> Result<Returned, Halt> {
        let ToolOutput { text, is_error, collected, handoff, model } = output;
        let Some(part) = cut_output(&text, self.habits.output_cap) else {
            return Ok(Returned {
                call,
                output: text.into(),
                is_error,
                whole: None,
                collected,
                handoff,
                model,
            });
        };
        let whole = Some(self.around.store.keep(text.into_bytes()).await?);
        // What is not shown whole is not collected.
        Ok(Returned { call, output: part.into(), is_error, whole, collected: Vec::new(), handoff, model })
    }
}

/// How the calls that run stand now.
#[derive(Default)]
struct Now {
    /// Those that wait for other tasks, and for which.
    waiting: HashMap<CallId, Vec<TaskId>>,
    /// Those that wait for a person, or to begin.
    asking: Asking,
    progress: Progress,
    give_up: HashMap<CallId, CancellationToken>,
    /// Fires for those that a person does not want to be waited for.
    hurry: HashMap<CallId, CancellationToken>,
    draining: bool,
}

impl Now {
    /// Tells these calls not to wait for other tasks.
    fn hurry(&self, calls: &[CallId]) {
        calls.iter().filter_map(|call| self.hurry.get(call)).for_each(CancellationToken::cancel);
    }

    /// The tasks that calls wait for.
    fn tasks(&self) -> Vec<TaskId> {
        let mut tasks: Vec<TaskId> = self.waiting.values().flatten().copied().collect();
        tasks.sort();
        tasks.dedup();
        tasks
    }

    /// How many calls do nothing but wait.
    fn idle(&self) -> usize {
        let mut asking: Vec<CallId> =
            self.asking.calls().filter(|call| !self.waiting.contains_key(call)).collect();
        asking.sort();
        asking.dedup();
        self.waiting.len() + asking.len()
    }

    /// What only waits is given up, to be made again later.
    fn give_up_waiting(&self) {
        let asking = self.asking.calls().chain(self.asking.beginning());
        self.waiting.keys().copied().chain(asking).for_each(|call| self.give_up(call));
    }

    fn give_up(&self, call: CallId) {
        self.give_up.get(&call).into_iter().for_each(CancellationToken::cancel);
    }
}

/// How far tools say that they are: only the last word of a moment counts.
#[derive(Default)]
struct Progress {
    last: Option<String>,
    due: Option<Instant>,
}

impl Progress {
    const MOMENT: Duration = Duration::from_millis(50);

    fn hear(&mut self, text: String) {
        self.last = Some(text);
        self.due = self.due.or_else(|| Some(Instant::now() + Self::MOMENT));
    }

    fn take(&mut self) -> Vec<Entry> {
        self.due = None;
        self.last.take().map(|text| Entry::Said { voice: Voice::Progress, text }).into_iter().collect()
    }
}

/// What a panic said.
pub(crate) fn said(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked")
}
