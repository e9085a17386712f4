//! Reads a tree by the tables of `form`: everything that is wrong is told, and what is right is handed on.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::form::{self, Object, Rule, Standing, TOOLSETS, Type};
use super::near::{instead, listed, nearest};
use super::node::{Key, Kind, Node};
use super::problem::{Place, Problem, Told};
use super::value::Value;

/// How many names a text with commas may have.
const MOST_NAMES: usize = 1000;

/// Where something stands: the key that names it, and the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spot {
    pub(super) key: Place,
    pub(super) value: Place,
}

/// Where everything stands, by its path.
pub(super) type Places = HashMap<String, Spot>;

/// What a walk through a tree has found.
#[derive(Default)]
pub(super) struct Walk {
    path: String,
    pub(super) told: Told,
    pub(super) places: Places,
}

/// A path with one more key.
pub(super) fn join(path: &str, key: &str) -> String {
    let plain = !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-'));
    match (path.is_empty(), plain) {
        (true, true) => key.to_owned(),
        (true, false) => format!("{key:?}"),
        (false, true) => format!("{path}.{key}"),
        (false, false) => format!("{path}.{key:?}"),
    }
}

impl Walk {
    /// Reads a whole file.
    pub(super) fn team(&mut self, node: &Node) -> Option<Value> {
        self.take(node, &FILE, node.at)
    }

    fn wrong(&mut self, at: Place, message: impl Into<String>) {
        self.told.push(Problem::error(at, &self.path, message));
    }

    fn wrong_help(&mut self, at: Place, message: impl Into<String>, help: impl Into<String>) {
        self.told.push(Problem::error(at, &self.path, message).help(help));
    }

    fn warn(&mut self, at: Place, message: impl Into<String>, help: impl Into<String>) {
        self.told.push(Problem::warning(at, &self.path, message).help(help));
    }

    /// Goes into a key, or an item, and comes back.
    fn within<T>(&mut self, path: String, spot: Spot, f: impl FnOnce(&mut Self) -> T) -> T {
        let outer = std::mem::replace(&mut self.path, path);
        self.places.insert(self.path.clone(), spot);
        let result = f(self);
        self.path = outer;
        result
    }

    fn at_key<T>(&mut self, key: &Key, node: &Node, f: impl FnOnce(&mut Self) -> T) -> T {
        // What is left empty stands where its key does.
        let value = if node.kind == Kind::Null { key.at } else { node.at };
        self.within(join(&self.path, &key.name), Spot { key: key.at, value }, f)
    }

    fn at_item<T>(&mut self, index: usize, at: Place, f: impl FnOnce(&mut Self) -> T) -> T {
        self.within(format!("{}[{index}]", self.path), Spot { key: at, value: at }, f)
    }

    /// What is being read, in words.
    fn name(&self) -> String {
        match self.path.as_str() {
            "" => "a team file".to_owned(),
            path if path.ends_with(']') => format!("an item of '{}'", kind_name(path)),
            path => format!("'{}'", path.rsplit('.').next().unwrap_or(path)),
        }
    }

