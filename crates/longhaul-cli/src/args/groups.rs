//! The help text of the command list, grouped by purpose.

use std::fmt::Write as _;

use clap::builder::styling::Style;
use clap::{Command, CommandFactory as _};

use super::Cli;
use crate::view::text_format::wrap_text;

/// The groups, as in docs/commands.md. A command in no group is listed last; a test makes sure that there is
/// none.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Run", &["run", "attach", "resume", "serve", "mcp", "acp", "demo", "init", "check", "tools", "schema"]),
    ("Look", &["tui", "tasks", "show", "logs", "wait", "export", "open"]),
    ("Steer", &["send", "answer", "stop", "retry"]),
    ("Keep", &["prune", "store", "token", "doctor", "completions", "man", "help"]),
];

/// Returns the command-line parser, with grouped help.
pub(crate) fn command() -> Command {
    let cli = Cli::command();
    let template = format!(
        "{{before-help}}{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}{}\n{{options}}{{after-help}}",
        listed(&cli, columns()),
        heading(&cli, "Options")
    );
    cli.help_template(template)
}

/// Returns the width of the help text, as clap computes it.
fn columns() -> usize {
    terminal_size::terminal_size().map_or(100, |(width, _)| usize::from(width.0).min(100))
}

fn heading(cli: &Command, text: &str) -> String {
    let style: &Style = cli.get_styles().get_header();
    format!("{style}{text}:{style:#}")
}

/// Lists every command that is not hidden, by group, with its description.
fn listed(cli: &Command, columns: usize) -> String {
    let mut all: Vec<(String, String)> = cli
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
        .map(|command| {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            (command.get_name().to_owned(), about)
        })
        .collect();
    if all.iter().all(|(name, _)| name != "help") {
        all.push(("help".to_owned(), "Print this message or the help of the given command".to_owned()));
    }
    let width = all.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    let name_style: &Style = cli.get_styles().get_literal();
    let mut text = String::new();
    let mut list = |group: &str, commands: Vec<(String, String)>| {
        if commands.is_empty() {
            return;
        }
        let _ = writeln!(text, "{}", heading(cli, group));
        for (name, about) in commands {
            let about = wrap_text(&about, columns.saturating_sub(width + 4).max(20));
            let about = about.replace('\n', &format!("\n{:indent$}", "", indent = width + 4));
            let _ = writeln!(text, "  {name_style}{name:<width$}{name_style:#}  {about}");
        }
        text.push('\n');
    };
    for (group, names) in GROUPS {
        let own = names.iter().filter_map(|name| {
            let at = all.iter().position(|(known, _)| known == name)?;
            Some(all.remove(at))
        });
        list(group, own.collect());
    }
    list("Other", all);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_lists_every_command_once_and_in_a_group() {
        let text = crate::view::sanitize(&listed(&Cli::command(), 60));
        let is_command = |line: &&str| line.starts_with("  ") && !line.starts_with("   ");
        let lines: Vec<&str> = text.lines().filter(is_command).collect();
        assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
        let shown: Vec<&str> = lines.iter().filter_map(|line| line.split_whitespace().next()).collect();
        let mut known: Vec<String> = Cli::command()
            .get_subcommands()
            .filter(|sub| !sub.is_hide_set())
            .map(|sub| sub.get_name().to_owned())
            .collect();
        known.push("help".to_owned());
        for name in &known {
            assert_eq!(shown.iter().filter(|word| **word == name).count(), 1, "{name}: {text}");
        }
        assert_eq!(shown.len(), known.len(), "{text}");
        assert!(!text.contains("Other:") && !text.contains("carry"), "{text}");
        let headings: Vec<&str> = text.lines().filter(|line| line.ends_with(':')).collect();
        assert_eq!(headings, ["Run:", "Look:", "Steer:", "Keep:"]);
    }
}
