//! Tool names: which are reserved for Longhaul, and how names from servers are changed so that every provider
//! accepts them: letters, digits, `_` and `-`, at most 64 characters, no duplicates.

#[cfg(any(test, feature = "mcp"))]
use std::collections::HashSet;

use crate::id::Digest;

/// The longest name that every provider accepts.
const LONGEST: usize = 64;

/// The tools of all built-in toolsets, whether or not an agent has them. No server's tool can have one of
/// these names, so a rule that names one means the built-in tool.
const RESERVED: [&str; 55] = [
    "add_dependency",
    "add_memory",
    "cancel_agent",
    "change_model",
    "count_lines",
    "create_directory",
    "create_task",
    "create_todo",
    "create_todos",
    "delete_memory",
    "delete_task",
    "directory_tree",
    "edit_file",
    "fetch",
    "get_memories",
    "get_task",
    "get_task_result",
    "handoff",
    "list_agents",
    "list_background_agents",
    "list_background_jobs",
    "list_directory",
    "list_tasks",
    "list_todos",
    "next_task",
    "read_file",
    "read_multiple_files",
    "read_skill",
    "read_tool_output",
    "remove_dependency",
    "remove_directory",
    "revert_model",
    "run_background_agent",
    "run_background_job",
    "search_files_content",
    "search_memories",
    "send_background_agent",
    "send_message",
    "shell",
    "spawn_agent",
    "stop_background_agent",
    "stop_background_job",
    "stop_task",
    "task_output",
    "think",
    "transfer_task",
    "update_memory",
    "update_task",
    "update_todos",
    "user_prompt",
    "view_background_agent",
    "view_background_job",
    "wait_agent",
    "wait_background_agents",
    "write_file",
];

/// Checks whether a name is reserved for one of Longhaul's own tools. Ignores case, as rules do.
pub(crate) fn is_reserved(name: &str) -> bool {
    RESERVED.iter().any(|reserved| reserved.eq_ignore_ascii_case(name))
}

/// Returns another name for a server's tool that cannot keep its own: the server's name is put before it, and
/// `mark` changes it again if that is taken too.
pub(crate) fn qualified_tool_name(server: &str, tool: &str, mark: Option<&str>) -> String {
    // Of a URL, use the host.
    let host = server.split_once("://").map_or(server, |(_, rest)| rest.split('/').next().unwrap_or(rest));
    let whole = format!("{host}_{tool}");
    let plain = plain(&whole);
    match mark {
        None if plain.len() <= LONGEST => plain,
        None => marked(&plain, &whole),
        Some(mark) => marked(&plain, &format!("{mark} {whole}")),
    }
}

/// Returns the names under which a model calls these tools, in order.
#[cfg(feature = "mcp")]
pub(super) fn model_tool_names<'a>(
    prefix: Option<&str>,
    names: impl IntoIterator<Item = &'a str>,
) -> Vec<String> {
    let mut taken = HashSet::new();
    let mut free = |name: &str| {
        let whole = match prefix {
            Some(prefix) => format!("{prefix}_{name}"),
            None => name.to_owned(),
        };
        let plain = plain(&whole);
        let marked = || marked(&plain, &whole);
        let chosen =
            if plain.len() <= LONGEST && taken.insert(plain.clone()) { plain.clone() } else { marked() };
        taken.insert(chosen.clone());
        chosen
    };
    names.into_iter().map(&mut free).collect()
}

fn plain(name: &str) -> String {
    let takes = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let mut plain: String = name.chars().map(|c| if takes(c) { c } else { '_' }).collect();
    // Some providers require a letter or `_` first.
    if !plain.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        plain.insert(0, '_');
    }
    plain
}

