//! Builds agents from their configuration: instruction, policy and sub-agents.

use std::sync::Arc;

use super::{AssembleError, FileAssembly, TeamAssembler, TeamFileSource};
use crate::agent::{Agent, LaunchLimits, OutputSchema, Policy, Preamble, SubAgentDialect, TeamError};
use crate::dispatch::TaskLimits;
use crate::entry::{Budget, Isolation};
use crate::model::settings::StructuredOutput;
use crate::permission::Permissions;
use crate::teamfile::bundle::parent_dir;
use crate::teamfile::reader::join_path;
use crate::teamfile::references::{AgentReference, is_a2a_address, resolve_reference};
use crate::teamfile::{
    AgentConfig, BudgetConfig, LauncherConfig, LimitsConfig, PermissionsConfig, TeamFile, ToolsetKind,
};
use crate::toolset::{with_call_description, with_redaction};

impl<'a> TeamAssembler<'a> {
    /// Builds an agent, and the agents of other files that it refers to.
    pub(super) fn assemble_agent(
        &mut self,
        job: &mut FileAssembly<'a>,
        name: &str,
    ) -> Result<(), AssembleError> {
        let Some(part) = job.team.agents.get(name).cloned() else { return Ok(()) };
        let path = join_path("agents", name);
        let acp = part.acp.as_ref().filter(|acp| !self.skips_harness(job, acp, &path));
        let program = match acp {
            Some(acp) => match self.acp_agent(job, &part, acp, &path) {
                Some(program) => Some(program),
                None => return Ok(()),
            },
            None => None,
        };
        let model = match &program {
            Some(_) => None,
            None => match self.agent_model(job, name, &part) {
                Some(model) => Some(model),
                None => return Ok(()),
            },
        };
        let is_foreign = program.is_some();
        let mut builder = Agent::builder(job.full_name(name).as_str())
            .description(part.description.clone())
            .instruction(self.instruction(job, &part, &path))
            .preamble(Preamble {
                date: part.add_date,
                environment: part.add_environment_info,
                prompt_files: part.add_prompt_files.clone(),
            })
            .policy(policy(&job.team, &part));
        builder = match (model, program) {
            (Some(model), _) => builder.model(model),
            (None, Some(program)) => builder.acp(program),
            (None, None) => builder,
        };
        if let Some(hooks) = self.hooks(job, &part.hooks, &format!("{path}.hooks")) {
            builder = builder.hooks(hooks);
        }
        // Permissions of the main file apply to the whole team, those of another file only to its own agents.
        let of_file = job.prefix.is_some().then_some(&job.team.permissions);
        if of_file.is_some() || part.permissions != PermissionsConfig::default() {
            let usual = PermissionsConfig::default();
            builder =
                builder.permissions(permissions(&of_file.unwrap_or(&usual).merged_with(&part.permissions))?);
        }
        for (index, other) in part.sub_agents.iter().enumerate() {
            let path = format!("{path}.sub_agents[{index}]");
            if let Some(other) = self.resolve_agent(job, other, &path)? {
                builder = builder.sub_agent_named(other.as_str());
            }
        }
        let handoffs = part.handoffs.iter().filter(|_| !is_foreign);
        for (index, other) in handoffs.enumerate() {
            let path = format!("{path}.handoffs[{index}]");
            if let Some(other) = self.resolve_agent(job, other, &path)? {
                builder = builder.handoff_named(other.as_str());
            }
        }
        if let Some(output) = &part.structured_output {
            let asked = StructuredOutput {
                name: output.name.clone(),
                description: output.description.clone(),
                schema: output.schema.clone(),
                strict: output.strict,
            };
            match OutputSchema::new(asked) {
                Ok(shape) => builder = builder.output_schema(shape),
                Err(why) => job.add_error(&format!("{path}.structured_output.schema"), why.to_string()),
            }
        }
        if is_foreign {
            // It gets the tools for its sub-agents over MCP, and has all others itself.
            self.agents.push(builder.dialect(SubAgentDialect::Background).build()?);
            return Ok(());
        }
        let mut agent = builder.dialect(dialect(&job.team, &part)).build()?;
        let toolsets = self.toolsets(job, name, &part);
        agent.toolsets.extend(toolsets);
        if part.redact_secrets {
            agent.toolsets = agent.toolsets.into_iter().map(with_redaction).collect();
        }
        if part.add_description_parameter {
            agent.toolsets = agent.toolsets.into_iter().map(with_call_description).collect();
        }
        self.agents.push(agent);
        Ok(())
    }

