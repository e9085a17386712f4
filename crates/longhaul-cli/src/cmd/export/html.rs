//! A transcript as one HTML page: no scripts, no external resources, all foreign text escaped.

use std::collections::HashSet;

use jiff::Timestamp;
use longhaul::TaskId;
use longhaul::transcript::{
    ItemKind, TranscriptItem, describe_end, describe_question, lay_out_arguments, main_argument, sender,
};

use super::transcript::{ExportedTask, status_line};
use crate::view::markdown::{escaped, html};
use crate::view::{format_clock, format_timestamp, one_line, sanitize, truncate};

const STYLE: &str = "\
:root{color-scheme:light dark;--faint:#6b7280;--line:#8884;--soft:#8881}
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;overflow-wrap:anywhere}
h1{font-size:1.4rem;line-height:1.25}h2{font-size:1.15rem;border-top:1px solid var(--line);padding-top:1.2rem;margin-top:2.4rem}
h3{font-size:1rem;margin:1.2rem 0 .3rem}h4{font-size:1.15rem}h5{font-size:1.05rem}h6{font-size:.95rem}h4,h5,h6{margin:.9rem 0 .3rem}
code,pre,.aligned{font:13px/1.45 ui-monospace,monospace}pre,.aligned{white-space:pre-wrap}
pre{background:var(--soft);padding:.6rem;border-radius:.4rem;margin:.4rem 0;max-height:40rem;overflow:auto}
p,ul,ol,blockquote{margin:.5rem 0}ul,ol{padding-left:1.6rem}
blockquote{border-left:3px solid var(--line);padding-left:.8rem;margin-left:0}
.table{overflow-x:auto}table{border-collapse:collapse;margin:.5rem 0}th,td{border:1px solid var(--line);padding:.25rem .6rem;text-align:left;vertical-align:top;overflow-wrap:normal}
.right{text-align:right}.center{text-align:center}
.meta,.note,time{color:var(--faint)}.note{margin:.3rem 0;font-size:.9rem}
.order,.letter{border-left:3px solid var(--line);padding-left:.8rem}.answer{border-left:3px solid #15803d;padding-left:.8rem}
details{margin:.35rem 0}summary{cursor:pointer}details>div,details>dl,details>pre,details>p{margin-left:1rem}
time{float:right;font-size:.8rem;margin-left:.8rem}
dl{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:.2rem .8rem;margin-top:.4rem;margin-bottom:.4rem}
dt{color:var(--faint);font:13px/1.45 ui-monospace,monospace}dd{margin:0}dd pre{margin:0}
.completed{color:#15803d}.failed,.error{color:#b91c1c}.cancelled{color:#a16207}.running,.pending{color:#0e7490}
nav ul{list-style:none;padding-left:1.2rem}nav>ul{padding-left:0}a{color:inherit}
@media(prefers-color-scheme:dark){.completed{color:#4ade80}.failed,.error{color:#f87171}.cancelled{color:#facc15}.running,.pending{color:#22d3ee}}
@media(max-width:40rem){body{margin:1rem auto;padding:0 .7rem}dl{grid-template-columns:minmax(0,1fr)}dd{margin:0 0 .3rem}details>div,details>dl,details>pre,details>p{margin-left:.3rem}}
";

/// Renders the whole page.
pub(super) fn render_html(tasks: &[ExportedTask], now: Timestamp) -> String {
    let title = tasks.first().map_or_else(String::new, |task| one_line(&task.state.headline));
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n",
        escaped(&title)
    );
    if tasks.len() > 1 {
        page += &contents(tasks);
    }
    let here: HashSet<TaskId> = tasks.iter().map(|task| task.state.id).collect();
    for (index, task) in tasks.iter().enumerate() {
        page += &section(task, index == 0, &here, now);
    }
    let made = format!("Exported by Longhaul {}, {}", env!("CARGO_PKG_VERSION"), format_timestamp(now));
    page + &format!("<p class=\"meta\">{}</p>\n</body>\n</html>\n", escaped(&made))
}

/// Renders the tree, with a link to each task's section.
fn contents(tasks: &[ExportedTask]) -> String {
    fn below(tasks: &[ExportedTask], of: &ExportedTask, list: &mut String) {
        let (state, id) = (&of.state, of.state.id);
        let agent = escaped(&one_line(state.agent.as_str()));
        let (status, headline) = (state.status, escaped(&one_line(&state.headline)));
        *list += &format!(
            "<li><a href=\"#{id}\"><code>{id}</code></a> <span class=\"{status}\">{status}</span> {agent}: {headline}"
        );
        let children: Vec<&ExportedTask> =
            tasks.iter().filter(|task| task.state.parent == Some(id)).collect();
        if !children.is_empty() {
            *list += "\n<ul>\n";
            children.into_iter().for_each(|child| below(tasks, child, list));
            *list += "</ul>\n";
        }
        *list += "</li>\n";
    }
    let mut list = String::new();
    if let Some(first) = tasks.first() {
        below(tasks, first, &mut list);
    }
    format!("<nav>\n<ul>\n{list}</ul>\n</nav>\n")
}

fn section(task: &ExportedTask, first: bool, here: &HashSet<TaskId>, now: Timestamp) -> String {
    let state = &task.state;
    let level = if first { "h1" } else { "h2" };
    let mut text = format!(
        "<section id=\"{0}\">\n<{level}><code>{0}</code> {1}</{level}>\n<p class=\"meta\"><span class=\"{2}\">{3}</span>, submitted {4}",
        state.id,
        escaped(&one_line(&state.headline)),
        state.status,
        escaped(&status_line(state, now)),
        format_timestamp(state.created),
    );
    let links = [("parent", state.parent), ("continues", state.continues), ("retries", state.retries)];
    for (name, id) in links.into_iter().filter_map(|(name, id)| Some((name, id?))) {
        text += &format!(", {name} {}", link(id, here));
    }
    text += &format!("</p>\n<div class=\"order\">\n{}</div>\n", html(&task.order.task));
    let more = [("Expected output", &task.order.expected_output), ("Context", &task.order.context)];
    for (title, words) in more.into_iter().filter_map(|(title, words)| Some((title, words.as_ref()?))) {
        text += &format!("<h3>{title}</h3>\n<div class=\"order\">\n{}</div>\n", html(words));
    }
    task.before_answer().for_each(|item| text += &render_html_item(item, here));
    if !task.output.trim().is_empty() {
        let (title, output) = (task.output_title(), html(&task.output));
        text += &format!("<h3>{title}</h3>\n<div class=\"answer\">\n{output}</div>\n");
    }
    text + "</section>\n"
}

/// Renders a task's id, as a link if its section is on the page.
fn link(id: TaskId, here: &HashSet<TaskId>) -> String {
    match here.contains(&id) {
        true => format!("<a href=\"#{id}\">{id}</a>"),
        false => id.to_string(),
    }
}

fn render_html_item(item: &TranscriptItem, here: &HashSet<TaskId>) -> String {
    let time = format!("<time datetime=\"{}\">{}</time>", item.at, format_clock(item.at));
    let body = |text: &str| escaped(sanitize(text).trim_end());
    match &item.kind {
        ItemKind::Order(_) => String::new(),
        ItemKind::Thought { text, .. } => format!(
            "<details><summary class=\"meta\">{time}thinks</summary><div class=\"meta\">\n{}</div></details>\n",
            html(text)
        ),
        ItemKind::Said { text, .. } => format!("{time}<div class=\"said\">\n{}</div>\n", html(text)),
        ItemKind::Call { tool, arguments, result, .. } => {
            let (class, state) = match result {
                None => ("meta", " (no result)"),
                Some(got) if got.is_error => ("error", " (error)"),
                Some(_) => ("", ""),
            };
            let tool = escaped(&one_line(tool));
            let main = escaped(&truncate(&main_argument(arguments), 100));
            let output =
                result.as_ref().map(|got| format!("<pre>{}</pre>", body(&got.output))).unwrap_or_default();
            format!(
                "<details><summary class=\"{class}\">{time}calls <code>{tool}</code> <span class=\"meta\">{main}</span>{state}</summary>\n{}{output}</details>\n",
                laid_out(arguments)
            )
        }
        ItemKind::Letter { from, text, ended, .. } => {
            let begins = match ended {
                Some(end) => {
                    let (agent, task) = (escaped(&one_line(end.agent.as_str())), link(end.task, here));
                    let how = format!("<span class=\"{}\">{}</span>", end.status, end.verb());
                    format!("<details><summary>{time}{agent} {task} {how}")
                }
                None => format!("<details open><summary>{time}letter from {}", escaped(&sender(from))),
            };
            format!("{begins}</summary><div class=\"letter\">\n{}</div></details>\n", html(text))
        }
        ItemKind::Asked { asks, answer, .. } => {
            let answer =
                answer.as_ref().map_or_else(|| "not answered".to_owned(), |said| body(&said.to_string()));
            format!("{time}<p>asks: {}<br>answer: {answer}</p>\n", escaped(&describe_question(asks)))
        }
        ItemKind::Note(phrase) => format!("<p class=\"note\">{time}{}</p>\n", escaped(&phrase.sentence())),
        ItemKind::End { status, error, cut_short } => {
            format!(
                "<p class=\"note\">{time}{}</p>\n",
                escaped(&describe_end(*status, error.as_deref(), cut_short.as_deref()))
            )
        }
    }
}

/// Formats arguments one per line; leaves text that is not a JSON object as it is.
fn laid_out(arguments: &str) -> String {
    let row = |(name, value): (String, String)| {
        let value = match name.is_empty() || value.contains('\n') {
            true => format!("<pre>{}</pre>", escaped(&value)),
            false => format!("<code>{}</code>", escaped(&value)),
        };
        if name.is_empty() { value } else { format!("<dt>{}</dt><dd>{value}</dd>\n", escaped(&name)) }
    };
    match lay_out_arguments(arguments).into_iter().map(row).collect::<String>() {
        rows if rows.starts_with("<dt>") => format!("<dl>\n{rows}</dl>\n"),
        rows => rows,
    }
}

#[cfg(test)]
#[path = "html_tests.rs"]
mod tests;
