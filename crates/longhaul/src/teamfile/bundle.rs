//! A team file together with the files it refers to: everything another process needs to continue its tasks.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::references::{AgentReference, resolve_reference};
use super::{MAX_TEAM_FILE_BYTES, ModelOverride, Problem, Severity, TeamFile, parse};

/// The prefix of an encoded bundle.
const MAGIC: &[u8] = b"#!longhaul team\n";
/// The maximum number of files in a bundle.
const MOST: usize = 200;

/// A team file and the files it refers to: instructions, scripts, other team files. It contains no keys.
///
/// It is stored with `Store::put_blob` and found by its digest. Files that `add_prompt_files` names are not
/// in it: they are read when a task starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TeamBundle {
    /// The display name of the team file.
    pub name: String,
    /// The directory of the team file. Paths in the file are relative to it.
    pub base: PathBuf,
    /// The text of the team file.
    pub text: String,
    /// The files it refers to, by their path from the base.
    pub files: BTreeMap<String, String>,
    /// Models that replace those of the file, chosen by whoever started the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<ModelOverride>,
    /// The team's working directory, if one was given. Shared programs of its agents run there, or else in
    /// the base.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<PathBuf>,
    /// Whether its tasks come from clients of a server (`longhaul serve`, `longhaul mcp`). Any process that
    /// serves the team runs them, and no other process does unless it is asked to.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub served: bool,
    /// The machine that its tasks are bound to, because they work in a directory there. Set if machines share a
    /// store; a process on another machine leaves such tasks alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

impl TeamBundle {
    /// A bundle of a team file that refers to no other file.
    pub fn from_text(name: impl Into<String>, text: impl Into<String>) -> TeamBundle {
        TeamBundle {
            name: name.into(),
            base: PathBuf::from("."),
            text: text.into(),
            files: BTreeMap::new(),
            models: Vec::new(),
            working_dir: None,
            served: false,
            host: None,
        }
    }

    /// Loads a team file and everything it refers to. Fails if the team file cannot be read. [`assemble`]
    /// reports errors in the file itself.
    ///
    /// [`assemble`]: super::assemble
    pub fn load(path: &Path) -> Result<TeamBundle, TeamBundleError> {
        let unreadable = |path: &Path, source: std::io::Error| TeamBundleError {
            path: path.to_owned(),
            why: source.to_string(),
        };
        let text = slurp(path).map_err(|error| unreadable(path, error))?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let base = std::path::absolute(parent).map_err(|error| unreadable(parent, error))?;
        let mut bundle = TeamBundle {
            name: path.display().to_string(),
            base,
            text,
            files: BTreeMap::new(),
            models: Vec::new(),
            working_dir: None,
            served: false,
            host: None,
        };
        let mut open: Vec<(String, String)> = vec![(String::new(), bundle.text.clone())];
        while let Some((dir, text)) = open.pop() {
            let Some(team) = parse(&text).file else { continue };
            for (name, is_team) in referenced_files(&team) {
                let key = join_normalized(&dir, &name);
                if bundle.files.contains_key(&key) || bundle.files.len() >= MOST {
                    continue;
                }
                // `assemble` reports a missing file, with its position.
                let Ok(text) = slurp(&bundle.base.join(&key)) else { continue };
                if is_team {
                    open.push((parent_dir(&key).to_owned(), text.clone()));
                }
                bundle.files.insert(key, text);
            }
        }
        Ok(bundle)
    }

    /// Encodes the bundle for the store.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        // Writing strings to memory cannot fail.
        let _ = serde_json::to_writer(&mut bytes, self);
        bytes
    }

    /// Decodes a bundle from the store. Fails if the bytes are not an encoded bundle.
    pub fn decode(bytes: &[u8]) -> Result<TeamBundle, DecodeBundleError> {
        let json = bytes.strip_prefix(MAGIC).ok_or(DecodeBundleError::NotABundle)?;
        serde_json::from_slice(json).map_err(|error| DecodeBundleError::Unreadable(error.to_string()))
    }

    /// Whether these bytes are an encoded bundle.
    pub fn is_encoded(bytes: &[u8]) -> bool {
        bytes.starts_with(MAGIC)
    }

    /// Finds a file by its path from the directory of the file that refers to it.
    pub(super) fn find_file(&self, dir: &str, name: &str) -> Option<(String, &str)> {
        let key = join_normalized(dir, name);
        self.files.get(&key).map(|text| (key, text.as_str()))
    }
}

