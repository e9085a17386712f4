//! The JSON schema that each provider accepts. Each dialect names the document that defines it;
//! `published_tests.rs` checks captured bodies against an independent reading of the same documents.

/// The JSON schema that a provider accepts.
#[derive(Debug)]
pub(crate) struct SchemaDialect {
    /// The name in messages.
    pub(crate) name: &'static str,
    /// The keywords that a schema may contain, in one text. Other keywords move into the description.
    pub(crate) keywords: &'static str,
    /// The string formats that are supported.
    pub(crate) formats: &'static [&'static str],
    /// Whether every schema must have exactly one type, and `anyOf` must be the only keyword.
    pub(crate) explicit_types: bool,
    /// Whether argument names are limited to 64 characters of `a-z A-Z 0-9 _ . -`.
    pub(crate) short_keys: bool,
    /// Whether objects must forbid properties that are not listed.
    pub(crate) closed_objects: bool,
    /// Whether every property must be required.
    pub(crate) all_required: bool,
    /// Whether the answer must be an object.
    pub(crate) object_root: bool,
    /// Whether `enum` and `const` may contain only strings, numbers, booleans and null.
    pub(crate) plain_values: bool,
    /// The limits of an answer's schema.
    pub(crate) limits: SchemaLimits,
}

/// The limits of an answer's schema.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SchemaLimits {
    /// Properties of all objects together.
    pub(crate) properties: usize,
    /// Properties that are not required.
    pub(crate) optional: usize,
    /// Schemas with `anyOf` or several types.
    pub(crate) unions: usize,
    /// Nesting depth of objects.
    pub(crate) depth: usize,
    /// Values of all `enum`s together.
    pub(crate) values: usize,
    /// Characters in property names and values.
    pub(crate) letters: usize,
    /// Characters in the values of an `enum` with more than 250 values.
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

/// OpenAI's functions, and answers without strict mode.
///
/// The published rule is only that `parameters` are a JSON schema (`FunctionParameters` in openai-openapi).
/// The API refuses more with 400: a top level that is not an object or has alternatives, an array without
/// `items`, an object without `properties`. Other keywords move into the description, because many servers
/// with this protocol support less.
pub(crate) const OPENAI: SchemaDialect = SchemaDialect {
    name: "OpenAI",
    keywords: "type description title default enum const properties required additionalProperties items \
               minItems maxItems anyOf minimum maximum exclusiveMinimum exclusiveMaximum multipleOf \
               minLength maxLength pattern format",
    formats: FORMATS,
    explicit_types: false,
    short_keys: false,
    closed_objects: false,
    all_required: false,
    object_root: true,
    plain_values: false,
    limits: SchemaLimits::NONE,
};

/// Answers in OpenAI's strict mode (`strict: true`): "Supported schemas" of its guide "Structured model
/// outputs".
pub(crate) const OPENAI_STRICT: SchemaDialect = SchemaDialect {
    name: "OpenAI, strict",
    keywords: "type description title enum const properties required additionalProperties items minItems \
               maxItems anyOf minimum maximum exclusiveMinimum exclusiveMaximum multipleOf pattern format",
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

/// Strict mode for fine-tuned models, which do not support bounds: "Some type-specific keywords are not yet
/// supported".
pub(crate) const OPENAI_STRICT_TUNED: SchemaDialect = SchemaDialect {
    name: "OpenAI, strict, tuned",
    keywords: "type description title enum const properties required additionalProperties items anyOf",
    formats: &[],
    ..OPENAI_STRICT
};

/// The strict dialect for an OpenAI model.
pub(crate) fn openai_strict(model: &str) -> &'static SchemaDialect {
    if model.starts_with("ft:") { &OPENAI_STRICT_TUNED } else { &OPENAI_STRICT }
}

/// Local servers, which turn a schema into a grammar: most do not support patterns and numeric bounds.
pub(crate) const LOCAL: SchemaDialect = SchemaDialect {
    name: "a local server",
    keywords: "type description title enum const properties required additionalProperties items minItems \
               maxItems anyOf minLength maxLength format",
    formats: &["date", "time", "date-time", "uuid"],
    ..OPENAI
};

/// The arguments of Anthropic's tools: a JSON schema of draft 2020-12 (`ToolParam` of its SDKs). The API
/// refuses alternatives at the top level, and names that do not match `^[a-zA-Z0-9_.-]{1,64}$`.
pub(crate) const ANTHROPIC: SchemaDialect =
    SchemaDialect { name: "Anthropic", short_keys: true, object_root: false, ..OPENAI };

/// Anthropic's structured outputs: "JSON Schema limitations" of "Structured outputs", as `transform_schema`
/// of its SDKs implements them. The published limit is 16 unions, but a recorded response refuses 16 as too
/// complex.
pub(crate) const ANTHROPIC_OUTPUT: SchemaDialect = SchemaDialect {
    name: "Anthropic, output",
    keywords: "type description title enum const properties required additionalProperties items minItems \
               anyOf format",
    formats: &["date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"],
    closed_objects: true,
    plain_values: true,
    limits: SchemaLimits { optional: 24, unions: 15, ..SchemaLimits::NONE },
    ..ANTHROPIC
};

/// Gemini's functions and answers (`parametersJsonSchema`, `responseJsonSchema`): the properties that its
/// reference of `responseJsonSchema` lists, and the formats of its guide "Structured outputs". References are
/// resolved, so `$ref` is not needed.
pub(crate) const GEMINI: SchemaDialect = SchemaDialect {
    name: "Gemini",
    keywords: "type description title enum properties required additionalProperties items minItems maxItems \
               anyOf minimum maximum format",
    formats: &["date-time", "date", "time"],
    explicit_types: true,
    object_root: false,
    ..OPENAI
};
