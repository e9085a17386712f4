//! Reads an OpenAPI document and resolves its references.

use serde_json::{Map, Value};

use crate::toolset::http_client::RemoteToolError;

/// How deep references in a schema are resolved, and how many nodes are kept per operation.
const DEEPEST: usize = 12;
const MOST_PARTS: usize = 2_000;

/// The schema keywords that models see. The others matter only to machines.
const SCHEMA_KEYWORDS: [&str; 25] = [
    "type",
    "description",
    "enum",
    "const",
    "default",
    "format",
    "pattern",
    "properties",
    "required",
    "items",
    "additionalProperties",
    "anyOf",
    "oneOf",
    "allOf",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "uniqueItems",
    "prefixItems",
];

/// A document of OpenAPI version 3.
pub(super) struct OpenApiDocument(Value);

impl OpenApiDocument {
    /// Parses JSON or YAML.
    pub(super) fn parse(text: &str) -> Result<OpenApiDocument, RemoteToolError> {
        let value: Value = match text.trim_start().starts_with('{') {
            true => serde_json::from_str(text)
                .map_err(|error| RemoteToolError(format!("it is not valid JSON: {error}")))?,
            false => yaml(text)?,
        };
        match (value["openapi"].as_str(), value["swagger"].as_str()) {
            (Some(version), _) if version.starts_with("3.") => Ok(OpenApiDocument(value)),
            (Some(version), _) | (None, Some(version)) => {
                Err(RemoteToolError(format!("it is version {version}; only OpenAPI 3 is supported")))
            }
            (None, None) => {
                Err(RemoteToolError("it is not an OpenAPI document: it has no `openapi: 3.…`".to_owned()))
            }
        }
    }

    pub(super) fn root(&self) -> &Value {
        &self.0
    }

    /// Returns the value itself, or the one that it refers to.
    pub(super) fn resolve_ref<'a>(&'a self, mut value: &'a Value) -> Result<&'a Value, RemoteToolError> {
        for _ in 0..DEEPEST {
            let Some(reference) = value["$ref"].as_str() else { return Ok(value) };
            value = self.at(reference)?;
        }
        Err(RemoteToolError("its references are circular".to_owned()))
    }

    fn at(&self, reference: &str) -> Result<&Value, RemoteToolError> {
        let Some(pointer) = reference.strip_prefix('#') else {
            return Err(RemoteToolError(format!(
                "'{reference}' refers to another file, which is not supported"
            )));
        };
        // The reference is part of a URL, so characters may be escaped.
        let pointer = pointer.replace("%7B", "{").replace("%7D", "}").replace("%20", " ");
        self.0.pointer(&pointer).ok_or_else(|| RemoteToolError(format!("'{reference}' refers to nothing")))
    }

    /// Returns a schema with all references replaced by their targets. Where it is recursive or too large,
    /// the schema accepts anything.
    pub(super) fn inline_refs(&self, schema: &Value) -> Value {
        let mut parts = MOST_PARTS;
        self.inline(schema, &mut Vec::new(), &mut parts)
    }

    fn inline<'a>(&'a self, schema: &'a Value, above: &mut Vec<&'a str>, parts: &mut usize) -> Value {
        if *parts == 0 || above.len() > DEEPEST {
            return Value::Object(Map::new());
        }
        *parts -= 1;
        if let Some(reference) = schema["$ref"].as_str() {
            let found = if above.contains(&reference) { None } else { self.at(reference).ok() };
            let Some(found) = found else { return Value::Object(Map::new()) };
            above.push(reference);
            let inlined = self.inline(found, above, parts);
            above.pop();
            return inlined;
        }
        let Some(object) = schema.as_object() else { return schema.clone() };
        // Count this as one level, whether or not the schema has a name.
        above.push("");
        let kept = object.iter().filter(|(key, _)| SCHEMA_KEYWORDS.contains(&key.as_str()));
        let inlined = kept.map(|(key, value)| {
            let value = match (key.as_str(), value) {
                ("properties", Value::Object(properties)) => {
                    let readable = properties.iter().filter(|(_, value)| value["readOnly"] != true);
                    readable.map(|(name, value)| (name.clone(), self.inline(value, above, parts))).collect()
                }
                ("items" | "additionalProperties", value @ Value::Object(_)) => {
                    self.inline(value, above, parts)
                }
                ("anyOf" | "oneOf" | "allOf" | "prefixItems", Value::Array(list)) => {
                    list.iter().map(|value| self.inline(value, above, parts)).collect()
                }
                (_, value) => value.clone(),
            };
            (key.clone(), value)
        });
        let mut inlined: Map<String, Value> = inlined.collect();
        above.pop();
        tidy(&mut inlined);
        Value::Object(inlined)
    }
}

