//! Reads a YAML tree by the tables of [`file_schema`](super::file_schema): reports every error, and
//! normalizes everything else.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::config::COMMAND;
use super::file_schema::{self, KeyRule, KeyStatus, ObjectSchema, TOOLSETS, ValueType};
use super::normal_value::NormalValue;
use super::problem::{Problem, ProblemList, SourceSpan};
use super::suggestions::{join_bounded, nearest, suggest};
use super::yaml::{YamlKey, YamlKind, YamlNode};

/// The maximum number of names in a comma-separated text.
const MOST_NAMES: usize = 1000;

/// The spans of a key and its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KeyValueSpans {
    pub(super) key: SourceSpan,
    pub(super) value: SourceSpan,
}

/// The spans of everything in the file, by path.
pub(super) type SpanIndex = HashMap<String, KeyValueSpans>;

/// Reads a tree, and collects spans and problems.
#[derive(Default)]
pub(super) struct TeamFileReader {
    path: String,
    pub(super) problems: ProblemList,
    pub(super) spans: SpanIndex,
}

/// Appends a key to a path.
pub(super) fn join_path(path: &str, key: &str) -> String {
    let plain = !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-'));
    match (path.is_empty(), plain) {
        (true, true) => key.to_owned(),
        (true, false) => format!("{key:?}"),
        (false, true) => format!("{path}.{key}"),
        (false, false) => format!("{path}.{key:?}"),
    }
}

impl TeamFileReader {
    /// Reads a whole file.
    pub(super) fn read_team(&mut self, node: &YamlNode) -> Option<NormalValue> {
        self.read_value(node, &FILE, node.at)
    }

    fn wrong(&mut self, at: SourceSpan, message: impl Into<String>) {
        self.problems.push(Problem::error(at, &self.path, message));
    }

    fn wrong_help(&mut self, at: SourceSpan, message: impl Into<String>, help: impl Into<String>) {
        self.problems.push(Problem::error(at, &self.path, message).with_help(help));
    }

    fn warn(&mut self, at: SourceSpan, message: impl Into<String>, help: impl Into<String>) {
        self.problems.push(Problem::warning(at, &self.path, message).with_help(help));
    }

    /// Runs `f` inside a key or an item.
    fn within<T>(&mut self, path: String, spot: KeyValueSpans, f: impl FnOnce(&mut Self) -> T) -> T {
        let outer = std::mem::replace(&mut self.path, path);
        self.spans.insert(self.path.clone(), spot);
        let result = f(self);
        self.path = outer;
        result
    }

    fn at_key<T>(&mut self, key: &YamlKey, node: &YamlNode, f: impl FnOnce(&mut Self) -> T) -> T {
        // An empty value has the span of its key.
        let value = if node.kind == YamlKind::Null { key.at } else { node.at };
        self.within(join_path(&self.path, &key.name), KeyValueSpans { key: key.at, value }, f)
    }

    fn at_item<T>(&mut self, index: usize, at: SourceSpan, f: impl FnOnce(&mut Self) -> T) -> T {
        self.within(format!("{}[{index}]", self.path), KeyValueSpans { key: at, value: at }, f)
    }

    /// A description of the value that is being read.
    fn name(&self) -> String {
        match self.path.as_str() {
            "" => "a team file".to_owned(),
            path if path.ends_with(']') => format!("an item of '{}'", kind_name(path)),
            path => format!("'{}'", path.rsplit('.').next().unwrap_or(path)),
        }
    }

