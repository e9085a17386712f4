//! What the screen wishes for, done.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use longhaul::entry::Entry;
use longhaul::id::{CallId, Seq};
use longhaul::store::{Filter, Store};
use longhaul::task::Head;
use longhaul::teamfile::Bundle;
use longhaul::{Longhaul, LonghaulError, Status, TaskId};

use super::model::{Effect, Msg, Said};
use super::running::{found, stretch};
use crate::args::{Outside, TuiArgs};
use crate::carrier::{self, CarryOptions};
use crate::exit::Trouble;
use crate::place::Place;
use crate::trust::Trust;
use crate::view::many;

/// How many tasks are shown, besides all that have not ended.
const NEWEST: usize = 2_000;
/// How long something is told.
const TOLD: Duration = Duration::from_secs(8);
/// How many entries are read for the reply that made a call: most are near, and after words of progress some are not.
const CALL_IS_WITHIN: [usize; 2] = [32, 1_000];
/// Where what is pinned is written down.
const PINS: &str = "tui/pins";

/// Whoever does it.
#[derive(Clone)]
pub(super) struct Hands {
    pub(super) longhaul: Longhaul,
    pub(super) place: Place,
    pub(super) args: Arc<TuiArgs>,
}

impl Hands {
    pub(super) fn store(&self) -> &Arc<dyn Store> {
        self.longhaul.store()
    }

    /// All there is to be shown.
    pub(super) async fn load(self) -> Result<Msg, Trouble> {
        let newest = Filter { limit: Some(NEWEST), ..Filter::default() };
        let mut heads = self.longhaul.snapshots(newest).await?;
        if heads.len() == NEWEST {
            // What has not ended is shown, however old it is.
            let known: std::collections::HashSet<TaskId> = heads.iter().map(|head| head.id).collect();
            let mut older = self.longhaul.snapshots(Filter::default().live()).await?;
            older.retain(|head| !known.contains(&head.id));
            older.append(&mut heads);
            heads = older;
        }
        let slip = self.store().slip(PINS).await?;
        Ok(Msg::Loaded(heads, serde_json::from_slice(&slip.bytes).unwrap_or_default()))
    }

    /// Where these tasks stand.
    pub(super) async fn heads(self, ids: Vec<TaskId>) -> Result<Msg, Trouble> {
        let mut heads = Vec::with_capacity(ids.len());
        for id in ids {
            heads.extend(self.store().head(id).await?);
        }
        Ok(Msg::Heads(heads))
    }

    /// Where all stand that have not ended: hints may be lost, and processes die without a word.
    pub(super) async fn live(self) -> Result<Msg, Trouble> {
        Ok(Msg::Heads(self.longhaul.snapshots(Filter::default().live()).await?))
    }

    /// Does what is wished for. Only a store that cannot be read is an error; all else is told.
    pub(super) async fn act(self, effect: Effect) -> Result<Msg, Trouble> {
        let done = match effect {
            Effect::Read { task, after, limit, order } => return self.read(task, after, limit, order).await,
            Effect::Later(number) => {
                tokio::time::sleep(TOLD).await;
                return Ok(Msg::Forget(number));
            }
            Effect::Send { to, text } => self.send(to, text).await,
            Effect::Answer { task, question, words } => self.answer(task, question, words).await,
            Effect::Stop(task) => self.stop(task).await,
            Effect::StopAll => self.stop_all().await,
            Effect::Resume(root) => self.resume(root).await,
            Effect::Retry(task) => self.retry(task).await,
            Effect::ReadCalls(wanted) => return self.calls(wanted).await,
            Effect::Run(prompt) => self.run(prompt).await,
            Effect::Pin(pinned) => match self.pin(&pinned).await {
                Ok(()) => return Ok(Msg::Tick),
                Err(trouble) => Err(trouble),
            },
            Effect::Redraw | Effect::Aside | Effect::Leave { .. } => return Ok(Msg::Tick),
        };
        Ok(Msg::Done(done.map_err(|trouble| match trouble.help() {
            Some(hint) => format!("{}; {hint}", trouble.what()),
            None => trouble.what().to_owned(),
        })))
    }

