//! Tools in wire format: the same for all families except for the dialect of their schemas.

use std::sync::Arc;

use serde_json::Value;

use super::WireCache;
use super::schema::{self, SchemaDialect};
use super::tool_names::wire_name;
use crate::model::ToolSpec;
use crate::model::wire::schema::SchemaAdaptError;

/// A tool in wire format.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct WireTool {
    /// The wire name.
    pub(crate) name: String,
    /// The description, with the parts of the schema that the dialect cannot express.
    pub(crate) description: String,
    /// The schema of the arguments, always of an object.
    pub(crate) parameters: Value,
}

/// Converts a tool. Fails if the dialect cannot express its schema.
pub(crate) fn to_wire_tool(spec: &ToolSpec, dialect: &SchemaDialect) -> Result<WireTool, SchemaAdaptError> {
    let schema::AdaptedSchema { schema: parameters, notes } =
        schema::adapt_arguments(&spec.parameters, dialect)?;
    let mut description = spec.description.clone();
    for note in notes {
        if !description.is_empty() {
            description.push('\n');
        }
        description.push_str(&note);
    }
    Ok(WireTool { name: wire_name(&spec.name).into_owned(), description, parameters })
}

/// The tools of a conversation, written once for as long as they stay the same.
#[derive(Debug, Default)]
pub(crate) struct ToolBytes {
    specs: Vec<Arc<ToolSpec>>,
    bytes: Vec<u8>,
}

impl ToolBytes {
    /// The tools as they were last written.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Writes the tools, separated by commas. A tool that the dialect cannot express is left out, with a
    /// warning.
    pub(crate) fn write(
        &mut self,
        tools: &[Arc<ToolSpec>],
        dialect: &SchemaDialect,
        memo: &WireCache,
        form: impl Fn(&mut Vec<u8>, WireTool),
    ) -> &[u8] {
        let same =
            self.specs.len() == tools.len() && self.specs.iter().zip(tools).all(|(a, b)| Arc::ptr_eq(a, b));
        if same {
            return &self.bytes;
        }
        self.specs = tools.to_vec();
        self.bytes.clear();
        for tool in tools {
            match to_wire_tool(tool, dialect) {
                Ok(offered) => {
                    if !self.bytes.is_empty() {
                        self.bytes.push(b',');
                    }
                    form(&mut self.bytes, offered);
                }
                Err(why) => memo.warn(format!(
                    "the tool '{}' is not offered to the model: its schema cannot be expressed for {}: {why}",
                    tool.name, dialect.name
                )),
            }
        }
        &self.bytes
    }
}
