//! The schema of a team file, as data: the reader, the JSON schema and the suggestions all use the tables that
//! [`config`](super::config) declares.

mod json_schema;

pub(super) use super::config::{TEAM, TOOLSETS};
pub use json_schema::json_schema;

/// A map with known keys.
#[derive(Debug)]
pub(super) struct ObjectSchema {
    /// Its name in a message: "in an agent".
    pub(super) name: &'static str,
    /// Its name in the JSON schema.
    pub(super) id: &'static str,
    pub(super) doc: &'static str,
    /// Keys that other maps have, too.
    pub(super) shared: &'static [KeySchema],
    pub(super) keys: &'static [KeySchema],
    pub(super) rules: &'static [KeyRule],
}

impl ObjectSchema {
    /// A map with this name, id and description.
    pub(super) const fn new(
        (name, id, doc): (&'static str, &'static str, &'static str),
        keys: &'static [KeySchema],
        rules: &'static [KeyRule],
    ) -> ObjectSchema {
        ObjectSchema { name, id, doc, shared: &[], keys, rules }
    }

    pub(super) const fn with_shared(self, shared: &'static [KeySchema]) -> ObjectSchema {
        ObjectSchema { shared, ..self }
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &'static KeySchema> + use<> {
        self.shared.iter().chain(self.keys)
    }
}

/// A key of such a map.
#[derive(Debug)]
pub(super) struct KeySchema {
    pub(super) name: &'static str,
    pub(super) kind: ValueType,
    pub(super) doc: &'static str,
    pub(super) status: KeyStatus,
}

/// How a key is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyStatus {
    /// It is used.
    Used,
    /// It is accepted without effect.
    Ignored,
    /// An older spelling of another key.
    AliasOf(&'static str),
    /// An older spelling of a toolset of this type.
    AliasOfToolset,
}

/// A rule about the keys of a map.
#[derive(Debug)]
pub(super) enum KeyRule {
    /// These are required.
    Required(&'static [&'static str]),
    /// Exactly one of these is required.
    OneOf(&'static [&'static str]),
    /// At most one of these is allowed.
    AtMostOne(&'static [&'static str]),
}

/// The largest integer.
pub(super) const MAX_INTEGER: i64 = 4_000_000_000;

/// The type of a value.
#[derive(Debug, Clone, Copy)]
pub(super) enum ValueType {
    /// A text, or any other scalar as it is written.
    Text,
    /// A text that may contain variables.
    TextWithVariables,
    /// True or false.
    Bool,
    /// An integer, at least this and at most [`MAX_INTEGER`].
    Integer(i64),
    /// A number in a range.
    Number(f64, f64),
    /// A duration: `90s`, `5m`, `1h30m`, or a number of seconds.
    Duration,
    /// One of these words.
    Keyword(&'static [&'static str]),
    /// A list of texts, or one text.
    Texts,
    /// A list of names, or one comma-separated text.
    Names,
    /// A list.
    List(&'static ValueType),
    /// A map with free keys.
    Map(&'static ValueType),
    /// A map with known keys.
    Object(&'static ObjectSchema),
    /// The first of these that matches.
    AnyOf(&'static [ValueType]),
    /// A toolset: its `type` determines its keys.
    Toolset,
    /// A map of names, or a list of such maps; each value is a text or a command.
    Commands,
    /// Any value.
    Any,
}

pub(super) const fn key(name: &'static str, kind: ValueType, doc: &'static str) -> KeySchema {
    KeySchema { name, kind, doc, status: KeyStatus::Used }
}

pub(super) const fn ignored_key(name: &'static str, kind: ValueType, doc: &'static str) -> KeySchema {
    KeySchema { name, kind, doc, status: KeyStatus::Ignored }
}

pub(super) const fn alias_key(name: &'static str, kind: ValueType, now: &'static str) -> KeySchema {
    KeySchema { name, kind, doc: "An older spelling.", status: KeyStatus::AliasOf(now) }
}

impl ValueType {
    /// A description of the type for messages.
    pub(super) fn expected(&self) -> String {
        match self {
            ValueType::Text | ValueType::TextWithVariables => "a string".to_owned(),
            ValueType::Bool => "true or false".to_owned(),
            ValueType::Integer(least) if *least == 0 => format!("a whole number from 0 to {MAX_INTEGER}"),
            ValueType::Integer(least) => format!("a whole number from {least} to {MAX_INTEGER}"),
            ValueType::Number(least, most) if most.is_finite() => format!("a number from {least} to {most}"),
            ValueType::Number(least, _) => format!("a number, at least {least}"),
            ValueType::Duration => "a time such as 30s, 5m or 1h30m".to_owned(),
            ValueType::Keyword(words) => words.join(", "),
            ValueType::Texts => "a list of strings".to_owned(),
            ValueType::Names => "a list of names".to_owned(),
            ValueType::List(_) => "a list".to_owned(),
            ValueType::Map(_) => "a map".to_owned(),
            ValueType::Object(object) => {
                let some: Vec<_> = object.keys().take(3).map(|key| key.name).collect();
                format!("a map with keys such as {}", some.join(", "))
            }
            ValueType::AnyOf(types) => {
                types.iter().map(ValueType::expected).collect::<Vec<_>>().join(", or ")
            }
            ValueType::Toolset => "a map with a type".to_owned(),
            ValueType::Commands => "a map of commands".to_owned(),
            ValueType::Any => "anything".to_owned(),
        }
    }
}

/// The schema of a toolset type.
pub(super) fn toolset_schema(name: &str) -> Option<&'static ObjectSchema> {
    TOOLSETS.iter().find(|(kind, _)| *kind == name).map(|(_, object)| *object)
}
