//! A transcript as one page of HTML: no script, nothing from outside, all that others wrote escaped.

use jiff::Timestamp;

use super::transcript::{Item, Transcript, What, line, pretty};
use crate::view::{clean, clock, moment, one_line, visible};

const STYLE: &str = "\
:root{color-scheme:light dark;--faint:#6b7280;--line:#8884;--soft:#8881}
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.4rem}h2{font-size:1.1rem;border-top:1px solid var(--line);padding-top:1.2rem;margin-top:2rem}
code,pre{font:13px/1.45 ui-monospace,monospace}pre{white-space:pre-wrap;overflow-wrap:anywhere;background:var(--soft);padding:.6rem;border-radius:.4rem;margin:.4rem 0}
.meta,.note,time{color:var(--faint)}.note{margin:.3rem 0}.said,.order,.result{white-space:pre-wrap;overflow-wrap:anywhere}
.order,.letter{border-left:3px solid var(--line);padding-left:.8rem}.letter{white-space:pre-wrap;overflow-wrap:anywhere}
details{margin:.3rem 0}summary{cursor:pointer}time{float:right;font-size:.8rem}
.completed{color:#15803d}.failed,.error{color:#b91c1c}.cancelled{color:#a16207}.running,.pending{color:#0e7490}
nav ul{list-style:none;padding-left:1.2rem}nav>ul{padding-left:0}a{color:inherit}
";

/// All of it.
pub(super) fn page(tasks: &[Transcript], now: Timestamp) -> String {
    let title = tasks.first().map_or_else(String::new, |task| one_line(&task.head.headline));
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n",
        escaped(&title)
    );
    if tasks.len() > 1 {
        page += &contents(tasks);
    }
    for (index, task) in tasks.iter().enumerate() {
        page += &section(task, index == 0, now);
    }
    let made = format!("Exported by Longhaul {}, {}", env!("CARGO_PKG_VERSION"), moment(now));
    page + &format!("<p class=\"meta\">{}</p>\n</body>\n</html>\n", escaped(&made))
}

/// The tree, each task a link to where it is told.
fn contents(tasks: &[Transcript]) -> String {
    fn below(tasks: &[Transcript], of: &Transcript, list: &mut String) {
        let (head, id) = (&of.head, of.head.id);
        let agent = escaped(&one_line(head.agent.as_str()));
        let (status, headline) = (head.status, escaped(&one_line(&head.headline)));
        *list += &format!(
            "<li><a href=\"#{id}\"><code>{id}</code></a> <span class=\"{status}\">{status}</span> {agent}: {headline}"
        );
        let children: Vec<&Transcript> = tasks.iter().filter(|task| task.head.parent == Some(id)).collect();
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

fn section(task: &Transcript, first: bool, now: Timestamp) -> String {
    let head = &task.head;
    let level = if first { "h1" } else { "h2" };
    let mut text = format!(
        "<section id=\"{0}\">\n<{level}><code>{0}</code> {1}</{level}>\n<p class=\"meta\"><span class=\"{2}\">{3}</span>, submitted {4}",
        head.id,
        escaped(&one_line(&head.headline)),
        head.status,
        escaped(&line(head, now)),
        moment(head.created),
    );
    let links = [("parent", head.parent), ("continues", head.continues), ("retries", head.retries)];
    for (name, id) in links.into_iter().filter_map(|(name, id)| Some((name, id?))) {
        text += &format!(", {name} <a href=\"#{id}\">{id}</a>");
    }
    text += &format!("</p>\n<div class=\"order\">{}</div>\n", escaped(clean(&task.order.task).trim_end()));
    task.items.iter().for_each(|item| text += &told(item));
    if !task.output.trim().is_empty() {
        let result = escaped(clean(&task.output).trim_end());
        text += &format!("<h3>Result</h3>\n<div class=\"result\">{result}</div>\n");
    }
    text + "</section>\n"
}

fn told(item: &Item) -> String {
    let time = format!("<time datetime=\"{}\">{}</time>", item.at, clock(item.at));
    let body = |text: &str| escaped(clean(text).trim_end());
    match &item.what {
        What::Thought { text } if text.trim().is_empty() => String::new(),
        What::Thought { text } => {
            format!(
                "<details><summary class=\"meta\">{time}thinks</summary><pre>{}</pre></details>\n",
                body(text)
            )
        }
        What::Said { text } => format!("{time}<div class=\"said\">{}</div>\n", body(text)),
        What::Call { tool, arguments, output, is_error, .. } => {
            let (class, state) = match (output, is_error) {
                (None, _) => ("meta", " (no result)"),
                (Some(_), true) => ("error", " (error)"),
                (Some(_), false) => ("", ""),
            };
            let tool = escaped(&one_line(tool));
            let output =
                output.as_deref().map(|output| format!("<pre>{}</pre>", body(output))).unwrap_or_default();
            format!(
                "<details><summary class=\"{class}\">{time}calls <code>{tool}</code>{state}</summary><pre>{}</pre>{output}</details>\n",
                escaped(visible(&pretty(arguments)).trim_end())
            )
        }
        What::Letter { from, text } => {
            let (from, text) = (escaped(&one_line(from)), body(text));
            format!(
                "<details open><summary>{time}letter from {from}</summary><div class=\"letter\">{text}</div></details>\n"
            )
        }
        What::Asked { text, answer } => {
            let answer = answer.as_deref().map_or_else(|| "not answered".to_owned(), body);
            format!("{time}<p>asks: {}<br>answer: {answer}</p>\n", body(text))
        }
        What::Note { text } => format!("<p class=\"note\">{time}{}</p>\n", body(text)),
    }
}

/// Text as HTML shows it.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
#[path = "html_tests.rs"]
mod tests;
