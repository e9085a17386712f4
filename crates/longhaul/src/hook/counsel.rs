//! What several hooks together mean. Pure.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::Moment;

/// What came of one hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// It exited with 0, and wrote this.
    Fine(String),
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
    pub fn of(moment: Moment, heard: Vec<Heard>) -> Counsel {
        let mut counsel = Counsel::default();
        for heard in heard {
            match heard {
                Heard::Fine(output) => counsel.hear(moment, output.trim()),
                Heard::Blocked(why) => counsel.block(&why),
                Heard::Failed(_) => {}
            }
        }
        counsel
    }

    fn hear(&mut self, moment: Moment, output: &str) {
        let said = match output.starts_with('{').then(|| serde_json::from_str::<Said>(output)) {
            Some(Ok(said)) => said,
            // Plain words, or what looks like JSON and is none.
            _ => {
                let tells = [Moment::PostToolUse, Moment::SessionStart, Moment::TaskStart].contains(&moment);
                self.context.extend((tells && !output.is_empty()).then(|| output.to_owned()));
                return;
            }
        };
        let specific = said.hook_specific_output;
        self.notes.extend(said.system_message.filter(|_| !said.suppress_output));
        self.context.extend(specific.additional_context);
        if said.go_on == Some(false) {
            self.block(said.stop_reason.as_deref().or(said.reason.as_deref()).unwrap_or_default());
        } else if matches!(said.decision.as_deref(), Some("block" | "deny")) {
            self.block(said.reason.as_deref().unwrap_or_default());
        }
        if moment != Moment::PreToolUse {
            return;
        }
        let decision = specific.permission_decision.or(said.decision.filter(|word| word == "approve"));
        match decision.as_deref() {
            Some("deny") => {
                let why = specific.permission_decision_reason.or(said.reason);
                self.block(why.as_deref().unwrap_or_default());
            }
            Some("ask") => self.decision = Some(Decision::Ask),
            Some("allow" | "approve") => self.decision = self.decision.or(Some(Decision::Allow)),
            _ => {}
        }
        if let Some(updated) = specific.updated_input {
            self.updated.get_or_insert_default().extend(updated);
        }
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
