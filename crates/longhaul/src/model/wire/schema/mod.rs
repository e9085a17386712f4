//! Adapts JSON schemas to what a provider accepts: one function for all providers, with a [`SchemaDialect`]
//! for each.
//!
//! References are resolved, `allOf` is merged, alternatives beside properties become one object, types become
//! explicit, and unsupported keywords move into the description. The result may be wider than the original,
//! never narrower: whoever receives the arguments or the answer validates them against the original.

mod alternatives;
mod limits;
mod merge;
mod parts;
mod words;

use serde_json::{Map, Value, json};

pub(crate) use super::schema_dialect::SchemaDialect;
use words::{describe, inferred, kind_of, note, said, types, values};

/// The maximum number of subschemas after references are resolved.
const LARGEST: usize = 5_000;
/// The maximum depth.
const DEEPEST: usize = 24;

/// Keywords that do not constrain values.
const SILENT: [&str; 17] = [
    "$schema",
    "$id",
    "id",
    "$anchor",
    "$comment",
    "$vocabulary",
    "$dynamicAnchor",
    "$defs",
    "definitions",
    "readOnly",
    "writeOnly",
    "deprecated",
    "title",
    "nullable",
    "propertyOrdering",
    "additionalItems",
    "unevaluatedProperties",
];

/// A schema that a provider accepts.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AdaptedSchema {
    pub(crate) schema: Value,
    /// The constraints on the top level that the schema no longer expresses, in words.
    pub(crate) notes: Vec<String>,
}

/// Why a tool's schema cannot be sent to a provider.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct SchemaAdaptError(String);

/// Adapts the schema of a tool's arguments, which is always an object. The error says why that is impossible.
pub(crate) fn adapt_arguments(
    schema: &Value,
    dialect: &SchemaDialect,
) -> Result<AdaptedSchema, SchemaAdaptError> {
    let mut walk = SchemaAdapter::new(schema, dialect);
    let map = match schema {
        Value::Object(map) => map.clone(),
        _ => Map::new(),
    };
    let mut whole = walk.object_root(map)?;
    let notes = whole.remove("description").and_then(|said| match said {
        Value::String(said) => Some(said),
        _ => None,
    });
    Ok(AdaptedSchema { schema: Value::Object(whole), notes: notes.into_iter().collect() })
}

/// Adapts the schema of an answer. `None` if the provider cannot enforce it without refusing answers that the
/// original allows.
pub(crate) fn adapt_output(schema: &Value, dialect: &SchemaDialect) -> Option<Value> {
    let mut walk = SchemaAdapter::new(schema, dialect);
    let whole = walk.schema(schema, 0).ok()?;
    let is_object = whole.get("type").is_some_and(|kind| kind == "object");
    let whole = Value::Object(whole);
    let fits = limits::fits(&whole, &dialect.limits);
    (!walk.narrowed && fits && (is_object || !dialect.object_root)).then_some(whole)
}

struct SchemaAdapter<'a> {
    root: &'a Value,
    dialect: &'a SchemaDialect,
    /// The references that are being resolved.
    open: Vec<String>,
    parts: usize,
    /// Whether the result forbids something that the original allows.
    narrowed: bool,
}

impl<'a> SchemaAdapter<'a> {
    fn new(root: &'a Value, dialect: &'a SchemaDialect) -> Self {
        SchemaAdapter { root, dialect, open: Vec::new(), parts: 0, narrowed: false }
    }

    fn knows(&self, keyword: &str) -> bool {
        self.dialect.keywords.split_whitespace().any(|known| known == keyword)
    }

    /// The schema of the object that holds the arguments.
    fn object_root(&mut self, map: Map<String, Value>) -> Result<Map<String, Value>, SchemaAdaptError> {
        let (mut map, mut notes) = (self.flat(map)?, Vec::new());
        self.open.clear();
        let kinds = types(&map, &mut notes);
        if !kinds.is_empty() && !kinds.iter().any(|kind| kind == "object") {
            return Err(SchemaAdaptError(format!(
                "its arguments are of type {}, not an object",
                kinds.join(" or ")
            )));
        }
        map.insert("type".to_owned(), json!("object"));
        self.fold_alternatives(&mut map, &mut notes)?;
        for keyword in ["enum", "const", "not"] {
            if let Some(value) = map.remove(keyword) {
                notes.push(note(keyword, &value));
            }
        }
        map.remove("description");
        let mut whole = self.typed(map, vec!["object".to_owned()], notes, 0)?;
        whole.entry("properties").or_insert_with(|| json!({}));
        Ok(whole)
    }

    fn schema(&mut self, schema: &Value, depth: usize) -> Result<Map<String, Value>, SchemaAdaptError> {
        self.parts += 1;
        if self.parts > LARGEST {
            return Err(SchemaAdaptError(format!(
                "its schema has more than {LARGEST} parts once its references are resolved"
            )));
        }
        let map = match schema {
            Value::Object(map) if depth <= DEEPEST => map.clone(),
            Value::Object(_) => {
                self.narrowed |= self.dialect.closed_objects;
                return Ok(self.anything(&["nested too deeply to describe".to_owned()]));
            }
            _ => Map::new(),
        };
        let opened = self.open.len();
        let made = self.whole(map, depth);
        self.open.truncate(opened);
        made
    }