    /// The value in its normal form; `None` if it is wrong, which has been told, or not there.
    fn take(&mut self, node: &Node, kind: &'static Type, at: Place) -> Option<Value> {
        if node.kind == Kind::Null {
            return match kind {
                Type::Object(object) => Some(self.object(&[], object, at)),
                Type::Map(_) => Some(Value::Map(Vec::new())),
                Type::Toolset => self.mismatch(node, kind),
                _ => None,
            };
        }
        match (kind, &node.kind) {
            (Type::Text | Type::Variables, _) => match node.text() {
                Some(text) => Some(Value::Text(text.to_owned())),
                None => self.mismatch(node, kind),
            },
            (Type::Bool, Kind::Bool(value)) => Some(Value::Bool(*value)),
            (Type::Whole(least), Kind::Int(value)) if (*least..=form::MOST).contains(value) => {
                Some(Value::Int(*value))
            }
            (Type::Number(least, most), Kind::Int(_) | Kind::Float(_)) => {
                let value = match node.kind {
                    Kind::Int(value) => value as f64,
                    Kind::Float(value) => value,
                    _ => f64::NAN,
                };
                match value.is_finite() && (*least..=*most).contains(&value) {
                    true => Some(Value::Float(value)),
                    false => self.mismatch(node, kind),
                }
            }
            (Type::Time, _) => match time(node) {
                Some(time) => Some(Value::Int(time)),
                None => self.mismatch(node, kind),
            },
            (Type::Word(words), _) if node.text().is_some() => self.word(node, words),
            (Type::Texts | Type::Names, _) => self.texts(node, kind),
            (Type::List(item), Kind::List(nodes)) => {
                let mut list = Vec::with_capacity(nodes.len());
                for (index, node) in nodes.iter().enumerate() {
                    let value = self.at_item(index, node.at, |walk| walk.take(node, item, node.at));
                    // Its place is kept, so that what comes after it still has the number that it has in the file.
                    list.push(value.unwrap_or_else(|| blank(item)));
                }
                Some(Value::List(list))
            }
            (Type::Map(item), Kind::Map(fields)) => {
                let mut map = Vec::with_capacity(fields.len());
                for (key, node) in fields {
                    let value = self.at_key(key, node, |walk| walk.take(node, item, key.at));
                    // A name that is there is known, though what it names is wrong: one mistake is told once.
                    map.push((key.name.clone(), value.unwrap_or_else(|| blank(item))));
                }
                map.retain(|(_, value)| *value != Value::Null);
                Some(Value::Map(map))
            }
            (Type::Object(object), Kind::Map(fields)) => Some(self.object(fields, object, at)),
            (Type::Either(kinds), _) => match kinds.iter().find(|kind| fits(node, kind)) {
                Some(kind) => self.take(node, kind, at),
                None => self.mismatch(node, kind),
            },
            (Type::Toolset, Kind::Map(fields)) => self.toolset(node, fields, at),
            (Type::Toolset, Kind::Text(text)) if form::toolset(text).is_some() => {
                self.wrong_help(
                    node.at,
                    "a toolset is a map with a type, and this is a text",
                    format!("write `- type: {text}`"),
                );
                None
            }
            (Type::Commands, Kind::Map(_) | Kind::List(_)) => Some(self.commands(node)),
            (Type::Any, _) => Some(any(node)),
            _ => self.mismatch(node, kind),
        }
    }

    fn mismatch(&mut self, node: &Node, kind: &Type) -> Option<Value> {
        let found = match node.text() {
            Some(text) => format!("'{}'", shortened(text)),
            None => node.what().to_owned(),
        };
        let message = format!("{} must be {}, not {found}", self.name(), kind.expected());
        self.wrong(node.at, message);
        None
    }

