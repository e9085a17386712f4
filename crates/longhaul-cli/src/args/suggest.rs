//! Suggests a command for a mistyped one.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, FromArgMatches as _};

use super::{Cli, command};

/// Names that people know from other programs.
const FAMILIAR_NAMES: [(&str, &str); 13] = [
    ("ls", "tasks"),
    ("list", "tasks"),
    ("ps", "tasks"),
    ("status", "tasks"),
    ("top", "tui"),
    ("kill", "stop"),
    ("cancel", "stop"),
    ("rm", "prune"),
    ("delete", "prune"),
    ("start", "run"),
    ("log", "logs"),
    ("message", "send"),
    ("new", "init"),
];

/// Parses the command line. The error for an unknown command suggests the nearest one.
pub(crate) fn parse(args: Vec<std::ffi::OsString>) -> Result<Cli, clap::Error> {
    let mut command = command();
    let parsed = command
        .try_get_matches_from_mut(args)
        .and_then(|found| Cli::from_arg_matches(&found).map_err(|error| error.format(&mut command)));
    parsed.map_err(|mut error| {
        let typed = match error.get(ContextKind::InvalidSubcommand) {
            Some(ContextValue::String(typed)) if error.kind() == ErrorKind::InvalidSubcommand => {
                typed.clone()
            }
            _ => return error,
        };
        if let Some(meant) = suggest_command(&typed) {
            error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec![meant]));
        }
        error
    })
}

/// Returns the command nearest to what was typed, if one is near.
fn suggest_command(typed: &str) -> Option<String> {
    let typed = typed.to_lowercase();
    if let Some((_, meant)) = FAMILIAR_NAMES.iter().find(|(word, _)| *word == typed) {
        return Some((*meant).to_owned());
    }
    let all = Cli::command();
    let near = all.get_subcommands().filter(|command| !command.is_hide_set()).map(|command| {
        (strsim::damerau_levenshtein(&typed, command.get_name()), command.get_name().to_owned())
    });
    near.filter(|(far, name)| *far <= 2 && *far < name.len().max(2) - 1).min().map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::suggest_command;

    #[test]
    fn the_nearest_command_is_meant() {
        for (typed, command) in [
            ("rnu", Some("run")),
            ("runn", Some("run")),
            ("taks", Some("tasks")),
            ("ls", Some("tasks")),
            ("PS", Some("tasks")),
            ("kill", Some("stop")),
            ("resmue", Some("resume")),
            ("docter", Some("doctor")),
            ("crary", None),
            ("xyzzy", None),
            ("q", None),
        ] {
            assert_eq!(suggest_command(typed).as_deref(), command, "{typed}");
        }
    }
}
