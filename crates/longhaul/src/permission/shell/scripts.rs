//! Scripts within a command line: whether one could run commands.

use super::{CommandLine, ShellWord};

/// `awk` runs commands with `system` and with pipes.
pub(super) fn awk(name: &str, args: &[ShellWord], found: &mut CommandLine, sure: bool) {
    let runs = |word: &ShellWord| match word.known() {
        None => word.splits,
        Some(text) => {
            text.contains("system")
                || text.contains('@')
                || text.replace("||", "").contains('|')
                || text.contains('\\') && text.contains("sys")
        }
    };
    let unknown =
        args.iter().filter(|word| !word.start().starts_with('-')).take(1).any(|word| word.known().is_none());
    let extension = args.iter().any(|word| {
        let text = word.start();
        text.starts_with("-l")
            || text.starts_with("--load")
            || text.starts_with("-e")
            || text.starts_with("--source")
    });
    if sure && (unknown || extension || args.iter().any(runs)) {
        found.unclear(format!("the program of `{name}` may run commands"));
    }
}

/// GNU `sed` runs commands with `e`.
pub(super) fn sed(name: &str, args: &[ShellWord], found: &mut CommandLine, sure: bool) {
    let mut scripts = Vec::new();
    let mut at = 0;
    let mut file = false;
    while let Some(word) = args.get(at) {
        at += 1;
        let text = word.start();
        if let Some(script) = text.strip_prefix("--expression=") {
            scripts.push((word.known().is_some(), script.to_owned()));
        } else if text.starts_with("--file") || text.starts_with("-f") {
            file = true;
        } else if text == "-e" || text == "--expression" {
            let next = args.get(at);
            at += 1;
            scripts.push((
                next.is_some_and(|word| word.known().is_some()),
                next.map_or("", ShellWord::start).to_owned(),
            ));
        } else if text.starts_with("--") || text == "-" {
        } else if let Some(letters) = text.strip_prefix('-') {
            // The letters after `-i` in `-i.bak` are not options.
            let ends = letters.find(['i', 'e', 'l', 'f']);
            match ends.map(|place| (&letters[place..=place], &letters[place + 1..])) {
                Some(("e", "")) => {
                    let next = args.get(at);
                    at += 1;
                    let known = next.is_some_and(|word| word.known().is_some());
                    scripts.push((known, next.map_or("", ShellWord::start).to_owned()));
                }
                Some(("e", script)) => scripts.push((word.known().is_some(), script.to_owned())),
                Some(("f", _)) => file = true,
                _ => {}
            }
        } else if scripts.is_empty() && !file {
            scripts.push((word.known().is_some(), text.to_owned()));
            file = true;
        }
    }
    let clear = scripts.iter().all(|(known, script)| *known && is_plain_sed(script));
    if sure && !clear {
        found.unclear(format!("the script of `{name}` may run commands"));
    }
}

/// Whether a `sed` script can be parsed and has no `e` in it.
fn is_plain_sed(script: &str) -> bool {
    let text: Vec<char> = script.chars().collect();
    let mut at = 0;
    while at < text.len() {
        let c = text[at];
        at += 1;
        match c {
            ' ' | '\t' | '\n' | ';' | '{' | '}' | ',' | '!' | '~' | '+' | '$' | '0'..='9' => {}
            // An address.
            '/' => match delimited(&text, at, '/') {
                Some(end) => at = end + text[end..].iter().take_while(|c| matches!(c, 'I' | 'M')).count(),
                None => return false,
            },
            's' | 'y' => {
                let Some(&by) = text.get(at).filter(|by| !by.is_alphanumeric() && !by.is_whitespace()) else {
                    return false;
                };
                let Some(end) = delimited(&text, at + 1, by).and_then(|end| delimited(&text, end, by)) else {
                    return false;
                };
                let flags = text[end..].iter().take_while(|c| c.is_alphanumeric());
                let flags: Vec<char> = flags.copied().collect();
                if flags.iter().any(|flag| !matches!(flag, 'g' | 'p' | 'i' | 'I' | 'm' | 'M' | '0'..='9')) {
                    return false;
                }
                at = end + flags.len();
            }
            'p' | 'd' | 'D' | 'P' | 'g' | 'G' | 'h' | 'H' | 'x' | 'n' | 'N' | 'q' | 'Q' | '=' | 'l' | 'z'
            | 'F' => {}
            // A text up to the end of its line.
            'a' | 'i' | 'c' if text[at..].first() == Some(&'\\') || text[at..].first() == Some(&' ') => {
                at += text[at..].iter().take_while(|c| **c != '\n').count();
                if text[..at].last() == Some(&'\\') {
                    return false;
                }
            }
            _ => return false,
        }
    }
    true
}

