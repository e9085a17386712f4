//! Resolves and checks the names in a team file.

use std::collections::HashSet;

use indexmap::IndexMap;

use super::problem::{Problem, ProblemList, SourceSpan};
use super::reader::{KeyValueSpans, join_path, shorten};
use super::suggestions::{suggest, suggest_also};
use super::variables::required_variables;
use super::{McpConfig, ModelPickerConfig, PermissionsConfig, TeamFile, ToolsetConfig, ToolsetKind};
use crate::agent::compile_schema;
use crate::hook::ToolMatcher;
use crate::model::http::{is_known_provider, known_providers};
use crate::permission::Pattern;

impl TeamFile {
    /// The spans of a path, or of the nearest parent if the path is not in the file.
    pub(super) fn span_of(&self, path: &str) -> KeyValueSpans {
        let mut path = path;
        loop {
            if let Some(spot) = self.spans.get(path) {
                return *spot;
            }
            match path.rfind(['.', '[']) {
                Some(at) => path = &path[..at],
                None => return KeyValueSpans { key: SourceSpan::START, value: SourceSpan::START },
            }
        }
    }

    /// The path of an agent's `acp` as the file has it: `harness` is its name in other runtimes.
    pub(super) fn acp_key(&self, agent: &str) -> String {
        let harness = format!("{agent}.harness");
        if self.spans.contains_key(&harness) { harness } else { format!("{agent}.acp") }
    }
}

/// What the name of a sub-agent refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AgentReference<'a> {
    /// An agent of this file.
    Agent(&'a str),
    /// Another team file.
    File { name: &'a str, path: &'a str },
    /// A remote agent or file.
    Remote { name: &'a str, address: &'a str },
    /// Nothing known.
    Unknown,
}

/// Whether an address counts as that of an A2A agent.
pub(super) fn is_a2a_address(address: &str) -> bool {
    let is_url = address.starts_with("https://") || address.starts_with("http://");
    is_url && !is_team_file(address)
}

fn is_team_file(address: &str) -> bool {
    let path = address.split(['?', '#']).next().unwrap_or(address);
    path.ends_with(".yaml") || path.ends_with(".yml")
}

/// Resolves the name of a sub-agent.
pub(super) fn resolve_reference<'a>(file: &TeamFile, text: &'a str) -> AgentReference<'a> {
    if file.agents.contains_key(text) {
        return AgentReference::Agent(text);
    }
    let is_url = |text: &str| text.starts_with("https://") || text.starts_with("http://");
    let (name, target) = match text.split_once(':') {
        Some((name, target)) if !is_url(text) && !name.contains('/') && !name.contains('.') => (name, target),
        _ => (stem(text), text),
    };
    let is_file = target.ends_with(".yaml")
        || target.ends_with(".yml")
        || target.starts_with('.')
        || target.starts_with('/');
    if is_url(target) {
        AgentReference::Remote { name, address: target }
    } else if is_file {
        AgentReference::File { name, path: target }
    } else if target.contains('/') {
        AgentReference::Remote { name, address: target }
    } else {
        AgentReference::Unknown
    }
}

/// The last part of a reference, without its extension.
fn stem(text: &str) -> &str {
    let last = text.trim_end_matches('/').rsplit('/').next().unwrap_or(text);
    last.split(['.', ':', '@']).next().unwrap_or(last)
}

/// Checks everything that a file refers to.
pub(super) fn check_references(file: &TeamFile, reported: &[Problem]) -> ProblemList {
    let mut check = ReferenceChecker { file, problems: ProblemList::default(), matchers: 0 };
    check.top(reported);
    for name in check.file.agents.keys() {
        check.agent(name);
    }
    check.problems
}

/// The maximum number of hook matchers in a file: each takes time to compile.
const MOST_MATCHERS: usize = 100;

struct ReferenceChecker<'a> {
    file: &'a TeamFile,
    problems: ProblemList,
    /// How many matchers have been compiled.
    matchers: usize,
}

fn names<T>(map: &IndexMap<String, T>) -> Vec<&str> {
    map.keys().map(String::as_str).collect()
}

impl<'a> ReferenceChecker<'a> {
    fn wrong(&mut self, path: &str, message: String, help: impl Into<String>) {
        let at = self.file.span_of(path).value;
        self.problems.push(Problem::error(at, path, message).with_help(help));
    }

