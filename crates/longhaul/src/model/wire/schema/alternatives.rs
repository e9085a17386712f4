//! Alternatives and references: `anyOf`, `oneOf`, `allOf` and `$ref`.

use serde_json::{Map, Value, json};

use super::merge::{either, merge};
use super::words::{bounded, describe, described, list, note, said, types};
use super::{DEEPEST, LARGEST, SILENT, SchemaAdapter};
use crate::model::wire::schema::SchemaAdaptError;

impl SchemaAdapter<'_> {
    /// Converts the alternatives of a schema.
    pub(super) fn alternatives(
        &self,
        map: &mut Map<String, Value>,
        notes: &mut Vec<String>,
    ) -> Option<Vec<Value>> {
        let any = map.remove("anyOf").and_then(list);
        let one = map.remove("oneOf").and_then(list);
        if let (Some(_), Some(one)) = (&any, &one) {
            notes.push(note("and one of", &Value::Array(one.clone())));
        }
        any.or(one)
    }

    pub(super) fn any_of(
        &mut self,
        map: Map<String, Value>,
        alternatives: Vec<Value>,
        notes: Vec<String>,
        depth: usize,
    ) -> Result<Map<String, Value>, SchemaAdaptError> {
        // Keywords beside the alternatives apply to each of them.
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
        // One type that may be null needs no alternatives.
        let maybe = |one: &Map<String, Value>| {
            one.get("type").is_some_and(Value::is_string) && !one.contains_key("enum")
        };
        if self.dialect.explicit_types
            && made.len() == 2
            && made.iter().any(is_null)
            && made.iter().any(|one| !is_null(one) && maybe(one))
        {
            made.retain(|one| !is_null(one));
            if let Some(kind) = made.first_mut().and_then(|only| only.get_mut("type")) {
                *kind = json!([kind.take(), "null"]);
            }
        }
        let mut notes = notes;
        if let [only] = made.as_mut_slice() {
            let mut only = std::mem::take(only);
            let inner = said(&only);
            only.remove("description");
            describe(&mut only, said(&map).or(inner), &notes);
            return Ok(only);
        }
        notes.extend(["default", "examples"].iter().filter_map(|key| Some(note(key, map.get(*key)?))));
        let mut schema = Map::new();
        if self.dialect.explicit_types {
            // The dialect allows no keyword beside them.
            if let Some(first) = made.first_mut() {
                let inner = said(first);
                let both = [said(&map), inner].into_iter().flatten().collect::<Vec<_>>().join(" ");
                describe(first, Some(both).filter(|both| !both.is_empty()), &notes);
            }
        } else {
            describe(&mut schema, said(&map), &notes);
        }
        schema.insert("anyOf".to_owned(), Value::Array(made.into_iter().map(Value::Object).collect()));
        Ok(schema)
    }

    /// Folds alternatives into an object: it gets all their properties, and a note says what each of them
    /// requires.
    pub(super) fn fold_alternatives(
        &mut self,
        map: &mut Map<String, Value>,
        notes: &mut Vec<String>,
    ) -> Result<(), SchemaAdaptError> {
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

    /// Resolves the reference of a schema and merges its `allOf`. The references stay open until their schema
    /// has been walked.
    pub(super) fn flat(
        &mut self,
        mut map: Map<String, Value>,
    ) -> Result<Map<String, Value>, SchemaAdaptError> {
        for _ in 0..=DEEPEST {
            self.parts += 1;
            if self.parts > LARGEST {
                return Err(SchemaAdaptError(format!(
                    "its schema has more than {LARGEST} parts once its references are resolved"
                )));
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
        Err(SchemaAdaptError("its references form an endless chain".to_owned()))
    }

    pub(super) fn refer(&mut self, map: &mut Map<String, Value>, to: String) {
        let name = to.rsplit('/').next().unwrap_or_default().to_owned();
        let target = to.strip_prefix('#').and_then(|path| self.root.pointer(path)).and_then(Value::as_object);
        let Some(target) = target else {
            self.narrowed |= self.dialect.closed_objects;
            return merge(map, described(format!("(see {})", bounded(&to))));
        };
        if self.open.contains(&to) {
            self.narrowed |= self.dialect.closed_objects;
            let mut again = described(format!("(again as above: {name})"));
            again.extend(target.get("type").map(|kind| ("type".to_owned(), kind.clone())));
            return merge(map, again);
        }
        let target = target.clone();
        self.open.push(to);
        merge(map, target);
    }
}
