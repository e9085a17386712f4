//! `longhaul completions` and `longhaul man`.

use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;

use clap::Command;
use clap_complete::env::{CompleteEnv, Shells};

use super::CliContext;
use crate::args::{self, CompletionsArgs, ManArgs};
use crate::exit::{CliError, CliExitCode};

/// The environment variable by which a shell requests completions.
const ASKS: &str = "LONGHAUL_COMPLETE";

/// Prints completions if a shell requests them. The shell calls this program, so that task ids can be
/// completed.
pub(crate) fn complete() -> Option<ExitCode> {
    // Check this first, so that other invocations pay nothing for it.
    std::env::var_os(ASKS).filter(|shell| shell != OsStr::new(""))?;
    let here = std::env::current_dir().ok();
    let answered = CompleteEnv::with_factory(args::command)
        .var(ASKS)
        .bin("longhaul")
        .completer("longhaul")
        .try_complete(std::env::args_os(), here.as_deref());
    match answered {
        Ok(true) => Some(ExitCode::SUCCESS),
        Ok(false) => None,
        Err(_) => Some(ExitCode::from(CliExitCode::Usage as u8)),
    }
}

pub(super) fn completions(context: &CliContext, args: &CompletionsArgs) -> Result<CliExitCode, CliError> {
    let mut script = Vec::new();
    let shells = Shells::builtins();
    match shells.completer(&args.shell.to_string()) {
        Some(shell) => shell.write_registration(ASKS, "longhaul", "longhaul", "longhaul", &mut script)?,
        None => clap_complete::generate(args.shell, &mut args::command(), "longhaul", &mut script),
    }
    context.term.print_line(String::from_utf8_lossy(&script).trim_end())?;
    Ok(CliExitCode::Success)
}

pub(super) fn man(context: &CliContext, args: &ManArgs) -> Result<CliExitCode, CliError> {
    let mut command = args::command();
    command.build();
    let Some(dir) = &args.dir else {
        context.term.print_line(render_man_page(command)?.trim_end())?;
        return Ok(CliExitCode::Success);
    };
    let cannot = |path: &Path, error: std::io::Error| {
        CliError::new(CliExitCode::Failed, format!("{} cannot be written: {error}", path.display()))
            .with_hint("`--dir DIR` names a directory that you may write to")
    };
    std::fs::create_dir_all(dir).map_err(|error| cannot(dir, error))?;
    let mut pages = vec![("longhaul.1".to_owned(), command.clone())];
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help") {
        pages.push((format!("longhaul-{}.1", sub.get_name()), sub.clone()));
    }
    for (file, command) in pages {
        let path = dir.join(file);
        std::fs::write(&path, render_man_page(command)?).map_err(|error| cannot(&path, error))?;
        context.term.print_line(&path.display().to_string())?;
    }
    Ok(CliExitCode::Success)
}

fn render_man_page(command: Command) -> Result<String, CliError> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}
