//! Project tasks with priorities and dependencies, as plain data, and the operations on them.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::tool::ToolError;
use crate::toolset::text::truncate;

/// All tasks, in order of creation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct ProjectTaskList {
    #[serde(default)]
    tasks: IndexMap<String, ProjectTask>,
}

/// One task. Its field names are those of other programs that read such files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ProjectTask {
    pub(super) id: String,
    pub(super) title: String,
    #[serde(default)]
    pub(super) description: String,
    #[serde(default)]
    pub(super) priority: ProjectTaskPriority,
    #[serde(default)]
    pub(super) status: ProjectTaskStatus,
    #[serde(default)]
    pub(super) dependencies: Vec<String>,
    #[serde(default)]
    pub(super) created_at: String,
    #[serde(default)]
    pub(super) updated_at: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ProjectTaskPriority {
    Critical,
    High,
    #[default]
    Medium,
    Low,
}

impl ProjectTaskPriority {
    pub(super) fn parse(text: &str) -> Result<ProjectTaskPriority, ToolError> {
        word(text, "priority: use critical, high, medium or low")
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ProjectTaskStatus {
    #[default]
    Pending,
    InProgress,
    Done,
    Blocked,
}

impl ProjectTaskStatus {
    pub(super) fn parse(text: &str) -> Result<ProjectTaskStatus, ToolError> {
        word(text, "status: use pending, in_progress, done or blocked")
    }
}

fn word<T: serde::de::DeserializeOwned>(text: &str, what: &str) -> Result<T, ToolError> {
    let plain = match text.trim().to_ascii_lowercase().replace(['-', ' '], "_").as_str() {
        "completed" => "done".to_owned(),
        other => other.to_owned(),
    };
    serde_json::from_value(plain.into())
        .map_err(|_| ToolError::Retry(format!("'{}' is no {what}", truncate(text, 40))))
}

/// A task as it is shown, with its effective status: blocked while a dependency is not done.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ProjectTaskView<'a> {
    #[serde(flatten)]
    pub(super) task: &'a ProjectTask,
    pub(super) effective_status: ProjectTaskStatus,
}

/// A change to a task: only the given fields change.
#[derive(Debug, Default)]
pub(super) struct ProjectTaskChange {
    pub(super) title: Option<String>,
    pub(super) description: Option<String>,
    pub(super) priority: Option<ProjectTaskPriority>,
    pub(super) status: Option<ProjectTaskStatus>,
    pub(super) dependencies: Option<Vec<String>>,
}

impl ProjectTaskList {
    pub(super) fn get(&self, id: &str) -> Result<&ProjectTask, ToolError> {
        self.tasks.get(id).ok_or_else(|| self.unknown(id))
    }

    fn unknown(&self, id: &str) -> ToolError {
        let similar = self.tasks.keys().find(|key| key.eq_ignore_ascii_case(id.trim()));
        let hint =
            similar.map_or("list_tasks shows what there is".to_owned(), |key| format!("did you mean {key}?"));
        ToolError::Retry(format!("there is no task '{}': {hint}", truncate(id, 60)))
    }

    pub(super) fn to_json(&self, task: &ProjectTask) -> serde_json::Value {
        let shown = ProjectTaskView { task, effective_status: self.effective(task) };
        serde_json::to_value(shown).unwrap_or_default()
    }

    /// Returns the status: blocked while a dependency is not done.
    fn effective(&self, task: &ProjectTask) -> ProjectTaskStatus {
        let open =
            |id: &String| self.tasks.get(id).is_some_and(|other| other.status != ProjectTaskStatus::Done);
        match task.status {
            ProjectTaskStatus::Done => ProjectTaskStatus::Done,
            _ if task.dependencies.iter().any(open) => ProjectTaskStatus::Blocked,
            status => status,
        }
    }

    /// Adds a task. If there is one with this id and title, an earlier attempt of the same call created it,
    /// and that one is returned.
    pub(super) fn create(
        &mut self,
        ids: impl Iterator<Item = String>,
        mut task: ProjectTask,
    ) -> Result<&ProjectTask, ToolError> {
        for id in ids {
            match self.tasks.get(&id) {
                Some(there) if there.title == task.title => return self.get(&id),
                Some(_) => {}
                None => {
                    task.dependencies = self.checked(None, task.dependencies)?;
                    task.id.clone_from(&id);
                    self.tasks.insert(id.clone(), task);
                    return self.get(&id);
                }
            }
        }
        Err(ToolError::Retry("no free id was found for the task: make the call again".to_owned()))
    }