    /// The normalized value; `None` if it is missing, or wrong and already reported.
    fn read_value(
        &mut self,
        node: &YamlNode,
        kind: &'static ValueType,
        at: SourceSpan,
    ) -> Option<NormalValue> {
        if node.kind == YamlKind::Null {
            return match kind {
                ValueType::Object(object) => Some(self.object(&[], object, at)),
                ValueType::Map(_) => Some(NormalValue::Map(Vec::new())),
                ValueType::Toolset => self.mismatch(node, kind),
                _ => None,
            };
        }
        match (kind, &node.kind) {
            (ValueType::Text | ValueType::TextWithVariables, _) => match node.as_text() {
                Some(text) => Some(NormalValue::Text(text.to_owned())),
                None => self.mismatch(node, kind),
            },
            (ValueType::Bool, YamlKind::Bool(value)) => Some(NormalValue::Bool(*value)),
            (ValueType::Integer(least), YamlKind::Int(value))
                if (*least..=file_schema::MAX_INTEGER).contains(value) =>
            {
                Some(NormalValue::Int(*value))
            }
            (ValueType::Number(least, most), YamlKind::Int(_) | YamlKind::Float(_)) => {
                let value = match node.kind {
                    YamlKind::Int(value) => value as f64,
                    YamlKind::Float(value) => value,
                    _ => f64::NAN,
                };
                match value.is_finite() && (*least..=*most).contains(&value) {
                    true => Some(NormalValue::Float(value)),
                    false => self.mismatch(node, kind),
                }
            }
            (ValueType::Duration, _) => match parse_duration(node) {
                Some(time) => Some(NormalValue::Int(time)),
                None => self.mismatch(node, kind),
            },
            (ValueType::Keyword(words), _) if node.as_text().is_some() => self.word(node, words),
            (ValueType::Texts | ValueType::Names, _) => self.texts(node, kind),
            (ValueType::List(item), YamlKind::List(nodes)) => {
                let mut list = Vec::with_capacity(nodes.len());
                for (index, node) in nodes.iter().enumerate() {
                    let value = self.at_item(index, node.at, |walk| walk.read_value(node, item, node.at));
                    // Keep its place, so that later items keep their index in the file.
                    list.push(value.unwrap_or_else(|| blank(item)));
                }
                Some(NormalValue::List(list))
            }
            (ValueType::Map(item), YamlKind::Map(fields)) => {
                let mut map = Vec::with_capacity(fields.len());
                for (key, node) in fields {
                    let value = self.at_key(key, node, |walk| walk.read_value(node, item, key.at));
                    // Keep the name, even if its value is wrong, so that references to it are not reported
                    // too.
                    map.push((key.name.clone(), value.unwrap_or_else(|| blank(item))));
                }
                map.retain(|(_, value)| *value != NormalValue::Null);
                Some(NormalValue::Map(map))
            }
            (ValueType::Object(object), YamlKind::Map(fields)) => Some(self.object(fields, object, at)),
            (ValueType::AnyOf(kinds), _) => match kinds.iter().find(|kind| matches_type(node, kind)) {
                Some(kind) => self.read_value(node, kind, at),
                None => self.mismatch(node, kind),
            },
            (ValueType::Toolset, YamlKind::Map(fields)) => self.toolset(node, fields, at),
            (ValueType::Toolset, YamlKind::Text(text)) if file_schema::toolset_schema(text).is_some() => {
                self.wrong_help(
                    node.at,
                    "a toolset must be a map with a type, not a string",
                    format!("write `- type: {text}`"),
                );
                None
            }
            (ValueType::Commands, YamlKind::Map(_) | YamlKind::List(_)) => Some(self.commands(node)),
            (ValueType::Any, _) => Some(to_normal_value(node)),
            _ => self.mismatch(node, kind),
        }
    }

    fn mismatch(&mut self, node: &YamlNode, kind: &ValueType) -> Option<NormalValue> {
        let found = match node.as_text() {
            Some(text) => format!("'{}'", shorten(text)),
            None => node.describe().to_owned(),
        };
        let message = format!("{} must be {}, not {found}", self.name(), kind.expected());
        self.wrong(node.at, message);
        None
    }