    async fn read(self, task: TaskId, after: Seq, limit: usize, order: bool) -> Result<Msg, Trouble> {
        let store = self.store();
        // A journal that cannot be read is told of; the others can be.
        let records = match store.read(task, after, limit).await {
            Ok(records) => records,
            Err(error) => return Ok(Msg::Done(Err(format!("{task} cannot be read: {error}")))),
        };
        let first = match (order, records.first()) {
            (false, _) => None,
            (true, Some(first)) if first.seq == Seq(1) => Some(first.clone()),
            (true, _) => store.read(task, Seq(0), 1).await?.pop(),
        };
        if order && first.is_none() {
            return Ok(Msg::Gone(task));
        }
        if order {
            // It is opened, and so its end, if it has ended, has been seen.
            let _ = self.longhaul.look_at(task).await;
        }
        let order = match first.map(|first| first.entry) {
            Some(Entry::Submitted(submitted)) => {
                let team = crate::team::name(&**store, &submitted.team).await;
                Some((Box::new(submitted.order), team))
            }
            _ => None,
        };
        Ok(Msg::Records { task, after, limit, records, order })
    }

    async fn send(&self, to: TaskId, text: String) -> Result<Said, Trouble> {
        let sent = self.longhaul.send(to, text).await?;
        let head = self.store().head(sent.to).await?;
        if !sent.continued {
            let nobody = head.is_some_and(|head| head.status == Status::Pending && head.attempt.0 > 0);
            let more = if nobody { "; nobody runs it now: r carries it on" } else { "" };
            return Ok(said(format!("sent to {to}{more}")));
        }
        let root = head.map_or(sent.to, |head| head.root);
        self.carry(root).await?;
        Ok(Said { text: format!("{to} had ended: it is continued by {}", sent.to), show: Some(sent.to) })
    }

    async fn answer(
        &self,
        task: TaskId,
        question: longhaul::id::QuestionId,
        words: String,
    ) -> Result<Said, Trouble> {
        let taken = self.longhaul.answer(task, Some(question), words.clone()).await?;
        let mut text = format!("answered {task}: {words}");
        if let Some(pattern) = &taken.granted {
            text = format!("{text}; allowed in the whole tree: {pattern}");
        }
        if !taken.also.is_empty() {
            text = format!("{text}; that answers {} too", many(taken.also.len(), "other question"));
        }
        Ok(said(text))
    }

    async fn stop(&self, task: TaskId) -> Result<Said, Trouble> {
        self.longhaul.stop(task).await?;
        Ok(said(format!("{task} was told to stop")))
    }

    async fn stop_all(&self) -> Result<Said, Trouble> {
        let stopped = self.longhaul.stop_all().await?;
        Ok(said(format!("{} told to stop", many(stopped.len(), "task"))))
    }

    async fn resume(&self, root: TaskId) -> Result<Said, Trouble> {
        carrier::start(&self.place, root, CarryOptions::new(&self.args.outside)).await?;
        Ok(said(format!("a process in the background carries {root} on")))
    }

    /// What tools are called with: from the ends of journals, as far back as the replies that made the calls.
    async fn calls(self, wanted: Vec<(TaskId, Seq, Vec<CallId>)>) -> Result<Msg, Trouble> {
        let mut told = Vec::new();
        for (task, end, ids) in wanted {
            let mut calls = None;
            for entries in CALL_IS_WITHIN {
                // What cannot be read is told of where the task is opened.
                let after = stretch(end, entries);
                let Ok(records) = self.store().read(task, after, entries).await else { break };
                calls = found(&records, &ids);
                if calls.is_some() || after.0 == 0 {
                    break;
                }
            }
            let calls = calls.unwrap_or_else(|| ids.iter().map(|id| (*id, String::new())).collect());
            told.extend(calls.into_iter().map(|(id, call)| (task, id, call)));
        }
        Ok(Msg::Calls(told))
    }

