//! A transcript as Markdown.

use jiff::Timestamp;

use longhaul::transcript::{ItemKind, describe_end, describe_question, sender};

use super::transcript::{ExportedTask, pretty_arguments, status_line};
use crate::view::{escape_invisible, format_timestamp, one_line, sanitize};

/// Renders the whole transcript.
pub(super) fn render_markdown(tasks: &[ExportedTask], now: Timestamp) -> String {
    let mut page = String::new();
    for (index, task) in tasks.iter().enumerate() {
        let state = &task.state;
        let level = if index == 0 { "#" } else { "##" };
        page += &format!(
            "{level} {} {}\n\n{}\n",
            state.id,
            escaped(&one_line(&state.headline)),
            escaped(&status_line(state, now))
        );
        let links = [("parent", state.parent), ("continues", state.continues), ("retries", state.retries)];
        for (name, id) in links.into_iter().filter_map(|(name, id)| Some((name, id?))) {
            page += &format!("{name}: {id}  \n");
        }
        page += &format!(
            "submitted: {}\n\n**Order**\n\n{}\n",
            format_timestamp(state.created),
            quoted(&sanitize(&task.order.task))
        );
        for item in task.before_answer() {
            page.push('\n');
            page += &render_markdown_item(&item.kind);
        }
        if !task.output.trim().is_empty() {
            page += &format!("\n**{}**\n\n{}\n", task.output_title(), sanitize(&task.output).trim_end());
        }
        page.push('\n');
    }
    page + &format!("---\n\nExported by Longhaul {}, {}.\n", env!("CARGO_PKG_VERSION"), format_timestamp(now))
}

fn render_markdown_item(what: &ItemKind) -> String {
    match what {
        ItemKind::Order(_) => String::new(),
        ItemKind::Thought { text, .. } => format!("*thinks*\n\n{}\n", quoted(&sanitize(text))),
        ItemKind::Said { text, .. } => format!("{}\n", sanitize(text).trim_end()),
        ItemKind::Call { tool, arguments, result, .. } => {
            let state = match result {
                None => " (no result)",
                Some(got) if got.is_error => " (error)",
                Some(_) => "",
            };
            let tool = one_line(tool).replace('`', "'");
            let mut text = format!(
                "**calls** `{tool}`{state}\n\n{}",
                fenced(&escape_invisible(&pretty_arguments(arguments)), "json")
            );
            if let Some(got) = result {
                text += &format!("\n{}", fenced(&got.output, ""));
            }
            text
        }
        ItemKind::Letter { from, text, ended, .. } => {
            let title = match ended {
                Some(end) => format!("{} {} {}", one_line(end.agent.as_str()), end.task, end.verb()),
                None => format!("letter from {}", sender(from)),
            };
            format!("**{}**\n\n{}\n", escaped(&title), quoted(&sanitize(text)))
        }
        ItemKind::Asked { asks, answer, .. } => {
            let answer = answer.as_ref().map(|answer| escaped(&one_line(&answer.to_string())));
            let answer = answer.unwrap_or_else(|| "not answered".to_owned());
            format!("**asks**\n\n{}\n\n**answer**: {answer}\n", quoted(&describe_question(asks)))
        }
        ItemKind::Note(phrase) => format!("*{}*\n", escaped(&phrase.sentence())),
        ItemKind::End { status, error, cut_short } => {
            format!("*{}*\n", escaped(&describe_end(*status, error.as_deref(), cut_short.as_deref())))
        }
    }
}

/// Returns a fenced block whose fence does not occur in the text.
fn fenced(text: &str, language: &str) -> String {
    let text = sanitize(text);
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}{language}\n{}\n{fence}\n", text.trim_end())
}

fn quoted(text: &str) -> String {
    text.trim_end()
        .lines()
        .map(|line| format!("> {line}").trim_end().to_owned())
        .collect::<Vec<_>>()
        .join("\n")
}

/// Escapes everything that Markdown would interpret in a line.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if "\\`*_[]<>#|".contains(c) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_inside_ends_a_block() {
        assert_eq!(fenced("a ``` b ```` c", ""), "`````\na ``` b ```` c\n`````\n");
        assert_eq!(fenced("plain", "json"), "```json\nplain\n```\n");
        assert_eq!(escaped("a*b <i>"), "a\\*b \\<i\\>");
        assert_eq!(quoted("a\n\nb\n"), "> a\n>\n> b");
    }
}
