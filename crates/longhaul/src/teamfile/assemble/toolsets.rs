//! Toolsets as the file says them become toolsets. What this build does not have is told, once, and left out.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use indexmap::IndexMap;

use super::agents::is_dialect;
use super::{Job, Outfit, Workshop};
use crate::teamfile::walk::join;
use crate::teamfile::{
    AgentPart, ApiPart, FetchPart, FilesystemPart, SkillsPart, ToolsetKind, ToolsetPart, Unfilled,
};
#[cfg(unix)]
use crate::teamfile::{SandboxPart, ScriptPart};
use crate::toolset::{
    A2a, Api, ApiSettings, Fetch, Filesystem, Headers, ModelPicker, OpenApi, PostEdit, Skills, Tasks, Think,
    Todo, Toolset, UserPrompt, instructed, narrowed,
};

/// Where skills usually are, beside a team file.
const USUAL_SKILLS: [&str; 4] = [".agents/skills", ".claude/skills", ".github/skills", "skills"];
/// Where tasks are kept, if the file does not say.
const TASKS: &str = "tasks.json";

impl Workshop<'_> {
    /// The toolsets of an agent.
    pub(super) fn toolsets(
        &mut self,
        job: &mut Job<'_>,
        name: &str,
        agent: &AgentPart,
    ) -> Vec<Arc<dyn Toolset>> {
        let path = join("agents", name);
        let mut parts: Vec<(String, ToolsetPart)> = Vec::new();
        for (index, part) in agent.toolsets.iter().enumerate() {
            parts.push((format!("{path}.toolsets[{index}]"), part.clone()));
        }
        for group in &agent.use_toolsets {
            let toolsets = job.team.toolsets.get(group).into_iter().flatten();
            let path = join("toolsets", group);
            parts
                .extend(toolsets.enumerate().map(|(index, part)| (format!("{path}[{index}]"), part.clone())));
        }
        let mut toolsets = Vec::new();
        for (path, part) in parts {
            if is_dialect(&part.kind) {
                continue;
            }
            #[cfg(all(unix, feature = "mcp"))]
            if let ToolsetKind::Mcp(mcp) = &part.kind {
                toolsets.push(self.mcp_tools(job, &part, mcp, &path));
                continue;
            }
            if let Some(toolset) = self.toolset(job, name, &part, &path) {
                toolsets.push(dressed(toolset, &part));
            }
        }
        toolsets.extend(self.skills(job, agent));
        toolsets
    }

    /// The toolset itself.
    fn toolset(
        &mut self,
        job: &mut Job<'_>,
        agent: &str,
        part: &ToolsetPart,
        path: &str,
    ) -> Option<Arc<dyn Toolset>> {
        match &part.kind {
            ToolsetKind::Filesystem(files) => Some(Arc::new(filesystem(files, self.outfit))),
            #[cfg(unix)]
            ToolsetKind::Shell(shell) => {
                let mut builder = crate::toolset::Shell::builder().watchman(self.outfit.watchman.clone());
                for (name, value) in self.filled(job, &shell.env, &format!("{path}.env")) {
                    builder = builder.env(name, value);
                }
                if let Some(sandbox) = self.sandbox(shell.sandbox.as_ref(), shell.network) {
                    builder = builder.sandbox(sandbox);
                }
                if let Some(timeout) = shell.timeout {
                    builder = builder.timeout(timeout);
                }
                Some(Arc::new(builder.build()))
            }
            #[cfg(unix)]
            ToolsetKind::Script(script) => self.script_tools(job, script, path),
            ToolsetKind::Think => Some(Arc::new(Think::new())),
            ToolsetKind::Todo { shared } => Some(Arc::new(Todo::new().shared(*shared))),
            ToolsetKind::Tasks { path } => Some(Arc::new(Tasks::new(path.as_deref().unwrap_or(TASKS)))),
            #[cfg(feature = "sqlite")]
            ToolsetKind::Memory { path } => {
                let kept = match path {
                    Some(path) => self.beside(path),
                    None => {
                        self.outfit.data.join("memory").join(format!("{}.db", plain(&job.full_name(agent))))
                    }
                };
                Some(Arc::new(crate::toolset::Memory::new(kept)))
            }
            ToolsetKind::Fetch(part) => Some(Arc::new(fetch(part))),
            ToolsetKind::UserPrompt => Some(Arc::new(UserPrompt::new())),
            ToolsetKind::Api(part) => Some(Arc::new(self.api(job, part, path))),
            ToolsetKind::Openapi(part) => {
                let url = self.filled_one(job, &part.url, &format!("{path}.url"));
                let headers = self.filled(job, &part.headers, &format!("{path}.headers"));
                Some(Arc::new(OpenApi::new(url, headers.into_iter().collect::<Headers>())))
            }
            ToolsetKind::A2a(part) => {
                let url = self.filled_one(job, &part.url, &format!("{path}.url"));
                let headers = self.filled(job, &part.headers, &format!("{path}.headers"));
                let a2a = A2a::new(url, headers.into_iter().collect::<Headers>());
                Some(Arc::new(match &part.name {
                    Some(name) => a2a.name(name.clone()),
                    None => a2a,
                }))
            }
            ToolsetKind::ModelPicker { models } => {
                let mut known = Vec::new();
                for (index, name) in models.iter().enumerate() {
                    match self.model(job, name) {
                        Ok(_) => known.push(name.clone()),
                        Err(why) => {
                            self.notice(job, &format!("{path}.models[{index}]"), why, "it cannot be picked")
                        }
                    }
                }
                Some(Arc::new(ModelPicker::new(known)))
            }
            // The reader has told these.
            ToolsetKind::Unknown { .. } | ToolsetKind::Lsp | ToolsetKind::Rag | ToolsetKind::Wrong => None,
            kind => {
                let message = format!("toolset '{}' is not available in this build", kind.name());
                self.notice(job, &format!("{path}.type"), message, "the agent runs without it");
                None
            }
        }
    }

    #[cfg(unix)]
    fn script_tools(&mut self, job: &mut Job<'_>, part: &ScriptPart, path: &str) -> Option<Arc<dyn Toolset>> {
        let mut builder = crate::toolset::Script::builder().watchman(self.outfit.watchman.clone());
        for (name, value) in self.filled(job, &part.env, &format!("{path}.env")) {
            builder = builder.env(name, value);
        }
        if let Some(sandbox) = self.sandbox(part.sandbox.as_ref(), part.network) {
            builder = builder.sandbox(sandbox);
        }
        if let Some(timeout) = part.timeout {
            builder = builder.timeout(timeout);
        }
        for (name, tool) in &part.shell {
            let path = join(&format!("{path}.shell"), name);
            let tool = crate::toolset::ScriptTool {
                cmd: tool.cmd.clone(),
                description: Some(tool.description.clone()).filter(|text| !text.is_empty()),
                args: tool.args.iter().map(|(name, schema)| (name.clone(), schema.clone())).collect(),
                required: tool.required.clone(),
                env: self.filled(job, &tool.env, &format!("{path}.env")).into_iter().collect(),
                working_dir: tool.working_dir.as_ref().map(PathBuf::from),
            };
            builder = builder.tool(name.clone(), tool);
        }
        match builder.build() {
            Ok(script) => Some(Arc::new(script)),
            Err(error) => {
                job.wrong(&format!("{path}.shell"), error.why);
                None
            }
        }
    }

    /// The sandbox of commands, if they are to have one.
    #[cfg(unix)]
    fn sandbox(&self, part: Option<&SandboxPart>, network: Option<bool>) -> Option<crate::toolset::Sandbox> {
        let mut sandbox = crate::toolset::Sandbox::new().network(network.unwrap_or(false));
        match part? {
            SandboxPart::Switch(on) => on.then_some(())?,
            SandboxPart::Word(word) => (word == "on").then_some(())?,
            SandboxPart::Old(settings) => {
                let paths = settings.get("paths").and_then(serde_json::Value::as_array);
                for path in paths.into_iter().flatten().filter_map(serde_json::Value::as_str) {
                    match path.strip_suffix(":ro") {
                        // Everything can be read.
                        Some(_) => {}
                        None => sandbox = sandbox.allow_write(path.trim_end_matches(":rw")),
                    }
                }
            }
        }
        Some(match &self.outfit.helper {
            Some(helper) => sandbox.helper(helper.clone()),
            None => sandbox,
        })
    }

    fn api(&mut self, job: &mut Job<'_>, part: &ApiPart, path: &str) -> Api {
        let call = &part.api_config;
        let path = format!("{path}.api_config");
        let headers = self.filled(job, &call.headers, &format!("{path}.headers"));
        // What is in braces may be one of the call's own arguments, which are filled in when it is made.
        let lookup = |name: &str| match call.args.contains_key(name) {
            true => Some(format!("${{{name}}}")),
            false => (self.outfit.variables)(name),
        };
        let endpoint = crate::teamfile::fill(&call.endpoint, &lookup).unwrap_or_else(|unset| {
            job.wrong(&format!("{path}.endpoint"), unset_words(&unset));
            String::new()
        });
        Api::new(ApiSettings {
            name: call.name.clone(),
            instruction: call.instruction.clone(),
            method: call.method.clone().unwrap_or_default(),
            endpoint,
            headers: headers.into_iter().collect(),
            args: call.args.clone(),
            required: call.required.clone(),
            output_schema: None,
        })
    }

    /// The skills of an agent, and those of the team that it uses.
    fn skills(&self, job: &Job<'_>, agent: &AgentPart) -> Option<Arc<dyn Toolset>> {
        let named = agent.use_skills.iter().filter_map(|name| job.team.skills.get(name));
        let mut folders = Vec::new();
        for skills in agent.skills.iter().chain(named) {
            match skills {
                SkillsPart::Switch(false) => {}
                SkillsPart::Switch(true) => folders.extend(USUAL_SKILLS.map(|folder| self.beside(folder))),
                SkillsPart::Sources(sources) => {
                    for source in sources {
                        match source.as_str() {
                            "local" => folders.extend(USUAL_SKILLS.map(|folder| self.beside(folder))),
                            source => folders.push(self.beside(source)),
                        }
                    }
                }
            }
        }
        (!folders.is_empty()).then(|| Arc::new(Skills::new(folders)) as Arc<dyn Toolset>)
    }

    /// A path from the directory of the team file.
    fn beside(&self, path: &str) -> PathBuf {
        self.bundle.base.join(Path::new(path))
    }

    /// Texts with their variables filled in. One that is not set is a problem of the file's.
    pub(super) fn filled(
        &self,
        job: &mut Job<'_>,
        texts: &IndexMap<String, String>,
        path: &str,
    ) -> Vec<(String, String)> {
        let fill =
            |(name, text): (&String, &String)| (name.clone(), self.filled_one(job, text, &join(path, name)));
        texts.iter().map(fill).collect()
    }

    pub(super) fn filled_one(&self, job: &mut Job<'_>, text: &str, path: &str) -> String {
        crate::teamfile::fill(text, &*self.outfit.variables).unwrap_or_else(|unset| {
            job.wrong(path, unset_words(&unset));
            String::new()
        })
    }
}

