//! The keywords of a schema whose type is known: values, properties, items and bounds.

use serde_json::{Map, Value, json};

use super::words::{bounded, is_short_key, note, values};
use super::{SILENT, SchemaAdapter};
use crate::model::wire::schema::SchemaAdaptError;

impl SchemaAdapter<'_> {
    /// `enum` and `const`.
    pub(super) fn values(
        &mut self,
        map: &Map<String, Value>,
        kinds: &mut Vec<String>,
        out: &mut Map<String, Value>,
        notes: &mut Vec<String>,
    ) {
        if self.dialect.plain_values
            && let Some(all) = values(map)
            && all.iter().any(|value| value.is_array() || value.is_object())
        {
            return notes.push(note("one of", &json!(all)));
        }
        let listed = match (map.get("enum"), map.get("const")) {
            (_, Some(only)) if !self.knows("const") => Some(vec![only.clone()]),
            (_, Some(only)) => {
                out.insert("const".to_owned(), only.clone());
                None
            }
            (Some(Value::Array(all)), None) if !all.is_empty() => Some(all.clone()),
            _ => None,
        };
        let Some(mut listed) = listed else { return };
        if self.dialect.explicit_types {
            let whole = Value::Array(listed.clone());
            // The dialect supports neither null nor the empty string here.
            listed.retain(|value| !value.is_null() && value.as_str() != Some(""));
            let (texts, numbers) = (listed.iter().all(Value::is_string), listed.iter().all(Value::is_number));
            if listed.is_empty() || !(texts || numbers) {
                return notes.push(note("one of", &whole));
            }
            if whole.as_array().is_some_and(|all| all.len() != listed.len()) {
                self.narrowed = true;
                notes.push(note("one of", &whole));
            }
            kinds.retain(|kind| kind != "null");
            if kinds.is_empty() {
                kinds.push(if texts { "string" } else { "number" }.to_owned());
            }
        }
        out.insert("enum".to_owned(), Value::Array(listed));
    }

    pub(super) fn properties(
        &mut self,
        map: &Map<String, Value>,
        out: &mut Map<String, Value>,
        notes: &mut Vec<String>,
        depth: usize,
    ) -> Result<(), SchemaAdaptError> {
        let none = Map::new();
        let named = map.get("properties").and_then(Value::as_object).unwrap_or(&none);
        let listed = map.get("required").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let mut required: Vec<&str> = Vec::new();
        // In draft 3, each property said whether it is required.
        let old = named.iter().filter(|(_, schema)| schema.get("required") == Some(&Value::Bool(true)));
        for name in listed.iter().filter_map(Value::as_str).chain(old.map(|(name, _)| name.as_str())) {
            if !required.contains(&name) {
                required.push(name);
            }
        }
        let anything = json!({});
        let mut made = Map::new();
        let unnamed = required.iter().filter(|name| !named.contains_key(**name));
        let unnamed: Vec<_> = unnamed.map(|name| ((*name).to_owned(), &anything)).collect();
        for (name, schema) in named.iter().map(|(name, schema)| (name.clone(), schema)).chain(unnamed) {
            if self.dialect.short_keys && !is_short_key(&name) {
                if required.contains(&name.as_str()) {
                    return Err(SchemaAdaptError(format!(
                        "the provider does not accept the argument name '{name}'"
                    )));
                }
                self.narrowed = true;
                notes.push(format!("(an argument '{name}' is left out here)"));
                continue;
            }
            made.insert(name, Value::Object(self.schema(schema, depth + 1)?));
        }
        self.narrowed |=
            self.dialect.all_required && made.keys().any(|name| !required.contains(&name.as_str()));
        match map.get("additionalProperties") {
            _ if self.dialect.closed_objects => {
                let open = !matches!(map.get("additionalProperties"), None | Some(Value::Bool(false)));
                self.narrowed |= open || (made.is_empty() && map.get("additionalProperties").is_none());
                out.insert("additionalProperties".to_owned(), json!(false));
            }
            Some(Value::Bool(open)) => {
                out.insert("additionalProperties".to_owned(), json!(open));
            }
            Some(schema @ Value::Object(_)) => {
                let made = self.schema(schema, depth + 1)?;
                out.insert("additionalProperties".to_owned(), Value::Object(made));
            }
            _ => {}
        }
        if !(self.dialect.explicit_types && made.is_empty()) {
            out.insert("properties".to_owned(), Value::Object(made));
        }
        // A dialect that requires every property also requires an empty list.
        if !required.is_empty() || self.dialect.all_required {
            out.insert("required".to_owned(), json!(required));
        }
        Ok(())
    }

    pub(super) fn items(
        &mut self,
        map: &Map<String, Value>,
        notes: &mut Vec<String>,
        depth: usize,
    ) -> Result<Map<String, Value>, SchemaAdaptError> {
        let tuple = map.get("prefixItems").or_else(|| map.get("items").filter(|items| items.is_array()));
        let Some(Value::Array(places)) = tuple else {
            return self.schema(map.get("items").unwrap_or(&Value::Null), depth + 1);
        };
        notes.push(format!("(items in this order: {})", bounded(&Value::Array(places.clone()).to_string())));
        let mut kinds: Vec<Value> = Vec::new();
        let rest = map.get("items").filter(|items| items.is_object());
        for place in places.iter().chain(rest) {
            if !kinds.contains(place) {
                kinds.push(place.clone());
            }
        }
        self.schema(&json!({ "anyOf": kinds }), depth + 1)
    }

    /// Converts keywords that bound a value, if their values are valid.
    pub(super) fn bounds(
        &self,
        map: &Map<String, Value>,
        out: &mut Map<String, Value>,
        notes: &mut Vec<String>,
    ) {
        for (keyword, value) in map {
            let (keyword, mut value) = (keyword.as_str(), value);
            // In draft 4, these were booleans that excluded the bound beside them from the range.
            let beside = match keyword {
                "exclusiveMinimum" if value == &Value::Bool(true) => map.get("minimum"),
                "exclusiveMaximum" if value == &Value::Bool(true) => map.get("maximum"),
                "minimum" if map.get("exclusiveMinimum") == Some(&Value::Bool(true)) => continue,
                "maximum" if map.get("exclusiveMaximum") == Some(&Value::Bool(true)) => continue,
                _ => None,
            };
            value = beside.unwrap_or(value);
            let right = match keyword {
                "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" => {
                    value.is_number()
                }
                "minLength" | "maxLength" | "minItems" | "maxItems" => value.is_u64(),
                "pattern" => value.is_string(),
                "format" => value.as_str().is_some_and(|format| self.dialect.formats.contains(&format)),
                "default" => true,
                _ => continue,
            };
            let few = self.dialect.closed_objects && !self.dialect.all_required && keyword == "minItems";
            if few && value.as_u64().is_some_and(|least| least > 1) {
                notes.push(note(keyword, value));
                out.insert(keyword.to_owned(), json!(1));
            } else if right && self.knows(keyword) {
                out.insert(keyword.to_owned(), value.clone());
            } else if value.is_number() && matches!(keyword, "exclusiveMinimum" | "exclusiveMaximum") {
                notes.push(note(keyword, value));
            }
        }
    }

    /// Describes the keywords that were not converted.
    pub(super) fn leftovers(&self, map: &Map<String, Value>, taken: &[&str]) -> Vec<String> {
        let handled = [
            "type",
            "description",
            "properties",
            "required",
            "items",
            "prefixItems",
            "enum",
            "const",
            "additionalProperties",
            "exclusiveMinimum",
            "exclusiveMaximum",
            "anyOf",
            "oneOf",
            "allOf",
            "$ref",
        ];
        let left = map.iter().filter(|(keyword, value)| {
            let keyword = keyword.as_str();
            let bound = matches!(keyword, "minimum" | "maximum")
                && map.get(if keyword == "minimum" { "exclusiveMinimum" } else { "exclusiveMaximum" })
                    == Some(&Value::Bool(true));
            !(handled.contains(&keyword)
                || taken.contains(&keyword)
                || SILENT.contains(&keyword)
                || keyword.starts_with("x-")
                || value.is_null()
                || bound)
        });
        left.map(|(keyword, value)| note(keyword, value)).collect()
    }
}
