//! `longhaul carry`: the hidden command of a background process that runs a tree.

use std::collections::HashSet;

use longhaul::TaskId;
use longhaul::store::{Store, TaskFilter};

use super::resume::{AttendanceOptions, TreeRunner, why_not_runnable};
use super::{CliContext, carry_served};
use crate::args::{CarryArgs, UnattendedArg};
use crate::background::{self, BackgroundStartup, PidFileLock};
use crate::data_dir::DataDir;
use crate::demo;
use crate::exit::{CliError, CliExitCode};
use crate::run_session::{OutputMode, RunSession};
use crate::signals::ExitSignals;
use crate::team::{self, StoredTeamLoader};
use crate::tree_owner;
use crate::view::sanitize;

pub(super) async fn run(context: &CliContext, args: &CarryArgs) -> Result<CliExitCode, CliError> {
    if let Some(digest) = &args.served {
        return carry_served::run(context, args, &digest.as_str().into()).await;
    }
    let Some(root) = args.root else {
        return Err(CliError::new(CliExitCode::Usage, "there is no task to run: name its id"));
    };
    // Start a new session, so that neither Ctrl-C nor closing the terminal reaches this process.
    let _ = nix::unistd::setsid();
    // Listen from the start: other processes may ask us to drain as soon as they see us.
    let signals = ExitSignals::listen()?;
    let data_dir = context.data_dir()?;
    let begun = prepare_tree(context, args, root, &data_dir).await;
    match &begun {
        Ok(_) => BackgroundStartup::Carrying.print(),
        Err(error) => BackgroundStartup::failed(error).print(),
    }
    let (runner, lock) = begun?;
    let stop_on_question = args.unattended == UnattendedArg::Stop;
    let session = RunSession {
        mode: OutputMode::Silent,
        stop_on_question,
        timeout: args.timeout,
        ..RunSession::new(context, &data_dir, runner.longhaul, vec![root])
    };
    let done = session.run_with_signals(signals).await;
    team::close_environment(&runner.environment).await;
    drop(lock);
    let log = background::log_path(&data_dir, root);
    // Remove the empty log of a successful run.
    if done.is_ok() && log.metadata().is_ok_and(|log| log.len() == 0) {
        let _ = std::fs::remove_file(log);
    }
    done
}

async fn prepare_tree(
    context: &CliContext,
    args: &CarryArgs,
    root: TaskId,
    data_dir: &DataDir,
) -> Result<(TreeRunner, Option<PidFileLock>), CliError> {
    let store = data_dir.open_store().await?;
    let tree = store.list(TaskFilter::tree(root).live()).await?;
    let Some(task) = tree.first() else { return Err(nothing_to_run_error(data_dir, &*store, root).await?) };
    let lock = background::lock_tree(data_dir, root);
    let was_owned = tree_owner::owned_trees(&*store).await?.contains(&root);
    let owned = match was_owned {
        // Do not print what we wait for: no one reads it.
        true => tree_owner::wait_until_free(&*store, data_dir, &HashSet::from([root]), |_| {})
            .await?
            .contains(&root),
        false => lock.is_none() && background::running_pid(data_dir, root).is_some(),
    };
    if owned {
        return Err(CliError::new(CliExitCode::Failed, format!("{root} is run by another process already"))
            .with_hint(format!("watch it: {}", data_dir.attach_command(root))));
    }
    let demo = demo::demo_team(args.pace).map_err(super::demo::demo_failure)?;
    if let Some(damage) = store.find_damaged(TaskFilter::tree(root), true).await?.into_iter().next() {
        let what = format!("{} cannot be loaded: {}", damage.task, damage.why);
        return Err(
            CliError::new(CliExitCode::Store, what).with_hint("`longhaul doctor` checks the whole database")
        );
    }
    let loader =
        StoredTeamLoader::new(args.pace, team::build_environment(context, &args.providers, data_dir)?);
    if let Some(why) = why_not_runnable(&*store, &task.team, demo.reference(), &loader).await? {
        let what = format!("{root} {}", sanitize(&why));
        return Err(
            CliError::new(CliExitCode::Failed, what).with_hint("run it with the program that created it")
        );
    }
    let people = AttendanceOptions {
        unattended: Some(args.unattended.into()),
        ask_timeout: args.ask_timeout,
        attended: false,
    };
    let runner =
        TreeRunner::start(context, data_dir, store, &[root], &args.providers, demo, args.pace, people)
            .await?;
    Ok((runner, lock))
}

async fn nothing_to_run_error(
    data_dir: &DataDir,
    store: &dyn Store,
    root: TaskId,
) -> Result<CliError, CliError> {
    Ok(match store.task_state(root).await? {
        Some(state) => CliError::new(
            CliExitCode::Failed,
            format!("{root} has ended ({}): there is nothing to run", state.status),
        )
        .with_hint(format!("to continue it, write to it: {}", data_dir.send_command(root))),
        None => CliError::new(CliExitCode::NotFound, format!("there is no task {root}"))
            .with_hint("`longhaul tasks` lists them"),
    })
}
