//! Resources: the result, the transcript and the journal of each task.

use futures::StreamExt as _;
use longhaul::TaskId;
use longhaul::id::Seq;
use longhaul::journal::pages;
use longhaul::snapshot::{Event, EventProjector};
use longhaul::task::TaskState;
use longhaul::transcript::{Detail, describe};
use rmcp::model::{Resource, ResourceContents, ResourceTemplate};

use super::team_tasks::TeamTasks;
use crate::problem::Problem;

/// How many tasks the list of resources shows.
const LISTED: usize = 20;
/// How many bytes of a transcript or journal are returned: the last ones.
const MOST: usize = 1024 * 1024;

/// What a resource shows of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TaskView {
    Result,
    Transcript,
    Journal,
}

impl TaskView {
    const ALL: [TaskView; 3] = [TaskView::Result, TaskView::Transcript, TaskView::Journal];

    fn name(self) -> &'static str {
        match self {
            TaskView::Result => "result",
            TaskView::Transcript => "transcript",
            TaskView::Journal => "journal",
        }
    }

    fn mime_type(self) -> &'static str {
        match self {
            TaskView::Result | TaskView::Transcript => "text/plain",
            TaskView::Journal => "application/x-ndjson",
        }
    }

    fn description(self) -> &'static str {
        match self {
            TaskView::Result => "The answer of a task, or its text so far",
            TaskView::Transcript => "What a task did, for people to read",
            TaskView::Journal => "The events of a task as JSON lines",
        }
    }
}

fn uri(id: &str, view: TaskView) -> String {
    format!("longhaul://task/{id}/{}", view.name())
}

/// The task and the view that a URI names.
fn parse_uri(uri: &str) -> Option<(&str, TaskView)> {
    let (id, name) = uri.strip_prefix("longhaul://task/")?.split_once('/')?;
    let view = TaskView::ALL.into_iter().find(|view| view.name() == name)?;
    id.parse::<TaskId>().ok().map(|_| (id, view))
}

pub(super) fn templates() -> Vec<ResourceTemplate> {
    let template = |view: TaskView| {
        ResourceTemplate::new(uri("{task_id}", view), format!("task {}", view.name()))
            .with_description(view.description())
            .with_mime_type(view.mime_type())
    };
    TaskView::ALL.into_iter().map(template).collect()
}

impl TeamTasks {
    /// The results of the newest tasks.
    pub(super) async fn resources(&self) -> Result<Vec<Resource>, Problem> {
        let roots = self.roots().await?;
        let resource = |state: &TaskState| {
            let id = state.id.to_string();
            Resource::new(uri(&id, TaskView::Result), format!("result of {id}"))
                .with_description(format!("{} ({}): {}", state.agent, state.status, state.headline))
                .with_mime_type(TaskView::Result.mime_type())
        };
        Ok(roots.iter().rev().take(LISTED).map(resource).collect())
    }

    /// The contents of a resource; `None` if there is no such resource.
    pub(super) async fn read_resource(&self, asked: &str) -> Result<Option<ResourceContents>, Problem> {
        let Some((id, view)) = parse_uri(asked) else { return Ok(None) };
        let state = match self.find(id).await {
            Ok(state) => state,
            Err(problem) if problem.status == 404 => return Ok(None),
            Err(problem) => return Err(problem),
        };
        let text = match view {
            TaskView::Result => self.snapshot(state.id).await?.output,
            TaskView::Transcript => {
                self.event_lines(&state, |event| {
                    let time = event.at.strftime("%F %T");
                    Some(format!("{time}  {}", describe(&event.kind, Detail::Full).columns()))
                })
                .await?
            }
            TaskView::Journal => self.event_lines(&state, |event| serde_json::to_string(event).ok()).await?,
        };
        Ok(Some(ResourceContents::text(text, asked).with_mime_type(view.mime_type())))
    }

    /// The events of a task, one line each; of a very long journal, the last ones.
    async fn event_lines(
        &self,
        state: &TaskState,
        format: impl Fn(&Event) -> Option<String>,
    ) -> Result<String, Problem> {
        let mut projector = EventProjector::new(state.id);
        let mut text = String::new();
        let store = self.longhaul().store();
        let mut pages = std::pin::pin!(pages(&**store, state.id, Seq(0)));
        while let Some(page) = pages.next().await {
            for event in page?.iter().flat_map(|record| projector.project(record)) {
                text.extend(format(&event));
                text.push('\n');
            }
            if text.len() > 2 * MOST {
                drop_first_lines(&mut text);
            }
        }
        drop_first_lines(&mut text);
        Ok(text)
    }
}

/// Drops whole lines from the start until the text is short enough.
fn drop_first_lines(text: &mut String) {
    if text.len() > MOST {
        let from = text.ceil_char_boundary(text.len() - MOST);
        let from = text[from..].find('\n').map_or(text.len(), |at| from + at + 1);
        text.drain(..from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_uris_of_ours_are_parsed() {
        assert_eq!(parse_uri("longhaul://task/t-aaaaa/journal"), Some(("t-aaaaa", TaskView::Journal)));
        for wrong in [
            "longhaul://task/t-aaaaa",
            "longhaul://task/t-aaaaa/",
            "longhaul://task/t-aaaaa/secrets",
            "longhaul://task/../t-aaaaa/result",
            "longhaul://task/t-aaaaa/../result",
            "longhaul://task//result",
            "file:///etc/passwd",
            "test://nonexistent-resource-for-conformance-testing",
            "",
        ] {
            assert_eq!(parse_uri(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_long_journal_keeps_its_last_whole_lines() {
        let mut text = "é".repeat(10) + "\n";
        drop_first_lines(&mut text);
        assert_eq!(text.lines().count(), 1);
        let mut text = format!("{}\n", "é".repeat(99)).repeat(MOST / 100);
        drop_first_lines(&mut text);
        assert!(text.len() <= MOST && text.lines().all(|line| line.chars().count() == 99));
    }
}
