//! `longhaul export`: writes a task and everything below it to a file.

use std::path::Path;

use jiff::Timestamp;
use longhaul::id::Seq;
use longhaul::journal::descendants;
use longhaul::store::TaskFilter;
use longhaul::transcript::{Transcript, TranscriptLimits};
use longhaul::{Longhaul, TaskId};

use self::transcript::ExportedTask;
use super::CliContext;
use crate::args::{ExportArgs, ExportFormat};
use crate::exit::{CliError, CliExitCode};
use crate::view::pluralize;

mod html;
mod markdown;
mod transcript;

pub(super) async fn run(context: &CliContext, args: &ExportArgs) -> Result<CliExitCode, CliError> {
    let longhaul = context.client().await?;
    let id = longhaul.find(&args.id).await?;
    let form = args.format.unwrap_or_else(|| format_for_path(args.output.as_deref()));
    let tasks = transcripts(&longhaul, id).await?;
    let now = Timestamp::now();
    let text = match form {
        ExportFormat::Json => transcript::export_json(&tasks, now)?,
        ExportFormat::Markdown => markdown::render_markdown(&tasks, now),
        ExportFormat::Html => html::render_html(&tasks, now),
    };
    match &args.output {
        None => context.term.print_line(text.trim_end())?,
        Some(path) => {
            std::fs::write(path, &text).map_err(|error| {
                CliError::new(CliExitCode::Failed, format!("{} cannot be written: {error}", path.display()))
                    .with_hint("`-o FILE` names a file in an existing directory that you may write to")
            })?;
            context.note(&format!("{} written to {}", pluralize(tasks.len(), "task"), path.display()));
        }
    }
    for task in &tasks {
        super::mark_read(&longhaul, task.state.id).await;
    }
    Ok(CliExitCode::Success)
}

/// Returns the format for a file extension.
fn format_for_path(path: Option<&Path>) -> ExportFormat {
    match path.and_then(Path::extension).and_then(|end| end.to_str()).map(str::to_lowercase).as_deref() {
        Some("html" | "htm") => ExportFormat::Html,
        Some("json") => ExportFormat::Json,
        _ => ExportFormat::Markdown,
    }
}

/// Returns the transcripts of a task and everything below it, parents before children.
async fn transcripts(longhaul: &Longhaul, id: TaskId) -> Result<Vec<ExportedTask>, CliError> {
    let root = longhaul.state(id).await?.root;
    let tree = longhaul.list(TaskFilter::tree(root)).await?;
    let mut tasks = Vec::new();
    for state in tree.iter().filter(|task| task.id == id).chain(descendants(&tree, &[id])) {
        let mut transcript = Transcript::starting_after(state.id, Seq(0), TranscriptLimits::NONE);
        loop {
            let page = longhaul.store().read(state.id, transcript.last, 1000).await?;
            if page.is_empty() {
                break;
            }
            transcript = transcript.with_records(&page);
        }
        tasks.push(ExportedTask::new(state.clone(), transcript));
    }
    Ok(tasks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_known_by_the_name_of_its_file() {
        for (name, form) in [
            ("a.html", ExportFormat::Html),
            ("a.JSON", ExportFormat::Json),
            ("a.md", ExportFormat::Markdown),
            ("a", ExportFormat::Markdown),
        ] {
            assert_eq!(format_for_path(Some(Path::new(name))), form);
        }
        assert_eq!(format_for_path(None), ExportFormat::Markdown);
    }
}
