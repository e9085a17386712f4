//! The commands, one file each.

mod answer;
mod attach;
mod carry;
mod carry_served;
mod check;
mod demo;
mod doctor;
mod export;
mod init;
mod logs;
mod acp;
mod mcp;
mod mcp_install;
mod prune;
mod resume;
mod retry;
mod run;
mod send;
mod serve;
mod completions_and_man;
mod show;
mod stdio_server;
mod stop;
mod store;
mod tasks;
mod token;
mod tools;
mod unsandboxed;
mod wait;

pub(crate) use completions_and_man::complete;
pub(crate) use mcp::forward_task_tools;

use std::path::PathBuf;

use longhaul::store::{DatabaseFault, StoreError};
use longhaul::task::TaskState;
use longhaul::{Longhaul, TaskId};

use crate::args::{AttachArgs, CliCommand, ProviderArgs, ResumeArgs};
use crate::background::{self, BackgroundOptions};
use crate::data_dir::DataDir;
use crate::exit::{CliError, CliExitCode};
use crate::serve_lock;
use crate::store_address::STORE_VARIABLE;
use crate::tree_owner;
use crate::view::{LiveRegion, TerminalOutput};

/// What every command needs.
pub(crate) struct CliContext {
    /// The value of `--data`.
    pub(crate) data: Option<PathBuf>,
    /// The value of `--store`.
    pub(crate) store: Option<String>,
    /// The stream for progress, usually stdout.
    pub(crate) term: TerminalOutput,
    /// The live block on that stream.
    pub(crate) screen: LiveRegion,
}

impl CliContext {
    /// Returns the data directory. Fails if there is none.
    pub(crate) fn data_dir(&self) -> Result<DataDir, CliError> {
        let variable = std::env::var(STORE_VARIABLE).ok();
        DataDir::with_store(self.data.as_deref(), self.store.as_deref(), variable.as_deref())
    }

    /// Opens the database to watch and steer tasks, without running any.
    async fn client(&self) -> Result<Longhaul, CliError> {
        Ok(Longhaul::client(self.data_dir()?.open_store().await?).await?)
    }

    /// Prints a line to stderr.
    pub(crate) fn note(&self, text: &str) {
        use std::io::Write as _;
        // If stderr is closed, there is nothing left to do.
        let _ = writeln!(std::io::stderr(), "{}", crate::view::sanitize(text));
    }
}

/// Creates the builder for this program. `LONGHAUL_LEASE` sets how many seconds an unresponsive process keeps
/// its tasks.
fn longhaul_builder(team: longhaul::Team) -> longhaul::supervisor::LonghaulBuilder {
    let builder = Longhaul::builder(team);
    let lease = std::env::var("LONGHAUL_LEASE").ok().and_then(|seconds| seconds.trim().parse::<f64>().ok());
    match lease.and_then(|seconds| std::time::Duration::try_from_secs_f64(seconds).ok()) {
        Some(lease) if !lease.is_zero() => builder.lease(lease),
        _ => builder,
    }
}

/// Waits until the store fails for good. A store of another machine that cannot be reached comes back: its runs
/// have ended, and their tasks are claimed again then.
pub(crate) async fn final_store_failure(longhaul: &Longhaul, data_dir: &DataDir) -> StoreError {
    const LOOK_AGAIN: std::time::Duration = std::time::Duration::from_secs(1);
    loop {
        let error = longhaul.store_failure().await;
        let comes_back = |fault| fault != DatabaseFault::Permanent && data_dir.postgres().is_some();
        match &error {
            StoreError::Database { fault, .. } if comes_back(*fault) => tokio::time::sleep(LOOK_AGAIN).await,
            _ => return error,
        }
    }
}

/// Marks an ended task as read, so that `longhaul prune` may delete it. Ignores errors, because reading
/// itself succeeded.
async fn mark_read(longhaul: &Longhaul, id: longhaul::TaskId) {
    let _ = longhaul.mark_read(id).await;
}

/// Starts a background process for the tree of a task, unless a process already runs it. Returns whether one
/// was started.
async fn start_background_process(
    longhaul: &Longhaul,
    data_dir: &DataDir,
    state: &TaskState,
    providers: &ProviderArgs,
) -> Result<bool, CliError> {
    let owned = tree_owner::owned_trees(&**longhaul.store()).await?.contains(&state.root);
    if owned
        || background::running_pid(data_dir, state.root).is_some()
        || serve_lock::is_served(data_dir, state)
    {
        return Ok(false);
    }
    background::start(data_dir, state.root, BackgroundOptions::new(providers)).await?;
    Ok(true)
}