    fn word(&mut self, node: &Node, words: &[&'static str]) -> Option<Value> {
        let text = node.text().unwrap_or_default();
        if let Some(word) = words.iter().find(|word| word.eq_ignore_ascii_case(text)) {
            return Some(Value::Text((*word).to_owned()));
        }
        let message = format!("{} cannot be '{}'", self.name(), shortened(text));
        self.wrong_help(node.at, message, instead(text, words, "it can be"));
        None
    }

    fn texts(&mut self, node: &Node, kind: &'static Type) -> Option<Value> {
        let mut list = Vec::new();
        match (&node.kind, node.text()) {
            (Kind::List(nodes), _) => {
                for (index, node) in nodes.iter().enumerate() {
                    let value = self.at_item(index, node.at, |walk| {
                        let text = node.text().map(|text| Value::Text(text.trim().to_owned()));
                        if text.is_none() {
                            let message = format!(
                                "'{}' is a list of texts, and this is {}",
                                kind_name(&walk.path),
                                node.what()
                            );
                            walk.wrong(node.at, message);
                        }
                        text
                    });
                    list.push(value.unwrap_or_else(|| Value::Text(String::new())));
                }
            }
            (_, Some(text)) if matches!(kind, Type::Names) => {
                let mut before = 0;
                if text.split(',').nth(MOST_NAMES).is_some() {
                    self.wrong(node.at, format!("{} has more than {MOST_NAMES} names in it", self.name()));
                    return None;
                }
                for piece in text.split(',') {
                    let name = piece.trim();
                    if !name.is_empty() {
                        let at = within(node.at, text, before + piece.find(name).unwrap_or(0), name);
                        self.at_item(list.len(), at, |_| {});
                        list.push(Value::Text(name.to_owned()));
                    }
                    before += piece.len() + 1;
                }
            }
            (_, Some(text)) => {
                self.at_item(0, node.at, |_| {});
                list.push(Value::Text(text.to_owned()));
            }
            _ => return self.mismatch(node, kind),
        }
        Some(Value::List(list))
    }

    fn object(&mut self, fields: &[(Key, Node)], object: &'static Object, at: Place) -> Value {
        let mut map: Vec<(String, Value)> = Vec::with_capacity(fields.len());
        for (key, node) in fields {
            let Some(known) = object.keys.iter().find(|known| known.name == key.name) else {
                self.unknown(key, object);
                continue;
            };
            let value = self.at_key(key, node, |walk| {
                if known.standing == Standing::Idle && !matches!(node.kind, Kind::Null | Kind::Bool(false)) {
                    let message = format!("'{}' is accepted, but Longhaul does not use it", known.name);
                    walk.warn(key.at, message, "the team runs as if it were not there");
                }
                walk.take(node, &known.kind, key.at)
            });
            let name = match known.standing {
                Standing::Was(now) => now,
                _ => known.name,
            };
            if map.iter().any(|(had, _)| had == name) {
                let message = format!("'{}' and '{name}' are the same; keep one of them", known.name);
                self.wrong(key.at, message);
            } else if let Some(value) = value {
                map.push((name.to_owned(), value));
            }
        }
        for rule in object.rules {
            self.rule(rule, fields, object, at);
        }
        Value::Map(map)
    }

    fn unknown(&mut self, key: &Key, object: &'static Object) {
        if self.told.is_enough() {
            return;
        }
        let keys: Vec<&str> = object.keys.iter().map(|known| known.name).collect();
        let elsewhere: Vec<&str> = TOOLSETS
            .iter()
            .filter(|(_, other)| other.keys.iter().any(|known| known.name == key.name))
            .map(|(name, _)| *name)
            .collect();
        let is_toolset = TOOLSETS.iter().any(|(_, other)| std::ptr::eq(*other, object));
        let help = match nearest(&key.name, keys.iter().copied()) {
            Some(near) => format!("did you mean '{near}'?"),
            None if is_toolset && !elsewhere.is_empty() => {
                format!("'{}' is for toolsets of type {}", key.name, elsewhere.join(", "))
            }
            None => {
                let used = object.keys.iter().filter(|known| known.standing == Standing::Used);
                format!("known keys: {}", listed(&used.map(|known| known.name).collect::<Vec<_>>()))
            }
        };
        let path = join(&self.path, &key.name);
        let message = format!("unknown key '{}' in {}", shortened(&key.name), object.name);
        self.told.push(Problem::error(key.at, &path, message).help(help));
    }

    fn rule(&mut self, rule: &Rule, fields: &[(Key, Node)], object: &Object, at: Place) {
        let find = |name: &str| fields.iter().find(|(key, node)| key.name == name && node.kind != Kind::Null);
        match rule {
            Rule::Needs(keys) => {
                for name in *keys {
                    if find(name).is_some() {
                        continue;
                    }
                    let unknown = |key: &Key| object.keys.iter().all(|known| known.name != key.name);
                    let meant = |key: &Key| unknown(key) && nearest(&key.name, [*name]).is_some();
                    match fields.iter().find(|(key, _)| key.name == *name) {
                        Some((key, _)) => self.wrong(key.at, format!("'{name}' is empty")),
                        // A key that was mistyped has been told.
                        None if fields.iter().any(|(key, _)| meant(key)) => {}
                        None => self.wrong(at, format!("{} needs '{name}'", object.name)),
                    }
                }
            }
            Rule::OneOf(keys) => {
                let there: Vec<&Key> =
                    keys.iter().filter_map(|name| find(name)).map(|(key, _)| key).collect();
                match there.as_slice() {
                    [] => {
                        self.wrong(at, format!("{} needs one of {}", object.name, keys.join(", ")));
                    }
                    [_] => {}
                    [first, second, ..] => {
                        let message =
                            format!("{} has both '{}' and '{}'", object.name, first.name, second.name);
                        self.wrong_help(second.at, message, format!("keep one of {}", keys.join(", ")));
                    }
                }
            }
            Rule::AtMostOne(keys) => {
                let there: Vec<&Key> =
                    keys.iter().filter_map(|name| find(name)).map(|(key, _)| key).collect();
                if let [first, second, ..] = there.as_slice() {
                    let message = format!("{} has both '{}' and '{}'", object.name, first.name, second.name);
                    self.wrong_help(second.at, message, "keep one of them");
                }
            }
        }
    }

    fn toolset(&mut self, node: &Node, fields: &[(Key, Node)], at: Place) -> Option<Value> {
        let names: Vec<&str> = TOOLSETS.iter().map(|(name, _)| *name).collect();
        let Some(kind) = node.get("type") else {
            self.wrong_help(at, "this toolset has no type", format!("types: {}", listed(&names)));
            return None;
        };
        let Some(name) = kind.text() else {
            self.wrong(kind.at, format!("'type' must be a text, not {}", kind.what()));
            return None;
        };
        let path = join(&self.path, "type");
        let Some(object) = form::toolset(name) else {
            let shown = shortened(name);
            let help = instead(name, &names, "types");
            // A slip of the pen is an error; what another program knows, and this one does not, is left out.
            self.told.push(
                match nearest(name, names.iter().copied()) {
                    Some(_) => {
                        Problem::error(kind.at, &path, format!("there is no toolset of type '{shown}'"))
                    }
                    None => {
                        let message = format!("there is no toolset of type '{shown}': it is skipped");
                        Problem::warning(kind.at, &path, message)
                    }
                }
                .help(help),
            );
            let named = ("name".to_owned(), Value::Text(name.to_owned()));
            return Some(Value::Map(vec![("type".to_owned(), Value::Text("unknown".to_owned())), named]));
        };
        if matches!(name, "lsp" | "rag") {
            let message = format!("toolsets of type '{name}' are accepted, but Longhaul has no such tools");
            self.told.push(Problem::warning(kind.at, &path, message).help("the agent runs without it"));
        }
        Some(self.object(fields, object, at))
    }

    /// A map of commands, whichever way it is written.
    fn commands(&mut self, node: &Node) -> Value {
        let maps: Vec<(Option<usize>, &Node)> = match &node.kind {
            Kind::List(items) => items.iter().enumerate().map(|(index, item)| (Some(index), item)).collect(),
            _ => vec![(None, node)],
        };
        let mut commands: Vec<(String, Value)> = Vec::new();
        let mut had = HashSet::new();
        for (index, map) in maps {
            let Kind::Map(fields) = &map.kind else {
                self.wrong(map.at, format!("a list of commands has maps in it, and this is {}", map.what()));
                continue;
            };
            for (key, node) in fields {
                let path = match index {
                    Some(index) => join(&format!("{}[{index}]", self.path), &key.name),
                    None => join(&self.path, &key.name),
                };
                let value =
                    self.within(path, Spot { key: key.at, value: node.at }, |walk| match &node.kind {
                        Kind::Map(fields) => Some(walk.object(fields, &COMMAND, key.at)),
                        _ => walk
                            .take(node, &Type::Text, key.at)
                            .map(|text| Value::Map(vec![("instruction".to_owned(), text)])),
                    });
                if had.contains(key.name.as_str()) {
                    self.wrong(key.at, format!("the command '{}' comes twice", key.name));
                } else if let Some(value) = value {
                    had.insert(key.name.as_str());
                    commands.push((key.name.clone(), value));
                }
            }
        }
        Value::Map(commands)
    }
}

static FILE: Type = Type::Object(&form::TEAM);

static COMMAND: Object = Object {
    name: "a command",
    id: "Command",
    doc: "A prompt with a name.",
    keys: &[
        form::Key { name: "description", kind: Type::Text, doc: "What it does.", standing: Standing::Used },
        form::Key { name: "instruction", kind: Type::Text, doc: "The prompt.", standing: Standing::Used },
    ],
    rules: &[],
};

/// What stands for an entry that is wrong.
fn blank(kind: &Type) -> Value {
    match kind {
        Type::Object(_) | Type::Commands | Type::Map(_) => Value::Map(Vec::new()),
        Type::Either([Type::Object(_), ..]) => Value::Map(Vec::new()),
        Type::Either([Type::List(_), ..]) => Value::List(Vec::new()),
        Type::Toolset => Value::Map(vec![("type".to_owned(), Value::Text("wrong".to_owned()))]),
        Type::Text | Type::Variables => Value::Text(String::new()),
        _ => Value::Null,
    }
}

/// Whether a value has the shape of a type.
fn fits(node: &Node, kind: &Type) -> bool {
    match kind {
        Type::Text | Type::Variables | Type::Time | Type::Word(_) => node.text().is_some(),
        Type::Texts | Type::Names => node.text().is_some() || matches!(node.kind, Kind::List(_)),
        Type::Bool => matches!(node.kind, Kind::Bool(_)),
        Type::Whole(_) | Type::Number(..) => matches!(node.kind, Kind::Int(_) | Kind::Float(_)),
        Type::List(_) => matches!(node.kind, Kind::List(_)),
        Type::Map(_) | Type::Object(_) | Type::Toolset => matches!(node.kind, Kind::Map(_)),
        Type::Commands => matches!(node.kind, Kind::Map(_) | Kind::List(_)),
        Type::Either(kinds) => kinds.iter().any(|kind| fits(node, kind)),
        Type::Any => true,
    }
}

/// A tree as it is.
fn any(node: &Node) -> Value {
    match &node.kind {
        Kind::Null => Value::Null,
        Kind::Bool(value) => Value::Bool(*value),
        Kind::Int(value) => Value::Int(*value),
        Kind::Float(value) => Value::Float(*value),
        Kind::Text(text) => Value::Text(text.clone()),
        Kind::List(items) => Value::List(items.iter().map(any).collect()),
        Kind::Map(fields) => {
            Value::Map(fields.iter().map(|(key, node)| (key.name.clone(), any(node))).collect())
        }
    }
}

/// A time in nanoseconds.
fn time(node: &Node) -> Option<i64> {
    let time = match &node.kind {
        Kind::Int(seconds) => Duration::from_secs(u64::try_from(*seconds).ok()?),
        Kind::Float(seconds) => Duration::try_from_secs_f64(*seconds).ok()?,
        Kind::Text(text) => {
            let time: jiff::SignedDuration = text.trim().parse().ok()?;
            Duration::try_from(time).ok()?
        }
        _ => return None,
    };
    i64::try_from(time.as_nanos()).ok()
}

/// The place of a name within a text, where the text stands in one piece.
fn within(at: Place, text: &str, before: usize, name: &str) -> Place {
    let chars = |text: &str| u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
    if chars(text) != at.length {
        return at;
    }
    let skipped = text.get(..before).map_or(0, chars);
    Place { column: at.column.saturating_add(skipped), length: chars(name).max(1), ..at }
}

fn kind_name(path: &str) -> &str {
    let list = path.rsplit_once('[').map_or(path, |(list, _)| list);
    list.rsplit('.').next().unwrap_or(list)
}

/// The beginning of a text, fit for a message of one line.
pub(super) fn shortened(text: &str) -> String {
    const MOST: usize = 60;
    let line: String = text.chars().take(MOST).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().count() > MOST { format!("{}…", line.trim_end()) } else { line }
}