    fn whole(
        &mut self,
        map: Map<String, Value>,
        depth: usize,
    ) -> Result<Map<String, Value>, SchemaAdaptError> {
        let mut map = self.flat(map)?;
        let mut notes = Vec::new();
        if map.contains_key("properties") || map.get("type").is_some_and(|kind| kind == "object") {
            self.fold_alternatives(&mut map, &mut notes)?;
        }
        if let Some(alternatives) = self.alternatives(&mut map, &mut notes) {
            return self.any_of(map, alternatives, notes, depth);
        }
        let mut kinds = types(&map, &mut notes);
        if map.get("nullable") == Some(&Value::Bool(true)) && !kinds.is_empty() {
            kinds.push("null".to_owned());
        }
        if kinds.is_empty() {
            kinds.extend(inferred(&map).into_iter().map(str::to_owned));
        }
        if kinds.is_empty() {
            let mut notes = said(&map).into_iter().chain(notes).collect::<Vec<_>>();
            notes.extend(self.leftovers(&map, &[]));
            return Ok(self.anything(&notes));
        }
        if self.dialect.explicit_types && is_several(&map, &kinds) {
            let mut described = Map::new();
            described.extend(map.get("description").map(|said| ("description".to_owned(), said.clone())));
            return self.any_of(described, one_by_one(&map, &kinds), notes, depth);
        }
        self.typed(map, kinds, notes, depth)
    }

    /// Converts a schema whose types are known.
    fn typed(
        &mut self,
        map: Map<String, Value>,
        kinds: Vec<String>,
        mut notes: Vec<String>,
        depth: usize,
    ) -> Result<Map<String, Value>, SchemaAdaptError> {
        let is = |kind: &str| kinds.iter().any(|one| one == kind);
        let mut out = Map::new();
        let mut kinds_said = kinds.clone();
        self.values(&map, &mut kinds_said, &mut out, &mut notes);
        if self.dialect.explicit_types && kinds_said.is_empty() {
            return Ok(self.anything(&said(&map).into_iter().chain(notes).collect::<Vec<_>>()));
        }
        match kinds_said.as_slice() {
            [] => {}
            [one] => {
                out.insert("type".to_owned(), json!(one));
            }
            several => {
                out.insert("type".to_owned(), json!(several));
            }
        }
        if is("object") {
            self.properties(&map, &mut out, &mut notes, depth)?;
        }
        if is("array") {
            out.insert("items".to_owned(), Value::Object(self.items(&map, &mut notes, depth)?));
        }
        self.bounds(&map, &mut out, &mut notes);
        notes.extend(self.leftovers(&map, &out.keys().map(String::as_str).collect::<Vec<_>>()));
        if let Some(title) = map.get("title").filter(|title| title.is_string() && self.knows("title")) {
            out.insert("title".to_owned(), title.clone());
        }
        describe(&mut out, said(&map), &notes);
        Ok(out)
    }

    /// A schema that allows everything.
    fn anything(&mut self, notes: &[String]) -> Map<String, Value> {
        let mut made = Map::new();
        self.narrowed |= self.dialect.closed_objects;
        if self.dialect.explicit_types {
            let kinds = json!([
                {"type": "string"}, {"type": "number"}, {"type": "boolean"}, {"type": "object"},
                {"type": "array", "items": {"type": "string"}},
            ]);
            made.insert("anyOf".to_owned(), kinds);
            if !notes.is_empty() {
                made["anyOf"][0]["description"] = json!(notes.join(" "));
            }
            return made;
        }
        describe(&mut made, None, notes);
        made
    }
}

/// Whether a schema must be split so that each part has one type and null has no other values beside it.
fn is_several(map: &Map<String, Value>, kinds: &[String]) -> bool {
    kinds.len() > 2 || kinds.len() == 2 && (values(map).is_some() || !kinds.iter().any(|kind| kind == "null"))
}

/// Splits a schema by type, each with the values of that type.
fn one_by_one(map: &Map<String, Value>, kinds: &[String]) -> Vec<Value> {
    let fits = |value: &Value, kind: &str| kind_of(value) == kind || kind == "number" && value.is_number();
    let each = kinds.iter().filter_map(|kind| {
        let mut one = map.clone();
        one.insert("type".to_owned(), json!(kind));
        one.remove("description");
        if let Some(values) = values(map) {
            let own: Vec<&Value> = values.into_iter().filter(|value| fits(value, kind)).collect();
            if own.is_empty() {
                return None;
            }
            one.remove("const");
            one.insert("enum".to_owned(), json!(own));
        }
        Some(if kind == "null" { json!({"type": "null"}) } else { Value::Object(one) })
    });
    let each: Vec<Value> = each.collect();
    // No value has an allowed type: only the description is left.
    if each.is_empty() { vec![json!({})] } else { each }
}

#[cfg(test)]
mod tests;