    fn word(&mut self, node: &YamlNode, words: &[&'static str]) -> Option<NormalValue> {
        let text = node.as_text().unwrap_or_default();
        if let Some(word) = words.iter().find(|word| word.eq_ignore_ascii_case(text)) {
            return Some(NormalValue::Text((*word).to_owned()));
        }
        let message = format!("{} cannot be '{}'", self.name(), shorten(text));
        self.wrong_help(node.at, message, suggest(text, words, "it can be"));
        None
    }

    fn texts(&mut self, node: &YamlNode, kind: &'static ValueType) -> Option<NormalValue> {
        let mut list = Vec::new();
        match (&node.kind, node.as_text()) {
            (YamlKind::List(nodes), _) => {
                for (index, node) in nodes.iter().enumerate() {
                    let value = self.at_item(index, node.at, |walk| {
                        let text = node.as_text().map(|text| NormalValue::Text(text.trim().to_owned()));
                        if text.is_none() {
                            let message = format!(
                                "'{}' must be a list of strings, not {}",
                                kind_name(&walk.path),
                                node.describe()
                            );
                            walk.wrong(node.at, message);
                        }
                        text
                    });
                    list.push(value.unwrap_or_else(|| NormalValue::Text(String::new())));
                }
            }
            (_, Some(text)) if matches!(kind, ValueType::Names) => {
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
                        list.push(NormalValue::Text(name.to_owned()));
                    }
                    before += piece.len() + 1;
                }
            }
            (_, Some(text)) => {
                self.at_item(0, node.at, |_| {});
                list.push(NormalValue::Text(text.to_owned()));
            }
            _ => return self.mismatch(node, kind),
        }
        Some(NormalValue::List(list))
    }

    fn object(
        &mut self,
        fields: &[(YamlKey, YamlNode)],
        object: &'static ObjectSchema,
        at: SourceSpan,
    ) -> NormalValue {
        let mut map: Vec<(String, NormalValue)> = Vec::with_capacity(fields.len());
        for (key, node) in fields {
            let Some(known) = object.keys().find(|known| known.name == key.name) else {
                self.unknown(key, object);
                continue;
            };
            let value = self.at_key(key, node, |walk| {
                if known.status == KeyStatus::Ignored
                    && !matches!(node.kind, YamlKind::Null | YamlKind::Bool(false))
                {
                    let message = format!("'{}' is accepted, but Longhaul does not use it", known.name);
                    walk.warn(key.at, message, "the team runs as if it were not there");
                }
                walk.read_value(node, &known.kind, key.at)
            });
            let name = match known.status {
                KeyStatus::AliasOf(now) => now,
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
        NormalValue::Map(map)
    }

    fn unknown(&mut self, key: &YamlKey, object: &'static ObjectSchema) {
        if self.problems.is_full() {
            return;
        }
        let keys: Vec<&str> = object.keys().map(|known| known.name).collect();
        let elsewhere: Vec<&str> = TOOLSETS
            .iter()
            .filter(|(_, other)| other.keys().any(|known| known.name == key.name))
            .map(|(name, _)| *name)
            .collect();
        let is_toolset = TOOLSETS.iter().any(|(_, other)| std::ptr::eq(*other, object));
        let help = match nearest(&key.name, keys.iter().copied()) {
            Some(near) => format!("did you mean '{near}'?"),
            None if is_toolset && !elsewhere.is_empty() => {
                format!("'{}' is for toolsets of type {}", key.name, elsewhere.join(", "))
            }
            None => {
                let used = object.keys().filter(|known| known.status == KeyStatus::Used);
                format!("known keys: {}", join_bounded(&used.map(|known| known.name).collect::<Vec<_>>()))
            }
        };
        let path = join_path(&self.path, &key.name);
        let message = format!("unknown key '{}' in {}", shorten(&key.name), object.name);
        self.problems.push(Problem::error(key.at, &path, message).with_help(help));
    }

    fn rule(
        &mut self,
        rule: &KeyRule,
        fields: &[(YamlKey, YamlNode)],
        object: &ObjectSchema,
        at: SourceSpan,
    ) {
        let find =
            |name: &str| fields.iter().find(|(key, node)| key.name == name && node.kind != YamlKind::Null);
        match rule {
            KeyRule::Required(keys) => {
                for name in *keys {
                    if find(name).is_some() {
                        continue;
                    }
                    let unknown = |key: &YamlKey| object.keys().all(|known| known.name != key.name);
                    let meant = |key: &YamlKey| unknown(key) && nearest(&key.name, [*name]).is_some();
                    match fields.iter().find(|(key, _)| key.name == *name) {
                        Some((key, _)) => self.wrong(key.at, format!("'{name}' is empty")),
                        // A mistyped key is already reported.
                        None if fields.iter().any(|(key, _)| meant(key)) => {}
                        None => self.wrong(at, format!("{} needs '{name}'", object.name)),
                    }
                }
            }
            KeyRule::OneOf(keys) | KeyRule::AtMostOne(keys) => {
                let there: Vec<&YamlKey> =
                    keys.iter().filter_map(|name| find(name)).map(|(key, _)| key).collect();
                let (needed, all) = (matches!(rule, KeyRule::OneOf(_)), keys.join(", "));
                if let [first, second, ..] = there.as_slice() {
                    let message = format!("{} has both '{}' and '{}'", object.name, first.name, second.name);
                    let which = if needed { &all } else { "them" };
                    self.wrong_help(second.at, message, format!("keep one of {which}"));
                } else if needed && there.is_empty() {
                    self.wrong(at, format!("{} needs one of {all}", object.name));
                }
            }
        }
    }

    fn toolset(
        &mut self,
        node: &YamlNode,
        fields: &[(YamlKey, YamlNode)],
        at: SourceSpan,
    ) -> Option<NormalValue> {
        let names: Vec<&str> = TOOLSETS.iter().map(|(name, _)| *name).collect();
        let Some(kind) = node.get("type") else {
            self.wrong_help(at, "this toolset has no type", format!("types: {}", join_bounded(&names)));
            return None;
        };
        let Some(name) = kind.as_text() else {
            self.wrong(kind.at, format!("'type' must be a string, not {}", kind.describe()));
            return None;
        };
        let path = join_path(&self.path, "type");
        let Some(object) = file_schema::toolset_schema(name) else {
            let shown = shorten(name);
            let help = suggest(name, &names, "types");
            // A typo is an error; a type that another runtime knows is skipped.
            self.problems.push(
                match nearest(name, names.iter().copied()) {
                    Some(_) => {
                        Problem::error(kind.at, &path, format!("there is no toolset of type '{shown}'"))
                    }
                    None => {
                        let message = format!("there is no toolset of type '{shown}': it is skipped");
                        Problem::warning(kind.at, &path, message)
                    }
                }
                .with_help(help),
            );
            let named = ("name".to_owned(), NormalValue::Text(name.to_owned()));
            return Some(NormalValue::Map(vec![
                ("type".to_owned(), NormalValue::Text("unknown".to_owned())),
                named,
            ]));
        };
        if matches!(name, "lsp" | "rag") {
            let message = format!("toolsets of type '{name}' are accepted, but Longhaul has no such tools");
            self.problems
                .push(Problem::warning(kind.at, &path, message).with_help("the agent runs without it"));
        }
        Some(self.object(fields, object, at))
    }

    /// Reads a map of commands in either spelling.
    fn commands(&mut self, node: &YamlNode) -> NormalValue {
        let maps: Vec<(Option<usize>, &YamlNode)> = match &node.kind {
            YamlKind::List(items) => {
                items.iter().enumerate().map(|(index, item)| (Some(index), item)).collect()
            }
            _ => vec![(None, node)],
        };
        let mut commands: Vec<(String, NormalValue)> = Vec::new();
        let mut had = HashSet::new();
        for (index, map) in maps {
            let YamlKind::Map(fields) = &map.kind else {
                self.wrong(map.at, format!("a list of commands must contain maps, not {}", map.describe()));
                continue;
            };
            for (key, node) in fields {
                let path = match index {
                    Some(index) => join_path(&format!("{}[{index}]", self.path), &key.name),
                    None => join_path(&self.path, &key.name),
                };
                let value = self.within(path, KeyValueSpans { key: key.at, value: node.at }, |walk| {
                    match &node.kind {
                        YamlKind::Map(fields) => Some(walk.object(fields, &COMMAND, key.at)),
                        _ => walk
                            .read_value(node, &ValueType::Text, key.at)
                            .map(|text| NormalValue::Map(vec![("instruction".to_owned(), text)])),
                    }
                });
                if had.contains(key.name.as_str()) {
                    self.wrong(key.at, format!("the command '{}' comes twice", key.name));
                } else if let Some(value) = value {
                    had.insert(key.name.as_str());
                    commands.push((key.name.clone(), value));
                }
            }
        }
        NormalValue::Map(commands)
    }
}

static FILE: ValueType = ValueType::Object(&file_schema::TEAM);

/// A placeholder for a value with an error.
fn blank(kind: &ValueType) -> NormalValue {
    match kind {
        ValueType::Object(_) | ValueType::Commands | ValueType::Map(_) => NormalValue::Map(Vec::new()),
        ValueType::AnyOf([ValueType::Object(_), ..]) => NormalValue::Map(Vec::new()),
        ValueType::AnyOf([ValueType::List(_), ..]) => NormalValue::List(Vec::new()),
        ValueType::Toolset => {
            NormalValue::Map(vec![("type".to_owned(), NormalValue::Text("wrong".to_owned()))])
        }
        ValueType::Text | ValueType::TextWithVariables => NormalValue::Text(String::new()),
        _ => NormalValue::Null,
    }
}

fn matches_type(node: &YamlNode, kind: &ValueType) -> bool {
    match kind {
        ValueType::Text | ValueType::TextWithVariables | ValueType::Duration | ValueType::Keyword(_) => {
            node.as_text().is_some()
        }
        ValueType::Texts | ValueType::Names => {
            node.as_text().is_some() || matches!(node.kind, YamlKind::List(_))
        }
        ValueType::Bool => matches!(node.kind, YamlKind::Bool(_)),
        ValueType::Integer(_) | ValueType::Number(..) => {
            matches!(node.kind, YamlKind::Int(_) | YamlKind::Float(_))
        }
        ValueType::List(_) => matches!(node.kind, YamlKind::List(_)),
        ValueType::Map(_) | ValueType::Object(_) | ValueType::Toolset => {
            matches!(node.kind, YamlKind::Map(_))
        }
        ValueType::Commands => matches!(node.kind, YamlKind::Map(_) | YamlKind::List(_)),
        ValueType::AnyOf(kinds) => kinds.iter().any(|kind| matches_type(node, kind)),
        ValueType::Any => true,
    }
}

/// Converts a tree without a schema.
fn to_normal_value(node: &YamlNode) -> NormalValue {
    match &node.kind {
        YamlKind::Null => NormalValue::Null,
        YamlKind::Bool(value) => NormalValue::Bool(*value),
        YamlKind::Int(value) => NormalValue::Int(*value),
        YamlKind::Float(value) => NormalValue::Float(*value),
        YamlKind::Text(text) => NormalValue::Text(text.clone()),
        YamlKind::List(items) => NormalValue::List(items.iter().map(to_normal_value).collect()),
        YamlKind::Map(fields) => NormalValue::Map(
            fields.iter().map(|(key, node)| (key.name.clone(), to_normal_value(node))).collect(),
        ),
    }
}

/// Parses a duration in nanoseconds.
fn parse_duration(node: &YamlNode) -> Option<i64> {
    let time = match &node.kind {
        YamlKind::Int(seconds) => Duration::from_secs(u64::try_from(*seconds).ok()?),
        YamlKind::Float(seconds) => Duration::try_from_secs_f64(*seconds).ok()?,
        YamlKind::Text(text) => {
            let time: jiff::SignedDuration = text.trim().parse().ok()?;
            Duration::try_from(time).ok()?
        }
        _ => return None,
    };
    i64::try_from(time.as_nanos()).ok()
}

/// The span of a name within a text, if the text is on one line.
fn within(at: SourceSpan, text: &str, before: usize, name: &str) -> SourceSpan {
    let chars = |text: &str| u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
    if chars(text) != at.length {
        return at;
    }
    let skipped = text.get(..before).map_or(0, chars);
    SourceSpan { column: at.column.saturating_add(skipped), length: chars(name).max(1), ..at }
}

fn kind_name(path: &str) -> &str {
    let list = path.rsplit_once('[').map_or(path, |(list, _)| list);
    list.rsplit('.').next().unwrap_or(list)
}

/// The beginning of a text, for a one-line message.
pub(super) fn shorten(text: &str) -> String {
    const MOST: usize = 60;
    let line: String = text.chars().take(MOST).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().count() > MOST { format!("{}…", line.trim_end()) } else { line }
}
