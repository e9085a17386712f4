//! A tool made of a name, a description and a function, and lenient parsing of arguments as models write
//! them.

use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::de::{DeserializeOwned, Deserializer};
use serde::{Deserialize, Serialize, de};
use serde_json::Value;

use crate::dispatch::AgentInfo;
use crate::model::ToolSpec;
use crate::permission::{RuleNames, ToolIdentity};
use crate::tool::{
    ArgumentAliases, CallContext, CallFuture, DynTool, ToolEffects, ToolError, ToolOutput, arguments_schema,
    canonical_arguments, identity_from_spec, parse_arguments_with_aliases,
};

/// What a tool call returns.
pub(super) type ToolCallResult = Result<ToolOutput, ToolError>;

/// The arguments of a tool that takes none.
#[derive(Deserialize, Serialize, JsonSchema)]
pub(super) struct NoArgs {}

type ToolFn<A> = Box<dyn Fn(A, &CallContext) -> CallFuture<'_> + Send + Sync>;

/// A tool that calls a function.
pub(super) struct FnTool<A> {
    spec: ToolSpec,
    effects: ToolEffects,
    names: RuleNames,
    setting: Option<String>,
    act: ToolFn<A>,
}

/// The arguments of a tool.
pub(super) trait ToolArgs: DeserializeOwned + Serialize + JsonSchema + Send + 'static {}

impl<A: DeserializeOwned + Serialize + JsonSchema + Send + 'static> ToolArgs for A {}

/// Creates a tool from its name, its effects, the description for the model, and its function.
pub(super) fn fn_tool<A: ToolArgs>(
    name: impl Into<String>,
    effects: ToolEffects,
    description: impl Into<String>,
    act: impl Fn(A, &CallContext) -> CallFuture<'_> + Send + Sync + 'static,
) -> Arc<dyn DynTool> {
    FnTool::new(name, effects, description, act).into_tool()
}

impl<A: ToolArgs> FnTool<A> {
    /// Starts a tool that needs more than [`fn_tool`] takes.
    pub(super) fn new(
        name: impl Into<String>,
        effects: ToolEffects,
        description: impl Into<String>,
        act: impl Fn(A, &CallContext) -> CallFuture<'_> + Send + Sync + 'static,
    ) -> Self {
        let (name, description) = (name.into(), description.into());
        let spec = ToolSpec { name, description, parameters: arguments_schema::<A>() };
        FnTool { spec, effects, names: RuleNames::default(), setting: None, act: Box::new(act) }
    }

    /// Lists the agents that an argument can name in that argument's description.
    pub(super) fn with_agent_choices(mut self, parameter: &str, agents: &[AgentInfo]) -> Self {
        if let Some(schema) = self.spec.parameters["properties"][parameter].as_object_mut() {
            let names: Vec<&str> = agents.iter().map(|info| info.name.as_str()).collect();
            schema.insert("enum".into(), names.into());
        }
        self
    }

    /// Adds aliases for its arguments: `(alias, argument)`.
    pub(super) fn aliases(mut self, aliases: ArgumentAliases) -> Self {
        self.names.aliases = aliases;
        self
    }

    /// Applies permission rules for that tool (deny and ask) to calls of this one too.
    pub(super) fn covered_by(mut self, tool: &str) -> Self {
        self.names.covered_by.push(tool.to_owned());
        self
    }

    /// Adds settings that change what it does besides its arguments: see
    /// [`Tool::setting`](crate::tool::Tool::setting).
    pub(super) fn setting(mut self, setting: Option<String>) -> Self {
        self.setting = setting;
        self
    }

    /// Converts it to a tool for the engine.
    pub(super) fn into_tool(self) -> Arc<dyn DynTool> {
        Arc::new(self)
    }
}

impl<A: ToolArgs> DynTool for FnTool<A> {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn effects(&self) -> ToolEffects {
        self.effects
    }

    fn canonical_arguments(&self, arguments: &str) -> Result<String, ToolError> {
        canonical_arguments::<A>(arguments, self.names.aliases)
    }

    fn rule_names(&self) -> RuleNames {
        self.names.clone()
    }

