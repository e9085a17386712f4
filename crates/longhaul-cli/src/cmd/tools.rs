//! `longhaul tools`: lists the tools of a team's agents.

use std::time::Duration;

use longhaul::agent::{Agent, Team};
use longhaul::supervisor::{AgentTools, ToolGroup, list_agent_tools};
use longhaul::teamfile::{Environment, ModelOverride};
use longhaul::tool::{ArgumentDescription, ToolDescription};
use longhaul::toolset::McpPool;

use super::CliContext;
use crate::args::ToolsArgs;
use crate::exit::{CliError, CliExitCode};
use crate::team;
use crate::trust::TeamFileTrust;
use crate::view::{Ink, TerminalOutput, one_line, pluralize, sanitize};

/// How long a toolset may take to close.
const CLOSE: Duration = Duration::from_secs(10);

pub(super) async fn run(context: &CliContext, args: &ToolsArgs) -> Result<CliExitCode, CliError> {
    let data_dir = context.data_dir()?;
    let mut bundle = team::load_bundle(&args.team)?;
    // Before anything of the file is started or contacted.
    TeamFileTrust::new(&data_dir, &args.team, &bundle).require_trust(context, args.trust)?;
    bundle.working_dir = std::env::current_dir().ok();
    let environment = listing_environment(&team::build_environment(context, &args.providers, &data_dir)?);
    let team = team::assemble_bundle(context, &environment, &bundle, &args.team)?.team;
    if let Some(name) = &args.agent {
        team::check_agent_exists(&team, name, "--agent", &args.team)?;
    }
    let is_wanted = |agent: &Agent| args.agent.as_deref().is_none_or(|name| agent.name.as_str() == name);
    let listed = print_agents(context.term, &team, is_wanted, args.json).await;
    for toolset in team.agents().flat_map(|agent| &agent.toolsets) {
        let _ = tokio::time::timeout(CLOSE, toolset.close()).await;
    }
    team::close_environment(&environment).await;
    Ok(if listed? { CliExitCode::Success } else { CliExitCode::Failed })
}

/// An environment that needs no keys, because no model is called, and that asks for no logins.
fn listing_environment(environment: &Environment) -> Environment {
    let auto = ModelOverride { agent: None, model: "auto".to_owned() };
    let mcp = McpPool::new(environment.mcp.options().clone().show_login(None));
    environment.clone().model_overrides(vec![auto]).mcp(mcp)
}

/// Prints the tools of the agents. Returns whether all their toolsets could be opened.
async fn print_agents(
    term: TerminalOutput,
    team: &Team,
    is_wanted: impl Fn(&Agent) -> bool,
    json: bool,
) -> Result<bool, CliError> {
    let mut complete = true;
    for (index, agent) in team.agents().filter(|agent| is_wanted(agent)).enumerate() {
        let tools = list_agent_tools(team, agent).await;
        complete &= tools.unavailable.is_empty();
        if json {
            term.print_json(&tools)?;
        } else {
            if index > 0 {
                term.print_line("")?;
            }
            term.print_lines(&agent_lines(&tools, term))?;
        }
    }
    Ok(complete)
}

fn agent_lines(agent: &AgentTools, term: TerminalOutput) -> Vec<String> {
    let count = agent.toolsets.iter().map(|group| group.tools.len()).sum();
    let name = term.paint(Ink::Strong, &one_line(agent.agent.as_str()));
    let mut lines = vec![format!("{name}  {}", term.paint(Ink::Faint, &pluralize(count, "tool")))];
    for group in &agent.toolsets {
        lines.extend(group_lines(group, term));
    }
    for why in &agent.unavailable {
        let text = indented(term, &format!("✗ {}", sanitize(why)), 2);
        lines.extend(text.into_iter().map(|line| term.paint(Ink::Bad, &line)));
    }
    lines
}

fn group_lines(group: &ToolGroup, term: TerminalOutput) -> Vec<String> {
    let kind = if group.is_server { " (MCP server)" } else { "" };
    let title = format!("  {}{kind}", one_line(&group.name));
    let mut lines = vec![term.paint(Ink::Id, &title)];
    for tool in &group.tools {
        lines.extend(tool_lines(tool, term));
    }
    lines
}

fn tool_lines(tool: &ToolDescription, term: TerminalOutput) -> Vec<String> {
    let name = one_line(&tool.name);
    let ink = if tool.effects.read_only { Ink::Good } else { Ink::Attention };
    let mut lines =
        vec![format!("    {}  {}", term.paint(Ink::Strong, &name), term.paint(ink, tool.effects.summary()))];
    lines.extend(indented(term, &sanitize(tool.description.trim()), 6));
    for argument in &tool.arguments {
        lines.extend(argument_lines(argument, term));
    }
    lines
}

fn argument_lines(argument: &ArgumentDescription, term: TerminalOutput) -> Vec<String> {
    let required = if argument.required { ", required" } else { "" };
    let text = match argument.description.trim() {
        "" => format!("{} ({}{required})", argument.name, argument.kind),
        text => format!("{} ({}{required}): {text}", argument.name, argument.kind),
    };
    let mut lines = indented(term, &one_line(&text), 8);
    // The first line starts two columns to the left, so that names stand out.
    if let Some(first) = lines.first_mut() {
        *first = format!("      {}", paint_name(term, first.trim_start(), &argument.name));
    }
    lines
}

/// Colours the name at the beginning of a line.
fn paint_name(term: TerminalOutput, line: &str, name: &str) -> String {
    match line.strip_prefix(name) {
        Some(rest) => format!("{}{rest}", term.paint(Ink::Busy, name)),
        None => line.to_owned(),
    }
}

/// Wraps a text to the terminal, with an indent.
fn indented(term: TerminalOutput, text: &str, indent: usize) -> Vec<String> {
    term.wrap_within(text, indent).lines().map(|line| format!("{:indent$}{line}", "")).collect()
}
