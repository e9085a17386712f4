//! Agent Skills: folders with a `SKILL.md`. The agent knows their names, and reads the rest when it needs it.

use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fn_tool::{ToolCallResult, fn_tool};
use super::{OpenFuture, Toolset, ToolsetContext};
use crate::tool::{ToolEffects, ToolError};

/// How many bytes of a skill's file are read.
const FILE_CAP: usize = 128 * 1024;

/// The toolset of an agent's skills: one tool, `read_skill`, and a list of the skills in the agent's
/// instruction.
pub struct Skills {
    folders: Vec<PathBuf>,
    only: Option<Vec<String>>,
    found: Mutex<Arc<Vec<Skill>>>,
}

/// A skill that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Skill {
    name: String,
    description: String,
    dir: PathBuf,
}

#[derive(Deserialize)]
struct SkillFrontMatter {
    name: String,
    description: String,
}

impl Skills {
    /// Finds skills in these folders: each folder below them that has a `SKILL.md` is a skill. If two have
    /// the same name, the first is used.
    pub fn new(folders: impl IntoIterator<Item = PathBuf>) -> Self {
        Skills { folders: folders.into_iter().collect(), only: None, found: Mutex::default() }
    }

    /// Keeps only the skills with these names.
    pub fn only<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.only = Some(names.into_iter().map(Into::into).collect());
        self
    }

    fn known(&self) -> Arc<Vec<Skill>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Toolset for Skills {
    fn name(&self) -> &str {
        "skills"
    }

    fn open<'a>(&'a self, _context: &'a ToolsetContext) -> OpenFuture<'a> {
        Box::pin(async move {
            let folders = self.folders.clone();
            let mut found =
                tokio::task::spawn_blocking(move || find_skills(&folders)).await.unwrap_or_default();
            if let Some(only) = &self.only {
                found.retain(|skill| only.contains(&skill.name));
            }
            let found = Arc::new(found);
            *self.found.lock().unwrap_or_else(PoisonError::into_inner) = found.clone();
            if found.is_empty() {
                return Ok(Vec::new());
            }
            let text = "Reads a skill: its instructions, or another of its files.";
            Ok(vec![fn_tool("read_skill", ToolEffects::READ_ONLY, text, move |args: ReadSkillArgs, _| {
                Box::pin(read_skill(found.clone(), args))
            })])
        })
    }

    fn instruction(&self, _context: &ToolsetContext) -> Option<String> {
        let list: Vec<String> =
            self.known().iter().map(|skill| format!("- {}: {}", skill.name, skill.description)).collect();
        Some(format!(
            "You have skills: instructions for particular jobs. When one fits what you are about to do, read it first \
             with read_skill.\n{}",
            list.join("\n")
        ))
    }
}

fn find_skills(folders: &[PathBuf]) -> Vec<Skill> {
    let mut found: Vec<Skill> = Vec::new();
    for folder in folders {
        let Ok(entries) = std::fs::read_dir(folder) else { continue };
        let mut dirs: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        dirs.sort();
        for dir in dirs {
            let Ok(text) = std::fs::read_to_string(dir.join("SKILL.md")) else { continue };
            match front(&text) {
                Ok(front) if found.iter().any(|skill| skill.name == front.name) => {}
                Ok(SkillFrontMatter { name, description }) => found.push(Skill { name, description, dir }),
                Err(why) => tracing::warn!(skill = %dir.display(), %why, "skipped an invalid skill"),
            }
        }
    }
    found
}

/// Splits off the front matter of a `SKILL.md`: YAML between two lines of dashes.
fn front(text: &str) -> Result<SkillFrontMatter, SkillError> {
    let text = text.trim_start_matches('\u{feff}').replace("\r\n", "\n");
    let yaml = text
        .strip_prefix("---\n")
        .and_then(|rest| rest.split_once("\n---"))
        .map(|(yaml, _)| yaml)
        .ok_or(SkillError::NoFrontMatter)?;
    serde_saphyr::from_str(yaml).map_err(|error| SkillError::BadFrontMatter(error.to_string()))
}

