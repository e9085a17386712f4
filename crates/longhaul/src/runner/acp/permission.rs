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
