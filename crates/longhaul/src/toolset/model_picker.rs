//! Lets an agent change its own model for the rest of a conversation: a small one for easy work, a large one
//! for hard work.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{OpenFuture, Toolset, ToolsetContext};
use crate::entry::ModelChoice;
use crate::tool::{CallContext, DynTool, Tool, ToolEffects, ToolError, ToolOutput};

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
        let change = ChangeModel { models: self.models.clone() };
        Box::pin(async { Ok(vec![Arc::new(change) as Arc<dyn DynTool>, Arc::new(RevertModel)]) })
    }

    fn instruction(&self, _context: &ToolsetContext) -> Option<String> {
        Some(format!(
            "You may change the model that you run on with change_model, to one of: {}. Take a stronger one for what is \
             hard, and go back with revert_model.",
            self.models.join(", ")
        ))
    }
}

struct ChangeModel {
    models: Arc<Vec<String>>,
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct ChangeModelArgs {
    /// The model to go on with.
    model: String,
}

impl Tool for ChangeModel {
    type Args = ChangeModelArgs;

    fn name(&self) -> &str {
        "change_model"
    }

    fn description(&self) -> String {
        format!("Goes on with another model, from your next reply on. One of: {}.", self.models.join(", "))
    }

    fn effects(&self) -> ToolEffects {
        ToolEffects::READ_ONLY
    }

    async fn call(&self, args: ChangeModelArgs, _: &CallContext) -> Result<ToolOutput, ToolError> {
        if !self.models.contains(&args.model) {
            return Err(ToolError::Retry(format!(
                "there is no model '{}' to change to; there are: {}",
                args.model,
                self.models.join(", ")
            )));
        }
        let text = format!("From your next reply on you run on {}.", args.model);
        Ok(ToolOutput { text, model: Some(ModelChoice::Other(args.model)), ..ToolOutput::default() })
    }
}

struct RevertModel;

#[derive(Deserialize, Serialize, JsonSchema)]
struct RevertModelArgs {}

impl Tool for RevertModel {
    type Args = RevertModelArgs;

    fn name(&self) -> &str {
        "revert_model"
    }

    fn description(&self) -> String {
        "Goes back to the model that you began with, from your next reply on.".to_owned()
    }

    fn effects(&self) -> ToolEffects {
        ToolEffects::READ_ONLY
    }

    async fn call(&self, _: RevertModelArgs, _: &CallContext) -> Result<ToolOutput, ToolError> {
        let text = "From your next reply on you run on your own model again.".to_owned();
        Ok(ToolOutput { text, model: Some(ModelChoice::Own), ..ToolOutput::default() })
    }
}
