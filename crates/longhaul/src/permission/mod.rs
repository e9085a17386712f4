//! Decides which tool calls run, which need approval and which are denied: pure pattern matching.
//!
//! A [`Pattern`] matches calls: `tool`, `tool*`, `tool:arg=glob`, `tool:arg=glob:arg2=glob`. [`Permissions`]
//! are three lists of patterns, checked in this order: **deny**, **allow**, **ask**. A call that none of them
//! matches runs if the tool is harmless, and needs approval otherwise. [`Rights`] are the permissions of a
//! task and of all tasks above it; the strictest wins. `docs/permissions.md` has the full rules.
//!
//! Patterns see what the model wrote. They keep an agent from doing something by accident or whim. Against an
//! agent that tries to break out, use the sandbox.

mod command_line;
mod glob;
mod tool_identity;
mod pattern;
mod request;
mod shell;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use pattern::{Pattern, PatternError, PatternMatch};
pub use request::{PermissionRequest, RuleNames};
pub(crate) use tool_identity::join_with_and;
pub use tool_identity::{Consent, ToolIdentity};

/// What to do with a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PermissionVerdict {
    /// Run it.
    Run,
    /// Ask a person for approval first.
    Ask,
    /// Ask a person for approval first, for this reason, whatever else allows it: it may be something that is
    /// denied. If nobody can be asked, or if everything was approved beforehand, it does not run.
    Unsure(String),
    /// Do not run it, for this reason.
    Refuse(String),
}

impl PermissionVerdict {
    /// The stricter of two verdicts; of two refusals, the first.
    #[must_use]
    pub fn stricter(self, other: PermissionVerdict) -> PermissionVerdict {
        match (self, other) {
            (refused @ PermissionVerdict::Refuse(_), _) | (_, refused @ PermissionVerdict::Refuse(_)) => {
                refused
            }
            (unsure @ PermissionVerdict::Unsure(_), _) | (_, unsure @ PermissionVerdict::Unsure(_)) => unsure,
            (PermissionVerdict::Ask, _) | (_, PermissionVerdict::Ask) => PermissionVerdict::Ask,
            (PermissionVerdict::Run, PermissionVerdict::Run) => PermissionVerdict::Run,
        }
    }
}

/// Three lists of patterns: what an agent may do, what needs approval, and what is forbidden.
///
/// ```
/// use longhaul::permission::{Permissions, PermissionVerdict, arguments};
///
/// let permissions = Permissions::parse(["shell:cmd=git *"], ["read_file:path=*.env"], ["shell:cmd=* --force*"])?;
/// let shell = |cmd: &str| permissions.decide("shell", &serde_json::json!({ "cmd": cmd }), false);
/// assert_eq!(shell("git status"), PermissionVerdict::Run);
/// assert_eq!(shell("git status; rm -rf /"), PermissionVerdict::Ask); // a wildcard matches no `;`
/// assert!(matches!(shell("git push --force"), PermissionVerdict::Refuse(_)));
/// assert_eq!(permissions.decide("read_file", &arguments("{\"path\":\".env\"}"), true), PermissionVerdict::Ask);
/// # Ok::<(), longhaul::permission::PatternError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Permissions {
    /// Runs without approval.
    pub allow: Vec<Pattern>,
    /// Needs approval, even if it is harmless.
    pub ask: Vec<Pattern>,
    /// Never runs.
    pub deny: Vec<Pattern>,
}

impl Permissions {
    /// Parses patterns. Fails with the invalid pattern and the reason.
    pub fn parse<A, S, D>(allow: A, ask: S, deny: D) -> Result<Permissions, PatternError>
    where
        A: IntoIterator<Item: AsRef<str>>,
        S: IntoIterator<Item: AsRef<str>>,
        D: IntoIterator<Item: AsRef<str>>,
    {
        fn all(texts: impl IntoIterator<Item: AsRef<str>>) -> Result<Vec<Pattern>, PatternError> {
            texts.into_iter().map(|text| Pattern::parse(text.as_ref())).collect()
        }
        Ok(Permissions { allow: all(allow)?, ask: all(ask)?, deny: all(deny)? })
    }

