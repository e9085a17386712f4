//! `longhaul init`.

use std::io::Write as _;

use super::Desk;
use crate::args::InitArgs;
use crate::exit::{Code, Trouble};
use crate::view::{Ink, clean};

const AUTO: &str = include_str!("init/auto.yaml");
const SCRIPTED: &str = include_str!("init/scripted.yaml");

pub(super) fn run(desk: &Desk, args: &InitArgs) -> Result<Code, Trouble> {
    let name = args.file.display().to_string();
    let text = if args.scripted { SCRIPTED } else { AUTO };
    let opened =
        if args.force { std::fs::File::create(&args.file) } else { std::fs::File::create_new(&args.file) };
    opened.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            Trouble::new(Code::Usage, format!("{name} is there already, and stays as it is"))
                .hint("name another file, or write over it with --force")
        }
        _ => Trouble::new(Code::Failed, format!("{name} cannot be written: {error}"))
            .hint("name a file in a directory that you may write to"),
    })?;
    let name = clean(&name);
    let then = format!("longhaul run {name} \"What is in this directory?\"");
    desk.term.line(&format!("wrote   {name}"))?;
    desk.term
        .line(&format!("check   {}", desk.term.paint(Ink::Strong, &format!("longhaul check {name}"))))?;
    desk.term.line(&format!("run     {}", desk.term.paint(Ink::Strong, &then)))?;
    Ok(Code::Fine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_right() {
        for text in [AUTO, SCRIPTED] {
            let reading = longhaul::teamfile::read(text);
            let told: Vec<String> = reading.problems.iter().map(|p| p.render("team.yaml", text)).collect();
            assert!(told.is_empty(), "{}", told.join("\n"));
        }
    }
}
