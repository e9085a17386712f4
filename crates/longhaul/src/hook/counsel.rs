//! What several hooks together mean. Pure.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Hook, Moment, OnHookError};
use crate::entry::HookFailure;

/// How much of a hook's command, and of why it failed, is written down, in bytes.
const TOLD: usize = 500;

/// What came of one hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// It exited with 0, and wrote this.
    Fine(String),
    /// It exited with 0, but this is not all that it wrote, or not what it wrote; why.
    Garbled(String, String),
    /// It exited with 2, and this is its standard error.
    Blocked(String),
    /// It could not be run, took too long or exited with something else; why.
    Failed(String),
}

/// What a hook says about a call that it does not block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Nobody need be asked, as far as the agent's own permissions go.
    Allow,
    /// A person is to be asked.
    Ask,
}

/// What hooks mean, all together. The strictest counts.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Counsel {
    /// It is not to be done, for this reason.
    pub blocked: Option<String>,
    /// What they decided.
    pub decision: Option<Decision>,
    /// The arguments that the call is to be made with instead.
    pub updated: Option<Map<String, Value>>,
    /// What the model is to know.
    pub context: Vec<String>,
    /// What people are to know.
    pub notes: Vec<String>,
    /// The hooks that failed. A call that one of them had to judge is blocked, unless its author would not have it.
    pub failures: Vec<HookFailure>,
}

/// What a hook may write, in the spelling of either of the programs that made hooks known.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Said {
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
    hook_specific_output: Specific,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Specific {
    #[serde(alias = "permissionDecision")]
    permission_decision: Option<String>,
    #[serde(alias = "permissionDecisionReason")]
    permission_decision_reason: Option<String>,
    #[serde(alias = "updatedInput")]
    updated_input: Option<Map<String, Value>>,
    #[serde(alias = "additionalContext")]
    additional_context: Option<String>,
}

impl Counsel {
    /// What these hooks, in the order of the file, mean at this moment.
    pub fn of<'a>(moment: Moment, heard: impl IntoIterator<Item = (&'a Hook, Heard)>) -> Counsel {
        let mut counsel = Counsel::default();
        for (hook, heard) in heard {
            let understood = match heard {
                Heard::Fine(output) => counsel.hear(moment, output.trim()),
                Heard::Blocked(why) => {
                    counsel.block(&why);
                    Ok(())
                }
                Heard::Garbled(output, why) => {
                    counsel.hear_words(moment, output.trim());
                    Err(why)
                }
                Heard::Failed(why) => Err(why),
            };
            if let Err(why) = understood {
                counsel.fail(moment, hook, &why);
            }
        }
        counsel
    }

    /// Takes in what a hook wrote, or says why that cannot be understood. Nothing of it counts then: half an object may
    /// be the half without its `deny`.
    fn hear(&mut self, moment: Moment, output: &str) -> Result<(), String> {
        if output.is_empty() {
            return Ok(());
        }
        if !output.starts_with('{') {
            self.hear_words(moment, output);
            return match moment {
                Moment::PreToolUse => Err(format!("it wrote something that is not a JSON object: {output}")),
                _ => Ok(()),
            };
        }
        let said = serde_json::from_str::<Said>(output).map_err(|error| {
            self.hear_words(moment, output);
            format!("it wrote JSON that cannot be understood: {error}")
        })?;
        let specific = said.hook_specific_output;
        let judges = moment == Moment::PreToolUse;
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
        self.notes.extend(said.system_message.filter(|_| !said.suppress_output));
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
            Some("ask") => self.decision = Some(Decision::Ask),
            Some("allow") => self.decision = self.decision.or(Some(Decision::Allow)),
            _ => {}
        }
        if let Some(updated) = specific.updated_input {
            self.updated.get_or_insert_default().extend(updated);
        }
        Ok(())
    }

    /// Plain words are for the model, where there is a place for them.
    fn hear_words(&mut self, moment: Moment, output: &str) {
        let tells = [Moment::PostToolUse, Moment::SessionStart, Moment::TaskStart].contains(&moment);
        self.context.extend((tells && !output.is_empty()).then(|| output.to_owned()));
    }

    /// Notes that a hook failed. A call that nobody has judged is not made.
    fn fail(&mut self, moment: Moment, hook: &Hook, why: &str) {
        let short = |text: &str| text.trim()[..text.trim().floor_char_boundary(TOLD)].to_owned();
        let why = short(why);
        let denied = moment == Moment::PreToolUse && hook.on_error == OnHookError::Deny;
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
