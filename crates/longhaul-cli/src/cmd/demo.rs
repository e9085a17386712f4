//! `longhaul demo`.

use std::path::Path;

use jiff::Timestamp;
use longhaul::Order;
use longhaul::entry::TeamRef;
use longhaul::model::scripted::ModelScript;

use super::CliContext;
use crate::args::DemoArgs;
use crate::demo;
use crate::exit::{CliError, CliExitCode};
use crate::run_session::{OutputMode, RunSession};
use crate::view::{Ink, sanitize};

pub(super) async fn run(context: &CliContext, args: &DemoArgs) -> Result<CliExitCode, CliError> {
    let here = std::env::current_dir().map_err(|error| {
        CliError::new(CliExitCode::Failed, format!("the current directory cannot be used: {error}"))
            .with_hint("change to a directory that exists")
    })?;
    let since =
        Timestamp::from_millisecond(Timestamp::now().as_millisecond()).unwrap_or(Timestamp::UNIX_EPOCH);
    let data_dir = context.data_dir()?;
    let own = args.script.as_deref().map(read).transpose()?;
    let store = data_dir.open_store().await?;
    let team = match own {
        None => demo::demo_team(args.pace).map_err(demo_failure)?,
        Some((script, text)) => {
            let digest = store.put_blob(demo::stored_script(&text)).await?;
            demo::team_from_script(script, args.pace)
                .map_err(|why| demo_failure(why.into()))?
                .with_reference(TeamRef::File(digest))
        }
    };
    let longhaul = super::longhaul_builder(team).shared_store(store).own_trees_only().start().await?;
    let root = longhaul.submit(Order::new("lead", demo::DEMO_TASK).working_dir(&here)).await?;
    let term = context.term;
    let what = format!(
        "A scripted lead and four agents with real tools take stock of {}",
        sanitize(&here.display().to_string())
    );
    let intro = vec![
        term.wrap(&what),
        format!("task    {}", term.paint(Ink::Id, &root.to_string())),
        format!("resume  {}", term.paint(Ink::Strong, &sanitize(&data_dir.resume_command(root)))),
        term.paint(Ink::Faint, &term.wrap("Kill it at any time: nothing is lost.")),
        String::new(),
    ];
    let mode = if args.json { OutputMode::Json } else { OutputMode::Human };
    let code = RunSession { since, mode, intro, ..RunSession::new(context, &data_dir, longhaul, vec![root]) }
        .run()
        .await?;
    if code == CliExitCode::Success && !args.json {
        term.print_line("")?;
        term.print_line("What next?")?;
        let next = [
            (data_dir.show_command(root), "this run in full"),
            (data_dir.shell_command("tui"), "all tasks on one screen"),
            (data_dir.shell_command("init team.yaml"), "a team of your own, with a real model"),
        ];
        let width = next.iter().map(|(command, _)| command.chars().count()).max().unwrap_or_default();
        for (command, what) in next {
            let command = format!("{:<width$}", sanitize(&command));
            term.print_line(&format!(
                "  {}  {}",
                term.paint(Ink::Strong, &command),
                term.paint(Ink::Faint, what)
            ))?;
        }
    }
    Ok(code)
}

/// Reads a script from a file.
fn read(path: &Path) -> Result<(ModelScript, String), CliError> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| {
        CliError::new(CliExitCode::Usage, format!("the script {name} cannot be read: {error}"))
            .with_hint("without `--script` the demo plays its own")
    })?;
    let script = ModelScript::parse(&name, &text).map_err(|error| {
        CliError::new(CliExitCode::Usage, error.to_string())
            .with_hint("see docs/scripted.md for what a script may contain")
    })?;
    Ok((script, text))
}

/// Reports that the built-in script is wrong: a bug in Longhaul.
pub(super) fn demo_failure(why: demo::DemoError) -> CliError {
    CliError::new(
        CliExitCode::Failed,
        format!("the demo's team is broken, which is a bug in Longhaul: {why}"),
    )
    .with_hint("please report it")
}
