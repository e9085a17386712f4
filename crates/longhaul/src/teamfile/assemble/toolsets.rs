//! Builds toolsets from their configuration. A type that this build lacks is reported once and left out.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use indexmap::IndexMap;

use super::agents::is_sub_agent_toolset;
use super::{Environment, FileAssembly, TeamAssembler};
use crate::teamfile::reader::join_path;
use crate::teamfile::{
    AgentConfig, ApiConfig, FetchConfig, FileToolsConfig, FilesystemConfig, ModelPickerConfig, SkillsConfig,
    ToolsetConfig, ToolsetKind,
};
use crate::teamfile::{SandboxConfig, ScriptConfig};
use crate::toolset::{
    A2a, Api, ApiSettings, Fetch, Filesystem, ModelPicker, OpenApi, PostEdit, ProjectTasks, SecretHeaders,
    Skills, Think, Todo, Toolset, UserPrompt, only_tools, with_instruction,
};

/// The default folders for skills, beside a team file.
const USUAL_SKILLS: [&str; 4] = [".agents/skills", ".claude/skills", ".github/skills", "skills"];
/// The default file for tasks.
const TASKS: &str = "tasks.json";

impl TeamAssembler<'_> {
    pub(super) fn toolsets(
        &mut self,
        job: &mut FileAssembly<'_>,
        name: &str,
        agent: &AgentConfig,
    ) -> Vec<Arc<dyn Toolset>> {
        let path = join_path("agents", name);
        let mut parts: Vec<(String, ToolsetConfig)> = Vec::new();
        for (index, part) in agent.toolsets.iter().enumerate() {
            parts.push((format!("{path}.toolsets[{index}]"), part.clone()));
        }
        for group in &agent.use_toolsets {
            let toolsets = job.team.toolsets.get(group).into_iter().flatten();
            let path = join_path("toolsets", group);
            parts
                .extend(toolsets.enumerate().map(|(index, part)| (format!("{path}[{index}]"), part.clone())));
        }
        let mut toolsets = Vec::new();
        for (path, part) in parts {
            if is_sub_agent_toolset(&part.kind) {
                continue;
            }
            #[cfg(feature = "mcp")]
            if let ToolsetKind::Mcp(mcp) = &part.kind {
                toolsets.push(self.mcp_tools(job, &part, mcp, &path));
                continue;
            }
            if let Some(toolset) = self.toolset(job, name, &part, &path) {
                toolsets.push(apply_common_options(toolset, &part));
            }
        }
        toolsets.extend(self.skills(job, agent));
        toolsets
    }

    /// Builds one toolset.
    fn toolset(
        &mut self,
        job: &mut FileAssembly<'_>,
        agent: &str,
        part: &ToolsetConfig,
        path: &str,
    ) -> Option<Arc<dyn Toolset>> {
        // Only the database of memories is named after the agent.
        #[cfg(not(feature = "sqlite"))]
        let _ = agent;
        match &part.kind {
            ToolsetKind::Filesystem(files) => Some(Arc::new(filesystem(files, self.environment))),
            ToolsetKind::Shell(shell) => {
                let mut builder =
                    crate::toolset::Shell::builder().guardian(self.environment.guardian.clone());
                for (name, value) in self.fill_all(job, &shell.env, &format!("{path}.env")) {
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
            ToolsetKind::Script(script) => self.script_tools(job, script, path),
            ToolsetKind::Think => Some(Arc::new(Think::new())),
            ToolsetKind::Todo(todo) => Some(Arc::new(Todo::new().shared(todo.shared))),
            ToolsetKind::Tasks(FileToolsConfig { path }) => {
                Some(Arc::new(ProjectTasks::new(path.as_deref().unwrap_or(TASKS))))
            }
            #[cfg(feature = "sqlite")]
            ToolsetKind::Memory(FileToolsConfig { path }) => {
                let kept = match path {
                    Some(path) => self.path_beside_team_file(path),
                    None => self
                        .environment
                        .data_dir
                        .join("memory")
                        .join(format!("{}.db", plain(&job.full_name(agent)))),
                };
                Some(Arc::new(crate::toolset::AgentMemory::new(kept)))
            }
            ToolsetKind::Fetch(part) => {
                Some(Arc::new(fetch(part).own_server(self.environment.own_server.clone())))
            }
            ToolsetKind::UserPrompt => Some(Arc::new(UserPrompt::new())),
            ToolsetKind::Api(part) => Some(Arc::new(self.api(job, part, path))),
            ToolsetKind::Openapi(part) => {
                let url = self.fill_one(job, &part.url, &format!("{path}.url"));
                let headers = self.fill_all(job, &part.headers, &format!("{path}.headers"));
                let openapi = OpenApi::new(url, headers.into_iter().collect::<SecretHeaders>());
                Some(Arc::new(openapi.own_server(self.environment.own_server.clone())))
            }
            ToolsetKind::A2a(part) => {
                let url = self.fill_one(job, &part.url, &format!("{path}.url"));
                let headers = self.fill_all(job, &part.headers, &format!("{path}.headers"));
                let a2a = A2a::new(url, headers.into_iter().collect::<SecretHeaders>());
                let a2a = a2a.own_server(self.environment.own_server.clone());
                Some(Arc::new(match &part.name {
                    Some(name) => a2a.name(name.clone()),
                    None => a2a,
                }))
            }
            ToolsetKind::ModelPicker(ModelPickerConfig { models }) => {
                let mut known = Vec::new();
                for (index, name) in models.iter().enumerate() {
                    match self.model(job, name) {
                        Ok(_) => known.push(name.clone()),
                        Err(why) => self.warn(
                            job,
                            &format!("{path}.models[{index}]"),
                            why.to_string(),
                            "it cannot be picked",
                        ),
                    }
                }
                Some(Arc::new(ModelPicker::new(known)))
            }
            // Already reported by the reader.
            ToolsetKind::Unknown { .. } | ToolsetKind::Lsp | ToolsetKind::Rag | ToolsetKind::Wrong => None,
            kind => {
                let message = format!("toolset '{}' is not available in this build", kind.name());
                self.warn(job, &format!("{path}.type"), message, "the agent runs without it");
                None
            }
        }
    }

    fn script_tools(
        &mut self,
        job: &mut FileAssembly<'_>,
        part: &ScriptConfig,
        path: &str,
    ) -> Option<Arc<dyn Toolset>> {
        let mut builder = crate::toolset::ScriptTools::builder().guardian(self.environment.guardian.clone());
        for (name, value) in self.fill_all(job, &part.env, &format!("{path}.env")) {
            builder = builder.env(name, value);
        }
        if let Some(sandbox) = self.sandbox(part.sandbox.as_ref(), part.network) {
            builder = builder.sandbox(sandbox);
        }
        if let Some(timeout) = part.timeout {
            builder = builder.timeout(timeout);
        }
        for (name, tool) in &part.shell {
            let path = join_path(&format!("{path}.shell"), name);
            let tool = crate::toolset::ScriptTool {
                cmd: tool.cmd.clone(),
                description: Some(tool.description.clone()).filter(|text| !text.is_empty()),
                args: tool.args.iter().map(|(name, schema)| (name.clone(), schema.clone())).collect(),
                required: tool.required.clone(),
                env: self.fill_all(job, &tool.env, &format!("{path}.env")).into_iter().collect(),
                working_dir: tool.working_dir.as_ref().map(PathBuf::from),
            };
            builder = builder.tool(name.clone(), tool);
        }
        match builder.build() {
            Ok(script) => Some(Arc::new(script)),
            Err(error) => {
                job.add_error(&format!("{path}.shell"), error.why);
                None
            }
        }
    }

    /// The sandbox for commands, if it is on.
    pub(super) fn sandbox(
        &self,
        part: Option<&SandboxConfig>,
        network: Option<bool>,
    ) -> Option<crate::toolset::Sandbox> {
        let mut sandbox = crate::toolset::Sandbox::new()
            .network(network.unwrap_or(false))
            .own_server(&self.environment.own_server);
        match part? {
            SandboxConfig::Switch(on) => on.then_some(())?,
            SandboxConfig::Word(word) => (word == "on").then_some(())?,
            SandboxConfig::Old(settings) => {
                let paths = settings.get("paths").and_then(serde_json::Value::as_array);
                for path in paths.into_iter().flatten().filter_map(serde_json::Value::as_str) {
                    match path.strip_suffix(":ro") {
                        // Everything can be read anyway.
                        Some(_) => {}
                        None => sandbox = sandbox.allow_write(path.trim_end_matches(":rw")),
                    }
                }
            }
        }
        Some(match &self.environment.sandbox_helper {
            Some(helper) => sandbox.helper(helper.clone()),
            None => sandbox,
        })
    }

    fn api(&mut self, job: &mut FileAssembly<'_>, part: &ApiConfig, path: &str) -> Api {
        let call = &part.api_config;
        let path = format!("{path}.api_config");
        let headers = self.fill_all(job, &call.headers, &format!("{path}.headers"));
        // A name in braces may be an argument of the call, which is filled in when the call is made.
        let lookup = |name: &str| match call.args.contains_key(name) {
            true => Some(format!("${{{name}}}")),
            false => (self.environment.variables)(name),
        };
        let endpoint = crate::teamfile::fill_variables(&call.endpoint, &lookup)
            .unwrap_or_else(|unset| job.add_variable_error(&format!("{path}.endpoint"), &unset));
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
        .own_server(self.environment.own_server.clone())
    }

    /// The skills of an agent, including those of the team that it uses.
    fn skills(&self, job: &FileAssembly<'_>, agent: &AgentConfig) -> Option<Arc<dyn Toolset>> {
        let named = agent.use_skills.iter().filter_map(|name| job.team.skills.get(name));
        let mut folders = Vec::new();
        for skills in agent.skills.iter().chain(named) {
            match skills {
                SkillsConfig::Switch(false) => {}
                SkillsConfig::Switch(true) => {
                    folders.extend(USUAL_SKILLS.map(|folder| self.path_beside_team_file(folder)))
                }
                SkillsConfig::Sources(sources) => {
                    for source in sources {
                        match source.as_str() {
                            "local" => {
                                folders.extend(USUAL_SKILLS.map(|folder| self.path_beside_team_file(folder)))
                            }
                            source => folders.push(self.path_beside_team_file(source)),
                        }
                    }
                }
            }
        }
        (!folders.is_empty()).then(|| Arc::new(Skills::new(folders)) as Arc<dyn Toolset>)
    }

    /// A path relative to the directory of the team file.
    fn path_beside_team_file(&self, path: &str) -> PathBuf {
        self.bundle.base.join(Path::new(path))
    }

    /// Fills in the variables of texts. A variable that is not set is reported as an error of the file.
    pub(super) fn fill_all(
        &self,
        job: &mut FileAssembly<'_>,
        texts: &IndexMap<String, String>,
        path: &str,
    ) -> Vec<(String, String)> {
        let fill = |(name, text): (&String, &String)| {
            (name.clone(), self.fill_one(job, text, &join_path(path, name)))
        };
        texts.iter().map(fill).collect()
    }

    pub(super) fn fill_one(&self, job: &mut FileAssembly<'_>, text: &str, path: &str) -> String {
        crate::teamfile::fill_variables(text, &*self.environment.variables)
            .unwrap_or_else(|unset| job.add_variable_error(path, &unset))
    }
}

/// A name that is safe as a file name.
fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_alphanumeric() || matches!(c, '-' | '_') { c } else { '_' }).collect()
}

fn filesystem(part: &FilesystemConfig, environment: &Environment) -> Filesystem {
    let mut builder =
        Filesystem::builder().guardian(environment.guardian.clone()).own_server(&environment.own_server);
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

fn fetch(part: &FetchConfig) -> Fetch {
    let mut fetch = Fetch::new().allow_private(part.allow_private);
    if let Some(time) = part.timeout {
        fetch = fetch.timeout(time);
    }
    if let Some(bytes) = part.max_bytes.and_then(|bytes| usize::try_from(bytes).ok()) {
        fetch = fetch.max_bytes(bytes);
    }
    fetch
}

/// Applies the options that every toolset has: fewer tools, and other instructions.
pub(super) fn apply_common_options(mut toolset: Arc<dyn Toolset>, part: &ToolsetConfig) -> Arc<dyn Toolset> {
    if let Some(tools) = part.tools.as_ref().filter(|tools| !tools.is_empty()) {
        toolset = only_tools(toolset, tools.iter().cloned());
    }
    if let Some(instruction) = &part.instruction {
        toolset = with_instruction(toolset, instruction.clone());
    }
    toolset
}