    fn identity(&self) -> ToolIdentity {
        ToolIdentity { setting: self.setting.clone(), ..identity_from_spec(&self.spec, self.effects) }
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a CallContext) -> CallFuture<'a> {
        Box::pin(async move {
            (self.act)(parse_arguments_with_aliases::<A>(arguments, self.names.aliases)?, context).await
        })
    }
}

/// Parses a number, or a string that contains one. `null` and a blank string mean none.
pub(super) fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Null => Ok(None),
        Value::Number(number) => Ok(number.as_f64()),
        Value::String(text) if text.trim().is_empty() => Ok(None),
        Value::String(text) => match text.trim().parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(Some(number)),
            _ => Err(de::Error::custom(format!("'{text}' is not a number"))),
        },
        other => Err(de::Error::custom(format!("{other} is not a number"))),
    }
}

/// Parses one of a few words, ignoring case. `null` and a blank string mean none.
pub(super) fn choice<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    match Option::<String>::deserialize(deserializer)?.map(|word| word.trim().to_ascii_lowercase()) {
        None => Ok(None),
        Some(word) if word.is_empty() => Ok(None),
        Some(word) => serde_json::from_value(word.into()).map(Some).map_err(de::Error::custom),
    }
}

/// Parses `true` or `false`, or a string that says so. `null` is false.
pub(super) fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Null => Ok(false),
        Value::Bool(flag) => Ok(flag),
        Value::String(text) => match text.trim().to_ascii_lowercase().as_str() {
            "true" | "yes" | "1" => Ok(true),
            "false" | "no" | "0" | "" => Ok(false),
            _ => Err(de::Error::custom(format!("'{text}' is neither true nor false"))),
        },
        other => Err(de::Error::custom(format!("{other} is neither true nor false"))),
    }
}

/// Parses a list of names; also a single name, several names in one string, or a list encoded as a string.
pub(super) fn names<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let listed = match Value::deserialize(deserializer)? {
        Value::String(text) => match serde_json::from_str(&text) {
            Ok(Value::Array(list)) => list,
            _ => text.split([',', ' ', '\n']).map(Value::from).collect(),
        },
        Value::Array(list) => list,
        Value::Null => Vec::new(),
        other => return Err(de::Error::custom(format!("{other} is not a list of texts"))),
    };
    let name = |value| match value {
        Value::String(text) => Ok(text.trim().to_owned()),
        other => Err(de::Error::custom(format!("{other} is not a text"))),
    };
    let mut names = listed.into_iter().map(name).collect::<Result<Vec<_>, _>>()?;
    names.retain(|name| !name.is_empty());
    Ok(names)
}

/// Parses a list; also a list encoded as a string, or a single item.
pub(super) fn list<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    let listed = match Value::deserialize(deserializer)? {
        Value::Array(list) => list,
        Value::Null => Vec::new(),
        Value::String(text) => match serde_json::from_str(&text) {
            Ok(Value::Array(list)) => list,
            Ok(one @ Value::Object(_)) => vec![one],
            _ => vec![Value::String(text)],
        },
        one => vec![one],
    };
    listed.into_iter().map(|one| serde_json::from_value(one).map_err(de::Error::custom)).collect()
}

/// Drops blank strings: models fill in an empty string when they mean no value.
pub(super) fn non_blank(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.trim().is_empty())
}

/// Parses a limit of a task: 0 means no limit, a negative number is an error.
pub(super) fn positive_limit(name: &str, asked: Option<f64>) -> Result<Option<f64>, ToolError> {
    match asked {
        Some(n) if n < 0.0 => Err(ToolError::Retry(format!(
            "`{name}` is {n}, which bounds nothing: give a number above 0, or leave it out"
        ))),
        other => Ok(other.filter(|n| *n > 0.0)),
    }
}

/// Parses a limit in whole units. A fraction below one counts as one.
pub(super) fn whole_limit(name: &str, asked: Option<f64>) -> Result<Option<u64>, ToolError> {
    Ok(positive_limit(name, asked)?.map(|n| n.ceil() as u64))
}

/// Parses a limit of turns.
pub(super) fn turn_limit(asked: Option<f64>) -> Result<Option<u32>, ToolError> {
    Ok(whole_limit("max_turns", asked)?.map(|n| u32::try_from(n).unwrap_or(u32::MAX)))
}