/// Why a text could not be filled in.
pub(super) fn unset_words(why: &Unfilled) -> String {
    why.to_string()
}

/// A name that can be one of a file.
fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_alphanumeric() || matches!(c, '-' | '_') { c } else { '_' }).collect()
}

fn filesystem(part: &FilesystemPart, outfit: &Outfit) -> Filesystem {
    let mut builder = Filesystem::builder();
    #[cfg(unix)]
    {
        builder = builder.watchman(outfit.watchman.clone());
    }
    #[cfg(not(unix))]
    let _ = outfit;
    for path in &part.allow_paths {
        builder = builder.allow_path(path);
    }
    for post in &part.post_edit {
        builder = builder.post_edit(PostEdit { path: post.path.clone(), cmd: post.cmd.clone() });
    }
    if let Some(ignore) = part.ignore_vcs {
        builder = builder.ignore_vcs(ignore);
    }
    builder.build()
}

fn fetch(part: &FetchPart) -> Fetch {
    let mut fetch = Fetch::new().allow_private(part.allow_private);
    if let Some(time) = part.timeout {
        fetch = fetch.timeout(time);
    }
    if let Some(bytes) = part.max_bytes.and_then(|bytes| usize::try_from(bytes).ok()) {
        fetch = fetch.max_bytes(bytes);
    }
    fetch
}

/// A toolset with what every toolset can have: fewer tools, and other words about them.
pub(super) fn dressed(mut toolset: Arc<dyn Toolset>, part: &ToolsetPart) -> Arc<dyn Toolset> {
    if let Some(tools) = part.tools.as_ref().filter(|tools| !tools.is_empty()) {
        toolset = narrowed(toolset, tools.iter().cloned());
    }
    if let Some(instruction) = &part.instruction {
        toolset = instructed(toolset, instruction.clone());
    }
    toolset
}
