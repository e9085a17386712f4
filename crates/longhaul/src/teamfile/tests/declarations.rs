//! What the reader makes of a key is what its field takes: every key of `everything.yaml` goes through both.

use super::*;
use crate::teamfile::normal_value::NormalValue;

/// What the reader makes of a file that has every key of the tables (`every_key_is_read` sees to that).
fn everything() -> NormalValue {
    let text = fs::read_to_string(dir("tests/teams/everything.yaml")).unwrap();
    let (node, _) = yaml::parse_yaml(&text).unwrap_or_else(|problem| panic!("{problem:?}"));
    let mut value = reader::TeamFileReader::default().read_team(&node).unwrap();
    upgrade::upgrade(&mut value);
    value
}

/// The value without one of its keys, for each key at any depth, with its path.
fn without_one(value: &NormalValue) -> Vec<(String, NormalValue)> {
    let mut all = Vec::new();
    match value {
        NormalValue::Map(fields) => {
            let kind = fields.iter().find(|(key, _)| key == "type").map(|(_, kind)| kind);
            // These toolsets are accepted and do not run, so nothing has their keys.
            if ["lsp", "rag"].iter().any(|name| kind == Some(&NormalValue::Text((*name).to_owned()))) {
                return all;
            }
            for (at, (key, inner)) in fields.iter().enumerate() {
                let mut less = fields.clone();
                less.remove(at);
                all.push((key.clone(), NormalValue::Map(less)));
                for (path, inner) in without_one(inner) {
                    let mut changed = fields.clone();
                    changed[at].1 = inner;
                    all.push((format!("{key}.{path}"), NormalValue::Map(changed)));
                }
            }
        }
        NormalValue::List(items) => {
            for (at, inner) in items.iter().enumerate() {
                for (path, inner) in without_one(inner) {
                    let mut changed = items.clone();
                    changed[at] = inner;
                    all.push((format!("{at}.{path}"), NormalValue::List(changed)));
                }
            }
        }
        _ => {}
    }
    all
}

/// Otherwise the reader and the schema would accept it, and it would do nothing.
#[test]
fn every_key_of_the_tables_is_a_field() {
    let value = everything();
    let whole = TeamFile::deserialize(value.clone()).unwrap();
    let fewer = without_one(&value);
    assert!(fewer.len() > 200, "{}", fewer.len());
    // It can only be `command`, so there is nothing to keep.
    let is_constant = |path: &str| path.starts_with("agents.root.hooks.") && path.ends_with(".type");
    let fewer = fewer.into_iter().filter(|(path, _)| !is_constant(path));
    let is_lost = |less: NormalValue| TeamFile::deserialize(less).is_ok_and(|file| file == whole);
    let lost: Vec<String> = fewer.filter_map(|(path, less)| is_lost(less).then_some(path)).collect();
    assert!(lost.is_empty(), "no field of `config` has these keys, or they have their defaults: {lost:#?}");
}
