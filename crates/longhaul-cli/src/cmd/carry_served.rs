//! `longhaul carry --served`: the background process that runs the tasks of a served team.
//!
//! At most one runs for each team. It exits by itself when the team has had no unfinished task for a while: it
//! gives up its lock first and then looks once more, so that a task that is submitted meanwhile is run either
//! by this process or by the next, which its submitter starts because it finds no lock.

use std::fs::TryLockError;
use std::sync::Arc;
use std::time::Duration;

use longhaul::agent::Unattended;
use longhaul::entry::{EntryKind, TeamRef};
use longhaul::id::Digest;
use longhaul::store::{EntryKinds, Hint, HintStream, Store, StoreError, TaskFilter};
use longhaul::teamfile::{self, Environment, TeamBundle};
use longhaul::{Longhaul, LonghaulError};
use longhaul_server::backend::needs_process;
use tokio::time::Instant;

use super::CliContext;
use crate::args::CarryArgs;
use crate::background::{self, BackgroundStartup, PidFileLock};
use crate::data_dir::DataDir;
use crate::exit::{CliError, CliExitCode};
use crate::signals::ExitSignals;
use crate::team;

/// How long to stay when there is nothing to run.
const LINGER: Duration = Duration::from_secs(10);
/// How often to check that the database file still exists.
const DATABASE_POLL: Duration = Duration::from_millis(500);
/// How often, and how many times, to try to get the lock: others hold it for an instant to look at it.
const LOCK_RETRY: Duration = Duration::from_millis(20);
const LOCK_TRIES: usize = 25;

/// A team that this process runs.
struct ServedRun {
    longhaul: Longhaul,
    data_dir: DataDir,
    environment: Environment,
    team: TeamRef,
    lock: Option<PidFileLock>,
}

/// Why a process stops running a team.
enum ServedEnd {
    /// There has been nothing to run for a while.
    Idle,
    /// A signal asked for it.
    Interrupted,
    /// The store can no longer be used.
    StoreFailed(StoreError),
}

pub(super) async fn run(
    context: &CliContext,
    args: &CarryArgs,
    digest: &Digest,
) -> Result<CliExitCode, CliError> {
    // Start a new session, so that no signal to the client and its process group reaches this process.
    let _ = nix::unistd::setsid();
    let mut signals = ExitSignals::listen()?;
    let data_dir = context.data_dir()?;
    let begun = prepare(context, args, &data_dir, digest).await;
    match &begun {
        Ok(_) => BackgroundStartup::Carrying.print(),
        Err(error) => BackgroundStartup::failed(error).print(),
    }
    // Without a run, another process has the team already.
    let Some(mut run) = begun? else { return Ok(CliExitCode::Success) };
    let linger = args.linger.unwrap_or(LINGER);
    let end = loop {
        let end = run.until_end(&mut signals, linger).await;
        if !matches!(end, Ok(ServedEnd::Idle)) {
            break end;
        }
        run.lock = None;
        match run.has_unfinished().await {
            Ok(false) => break end,
            Ok(true) => {}
            Err(error) => break Err(error.into()),
        }
        match try_lock(&data_dir, digest).await? {
            Some(lock) => run.lock = Some(lock),
            // Another process was started meanwhile.
            None => break end,
        }
    };
    run.longhaul.shutdown().await;
    team::close_environment(&run.environment).await;
    drop(run.lock);
    let log = background::served_log_path(&data_dir, digest);
    if log.metadata().is_ok_and(|log| log.len() == 0) {
        let _ = std::fs::remove_file(log);
    }
    match end? {
        ServedEnd::Idle | ServedEnd::Interrupted => Ok(CliExitCode::Success),
        ServedEnd::StoreFailed(error) => Err(LonghaulError::from(error).into()),
    }
}

