//! The names of the sources, read: one word for one thing, and none that was given up for a plainer one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Names of types that were replaced, because nobody could guess or search for them. The new ones are in the changelog.
const RETIRED: &[&str] = &[
    "Aside",
    "Astray",
    "Audience",
    "Ball",
    "Barred",
    "Bell",
    "Bells",
    "Carry",
    "Came",
    "Counsel",
    "Deed",
    "Desk",
    "DeskError",
    "Door",
    "Ear",
    "Errand",
    "Forest",
    "Gear",
    "Ground",
    "Grove",
    "Habits",
    "Hands",
    "Happening",
    "Head",
    "Heard",
    "Inquiry",
    "Join",
    "Kept",
    "Launches",
    "Leave",
    "Locker",
    "Made",
    "Manner",
    "Moment",
    "Narrator",
    "Nobody",
    "Notices",
    "Occasion",
    "Office",
    "Outfit",
    "Outside",
    "Outward",
    "Owed",
    "Patience",
    "Patron",
    "Place",
    "Plea",
    "Porter",
    "Roll",
    "Rung",
    "Said",
    "Scribe",
    "Seen",
    "Shape",
    "Shelf",
    "Shelves",
    "Slip",
    "Surroundings",
    "Taken",
    "Talk",
    "Tenure",
    "Told",
    "Trouble",
    "Unfinished",
    "Usher",
    "Verb",
    "Waited",
    "Watchman",
    "Way",
    "Whose",
    "Workshop",
];

/// Names of modules that were replaced.
const RETIRED_MODULES: &[&str] = &[
    "aside",
    "audience",
    "bells",
    "calls",
    "carrier",
    "counsel",
    "deeds",
    "desk",
    "edge",
    "errand",
    "explained",
    "forest",
    "gear",
    "ground",
    "grove",
    "habits",
    "heard",
    "holder",
    "leave",
    "moves",
    "office",
    "owed",
    "porter",
    "shape",
    "talk",
    "turn",
    "usher",
    "verb",
    "watchman",
    "way",
    "wishes",
    "wording",
];

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

fn all() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().parent().unwrap();
    let mut found = Vec::new();
    for dir in ["crates/longhaul/src", "crates/longhaul-cli/src", "crates/longhaul-server/src", "bench/src"] {
        sources(&root.join(dir), &mut found);
    }
    assert!(found.len() > 300, "only {} files", found.len());
    found
}

/// The name that a line defines as a type, if it does so outside of functions and inline modules.
fn defined(line: &str) -> Option<&str> {
    let line = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
        Some(rest) => rest.strip_prefix(' ')?,
        None => line,
    };
    let kinds = ["struct ", "enum ", "trait ", "type ", "union "];
    let rest = kinds.iter().find_map(|kind| line.strip_prefix(kind))?;
    rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().filter(|name| !name.is_empty())
}

#[test]
fn a_definition_is_found_however_visible_it_is() {
    for line in
        ["struct One;", "pub enum One {", "pub(crate) trait One: Send", "pub(in super::x) type One<'a> = u8;"]
    {
        assert_eq!(defined(line), Some("One"), "{line}");
    }
    for line in ["    struct One;", "// struct One", "publish One", "fn structure() {}"] {
        assert_eq!(defined(line), None, "{line}");
    }
}

#[test]
fn no_two_types_share_a_name_and_none_has_a_retired_one() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in all() {
        for name in fs::read_to_string(&path).unwrap().lines().filter_map(defined) {
            places.entry(name.to_owned()).or_default().push(path.display().to_string());
        }
    }
    let shared: Vec<_> = places.iter().filter(|(_, at)| at.len() > 1).collect();
    assert!(shared.is_empty(), "these names mean more than one thing: {shared:#?}");
    let retired: BTreeSet<&str> = RETIRED.iter().copied().collect();
    let back: Vec<_> = places.iter().filter(|(name, _)| retired.contains(name.as_str())).collect();
    assert!(back.is_empty(), "these names were given up: {back:#?}");
}

#[test]
fn no_module_has_a_retired_name() {
    for path in all() {
        let parts = path.iter().map(|part| part.to_string_lossy());
        let back: Vec<_> = parts
            .map(|part| part.trim_end_matches(".rs").to_owned())
            .filter(|part| RETIRED_MODULES.contains(&part.as_str()))
            .collect();
        assert!(back.is_empty(), "{}: {back:?}", path.display());
    }
}
