//! A session with an agent of another program.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::AgentName;

/// A session of an agent that another program runs (ACP): everything that is needed to load it again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AgentSession {
    /// The agent of the team that it belongs to.
    pub agent: AgentName,
    /// The session's id, as the program names it.
    pub id: Arc<str>,
    /// The program's name and version, as it gives them.
    pub program: String,
    /// The directory that it works in.
    pub dir: PathBuf,
    /// Whether it was loaded again, with everything that was said in it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub loaded: bool,
}

impl AgentSession {
    /// A new session.
    pub fn new(
        agent: AgentName,
        id: impl Into<Arc<str>>,
        program: impl Into<String>,
        dir: PathBuf,
    ) -> AgentSession {
        AgentSession { agent, id: id.into(), program: program.into(), dir, loaded: false }
    }
}
