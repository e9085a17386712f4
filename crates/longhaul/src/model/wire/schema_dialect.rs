//! Which JSON schema each provider takes. Each dialect names the document that says so; `published_tests.rs` holds captured
//! bodies against an independent statement of the same documents.

/// The JSON schema of a provider.
#[derive(Debug)]
pub(crate) struct SchemaDialect {
    /// What people call it.
    pub(crate) name: &'static str,
    /// The keywords that may stand in a schema. What the others say is said in the description.
    pub(crate) keywords: &'static [&'static str],
    /// The formats of strings that are known.
    pub(crate) formats: &'static [&'static str],
    /// Whether every schema must say its type, one type, and `anyOf` must stand alone.
    pub(crate) explicit_types: bool,
    /// Whether names of arguments are at most 64 of `a-z A-Z 0-9 _ . -`.
    pub(crate) short_keys: bool,
    /// Whether objects have the properties that are named, and no others.
    pub(crate) closed_objects: bool,
    /// Whether every property must be required.
    pub(crate) all_required: bool,
    /// Whether an answer must be an object.
    pub(crate) object_root: bool,
    /// Whether `enum` and `const` may only have texts, numbers, booleans and null.
    pub(crate) plain_values: bool,
    /// How much an answer may have of everything.
    pub(crate) limits: SchemaLimits,
}

/// How much a schema of an answer may have of everything.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SchemaLimits {
    /// Properties, in all objects together.
    pub(crate) properties: usize,
    /// Properties that are not required.
    pub(crate) optional: usize,
    /// Places with `anyOf` or several types.
    pub(crate) unions: usize,
    /// Objects within objects.
    pub(crate) depth: usize,
    /// Values of all `enum`s together.
    pub(crate) values: usize,
    /// Letters in names of properties and in values.
    pub(crate) letters: usize,
    /// Letters in the values of an `enum` that has more than 250 of them.
    pub(crate) letters_of_one: usize,
}

impl SchemaLimits {
    const NONE: SchemaLimits = SchemaLimits {
        properties: usize::MAX,
        optional: usize::MAX,
        unions: usize::MAX,
        depth: usize::MAX,
        values: usize::MAX,
        letters: usize::MAX,
        letters_of_one: usize::MAX,
    };
}

const FORMATS: &[&str] =
    &["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"];

/// OpenAI's functions, and answers that it is not strictly held to.
///
/// Published is only that `parameters` are a JSON schema (`FunctionParameters` in openai-openapi). The API answers 400 to more:
/// no object at the top, alternatives there, an array without `items`, an object without `properties`. Keywords that say
/// something else than these do are put into words, for the many servers that speak this protocol and know less.
pub(crate) const OPENAI: SchemaDialect = SchemaDialect {
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
    explicit_types: false,
    short_keys: false,
    closed_objects: false,
    all_required: false,
    object_root: true,
    plain_values: false,
    limits: SchemaLimits::NONE,
};

/// Answers that OpenAI holds a model to (`strict: true`): "Supported schemas" of its guide "Structured model outputs".
pub(crate) const OPENAI_STRICT: SchemaDialect = SchemaDialect {
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
    closed_objects: true,
    all_required: true,
    plain_values: true,
    limits: SchemaLimits {
        properties: 5_000,
        depth: 10,
        values: 1_000,
        letters: 120_000,
        letters_of_one: 15_000,
        ..SchemaLimits::NONE
    },
    ..OPENAI
};

/// The same for models that were tuned, which know no bounds: "Some type-specific keywords are not yet supported".
pub(crate) const OPENAI_STRICT_TUNED: SchemaDialect = SchemaDialect {
    name: "OpenAI, strict, tuned",
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
        "anyOf",
    ],
    formats: &[],
    ..OPENAI_STRICT
};

/// The strict dialect for a model of OpenAI's.
pub(crate) fn openai_strict(model: &str) -> &'static SchemaDialect {
    if model.starts_with("ft:") { &OPENAI_STRICT_TUNED } else { &OPENAI_STRICT }
}

/// Servers of one's own, which make a grammar of a schema: patterns and numbers are more than most of them can do.
pub(crate) const LOCAL: SchemaDialect = SchemaDialect {
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

/// The arguments of Anthropic's tools: a JSON schema of draft 2020-12 (`ToolParam` of its SDKs). The API refuses alternatives at the
/// top, and names that are not `^[a-zA-Z0-9_.-]{1,64}$`.
pub(crate) const ANTHROPIC: SchemaDialect =
    SchemaDialect { name: "Anthropic", short_keys: true, object_root: false, ..OPENAI };

/// Answers that Anthropic holds a model to: "JSON Schema limitations" of "Structured outputs", as `transform_schema` of its SDKs
/// has it. Of 16 unions, which is the limit that is published, a recorded answer says that they are too complex.
pub(crate) const ANTHROPIC_OUTPUT: SchemaDialect = SchemaDialect {
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
    closed_objects: true,
    plain_values: true,
    limits: SchemaLimits { optional: 24, unions: 15, ..SchemaLimits::NONE },
    ..ANTHROPIC
};

/// Gemini's functions and answers (`parametersJsonSchema`, `responseJsonSchema`): the properties that its reference of
/// `responseJsonSchema` lists, the formats of its guide "Structured outputs". References are resolved, so `$ref` is not needed.
pub(crate) const GEMINI: SchemaDialect = SchemaDialect {
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
    explicit_types: true,
    object_root: false,
    ..OPENAI
};
