//! A call as rules see it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use serde_json::Value;

use super::command_line::normalize_path;
use super::shell;

/// Further names by which rules know a tool and its arguments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuleNames {
    /// Other names of its arguments: `(other, own)`.
    pub aliases: &'static [(&'static str, &'static str)],
    /// Tools whose deny and ask rules also apply to this one.
    pub covered_by: Vec<String>,
}

/// A call to decide on: its tool, and its arguments as the tool will read them.
#[derive(Debug)]
pub struct PermissionRequest {
    tool: String,
    covered_by: Vec<String>,
    /// The arguments as given, and under all their names.
    given: Value,
    arguments: Value,
    directory: Option<PathBuf>,
    changed: bool,
    /// Command lines that were already parsed.
    lines: RefCell<HashMap<String, Rc<shell::CommandLine>>>,
}

impl PermissionRequest {
    /// A call of a tool that rules know only by its own names.
    pub fn new(tool: &str, arguments: Value) -> PermissionRequest {
        PermissionRequest {
            tool: tool.to_owned(),
            covered_by: Vec::new(),
            given: arguments.clone(),
            arguments,
            directory: None,
            changed: false,
            lines: RefCell::default(),
        }
    }

    /// Sets further names that rules may use.
    #[must_use]
    pub fn with_rule_names(mut self, names: &RuleNames) -> PermissionRequest {
        self.covered_by.clone_from(&names.covered_by);
        also_as(&mut self.arguments, names.aliases, 0);
        self
    }

    /// Sets the base of relative paths.
    #[must_use]
    pub fn in_directory(mut self, directory: Option<&Path>) -> PermissionRequest {
        self.directory = directory.map(Path::to_owned);
        self
    }

    /// Sets whether the tool differs from the one that the rules were written for: if so, allow rules do not
    /// apply.
    #[must_use]
    pub fn with_changed_tool(mut self, changed: bool) -> PermissionRequest {
        self.changed = changed;
        self
    }

    pub(super) fn is_changed(&self) -> bool {
        self.changed
    }

    pub(super) fn tool(&self) -> &str {
        &self.tool
    }

    pub(super) fn tools(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.tool.as_str()).chain(self.covered_by.iter().map(String::as_str))
    }

    pub(super) fn given_arguments(&self) -> &Value {
        &self.given
    }

    pub(super) fn arguments(&self) -> &Value {
        &self.arguments
    }

    pub(super) fn parsed_command_line(&self, text: &str) -> Rc<shell::CommandLine> {
        let read = || Rc::new(shell::parse_command_line(text));
        self.lines.borrow_mut().entry(text.to_owned()).or_insert_with(read).clone()
    }

    /// Other spellings of a path: absolute, and relative to the working directory.
    pub(super) fn path_spellings(&self, text: &str) -> Vec<String> {
        let Some(directory) = self.directory.as_deref().and_then(Path::to_str) else { return Vec::new() };
        let whole = match text.starts_with('/') {
            true => normalize_path(text),
            false => normalize_path(&format!("{directory}/{text}")),
        };
        let base = normalize_path(directory);
        let own = whole.strip_prefix(&base).and_then(|rest| rest.strip_prefix('/')).map(str::to_owned);
        own.into_iter().chain([whole]).collect()
    }
}

/// Copies arguments to their other names too.
fn also_as(value: &mut Value, aliases: &[(&str, &str)], depth: usize) {
    if aliases.is_empty() || depth > 4 {
        return;
    }
    match value {
        Value::Object(fields) => {
            for (other, own) in aliases {
                if let Some(value) = fields.get(*own).cloned() {
                    fields.entry(*other).or_insert(value);
                }
            }
            fields.values_mut().for_each(|value| also_as(value, aliases, depth + 1));
        }
        Value::Array(all) => all.iter_mut().for_each(|value| also_as(value, aliases, depth + 1)),
        _ => {}
    }
}
