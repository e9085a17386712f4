//! Lets an agent change its own model for the rest of a conversation: a small one for easy work, a large one
//! for hard work.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fn_tool::{NoArgs, ToolCallResult, fn_tool};
use super::{OpenFuture, Toolset, ToolsetContext};
use crate::entry::ModelChoice;
use crate::tool::{ToolEffects, ToolError, ToolOutput};

/// The toolset `model_picker`: `change_model` and `revert_model`.
#[derive(Debug, Clone)]
pub struct ModelPicker {
    models: Arc<Vec<String>>,
}

impl ModelPicker {
    /// Offers these models, by the names that the team file gives them.
    pub fn new<S: Into<String>>(models: impl IntoIterator<Item = S>) -> Self {
        ModelPicker { models: Arc::new(models.into_iter().map(Into::into).collect()) }
    }
}

impl Toolset for ModelPicker {
    fn name(&self) -> &str {
        "model_picker"
    }

    fn open<'a>(&'a self, _context: &'a ToolsetContext) -> OpenFuture<'a> {
        let models = self.models.clone();
        let text = format!(
            "Goes on with another model, from your next reply on. One of: {}.",
            self.models.join(", ")
        );
        let change =
            fn_tool("change_model", ToolEffects::READ_ONLY, text, move |args: ChangeModelArgs, _| {
                let changed = change(&models, args.model);
                Box::pin(async { changed })
            });
        let text = "Goes back to the model that you began with, from your next reply on.";
        let revert = fn_tool("revert_model", ToolEffects::READ_ONLY, text, |_: NoArgs, _| {
            Box::pin(async {
                let text = "From your next reply on you run on your own model again.".to_owned();
                Ok(ToolOutput { text, model: Some(ModelChoice::Own), ..ToolOutput::default() })
            })
        });
        Box::pin(async { Ok(vec![change, revert]) })
    }

    fn instruction(&self, _context: &ToolsetContext) -> Option<String> {
        Some(format!(
            "You may change the model that you run on with change_model, to one of: {}. Take a stronger one for what is \
             hard, and go back with revert_model.",
            self.models.join(", ")
        ))
    }
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct ChangeModelArgs {
    /// The model to go on with.
    model: String,
}

fn change(models: &[String], model: String) -> ToolCallResult {
    if !models.contains(&model) {
        let there = models.join(", ");
        return Err(ToolError::Retry(format!(
            "there is no model '{model}' to change to; there are: {there}"
        )));
    }
    let text = format!("From your next reply on you run on {model}.");
    Ok(ToolOutput { text, model: Some(ModelChoice::Other(model)), ..ToolOutput::default() })
}
