//! The form of a team file, as data: the reader, the JSON schema and the help for typing errors all read these tables.

mod agent;
mod model;
mod json_schema;
mod team;
mod toolset;

pub use json_schema::json_schema;
pub(super) use team::TEAM;
pub(super) use toolset::TOOLSETS;

/// A map with known keys.
#[derive(Debug)]
pub(super) struct ObjectSchema {
    /// What it is, in a message: "in an agent".
    pub(super) name: &'static str,
    /// Its name in the JSON schema.
    pub(super) id: &'static str,
    pub(super) doc: &'static str,
    pub(super) keys: &'static [KeySchema],
    pub(super) rules: &'static [KeyRule],
}

/// A key of such a map.
#[derive(Debug)]
pub(super) struct KeySchema {
    pub(super) name: &'static str,
    pub(super) kind: ValueType,
    pub(super) doc: &'static str,
    pub(super) status: KeyStatus,
}

/// What becomes of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyStatus {
    /// It is used.
    Used,
    /// It is read, and nothing follows from it.
    Ignored,
    /// An older spelling of another key.
    AliasOf(&'static str),
    /// An older spelling of a toolset of this type.
    AliasOfToolset,
}

/// What the keys of a map have to do with one another.
#[derive(Debug)]
pub(super) enum KeyRule {
    /// These must be there.
    Required(&'static [&'static str]),
    /// Exactly one of these must be there.
    OneOf(&'static [&'static str]),
    /// At most one of these.
    AtMostOne(&'static [&'static str]),
}

/// The largest whole number.
pub(super) const MAX_INTEGER: i64 = 4_000_000_000;

/// What a value can be.
#[derive(Debug, Clone, Copy)]
pub(super) enum ValueType {
    /// A text, or any other scalar as it is written.
    Text,
    /// A text in which variables may stand.
    TextWithVariables,
    /// True or false.
    Bool,
    /// A whole number, at least this and at most [`MOST`].
    Integer(i64),
    /// A number within bounds.
    Number(f64, f64),
    /// A time: `90s`, `5m`, `1h30m`, or a number of seconds.
    Duration,
    /// One of these words.
    Keyword(&'static [&'static str]),
    /// Texts: a list, or one.
    Texts,
    /// Names: a list, or one text with commas between them.
    Names,
    /// A list.
    List(&'static ValueType),
    /// A map with keys of the writer's own.
    Map(&'static ValueType),
    /// A map with known keys.
    Object(&'static ObjectSchema),
    /// The first of these whose shape fits.
    AnyOf(&'static [ValueType]),
    /// A toolset: its `type` says which keys it has.
    Toolset,
    /// A map of names, or a list of such maps; each a text or a command.
    Commands,
    /// Whatever it is.
    Any,
}

const fn key(name: &'static str, kind: ValueType, doc: &'static str) -> KeySchema {
    KeySchema { name, kind, doc, status: KeyStatus::Used }
}

const fn ignored_key(name: &'static str, kind: ValueType, doc: &'static str) -> KeySchema {
    KeySchema { name, kind, doc, status: KeyStatus::Ignored }
}

const fn alias_key(name: &'static str, kind: ValueType, now: &'static str) -> KeySchema {
    KeySchema { name, kind, doc: "An older spelling.", status: KeyStatus::AliasOf(now) }
}

impl ValueType {
    /// What is expected, in words.
    pub(super) fn expected(&self) -> String {
        match self {
            ValueType::Text | ValueType::TextWithVariables => "a text".to_owned(),
            ValueType::Bool => "true or false".to_owned(),
            ValueType::Integer(least) if *least == 0 => format!("a whole number from 0 to {MAX_INTEGER}"),
            ValueType::Integer(least) => format!("a whole number from {least} to {MAX_INTEGER}"),
            ValueType::Number(least, most) if most.is_finite() => format!("a number from {least} to {most}"),
            ValueType::Number(least, _) => format!("a number, at least {least}"),
            ValueType::Duration => "a time such as 30s, 5m or 1h30m".to_owned(),
            ValueType::Keyword(words) => words.join(", "),
            ValueType::Texts => "a list of texts".to_owned(),
            ValueType::Names => "a list of names".to_owned(),
            ValueType::List(_) => "a list".to_owned(),
            ValueType::Map(_) => "a map".to_owned(),
            ValueType::Object(object) => {
                let some: Vec<_> = object.keys.iter().take(3).map(|key| key.name).collect();
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

/// A toolset of this type.
pub(super) fn toolset_schema(name: &str) -> Option<&'static ObjectSchema> {
    TOOLSETS.iter().find(|(kind, _)| *kind == name).map(|(_, object)| *object)
}