    /// Combines both: everything that either of them allows, asks about and denies.
    #[must_use]
    pub fn merge(&self, more: &Permissions) -> Permissions {
        let joined = |ours: &[Pattern], theirs: &[Pattern]| ours.iter().chain(theirs).cloned().collect();
        Permissions {
            allow: joined(&self.allow, &more.allow),
            ask: joined(&self.ask, &more.ask),
            deny: joined(&self.deny, &more.deny),
        }
    }

    /// The verdict on a call. `harmless` says that the tool changes only Longhaul's own data.
    pub fn decide(&self, tool: &str, arguments: &Value, harmless: bool) -> PermissionVerdict {
        self.decide_request(&PermissionRequest::new(tool, arguments.clone()), harmless)
    }

    /// Like [`decide`](Self::decide), for a request with all names that rules may use.
    pub fn decide_request(&self, request: &PermissionRequest, harmless: bool) -> PermissionVerdict {
        let tool = request.tool();
        let mut unsure = None;
        for pattern in &self.deny {
            match pattern.match_request(request) {
                PatternMatch::No => {}
                PatternMatch::Yes => {
                    return PermissionVerdict::Refuse(format!(
                        "'{tool}' is denied here by the pattern '{pattern}'. Do not try to get around it: do without, or \
                         say what you could not do."
                    ));
                }
                PatternMatch::Unclear(why) => {
                    unsure.get_or_insert_with(|| {
                        format!("it may be what the pattern '{pattern}' denies: {why}")
                    });
                }
            }
        }
        if let Some(why) = unsure {
            return PermissionVerdict::Unsure(why);
        }
        // The rule was written for another version of the tool.
        if !request.is_changed() && self.allow.iter().any(|pattern| pattern.allows(request)) {
            return PermissionVerdict::Run;
        }
        let asked = self.ask.iter().any(|pattern| pattern.match_request(request) != PatternMatch::No);
        if harmless && !asked { PermissionVerdict::Run } else { PermissionVerdict::Ask }
    }
}

/// The rights of a task: the permissions of its agent, and of the agent of every task above it.
///
/// A call runs only if each of them lets it run, so a child never has more rights than its parent.
#[derive(Debug, Clone, Default)]
pub struct Rights {
    /// The permissions that apply; the strictest wins. Without any, everything runs.
    pub levels: Vec<Arc<Permissions>>,
    /// Whether the person who started the tree has approved everything that is not denied.
    pub approved: bool,
}

impl Rights {
    /// The verdict on a call.
    pub fn decide(&self, tool: &str, arguments: &Value, harmless: bool) -> PermissionVerdict {
        self.decide_request(&PermissionRequest::new(tool, arguments.clone()), harmless)
    }

    /// Like [`decide`](Self::decide), for a request with all names that rules may use.
    pub fn decide_request(&self, request: &PermissionRequest, harmless: bool) -> PermissionVerdict {
        let verdicts = self.levels.iter().map(|level| level.decide_request(request, harmless));
        match verdicts.fold(PermissionVerdict::Run, PermissionVerdict::stricter) {
            PermissionVerdict::Ask if self.approved => PermissionVerdict::Run,
            PermissionVerdict::Unsure(why) if self.approved => PermissionVerdict::Refuse(format!(
                "This call of '{}' was not made, and nobody is asked in this run: {why}. Write it as plain commands, \
                 without variables for their names, `eval`, or programs given as text; or do without it.",
                request.tool()
            )),
            verdict => verdict,
        }
    }
}

/// The arguments of a call as patterns see them. An empty text or `null` is an empty object. Text that is not
/// JSON stays a text, and patterns cannot see into it.
pub fn arguments(text: &str) -> Value {
    match text.trim() {
        "" | "null" => Value::Object(serde_json::Map::new()),
        text => serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned())),
    }
}

#[cfg(test)]
mod tests;