    pub(super) fn change(
        &mut self,
        id: &str,
        change: ProjectTaskChange,
        now: &str,
    ) -> Result<&ProjectTask, ToolError> {
        self.get(id)?;
        let dependencies = change.dependencies.map(|list| self.checked(Some(id), list)).transpose()?;
        if let Some(task) = self.tasks.get_mut(id) {
            task.title = change.title.unwrap_or_else(|| std::mem::take(&mut task.title));
            task.description = change.description.unwrap_or_else(|| std::mem::take(&mut task.description));
            task.priority = change.priority.unwrap_or(task.priority);
            task.status = change.status.unwrap_or(task.status);
            task.dependencies = dependencies.unwrap_or_else(|| std::mem::take(&mut task.dependencies));
            task.updated_at = now.to_owned();
        }
        self.get(id)
    }

    pub(super) fn delete(&mut self, id: &str) -> Result<(), ToolError> {
        self.get(id)?;
        self.tasks.shift_remove(id);
        for task in self.tasks.values_mut() {
            task.dependencies.retain(|other| other != id);
        }
        Ok(())
    }

    /// Makes one task depend on another. An existing dependency is not an error, because the call may be a
    /// repetition.
    pub(super) fn add_dependency(
        &mut self,
        id: &str,
        on: &str,
        now: &str,
    ) -> Result<&ProjectTask, ToolError> {
        let mut dependencies = self.get(id)?.dependencies.clone();
        if !dependencies.iter().any(|other| other == on) {
            dependencies.push(on.to_owned());
        }
        self.set_dependencies(id, dependencies, now)
    }

    pub(super) fn remove_dependency(
        &mut self,
        id: &str,
        on: &str,
        now: &str,
    ) -> Result<&ProjectTask, ToolError> {
        let mut dependencies = self.get(id)?.dependencies.clone();
        dependencies.retain(|other| other != on);
        self.set_dependencies(id, dependencies, now)
    }

    fn set_dependencies(&mut self, id: &str, all: Vec<String>, now: &str) -> Result<&ProjectTask, ToolError> {
        self.change(id, ProjectTaskChange { dependencies: Some(all), ..ProjectTaskChange::default() }, now)
    }

    /// Sorts the tasks: unblocked before blocked, then by priority, then oldest first.
    pub(super) fn sorted(&self) -> Vec<(&ProjectTask, ProjectTaskStatus)> {
        let mut tasks: Vec<_> = self.tasks.values().map(|task| (task, self.effective(task))).collect();
        tasks.sort_by_key(|(task, status)| {
            (*status == ProjectTaskStatus::Blocked, task.priority, task.created_at.clone())
        });
        tasks
    }

    /// Returns the first task that can be worked on.
    pub(super) fn next(&self) -> Option<&ProjectTask> {
        let open = |status: &ProjectTaskStatus| {
            matches!(status, ProjectTaskStatus::Pending | ProjectTaskStatus::InProgress)
        };
        self.sorted().into_iter().find(|(_, status)| open(status)).map(|(task, _)| task)
    }

