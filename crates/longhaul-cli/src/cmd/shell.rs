//! `longhaul completions` and `longhaul man`.

use std::path::Path;

use clap::{Command, CommandFactory as _};

use super::Desk;
use crate::args::{Cli, CompletionsArgs, ManArgs};
use crate::exit::{Code, Trouble};

pub(super) fn completions(desk: &Desk, args: &CompletionsArgs) -> Result<Code, Trouble> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "longhaul", &mut script);
    desk.term.line(String::from_utf8_lossy(&script).trim_end())?;
    Ok(Code::Fine)
}

pub(super) fn man(desk: &Desk, args: &ManArgs) -> Result<Code, Trouble> {
    let mut command = Cli::command();
    command.build();
    let Some(dir) = &args.dir else {
        desk.term.line(page(command)?.trim_end())?;
        return Ok(Code::Fine);
    };
    let cannot = |path: &Path, error: std::io::Error| {
        Trouble::new(Code::Failed, format!("{} cannot be written: {error}", path.display()))
            .hint("`--dir DIR` names a directory that you may write to")
    };
    std::fs::create_dir_all(dir).map_err(|error| cannot(dir, error))?;
    let mut pages = vec![("longhaul.1".to_owned(), command.clone())];
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help") {
        pages.push((format!("longhaul-{}.1", sub.get_name()), sub.clone()));
    }
    for (file, command) in pages {
        let path = dir.join(file);
        std::fs::write(&path, page(command)?).map_err(|error| cannot(&path, error))?;
        desk.term.line(&path.display().to_string())?;
    }
    Ok(Code::Fine)
}

fn page(command: Command) -> Result<String, Trouble> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}
