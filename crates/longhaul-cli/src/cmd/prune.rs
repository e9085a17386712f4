//! `longhaul prune`.

use std::collections::HashSet;
use std::time::Duration;

use jiff::Timestamp;
use longhaul::store::{Sqlite, StoreError, Vacuumed};
use longhaul::supervisor::Grove;
use longhaul::{Longhaul, LonghaulError, TaskId};
use serde_json::json;

use super::Desk;
use crate::args::PruneArgs;
use crate::carrier;
use crate::exit::{Code, Trouble};
use crate::place::Place;
use crate::view::{Ink, Term, ago, bytes, fit, many, one_line};

/// How long tasks that are stopped first may take for that.
const PATIENCE: Duration = Duration::from_secs(15);

/// How many tasks are deleted together.
const TOGETHER: usize = 40;

/// Why a grove is kept.
enum Kept {
    /// These have not ended.
    Open(Vec<TaskId>),
    /// Of the end of these nobody has heard.
    Unread(Vec<TaskId>),
    /// Something happened to it in this very moment.
    Busy,
}

pub(super) async fn run(desk: &Desk, args: &PruneArgs) -> Result<Code, Trouble> {
    let (longhaul, place) = (desk.client().await?, desk.place()?);
    let now = Timestamp::now();
    let Some(older_than) = args.older_than else { return vacuum(desk, args, &place).await };
    let before = now.saturating_sub(older_than).unwrap_or(Timestamp::MIN);
    let mut tally = Tally::default();
    let mut gone = HashSet::new();
    let mut seen = HashSet::new();
    let mut some: Vec<(Grove, Option<Kept>)> = Vec::new();
    let mut trees = longhaul.quiet_trees(before).await?.into_iter();
    loop {
        let next = trees.next();
        let many = some.iter().map(|(grove, _)| grove.tasks.len()).sum::<usize>() >= TOGETHER;
        if many || next.is_none() {
            if !args.dry_run {
                delete_all(&longhaul, &mut some).await?;
            }
            for (grove, kept) in some.drain(..) {
                tally.count(&grove, kept.as_ref());
                if kept.is_none() {
                    gone.extend(grove.tasks.iter().map(|head| head.root));
                }
                let told = Told { grove: &grove, kept: kept.as_ref(), now, dry_run: args.dry_run };
                if args.json { told.json(desk.term)? } else { told.line(desk.term)? }
            }
        }
        let Some(tree) = next else { break };
        if seen.contains(&tree) {
            continue;
        }
        let grove = match longhaul.grove(tree).await {
            Ok(grove) => grove,
            // Somebody else has just deleted it.
            Err(LonghaulError::Store(StoreError::NoTask(_))) => continue,
            Err(error) => return Err(error.into()),
        };
        seen.extend(grove.tasks.iter().map(|head| head.root).filter(|root| *root != tree));
        if grove.active() >= before {
            continue;
        }
        let kept = match args.force {
            true => None,
            false => reason(&longhaul, &grove).await?,
        };
        some.push((grove, kept));
    }
    // What a process in the background wrote of a tree that is gone, or long ago, helps nobody.
    for log in carrier::old_logs(&place, &gone, before) {
        let deleted = !args.dry_run && std::fs::remove_file(&log).is_ok();
        tally.logs += usize::from(deleted || args.dry_run);
        if args.json {
            desk.term.json(&json!({ "log": log, "deleted": deleted, "would_delete": args.dry_run }))?;
        }
    }
    if !args.json {
        desk.term.line(&desk.term.wrapped(&tally.words(args)))?;
    }
    if args.vacuum {
        vacuum(desk, args, &place).await?;
    }
    Ok(if args.force && tally.kept > 0 { Code::Failed } else { Code::Fine })
}

/// Makes the file as small as what is in it, and says what that has freed.
async fn vacuum(desk: &Desk, args: &PruneArgs, place: &Place) -> Result<Code, Trouble> {
    let (path, dry_run) = (place.database.clone(), args.dry_run);
    let done = tokio::task::spawn_blocking(move || match dry_run {
        true => Sqlite::examine_newest(&path).map(|health| {
            health.map(|health| Vacuumed { before: health.size, after: health.size - health.free })
        }),
        false => Sqlite::vacuum(&path),
    });
    let done =
        done.await.map_err(|error| Trouble::new(Code::Failed, format!("a fault in Longhaul: {error}")))?;
    let Some(done) = done? else { return Ok(Code::Fine) };
    if args.json {
        let (before, after, freed) = (done.before, done.after, done.freed());
        let told = json!({ "before": before, "after": after, "freed": freed, "would_free": dry_run });
        desk.term.json(&json!({ "vacuum": told }))?;
        return Ok(Code::Fine);
    }
    let (freed, size) = (bytes(done.freed()), bytes(done.after));
    desk.term.line(&match dry_run {
        true => format!("--vacuum would give {freed} that are free now back to the disk."),
        false => format!("{freed} given back to the disk; the database has {size} now."),
    })?;
    Ok(Code::Fine)
}

/// Why it should be kept, if it should.
async fn reason(longhaul: &Longhaul, grove: &Grove) -> Result<Option<Kept>, Trouble> {
    let open: Vec<TaskId> = grove.open().map(|head| head.id).collect();
    if !open.is_empty() {
        return Ok(Some(Kept::Open(open)));
    }
    let unread = longhaul.unread(grove).await?;
    Ok((!unread.is_empty()).then_some(Kept::Unread(unread)))
}

