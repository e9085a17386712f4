//! Writes `docs/toolsets.md` from the code, and fails if the file there says something else.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::file_schema::TOOLSETS;
use super::{Environment, TeamBundle, assemble};
use crate::model::http::{HttpClient, HttpOptions};
use crate::store::MemoryStore;
use crate::supervisor::list_agent_tools;
use crate::tool::{ArgumentDescription, ToolDescription, ToolEffects};
use crate::toolset::read_tool_output;

/// Set this to write the page instead of comparing it.
const UPDATE: &str = "UPDATE_DOCS";

/// How a part of the page gets its tools.
enum Source {
    /// From an agent with this toolset.
    Toolset,
    /// From an agent with these keys, besides its model.
    Agent(&'static str),
    /// From outside: the page can only say from where.
    Elsewhere(&'static str),
    /// From a task that has truncated outputs.
    TruncatedOutput,
}

/// A toolset on the page: its heading, what it is, and its tools.
struct Part {
    name: &'static str,
    about: &'static str,
    source: Source,
}

const fn part(name: &'static str, about: &'static str, source: Source) -> Part {
    Part { name, about, source }
}

/// Every toolset of a team file, in the order of the page.
const TYPES: &[Part] = &[
    part("filesystem", "Files below the working directory.", Source::Toolset),
    part("shell", "Shell commands, in the foreground and as background jobs.", Source::Toolset),
    part(
        "script",
        "Commands of the team file as tools. Name, description and arguments come from the file. An example:",
        Source::Agent(
            "toolsets: [{type: script, shell: {count_lines: {cmd: 'wc -l \"$file\"', description: Count the lines of a file., \
             args: {file: {type: string, description: The file.}}, required: [file]}}}]",
        ),
    ),
    part("think", "A tool to write down thoughts.", Source::Toolset),
    part("todo", "A to-do list, in the database.", Source::Toolset),
    part("tasks", "A list of tasks with dependencies, in a file of the project.", Source::Toolset),
    part("memory", "Notes that are kept between runs.", Source::Toolset),
    part("fetch", "Web pages.", Source::Toolset),
    part("user_prompt", "Questions to a person.", Source::Toolset),
    part(
        "api",
        "One HTTP request as a tool. Name, description and arguments come from the file. An example:",
        Source::Agent(
            "toolsets: [{type: api, api_config: {name: get_weather, instruction: Get the weather of a city., \
             endpoint: 'https://example.com/${city}', args: {city: {type: string, description: The city.}}, required: [city]}}]",
        ),
    ),
    part(
        "openapi",
        "The operations of an OpenAPI document.",
        Source::Elsewhere(
            "It has one tool for each operation of the document. GET, HEAD and OPTIONS operations only read.",
        ),
    ),
    part(
        "a2a",
        "A remote agent that speaks A2A.",
        Source::Elsewhere(
            "It has one tool for each skill on the agent's card. Longhaul cannot know what they change.",
        ),
    ),
    part(
        "mcp",
        "The tools of an MCP server ([mcp.md](mcp.md)).",
        Source::Elsewhere(
            "The server lists them. A tool only reads if the server says so with the annotation `readOnlyHint`.",
        ),
    ),
    part(
        "model_picker",
        "Lets the agent change its model.",
        Source::Agent("toolsets: [{type: model_picker, models: [openai/gpt-5]}]"),
    ),
    part(
        "background_agents",
        "Sub-agents in the background: start tasks and keep working.",
        Source::Agent("sub_agents: [researcher]\n    toolsets: [{type: background_agents}]"),
    ),
    part(
        "agents",
        "The same for models that know managed agents, with other names.",
        Source::Agent("sub_agents: [researcher]\n    toolsets: [{type: agents}]"),
    ),
    part("lsp", "Language servers.", Source::Elsewhere("Accepted in team files, but it has no tools yet.")),
    part("rag", "Retrieval.", Source::Elsewhere("Accepted in team files, but it has no tools yet.")),
];

/// What an agent has by other keys than `toolsets`.
const OTHERS: &[Part] = &[
    part(
        "sub_agents",
        "An agent with `sub_agents` and neither of the two toolsets above can only wait for its sub-agents.",
        Source::Agent("sub_agents: [researcher]"),
    ),
    part(
        "handoffs",
        "An agent with `handoffs` can hand over its conversation.",
        Source::Agent("handoffs: [researcher]"),
    ),
    part(
        "background.dialect: sub_agents",
        "Each sub-agent is a tool with its own name. Here the sub-agent is called `researcher`.",
        Source::Agent("sub_agents: [researcher]\n    background: {dialect: sub_agents}"),
    ),
    part("skills", "An agent with `skills` can read them.", Source::Agent("skills: [skills]")),
    part(
        "truncated outputs",
        "A task whose tool outputs were truncated can read the rest.",
        Source::TruncatedOutput,
    ),
];

async fn tools(part: &Part, dir: &Path) -> Vec<ToolDescription> {
    let keys = match part.source {
        Source::Toolset => format!("toolsets: [{{type: {}}}]", part.name),
        Source::Agent(keys) => keys.to_owned(),
        Source::Elsewhere(_) => return Vec::new(),
        Source::TruncatedOutput => {
            let tool = read_tool_output(Arc::new(MemoryStore::new()), &[], 1 << 10);
            return vec![ToolDescription::new(&tool.spec(), tool.effects())];
        }
    };
    let text = format!(
        "agents:\n  root:\n    model: openai/gpt-5\n    {keys}\n  researcher:\n    model: openai/gpt-5\n    \
         description: Looks things up.\n"
    );
    let http = HttpClient::new(HttpOptions::default()).unwrap();
    let environment = Environment::new(http, |name: &str| Some(format!("value-of-{name}")), dir);
    let file = dir.join("team.yaml");
    std::fs::write(&file, &text).unwrap();
    let assembly = assemble(&TeamBundle::load(&file).unwrap(), &environment)
        .unwrap_or_else(|error| panic!("{}: {error}", part.name));
    assert!(assembly.warnings.is_empty(), "{}: {:?}", part.name, assembly.warnings);
    let root = assembly.team.agent(&"root".into()).unwrap();
    let listed = list_agent_tools(&assembly.team, root).await;
    assert_eq!(listed.unavailable, [""; 0], "{}", part.name);
    let tools: Vec<ToolDescription> = listed.toolsets.into_iter().flat_map(|group| group.tools).collect();
    assert!(!tools.is_empty(), "{} has tools", part.name);
    tools
}

/// A text as a cell of a table.
fn cell(text: &str) -> String {
    escaped(&text.split_whitespace().collect::<Vec<_>>().join(" ")).replace('|', "\\|")
}

/// A text in which nothing is taken for a tag.
fn escaped(text: &str) -> String {
    text.replace('<', "\\<")
}

fn argument_row(page: &mut String, argument: &ArgumentDescription) {
    let required = if argument.required { "yes" } else { "no" };
    let (name, kind, text) = (&argument.name, cell(&argument.kind), cell(&argument.description));
    writeln!(page, "| `{name}` | {kind} | {required} | {text} |").unwrap();
}

fn tool_text(page: &mut String, tool: &ToolDescription) {
    let (name, effects) = (&tool.name, tool.effects.summary());
    writeln!(page, "#### `{name}`: {effects}\n\n{}\n", escaped(tool.description.trim())).unwrap();
    if tool.arguments.is_empty() {
        writeln!(page, "No arguments.\n").unwrap();
        return;
    }
    writeln!(page, "| argument | type | required | description |\n|---|---|---|---|").unwrap();
    tool.arguments.iter().for_each(|argument| argument_row(page, argument));
    writeln!(page).unwrap();
}

const INTRO: &str = "# Toolsets

After reading this page you know every built-in tool, its arguments, and whether it only reads.

```sh
longhaul tools team.yaml              # the tools of each agent of a team, MCP servers included
longhaul tools team.yaml --json       # the same as JSON, one object per agent
```

The tests write this page from the code (`UPDATE_DOCS=1 cargo test -p longhaul --lib toolset_docs`). Do not edit it by hand.

A team file gives an agent tools with `toolsets` ([teams.md](teams.md)); `tools` picks some of them:

```yaml
agents:
  root:
    model: auto
    toolsets:
      - type: shell
      - type: filesystem
        tools: [read_file, list_directory]
```

What a tool affects decides whether it needs approval ([permissions.md](permissions.md)) and whether a call that a crash interrupted runs again:

";

/// What each effect means: whether it needs approval, and whether an interrupted call runs again.
fn legend() -> [(ToolEffects, &'static str, &'static str); 5] {
    [
        (ToolEffects::READ_ONLY, "no", "yes"),
        (ToolEffects::LAUNCHES, "no", "yes; it finds the task that it started"),
        (ToolEffects::INTERNAL, "no", "yes"),
        (ToolEffects::REPEATABLE, "yes", "yes"),
        (ToolEffects::default(), "yes", "no; the model is told that it was interrupted"),
    ]
}

/// The whole page.
async fn page() -> String {
    let dir = tempfile::tempdir().unwrap();
    let skill = dir.path().join("skills/review");
    std::fs::create_dir_all(&skill).unwrap();
    std::fs::write(skill.join("SKILL.md"), "---\nname: review\ndescription: How to review.\n---\nRead.\n")
        .unwrap();
    let mut page = INTRO.to_owned();
    writeln!(page, "| effect | needs approval | runs again |\n|---|---|---|").unwrap();
    for (effects, approval, again) in legend() {
        assert_eq!(effects.is_harmless(), approval == "no");
        assert_eq!(effects.repeatable, again.starts_with("yes"));
        writeln!(page, "| {} | {approval} | {again} |", effects.summary()).unwrap();
    }
    let (mut overview, mut parts) = (String::new(), String::new());
    for (heading, listed) in [("Toolsets of a team file", TYPES), ("Other tools", OTHERS)] {
        writeln!(parts, "## {heading}\n").unwrap();
        for part in listed {
            let tools = tools(part, dir.path()).await;
            let title = if heading.starts_with("Toolsets") { "type: " } else { "" };
            writeln!(parts, "### `{title}{}`\n\n{}\n", part.name, part.about).unwrap();
            if let Source::Elsewhere(text) = part.source {
                writeln!(parts, "{text}\n").unwrap();
            }
            let names: Vec<String> = tools.iter().map(|tool| format!("`{}`", tool.name)).collect();
            let names = if names.is_empty() { "–".to_owned() } else { names.join(", ") };
            writeln!(overview, "| `{title}{}` | {} | {names} |", part.name, first_sentence(part.about))
                .unwrap();
            tools.iter().for_each(|tool| tool_text(&mut parts, tool));
        }
    }
    writeln!(
        page,
        "\n## All of them\n\n| toolset | | tools |\n|---|---|---|\n{overview}\n{}",
        parts.trim_end()
    )
    .unwrap();
    page
}

fn first_sentence(text: &str) -> &str {
    text.find(". ").map_or(text, |at| &text[..=at])
}

fn page_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/toolsets.md")
}

#[tokio::test]
async fn the_page_about_toolsets_is_what_the_code_says() {
    let written = page().await;
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(page_path(), &written).unwrap();
        return;
    }
    let found = std::fs::read_to_string(page_path()).unwrap_or_default();
    let differs = found.lines().zip(written.lines()).position(|(found, written)| found != written);
    let line = differs.unwrap_or(found.lines().count().min(written.lines().count()));
    assert!(
        found == written,
        "docs/toolsets.md is out of date from line {} on.\n  it says: {}\n  the code: {}\nUpdate it: {UPDATE}=1 cargo test -p \
         longhaul --lib toolset_docs",
        line + 1,
        found.lines().nth(line).unwrap_or("(nothing)"),
        written.lines().nth(line).unwrap_or("(nothing)"),
    );
}

#[test]
fn every_type_of_toolset_is_on_the_page() {
    let told: Vec<&str> = TYPES.iter().map(|part| part.name).collect();
    let known: Vec<&str> = TOOLSETS.iter().map(|(name, _)| *name).collect();
    assert_eq!(told, known, "add the new type to TYPES in this file");
}
