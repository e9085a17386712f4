//! Which JSON schema each provider takes.

/// The JSON schema of a provider.
#[derive(Debug)]
pub(crate) struct Dialect {
    /// What people call it.
    pub(crate) name: &'static str,
    /// The keywords that may stand in a schema. What the others say is said in the description.
    pub(crate) keywords: &'static [&'static str],
    /// The formats of strings that are known.
    pub(crate) formats: &'static [&'static str],
    /// Whether every schema must say its type, one type, and `anyOf` must stand alone.
    pub(crate) plain: bool,
    /// Whether names of arguments are at most 64 of `a-z A-Z 0-9 _ . -`.
    pub(crate) short_keys: bool,
    /// Whether objects have the properties that are named, and no others.
    pub(crate) closed: bool,
    /// Whether every property must be required.
    pub(crate) all_required: bool,
    /// Whether an answer must be an object.
    pub(crate) object_root: bool,
}

const FORMATS: &[&str] =
    &["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"];

/// OpenAI's functions, and answers that it is not strictly held to.
pub(crate) const OPENAI: Dialect = Dialect {
    name: "OpenAI",
    keywords: &[
        "type",
        "description",
        "title",
        "default",
        "enum",
        "const",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "minItems",
        "maxItems",
        "anyOf",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "minLength",
        "maxLength",
        "pattern",
        "format",
    ],
    formats: FORMATS,
    plain: false,
    short_keys: false,
    closed: false,
    all_required: false,
    object_root: true,
};

/// Answers that OpenAI holds a model to (`strict: true`).
pub(crate) const OPENAI_STRICT: Dialect = Dialect {
    name: "OpenAI, strict",
    keywords: &[
        "type",
        "description",
        "title",
        "enum",
        "const",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "minItems",
        "maxItems",
        "anyOf",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "pattern",
        "format",
    ],
    closed: true,
    all_required: true,
    ..OPENAI
};

/// Servers of one's own, which make a grammar of a schema: patterns and numbers are more than most of them can do.
pub(crate) const LOCAL: Dialect = Dialect {
    name: "a local server",
    keywords: &[
        "type",
        "description",
        "title",
        "enum",
        "const",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "minItems",
        "maxItems",
        "anyOf",
        "minLength",
        "maxLength",
        "format",
    ],
    formats: &["date", "time", "date-time", "uuid"],
    ..OPENAI
};

/// The arguments of Anthropic's tools.
pub(crate) const ANTHROPIC: Dialect =
    Dialect { name: "Anthropic", short_keys: true, object_root: false, ..OPENAI };

/// Answers that Anthropic holds a model to.
pub(crate) const ANTHROPIC_OUTPUT: Dialect = Dialect {
    name: "Anthropic, output",
    keywords: &[
        "type",
        "description",
        "title",
        "enum",
        "const",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "minItems",
        "anyOf",
        "format",
    ],
    formats: &["date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"],
    closed: true,
    ..ANTHROPIC
};

/// Gemini's functions and answers.
pub(crate) const GEMINI: Dialect = Dialect {
    name: "Gemini",
    keywords: &[
        "type",
        "description",
        "title",
        "enum",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "minItems",
        "maxItems",
        "anyOf",
        "minimum",
        "maximum",
        "format",
    ],
    formats: &["date-time", "date", "time"],
    plain: true,
    object_root: false,
    ..OPENAI
};
