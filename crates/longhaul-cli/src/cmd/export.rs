//! `longhaul export`: a task and all below it, written down whole.

use std::collections::HashSet;
use std::path::Path;

use jiff::Timestamp;
use longhaul::id::Seq;
use longhaul::snapshot::Narrator;
use longhaul::store::Filter;
use longhaul::{Longhaul, TaskId};

use self::transcript::Transcript;
use super::Desk;
use crate::args::{ExportArgs, Form};
use crate::exit::{Code, Trouble};
use crate::view::many;

mod html;
mod markdown;
mod transcript;

pub(super) async fn run(desk: &Desk, args: &ExportArgs) -> Result<Code, Trouble> {
    let longhaul = desk.client().await?;
    let id = longhaul.find(&args.id).await?;
    let form = args.format.unwrap_or_else(|| form_of(args.output.as_deref()));
    let tasks = transcripts(&longhaul, id).await?;
    let now = Timestamp::now();
    let text = match form {
        Form::Json => transcript::json(&tasks, now)?,
        Form::Markdown => markdown::page(&tasks, now),
        Form::Html => html::page(&tasks, now),
    };
    match &args.output {
        None => desk.term.line(text.trim_end())?,
        Some(path) => {
            std::fs::write(path, &text).map_err(|error| {
                Trouble::new(Code::Failed, format!("{} cannot be written: {error}", path.display()))
                    .hint("`-o FILE` names a file in a directory that is there, and that you may write to")
            })?;
            desk.note(&format!("{} written to {}", many(tasks.len(), "task"), path.display()));
        }
    }
    for task in &tasks {
        super::looked_at(&longhaul, task.head.id).await;
    }
    Ok(Code::Fine)
}

/// What a file is, by the end of its name.
fn form_of(path: Option<&Path>) -> Form {
    match path.and_then(Path::extension).and_then(|end| end.to_str()).map(str::to_lowercase).as_deref() {
        Some("html" | "htm") => Form::Html,
        Some("json") => Form::Json,
        _ => Form::Markdown,
    }
}

/// The task and all below it, parents before their children.
async fn transcripts(longhaul: &Longhaul, id: TaskId) -> Result<Vec<Transcript>, Trouble> {
    let root = longhaul.head(id).await?.root;
    let tree = longhaul.snapshots(Filter::tree(root)).await?;
    let mut wanted = HashSet::from([id]);
    let mut tasks = Vec::new();
    for head in tree {
        let is_below = head.parent.is_some_and(|parent| wanted.contains(&parent));
        if head.id != id && !is_below {
            continue;
        }
        wanted.insert(head.id);
        let mut transcript = Transcript::new(head);
        let mut narrator = Narrator::new(transcript.head.id);
        let mut after = Seq(0);
        loop {
            let page = longhaul.store().read(transcript.head.id, after, 1000).await?;
            let Some(last) = page.last() else { break };
            after = last.seq;
            for record in &page {
                transcript.take(record, narrator.tell(record));
            }
        }
        tasks.push(transcript);
    }
    Ok(tasks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_known_by_the_name_of_its_file() {
        for (name, form) in
            [("a.html", Form::Html), ("a.JSON", Form::Json), ("a.md", Form::Markdown), ("a", Form::Markdown)]
        {
            assert_eq!(form_of(Some(Path::new(name))), form);
        }
        assert_eq!(form_of(None), Form::Markdown);
    }
}
