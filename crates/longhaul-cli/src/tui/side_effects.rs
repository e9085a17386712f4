//! Runs the effects that the model requests.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use longhaul::approval::AskedQuestion;
use longhaul::entry::Entry;
use longhaul::id::{CallId, Seq};
use longhaul::store::{Store, TaskFilter};
use longhaul::task::TaskState;
use longhaul::teamfile::TeamBundle;
use longhaul::{Longhaul, LonghaulError, Snapshot, Status, TaskId};

use super::model::{ActionReport, TuiEffect, TuiMessage};
use super::running::{found, stretch};
use super::tree::is_interrupted;
use crate::args::TuiArgs;
use crate::background::{self, BackgroundOptions};
use crate::data_dir::DataDir;
use crate::exit::CliError;
use crate::trust::TeamFileTrust;
use crate::view::pluralize;

/// How many tasks to show, besides all open ones.
const NEWEST: usize = 2_000;
/// How long a notice is shown.
const NOTICE_DURATION: Duration = Duration::from_secs(8);
/// How many entries to read to find the reply that made a call. Most are near; progress messages can move
/// them further back.
const CALL_IS_WITHIN: [usize; 2] = [32, 1_000];
/// The key of the pinned tasks in the store.
const PINS: &str = "tui/pins";

/// Runs effects.
#[derive(Clone)]
pub(super) struct EffectRunner {
    pub(super) longhaul: Longhaul,
    pub(super) data_dir: DataDir,
    pub(super) args: Arc<TuiArgs>,
}

impl EffectRunner {
    pub(super) fn store(&self) -> &Arc<dyn Store> {
        self.longhaul.store()
    }

    /// Loads all tasks to show.
    pub(super) async fn load_all(self) -> Result<TuiMessage, CliError> {
        let newest = TaskFilter::default().limit(Some(NEWEST));
        let mut states = self.longhaul.list(newest).await?;
        if states.len() == NEWEST {
            // Open tasks are shown however old they are.
            let known: std::collections::HashSet<TaskId> = states.iter().map(|state| state.id).collect();
            let mut older = self.longhaul.list(TaskFilter::default().live()).await?;
            older.retain(|state| !known.contains(&state.id));
            older.append(&mut states);
            states = older;
        }
        let stored = self.store().stored_value(PINS).await?;
        Ok(TuiMessage::Loaded(states, serde_json::from_slice(&stored.bytes).unwrap_or_default()))
    }

    /// Reads the state of these tasks.
    pub(super) async fn read_tasks(self, ids: Vec<TaskId>) -> Result<TuiMessage, CliError> {
        let mut states = Vec::with_capacity(ids.len());
        for id in ids {
            states.extend(self.store().task_state(id).await?);
        }
        Ok(TuiMessage::TasksChanged(states))
    }

    /// Reads the state of all open tasks: hints may be lost, and a process that dies sends none.
    pub(super) async fn read_open_tasks(self) -> Result<TuiMessage, CliError> {
        Ok(TuiMessage::TasksChanged(self.longhaul.list(TaskFilter::default().live()).await?))
    }

    /// Runs an effect. Fails only if the store cannot be read; other errors become notices.
    pub(super) async fn run_effect(self, effect: TuiEffect) -> Result<TuiMessage, CliError> {
        let done = match effect {
            TuiEffect::ReadJournal { task, after, limit, order } => {
                return self.read_journal(task, after, limit, order).await;
            }
            TuiEffect::ExpireNotice(number) => {
                tokio::time::sleep(NOTICE_DURATION).await;
                return Ok(TuiMessage::NoticeExpired(number));
            }
            TuiEffect::Send { to, text } => self.send(to, text).await,
            TuiEffect::Answer { task, question, words } => self.answer(task, question, words).await,
            TuiEffect::Stop(task) => self.stop(task).await,
            TuiEffect::StopAll => self.stop_all().await,
            TuiEffect::Resume(root) => self.resume(root).await,
            TuiEffect::Retry(task) => self.retry(task).await,
            TuiEffect::ReadQuestions(task) => return self.read_questions(task).await,
            TuiEffect::ReadCalls(wanted) => return self.calls(wanted).await,
            TuiEffect::Run(prompt) => self.start_run(prompt).await,
            TuiEffect::SavePins(pinned) => match self.save_pins(&pinned).await {
                Ok(()) => return Ok(TuiMessage::Tick),
                Err(error) => Err(error),
            },
            TuiEffect::Redraw | TuiEffect::Suspend | TuiEffect::Quit { .. } => return Ok(TuiMessage::Tick),
        };
        Ok(match done {
            Ok(report) => TuiMessage::ActionDone(report),
            Err(error) => TuiMessage::ActionFailed(match error.hint_text() {
                Some(hint) => format!("{}; {hint}", error.message()),
                None => error.message().to_owned(),
            }),
        })
    }