    /// Checks the dependencies of `id`: each must exist, and none may depend on `id`, directly or indirectly.
    fn checked(&self, id: Option<&str>, dependencies: Vec<String>) -> Result<Vec<String>, ToolError> {
        let mut list: Vec<String> = Vec::new();
        for other in dependencies {
            self.get(&other)?;
            if !list.contains(&other) {
                list.push(other);
            }
        }
        let Some(id) = id else { return Ok(list) };
        let mut seen: Vec<&str> = Vec::new();
        let mut ahead: Vec<&str> = list.iter().map(String::as_str).collect();
        while let Some(other) = ahead.pop() {
            if other == id {
                return Err(ToolError::Retry(format!(
                    "'{id}' would wait for itself, by way of its dependencies: that is a cycle, and nothing was changed"
                )));
            }
            if !seen.contains(&other) {
                seen.push(other);
                ahead.extend(self.tasks.get(other).iter().flat_map(|t| &t.dependencies).map(String::as_str));
            }
        }
        Ok(list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(tasks: &[(&str, ProjectTaskPriority, ProjectTaskStatus, &[&str])]) -> ProjectTaskList {
        let task = |(n, (id, priority, status, on)): (
            usize,
            &(&str, ProjectTaskPriority, ProjectTaskStatus, &[&str]),
        )| {
            let task = ProjectTask {
                id: (*id).to_owned(),
                title: id.to_uppercase(),
                description: String::new(),
                priority: *priority,
                status: *status,
                dependencies: on.iter().map(|id| (*id).to_owned()).collect(),
                created_at: format!("2026-01-0{n}"),
                updated_at: String::new(),
            };
            ((*id).to_owned(), task)
        };
        ProjectTaskList { tasks: tasks.iter().enumerate().map(task).collect() }
    }

    #[test]
    fn the_next_task_is_the_most_urgent_that_waits_for_nothing() {
        use ProjectTaskPriority::{Critical, High, Low, Medium};
        let mut list = list(&[
            ("a", Low, ProjectTaskStatus::Pending, &[]),
            ("b", Critical, ProjectTaskStatus::Pending, &["a"]),
            ("c", Medium, ProjectTaskStatus::InProgress, &[]),
            ("d", High, ProjectTaskStatus::Done, &[]),
            ("e", Critical, ProjectTaskStatus::Blocked, &[]),
            ("f", Medium, ProjectTaskStatus::Pending, &["d", "gone"]),
        ]);
        let order: Vec<_> = list.sorted().iter().map(|(task, _)| task.id.as_str()).collect();
        assert_eq!(order, ["d", "c", "f", "a", "b", "e"]);
        assert_eq!(list.next().unwrap().id, "c");
        let done = |list: &mut ProjectTaskList, id: &str| {
            let status = Some(ProjectTaskStatus::Done);
            list.change(id, ProjectTaskChange { status, ..ProjectTaskChange::default() }, "now").unwrap();
        };
        ["c", "f", "a"].iter().for_each(|id| done(&mut list, id));
        assert_eq!(list.next().unwrap().id, "b", "what it waited for is done");
        done(&mut list, "b");
        assert_eq!(list.next(), None, "e was blocked by hand");
    }

    #[test]
    fn no_task_ever_waits_for_itself() {
        let plain = |id| (id, ProjectTaskPriority::Medium, ProjectTaskStatus::Pending, &[][..]);
        let mut list = list(&[plain("a"), plain("b"), plain("c")]);
        list.add_dependency("a", "b", "").unwrap();
        list.add_dependency("b", "c", "").unwrap();
        for (id, on) in [("a", "a"), ("c", "a"), ("c", "b")] {
            let before = list.clone();
            assert!(
                list.add_dependency(id, on, "").unwrap_err().to_string().contains("cycle"),
                "{id} on {on}"
            );
            assert_eq!(list, before);
        }
        list.add_dependency("a", "b", "").unwrap();
        assert_eq!(list.get("a").unwrap().dependencies, ["b"], "twice is once");
        list.remove_dependency("a", "b", "").unwrap();
        list.add_dependency("c", "a", "").unwrap();
        list.delete("a").unwrap();
        assert_eq!(list.get("c").unwrap().dependencies, [""; 0], "nobody waits for what is gone");
        assert!(list.add_dependency("c", "a", "").unwrap_err().to_string().contains("there is no task 'a'"));
        assert!(list.get("C").unwrap_err().to_string().contains("did you mean c?"));
    }

    #[test]
    fn a_ring_that_somebody_else_wrote_ends_no_walk() {
        let mut list = list(&[
            ("a", ProjectTaskPriority::Medium, ProjectTaskStatus::Pending, &["b"]),
            ("b", ProjectTaskPriority::Medium, ProjectTaskStatus::Pending, &["a"]),
            ("c", ProjectTaskPriority::Medium, ProjectTaskStatus::Pending, &[]),
        ]);
        list.add_dependency("c", "a", "").unwrap();
        assert_eq!(list.next(), None);
    }

    #[test]
    fn words_are_taken_as_models_write_them() {
        assert_eq!(ProjectTaskStatus::parse("In-Progress"), Ok(ProjectTaskStatus::InProgress));
        assert_eq!(ProjectTaskStatus::parse("completed"), Ok(ProjectTaskStatus::Done));
        assert_eq!(ProjectTaskPriority::parse(" HIGH "), Ok(ProjectTaskPriority::High));
        assert!(
            ProjectTaskPriority::parse("urgent")
                .unwrap_err()
                .to_string()
                .contains("critical, high, medium or low")
        );
    }
}
