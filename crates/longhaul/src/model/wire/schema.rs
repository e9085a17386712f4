//! JSON schemas brought to what a provider takes: one function for all of them, and a [`Dialect`] for each.
//!
//! References are resolved, `allOf` is merged, alternatives beside properties become one object, types are said, and keywords
//! that the provider does not know are said in the description instead. Only what is left of a schema may be wider than it
//! was, never narrower: whoever gets the arguments or the answer holds them against the schema itself.

use serde_json::{Map, Value, json};

pub(crate) use super::dialect::Dialect;
use super::merge_schemas::{either, merge};

/// A schema may have so many parts once its references are resolved.
const LARGEST: usize = 5_000;
/// No schema is looked into deeper than this.
const DEEPEST: usize = 24;
/// Of a keyword that is said in words, so many bytes are said.
const LONGEST_NOTE: usize = 240;

const TYPES: [&str; 7] = ["string", "number", "integer", "boolean", "object", "array", "null"];

/// Keywords that say nothing about values.
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

/// A schema that a provider takes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Adapted {
    /// The schema.
    pub(crate) schema: Value,
    /// What it does not say any more about the whole, in words.
    pub(crate) notes: Vec<String>,
}

/// The schema of a tool's arguments as a provider takes it: always that of an object. An error says why it cannot be said.
pub(crate) fn arguments(schema: &Value, dialect: &Dialect) -> Result<Adapted, String> {
    let mut walk = Walk::new(schema, dialect);
    let map = match schema {
        Value::Object(map) => map.clone(),
        _ => Map::new(),
    };
    let mut whole = walk.object_root(map)?;
    let notes = whole.remove("description").and_then(|said| match said {
        Value::String(said) => Some(said),
        _ => None,
    });
    Ok(Adapted { schema: Value::Object(whole), notes: notes.into_iter().collect() })
}

/// The schema of an answer as a provider can hold a model to it; nothing where it cannot, without refusing answers that the
/// schema allows.
pub(crate) fn answer(schema: &Value, dialect: &Dialect) -> Option<Value> {
    let mut walk = Walk::new(schema, dialect);
    let whole = walk.schema(schema, 0).ok()?;
    let is_object = whole.get("type").is_some_and(|kind| kind == "object");
    (!walk.narrowed && (is_object || !dialect.object_root)).then_some(Value::Object(whole))
}

struct Walk<'a> {
    root: &'a Value,
    dialect: &'a Dialect,
    /// The references that are being resolved.
    open: Vec<String>,
    parts: usize,
    /// Whether something that the schema allows is not allowed any more.
    narrowed: bool,
}

impl<'a> Walk<'a> {
    fn new(root: &'a Value, dialect: &'a Dialect) -> Self {
        Walk { root, dialect, open: Vec::new(), parts: 0, narrowed: false }
    }

    fn knows(&self, keyword: &str) -> bool {
        self.dialect.keywords.contains(&keyword)
    }

