//! Recognizes arguments that are command lines or paths.

/// Argument names that mean a command line in any tool.
const COMMANDS: [&str; 5] = ["cmd", "command", "cmdline", "command_line", "script"];

/// Characters that turn a line into more than one command, or write to a file. Wildcards of patterns that
/// allow never match them.
pub(super) const SHELL_METACHARACTERS: [char; 13] =
    [';', '&', '|', '<', '>', '(', ')', '$', '`', '\n', '\r', '\u{85}', '\u{2028}'];

/// Whether an argument is a command line, by its name or the last part of it.
pub(super) fn is_command_argument(argument: &str) -> bool {
    let last = argument.rsplit('.').next().unwrap_or(argument);
    COMMANDS.iter().any(|name| name.eq_ignore_ascii_case(last))
}

/// A path without `.`, `..` and empty parts, as far as possible without reading the file system.
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

/// Whether a path contains `..`, so that it may not be below its own prefix.
pub(super) fn has_parent_component(path: &str) -> bool {
    path.split(['/', '\\']).any(|part| part == "..")
}
