//! `longhaul init`.

use std::io::Write as _;

use super::CliContext;
use crate::args::InitArgs;
use crate::exit::{CliError, CliExitCode};
use crate::view::{Ink, sanitize};

const AUTO: &str = include_str!("init/auto.yaml");
const SCRIPTED: &str = include_str!("init/scripted.yaml");

pub(super) fn run(context: &CliContext, args: &InitArgs) -> Result<CliExitCode, CliError> {
    let name = args.file.display().to_string();
    let text = if args.scripted { SCRIPTED } else { AUTO };
    let opened =
        if args.force { std::fs::File::create(&args.file) } else { std::fs::File::create_new(&args.file) };
    opened.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            CliError::new(CliExitCode::Usage, format!("{name} exists already, and was not changed"))
                .with_hint("name another file, or overwrite it with --force")
        }
        _ => CliError::new(CliExitCode::Failed, format!("{name} cannot be written: {error}"))
            .with_hint("name a file in a directory that you may write to"),
    })?;
    let name = sanitize(&name);
    let then = format!("longhaul run {name} \"What is in this directory?\"");
    context.term.print_line(&format!("wrote   {name}"))?;
    context.term.print_line(&format!(
        "check   {}",
        context.term.paint(Ink::Strong, &format!("longhaul check {name}"))
    ))?;
    context.term.print_line(&format!("run     {}", context.term.paint(Ink::Strong, &then)))?;
    Ok(CliExitCode::Success)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_right() {
        for text in [AUTO, SCRIPTED] {
            let reading = longhaul::teamfile::parse(text);
            let problems: Vec<String> =
                reading.problems.iter().map(|p| p.render("team.yaml", text)).collect();
            assert!(problems.is_empty(), "{}", problems.join("\n"));
        }
    }
}
