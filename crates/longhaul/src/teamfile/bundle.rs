//! A team file together with what it refers to: all that another process needs to carry its tasks on.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::references::{AgentReference, resolve_reference};
use super::{MAX_TEAM_FILE_BYTES, ModelOverride, Problem, Severity, TeamFile, parse};

/// What a kept bundle begins with.
const MAGIC: &[u8] = b"#!longhaul team\n";
/// How many files a bundle may have.
const MOST: usize = 200;

/// A team file, and the files that it refers to: instructions, scripts, other team files. Keys are not in it.
///
/// It is kept in the store (`Store::put_blob`), and found again by its digest. Files of the working directory that an agent is
/// told of (`add_prompt_files`) are not in it: they are read when a task begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TeamBundle {
    /// What the team file is called, for people.
    pub name: String,
    /// The directory of the team file, which paths in it are relative to.
    pub base: PathBuf,
    /// The text of the team file.
    pub text: String,
    /// The files that it refers to, by their paths from the base.
    pub files: BTreeMap<String, String>,
    /// Other models than those of the file, which whoever started it has chosen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<ModelOverride>,
    /// Where the team works, if that was said: programs that its agents share run there. Otherwise they run in the base.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<PathBuf>,
}

impl TeamBundle {
    /// A team file that refers to no other file.
    pub fn from_text(name: impl Into<String>, text: impl Into<String>) -> TeamBundle {
        TeamBundle {
            name: name.into(),
            base: PathBuf::from("."),
            text: text.into(),
            files: BTreeMap::new(),
            models: Vec::new(),
            working_dir: None,
        }
    }

    /// Reads a team file and all that it refers to. What is wrong with the team file itself is told by [`assemble`].
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
        };
        let mut open: Vec<(String, String)> = vec![(String::new(), bundle.text.clone())];
        while let Some((dir, text)) = open.pop() {
            let Some(team) = parse(&text).file else { continue };
            for (name, is_team) in referenced_files(&team) {
                let key = join_normalized(&dir, &name);
                if bundle.files.contains_key(&key) || bundle.files.len() >= MOST {
                    continue;
                }
                // A file that is not there is told by the assembly, with its place.
                let Ok(text) = slurp(&bundle.base.join(&key)) else { continue };
                if is_team {
                    open.push((parent_dir(&key).to_owned(), text.clone()));
                }
                bundle.files.insert(key, text);
            }
        }
        Ok(bundle)
    }

    /// The bundle as it is kept.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        // Writing plain texts to memory does not fail.
        let _ = serde_json::to_writer(&mut bytes, self);
        bytes
    }

    /// A bundle that was kept.
    pub fn decode(bytes: &[u8]) -> Result<TeamBundle, String> {
        let json = bytes.strip_prefix(MAGIC).ok_or("it is no team file that Longhaul has kept")?;
        serde_json::from_slice(json).map_err(|error| format!("the kept team file cannot be read: {error}"))
    }

    /// Whether these bytes are a kept bundle.
    pub fn is_encoded(bytes: &[u8]) -> bool {
        bytes.starts_with(MAGIC)
    }

    /// A file, by its path from the directory of the one that refers to it.
    pub(super) fn find_file(&self, dir: &str, name: &str) -> Option<(String, &str)> {
        let key = join_normalized(dir, name);
        self.files.get(&key).map(|text| (key, text.as_str()))
    }
}

/// A file that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} cannot be read: {why}", path.display())]
pub struct TeamBundleError {
    /// Which.
    pub path: PathBuf,
    /// Why not.
    pub why: String,
}

/// The text of a file that is not larger than a team file may be; of a larger one, as much as shows that it is.
fn slurp(path: &Path) -> std::io::Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    std::fs::File::open(path)?.take(MAX_TEAM_FILE_BYTES as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}

/// The files that a team file refers to, and whether they are team files.
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

/// A path below a directory, without detours.
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

/// A problem of a team that was put together, and the file that it is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileProblem {
    /// The file, as people call it.
    pub file: String,
    /// What is to be told.
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
