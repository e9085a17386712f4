//! `longhaul prune`.

use std::collections::HashSet;
use std::time::Duration;

use jiff::Timestamp;
use longhaul::store::{SqliteStore, StoreError, Vacuumed};
use longhaul::supervisor::TreeGroup;
use longhaul::{Longhaul, LonghaulError, TaskId};
use serde_json::json;

use super::CliContext;
use crate::args::PruneArgs;
use crate::background;
use crate::data_dir::DataDir;
use crate::exit::{CliError, CliExitCode};
use crate::view::{Ink, TerminalOutput, format_ago, format_bytes, one_line, pluralize, truncate};

/// How long tasks may take to stop before they are deleted.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);

/// How many tasks to delete in one transaction.
const DELETE_BATCH: usize = 40;

/// Why a group of trees is kept.
enum KeepReason {
    /// These tasks have not ended.
    Open(Vec<TaskId>),
    /// The ends of these tasks are unread.
    Unread(Vec<TaskId>),
    /// Something happened to it just now.
    Busy,
}

pub(super) async fn run(context: &CliContext, args: &PruneArgs) -> Result<CliExitCode, CliError> {
    let (longhaul, data_dir) = (context.client().await?, context.data_dir()?);
    let now = Timestamp::now();
    let Some(older_than) = args.older_than else { return vacuum(context, args, &data_dir).await };
    let before = now.saturating_sub(older_than).unwrap_or(Timestamp::MIN);
    let mut tally = PruneSummary::default();
    let mut gone = HashSet::new();
    let mut seen = HashSet::new();
    let mut some: Vec<(TreeGroup, Option<KeepReason>)> = Vec::new();
    let mut trees = longhaul.quiet_trees(before).await?.into_iter();
    loop {
        let next = trees.next();
        let many = some.iter().map(|(group, _)| group.tasks.len()).sum::<usize>() >= DELETE_BATCH;
        if many || next.is_none() {
            if !args.dry_run {
                delete_all(&longhaul, &mut some).await?;
            }
            for (group, kept) in some.drain(..) {
                tally.count(&group, kept.as_ref());
                if kept.is_none() {
                    gone.extend(group.tasks.iter().map(|state| state.root));
                }
                let report =
                    PruneReport { group: &group, keep_reason: kept.as_ref(), now, dry_run: args.dry_run };
                if args.json { report.print_json(context.term)? } else { report.print_line(context.term)? }
            }
        }
        let Some(tree) = next else { break };
        if seen.contains(&tree) {
            continue;
        }
        let group = match longhaul.tree_group(tree).await {
            Ok(group) => group,
            // Another process has just deleted it.
            Err(LonghaulError::Store(StoreError::NoTask(_))) => continue,
            Err(error) => return Err(error.into()),
        };
        seen.extend(group.tasks.iter().map(|state| state.root).filter(|root| *root != tree));
        if group.last_active() >= before {
            continue;
        }
        let kept = if args.force { None } else { find_keep_reason(&longhaul, &group).await? };
        some.push((group, kept));
    }
    // Delete logs of background processes whose tree is gone, and old ones.
    for log in background::old_logs(&data_dir, &gone, before) {
        let deleted = !args.dry_run && std::fs::remove_file(&log).is_ok();
        tally.logs += usize::from(deleted || args.dry_run);
        if args.json {
            context
                .term
                .print_json(&json!({ "log": log, "deleted": deleted, "would_delete": args.dry_run }))?;
        }
    }
    if !args.json {
        context.term.print_line(&context.term.wrap(&tally.to_text(args)))?;
    }
    if args.vacuum && data_dir.postgres().is_some() {
        context.note("--vacuum: PostgreSQL gives the space of deleted tasks back by itself (autovacuum)");
    } else if args.vacuum {
        vacuum(context, args, &data_dir).await?;
    }
    Ok(if args.force && tally.kept > 0 { CliExitCode::Failed } else { CliExitCode::Success })
}

/// Shrinks the database file, and reports how much space that freed.
async fn vacuum(context: &CliContext, args: &PruneArgs, data_dir: &DataDir) -> Result<CliExitCode, CliError> {
    let (path, dry_run) = (data_dir.database.clone(), args.dry_run);
    let done = tokio::task::spawn_blocking(move || match dry_run {
        true => SqliteStore::examine_newest(&path).map(|health| {
            health.map(|health| Vacuumed { before: health.size, after: health.size - health.free })
        }),
        false => SqliteStore::vacuum(&path),
    });
    let done = done
        .await
        .map_err(|error| CliError::new(CliExitCode::Failed, format!("a bug in Longhaul: {error}")))?;
    let Some(done) = done? else { return Ok(CliExitCode::Success) };
    if args.json {
        let (before, after, freed) = (done.before, done.after, done.freed());
        let report = json!({ "before": before, "after": after, "freed": freed, "would_free": dry_run });
        context.term.print_json(&json!({ "vacuum": report }))?;
        return Ok(CliExitCode::Success);
    }
    let (freed, size) = (format_bytes(done.freed()), format_bytes(done.after));
    context.term.print_line(&match dry_run {
        true => format!("--vacuum would give {freed} that are free now back to the disk."),
        false => format!("{freed} given back to the disk; the database has {size} now."),
    })?;
    Ok(CliExitCode::Success)
}

/// Returns why a group should be kept, or `None` if it may be deleted.
async fn find_keep_reason(longhaul: &Longhaul, group: &TreeGroup) -> Result<Option<KeepReason>, CliError> {
    let open: Vec<TaskId> = group.open_tasks().map(|state| state.id).collect();
    if !open.is_empty() {
        return Ok(Some(KeepReason::Open(open)));
    }
    let unread = longhaul.unread_tasks(group).await?;
    Ok((!unread.is_empty()).then_some(KeepReason::Unread(unread)))
}