    async fn retry(&self, task: TaskId) -> Result<Said, Trouble> {
        let again = match self.longhaul.retry(task).await {
            Err(LonghaulError::Retried { by, .. }) => {
                return Ok(Said {
                    text: format!("{task} is being tried again already, as {by}"),
                    show: Some(by),
                });
            }
            again => again?,
        };
        let root = self.longhaul.head(again).await?.root;
        self.carry(root).await?;
        Ok(Said { text: format!("{task} is tried again as {again}"), show: Some(again) })
    }

    /// Has a tree carried on, unless it is.
    async fn carry(&self, root: TaskId) -> Result<(), Trouble> {
        if crate::holder::owned(&**self.store()).await?.contains(&root) {
            return Ok(());
        }
        carrier::start(&self.place, root, CarryOptions::new(&self.args.outside)).await
    }

    /// Starts a run of the team, as `longhaul run --detach` does.
    async fn run(&self, prompt: String) -> Result<Said, Trouble> {
        use crate::exit::Code;
        let Some(team) = &self.args.team else { return Ok(said("there is no team".to_owned())) };
        let wrong = |what: String| Trouble::new(Code::Failed, what);
        let bundle = Bundle::gather(team).map_err(|error| wrong(format!("the team file {error}")))?;
        if !Trust::of(&self.place, team, &bundle).is_trusted() {
            return Err(wrong(
                "the team file does other things now than you agreed to: leave the screen and open it again"
                    .to_owned(),
            ));
        }
        let program = std::env::current_exe().map_err(|error| wrong(error.to_string()))?;
        let mut command = tokio::process::Command::new(program);
        command.arg("--data").arg(self.place.data()).args(["run", "--detach", "--json"]);
        for (flag, path) in files(&self.args.outside) {
            command.arg(flag).arg(path);
        }
        // What begins like a flag, a file or a command is a prompt all the same.
        let prompt = if prompt.starts_with('@') || prompt == "-" { format!(" {prompt}") } else { prompt };
        command.arg("--").arg(team).arg(prompt);
        command.stdin(Stdio::null()).kill_on_drop(true);
        let ran = command.output().await.map_err(|error| wrong(error.to_string()))?;
        let out = String::from_utf8_lossy(&ran.stdout);
        let task = serde_json::from_str::<serde_json::Value>(out.trim())
            .ok()
            .and_then(|value| value["task"].as_str().and_then(|task| task.parse::<TaskId>().ok()));
        match task {
            Some(task) => Ok(Said { text: format!("started {task}"), show: Some(task) }),
            None => {
                let err = String::from_utf8_lossy(&ran.stderr);
                let why = err.lines().find(|line| line.starts_with("error: ")).or(err.lines().last());
                Err(wrong(
                    why.unwrap_or("the run could not be started").trim_start_matches("error: ").to_owned(),
                ))
            }
        }
    }

    async fn pin(&self, pinned: &[TaskId]) -> Result<(), Trouble> {
        super::edge::fault("work");
        let store = self.store();
        let bytes = serde_json::to_vec(pinned)?;
        // Whoever pins last, pins: two screens do not argue.
        for _ in 0..5 {
            let slip = store.slip(PINS).await?;
            if store.write_slip(PINS, slip.written, bytes.clone()).await? {
                break;
            }
        }
        Ok(())
    }

    /// Asks whoever carries these trees to drain. How many were asked.
    pub(super) fn drain<'a>(&self, heads: impl Iterator<Item = &'a Head>) -> Result<usize, Trouble> {
        let roots: std::collections::BTreeSet<TaskId> =
            heads.filter(|head| head.status == Status::Running).map(|head| head.root).collect();
        let mut asked = 0;
        for root in roots {
            asked += usize::from(carrier::drain(&self.place, root)?);
        }
        Ok(asked)
    }
}

fn said(text: String) -> Said {
    Said { text, show: None }
}

fn files(outside: &Outside) -> Vec<(&'static str, &std::path::Path)> {
    let all = outside.env_from_file.iter().map(|path| ("--env-from-file", &**path));
    let more = [("--prices", &outside.prices), ("--record", &outside.record), ("--replay", &outside.replay)];
    let more = more.into_iter().filter_map(|(flag, path)| Some((flag, path.as_deref()?)));
    all.chain(more).collect()
}
