//! Combines the results of several hooks. Pure.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Hook, HookEvent, OnHookError};
use crate::entry::HookFailure;

/// How much of a hook's command, and of the reason it failed, is recorded, in bytes.
const MAX_FAILURE_TEXT: usize = 500;

/// The result of one hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HookResult {
    /// It exited with 0; this is its stdout.
    Succeeded(String),
    /// It exited with 0, but its stdout is incomplete or garbled; the second text says why.
    Garbled(String, String),
    /// It exited with 2; this is its stderr.
    Blocked(String),
    /// It could not run, took too long or exited with another code; this is why.
    Failed(String),
}

/// What a hook decides about a call that it does not block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HookDecision {
    /// The agent's own permissions need no approval for this call.
    Allow,
    /// A person has to approve it.
    Ask,
}

/// The combined result of hooks. The strictest decision wins.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct HookVerdict {
    /// The call must not be made, for this reason.
    pub(crate) blocked: Option<String>,
    pub(crate) decision: Option<HookDecision>,
    /// The arguments to use for the call instead.
    pub(crate) updated_input: Option<Map<String, Value>>,
    /// Text for the model.
    pub(crate) context: Vec<String>,
    /// Text for people.
    pub(crate) user_messages: Vec<String>,
    /// The hooks that failed. A call that one of them had to judge is blocked, unless the hook's author
    /// allows it.
    pub(crate) failures: Vec<HookFailure>,
}

/// The output of a hook, in the spelling of either of the programs that made hooks known.
#[derive(Deserialize, Default)]
#[serde(default)]
struct HookOutput {
    #[serde(rename = "continue")]
    go_on: Option<bool>,
    #[serde(alias = "stopReason")]
    stop_reason: Option<String>,
    #[serde(alias = "systemMessage")]
    system_message: Option<String>,
    #[serde(alias = "suppressOutput")]
    suppress_output: bool,
    decision: Option<String>,
    reason: Option<String>,
    #[serde(alias = "hookSpecificOutput")]
    hook_specific_output: HookSpecificOutput,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct HookSpecificOutput {
    #[serde(alias = "permissionDecision")]
    permission_decision: Option<String>,
    #[serde(alias = "permissionDecisionReason")]
    permission_decision_reason: Option<String>,
    #[serde(alias = "updatedInput")]
    updated_input: Option<Map<String, Value>>,
    #[serde(alias = "additionalContext")]
    additional_context: Option<String>,
}

/// Why the output of a hook does not count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
struct HookOutputError(String);

impl HookVerdict {
    /// Combines the results of these hooks, in the order of the file, for an event.
    pub(crate) fn from_results<'a>(
        event: HookEvent,
        results: impl IntoIterator<Item = (&'a Hook, HookResult)>,
    ) -> HookVerdict {
        let mut verdict = HookVerdict::default();
        for (hook, result) in results {
            let understood = match result {
                HookResult::Succeeded(output) => verdict.apply_output(event, output.trim()),
                HookResult::Blocked(why) => {
                    verdict.block(&why);
                    Ok(())
                }
                HookResult::Garbled(output, why) => {
                    verdict.apply_plain_text(event, output.trim());
                    Err(HookOutputError(why))
                }
                HookResult::Failed(why) => Err(HookOutputError(why)),
            };
            if let Err(HookOutputError(why)) = understood {
                verdict.add_failure(event, hook, &why);
            }
        }
        verdict
    }

    /// Applies the output of a hook. Fails with the reason if it is invalid; nothing of it counts then,
    /// because half an object may be the half without its `deny`.
    fn apply_output(&mut self, event: HookEvent, output: &str) -> Result<(), HookOutputError> {
        if output.is_empty() {
            return Ok(());
        }
        if !output.starts_with('{') {
            self.apply_plain_text(event, output);
            return match event {
                HookEvent::PreToolUse => {
                    Err(HookOutputError(format!("it wrote something that is not a JSON object: {output}")))
                }
                _ => Ok(()),
            };
        }
        let said = serde_json::from_str::<HookOutput>(output).map_err(|error| {
            self.apply_plain_text(event, output);
            HookOutputError(format!("it wrote invalid JSON: {error}"))
        })?;
        let specific = said.hook_specific_output;
        let judges = event == HookEvent::PreToolUse;
        let unknown = |word: &str| HookOutputError(format!("it wrote an unknown decision: {word}"));
        let decided = match specific.permission_decision.as_deref().filter(|_| judges) {
            None | Some("allow" | "ask" | "deny") => specific.permission_decision.as_deref(),
            Some(other) => return Err(unknown(other)),
        };
        let decided = match said.decision.as_deref() {
            None => decided,
            Some("block" | "deny") => Some("deny"),
            Some("approve" | "allow") => decided.or(Some("allow")),
            Some("ask") if judges => decided.or(Some("ask")),
            Some(other) if judges => return Err(unknown(other)),
            Some(_) => decided,
        };
        self.user_messages.extend(said.system_message.filter(|_| !said.suppress_output));
        self.context.extend(specific.additional_context);
        let reason = specific.permission_decision_reason.or(said.reason);
        if said.go_on == Some(false) {
            self.block(said.stop_reason.or(reason).as_deref().unwrap_or_default());
        } else if decided == Some("deny") && (judges || said.decision.is_some()) {
            self.block(reason.as_deref().unwrap_or_default());
        }
        if !judges {
            return Ok(());
        }
        match decided {
            Some("ask") => self.decision = Some(HookDecision::Ask),
            Some("allow") => self.decision = self.decision.or(Some(HookDecision::Allow)),
            _ => {}
        }
        if let Some(updated) = specific.updated_input {
            self.updated_input.get_or_insert_default().extend(updated);
        }
        Ok(())
    }

    /// Plain text is for the model, on events where the model can read it.
    fn apply_plain_text(&mut self, event: HookEvent, output: &str) {
        let tells = [HookEvent::PostToolUse, HookEvent::SessionStart, HookEvent::TaskStart].contains(&event);
        self.context.extend((tells && !output.is_empty()).then(|| output.to_owned()));
    }

    /// Records that a hook failed. A call that it should have judged is not made.
    fn add_failure(&mut self, moment: HookEvent, hook: &Hook, why: &str) {
        let short = |text: &str| text.trim()[..text.trim().floor_char_boundary(MAX_FAILURE_TEXT)].to_owned();
        let why = short(why);
        let denied = moment == HookEvent::PreToolUse && hook.on_error == OnHookError::Deny;
        if denied {
            self.block(&format!("the hook that has to judge this call failed ({why})"));
        }
        let (event, command) = (moment.as_str().to_owned(), short(&hook.command));
        self.failures.push(HookFailure { event, command, why, denied });
    }

    fn block(&mut self, why: &str) {
        let why = why.trim();
        let told = self.blocked.get_or_insert_default();
        if !told.is_empty() && !why.is_empty() {
            told.push('\n');
        }
        told.push_str(why);
    }
}
