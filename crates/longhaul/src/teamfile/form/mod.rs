//! The form of a team file, as data: the reader, the JSON schema and the help for typing errors all read these tables.

mod agent;
mod model;
mod schema;
mod team;
mod toolset;

pub use schema::schema;
pub(super) use team::TEAM;
pub(super) use toolset::TOOLSETS;

/// A map with known keys.
#[derive(Debug)]
pub(super) struct Object {
    /// What it is, in a message: "in an agent".
    pub(super) name: &'static str,
    /// Its name in the JSON schema.
    pub(super) id: &'static str,
    pub(super) doc: &'static str,
    pub(super) keys: &'static [Key],
    pub(super) rules: &'static [Rule],
}

/// A key of such a map.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) name: &'static str,
    pub(super) kind: Type,
    pub(super) doc: &'static str,
    pub(super) standing: Standing,
}

/// What becomes of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is used.
    Used,
    /// It is read, and nothing follows from it.
    Idle,
    /// An older spelling of another key.
    Was(&'static str),
    /// An older spelling of a toolset of this type.
    WasToolset,
}

/// What the keys of a map have to do with one another.
#[derive(Debug)]
pub(super) enum Rule {
    /// These must be there.
    Needs(&'static [&'static str]),
    /// Exactly one of these must be there.
    OneOf(&'static [&'static str]),
    /// At most one of these.
    AtMostOne(&'static [&'static str]),
}

/// The largest whole number.
pub(super) const MOST: i64 = 4_000_000_000;

/// What a value can be.
#[derive(Debug, Clone, Copy)]
pub(super) enum Type {
    /// A text, or any other scalar as it is written.
    Text,
    /// A text in which variables may stand.
    Variables,
    /// True or false.
    Bool,
    /// A whole number, at least this and at most [`MOST`].
    Whole(i64),
    /// A number within bounds.
    Number(f64, f64),
    /// A time: `90s`, `5m`, `1h30m`, or a number of seconds.
    Time,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Texts: a list, or one.
    Texts,
    /// Names: a list, or one text with commas between them.
    Names,
    /// A list.
    List(&'static Type),
    /// A map with keys of the writer's own.
    Map(&'static Type),
    /// A map with known keys.
    Object(&'static Object),
    /// The first of these whose shape fits.
    Either(&'static [Type]),
    /// A toolset: its `type` says which keys it has.
    Toolset,
    /// A map of names, or a list of such maps; each a text or a command.
    Commands,
    /// Whatever it is.
    Any,
}

const fn key(name: &'static str, kind: Type, doc: &'static str) -> Key {
    Key { name, kind, doc, standing: Standing::Used }
}

const fn idle(name: &'static str, kind: Type, doc: &'static str) -> Key {
    Key { name, kind, doc, standing: Standing::Idle }
}

const fn old(name: &'static str, kind: Type, now: &'static str) -> Key {
    Key { name, kind, doc: "An older spelling.", standing: Standing::Was(now) }
}

impl Type {
    /// What is expected, in words.
    pub(super) fn expected(&self) -> String {
        match self {
            Type::Text | Type::Variables => "a text".to_owned(),
            Type::Bool => "true or false".to_owned(),
            Type::Whole(least) if *least == 0 => format!("a whole number from 0 to {MOST}"),
            Type::Whole(least) => format!("a whole number from {least} to {MOST}"),
            Type::Number(least, most) if most.is_finite() => format!("a number from {least} to {most}"),
            Type::Number(least, _) => format!("a number, at least {least}"),
            Type::Time => "a time such as 30s, 5m or 1h30m".to_owned(),
            Type::Word(words) => words.join(", "),
            Type::Texts => "a list of texts".to_owned(),
            Type::Names => "a list of names".to_owned(),
            Type::List(_) => "a list".to_owned(),
            Type::Map(_) => "a map".to_owned(),
            Type::Object(object) => {
                let some: Vec<_> = object.keys.iter().take(3).map(|key| key.name).collect();
                format!("a map with keys such as {}", some.join(", "))
            }
            Type::Either(types) => types.iter().map(Type::expected).collect::<Vec<_>>().join(", or "),
            Type::Toolset => "a map with a type".to_owned(),
            Type::Commands => "a map of commands".to_owned(),
            Type::Any => "anything".to_owned(),
        }
    }
}

/// A toolset of this type.
pub(super) fn toolset(name: &str) -> Option<&'static Object> {
    TOOLSETS.iter().find(|(kind, _)| *kind == name).map(|(_, object)| *object)
}
