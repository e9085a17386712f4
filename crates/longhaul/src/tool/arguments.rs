//! Canonical arguments: what models write, converted to the tool's own names and types.
//!
//! A call has exactly one reading. The tool parses the arguments with serde, and the parsed value is
//! serialized back to JSON. Rules check that JSON, people see it, and the tool gets it. So an alias, a list
//! written as a string or a duplicate key cannot mean one thing to a permission rule and another to the tool.

use std::fmt;

use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Number, Value};

use super::ToolError;

/// Other names of arguments: `(other, own)`.
pub type ArgumentAliases = &'static [(&'static str, &'static str)];

/// Parses arguments as models write them: an empty text or `null` is an empty object. The error is written
/// for the model.
pub fn parse_arguments<T: DeserializeOwned>(arguments: &str) -> Result<T, ToolError> {
    parse_arguments_with_aliases(arguments, &[])
}

/// Like [`parse_arguments`], for arguments that also have other names.
pub fn parse_arguments_with_aliases<T: DeserializeOwned>(
    arguments: &str,
    aliases: ArgumentAliases,
) -> Result<T, ToolError> {
    match fields(arguments, aliases)? {
        Some(fields) => serde_json::from_value(Value::Object(fields)).map_err(wrong),
        None => serde_json::from_str(text(arguments)).map_err(wrong),
    }
}

/// The arguments as a tool that takes `T` reads them, as JSON. Unknown fields are left out, and so are
/// optional fields that were not given.
pub fn canonical_arguments<T: DeserializeOwned + Serialize>(
    arguments: &str,
    aliases: ArgumentAliases,
) -> Result<String, ToolError> {
    let given = fields(arguments, aliases)?.unwrap_or_default();
    let read: T = parse_arguments_with_aliases(arguments, aliases)?;
    let Ok(Value::Object(mut read)) = serde_json::to_value(&read) else {
        return Ok(Value::Object(given).to_string());
    };
    let says_nothing = |value: &Value| {
        matches!(value, Value::Null | Value::Bool(false)) || *value == Value::Array(Vec::new())
    };
    read.retain(|name, value| given.get(name).is_some_and(|given| !given.is_null()) || !says_nothing(value));
    let mut read = Value::Object(read);
    whole_numbers(&mut read);
    Ok(read.to_string())
}

fn text(arguments: &str) -> &str {
    match arguments.trim() {
        "" | "null" => "{}",
        text => text,
    }
}

fn wrong(error: serde_json::Error) -> ToolError {
    ToolError::Retry(format!(
        "the arguments are not what this tool takes: {error}. Call it again with valid JSON."
    ))
}

/// The fields of an object under their own names; `None` if it is not an object.
fn fields(arguments: &str, aliases: ArgumentAliases) -> Result<Option<Map<String, Value>>, ToolError> {
    let text = text(arguments);
    if !text.starts_with('{') {
        return Ok(None);
    }
    let RawFields(listed) = serde_json::from_str(text).map_err(wrong)?;
    let mut fields = Map::new();
    for (name, value) in listed {
        let own = aliases.iter().find(|(other, _)| *other == name).map(|(_, own)| (*own).to_owned());
        let own = own.unwrap_or_else(|| name.clone());
        if fields.contains_key(&own) {
            let also = if own == name { String::new() } else { format!(" (`{name}` is the same)") };
            return Err(ToolError::Retry(format!("`{own}` is given twice{also}: give it once")));
        }
        fields.insert(own, value);
    }
    Ok(Some(fields))
}

/// The fields of an object in the order written, duplicates included.
struct RawFields(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for RawFields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = RawFields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawFields, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(RawFields(fields))
            }
        }
        deserializer.deserialize_map(Each)
    }
}

/// Turns `30.0` into `30`: seconds and line numbers are parsed as floats, but a rule says `timeout=30`.
fn whole_numbers(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Some(n) = number.as_f64().filter(|n| number.is_f64() && n.fract() == 0.0 && n.abs() < 1e15)
            {
                *number = Number::from(n as i64);
            }
        }
        Value::Array(all) => all.iter_mut().for_each(whole_numbers),
        Value::Object(fields) => fields.values_mut().for_each(whole_numbers),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize, Serialize, PartialEq, Debug)]
    struct TestCommandArgs {
        cmd: String,
        #[serde(default)]
        force: bool,
        timeout: Option<f64>,
    }

    const ALIASES: ArgumentAliases = &[("command", "cmd")];

    fn of(arguments: &str) -> Result<String, ToolError> {
        canonical_arguments::<TestCommandArgs>(arguments, ALIASES)
    }

    #[test]
    fn a_call_is_seen_as_the_tool_reads_it() {
        for (given, seen) in [
            (r#"{"cmd":"ls"}"#, r#"{"cmd":"ls"}"#),
            (r#" {"command":"ls"} "#, r#"{"cmd":"ls"}"#),
            (r#"{"timeout":30,"command":"ls"}"#, r#"{"cmd":"ls","timeout":30}"#),
            (r#"{"cmd":"ls","timeout":null,"other":1}"#, r#"{"cmd":"ls"}"#),
            (r#"{"cmd":"ls","force":false}"#, r#"{"cmd":"ls","force":false}"#),
            (r#"{"\u0063md":"ls","timeout":0.5}"#, r#"{"cmd":"ls","timeout":0.5}"#),
        ] {
            assert_eq!(of(given).as_deref(), Ok(seen), "{given}");
            assert_eq!(of(seen).as_deref(), Ok(seen), "{seen} is its own form");
            assert_eq!(
                parse_arguments_with_aliases::<TestCommandArgs>(given, ALIASES),
                parse_arguments::<TestCommandArgs>(seen),
                "{given}"
            );
        }
    }

    #[test]
    fn a_call_that_says_two_things_is_refused() {
        for given in [
            r#"{"cmd":"ls","command":"sudo ls"}"#,
            r#"{"command":"ls","cmd":"sudo ls"}"#,
            r#"{"cmd":"ls","cmd":"sudo ls"}"#,
            r#"{"command":"ls","command":"sudo ls"}"#,
            r#"{"cmd":"ls","\u0063md":"sudo ls"}"#,
        ] {
            let error = of(given).unwrap_err().to_string();
            assert!(error.contains("`cmd` is given twice"), "{given}: {error}");
            assert!(parse_arguments_with_aliases::<TestCommandArgs>(given, ALIASES).is_err(), "{given}");
        }
        for given in
            [r#"{"cmd":["sudo","ls"]}"#, r#"{"cmd":7}"#, r#"{"CMD":"ls"}"#, "[\"ls\"]", "\"ls\"", "{", "7"]
        {
            assert!(matches!(of(given), Err(ToolError::Retry(_))), "{given}");
        }
    }
}