/// Gets the lock on a team; `None` if another process runs it.
async fn try_lock(data_dir: &DataDir, team: &Digest) -> Result<Option<PidFileLock>, CliError> {
    for _ in 0..LOCK_TRIES {
        match background::lock_served(data_dir, team) {
            Ok(lock) => return Ok(Some(lock)),
            Err(TryLockError::WouldBlock) => tokio::time::sleep(LOCK_RETRY).await,
            Err(TryLockError::Error(error)) => {
                let what = format!("files in {} cannot be locked: {error}", data_dir.path().display());
                return Err(CliError::new(CliExitCode::Store, what)
                    .with_hint("`--data DIR` names a directory on a local disk"));
            }
        }
    }
    Ok(None)
}

/// Starts to run the team. Returns `None` if another process runs it.
async fn prepare(
    context: &CliContext,
    args: &CarryArgs,
    data_dir: &DataDir,
    digest: &Digest,
) -> Result<Option<ServedRun>, CliError> {
    let Some(lock) = try_lock(data_dir, digest).await? else { return Ok(None) };
    let store: Arc<dyn Store> = data_dir.open_store().await?;
    let wrong = |why: String| {
        CliError::new(CliExitCode::Team, format!("the team {} cannot be run: {why}", digest.as_str()))
    };
    let Some(file) = store.blob(digest.clone()).await? else {
        return Err(wrong("it is not in the database".to_owned()));
    };
    let bundle = TeamBundle::decode(&file).map_err(|error| wrong(error.to_string()))?;
    if let Some(host) = team::other_host(&file) {
        return Err(wrong(format!("it belongs to the machine '{host}'")));
    }
    if !bundle.served {
        return Err(wrong("it is not a team that is served".to_owned()));
    }
    let environment = team::build_environment(context, &args.providers, data_dir)?;
    let made = teamfile::assemble(&bundle, &environment).map_err(|error| wrong(error.to_string()))?;
    let team = made.team.with_reference(TeamRef::File(digest.clone()));
    let reference = team.reference().clone();
    let longhaul = super::longhaul_builder(team)
        .limits(made.limits)
        .unattended(Unattended::Wait)
        .shared_store(store)
        .start()
        .await?;
    let data_dir = data_dir.clone();
    Ok(Some(ServedRun { longhaul, data_dir, environment, team: reference, lock: Some(lock) }))
}

impl ServedRun {
    async fn has_unfinished(&self) -> Result<bool, StoreError> {
        let store = self.longhaul.store();
        if !store.teams_at_work().await?.contains(&self.team) {
            return Ok(false);
        }
        let live = store.list(TaskFilter::default().live()).await?;
        Ok(live.iter().any(|task| task.team == self.team && needs_process(task)))
    }

    /// Runs tasks until there is a reason to stop.
    async fn until_end(&self, signals: &mut ExitSignals, linger: Duration) -> Result<ServedEnd, CliError> {
        let store = self.longhaul.store();
        let mut hints = store.hints();
        let mut idle_at: Option<Instant> = None;
        let mut still_there = tokio::time::interval(DATABASE_POLL);
        loop {
            idle_at = match self.has_unfinished().await? {
                true => None,
                false => idle_at.or_else(|| Some(Instant::now() + linger)),
            };
            let idle = async {
                match idle_at {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::pin!(idle);
            loop {
                tokio::select! {
                    () = next_begin_or_end(&mut hints) => break,
                    () = &mut idle => return Ok(ServedEnd::Idle),
                    () = signals.next() => return Ok(ServedEnd::Interrupted),
                    error = super::final_store_failure(&self.longhaul, &self.data_dir) => return Ok(ServedEnd::StoreFailed(error)),
                    _ = still_there.tick() => {
                        if let Some(error) = store.file_lost() {
                            return Ok(ServedEnd::StoreFailed(error));
                        }
                    }
                }
            }
        }
    }
}

/// Waits until a task may have begun, ended or started to wait.
async fn next_begin_or_end(hints: &mut HintStream) {
    let matter = EntryKinds::from_kinds([
        EntryKind::Submitted,
        EntryKind::Finished,
        EntryKind::StopRequested,
        EntryKind::Waiting,
        EntryKind::Letter,
    ]);
    loop {
        match hints.next().await {
            Some(Hint::Task { kinds, .. }) if !kinds.intersects(matter) => {}
            Some(_) => return,
            None => std::future::pending().await,
        }
    }
}
