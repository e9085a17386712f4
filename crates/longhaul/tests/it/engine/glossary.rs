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

/// Words of the old story: in no identifier any more. (Words of everyday English that were only wrong as the name of a type are
/// not among them.)
const RETIRED_WORDS: &[&str] = &[
    "aside",
    "astray",
    "ball",
    "barred",
    "circles",
    "counsel",
    "desk",
    "errand",
    "forest",
    "grove",
    "groves",
    "habit",
    "habits",
    "head",
    "heads",
    "inquiry",
    "inquiries",
    "locker",
    "manner",
    "misshapen",
    "narrator",
    "occasion",
    "outfit",
    "owed",
    "patience",
    "patron",
    "plea",
    "porter",
    "rung",
    "scribe",
    "shelf",
    "slip",
    "slips",
    "surroundings",
    "talk",
    "tenure",
    "trouble",
    "usher",
    "watchman",
    "wishes",
];

/// Where a retired word has a meaning of its own: git's HEAD, the head of a table and the HTTP method HEAD.
const OTHER_MEANINGS: &[(&str, &str)] = &[
    ("crates/longhaul/src/runner/worktree", "head"),
    ("crates/longhaul/src/toolset/api.rs", "head"),
    ("crates/longhaul/src/toolset/openapi.rs", "head"),
    ("crates/longhaul-cli/src/view/markdown", "head"),
    ("crates/longhaul-server/src/dashboard", "head"),
    ("crates/longhaul-server/src/guard", "head"),
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

/// The identifiers of a source: what is left without comments, strings and characters.
fn identifiers(source: &str) -> impl Iterator<Item = String> {
    let mut left = source;
    let mut code = String::new();
    while let Some(c) = left.chars().next() {
        let skip = if left.starts_with("//") {
            left.find('\n').unwrap_or(left.len())
        } else if c == '"' {
            string_end(left)
        } else if let Some(end) = raw_string_end(left) {
            end
        } else if left.starts_with("'\"'") {
            3
        } else {
            code.push(c);
            left = &left[c.len_utf8()..];
            continue;
        };
        code.push(' ');
        left = &left[skip..];
    }
    let found: Vec<String> = code
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect();
    found.into_iter()
}

/// The length of the string that this begins with.
fn string_end(text: &str) -> usize {
    let mut escaped = true;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length of the raw string that this begins with, if it does.
fn raw_string_end(text: &str) -> Option<usize> {
    let rest = text.strip_prefix('r')?;
    let marks = rest.len() - rest.trim_start_matches('#').len();
    let inside = rest[marks..].strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(marks));
    Some(inside.find(&close).map_or(text.len(), |at| 1 + marks + 1 + at + close.len()))
}

/// The words of an identifier, however they are joined.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before_is_small = false;
    for c in name.chars() {
        if c == '_' || (c.is_uppercase() && before_is_small) {
            words.push(String::new());
        }
        if c != '_' {
            words.last_mut().unwrap().extend(c.to_lowercase());
        }
        before_is_small = c.is_lowercase();
    }
    words
}

#[test]
fn identifiers_are_found_and_split_into_words() {
    let source = "let talk = \"a \\\" desk\"; // the watchman\nfoo_ball('\"', r#\"a \" rung\"#, TalkShow);";
    let found: Vec<String> = identifiers(source).flat_map(|name| words(&name)).collect();
    assert_eq!(found, ["let", "talk", "foo", "ball", "talk", "show"]);
}

#[test]
fn no_identifier_has_a_retired_word() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().parent().unwrap();
    let mut files = all();
    for dir in [
        "crates/longhaul/tests",
        "crates/longhaul-cli/tests",
        "crates/longhaul/examples",
        "crates/longhaul/benches",
    ] {
        sources(&root.join(dir), &mut files);
    }
    let retired: BTreeSet<&str> = RETIRED_WORDS.iter().copied().collect();
    let mut back = BTreeSet::new();
    for path in files {
        let file = path.strip_prefix(root).unwrap().display().to_string();
        let is_meant = |word: &str| {
            OTHER_MEANINGS.iter().any(|(start, other)| file.starts_with(start) && word == *other)
        };
        for name in identifiers(&fs::read_to_string(&path).unwrap()) {
            if words(&name).iter().any(|word| retired.contains(word.as_str()) && !is_meant(word)) {
                back.insert(format!("{file}: {name}"));
            }
        }
    }
    assert!(back.is_empty(), "these words were given up: {back:#?}");
}
