//! `longhaul attach`.

use jiff::Timestamp;
use longhaul::store::TaskFilter;

use super::CliContext;
use crate::args::AttachArgs;
use crate::background;
use crate::exit::{CliError, CliExitCode};
use crate::run_session::{OutputMode, RunSession};
use crate::seen_events;
use crate::serve_lock;
use crate::tree_owner;
use crate::view::{Ink, pluralize};

pub(super) async fn run(context: &CliContext, args: &AttachArgs) -> Result<CliExitCode, CliError> {
    // A program gets all past events; a person sees the current state in the live block.
    let since = if args.json { Timestamp::UNIX_EPOCH } else { Timestamp::now() };
    let data_dir = context.data_dir()?;
    let longhaul = context.client().await?;
    let id = longhaul.find(&args.id).await?;
    let state = longhaul.state(id).await?;
    let root = state.root;
    let open = longhaul.list(TaskFilter::tree(root).live()).await?;
    let reported_tasks =
        seen_events::tasks_to_report(&longhaul.list(TaskFilter::tree(root)).await?, root, &[id]);
    if !open.is_empty()
        && !tree_owner::owned_trees(&**longhaul.store()).await?.contains(&root)
        && background::running_pid(&data_dir, root).is_none()
        && !serve_lock::is_served(&data_dir, &state)
    {
        return Err(CliError::new(
            CliExitCode::Failed,
            format!("{root} is not running: there is nothing to watch"),
        )
        .with_hint(format!("resume it: {}", data_dir.resume_command(root))));
    }
    let which = context.term.paint(Ink::Id, &root.to_string());
    let intro = match open.len() {
        0 => Vec::new(),
        open => vec![
            format!("Watching {} of {which}; Ctrl-C leaves, and they go on", pluralize(open, "task")),
            String::new(),
        ],
    };
    let mode = if args.json { OutputMode::Json } else { OutputMode::Human };
    let session = RunSession::new(context, &data_dir, longhaul, vec![root]);
    RunSession { since, mode, runs_here: false, intro, reported_tasks, ..session }.run().await
}
