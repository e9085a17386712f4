//! A tool that makes one HTTP request, as described in a team file.

use std::sync::Arc;
use std::time::Duration;

use reqwest::{Method, Url};
use serde_json::{Map, Value, json};

use super::http_client::{
    RemoteToolError, SecretHeaders, ToolHttpClient, display_url, has_dot_segments, parse_web_url,
    percent_encode, value_text,
};
use super::own_server::OwnServer;
use super::text::truncate;
use super::{OpenFuture, Toolset, ToolsetContext, ToolsetError};
use crate::id::Digest;
use crate::model::ToolSpec;
use crate::permission::ToolIdentity;
use crate::tool::{
    CallContext, CallFuture, DynTool, ToolEffects, ToolError, identity_from_spec, parse_arguments,
};
use url_template::{UrlPart, UrlTemplate};

mod url_template;

/// How many bytes of a response are read, and how long the request may take.
const MOST: usize = 1 << 20;
const TIME: Duration = Duration::from_secs(30);

/// The description of an [`Api`] tool.
#[derive(Debug, Clone, Default)]
pub struct ApiSettings {
    /// The name of the tool.
    pub name: String,
    /// The description that the model sees.
    pub instruction: String,
    /// The method: GET, POST, PUT, PATCH, DELETE or HEAD. GET by default.
    pub method: String,
    /// The URL, with `${name}` where an argument goes.
    pub endpoint: String,
    /// Headers that are sent with every request.
    pub headers: SecretHeaders,
    /// The JSON schema of each argument.
    pub args: Map<String, Value>,
    /// The names of the required arguments.
    pub required: Vec<String>,
    /// The JSON schema of the response.
    pub output_schema: Option<Value>,
}

/// The toolset `api`: one tool that makes one HTTP request.
///
/// Arguments that appear in the endpoint are inserted there. The others become the JSON body of a POST, PUT
/// or PATCH, and the query string of any other method.
#[derive(Debug, Clone)]
pub struct Api(Arc<ApiSettings>, OwnServer);

impl Api {
    /// Creates the toolset.
    pub fn new(settings: ApiSettings) -> Self {
        Api(Arc::new(settings), OwnServer::default())
    }

    /// Sets the server that this process is. Its agents may not call it.
    pub fn own_server(mut self, server: OwnServer) -> Self {
        self.1 = server;
        self
    }

    fn tool(&self) -> Result<ApiTool, RemoteToolError> {
        let settings = self.0.clone();
        let fit = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
        if settings.name.is_empty() || settings.name.len() > 64 || !settings.name.chars().all(fit) {
            return Err(RemoteToolError(format!(
                "name: '{}' is not a valid tool name",
                truncate(&settings.name, 80)
            )));
        }
        let method = match settings.method.trim().to_ascii_uppercase().as_str() {
            "" => Method::GET,
            word @ ("GET" | "POST" | "PUT" | "PATCH" | "DELETE" | "HEAD") => {
                word.parse().map_err(|_| RemoteToolError(format!("method: '{word}' cannot be used")))?
            }
            other => {
                return Err(RemoteToolError(format!(
                    "method: '{}' is not supported: use GET, POST, PUT, PATCH, DELETE or HEAD",
                    truncate(other, 40)
                )));
            }
        };
        let template = UrlTemplate::parse(&settings.endpoint)
            .map_err(|why| RemoteToolError(format!("endpoint: {why}")))?;
        if let Some(unknown) = template.names().find(|name| !settings.args.contains_key(*name)) {
            return Err(RemoteToolError(format!(
                "endpoint: it names ${{{unknown}}}, which is not under args"
            )));
        }
        if let Some(unknown) = settings.required.iter().find(|name| !settings.args.contains_key(*name)) {
            return Err(RemoteToolError(format!("required: '{unknown}' is not under args")));
        }
        let sample = template.fill(|_, _| Ok("x".to_owned()))?;
        parse_web_url(&sample).map_err(|why| RemoteToolError(format!("endpoint: {why}")))?;
        let client = ToolHttpClient::new(&settings.headers, &self.1)
            .map_err(|why| RemoteToolError(format!("headers: {why}")))?;
        Ok(ApiTool { settings, method, template, client })
    }
}

impl Toolset for Api {
    fn name(&self) -> &str {
        "api"
    }

    fn open<'a>(&'a self, _context: &'a ToolsetContext) -> OpenFuture<'a> {
        Box::pin(async {
            let tool = self
                .tool()
                .map_err(|why| ToolsetError { toolset: "api".to_owned(), why: why.to_string() })?;
            let tools: Vec<Arc<dyn DynTool>> = vec![Arc::new(tool)];
            Ok(tools)
        })
    }
}