/// Truncates the name and appends a hash that makes it unique.
fn marked(plain: &str, whole: &str) -> String {
    let digest = Digest::of_bytes(whole.as_bytes());
    format!("{}_{}", &plain[..plain.len().min(LONGEST - 9)], &digest.as_str()[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_name_of_every_built_in_tool_is_reserved() {
        use crate::dispatch::AgentInfo;
        use crate::toolset::*;

        let info = |name: &str| AgentInfo { name: name.into(), description: String::new() };
        let toolset_context =
            ToolsetContext { agent: "a".into(), sub_agents: vec![info("b")], handoffs: vec![info("b")] };
        let dir = tempfile::tempdir().unwrap();
        let mut toolsets: Vec<std::sync::Arc<dyn Toolset>> = vec![
            std::sync::Arc::new(BackgroundAgents),
            std::sync::Arc::new(Delegation),
            std::sync::Arc::new(Fetch::new()),
            std::sync::Arc::new(ReadOnlyFiles::new()),
            std::sync::Arc::new(Filesystem::new()),
            std::sync::Arc::new(ManagedAgents),
            std::sync::Arc::new(ModelPicker::new(["m".to_owned(), "n".to_owned()])),
            std::sync::Arc::new(Skills::new([dir.path().to_owned()])),
            std::sync::Arc::new(SubAgentTools),
            std::sync::Arc::new(ProjectTasks::new(dir.path().join("tasks.json"))),
            std::sync::Arc::new(Think::new()),
            std::sync::Arc::new(Todo::new()),
            std::sync::Arc::new(UserPrompt::new()),
        ];
        toolsets.push(std::sync::Arc::new(Shell::new()));
        #[cfg(feature = "sqlite")]
        toolsets.push(std::sync::Arc::new(AgentMemory::new(dir.path().join("memory.db"))));
        let mut had = HashSet::from(["read_tool_output".to_owned(), "read_skill".to_owned()]);
        for toolset in toolsets {
            had.extend(toolset.open(&toolset_context).await.unwrap().iter().map(|tool| tool.spec().name));
        }
        // A sub-agent as a tool has the name that the team's author chose.
        had.remove("b");
        let free: Vec<_> = had.iter().filter(|name| !is_reserved(name)).collect();
        assert!(free.is_empty(), "add to RESERVED: {free:?}");
        let gone: Vec<_> = RESERVED.iter().filter(|name| !had.contains(**name)).collect();
        assert!(gone.is_empty(), "there is no such tool: {gone:?}");
        assert!(is_reserved("Shell") && !is_reserved("shell_"));
    }

    #[test]
    fn what_cannot_have_its_own_name_has_its_servers_before_it() {
        assert_eq!(qualified_tool_name("files", "read_file", None), "files_read_file");
        assert_eq!(
            qualified_tool_name("https://mcp.example.com/mcp", "shell", None),
            "mcp_example_com_shell"
        );
        assert_eq!(qualified_tool_name("docker:x", "shell", None), "docker_x_shell");
        let marked = qualified_tool_name("files", "read_file", Some("mcp:1"));
        assert!(
            marked.starts_with("files_read_file_")
                && marked != qualified_tool_name("files", "read_file", Some("mcp:2"))
        );
        assert!(qualified_tool_name(&"s".repeat(100), "shell", None).len() <= LONGEST);
    }

    #[test]
    #[cfg(feature = "mcp")]
    fn what_every_provider_takes_is_left_as_it_is() {
        assert_eq!(model_tool_names(None, ["read_file", "get-sum", "X9"]), ["read_file", "get-sum", "X9"]);
        assert_eq!(model_tool_names(Some("fs"), ["read_file"]), ["fs_read_file"]);
    }

    #[test]
    #[cfg(feature = "mcp")]
    fn what_one_would_refuse_is_made_into_something_it_takes() {
        let long = "x".repeat(100);
        let names = ["a.b/c", "a b", "9lives", "größe", "", long.as_str(), "a_b", "a.b"];
        let mapped = model_tool_names(None, names);
        for name in &mapped {
            assert!((1..=64).contains(&name.len()), "{name}");
            assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-'), "{name}");
            assert!(!name.starts_with(|c: char| c.is_ascii_digit() || c == '-'), "{name}");
        }
        assert_eq!(mapped[..4], ["a_b_c", "a_b", "_9lives", "gr__e"]);
        let different: HashSet<_> = mapped.iter().collect();
        assert_eq!(different.len(), names.len(), "{mapped:?}");
    }

    #[test]
    #[cfg(feature = "mcp")]
    fn a_name_is_mapped_in_the_same_way_each_time() {
        let long = "y".repeat(70);
        assert_eq!(
            model_tool_names(Some("p"), [long.as_str()]),
            model_tool_names(Some("p"), [long.as_str()])
        );
    }
}