/// Reports which process runs a task whose order or letter was just stored. A failed start is only a warning,
/// because the store has it.
fn report_who_runs(
    context: &CliContext,
    data_dir: &DataDir,
    state: &TaskState,
    background: Result<bool, CliError>,
) -> Result<(), CliError> {
    match background {
        Ok(true) => {
            let watch = data_dir.attach_command(state.root);
            context.note(&format!("it goes on in the background; watch it with:  {watch}"));
        }
        Ok(false) => {}
        Err(error) => {
            context.note(&format!("it is not running: {}", error.message()));
            context.term.print_line(&format!("run it with:  {}", data_dir.resume_command(state.id)))?;
        }
    }
    Ok(())
}

/// Stays until these tasks have ended: runs their trees here, or watches the process that does.
async fn wait_until_ended(
    context: &CliContext,
    longhaul: &Longhaul,
    tasks: Vec<TaskId>,
    providers: &ProviderArgs,
    json: bool,
) -> Result<CliExitCode, CliError> {
    let data_dir = context.data_dir()?;
    let (mut free, mut code) = (Vec::new(), CliExitCode::Success);
    for task in tasks {
        let state = longhaul.state(task).await?;
        let root = state.root;
        let owned = tree_owner::owned_trees(&**longhaul.store()).await?.contains(&root);
        if owned
            || background::running_pid(&data_dir, root).is_some()
            || serve_lock::is_served(&data_dir, &state)
        {
            let watched = attach::run(context, &AttachArgs { id: task.to_string(), json }).await?;
            code = if code == CliExitCode::Success { watched } else { code };
        } else {
            free.push(task.to_string());
        }
    }
    if !free.is_empty() {
        let carried = resume::run(context, &ResumeArgs::for_tasks(free, providers.clone(), json)).await?;
        code = if code == CliExitCode::Success { carried } else { code };
    }
    Ok(code)
}

pub(crate) async fn run(context: &CliContext, command: CliCommand) -> Result<CliExitCode, CliError> {
    match command {
        CliCommand::Run(args) => run::run(context, &args).await,
        CliCommand::Demo(args) => demo::run(context, &args).await,
        CliCommand::Tui(args) => crate::tui::run(context, args).await,
        CliCommand::Tasks(args) => tasks::run(context, &args).await,
        CliCommand::Show(args) => show::run(context, &args).await,
        CliCommand::Logs(args) => logs::run(context, &args).await,
        CliCommand::Send(args) => send::run(context, &args).await,
        CliCommand::Answer(args) => answer::run(context, &args).await,
        CliCommand::Retry(args) => retry::run(context, &args).await,
        CliCommand::Export(args) => export::run(context, &args).await,
        CliCommand::Prune(args) => prune::run(context, &args).await,
        CliCommand::Wait(args) => wait::run(context, &args).await,
        CliCommand::Stop(args) => stop::run(context, &args).await,
        CliCommand::Resume(args) => resume::run(context, &args).await,
        CliCommand::Attach(args) => attach::run(context, &args).await,
        CliCommand::Carry(args) => carry::run(context, &args).await,
        CliCommand::Serve(args) => serve::run(context, &args).await,
        CliCommand::Token(args) => token::run(context, &args),
        CliCommand::Open(args) => token::open(context, &args),
        CliCommand::Mcp(args) => mcp::run(context, &args).await,
        CliCommand::Acp(args) => acp::run(context, &args).await,
        CliCommand::Store(args) => store::run(context, &args).await,
        CliCommand::Check(args) => check::run(context, &args).await,
        CliCommand::Tools(args) => tools::run(context, &args).await,
        CliCommand::Doctor(args) => doctor::run(context, &args).await,
        CliCommand::Completions(args) => completions_and_man::completions(context, &args),
        CliCommand::Man(args) => completions_and_man::man(context, &args),
        CliCommand::Schema(args) => check::print_schema(context, args.of),
        CliCommand::Init(args) => init::run(context, &args),
    }
}

/// Resolves all ids, before anything is done with one of them.
async fn resolve_ids(longhaul: &Longhaul, typed: &[String]) -> Result<Vec<TaskId>, CliError> {
    let mut ids = Vec::new();
    for typed in typed {
        ids.push(longhaul.find(typed).await?);
    }
    Ok(ids)
}
