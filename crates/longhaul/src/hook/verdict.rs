//! What several hooks together mean. Pure.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Hook, HookEvent, OnHookError};
use crate::entry::HookFailure;

/// How much of a hook's command, and of why it failed, is written down, in bytes.
const MAX_FAILURE_TEXT: usize = 500;

/// What came of one hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookResult {
    /// It exited with 0, and wrote this.
    Succeeded(String),
    /// It exited with 0, but this is not all that it wrote, or not what it wrote; why.
    Garbled(String, String),
    /// It exited with 2, and this is its standard error.
    Blocked(String),
    /// It could not be run, took too long or exited with something else; why.
    Failed(String),
}

/// What a hook says about a call that it does not block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookDecision {
    /// Nobody need be asked, as far as the agent's own permissions go.
    Allow,
    /// A person is to be asked.
    Ask,
}

/// What hooks mean, all together. The strictest counts.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HookVerdict {
    /// It is not to be done, for this reason.
    pub blocked: Option<String>,
    /// What they decided.
    pub decision: Option<HookDecision>,
    /// The arguments that the call is to be made with instead.
    pub updated_input: Option<Map<String, Value>>,
    /// What the model is to know.
    pub context: Vec<String>,
    /// What people are to know.
    pub user_messages: Vec<String>,
    /// The hooks that failed. A call that one of them had to judge is blocked, unless its author would not have it.
    pub failures: Vec<HookFailure>,
}

/// What a hook may write, in the spelling of either of the programs that made hooks known.
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

impl HookVerdict {
    /// What these hooks, in the order of the file, mean at this moment.
    pub fn from_results<'a>(
        moment: HookEvent,
        heard: impl IntoIterator<Item = (&'a Hook, HookResult)>,
    ) -> HookVerdict {
        let mut counsel = HookVerdict::default();
        for (hook, heard) in heard {
            let understood = match heard {
                HookResult::Succeeded(output) => counsel.apply_output(moment, output.trim()),
                HookResult::Blocked(why) => {
                    counsel.block(&why);
                    Ok(())
                }
                HookResult::Garbled(output, why) => {
                    counsel.apply_plain_text(moment, output.trim());
                    Err(why)
                }
                HookResult::Failed(why) => Err(why),
            };
            if let Err(why) = understood {
                counsel.add_failure(moment, hook, &why);
            }
        }
        counsel
    }

    /// Takes in what a hook wrote, or says why that cannot be understood. Nothing of it counts then: half an object may
    /// be the half without its `deny`.
    fn apply_output(&mut self, moment: HookEvent, output: &str) -> Result<(), String> {
        if output.is_empty() {
            return Ok(());
        }
        if !output.starts_with('{') {
            self.apply_plain_text(moment, output);
            return match moment {
                HookEvent::PreToolUse => {
                    Err(format!("it wrote something that is not a JSON object: {output}"))
                }
                _ => Ok(()),
            };
        }
        let said = serde_json::from_str::<HookOutput>(output).map_err(|error| {
            self.apply_plain_text(moment, output);
            format!("it wrote JSON that cannot be understood: {error}")
        })?;
        let specific = said.hook_specific_output;
        let judges = moment == HookEvent::PreToolUse;
        let unknown = |word: &str| format!("it wrote a decision that is not known: {word}");
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

    /// Plain words are for the model, where there is a place for them.
    fn apply_plain_text(&mut self, moment: HookEvent, output: &str) {
        let tells = [HookEvent::PostToolUse, HookEvent::SessionStart, HookEvent::TaskStart].contains(&moment);
        self.context.extend((tells && !output.is_empty()).then(|| output.to_owned()));
    }

    /// Notes that a hook failed. A call that nobody has judged is not made.
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
