//! Which agents run commands that can read the server's token.

use longhaul::teamfile::{self, SandboxConfig, TeamBundle, TeamFile, ToolsetConfig, ToolsetKind};

/// The agents of a team, or groups of toolsets, whose shell has no sandbox, by name.
pub(super) fn unsandboxed(bundle: &TeamBundle) -> Vec<String> {
    let texts = std::iter::once(&bundle.text).chain(bundle.files.values());
    let files = texts.filter_map(|text| teamfile::parse(text).file);
    files.flat_map(|file| in_file(&file)).collect()
}

fn in_file(file: &TeamFile) -> Vec<String> {
    let agents = file.agents.iter().map(|(name, agent)| (name, &agent.toolsets));
    let all = agents.chain(file.toolsets.iter());
    all.filter(|(_, toolsets)| toolsets.iter().any(is_open_shell)).map(|(name, _)| name.clone()).collect()
}

fn is_open_shell(toolset: &ToolsetConfig) -> bool {
    let ToolsetKind::Shell(shell) = &toolset.kind else { return false };
    match &shell.sandbox {
        None | Some(SandboxConfig::Switch(false)) => true,
        Some(SandboxConfig::Word(word)) => word == "off",
        Some(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_without_a_sandbox_is_found() {
        let found = |text: &str| unsandboxed(&TeamBundle::from_text("team.yaml", text));
        let team = "agents:\n  root: {model: auto, toolsets: [{type: shell}]}\n  safe: {model: auto, toolsets: [{type: shell, sandbox: on}]}\n  off: {model: auto, toolsets: [{type: think}, {type: shell, sandbox: off}]}\n  none: {model: auto, toolsets: [{type: filesystem}]}\n";
        assert_eq!(found(team), ["root", "off"]);
    }
}
