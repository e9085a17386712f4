//! Tools that a person has written as shell commands: each is one tool with its own arguments.
//!
//! The command receives an argument as an environment variable of that name, never as part of its text, so
//! nothing that a model writes can become a command.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;
use serde_json::{Map, Value, json};

use super::command::{CommandEnv, run_command};
use super::sandbox::Sandbox;
use super::shell::CommandSettings;
use super::text::truncate;
use super::{OpenFuture, Toolset, ToolsetContext, ToolsetError};
use crate::id::Digest;
use crate::model::ToolSpec;
use crate::permission::ToolIdentity;
use crate::process::ProcessGuardian;
use crate::tool::{
    CallContext, CallFuture, DynTool, ToolEffects, ToolError, identity_from_spec, parse_arguments,
};

/// The default timeout of a script.
const TIMEOUT: Duration = Duration::from_secs(600);

/// One tool that runs a shell command.
#[derive(Clone, Default)]
pub struct ScriptTool {
    /// The command line for `sh -c`. `$name` and `${name}` are the value of the argument `name`.
    pub cmd: String,
    /// The description that the model sees.
    pub description: Option<String>,
    /// The JSON schema of each argument. One without a type is a string.
    pub args: IndexMap<String, Value>,
    /// The names of the required arguments; all of them if left out.
    pub required: Option<Vec<String>>,
    /// Environment variables for this tool only.
    pub env: IndexMap<String, String>,
    /// The directory to run in, relative to the task's working directory, which is the default.
    pub working_dir: Option<PathBuf>,
}

// Values of variables may be secrets, so they are not shown.
impl fmt::Debug for ScriptTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let env: Vec<_> = self.env.keys().collect();
        f.debug_struct("ScriptTool")
            .field("cmd", &self.cmd)
            .field("args", &self.args)
            .field("env", &env)
            .finish()
    }
}

/// The toolset `script`: tools that run shell commands.
#[derive(Debug, Clone)]
pub struct ScriptTools {
    tools: Vec<Arc<ScriptRunner>>,
}

/// Builds a [`ScriptTools`].
#[derive(Debug)]
pub struct ScriptToolsBuilder {
    setting: CommandSettings,
    tools: IndexMap<String, ScriptTool>,
}

impl ScriptTools {
    /// Starts with no tools.
    pub fn builder() -> ScriptToolsBuilder {
        ScriptToolsBuilder { setting: CommandSettings::default(), tools: IndexMap::new() }
    }
}

impl ScriptToolsBuilder {
    /// Adds a tool.
    pub fn tool(mut self, name: impl Into<String>, tool: ScriptTool) -> Self {
        self.tools.insert(name.into(), tool);
        self
    }

    /// Sets an environment variable for all tools.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.setting.env.insert(name.into(), value.into());
        self
    }

    /// Sets the timeout of commands: 600 s by default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.setting.timeout = Some(timeout);
        self
    }

    /// Runs commands in a sandbox.
    pub fn sandbox(mut self, sandbox: Sandbox) -> Self {
        self.setting.sandbox = Some(sandbox);
        self
    }

    /// Sets the guardian that kills commands when this process is killed.
    pub fn guardian(mut self, guardian: ProcessGuardian) -> Self {
        self.setting.guardian = guardian;
        self
    }

    /// Builds the toolset.
    ///
    /// # Errors
    /// If a tool is invalid. The error names every problem.
    pub fn build(self) -> Result<ScriptTools, ToolsetError> {
        let wrong: Vec<String> = self.tools.iter().flat_map(|(name, tool)| check(name, tool)).collect();
        if !wrong.is_empty() {
            return Err(ToolsetError { toolset: "script".to_owned(), why: wrong.join("; ") });
        }
        let setting = Arc::new(self.setting);
        let call = |(name, tool): (String, ScriptTool)| {
            Arc::new(ScriptRunner { spec: spec(name, &tool), tool, setting: setting.clone() })
        };
        Ok(ScriptTools { tools: self.tools.into_iter().map(call).collect() })
    }
}

impl Toolset for ScriptTools {
    fn name(&self) -> &str {
        "script"
    }

    fn open<'a>(&'a self, _context: &'a ToolsetContext) -> OpenFuture<'a> {
        Box::pin(async { Ok(self.tools.iter().map(|tool| tool.clone() as Arc<dyn DynTool>).collect()) })
    }
}