    /// Checks permission patterns.
    fn permissions(&mut self, part: &PermissionsConfig, path: &str) {
        for (key, patterns) in [("allow", &part.allow), ("ask", &part.ask), ("deny", &part.deny)] {
            for (index, pattern) in patterns.iter().enumerate() {
                if self.problems.is_full() {
                    break;
                }
                if let Err(why) = Pattern::parse(pattern) {
                    let help = "a pattern is tool, tool*, or tool:argument=text, such as shell:cmd=git*";
                    self.wrong(&format!("{path}.{key}[{index}]"), why.to_string(), help);
                }
            }
        }
    }

    fn warn(&mut self, path: &str, message: String, help: impl Into<String>) {
        let at = self.file.span_of(path).value;
        self.problems.push(Problem::warning(at, path, message).with_help(help));
    }

    fn top(&mut self, reported: &[Problem]) {
        let file = self.file;
        let empty = file.spans.get("agents").is_some_and(|spot| spot.key != spot.value);
        if file.agents.is_empty() && empty && !reported.iter().any(|problem| problem.path == "agents") {
            self.wrong(
                "agents",
                "there is no agent here".to_owned(),
                "a team has at least one agent, such as `root: {instruction: …}`",
            );
        }
        if let Some(version) = &file.version
            && (version.is_empty() || !version.bytes().all(|b| b.is_ascii_digit()))
        {
            let message = format!("'{}' is not a version of team files", shorten(version));
            self.wrong(
                "version",
                message,
                "versions are whole numbers: \"0\", \"1\", … ; it may also be left out",
            );
        }
        for (name, model) in &file.models {
            let path = join_path("models", name);
            match (model.provider.as_deref(), model.model.as_deref()) {
                (Some("scripted"), script) => match (script, &model.script) {
                    (None, None) => self.wrong(
                        &path,
                        "a scripted model needs a script".to_owned(),
                        "name a file with `model`, or write it with `script`",
                    ),
                    (Some(_), Some(_)) => self.wrong(
                        &path,
                        "this scripted model has both a file and a script".to_owned(),
                        "keep `model` or `script`",
                    ),
                    _ => {}
                },
                (Some(provider), model_name) => {
                    if model.base_url.is_none() {
                        self.provider(provider, &format!("{path}.provider"));
                    }
                    if model_name.is_none_or(str::is_empty) {
                        self.wrong(
                            &path,
                            format!("the model '{name}' has no 'model'"),
                            "set it to the provider's name for the model",
                        );
                    }
                }
                (None, Some(text)) if text.contains('/') => {}
                (None, _) => {
                    self.wrong(
                        &path,
                        format!("the model '{name}' has no provider"),
                        format!("providers: {}", known_providers().collect::<Vec<_>>().join(", ")),
                    );
                }
            }
            self.url(model.base_url.as_deref(), &format!("{path}.base_url"));
        }
        for (name, provider) in &file.providers {
            let path = join_path("providers", name);
            self.url(provider.base_url.as_deref(), &format!("{path}.base_url"));
            if provider.base_url.is_none() && provider.provider.is_none() && !is_known_provider(name) {
                self.wrong(&path, format!("the provider '{name}' has no base_url"), "set its base_url");
            }
            if let Some(like) = &provider.provider {
                self.provider(like, &format!("{path}.provider"));
            }
        }
        self.permissions(&file.permissions, "permissions");
        for (name, agent) in &file.agents {
            self.permissions(&agent.permissions, &format!("{}.permissions", join_path("agents", name)));
        }
        for (name, toolset) in &file.mcps {
            let path = join_path("mcps", name);
            self.toolset(toolset, &path);
            if let ToolsetKind::Mcp(McpConfig { reference: Some(reference), .. }) = &toolset.kind
                && !reference.starts_with("docker:")
            {
                self.wrong(
                    &format!("{path}.ref"),
                    format!(
                        "'{reference}' cannot be used here: `ref` under `mcps` must name a Docker server"
                    ),
                    "write docker:name",
                );
            }
        }
        for (name, group) in &file.toolsets {
            for (index, toolset) in group.iter().enumerate() {
                self.toolset(toolset, &format!("{}[{index}]", join_path("toolsets", name)));
            }
        }
    }