    async fn read_journal(
        self,
        task: TaskId,
        after: Seq,
        limit: usize,
        order: bool,
    ) -> Result<TuiMessage, CliError> {
        let store = self.store();
        // Report a journal that cannot be read; others may be readable.
        let records = match store.read(task, after, limit).await {
            Ok(records) => records,
            Err(error) => return Ok(TuiMessage::ActionFailed(format!("{task} cannot be read: {error}"))),
        };
        let first = match (order, records.first()) {
            (false, _) => None,
            (true, Some(first)) if first.seq == Seq(1) => Some(first.clone()),
            (true, _) => store.read(task, Seq(0), 1).await?.pop(),
        };
        if order && first.is_none() {
            return Ok(TuiMessage::TaskGone(task));
        }
        if order {
            // The task is open now, so its end counts as read.
            let _ = self.longhaul.mark_read(task).await;
        }
        let order = match first.map(|first| first.entry) {
            Some(Entry::Submitted(submitted)) => {
                let team = crate::team::name(&**store, &submitted.team).await;
                Some((Box::new(submitted.order), team))
            }
            _ => None,
        };
        Ok(TuiMessage::Records { task, after, limit, records, order })
    }

    /// Reads the open questions of a task, in full.
    async fn read_questions(self, task: TaskId) -> Result<TuiMessage, CliError> {
        // Ignore read errors here: opening the task reports them.
        let Ok(Snapshot { state, questions, .. }) = self.longhaul.snapshot(task).await else {
            return Ok(TuiMessage::Questions(Vec::new()));
        };
        let until = |id| state.asked.iter().find(|asked| asked.question == id).and_then(|asked| asked.until);
        let asked = |(id, asks)| AskedQuestion { task, id, asks, until: until(id) };
        Ok(TuiMessage::Questions(questions.into_iter().map(asked).collect()))
    }

    async fn send(&self, to: TaskId, text: String) -> Result<ActionReport, CliError> {
        let sent = self.longhaul.send(to, text).await?;
        let state = self.store().task_state(sent.to).await?;
        if !sent.continued {
            let interrupted = state.is_some_and(|state| is_interrupted(&state));
            let more = if interrupted { "; not running: r resumes it" } else { "" };
            return Ok(report_of(format!("sent to {to}{more}")));
        }
        let root = state.map_or(sent.to, |state| state.root);
        self.ensure_running(root).await?;
        Ok(ActionReport {
            text: format!("{to} had ended: it is continued by {}", sent.to),
            select: Some(sent.to),
        })
    }

    async fn answer(
        &self,
        task: TaskId,
        question: longhaul::id::QuestionId,
        words: String,
    ) -> Result<ActionReport, CliError> {
        let taken = self.longhaul.answer(task, Some(question), words.clone()).await?;
        let mut text = format!("answered {task}: {words}");
        if let Some(pattern) = &taken.granted {
            text = format!("{text}; allowed in the whole tree: {pattern}");
        }
        if !taken.also_answered.is_empty() {
            text = format!(
                "{text}; that answers {} too",
                pluralize(taken.also_answered.len(), "other question")
            );
        }
        Ok(report_of(text))
    }

    async fn stop(&self, task: TaskId) -> Result<ActionReport, CliError> {
        self.longhaul.stop(task).await?;
        Ok(report_of(format!("{task} is stopping")))
    }

    async fn stop_all(&self) -> Result<ActionReport, CliError> {
        let stopped = self.longhaul.stop_all().await?;
        Ok(report_of(format!("stopping {}", pluralize(stopped.len(), "task"))))
    }

    async fn resume(&self, root: TaskId) -> Result<ActionReport, CliError> {
        background::start(&self.data_dir, root, BackgroundOptions::new(&self.args.providers)).await?;
        Ok(report_of(format!("a background process runs {root}")))
    }