/// Why bytes of the store are not a team file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeBundleError {
    /// They are something else.
    #[error("it is not a stored team file")]
    NotABundle,
    /// They are damaged, or of another version.
    #[error("the stored team file cannot be read: {0}")]
    Unreadable(String),
}

/// A file that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} cannot be read: {why}", path.display())]
#[non_exhaustive]
pub struct TeamBundleError {
    /// The path of the file.
    pub path: PathBuf,
    /// The reason.
    pub why: String,
}

/// Reads a file up to the size limit of a team file, plus enough to show that it is larger.
fn slurp(path: &Path) -> std::io::Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    std::fs::File::open(path)?.take(MAX_TEAM_FILE_BYTES as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}

/// The files that a team file refers to, and whether each is a team file.
fn referenced_files(team: &TeamFile) -> Vec<(String, bool)> {
    let mut files = Vec::new();
    for agent in team.agents.values() {
        files.extend(agent.instruction_file.iter().map(|name| (name.clone(), false)));
        for other in agent.sub_agents.iter().chain(&agent.handoffs) {
            if let AgentReference::File { path, .. } = resolve_reference(team, other) {
                files.push((path.to_owned(), true));
            }
        }
        for model in agent.model.iter().chain(agent.fallback.iter().flat_map(|fallback| &fallback.models)) {
            if let Some(script) = model.strip_prefix("scripted/") {
                files.push((script.to_owned(), false));
            }
        }
    }
    for model in team.models.values() {
        if model.provider.as_deref() == Some("scripted")
            && let Some(script) = &model.model
        {
            files.push((script.clone(), false));
        }
    }
    files
}

/// The directory of a path.
pub(super) fn parent_dir(key: &str) -> &str {
    key.rsplit_once('/').map_or("", |(dir, _)| dir)
}

/// Joins a path to a directory and resolves `.` and `..`.
pub(super) fn join_normalized(dir: &str, name: &str) -> String {
    let joined =
        if name.starts_with('/') || dir.is_empty() { name.to_owned() } else { format!("{dir}/{name}") };
    let mut parts: Vec<&str> = Vec::new();
    for part in joined.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    let plain = parts.join("/");
    if joined.starts_with('/') { format!("/{plain}") } else { plain }
}

/// A problem and the file it is in.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileProblem {
    /// The display name of the file.
    pub file: String,
    /// The problem.
    pub problem: Problem,
}

impl std::fmt::Display for FileProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let FileProblem { file, problem } = self;
        let word = match problem.severity {
            Severity::Error => "error: ",
            Severity::Warning => "",
        };
        write!(f, "{file}:{}:{}: {word}{}", problem.at.line, problem.at.column, problem.message)?;
        match &problem.help {
            Some(help) => write!(f, " ({help})"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_made_plain() {
        for (dir, name, plain) in [
            ("", "a.md", "a.md"),
            ("", "./a/../b.md", "b.md"),
            ("teams", "../x.yaml", "x.yaml"),
            ("teams", "../../x.yaml", "../x.yaml"),
            ("teams", "/abs/./x.yaml", "/abs/x.yaml"),
            ("a/b", "c", "a/b/c"),
        ] {
            assert_eq!(join_normalized(dir, name), plain);
        }
    }

    #[test]
    fn a_bundle_has_all_that_the_team_refers_to_and_comes_back_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write(
            "team.yaml",
            "agents: {root: {instruction_file: p/root.md, sub_agents: ['x:./o/other.yaml'], model: scripted/s.yaml}}",
        );
        write("p/root.md", "You help.");
        write("s.yaml", "agents: {}");
        write(
            "o/other.yaml",
            "agents: {root: {instruction_file: more.md, model: play}}\nmodels: {play: {provider: scripted, model: ../s.yaml}}",
        );
        write("o/more.md", "More.");
        let bundle = TeamBundle::load(&dir.path().join("team.yaml")).unwrap();
        let names: Vec<&str> = bundle.files.keys().map(String::as_str).collect();
        assert_eq!(names, ["o/more.md", "o/other.yaml", "p/root.md", "s.yaml"]);
        assert_eq!(bundle.base, std::path::absolute(dir.path()).unwrap());
        let kept = bundle.encode();
        assert!(TeamBundle::is_encoded(&kept));
        assert_eq!(TeamBundle::decode(&kept), Ok(bundle));
        assert!(TeamBundle::decode(b"agents: {}").is_err());
    }
}