struct ApiTool {
    settings: Arc<ApiSettings>,
    method: Method,
    template: UrlTemplate,
    client: ToolHttpClient,
}

impl DynTool for ApiTool {
    fn spec(&self) -> ToolSpec {
        let settings = &self.settings;
        let mut description = settings.instruction.trim().to_owned();
        if let Some(schema) =
            settings.output_schema.as_ref().map(Value::to_string).filter(|text| text.len() <= 4_000)
        {
            description += &format!("\nThe answer is JSON of this schema: {schema}");
        }
        if description.is_empty() {
            description = format!("Makes a {} request.", self.method);
        }
        let mut parameters = json!({"type": "object", "properties": settings.args});
        if !settings.required.is_empty() {
            parameters["required"] = json!(settings.required);
        }
        ToolSpec { name: settings.name.clone(), description, parameters }
    }

    fn effects(&self) -> ToolEffects {
        match self.method == Method::GET || self.method == Method::HEAD {
            true => ToolEffects::READ_ONLY,
            false => ToolEffects::default(),
        }
    }

    fn identity(&self) -> ToolIdentity {
        // The URL may contain a secret.
        let endpoint = Digest::of_bytes(self.settings.endpoint.as_bytes());
        let setting = Some(format!("as a {} request to endpoint {}", self.method, &endpoint.as_str()[..8]));
        ToolIdentity { setting, ..identity_from_spec(&self.spec(), self.effects()) }
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a CallContext) -> CallFuture<'a> {
        Box::pin(async move {
            let arguments: Map<String, Value> = parse_arguments(arguments)?;
            let (url, body) = self.build_request(arguments)?;
            let place = format!("{} {}", self.method, display_url(&url));
            let mut request = self.client.request(self.method.clone(), url);
            if let Some(body) = body {
                request = request.header("content-type", "application/json").body(body);
            }
            let reply = tokio::select! {
                reply = self.client.send(request, MOST, TIME) => reply,
                () = context.cancel.cancelled() => Err(RemoteToolError("the task is being stopped".to_owned())),
            };
            let failed = |why: String| self.client.scrub(format!("{place}: {why}"));
            match reply {
                Ok(reply) if reply.status >= 400 => {
                    let said = format!("status {}: {}", reply.status, truncate(&reply.text, 4_000));
                    Err(ToolError::Failed(failed(said)))
                }
                Ok(reply) => Ok(reply.text.into()),
                Err(why) => Err(ToolError::Failed(failed(why.to_string()))),
            }
        })
    }
}

impl ApiTool {
    /// Returns the URL and the body of the request.
    fn build_request(&self, mut arguments: Map<String, Value>) -> Result<(Url, Option<String>), ToolError> {
        let wrong = |why: String| ToolError::Retry(format!("{}: {why}", self.settings.name));
        if let Some(unknown) = arguments.keys().find(|name| !self.settings.args.contains_key(*name)) {
            return Err(wrong(format!("there is no argument '{}'", truncate(unknown, 60))));
        }
        let given = |name: &String| arguments.get(name).is_some_and(|value| !value.is_null());
        if let Some(missing) = self.settings.required.iter().find(|name| !given(name)) {
            return Err(wrong(format!("the argument '{missing}' is missing")));
        }
        let fill = |name: &str, part: UrlPart| {
            let text = arguments.get(name).map(value_text).unwrap_or_default();
            let label = |c: char| c.is_ascii_alphanumeric() || c == '-';
            match part {
                UrlPart::Host if text.is_empty() || !text.chars().all(label) => Err(RemoteToolError(
                    format!("'{}' cannot be a part of a host's name", truncate(&text, 60)),
                )),
                UrlPart::Host => Ok(text),
                UrlPart::Path | UrlPart::Query => Ok(percent_encode(&text)),
            }
        };
        let filled = self.template.fill(fill).map_err(|why| wrong(why.to_string()))?;
        let path = filled.split(['?', '#']).next().unwrap_or_default();
        if has_dot_segments(path) && !has_dot_segments(self.template.text()) {
            return Err(wrong("an argument must not be '.' or '..'".to_owned()));
        }
        let mut url = parse_web_url(&filled).map_err(|why| wrong(why.to_string()))?;
        self.template.names().for_each(|name| drop(arguments.remove(name)));
        let has_body = [Method::POST, Method::PUT, Method::PATCH].contains(&self.method);
        if has_body {
            return Ok((url, Some(Value::Object(arguments).to_string())));
        }
        arguments.retain(|_, value| !value.is_null());
        if !arguments.is_empty() {
            url.query_pairs_mut()
                .extend_pairs(arguments.iter().map(|(name, value)| (name, value_text(value))));
        }
        Ok((url, None))
    }
}

#[cfg(test)]
mod tests;
