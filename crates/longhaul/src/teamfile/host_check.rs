//! Checks what a team file needs from its machine.

use std::path::Path;

use super::TeamFile;
use super::problem::{Problem, ProblemKind, ProblemList};
use super::reader::join_path;
use super::references::{AgentReference, resolve_reference};
use super::variables::required_variables;
use super::{McpConfig, ToolsetConfig, ToolsetKind};

/// The part of a machine that a team file depends on.
pub trait HostProbe {
    /// Whether an environment variable is set.
    fn has_variable(&self, name: &str) -> bool;
    /// Whether a file exists. The path is as written in the team file, relative to its directory.
    fn has_file(&self, path: &Path) -> bool;
}

/// Reports what a team file needs and the machine lacks. A missing file is an error; a variable that is not
/// set is a warning, because it may be set where the team runs.
pub fn check_host(file: &TeamFile, host: &dyn HostProbe) -> Vec<Problem> {
    let mut check = HostCheck { file, host, problems: ProblemList::default() };
    check.all();
    check.problems.into_sorted()
}

struct HostCheck<'a> {
    file: &'a TeamFile,
    host: &'a dyn HostProbe,
    problems: ProblemList,
}

impl HostCheck<'_> {
    fn all(&mut self) {
        let file = self.file;
        for (name, agent) in &file.agents {
            let path = join_path("agents", name);
            for (index, instruction) in agent.instruction_file.iter().enumerate() {
                self.file_at(instruction, &format!("{path}.instruction_file[{index}]"));
            }
            for (key, others) in [("sub_agents", &agent.sub_agents), ("handoffs", &agent.handoffs)] {
                for (index, other) in others.iter().enumerate() {
                    if let AgentReference::File { path: other, .. } = resolve_reference(file, other) {
                        self.file_at(other, &format!("{path}.{key}[{index}]"));
                    }
                }
            }
            if let Some(acp) = &agent.acp {
                self.map_at(&acp.env, &format!("{}.env", file.acp_key(&path)));
            }
            self.map_at(&agent.hooks.env, &format!("{path}.hooks.env"));
            for (index, toolset) in agent.toolsets.iter().enumerate() {
                self.toolset(toolset, &format!("{path}.toolsets[{index}]"));
            }
        }
        for (name, group) in &file.toolsets {
            for (index, toolset) in group.iter().enumerate() {
                self.toolset(toolset, &format!("{}[{index}]", join_path("toolsets", name)));
            }
        }
        for (name, toolset) in &file.mcps {
            self.toolset(toolset, &join_path("mcps", name));
        }
        for (name, model) in &file.models {
            let path = join_path("models", name);
            if let Some(url) = &model.base_url {
                self.variables_at(url, &format!("{path}.base_url"), &[]);
            }
            if model.provider.as_deref() == Some("scripted")
                && let Some(script) = &model.model
            {
                self.file_at(script, &format!("{path}.model"));
            }
        }
        for (name, provider) in &file.providers {
            if let Some(url) = &provider.base_url {
                self.variables_at(url, &format!("{}.base_url", join_path("providers", name)), &[]);
            }
        }
    }

    fn toolset(&mut self, toolset: &ToolsetConfig, path: &str) {
        let mut maps = Vec::new();
        match &toolset.kind {
            ToolsetKind::Shell(shell) => maps.push(("env", &shell.env)),
            ToolsetKind::Script(script) => {
                maps.push(("env", &script.env));
                for (name, tool) in &script.shell {
                    let path = format!("{}.env", join_path(&format!("{path}.shell"), name));
                    self.map_at(&tool.env, &path);
                }
            }
            ToolsetKind::Mcp(McpConfig { env, remote, .. }) => {
                maps.push(("env", env));
                if let Some(remote) = remote {
                    self.variables_at(&remote.url, &format!("{path}.remote.url"), &[]);
                    maps.push(("remote.headers", &remote.headers));
                }
            }
            ToolsetKind::Openapi(openapi) => {
                self.variables_at(&openapi.url, &format!("{path}.url"), &[]);
                maps.push(("headers", &openapi.headers));
            }
            ToolsetKind::A2a(a2a) => {
                self.variables_at(&a2a.url, &format!("{path}.url"), &[]);
                maps.push(("headers", &a2a.headers));
            }
            ToolsetKind::Api(api) => {
                let call = &api.api_config;
                let arguments: Vec<&str> = call.args.keys().map(String::as_str).collect();
                self.variables_at(&call.endpoint, &format!("{path}.api_config.endpoint"), &arguments);
                maps.push(("api_config.headers", &call.headers));
            }
            _ => {}
        }
        for (key, map) in maps {
            self.map_at(map, &format!("{path}.{key}"));
        }
    }

    fn map_at(&mut self, map: &indexmap::IndexMap<String, String>, path: &str) {
        for (name, text) in map {
            self.variables_at(text, &join_path(path, name), &[]);
        }
    }

    fn variables_at(&mut self, text: &str, path: &str, arguments: &[&str]) {
        for name in required_variables(text) {
            if !arguments.contains(&name) && !self.host.has_variable(name) {
                let message = format!("the variable {name} is not set here");
                let help = format!("set {name} before the team is run");
                let problem = Problem::warning(self.file.span_of(path).value, path, message).with_help(help);
                self.problems.push(problem.with_kind(ProblemKind::Environment));
            }
        }
    }

    fn file_at(&mut self, name: &str, path: &str) {
        if !name.is_empty() && !self.host.has_file(Path::new(name)) {
            let message = format!("there is no file '{name}'");
            let help = "paths are relative to the team file";
            self.problems.push(Problem::error(self.file.span_of(path).value, path, message).with_help(help));
        }
    }
}
