//! Merges schemas: all of them at once, or one of them.

use serde_json::{Map, Value, json};

/// Adds the constraints of another schema to this one. This one takes precedence.
pub(super) fn merge(into: &mut Map<String, Value>, other: Map<String, Value>) {
    for (keyword, value) in other {
        let Some(here) = into.get_mut(&keyword) else {
            into.insert(keyword, value);
            continue;
        };
        match (keyword.as_str(), here, value) {
            ("properties", Value::Object(here), Value::Object(there)) => {
                for (name, schema) in there {
                    match here.get_mut(&name) {
                        Some(mine) if *mine != schema => *mine = json!({"allOf": [mine.take(), schema]}),
                        Some(_) => {}
                        None => {
                            here.insert(name, schema);
                        }
                    }
                }
            }
            ("required", Value::Array(here), Value::Array(there)) => {
                for name in there {
                    if !here.contains(&name) {
                        here.push(name);
                    }
                }
            }
            ("enum", Value::Array(here), Value::Array(there)) => {
                let both: Vec<_> = here.iter().filter(|value| there.contains(value)).cloned().collect();
                if !both.is_empty() {
                    *here = both;
                }
            }
            ("description", Value::String(here), Value::String(there)) if *here != there => {
                here.push(' ');
                here.push_str(&there);
            }
            ("allOf", Value::Array(here), Value::Array(there)) => here.extend(there),
            ("anyOf" | "oneOf", here, there) if *here != there => {
                // Both apply, which can only be described in words.
                let more = json!({ keyword.as_str(): there });
                let words = format!("(and also {more})");
                match into.get_mut("description") {
                    Some(Value::String(said)) => {
                        said.push(' ');
                        said.push_str(&words);
                    }
                    _ => {
                        into.insert("description".to_owned(), Value::String(words));
                    }
                }
            }
            _ => {}
        }
    }
}

/// Merges alternatives into one object: it has the properties of all, and requires what all of them require.
/// Returns how they differ, in words.
pub(super) fn either(into: &mut Map<String, Value>, alternatives: Vec<Map<String, Value>>) -> Option<String> {
    let names = |one: &Map<String, Value>, keyword: &str| -> Vec<String> {
        match one.get(keyword) {
            Some(Value::Object(map)) => map.keys().cloned().collect(),
            Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            _ => Vec::new(),
        }
    };
    let (first, rest) = alternatives.split_first()?;
    let mut common = names(first, "required");
    common.retain(|name| rest.iter().all(|one| names(one, "required").contains(name)));
    let mut words = Vec::new();
    for one in &alternatives {
        let needed: Vec<String> = names(one, "required").iter().map(|name| wanted(one, name)).collect();
        let about = one.get("description").or_else(|| one.get("title")).and_then(Value::as_str);
        let of = if needed.is_empty() { names(one, "properties") } else { needed };
        let of = if of.is_empty() { "nothing more".to_owned() } else { of.join(", ") };
        words.push(about.map_or_else(|| of.clone(), |about| format!("{of} ({about})")));
    }
    let here = into.entry("properties").or_insert_with(|| json!({}));
    if let Value::Object(here) = here {
        for (name, schema) in
            alternatives.iter().filter_map(|one| one.get("properties")?.as_object()).flatten()
        {
            match here.get_mut(name) {
                None => {
                    here.insert(name.clone(), schema.clone());
                }
                Some(mine) if mine == schema => {}
                Some(Value::Object(mine)) if mine.len() == 1 && mine.contains_key("anyOf") => {
                    if let Some(Value::Array(all)) = mine.get_mut("anyOf")
                        && !all.contains(schema)
                    {
                        all.push(schema.clone());
                    }
                }
                Some(mine) => *mine = json!({"anyOf": [mine.take(), schema]}),
            }
        }
    }
    if !common.is_empty() {
        merge(into, Map::from_iter([("required".to_owned(), json!(common))]));
    }
    (words.len() > 1).then(|| format!("(give one of: {})", words.join("; or ")))
}

/// What an alternative says of a property: its name, and its value if there is only one.
fn wanted(one: &Map<String, Value>, name: &str) -> String {
    let schema = one.get("properties").and_then(|all| all.get(name));
    let only = schema.and_then(|schema| {
        let listed = schema.get("enum").and_then(Value::as_array);
        schema.get("const").or_else(|| listed.filter(|all| all.len() == 1)?.first())
    });
    only.map_or_else(|| name.to_owned(), |only| format!("{name} = {only}"))
}