    /// The schema of an object that arguments are in.
    fn object_root(&mut self, map: Map<String, Value>) -> Result<Map<String, Value>, String> {
        let (mut map, mut notes) = (self.flat(map)?, Vec::new());
        self.open.clear();
        let kinds = types(&map, &mut notes);
        if !kinds.is_empty() && !kinds.iter().any(|kind| kind == "object") {
            return Err(format!("its arguments are of type {}, not an object", kinds.join(" or ")));
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

    fn schema(&mut self, schema: &Value, depth: usize) -> Result<Map<String, Value>, String> {
        self.parts += 1;
        if self.parts > LARGEST {
            return Err(format!("its schema has more than {LARGEST} parts once its references are resolved"));
        }
        let map = match schema {
            Value::Object(map) if depth <= DEEPEST => map.clone(),
            Value::Object(_) => {
                self.narrowed |= self.dialect.closed;
                return Ok(self.anything(&["nested deeper than can be told".to_owned()]));
            }
            _ => Map::new(),
        };
        let opened = self.open.len();
        let made = self.whole(map, depth);
        self.open.truncate(opened);
        made
    }

    fn whole(&mut self, map: Map<String, Value>, depth: usize) -> Result<Map<String, Value>, String> {
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
            kinds.extend(inferred(&map).map(str::to_owned));
        }
        if kinds.is_empty() && !["enum", "const"].iter().any(|key| map.contains_key(*key)) {
            let mut notes = said(&map).into_iter().chain(notes).collect::<Vec<_>>();
            notes.extend(self.leftovers(&map, &[]));
            return Ok(self.anything(&notes));
        }
        let real = kinds.iter().filter(|kind| *kind != "null").count();
        if self.dialect.plain && real > 1 {
            let each = kinds.iter().filter(|kind| *kind != "null").map(|kind| {
                let mut one = map.clone();
                one.insert("type".to_owned(), json!(kind));
                one.remove("description");
                Value::Object(one)
            });
            let mut head = Map::new();
            head.extend(map.get("description").map(|said| ("description".to_owned(), said.clone())));
            return self.any_of(head, each.collect(), notes, depth);
        }
        self.typed(map, kinds, notes, depth)
    }

    /// A schema of which the types are known.
    fn typed(
        &mut self,
        map: Map<String, Value>,
        kinds: Vec<String>,
        mut notes: Vec<String>,
        depth: usize,
    ) -> Result<Map<String, Value>, String> {
        let is = |kind: &str| kinds.iter().any(|one| one == kind);
        let mut out = Map::new();
        let mut kinds_said = kinds.clone();
        self.values(&map, &mut kinds_said, &mut out, &mut notes);
        if self.dialect.plain && kinds_said.is_empty() {
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

    /// `enum` and `const`.
    fn values(
        &self,
        map: &Map<String, Value>,
        kinds: &mut Vec<String>,
        out: &mut Map<String, Value>,
        notes: &mut Vec<String>,
    ) {
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
        if self.dialect.plain {
            let whole = Value::Array(listed.clone());
            // Not known there: none, and nothing. What is optional can be left out instead.
            listed.retain(|value| !value.is_null() && value.as_str() != Some(""));
            let (texts, numbers) = (listed.iter().all(Value::is_string), listed.iter().all(Value::is_number));
            if listed.is_empty() || !(texts || numbers) {
                return notes.push(note("one of", &whole));
            }
            if whole.as_array().is_some_and(|all| all.len() != listed.len()) {
                notes.push(note("one of", &whole));
            }
            kinds.retain(|kind| kind != "null");
            if kinds.is_empty() {
                kinds.push(if texts { "string" } else { "number" }.to_owned());
            }
        }
        out.insert("enum".to_owned(), Value::Array(listed));
    }

    fn properties(
        &mut self,
        map: &Map<String, Value>,
        out: &mut Map<String, Value>,
        notes: &mut Vec<String>,
        depth: usize,
    ) -> Result<(), String> {
        let none = Map::new();
        let named = map.get("properties").and_then(Value::as_object).unwrap_or(&none);
        let listed = map.get("required").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let mut required: Vec<&str> = Vec::new();
        // In the third draft each property said it of itself.
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
                    return Err(format!("the name of its argument '{name}' is not taken there"));
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
            _ if self.dialect.closed => {
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
        if !(self.dialect.plain && made.is_empty()) {
            out.insert("properties".to_owned(), Value::Object(made));
        }
        if !required.is_empty() {
            out.insert("required".to_owned(), json!(required));
        }
        Ok(())
    }

    fn items(
        &mut self,
        map: &Map<String, Value>,
        notes: &mut Vec<String>,
        depth: usize,
    ) -> Result<Map<String, Value>, String> {
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

    /// Keywords that bound a value, if their own values are what they must be.
    fn bounds(&self, map: &Map<String, Value>, out: &mut Map<String, Value>, notes: &mut Vec<String>) {
        for (keyword, value) in map {
            let (keyword, mut value) = (keyword.as_str(), value);
            // In the fourth draft these said of the bound beside them that it is not part of the range.
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
            let few = self.dialect.closed && !self.dialect.all_required && keyword == "minItems";
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

    /// What a schema says that has not been taken over, in words.
    fn leftovers(&self, map: &Map<String, Value>, taken: &[&str]) -> Vec<String> {
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

    /// Takes the alternatives out of a schema.
    fn alternatives(&self, map: &mut Map<String, Value>, notes: &mut Vec<String>) -> Option<Vec<Value>> {
        let any = map.remove("anyOf").and_then(list);
        let one = map.remove("oneOf").and_then(list);
        if let (Some(_), Some(one)) = (&any, &one) {
            notes.push(note("and one of", &Value::Array(one.clone())));
        }
        any.or(one)
    }

    fn any_of(
        &mut self,
        map: Map<String, Value>,
        alternatives: Vec<Value>,
        notes: Vec<String>,
        depth: usize,
    ) -> Result<Map<String, Value>, String> {
        // What stands beside them holds for each.
        let mut beside = map.clone();
        beside.retain(|key, _| !matches!(key.as_str(), "description" | "title" | "default" | "examples"));
        beside.retain(|key, _| !SILENT.contains(&key.as_str()));
        let mut made: Vec<Map<String, Value>> = Vec::new();
        for alternative in &alternatives {
            let one = match (beside.is_empty(), alternative) {
                (false, Value::Object(one)) => json!({"allOf": [one, beside]}),
                _ => alternative.clone(),
            };
            let one = self.schema(&one, depth + 1)?;
            if !made.contains(&one) {
                made.push(one);
            }
        }
        let is_null = |one: &Map<String, Value>| one.get("type").is_some_and(|kind| kind == "null");
        let nullable = made.iter().any(is_null);
        if self.dialect.plain && nullable && made.len() > 1 {
            made.retain(|one| !is_null(one));
        }
        let mut notes = notes;
        if let [only] = made.as_mut_slice() {
            let mut only = std::mem::take(only);
            if self.dialect.plain && nullable {
                match only.get("type").and_then(Value::as_str).map(str::to_owned) {
                    Some(kind) if !only.contains_key("enum") => {
                        only.insert("type".to_owned(), json!([kind, "null"]));
                    }
                    _ => notes.push("(or null)".to_owned()),
                }
            }
            let inner = said(&only);
            only.remove("description");
            describe(&mut only, said(&map).or(inner), &notes);
            return Ok(only);
        }
        if nullable && self.dialect.plain {
            notes.push("(or null)".to_owned());
        }
        notes.extend(["default", "examples"].iter().filter_map(|key| Some(note(key, map.get(*key)?))));
        let mut head = Map::new();
        if self.dialect.plain {
            // Nothing may stand beside them there.
            if let Some(first) = made.first_mut() {
                let inner = said(first);
                let both = [said(&map), inner].into_iter().flatten().collect::<Vec<_>>().join(" ");
                describe(first, Some(both).filter(|both| !both.is_empty()), &notes);
            }
        } else {
            describe(&mut head, said(&map), &notes);
        }
        head.insert("anyOf".to_owned(), Value::Array(made.into_iter().map(Value::Object).collect()));
        Ok(head)
    }

    /// Alternatives beside the properties of an object: all their properties become its own, and what each requires is
    /// said in words.
    fn fold_alternatives(
        &mut self,
        map: &mut Map<String, Value>,
        notes: &mut Vec<String>,
    ) -> Result<(), String> {
        for keyword in ["anyOf", "oneOf"] {
            let Some(alternatives) = map.remove(keyword).and_then(list) else { continue };
            let mut each = Vec::new();
            for alternative in alternatives {
                let Value::Object(one) = alternative else { continue };
                let one = self.flat(one)?;
                let other = types(&one, &mut Vec::new());
                if other.is_empty() || other.iter().any(|kind| kind == "object") {
                    each.push(one);
                }
            }
            if let Some(words) = either(map, each) {
                notes.push(words);
            }
        }
        Ok(())
    }

    /// A schema with its reference resolved and its `allOf` merged into it. The references stay open until their schema
    /// has been walked.
    fn flat(&mut self, mut map: Map<String, Value>) -> Result<Map<String, Value>, String> {
        for _ in 0..=DEEPEST {
            self.parts += 1;
            if self.parts > LARGEST {
                return Err(format!(
                    "its schema has more than {LARGEST} parts once its references are resolved"
                ));
            }
            if let Some(Value::String(to)) = map.remove("$ref") {
                self.refer(&mut map, to);
            } else if let Some(parts) = map.remove("allOf").and_then(list) {
                for part in parts {
                    if let Value::Object(part) = part {
                        let part = self.flat(part)?;
                        merge(&mut map, part);
                    }
                }
            } else {
                return Ok(map);
            }
        }
        Err("its references lead from one to the next without end".to_owned())
    }

    fn refer(&mut self, map: &mut Map<String, Value>, to: String) {
        let name = to.rsplit('/').next().unwrap_or_default().to_owned();
        let target = to.strip_prefix('#').and_then(|path| self.root.pointer(path)).and_then(Value::as_object);
        let Some(target) = target else {
            self.narrowed |= self.dialect.closed;
            return merge(map, described(format!("(see {})", bounded(&to))));
        };
        if self.open.contains(&to) {
            self.narrowed |= self.dialect.closed;
            let mut again = described(format!("(again as above: {name})"));
            again.extend(target.get("type").map(|kind| ("type".to_owned(), kind.clone())));
            return merge(map, again);
        }
        let target = target.clone();
        self.open.push(to);
        merge(map, target);
    }

    /// A schema that allows everything.
    fn anything(&mut self, notes: &[String]) -> Map<String, Value> {
        let mut made = Map::new();
        self.narrowed |= self.dialect.closed;
        if self.dialect.plain {
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

/// The types that a schema names, in the words of the standard.
fn types(map: &Map<String, Value>, notes: &mut Vec<String>) -> Vec<String> {
    let named = match map.get("type") {
        Some(Value::String(one)) => vec![one.as_str()],
        Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let mut kinds: Vec<String> = Vec::new();
    for name in named {
        let kind = match name.to_ascii_lowercase().as_str() {
            "int" | "int32" | "int64" => "integer".to_owned(),
            "float" | "double" => "number".to_owned(),
            "bool" => "boolean".to_owned(),
            "str" => "string".to_owned(),
            other => other.to_owned(),
        };
        if !TYPES.contains(&kind.as_str()) {
            notes.push(format!("(type: {})", bounded(name)));
        } else if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    kinds
}

/// The type that a schema means which does not say it.
fn inferred(map: &Map<String, Value>) -> Option<&'static str> {
    let has = |keys: &[&str]| keys.iter().any(|key| map.contains_key(*key));
    let values = match (map.get("const"), map.get("enum").and_then(Value::as_array)) {
        (Some(only), _) => vec![only],
        (None, Some(all)) => all.iter().collect(),
        (None, None) => Vec::new(),
    };
    if !values.is_empty() {
        let all = |is: fn(&Value) -> bool| values.iter().all(|value| is(value));
        return match () {
            () if all(Value::is_string) => Some("string"),
            () if all(Value::is_i64) => Some("integer"),
            () if all(Value::is_number) => Some("number"),
            () if all(Value::is_boolean) => Some("boolean"),
            () => None,
        };
    }
    if has(&["properties", "required", "additionalProperties", "patternProperties", "propertyNames"]) {
        Some("object")
    } else if has(&["items", "prefixItems", "minItems", "maxItems", "uniqueItems"]) {
        Some("array")
    } else if has(&["minLength", "maxLength", "pattern", "format"]) {
        Some("string")
    } else if has(&["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"]) {
        Some("number")
    } else {
        None
    }
}

fn list(value: Value) -> Option<Vec<Value>> {
    match value {
        Value::Array(all) if !all.is_empty() => Some(all),
        _ => None,
    }
}

fn said(map: &Map<String, Value>) -> Option<String> {
    map.get("description").and_then(Value::as_str).map(str::to_owned)
}

fn described(words: String) -> Map<String, Value> {
    Map::from_iter([("description".to_owned(), Value::String(words))])
}

fn describe(map: &mut Map<String, Value>, said: Option<String>, notes: &[String]) {
    let words = said.into_iter().chain(notes.iter().cloned()).collect::<Vec<_>>().join(" ");
    if !words.is_empty() {
        map.insert("description".to_owned(), Value::String(words));
    }
}

fn note(keyword: &str, value: &Value) -> String {
    match value {
        Value::String(text) => format!("({keyword}: {})", bounded(text)),
        value => format!("({keyword}: {})", bounded(&value.to_string())),
    }
}

fn bounded(text: &str) -> String {
    if text.len() <= LONGEST_NOTE {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(LONGEST_NOTE).collect();
    short.push('…');
    short
}

fn is_short_key(name: &str) -> bool {
    let fine = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
    (1..=64).contains(&name.len()) && name.bytes().all(fine)
}

#[cfg(test)]
#[path = "schema_tests.rs"]
mod tests;