/// Why a skill is skipped.
#[derive(Debug, thiserror::Error)]
enum SkillError {
    #[error("SKILL.md has no front matter: begin it with `---`, `name:`, `description:` and `---`")]
    NoFrontMatter,
    #[error("the front matter of SKILL.md is invalid: {0}")]
    BadFrontMatter(String),
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct ReadSkillArgs {
    /// The skill.
    name: String,
    /// Another file of the skill than its SKILL.md, by its path in the skill's folder.
    file: Option<String>,
}

async fn read_skill(skills: Arc<Vec<Skill>>, args: ReadSkillArgs) -> ToolCallResult {
    let Some(skill) = skills.iter().find(|skill| skill.name == args.name).cloned() else {
        let names: Vec<&str> = skills.iter().map(|skill| skill.name.as_str()).collect();
        let (asked, names) = (args.name, names.join(", "));
        return Err(ToolError::Retry(format!("there is no skill '{asked}'; there are: {names}")));
    };
    let file = args.file.unwrap_or_else(|| "SKILL.md".to_owned());
    let read = tokio::task::spawn_blocking(move || read(&skill.dir, &file)).await;
    read.unwrap_or_else(|error| Err(ToolError::Failed(error.to_string()))).map(Into::into)
}

fn read(dir: &Path, file: &str) -> Result<String, ToolError> {
    let inside =
        Path::new(file).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    let real = |path: &Path| path.canonicalize().ok();
    let path = dir.join(file);
    let within = inside && real(&path).zip(real(dir)).is_some_and(|(path, dir)| path.starts_with(dir));
    if !within {
        return Err(ToolError::Retry(format!(
            "there is no file '{file}' in the skill's folder{}",
            others(dir)
        )));
    }
    let bytes = std::fs::read(&path)
        .map_err(|error| ToolError::Retry(format!("'{file}' cannot be read: {error}")))?;
    let text = String::from_utf8_lossy(&bytes);
    let end = text.floor_char_boundary(FILE_CAP);
    let cut = if end < text.len() { "\n[… the rest of the file is left out …]" } else { "" };
    Ok(format!("{}{cut}{}", &text[..end], if file == "SKILL.md" { others(dir) } else { String::new() }))
}

/// Lists the other files in a skill's folder.
fn others(dir: &Path) -> String {
    let mut names: Vec<String> = Vec::new();
    let walk = ignore::WalkBuilder::new(dir).standard_filters(false).max_depth(Some(3)).build();
    for entry in walk.flatten().filter(|entry| entry.file_type().is_some_and(|kind| kind.is_file())).take(50)
    {
        if let Ok(name) = entry.path().strip_prefix(dir)
            && name != Path::new("SKILL.md")
        {
            names.push(name.display().to_string());
        }
    }
    names.sort();
    if names.is_empty() { String::new() } else { format!("\n\n[other files: {}]", names.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::DynTool;
    use crate::toolset::tool_fixture::call_context_in;
    use serde_json::json;

    async fn tools(dir: &Path) -> (Skills, Vec<Arc<dyn DynTool>>) {
        let skills = Skills::new([dir.join("mine"), dir.join("missing"), dir.join("shared")]);
        let tools = skills.open(&ToolsetContext::new("a")).await.unwrap();
        (skills, tools)
    }

    fn skill(dir: &Path, name: &str, text: &str) {
        std::fs::create_dir_all(dir.join(name)).unwrap();
        std::fs::write(dir.join(name).join("SKILL.md"), text).unwrap();
    }

    #[tokio::test]
    async fn an_agent_knows_its_skills_and_reads_one_when_it_needs_it() {
        let dir = tempfile::tempdir().unwrap();
        let mine = dir.path().join("mine");
        skill(&mine, "pdf", "---\nname: pdf\ndescription: Fills forms.\n---\nUse the script.\n");
        std::fs::write(mine.join("pdf/fill.py"), "print()").unwrap();
        std::fs::write(dir.path().join("secret"), "s3cret").unwrap();
        std::os::unix::fs::symlink(dir.path().join("secret"), mine.join("pdf/link")).unwrap();
        skill(&dir.path().join("shared"), "pdf", "---\nname: pdf\ndescription: Another.\n---\n");
        skill(&dir.path().join("shared"), "broken", "no head");

        let (skills, tools) = tools(dir.path()).await;
        assert!(skills.instruction(&ToolsetContext::new("a")).unwrap().ends_with("\n- pdf: Fills forms."));
        let (context, _heard) = call_context_in(dir.path());
        let call = async |args: serde_json::Value| {
            tools[0].call(&args.to_string(), &context).await.map(|out| out.text)
        };
        let text = call(json!({ "name": "pdf" })).await.unwrap();
        assert!(text.contains("Use the script.") && text.ends_with("[other files: fill.py]"), "{text}");
        assert_eq!(call(json!({ "name": "pdf", "file": "fill.py" })).await.unwrap(), "print()");
        for file in ["../../secret", "link", "/etc/passwd", "nothing"] {
            let refused = call(json!({ "name": "pdf", "file": file })).await.unwrap_err();
            assert!(matches!(&refused, ToolError::Retry(why) if why.contains(file)), "{refused}");
        }
        assert!(call(json!({ "name": "doc" })).await.unwrap_err().to_string().contains("there are: pdf"));
    }
}