/// The position after the next delimiter that is not escaped.
fn delimited(text: &[char], mut at: usize, by: char) -> Option<usize> {
    loop {
        match *text.get(at)? {
            '\\' => at += 2,
            // It may be in a class, where it delimits nothing: that is too much to parse.
            '[' if by != '[' && text[at..].iter().take_while(|c| **c != ']').any(|c| *c == by) => {
                return None;
            }
            c if c == by => return Some(at + 1),
            _ => at += 1,
        }
    }
}

/// Interpreters, each with the options that contain a program, or make it read one.
const INTERPRETERS: [(&str, &str); 22] = [
    ("python", "c"),
    ("pypy", "c"),
    ("perl", "eE"),
    ("ruby", "e"),
    ("node", "ep"),
    ("nodejs", "ep"),
    ("deno", "ep"),
    ("bun", "ep"),
    ("php", "rBRE"),
    ("lua", "e"),
    ("luajit", "e"),
    ("tclsh", "c"),
    ("wish", "c"),
    ("expect", "c"),
    ("Rscript", "e"),
    ("julia", "eE"),
    ("guile", "c"),
    ("osascript", "e"),
    ("pwsh", "cCe"),
    ("elixir", "e"),
    ("groovy", "e"),
    ("raku", "e"),
];

/// Programs that can run commands, whatever their arguments are.
const CONSOLES: [&str; 8] = ["ed", "ex", "gdb", "lldb", "m4", "irb", "iex", "ghci"];

/// Whether it is an interpreter; adds what it would run.
pub(super) fn interpreter(name: &str, args: &[ShellWord], found: &mut CommandLine, sure: bool) -> bool {
    if CONSOLES.contains(&name) {
        if sure {
            found.unclear(format!("`{name}` may run commands"));
        }
        return true;
    }
    let bare = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let Some((_, letters)) = INTERPRETERS.iter().find(|(own, _)| *own == bare) else { return false };
    let mut inline = true;
    let mut args = args.iter();
    while let Some(word) = args.next() {
        let text = word.start();
        if word.known().is_none() {
            break;
        }
        if !text.starts_with('-') {
            // A file or a subcommand; a program follows `eval`.
            inline = matches!(text, "eval" | "repl" | "exec");
            break;
        }
        if matches!(text, "--version" | "--help" | "-V" | "-v" | "-h" | "-version" | "-VV" | "--check" | "-c")
            && !(text.len() == 2 && letters.contains(&text[1..]))
        {
            inline = false;
            break;
        }
        if text == "-m" && letters.contains('c') {
            inline = false;
            break;
        }
        if text == "-" || text.starts_with("--e") || text.starts_with("--p") || text.starts_with("--run") {
            break;
        }
        if !text.starts_with("--") && text[1..].contains(|c: char| letters.contains(c)) {
            break;
        }
        if matches!(text, "-W" | "-X" | "-r" | "-I" | "--require" | "-d" | "--import" | "--loader") {
            args.next();
        }
    }
    if inline && sure {
        found.unclear(format!("`{name}` runs a program that is not looked at"));
    }
    true
}
