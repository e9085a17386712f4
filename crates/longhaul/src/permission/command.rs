//! What a command line may do besides what it seems to do.

/// The arguments that are command lines, whatever the tool.
const COMMANDS: [&str; 5] = ["cmd", "command", "cmdline", "command_line", "script"];

/// What makes more than one command of a line, or writes to a file: no wildcard that allows something matches it.
pub(super) const NEVER: [char; 13] =
    [';', '&', '|', '<', '>', '(', ')', '$', '`', '\n', '\r', '\u{85}', '\u{2028}'];

/// Whether an argument, by its name or the last part of it, is a command line.
pub(super) fn is_command(argument: &str) -> bool {
    let last = argument.rsplit('.').next().unwrap_or(argument);
    COMMANDS.iter().any(|name| name.eq_ignore_ascii_case(last))
}

/// The commands that a line may be made of, each as a pattern would name it. More than there are, rather than fewer:
/// quotes are not understood, so that a `;` in them also ends a command.
pub(super) fn parts(line: &str) -> Vec<String> {
    let ends = |c: char| NEVER.contains(&c) || matches!(c, '{' | '}');
    let mut parts = Vec::new();
    for part in line.split(ends) {
        let words: Vec<&str> = part.split_whitespace().collect();
        let mut shown = 0;
        let mut at = 0;
        while at < words.len() {
            let name = words[at].trim_start_matches(['"', '\'', '\\', '!']);
            let bare = name.rsplit('/').next().unwrap_or(name).trim_end_matches(['"', '\'']);
            // What stands before a command and runs it, or is set for it, hides it from nobody. Nor do its options.
            let wraps = name.contains('=') || bare.is_empty() || WRAPPERS.contains(&bare);
            let options = words[at + 1..].iter().take_while(|word| word.starts_with('-')).count();
            let next = if wraps { at + 1 + options } else { words.len() };
            if shown < WRAPPED || next >= words.len() {
                shown += 1;
                parts.push([&[bare], &words[at + 1..]].concat().join(" "));
            }
            at = next;
        }
    }
    parts
}

/// How many of the words that run the command after them count as commands themselves.
const WRAPPED: usize = 8;

/// Words that run the command after them.
const WRAPPERS: [&str; 16] = [
    "sudo", "doas", "env", "exec", "command", "nohup", "time", "nice", "then", "do", "else", "if", "while",
    "until", "builtin", "xargs",
];

/// A path without `.`, `..` and empty parts, as far as that can be said without looking.
pub(super) fn straight(path: &str) -> String {
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
pub(super) fn climbs(path: &str) -> bool {
    path.split(['/', '\\']).any(|part| part == "..")
}
