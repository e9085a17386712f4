//! Builds hooks from their configuration.

use std::ffi::OsString;
use std::sync::Arc;

use super::{FileAssembly, TeamAssembler};
use crate::hook::{Hook, Hooks, OnHookError, ToolMatcher};
use crate::teamfile::{HookConfig, HookMatcherConfig, HooksConfig};

/// The variable that tells hooks the directory of their team file.
const TEAM_DIR: &str = "LONGHAUL_TEAM_DIR";

impl TeamAssembler<'_> {
    /// The hooks of an agent.
    pub(super) fn hooks(
        &mut self,
        job: &mut FileAssembly<'_>,
        part: &HooksConfig,
        path: &str,
    ) -> Option<Hooks> {
        if *part == HooksConfig::default() {
            return None;
        }
        let mut matched = |key: &str, parts: &[HookMatcherConfig]| {
            let mut all = Vec::new();
            for (index, part) in parts.iter().enumerate() {
                // Already checked by the reader.
                match ToolMatcher::parse(part.matcher.as_deref().unwrap_or_default()) {
                    Ok(matcher) => all.push((matcher, commands(&part.hooks))),
                    Err(why) => job.add_error(&format!("{path}.{key}[{index}].matcher"), why.to_string()),
                }
            }
            all
        };
        let (pre_tool_use, post_tool_use) =
            (matched("pre_tool_use", &part.pre_tool_use), matched("post_tool_use", &part.post_tool_use));
        let filled = self.fill_all(job, &part.env, &format!("{path}.env"));
        let dir = (OsString::from(TEAM_DIR), self.bundle.base.clone().into_os_string());
        let named = filled.into_iter().map(|(name, value)| (name.into(), value.into()));
        Some(Hooks {
            pre_tool_use,
            post_tool_use,
            session_start: commands(&part.session_start),
            session_end: commands(&part.session_end),
            on_user_input: commands(&part.on_user_input),
            task_start: commands(&part.task_start),
            task_end: commands(&part.task_end),
            env: Arc::new([dir].into_iter().chain(named).collect()),
            runner: crate::hook::HookRunner::new(self.environment.guardian.clone()),
        })
    }
}

fn commands(parts: &[HookConfig]) -> Vec<Hook> {
    let hook = |part: &HookConfig| {
        let on_error = match part.on_error.as_deref() {
            Some("allow") => OnHookError::Allow,
            _ => OnHookError::Deny,
        };
        let hook = Hook::command(part.command.clone()).on_error(on_error);
        match part.timeout {
            Some(timeout) => hook.timeout(timeout),
            None => hook,
        }
    };
    parts.iter().map(hook).collect()
}
