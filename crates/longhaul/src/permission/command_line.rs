//! What a command line may do besides what it seems to do.

/// The arguments that are command lines, whatever the tool.
const COMMANDS: [&str; 5] = ["cmd", "command", "cmdline", "command_line", "script"];

/// What makes more than one command of a line, or writes to a file: no wildcard that allows something matches it.
pub(super) const SHELL_METACHARACTERS: [char; 13] =
    [';', '&', '|', '<', '>', '(', ')', '$', '`', '\n', '\r', '\u{85}', '\u{2028}'];

/// Whether an argument, by its name or the last part of it, is a command line.
pub(super) fn is_command_argument(argument: &str) -> bool {
    let last = argument.rsplit('.').next().unwrap_or(argument);
    COMMANDS.iter().any(|name| name.eq_ignore_ascii_case(last))
}

/// A path without `.`, `..` and empty parts, as far as that can be said without looking.
pub(super) fn normalize_path(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => drop(parts.pop()),
            ".." if path.starts_with('/') => {}
            part => parts.push(part),
        }
    }
    let root = if path.starts_with('/') { "/" } else { "" };
    format!("{root}{}", parts.join("/"))
}

/// Whether a path goes up somewhere, so that it need not be below what it begins with.
pub(super) fn has_parent_component(path: &str) -> bool {
    path.split(['/', '\\']).any(|part| part == "..")
}