/// Deletes groups in batches, so that they share the cost of a disk write.
async fn delete_all(
    longhaul: &Longhaul,
    some: &mut [(TreeGroup, Option<KeepReason>)],
) -> Result<(), CliError> {
    let deletions = some.iter_mut().filter(|(_, kept)| kept.is_none()).map(|(group, kept)| async move {
        *kept = delete(longhaul, group).await?;
        Ok::<(), CliError>(())
    });
    futures::future::try_join_all(deletions).await.map(drop)
}

/// Deletes a group. Stops running tasks first.
async fn delete(longhaul: &Longhaul, group: &TreeGroup) -> Result<Option<KeepReason>, CliError> {
    use StoreError::{JournalMoved, NoTask, NotEnded, StillNeeded};
    let ended;
    let group = match group.open_tasks().next() {
        None => group,
        Some(_) => {
            ended = longhaul.stop_group(group, STOP_TIMEOUT).await?;
            &ended
        }
    };
    match longhaul.delete_group(group).await {
        Ok(()) => Ok(None),
        Err(LonghaulError::Store(NotEnded(task))) => Ok(Some(KeepReason::Open(vec![task]))),
        Err(LonghaulError::Store(JournalMoved { .. } | StillNeeded { .. } | NoTask(_))) => {
            Ok(Some(KeepReason::Busy))
        }
        Err(error) => Err(error.into()),
    }
}

/// What to print about a group of trees.
struct PruneReport<'a> {
    group: &'a TreeGroup,
    keep_reason: Option<&'a KeepReason>,
    now: Timestamp,
    dry_run: bool,
}

impl PruneReport<'_> {
    fn print_json(&self, term: TerminalOutput) -> Result<(), CliError> {
        let tasks: Vec<TaskId> = self.group.tasks.iter().map(|state| state.id).collect();
        let (why, which) = match self.keep_reason {
            None => (None, &[][..]),
            Some(KeepReason::Open(open)) => (Some("open"), &open[..]),
            Some(KeepReason::Unread(unread)) => (Some("unread"), &unread[..]),
            Some(KeepReason::Busy) => (Some("busy"), &[][..]),
        };
        let (deleted, would) = (why.is_none() && !self.dry_run, why.is_none() && self.dry_run);
        term.print_json(&json!({
            "tasks": tasks, "active": self.group.last_active(), "deleted": deleted, "would_delete": would, "kept": why, "because_of": which,
        }))
    }

    fn print_line(&self, term: TerminalOutput) -> Result<(), CliError> {
        let Some(first) = self.group.tasks.first() else { return Ok(()) };
        let (ink, verb) = match (self.keep_reason, self.dry_run) {
            (Some(_), _) => (Ink::Attention, "kept"),
            (None, true) => (Ink::Plain, "would go"),
            (None, false) => (Ink::Plain, "deleted"),
        };
        let few = |ids: &[TaskId]| match ids {
            [one] => one.to_string(),
            [one, ..] => format!("{one} and {} more", ids.len() - 1),
            [] => String::new(),
        };
        let why = match self.keep_reason {
            None => String::new(),
            Some(KeepReason::Open(open)) => format!("not ended: {} · ", few(open)),
            Some(KeepReason::Unread(unread)) => format!("unread: {} · ", few(unread)),
            Some(KeepReason::Busy) => "active just now · ".to_owned(),
        };
        let size = pluralize(self.group.tasks.len(), "task");
        let age = format_ago(self.group.last_active(), self.now);
        let text = format!("{size:<9} {age:<12} {why}{}", one_line(&first.headline));
        let room = term.size().0.saturating_sub(8 + 2 + 7 + 2);
        let id = term.paint(Ink::Id, &first.id.to_string());
        term.print_line(&format!(
            "{}  {id}  {}",
            term.paint(ink, &format!("{verb:<8}")),
            truncate(&text, room)
        ))
    }
}

#[derive(Default)]
struct PruneSummary {
    trees: usize,
    tasks: usize,
    kept: usize,
    unread: usize,
    logs: usize,
}

impl PruneSummary {
    fn count(&mut self, group: &TreeGroup, kept: Option<&KeepReason>) {
        match kept {
            None => {
                self.trees += group.tasks.iter().filter(|state| state.parent.is_none()).count();
                self.tasks += group.tasks.len();
            }
            Some(kept) => {
                self.kept += 1;
                self.unread += usize::from(matches!(kept, KeepReason::Unread(_)));
            }
        }
    }

    fn to_text(&self, args: &PruneArgs) -> String {
        let verb = if args.dry_run { "would be deleted" } else { "deleted" };
        let logs = match self.logs {
            0 => None,
            logs => Some(format!("{} of background processes", pluralize(logs, "log"))),
        };
        if self.trees == 0 && self.kept == 0 {
            return match logs {
                None => "Nothing is that old.".to_owned(),
                Some(logs) => format!("{logs} {verb}."),
            };
        }
        let mut words =
            format!("{} of {} {verb}", pluralize(self.tasks, "task"), pluralize(self.trees, "tree"));
        if let Some(logs) = logs {
            words += &format!("; {logs}, too");
        }
        if self.kept > 0 {
            words += &format!("; {} kept", self.kept);
        }
        if self.unread > 0 {
            words += ". Unread tasks are kept until you look at them (longhaul show ID); --force deletes them anyway";
        } else if self.kept > 0 && !args.force {
            words += ". --force stops open tasks and deletes them";
        }
        words + "."
    }
}