/// Deletes those that are not to be kept, together: what a write to disk costs, they share.
async fn delete_all(longhaul: &Longhaul, some: &mut [(Grove, Option<Kept>)]) -> Result<(), Trouble> {
    let deletions = some.iter_mut().filter(|(_, kept)| kept.is_none()).map(|(grove, kept)| async move {
        *kept = delete(longhaul, grove).await?;
        Ok::<(), Trouble>(())
    });
    futures::future::try_join_all(deletions).await.map(drop)
}

/// Deletes it; what runs is stopped first.
async fn delete(longhaul: &Longhaul, grove: &Grove) -> Result<Option<Kept>, Trouble> {
    use StoreError::{Moved, Needed, NoTask, Open};
    let ended;
    let grove = match grove.open().next() {
        None => grove,
        Some(_) => {
            ended = longhaul.end(grove, PATIENCE).await?;
            &ended
        }
    };
    match longhaul.delete(grove).await {
        Ok(()) => Ok(None),
        Err(LonghaulError::Store(Open(task))) => Ok(Some(Kept::Open(vec![task]))),
        Err(LonghaulError::Store(Moved { .. } | Needed { .. } | NoTask(_))) => Ok(Some(Kept::Busy)),
        Err(error) => Err(error.into()),
    }
}

/// What is told of a grove.
struct Told<'a> {
    grove: &'a Grove,
    kept: Option<&'a Kept>,
    now: Timestamp,
    dry_run: bool,
}

impl Told<'_> {
    fn json(&self, term: Term) -> Result<(), Trouble> {
        let tasks: Vec<TaskId> = self.grove.tasks.iter().map(|head| head.id).collect();
        let (why, which) = match self.kept {
            None => (None, &[][..]),
            Some(Kept::Open(open)) => (Some("open"), &open[..]),
            Some(Kept::Unread(unread)) => (Some("unread"), &unread[..]),
            Some(Kept::Busy) => (Some("busy"), &[][..]),
        };
        let (deleted, would) = (why.is_none() && !self.dry_run, why.is_none() && self.dry_run);
        term.json(&json!({
            "tasks": tasks, "active": self.grove.active(), "deleted": deleted, "would_delete": would, "kept": why, "because_of": which,
        }))
    }

    fn line(&self, term: Term) -> Result<(), Trouble> {
        let Some(first) = self.grove.tasks.first() else { return Ok(()) };
        let (ink, verb) = match (self.kept, self.dry_run) {
            (Some(_), _) => (Ink::Waits, "kept"),
            (None, true) => (Ink::Plain, "would go"),
            (None, false) => (Ink::Plain, "deleted"),
        };
        let few = |ids: &[TaskId]| match ids {
            [one] => one.to_string(),
            [one, ..] => format!("{one} and {} more", ids.len() - 1),
            [] => String::new(),
        };
        let why = match self.kept {
            None => String::new(),
            Some(Kept::Open(open)) => format!("not ended: {} · ", few(open)),
            Some(Kept::Unread(unread)) => format!("unread: {} · ", few(unread)),
            Some(Kept::Busy) => "just now something happened to it · ".to_owned(),
        };
        let size = many(self.grove.tasks.len(), "task");
        let age = ago(self.grove.active(), self.now);
        let text = format!("{size:<9} {age:<12} {why}{}", one_line(&first.headline));
        let room = term.size().0.saturating_sub(8 + 2 + 7 + 2);
        let id = term.paint(Ink::Id, &first.id.to_string());
        term.line(&format!("{}  {id}  {}", term.paint(ink, &format!("{verb:<8}")), fit(&text, room)))
    }
}

#[derive(Default)]
struct Tally {
    trees: usize,
    tasks: usize,
    kept: usize,
    unread: usize,
    logs: usize,
}

impl Tally {
    fn count(&mut self, grove: &Grove, kept: Option<&Kept>) {
        match kept {
            None => {
                self.trees += grove.tasks.iter().filter(|head| head.parent.is_none()).count();
                self.tasks += grove.tasks.len();
            }
            Some(kept) => {
                self.kept += 1;
                self.unread += usize::from(matches!(kept, Kept::Unread(_)));
            }
        }
    }

    fn words(&self, args: &PruneArgs) -> String {
        let verb = if args.dry_run { "would be deleted" } else { "deleted" };
        let logs = match self.logs {
            0 => None,
            logs => Some(format!("{} of background processes", many(logs, "log"))),
        };
        if self.trees == 0 && self.kept == 0 {
            return match logs {
                None => "Nothing is that old.".to_owned(),
                Some(logs) => format!("{logs} {verb}."),
            };
        }
        let mut words = format!("{} of {} {verb}", many(self.tasks, "task"), many(self.trees, "tree"));
        if let Some(logs) = logs {
            words += &format!("; {logs}, too");
        }
        if self.kept > 0 {
            words += &format!("; {} kept", self.kept);
        }
        if self.unread > 0 {
            words += ". What is unread is so until somebody looks at it (longhaul show ID); --force deletes it all the same";
        } else if self.kept > 0 && !args.force {
            words += ". --force stops what has not ended, and deletes it";
        }
        words + "."
    }
}