/// Simplifies a schema: merges the parts of an `allOf`, and drops required names that have no property.
fn tidy(schema: &mut Map<String, Value>) {
    if let Some(Value::Array(all)) = schema.get("allOf")
        && all
            .iter()
            .all(|part| part["properties"].is_object() || part.as_object().is_some_and(Map::is_empty))
    {
        let Some(Value::Array(all)) = schema.remove("allOf") else { return };
        for part in all {
            merge(schema, part);
        }
    }
    let properties = schema.get("properties").and_then(Value::as_object).cloned();
    if let (Some(properties), Some(Value::Array(required))) = (properties, schema.get_mut("required")) {
        required.retain(|name| name.as_str().is_some_and(|name| properties.contains_key(name)));
        if required.is_empty() {
            schema.remove("required");
        }
    }
}

fn merge(schema: &mut Map<String, Value>, part: Value) {
    let Value::Object(part) = part else { return };
    for (key, value) in part {
        match (key.as_str(), schema.get_mut(&key), value) {
            ("properties", Some(Value::Object(there)), Value::Object(more)) => there.extend(more),
            ("required", Some(Value::Array(there)), Value::Array(more)) => there.extend(more),
            (_, Some(_), _) => {}
            (_, None, value) => drop(schema.insert(key, value)),
        }
    }
}

fn yaml(text: &str) -> Result<Value, RemoteToolError> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_nodes: 2_000_000,
            max_events: 6_000_000,
            max_depth: 100,
            max_documents: 1,
            max_aliases: 10_000,
            max_anchors: 10_000,
            max_merge_keys: 10_000,
            max_recorded_anchor_events: 200_000,
            max_total_scalar_bytes: super::LARGEST,
        },
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options)
        .map_err(|error| RemoteToolError(format!("it is not valid YAML: {error}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_and_yaml_are_read_and_other_things_named() {
        let yaml =
            "openapi: 3.1.0\npaths:\n  /x:\n    get:\n      responses:\n        200: {description: fine}\n";
        let document = OpenApiDocument::parse(yaml).unwrap();
        assert_eq!(document.root()["paths"]["/x"]["get"]["responses"]["200"]["description"], "fine");
        assert!(OpenApiDocument::parse(r#"{"openapi": "3.0.3", "paths": {}}"#).is_ok());
        for (text, says) in [
            ("{\"openapi\": ", "not valid JSON"),
            ("a: [", "not valid YAML"),
            ("swagger: '2.0'", "version 2.0; only OpenAPI 3"),
            ("<html>", "not an OpenAPI document"),
            ("[]", "not an OpenAPI document"),
        ] {
            let error = OpenApiDocument::parse(text).err().unwrap();
            assert!(error.to_string().contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn references_are_followed_and_cycles_end() {
        let document = OpenApiDocument::parse(
            &json!({"openapi": "3.0.0", "components": {"schemas": {
                "Pet": {"type": "object", "required": ["id", "name"], "xml": {"name": "pet"}, "properties": {
                    "id": {"type": "integer", "readOnly": true}, "name": {"type": "string", "example": "Rex"},
                    "owner": {"$ref": "#/components/schemas/Owner"}}},
                "Owner": {"type": "object", "properties": {"pets": {"type": "array", "items": {"$ref": "#/components/schemas/Pet"}}}},
                "Puppy": {"allOf": [{"$ref": "#/components/schemas/Pet"}, {"type": "object", "required": ["age"],
                    "properties": {"age": {"type": "integer"}}}]},
                "Loop": {"$ref": "#/components/schemas/Loop"}
            }}})
            .to_string(),
        )
        .unwrap();
        let schema =
            |name: &str| document.inline_refs(&json!({"$ref": format!("#/components/schemas/{name}")}));
        assert_eq!(
            schema("Pet"),
            json!({"type": "object", "required": ["name"], "properties": {"name": {"type": "string"},
                "owner": {"type": "object", "properties": {"pets": {"type": "array", "items": {}}}}}})
        );
        let puppy = schema("Puppy");
        assert_eq!(puppy["required"], json!(["name", "age"]));
        assert_eq!(puppy["properties"]["age"], json!({"type": "integer"}));
        assert_eq!(schema("Loop"), json!({}));
        assert_eq!(schema("Missing"), json!({}));
        assert_eq!(document.inline_refs(&json!({"$ref": "other.yaml#/X"})), json!({}));
        let following =
            |reference: &str| document.resolve_ref(&json!({"$ref": reference})).unwrap_err().to_string();
        assert!(following("#/components/schemas/Loop").contains("circular"));
        assert!(following("#/nope").contains("refers to nothing"));
        assert!(following("other.yaml").contains("another file"));
    }

    #[test]
    fn a_schema_that_doubles_at_each_step_stays_small() {
        let mut schemas = Map::new();
        for n in 0..60 {
            let next = json!({"$ref": format!("#/components/schemas/S{}", n + 1)});
            schemas.insert(format!("S{n}"), json!({"properties": {"a": next, "b": next, "c": next}}));
        }
        let text = json!({"openapi": "3.0.0", "components": {"schemas": schemas}}).to_string();
        let document = OpenApiDocument::parse(&text).unwrap();
        let inlined = document.inline_refs(&json!({"$ref": "#/components/schemas/S0"})).to_string();
        assert!(inlined.len() < 200_000, "{}", inlined.len());
    }
}