    /// Reads the arguments of calls: from the ends of journals, back to the replies that made the calls.
    async fn calls(self, wanted: Vec<(TaskId, Seq, Vec<CallId>)>) -> Result<TuiMessage, CliError> {
        let mut summaries = Vec::new();
        for (task, end, ids) in wanted {
            let mut calls = None;
            for entries in CALL_IS_WITHIN {
                // Ignore read errors here: opening the task reports them.
                let after = stretch(end, entries);
                let Ok(records) = self.store().read(task, after, entries).await else { break };
                calls = found(&records, &ids);
                if calls.is_some() || after.0 == 0 {
                    break;
                }
            }
            let calls = calls.unwrap_or_else(|| ids.iter().map(|id| (*id, String::new())).collect());
            summaries.extend(calls.into_iter().map(|(id, call)| (task, id, call)));
        }
        Ok(TuiMessage::Calls(summaries))
    }

    async fn retry(&self, task: TaskId) -> Result<ActionReport, CliError> {
        let again = match self.longhaul.retry(task).await {
            Err(LonghaulError::AlreadyRetried { by, .. }) => {
                return Ok(ActionReport {
                    text: format!("{task} is already being retried as {by}"),
                    select: Some(by),
                });
            }
            again => again?,
        };
        let root = self.longhaul.state(again).await?.root;
        self.ensure_running(root).await?;
        Ok(ActionReport { text: format!("{task} is retried as {again}"), select: Some(again) })
    }

    /// Starts a background process for a tree, unless one runs it.
    async fn ensure_running(&self, root: TaskId) -> Result<(), CliError> {
        if crate::tree_owner::owned_trees(&**self.store()).await?.contains(&root) {
            return Ok(());
        }
        background::start(&self.data_dir, root, BackgroundOptions::new(&self.args.providers)).await
    }

    /// Starts a run of the team, as `longhaul run --detach` does.
    async fn start_run(&self, prompt: String) -> Result<ActionReport, CliError> {
        use crate::exit::CliExitCode;
        let Some(team) = &self.args.team else { return Ok(report_of("there is no team".to_owned())) };
        let wrong = |what: String| CliError::new(CliExitCode::Failed, what);
        let bundle = TeamBundle::load(team).map_err(|error| wrong(format!("the team file {error}")))?;
        if !TeamFileTrust::new(&self.data_dir, team, &bundle).is_trusted() {
            return Err(wrong(
                "the team file does other things now than you agreed to: leave the screen and open it again"
                    .to_owned(),
            ));
        }
        let program = std::env::current_exe().map_err(|error| wrong(error.to_string()))?;
        let mut command = tokio::process::Command::new(program);
        self.data_dir.configure(&mut command);
        command.args(["run", "--detach", "--json"]);
        command.args(self.args.providers.to_flags(Path::to_path_buf));
        // Text that looks like a flag, a file or a command is still a prompt.
        let prompt = if prompt.starts_with('@') || prompt == "-" { format!(" {prompt}") } else { prompt };
        command.arg("--").arg(team).arg(prompt);
        command.stdin(Stdio::null()).kill_on_drop(true);
        let ran = command.output().await.map_err(|error| wrong(error.to_string()))?;
        let out = String::from_utf8_lossy(&ran.stdout);
        let task = serde_json::from_str::<serde_json::Value>(out.trim())
            .ok()
            .and_then(|value| value["task"].as_str().and_then(|task| task.parse::<TaskId>().ok()));
        match task {
            Some(task) => Ok(ActionReport { text: format!("started {task}"), select: Some(task) }),
            None => {
                let err = String::from_utf8_lossy(&ran.stderr);
                let why = err.lines().find(|line| line.starts_with("error: ")).or(err.lines().last());
                Err(wrong(
                    why.unwrap_or("the run could not be started").trim_start_matches("error: ").to_owned(),
                ))
            }
        }
    }

    async fn save_pins(&self, pinned: &[TaskId]) -> Result<(), CliError> {
        super::event_loop::inject_fault("work");
        let store = self.store();
        let bytes = serde_json::to_vec(pinned)?;
        // The last write wins if two TUIs pin at once.
        for _ in 0..5 {
            let stored = store.stored_value(PINS).await?;
            if store.put_stored_value(PINS, stored.version, bytes.clone()).await? {
                break;
            }
        }
        Ok(())
    }

    /// Asks the processes that run these trees to drain, and returns how many were asked.
    pub(super) fn drain<'a>(&self, states: impl Iterator<Item = &'a TaskState>) -> Result<usize, CliError> {
        let roots: std::collections::BTreeSet<TaskId> =
            states.filter(|state| state.status == Status::Running).map(|state| state.root).collect();
        let mut asked = 0;
        for root in roots {
            asked += usize::from(background::drain(&self.data_dir, root)?);
        }
        Ok(asked)
    }
}

fn report_of(text: String) -> ActionReport {
    ActionReport { text, select: None }
}
