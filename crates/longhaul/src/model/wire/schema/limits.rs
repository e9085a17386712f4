//! Checks a schema against the limits of a provider.

use serde_json::Value;

use super::super::schema_dialect::SchemaLimits;

/// An `enum` with more values than this has its own limit.
const MANY_VALUES: usize = 250;

/// Whether an adapted schema stays within the limits.
pub(super) fn fits(schema: &Value, limits: &SchemaLimits) -> bool {
    let mut counted = Counted::default();
    counted.add(schema, 0);
    counted.properties <= limits.properties
        && counted.optional <= limits.optional
        && counted.unions <= limits.unions
        && counted.depth <= limits.depth
        && counted.values <= limits.values
        && counted.letters <= limits.letters
        && counted.letters_of_one <= limits.letters_of_one
}

#[derive(Default)]
struct Counted {
    properties: usize,
    optional: usize,
    unions: usize,
    depth: usize,
    values: usize,
    letters: usize,
    letters_of_one: usize,
}

impl Counted {
    fn add(&mut self, schema: &Value, depth: usize) {
        let properties = schema.get("properties").and_then(Value::as_object);
        let depth = depth + usize::from(properties.is_some());
        self.depth = self.depth.max(depth);
        let several = schema.get("type").is_some_and(Value::is_array);
        self.unions += usize::from(several || schema.get("anyOf").is_some());
        if let Some(values) = list(schema, "enum") {
            let letters: usize =
                values.iter().filter_map(Value::as_str).map(|text| text.chars().count()).sum();
            self.values += values.len();
            self.letters += letters;
            if values.len() > MANY_VALUES {
                self.letters_of_one = self.letters_of_one.max(letters);
            }
        }
        self.letters += schema.get("const").and_then(Value::as_str).map_or(0, |text| text.chars().count());
        let required = list(schema, "required").unwrap_or_default();
        for (name, inner) in properties.into_iter().flatten() {
            self.properties += 1;
            self.letters += name.chars().count();
            self.optional += usize::from(!required.iter().any(|one| one == name));
            self.add(inner, depth);
        }
        for inner in list(schema, "anyOf").into_iter().flatten().chain(schema.get("items")) {
            self.add(inner, depth);
        }
    }
}

fn list<'a>(schema: &'a Value, keyword: &str) -> Option<&'a [Value]> {
    schema.get(keyword)?.as_array().map(Vec::as_slice)
}
