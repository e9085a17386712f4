//! A model that follows a YAML script, for demos, tests, and tests that kill processes midway.
//!
//! It has no memory. Its reply depends only on the request (agent, conversation, turn, retry), so it is the
//! same after a restart. One script serves all agents of a team. `docs/scripted.md` explains the YAML.
//!
//! ```
//! # use std::sync::Arc;
//! # use longhaul::model::scripted::{ModelScript, ScriptedModel};
//! let script = ModelScript::parse("hello.yaml", "agents: { lead: { turns: [ { text: 'You said: {{ task }}' } ] } }")?;
//! let model = ScriptedModel::new(Arc::new(script));
//! # Ok::<(), longhaul::model::scripted::ModelScriptError>(())
//! ```

use std::sync::Arc;

use futures::stream::{self, StreamExt as _};

use super::{Model, ModelRequest, ReplyStream};

mod error;
mod playback;
mod script;
mod yaml;
mod template_context;
mod template;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod wrong_tests;

pub use error::{ModelScriptError, ScriptProblem};
pub use script::ModelScript;

/// The model's name in replies and errors.
const NAME: &str = "scripted";

/// A model that plays a [`ModelScript`].
#[derive(Debug, Clone)]
pub struct ScriptedModel {
    script: Arc<ModelScript>,
}

impl ScriptedModel {
    /// A model that plays `script`.
    pub fn new(script: Arc<ModelScript>) -> Self {
        ScriptedModel { script }
    }
}

impl Model for ScriptedModel {
    fn name(&self) -> &str {
        NAME
    }

    fn stream<'a>(&'a self, request: ModelRequest<'a>) -> ReplyStream<'a> {
        stream::unfold(playback::ScriptPlayback::new(self, request), |mut play| async move {
            play.next().await.map(|item| (item, play))
        })
        .boxed()
    }
}