    /// The name in the whole team of an agent that another one names. Assembles its file if that is another
    /// one.
    fn resolve_agent(
        &mut self,
        job: &mut FileAssembly<'a>,
        text: &str,
        path: &str,
    ) -> Result<Option<String>, AssembleError> {
        let (name, file) = match resolve_reference(&job.team, text) {
            AgentReference::Agent(name) => return Ok(Some(job.full_name(name))),
            AgentReference::Remote { name, address } if is_a2a_address(address) => {
                return self.remote_agent(job, name, address, path);
            }
            // Already reported by the reader.
            AgentReference::Remote { .. } | AgentReference::Unknown => return Ok(None),
            AgentReference::File { name, path } => (name.to_owned(), path.to_owned()),
        };
        let name = match &job.prefix {
            None => name,
            Some(prefix) => format!("{prefix}/{name}"),
        };
        let Some((key, text)) = self.bundle.find_file(parent_dir(&job.source.key), &file) else {
            job.add_error(path, format!("there is no team file '{file}': paths are relative to this one"));
            return Ok(None);
        };
        if self.agents.iter().any(|agent| agent.name.as_str() == name) {
            return Ok(Some(name));
        }
        if job.prefix.is_none() && job.team.agents.contains_key(&name) {
            job.add_error(
                path,
                format!("an agent of this file is called '{name}' already: write other-name:{file}"),
            );
            return Ok(None);
        }
        let source = TeamFileSource { name: self.bundle.base.join(&key).display().to_string(), key, text };
        self.assemble_file(source, Some(name.clone()))?;
        Ok(Some(name))
    }

    fn instruction(&self, job: &mut FileAssembly<'_>, part: &AgentConfig, path: &str) -> Arc<str> {
        if part.instruction_file.is_empty() {
            return part.instruction.as_str().into();
        }
        let mut texts = Vec::new();
        for (index, file) in part.instruction_file.iter().enumerate() {
            match self.bundle.find_file(parent_dir(&job.source.key), file) {
                Some((_, text)) => texts.push(text.trim_end()),
                None => job.add_error(
                    &format!("{path}.instruction_file[{index}]"),
                    format!("there is no file '{file}': paths are relative to the team file"),
                ),
            }
        }
        texts.join("\n\n").into()
    }
}

/// The tool names for sub-agents: from the agent, from its toolsets, or else blocking delegation only.
fn dialect(team: &TeamFile, part: &AgentConfig) -> SubAgentDialect {
    let has = |wanted: &str| {
        let groups = part.use_toolsets.iter().filter_map(|name| team.toolsets.get(name)).flatten();
        part.toolsets.iter().chain(groups).any(|toolset| toolset.kind.name() == wanted)
    };
    match part.background.dialect.as_deref() {
        Some("sub_agents") => SubAgentDialect::SubAgents,
        Some("agents") => SubAgentDialect::Managed,
        Some("background_agents") => SubAgentDialect::Background,
        Some(_) => SubAgentDialect::Transfer,
        None if has("background_agents") => SubAgentDialect::Background,
        None if has("agents") => SubAgentDialect::Managed,
        None => SubAgentDialect::Transfer,
    }
}