/// Converts seconds to a duration, and saturates instead of overflowing.
pub(super) fn duration_from_secs(n: f64) -> Duration {
    const AGES: f64 = 1e9;
    Duration::try_from_secs_f64(n.clamp(0.0, AGES)).unwrap_or_default()
}

/// Converts a number to an offset or a count of characters or lines.
pub(super) fn to_index(n: f64) -> usize {
    n.max(0.0) as usize
}

/// The longest and the default time that a call waits, in seconds.
const LONGEST_WAIT: f64 = 3600.0;
const USUAL_WAIT: f64 = 300.0;

/// Returns how long a call waits, in seconds, and a note if that differs from what the model asked for.
pub(super) fn wait_timeout(name: &str, asked: Option<f64>) -> (f64, Option<String>) {
    match asked {
        None => (USUAL_WAIT, None),
        Some(n) if n < 0.0 => {
            (USUAL_WAIT, Some(format!("`{name}` cannot be {n}: {USUAL_WAIT} seconds were meant instead")))
        }
        Some(0.0) => (USUAL_WAIT, None),
        Some(n) if n > LONGEST_WAIT => {
            (LONGEST_WAIT, Some(format!("`{name}` of {n} is too long: {LONGEST_WAIT} seconds is the most")))
        }
        Some(n) => (n, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::parse_arguments;

    #[derive(Deserialize)]
    struct Loose {
        #[serde(default, deserialize_with = "number")]
        n: Option<f64>,
        #[serde(default, deserialize_with = "flag")]
        f: bool,
        #[serde(default, deserialize_with = "names")]
        l: Vec<String>,
    }

    #[test]
    fn arguments_are_taken_as_models_write_them() {
        for (json, n) in [
            ("{}", None),
            (r#"{"n":null}"#, None),
            (r#"{"n":""}"#, None),
            (r#"{"n":5}"#, Some(5.0)),
            (r#"{"n":" 5.5 "}"#, Some(5.5)),
            (r#"{"n":-1}"#, Some(-1.0)),
        ] {
            assert_eq!(parse_arguments::<Loose>(json).unwrap().n, n, "{json}");
        }
        for (json, f) in
            [("{}", false), (r#"{"f":true}"#, true), (r#"{"f":"True"}"#, true), (r#"{"f":""}"#, false)]
        {
            assert_eq!(parse_arguments::<Loose>(json).unwrap().f, f, "{json}");
        }
        for json in
            [r#"{"l":["a","b"]}"#, r#"{"l":"a, b"}"#, r#"{"l":"[\"a\",\"b\"]"}"#, r#"{"l":["a",""," b "]}"#]
        {
            assert_eq!(parse_arguments::<Loose>(json).unwrap().l, ["a", "b"], "{json}");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_a_reason() {
        for (json, why) in [
            (r#"{"n":"soon"}"#, "'soon' is not a number"),
            (r#"{"n":"inf"}"#, "'inf' is not a number"),
            (r#"{"f":"maybe"}"#, "'maybe' is neither true nor false"),
            (r#"{"l":[1]}"#, "1 is not a text"),
            (r#"{"l":{}}"#, "{} is not a list of texts"),
        ] {
            let error = parse_arguments::<Loose>(json).map(|_| ()).unwrap_err().to_string();
            assert!(error.contains(why), "{json}: {error}");
        }
    }

    #[test]
    fn bounds_and_waits_are_brought_to_what_there_is() {
        assert_eq!(positive_limit("x", Some(0.0)), Ok(None));
        assert!(positive_limit("timeout", Some(-1.0)).unwrap_err().to_string().contains("`timeout` is -1"));
        assert_eq!(whole_limit("x", Some(0.5)), Ok(Some(1)));
        assert_eq!(turn_limit(Some(1e12)), Ok(Some(u32::MAX)));
        assert_eq!(duration_from_secs(f64::MAX), Duration::from_secs(1_000_000_000));
        assert_eq!(wait_timeout("timeout", None), (300.0, None));
        assert_eq!(wait_timeout("timeout", Some(0.0)), (300.0, None));
        assert_eq!(wait_timeout("timeout", Some(7.5)), (7.5, None));
        assert!(matches!(wait_timeout("timeout", Some(-3.0)), (300.0, Some(note)) if note.contains("-3")));
        assert!(matches!(wait_timeout("timeout", Some(9e9)), (3600.0, Some(note)) if note.contains("3600")));
    }
}