/// Returns what is wrong with a tool.
fn check(name: &str, tool: &ScriptTool) -> Vec<String> {
    let mut wrong = Vec::new();
    if tool.cmd.trim().is_empty() {
        wrong.push(format!("'{name}' has no `cmd`"));
    }
    let fits = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    for arg in tool.args.keys() {
        if !fits(arg) {
            wrong.push(format!(
                "the argument '{arg}' of '{name}' cannot be an environment variable: use letters, digits and '_'"
            ));
        }
        if RESERVED_VARIABLES.contains(&arg.as_str()) {
            wrong.push(format!(
                "the argument '{arg}' of '{name}' would change how every command runs: rename it"
            ));
        }
        if tool.env.contains_key(arg) {
            wrong.push(format!("'{name}' has '{arg}' both in `args` and in `env`: rename one"));
        }
    }
    for arg in tool.required.iter().flatten().filter(|arg| !tool.args.contains_key(*arg)) {
        wrong.push(format!("'{name}' requires '{arg}', which is not in its `args`"));
    }
    wrong
}

/// Variables with which a shell and the loader find programs and libraries. A model must not set them.
const RESERVED_VARIABLES: [&str; 8] =
    ["PATH", "IFS", "ENV", "BASH_ENV", "SHELLOPTS", "LD_PRELOAD", "LD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES"];

fn spec(name: String, tool: &ScriptTool) -> ToolSpec {
    let properties: Map<String, Value> =
        tool.args.iter().map(|(name, schema)| (name.clone(), argument(schema))).collect();
    let required = match &tool.required {
        Some(required) => required.clone(),
        None => tool.args.keys().cloned().collect(),
    };
    let parameters = json!({ "type": "object", "properties": properties, "required": required });
    let description = tool.description.clone().unwrap_or_else(|| format!("Runs: {}", tool.cmd.trim()));
    ToolSpec { name, description, parameters }
}

fn argument(schema: &Value) -> Value {
    match schema {
        Value::Object(schema) => {
            let mut schema = schema.clone();
            schema.entry("type").or_insert("string".into());
            Value::Object(schema)
        }
        // A string instead of a schema is the description.
        Value::String(text) => json!({ "type": "string", "description": text }),
        _ => json!({ "type": "string" }),
    }
}

#[derive(Debug)]
struct ScriptRunner {
    spec: ToolSpec,
    tool: ScriptTool,
    setting: Arc<CommandSettings>,
}

impl ScriptRunner {
    /// Converts the arguments to environment variables. Unknown arguments are left out: a model must not set
    /// a variable such as `LD_PRELOAD`.
    fn env(&self, arguments: &Map<String, Value>) -> Result<CommandEnv, ToolError> {
        let required =
            self.spec.parameters["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let missing: Vec<_> =
            required.filter(|name| arguments.get(*name).is_none_or(Value::is_null)).collect();
        if !missing.is_empty() {
            return Err(ToolError::Retry(format!("`{}` is missing", missing.join("`, `"))));
        }
        let mut env = CommandEnv::new();
        for (name, value) in &self.tool.env {
            env.insert(name.into(), value.into());
        }
        for name in self.tool.args.keys() {
            let text = match arguments.get(name) {
                None | Some(Value::Null) => continue,
                Some(Value::String(text)) => text.clone(),
                Some(other) => other.to_string(),
            };
            if text.contains('\0') {
                return Err(ToolError::Retry(format!("`{name}` has a zero byte in it")));
            }
            env.insert(name.into(), text.into());
        }
        Ok(env)
    }
}

impl DynTool for ScriptRunner {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn effects(&self) -> ToolEffects {
        ToolEffects::default()
    }

    fn identity(&self) -> ToolIdentity {
        let ScriptTool { cmd, working_dir, .. } = &self.tool;
        let place = working_dir.as_ref().map_or(String::new(), |dir| format!(" in {}", dir.display()));
        let digest = Digest::of_bytes(cmd.as_bytes());
        let shown = truncate(cmd.lines().next().unwrap_or_default(), 60);
        let setting = format!("`{shown}` ({}){place}, {}", &digest.as_str()[..8], self.setting.describe());
        let setting = Some(setting);
        ToolIdentity { setting, ..identity_from_spec(&self.spec, self.effects()) }
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a CallContext) -> CallFuture<'a> {
        Box::pin(async move {
            let arguments: Map<String, Value> = parse_arguments(arguments)?;
            let more = self.env(&arguments)?;
            let dir = self.tool.working_dir.as_ref().map(|dir| dir.to_string_lossy());
            let spec =
                self.setting.command_spec(context, self.tool.cmd.as_str(), dir.as_deref(), more).await?;
            let result =
                run_command(&spec, self.setting.timeout.unwrap_or(TIMEOUT), context, &self.setting.guardian)
                    .await?;
            result.into_tool_output("")
        })
    }
}

#[cfg(test)]
mod tests;