fn policy(team: &TeamFile, part: &AgentConfig) -> Policy {
    let usual = Policy::default();
    let turns = part.limits.turns.or(part.max_iterations);
    let named = part.budgets.iter().filter_map(|name| team.budgets.get(name)).map(budget);
    let (repeats_told, repeats_failed) = match part.max_consecutive_tool_calls {
        None => (usual.warn_after_repeats, usual.fail_after_repeats),
        Some(0) => (u32::MAX, u32::MAX),
        Some(most) => ((most / 2).max(1), most),
    };
    Policy {
        max_turns: turns.unwrap_or(usual.max_turns),
        timeout: part.limits.timeout,
        inactivity_timeout: part.limits.inactivity.unwrap_or(usual.inactivity_timeout),
        ask_timeout: part.limits.ask_timeout,
        warn_after_repeats: repeats_told,
        fail_after_repeats: repeats_failed,
        on_finish: part.background.on_finish.unwrap_or(usual.on_finish),
        completion_notice: part.background.notices.unwrap_or(usual.completion_notice),
        letter_delivery: part.background.letters.unwrap_or(usual.letter_delivery),
        output_cap: match part.max_tool_result_tokens {
            None | Some(0) => usual.output_cap,
            // A token is about four bytes.
            Some(tokens) => usize::try_from(tokens.saturating_mul(4)).unwrap_or(usize::MAX),
        },
        history_items: part
            .num_history_items
            .filter(|items| *items > 0)
            .and_then(|items| usize::try_from(items).ok()),
        old_output_tokens: part
            .max_old_tool_call_tokens
            .and_then(|tokens| u64::try_from(tokens).ok())
            .filter(|n| *n > 0),
        isolation: match part.isolation.as_deref() {
            Some("worktree") => Isolation::Worktree,
            _ => usual.isolation,
        },
        read_only: part.readonly,
        budget: named.fold(budget(&part.budget), Budget::and),
        launch_limits: launch_limits(part),
        ..usual
    }
}

/// Converts a budget.
pub(super) fn budget(part: &BudgetConfig) -> Budget {
    // Millionths of a dollar. A float is exact up to billions of dollars.
    let micros = |dollars: f64| (dollars * 1e6).round() as u64;
    Budget { tokens: part.max_tokens, cost: part.max_cost.map(micros), time: part.max_time }
}

/// The limits and the budget from the toolset that launches tasks.
fn launch_settings(part: &AgentConfig) -> Option<(&LimitsConfig, &BudgetConfig)> {
    part.toolsets.iter().find_map(|toolset| match &toolset.kind {
        ToolsetKind::BackgroundAgents(LauncherConfig { limits, budget })
        | ToolsetKind::Agents(LauncherConfig { limits, budget }) => Some((limits, budget)),
        _ => None,
    })
}

/// The limits on the tasks that an agent launches.
fn launch_limits(part: &AgentConfig) -> LaunchLimits {
    launch_settings(part).map_or_else(LaunchLimits::default, |(limits, allowed)| LaunchLimits {
        max_turns: limits.turns.filter(|turns| *turns > 0),
        timeout: limits.timeout,
        budget: budget(allowed),
    })
}

/// The limits on the number of tasks.
pub(super) fn limits(root: &AgentConfig) -> TaskLimits {
    let usual = TaskLimits::default();
    let of_toolset = launch_settings(root).map(|(limits, _)| *limits).unwrap_or_default();
    let running = root.limits.running.or(of_toolset.running);
    let processes = root.limits.processes.or(of_toolset.processes);
    TaskLimits {
        processes: processes.and_then(|n| usize::try_from(n).ok()).unwrap_or(usual.processes),
        running: running.and_then(|n| usize::try_from(n).ok()).unwrap_or(usual.running),
        depth: root.limits.depth.or(of_toolset.depth).unwrap_or(usual.depth),
        tree: root.limits.tree.or(of_toolset.tree).or(usual.tree),
        ..usual
    }
}

/// Converts permissions. The reader has already checked the patterns.
pub(super) fn permissions(part: &PermissionsConfig) -> Result<Permissions, TeamError> {
    Permissions::parse(&part.allow, &part.ask, &part.deny).map_err(|error| TeamError::File(error.to_string()))
}

/// Whether a toolset only selects the tools for sub-agents, which come from the agent's dialect.
pub(super) fn is_sub_agent_toolset(kind: &ToolsetKind) -> bool {
    matches!(kind, ToolsetKind::BackgroundAgents(_) | ToolsetKind::Agents(_))
}
