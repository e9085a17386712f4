//! One operation of a document: the tool that the model sees, and the request that a call becomes.

use reqwest::{Method, Url};
use serde_json::{Map, Value, json};

use super::document::OpenApiDocument;
use crate::toolset::http_client::{
    RemoteToolError, display_url, has_dot_segments, percent_encode, sanitize_tool_name, unique_name,
    value_text,
};
use crate::toolset::text::truncate;

const METHODS: [&str; 7] = ["get", "put", "post", "delete", "patch", "head", "options"];

/// An operation as a tool.
#[derive(Debug)]
pub(super) struct OpenApiOperation {
    pub(super) name: String,
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) description: String,
    /// The JSON schema of its arguments.
    pub(super) parameters: Value,
    server: Url,
    inputs: Vec<OperationInput>,
    body: Option<RequestBodyKind>,
}

/// An argument, and where it goes in the request.
#[derive(Debug)]
struct OperationInput {
    argument: String,
    /// The name of the parameter in the document.
    name: String,
    location: ParameterLocation,
    required: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ParameterLocation {
    Path,
    /// Whether each item of a list becomes its own pair, and whether an object is written as
    /// `name[key]=value`.
    Query {
        explode: bool,
        deep: bool,
    },
    Header,
    Cookie,
    /// A property of the body.
    Property,
    /// The body itself.
    Body,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestBodyKind {
    Json,
    Form,
    Text,
}

/// The request that a call becomes.
#[derive(Debug)]
pub(super) struct OperationRequest {
    pub(super) url: Url,
    pub(super) headers: Vec<(String, String)>,
    /// The content type and the content of the body.
    pub(super) body: Option<(&'static str, String)>,
}

/// Returns all operations of a document in order, and the problems of those that are left out.
pub(super) fn operations(
    document: &OpenApiDocument,
    from: Option<&Url>,
) -> (Vec<OpenApiOperation>, Vec<String>) {
    let (mut found, mut wrong): (Vec<OpenApiOperation>, Vec<String>) = (Vec::new(), Vec::new());
    let paths = document.root()["paths"].as_object();
    for (path, item) in paths.into_iter().flatten() {
        let item = match document.resolve_ref(item) {
            Ok(item) => item,
            Err(why) => {
                wrong.push(format!("{path}: {why}"));
                continue;
            }
        };
        for word in METHODS {
            let Some(operation) = item.get(word).filter(|operation| operation.is_object()) else { continue };
            let named = |name: &str| found.iter().any(|other| other.name == name);
            match read(document, from, path, word, item, operation) {
                Ok(mut operation) => {
                    operation.name = unique_name(&operation.name, named);
                    found.push(operation);
                }
                Err(why) => wrong.push(format!("{} {path}: {why}", word.to_uppercase())),
            }
        }
    }
    (found, wrong)
}

fn read(
    document: &OpenApiDocument,
    from: Option<&Url>,
    path: &str,
    word: &str,
    item: &Value,
    operation: &Value,
) -> Result<OpenApiOperation, RemoteToolError> {
    let method: Method =
        word.to_uppercase().parse().map_err(|_| RemoteToolError("it has no method".to_owned()))?;
    let mut builder = InputsBuilder::default();
    // A parameter of the operation overrides one of its path.
    let own = operation["parameters"].as_array().into_iter().flatten();
    let common = item["parameters"].as_array().into_iter().flatten();
    for parameter in own.chain(common) {
        builder.parameter(document, document.resolve_ref(parameter)?)?;
    }
    for (n, name) in names_in(path).enumerate() {
        // Some documents do not declare their path parameters.
        if !builder.inputs.iter().any(|input| input.location == ParameterLocation::Path && input.name == name)
        {
            builder.add_input(name, ParameterLocation::Path, true, json!({"type": "string"}));
        }
        if n > 30 {
            return Err(RemoteToolError("its path has too many arguments".to_owned()));
        }
    }
    let body = match operation.get("requestBody") {
        Some(body) => builder.body(document, document.resolve_ref(body)?)?,
        None => None,
    };
    let id = operation["operationId"].as_str().map(sanitize_tool_name).filter(|name| !name.is_empty());
    let name = id.unwrap_or_else(|| sanitize_tool_name(&format!("{word}_{path}")));
    let mut parameters = json!({"type": "object", "properties": builder.properties});
    let required: Vec<&str> =
        builder.inputs.iter().filter(|input| input.required).map(|input| input.argument.as_str()).collect();
    if !required.is_empty() {
        parameters["required"] = json!(required);
    }
    let server = server(&[operation, item, document.root()], from)?;
    let description = description(operation, &method, path);
    Ok(OpenApiOperation {
        name,
        method,
        path: path.to_owned(),
        description,
        parameters,
        server,
        inputs: builder.inputs,
        body,
    })
}

/// The arguments while they are being collected.
#[derive(Default)]
struct InputsBuilder {
    inputs: Vec<OperationInput>,
    properties: Map<String, Value>,
}

impl InputsBuilder {
    fn add_input(&mut self, name: &str, place: ParameterLocation, required: bool, schema: Value) {
        let prefix = if place == ParameterLocation::Property { "body_" } else { "" };
        let fit = sanitize_tool_name(&format!("{prefix}{name}"));
        let fit = if fit.is_empty() { "argument".to_owned() } else { fit };
        let argument = unique_name(&fit, |other| self.properties.contains_key(other));
        self.properties.insert(argument.clone(), schema);
        self.inputs.push(OperationInput { argument, name: name.to_owned(), location: place, required });
    }

    fn parameter(&mut self, document: &OpenApiDocument, parameter: &Value) -> Result<(), RemoteToolError> {
        let name = parameter["name"]
            .as_str()
            .ok_or_else(|| RemoteToolError("a parameter has no name".to_owned()))?;
        let style = parameter["style"].as_str();
        let place = match parameter["in"].as_str() {
            Some("path") => ParameterLocation::Path,
            Some("query") => ParameterLocation::Query {
                explode: parameter["explode"].as_bool().unwrap_or(style.is_none_or(|style| style == "form")),
                deep: style == Some("deepObject"),
            },
            Some("header") => ParameterLocation::Header,
            Some("cookie") => ParameterLocation::Cookie,
            _ => {
                return Err(RemoteToolError(format!(
                    "the parameter '{name}' is neither in path, query, header nor cookie"
                )));
            }
        };
        // The standard excludes these headers from parameters.
        let reserved = ["accept", "content-type", "authorization"];
        if place == ParameterLocation::Header && reserved.contains(&name.to_ascii_lowercase().as_str()) {
            return Ok(());
        }
        let same = |input: &OperationInput| {
            input.name == name && std::mem::discriminant(&input.location) == std::mem::discriminant(&place)
        };
        if self.inputs.iter().any(same) {
            return Ok(());
        }
        let content = parameter["content"].as_object().and_then(|content| content.values().next());
        let schema = parameter.get("schema").or_else(|| content?.get("schema"));
        let mut schema = schema.map_or(json!({"type": "string"}), |schema| document.inline_refs(schema));
        if let (Some(text), Some(schema)) = (parameter["description"].as_str(), schema.as_object_mut()) {
            schema.insert("description".into(), truncate(text, 500).into());
        }
        self.add_input(
            name,
            place,
            place == ParameterLocation::Path || parameter["required"] == true,
            schema,
        );
        Ok(())
    }

    fn body(
        &mut self,
        document: &OpenApiDocument,
        body: &Value,
    ) -> Result<Option<RequestBodyKind>, RemoteToolError> {
        let Some(content) = body["content"].as_object().filter(|content| !content.is_empty()) else {
            return Ok(None);
        };
        let of = |is: &dyn Fn(&str) -> bool| {
            content.iter().find(|(key, _)| is(key.split(';').next().unwrap_or_default().trim()))
        };
        let json = of(&|kind| kind == "application/json" || kind.ends_with("+json") || kind == "*/*");
        let form = || {
            of(&|kind| kind == "application/x-www-form-urlencoded")
                .map(|found| (RequestBodyKind::Form, found))
        };
        let text = || of(&|kind| kind.starts_with("text/")).map(|found| (RequestBodyKind::Text, found));
        let Some((kind, (_, media))) =
            json.map(|found| (RequestBodyKind::Json, found)).or_else(form).or_else(text)
        else {
            let kinds: Vec<&str> = content.keys().map(String::as_str).take(3).collect();
            return Err(RemoteToolError(format!(
                "its body is {}, which is not supported",
                kinds.join(" or ")
            )));
        };
        let must = body["required"] == true;
        let schema = media.get("schema").map_or(json!({}), |schema| document.inline_refs(schema));
        match schema["properties"]
            .as_object()
            .filter(|properties| !properties.is_empty() && kind != RequestBodyKind::Text)
        {
            Some(properties) => {
                let required = schema["required"].as_array().cloned().unwrap_or_default();
                for (name, schema) in properties {
                    let needed = must && required.iter().any(|other| other == name);
                    self.add_input(name, ParameterLocation::Property, needed, schema.clone());
                }
            }
            None => {
                let schema = if kind == RequestBodyKind::Text { json!({"type": "string"}) } else { schema };
                self.add_input("body", ParameterLocation::Body, must, schema);
            }
        }
        Ok(Some(kind))
    }
}

fn description(operation: &Value, method: &Method, path: &str) -> String {
    let text = |key: &str| operation[key].as_str().map(str::trim).filter(|text| !text.is_empty());
    let mut said: Vec<String> = text("summary").into_iter().map(|summary| truncate(summary, 300)).collect();
    if let Some(more) = text("description").filter(|more| text("summary") != Some(more)) {
        said.push(truncate(more, 700));
    }
    said.push(format!("({method} {path})"));
    said.join("\n")
}

fn names_in(path: &str) -> impl Iterator<Item = &str> {
    path.split('{').skip(1).filter_map(|rest| rest.split_once('}')).map(|(name, _)| name)
}

/// Returns the base URL: the first server in the document, with its variables at their defaults, resolved
/// against the document's own location.
fn server(places: &[&Value; 3], from: Option<&Url>) -> Result<Url, RemoteToolError> {
    let servers = places.iter().filter_map(|place| place["servers"].as_array());
    let first = servers.filter_map(|servers| servers.first()).next();
    let mut text = first.and_then(|server| server["url"].as_str()).unwrap_or("/").to_owned();
    for (name, variable) in first.and_then(|server| server["variables"].as_object()).into_iter().flatten() {
        let default = variable["default"].as_str().unwrap_or_default();
        text = text.replace(&format!("{{{name}}}"), default);
    }
    let url = match (Url::parse(&text), from) {
        (Ok(url), _) => url,
        (Err(_), Some(from)) => from
            .join(&text)
            .map_err(|error| RemoteToolError(format!("its server '{text}' is no URL: {error}")))?,
        (Err(_), None) => {
            return Err(RemoteToolError(format!(
                "its server '{text}' is relative, and the document was read from a file: write a whole URL under `servers`"
            )));
        }
    };
    match matches!(url.scheme(), "http" | "https") {
        true => Ok(url),
        false => Err(RemoteToolError(format!("its server '{text}' does not begin with http:// or https://"))),
    }
}

impl OpenApiOperation {
    /// Describes the method and the target of a request.
    pub(super) fn describe_target(&self) -> String {
        format!("as {} {} at {}", self.method, self.path, display_url(&self.server))
    }

    /// Builds the request of a call. An error describes what is wrong with the arguments, for the model.
    pub(super) fn build_request(
        &self,
        arguments: &Map<String, Value>,
    ) -> Result<OperationRequest, RemoteToolError> {
        if let Some(unknown) =
            arguments.keys().find(|key| !self.inputs.iter().any(|input| input.argument == **key))
        {
            let known: Vec<&str> = self.inputs.iter().map(|input| input.argument.as_str()).collect();
            return Err(RemoteToolError(format!(
                "there is no argument '{}'; there are: {}",
                truncate(unknown, 60),
                known.join(", ")
            )));
        }
        let mut path = self.path.clone();
        let (mut headers, mut cookies) = (Vec::new(), Vec::new());
        let mut query: Vec<(String, String)> = Vec::new();
        let (mut properties, mut whole) = (Map::new(), None);
        for input in &self.inputs {
            let Some(value) = arguments.get(&input.argument).filter(|value| !value.is_null()) else {
                match input.required {
                    true => {
                        return Err(RemoteToolError(format!("the argument '{}' is missing", input.argument)));
                    }
                    false => continue,
                }
            };
            match input.location {
                ParameterLocation::Path => {
                    let text = value_text(value);
                    if text.is_empty() || has_dot_segments(&text) {
                        return Err(RemoteToolError(format!(
                            "the argument '{}' cannot be '{}'",
                            input.argument,
                            truncate(&text, 60)
                        )));
                    }
                    path = path.replace(&format!("{{{}}}", input.name), &percent_encode(&text));
                }
                ParameterLocation::Query { explode, deep } => {
                    query.extend(pairs(&input.name, value, explode, deep))
                }
                ParameterLocation::Header => headers.push((input.name.clone(), value_text(value))),
                ParameterLocation::Cookie => {
                    cookies.push(format!("{}={}", input.name, percent_encode(&value_text(value))))
                }
                ParameterLocation::Property => drop(properties.insert(input.name.clone(), value.clone())),
                ParameterLocation::Body => whole = Some(value.clone()),
            }
        }
        if !cookies.is_empty() {
            headers.push(("cookie".to_owned(), cookies.join("; ")));
        }
        let mut url = self.server.clone();
        url.set_path(&format!("{}/{}", url.path().trim_end_matches('/'), path.trim_start_matches('/')));
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let body = self.body.and_then(|kind| content(kind, properties, whole));
        Ok(OperationRequest { url, headers, body })
    }
}

fn pairs(name: &str, value: &Value, explode: bool, deep: bool) -> Vec<(String, String)> {
    let pair = |key: &str, value: &Value| (key.to_owned(), value_text(value));
    match value {
        Value::Array(list) if explode => list.iter().map(|value| pair(name, value)).collect(),
        Value::Object(object) if deep => {
            object.iter().map(|(key, value)| pair(&format!("{name}[{key}]"), value)).collect()
        }
        Value::Object(object) if explode => object.iter().map(|(key, value)| pair(key, value)).collect(),
        value => vec![pair(name, value)],
    }
}

fn content(
    kind: RequestBodyKind,
    properties: Map<String, Value>,
    whole: Option<Value>,
) -> Option<(&'static str, String)> {
    let value = match whole {
        Some(whole) => whole,
        None if properties.is_empty() => return None,
        None => Value::Object(properties),
    };
    Some(match kind {
        RequestBodyKind::Json => ("application/json", value.to_string()),
        RequestBodyKind::Text => ("text/plain; charset=utf-8", value_text(&value)),
        RequestBodyKind::Form => {
            let pairs = value.as_object().into_iter().flatten();
            let pairs = pairs.flat_map(|(name, value)| pairs_of_form(name, value));
            ("application/x-www-form-urlencoded", pairs.collect::<Vec<_>>().join("&"))
        }
    })
}

fn pairs_of_form(name: &str, value: &Value) -> Vec<String> {
    let pairs = pairs(name, value, true, true);
    pairs
        .into_iter()
        .map(|(key, value)| format!("{}={}", percent_encode(&key), percent_encode(&value)))
        .collect()
}
