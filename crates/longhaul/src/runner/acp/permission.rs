//! Decides on the permissions that another program's agent asks for: by our rules, and by our people.

use serde_json::Value;

use super::agent_turn::AskedCall;
use crate::entry::{Approval, ExpectedAnswer, Question, QuestionAnswer};
use crate::permission::{PermissionRequest, PermissionVerdict, Rights, RuleNames, ToolIdentity};
use std::path::Path;

/// Other names of arguments in the rules for our own tools.
const ALIASES: [(&str, &str); 4] =
    [("cmd", "command"), ("path", "file_path"), ("path", "abs_path"), ("path", "filePath")];
/// How much of the arguments the text of a question shows.
const SHOWN: usize = 2000;

/// What becomes of a call.
#[derive(Debug, PartialEq)]
pub(super) enum AskDecision {
    Allow,
    Deny,
    Ask(Box<Question>),
}

/// The decision of the rules. Rules name a call by its kind (`execute`, `edit`, `read` …); those that deny our
/// own tools, or ask about them, count for the same kind of call too.
pub(super) fn decide(
    rights: Option<&Rights>,
    program: &str,
    call: &AskedCall,
    dir: Option<&Path>,
) -> AskDecision {
    let Some(rights) = rights else { return AskDecision::Allow };
    let covered_by: &[&str] = match &*call.tool {
        "execute" => &["shell"],
        "edit" => &["edit_file", "write_file"],
        "delete" | "move" => &["write_file", "remove_directory"],
        "read" => &["read_file"],
        "search" => &["search_files_content"],
        "fetch" => &["fetch"],
        _ => &[],
    };
    let names = RuleNames {
        aliases: &ALIASES,
        covered_by: covered_by.iter().map(|name| (*name).to_owned()).collect(),
    };
    let request = PermissionRequest::new(&call.tool, call.arguments.clone());
    let request = request.with_rule_names(&names).in_directory(dir);
    match rights.decide_request(&request, call.harmless) {
        PermissionVerdict::Run => AskDecision::Allow,
        PermissionVerdict::Refuse(_) => AskDecision::Deny,
        PermissionVerdict::Ask => AskDecision::Ask(Box::new(question(program, call, None))),
        PermissionVerdict::Unsure(why) => AskDecision::Ask(Box::new(question(program, call, Some(why)))),
    }
}

/// Whether a program asks for a call of one of our own tools, on this MCP server. It need not: what the call may do
/// is decided when it arrives. Programs write the names of such tools in their own way, and never let a model write
/// them.
pub(super) fn is_task_tool(server: &str, has_tool: impl Fn(&str) -> bool, call: &AskedCall) -> bool {
    if call.server_tool.as_ref().is_some_and(|(on, tool)| on == server && has_tool(tool)) {
        return true;
    }
    if &*call.tool != "other" {
        return false;
    }
    let title = call.arguments.get("title").and_then(Value::as_str).unwrap_or_default();
    let titles = [call.first_title.as_str(), title];
    let before = [format!("mcp__{server}__"), format!("mcp.{server}."), format!("{server}_")];
    let after = format!(" ({server} MCP Server)");
    titles.iter().any(|title| {
        let bare = before.iter().find_map(|before| title.strip_prefix(before.as_str()));
        bare.or_else(|| title.strip_suffix(after.as_str())).is_some_and(&has_tool)
    })
}

fn question(program: &str, call: &AskedCall, why: Option<String>) -> Question {
    let arguments = call.arguments.to_string();
    let title = call.arguments.get("title").and_then(Value::as_str).unwrap_or_default();
    let shown = &arguments[..arguments.floor_char_boundary(SHOWN)];
    let more = if shown.len() < arguments.len() { "…" } else { "" };
    let said = if title.is_empty() { String::new() } else { format!(" ({title})") };
    let because = why.as_ref().map_or(String::new(), |why| format!(" A person has to decide: {why}."));
    let text = format!("May {program} do this: {}{said} with {shown}{more}?{because}", call.tool);
    // What is allowed from now on is allowed to this program only.
    let identity = ToolIdentity {
        toolset: format!("acp {program}"),
        tool: call.tool.to_string(),
        ..ToolIdentity::default()
    };
    let wants = ExpectedAnswer::Leave {
        tool: call.tool.to_string(),
        arguments,
        why,
        identity: Some(Box::new(identity)),
        changed: None,
        file: None,
    };
    Question { text, wants }
}

/// Whether an answer allows the call. What it allows for the future is in the journal of the root.
pub(super) fn is_allowed(answer: &QuestionAnswer) -> bool {
    match answer {
        QuestionAnswer::Given(words) => {
            matches!(Approval::parse(words), Ok(Approval::Yes | Approval::Always(_)))
        }
        QuestionAnswer::Declined | QuestionAnswer::Nobody(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::agent_turn::{AgentTurn, AskedCall};
    use super::super::wire::parse_call;
    use super::is_task_tool;

    fn asked(call: serde_json::Value) -> AskedCall {
        AgentTurn::new(0).asked(parse_call(&call).unwrap()).1.unwrap()
    }

    #[test]
    fn calls_of_our_own_tools_are_known_however_a_program_writes_them() {
        let has_tool = |name: &str| name == "run_background_agent";
        let is_ours = |call| is_task_tool("longhaul", has_tool, &asked(call));
        for title in [
            "mcp__longhaul__run_background_agent",
            "mcp.longhaul.run_background_agent",
            "longhaul_run_background_agent",
            "run_background_agent (longhaul MCP Server)",
        ] {
            assert!(is_ours(json!({ "toolCallId": "1", "kind": "other", "title": title })), "{title}");
            // What a model can write as the description of a command is not ours.
            assert!(!is_ours(json!({ "toolCallId": "1", "kind": "execute", "title": title })), "{title}");
        }
        let codex = json!({ "server": "longhaul", "tool": "run_background_agent", "arguments": {} });
        assert!(is_ours(json!({ "toolCallId": "1", "kind": "execute", "rawInput": codex })));
        let smuggled = json!({ "server": "longhaul", "tool": "run_background_agent", "command": "rm -rf /" });
        assert!(!is_ours(json!({ "toolCallId": "1", "kind": "execute", "rawInput": smuggled })));
        for title in ["mcp__other__run_background_agent", "mcp__longhaul__rm", "run_background_agent"] {
            assert!(!is_ours(json!({ "toolCallId": "1", "kind": "other", "title": title })), "{title}");
        }
    }
}