    fn agent(&mut self, name: &str) {
        let file = self.file;
        let Some(agent) = file.agents.get(name) else { return };
        let path = join_path("agents", name);
        let fits = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | ':');
        if name.is_empty() || name.len() > 128 || !name.chars().all(fits) {
            let at = file.span_of(&path).key;
            let message = format!("'{}' cannot be an agent's name", shorten(name));
            self.problems
                .push(Problem::error(at, &path, message).with_help("use letters, digits, '-' and '_'"));
        }
        for (index, model) in agent.model.iter().enumerate() {
            self.model(model, &format!("{path}.model[{index}]"));
        }
        if let Some(fallback) = &agent.fallback {
            for (index, model) in fallback.models.iter().enumerate() {
                self.model(model, &format!("{path}.fallback.models[{index}]"));
            }
        }
        self.others(name, &agent.sub_agents, &format!("{path}.sub_agents"), "sub-agent");
        self.others(name, &agent.handoffs, &format!("{path}.handoffs"), "handoff");
        let at = |key: &str| format!("{path}.{key}");
        self.known(&agent.budgets, &file.budgets, &at("budgets"), "budget", "budgets");
        self.known(&agent.use_toolsets, &file.toolsets, &at("use_toolsets"), "toolset", "toolsets");
        self.known(&agent.use_commands, &file.commands, &at("use_commands"), "group of commands", "commands");
        self.known(&agent.use_skills, &file.skills, &at("use_skills"), "source of skills", "skills");
        for (index, toolset) in agent.toolsets.iter().enumerate() {
            let path = format!("{path}.toolsets[{index}]");
            self.toolset(toolset, &path);
            if matches!(toolset.kind, ToolsetKind::BackgroundAgents(_) | ToolsetKind::Agents(_))
                && agent.sub_agents.is_empty()
            {
                let message = format!("agent '{name}' has no agent to send tasks to");
                self.warn(&format!("{path}.type"), message, "name its sub_agents");
            }
        }
        if let Some(output) = &agent.structured_output
            && !output.schema.is_null()
            && let Err(error) = compile_schema(&output.schema)
        {
            let why: String = error.to_string().chars().take(200).collect();
            self.wrong(
                &format!("{path}.structured_output.schema"),
                format!("this is not a JSON schema: {why}"),
                "see json-schema.org",
            );
        }
        let hooks =
            [("pre_tool_use", &agent.hooks.pre_tool_use), ("post_tool_use", &agent.hooks.post_tool_use)];
        for (key, matchers) in hooks {
            for (index, matcher) in matchers.iter().enumerate() {
                self.matchers += 1;
                if self.matchers == MOST_MATCHERS + 1 {
                    let message = format!("there are more than {MOST_MATCHERS} matchers in this file");
                    self.wrong(
                        &format!("{path}.hooks.{key}[{index}]"),
                        message,
                        "one matcher can have many hooks",
                    );
                }
                if self.matchers > MOST_MATCHERS {
                    break;
                }
                let pattern = matcher.matcher.as_deref().unwrap_or_default();
                if let Err(error) = ToolMatcher::parse(pattern) {
                    let error = error.to_string();
                    let why = error.lines().last().unwrap_or_default().trim().to_owned();
                    let message = format!("'{}' is not a pattern: {why}", shorten(pattern));
                    self.wrong(
                        &format!("{path}.hooks.{key}[{index}].matcher"),
                        message,
                        "write tool names with | between them, or * for all",
                    );
                }
            }
        }
    }

    /// Checks the agents that another one names.
    fn others(&mut self, agent: &str, others: &[String], path: &str, what: &str) {
        let file = self.file;
        let mut seen = HashSet::new();
        for (index, other) in others.iter().enumerate() {
            if other.is_empty() || self.problems.is_full() {
                continue;
            }
            let path = format!("{path}[{index}]");
            if !seen.insert(other.as_str()) {
                self.wrong(&path, format!("agent '{agent}' has the {what} '{other}' twice"), "name it once");
                continue;
            }
            match resolve_reference(file, other) {
                AgentReference::Agent(other) if other == agent => {
                    self.wrong(&path, format!("agent '{agent}' is its own {what}"), "name another agent");
                }
                AgentReference::Agent(_) | AgentReference::File { .. } => {}
                AgentReference::Remote { address, .. } if is_a2a_address(address) && what == "sub-agent" => {}
                AgentReference::Remote { address, .. } if is_a2a_address(address) => {
                    let message = format!(
                        "'{}' is a remote agent: a conversation cannot be handed over to it",
                        shorten(address)
                    );
                    self.wrong(&path, message, "name it under sub_agents");
                }
                AgentReference::Remote { address, .. } if address.contains("://") => {
                    let message = format!(
                        "'{}' is a remote team file: you have not reviewed what it would run here",
                        shorten(address)
                    );
                    self.wrong(
                        &path,
                        message,
                        "save it beside this file, review it, and write name:./file.yaml",
                    );
                }
                AgentReference::Remote { address, .. } => {
                    let message = format!(
                        "'{}' is in a registry: agents can only come from files and URLs",
                        shorten(address)
                    );
                    self.warn(&path, message, format!("the team runs without this {what}; save its team file beside this one and write name:./file.yaml"));
                }
                AgentReference::Unknown => {
                    let message = format!("there is no agent '{}'", shorten(other));
                    let agents: Vec<&str> =
                        names(&file.agents).into_iter().filter(|name| *name != agent).collect();
                    self.wrong(&path, message, suggest(other, &agents, "agents"));
                }
            }
        }
    }

    fn known<T>(
        &mut self,
        used: &[String],
        known: &IndexMap<String, T>,
        path: &str,
        what: &str,
        section: &str,
    ) {
        for (index, name) in used.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
            if !known.contains_key(name) && !self.problems.is_full() {
                let message = format!("there is no {what} '{}' under `{section}`", shorten(name));
                self.wrong(&format!("{path}[{index}]"), message, suggest(name, &names(known), section));
            }
        }
    }

    fn model(&mut self, name: &str, path: &str) {
        let known = name == "auto" || self.file.models.contains_key(name);
        if name.is_empty() || known || self.problems.is_full() {
            return;
        }
        match name.split_once('/') {
            Some(("scripted", file)) if !file.is_empty() => {}
            Some((provider, model)) if !provider.is_empty() && !model.is_empty() => {
                self.provider(provider, path)
            }
            _ => {
                let mut known = names(&self.file.models);
                known.push("auto");
                let message = format!("there is no model '{}'", shorten(name));
                let help = suggest_also(suggest(name, &known, "models"), "write provider/model");
                self.wrong(path, message, help);
            }
        }
    }

    fn provider(&mut self, name: &str, path: &str) {
        let file = self.file;
        if file.providers.contains_key(name) || self.problems.is_full() {
            return;
        }
        let mut known = names(&file.providers);
        known.extend(known_providers().map(|name| -> &str { name }));
        known.push("scripted");
        if !known.contains(&name) && !is_known_provider(name) {
            let message = format!("there is no provider '{}'", shorten(name));
            let help = suggest(name, &known, "providers");
            self.wrong(
                path,
                message,
                suggest_also(help, "add your own under `providers`, with its base_url"),
            );
        }
    }

    fn toolset(&mut self, toolset: &ToolsetConfig, path: &str) {
        if let Some(model) = &toolset.model {
            self.model(model, &format!("{path}.model"));
        }
        match &toolset.kind {
            ToolsetKind::Mcp(mcp) => {
                if let Some(reference) = &mcp.reference
                    && !reference.starts_with("docker:")
                    && !path.starts_with("mcps")
                    && !self.file.mcps.contains_key(reference)
                {
                    let message = format!("there is no MCP server '{}' under `mcps`", shorten(reference));
                    let help = suggest(reference, &names(&self.file.mcps), "servers");
                    let also = format!("write docker:{reference} for Docker's MCP gateway");
                    self.wrong(&format!("{path}.ref"), message, suggest_also(help, &also));
                }
                if let Some(remote) = &mcp.remote {
                    self.url(Some(&remote.url), &format!("{path}.remote.url"));
                }
            }
            ToolsetKind::Openapi(openapi) => self.url(Some(&openapi.url), &format!("{path}.url")),
            ToolsetKind::A2a(a2a) => self.url(Some(&a2a.url), &format!("{path}.url")),
            ToolsetKind::Api(api) => {
                self.url(Some(&api.api_config.endpoint), &format!("{path}.api_config.endpoint"))
            }
            ToolsetKind::ModelPicker(ModelPickerConfig { models }) => {
                for (index, model) in models.iter().enumerate() {
                    self.model(model, &format!("{path}.models[{index}]"));
                }
            }
            _ => {}
        }
    }

    /// Reports a URL that is certainly invalid, before its variables are filled in.
    fn url(&mut self, url: Option<&str>, path: &str) {
        let Some(url) = url.map(str::trim).filter(|url| !url.is_empty()) else { return };
        let begins = url.starts_with("http://") || url.starts_with("https://");
        if !begins && !url.starts_with('$') && required_variables(url).is_empty() {
            self.wrong(
                path,
                format!("'{}' is not a URL", shorten(url)),
                "it begins with http:// or https://",
            );
        }
    }
}
