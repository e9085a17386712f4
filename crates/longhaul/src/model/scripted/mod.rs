//! A model that says what a YAML script tells it to: for demos, for tests, and for killing processes in the middle.
//!
//! It has no memory. What it answers is a function of the request alone (agent, conversation, turn, retry), so it
//! answers the same after a restart. One script serves all agents of a team. `docs/scripted.md` explains the YAML.
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

/// What the model is called, in replies and in errors.
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
