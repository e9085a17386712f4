//! The operations of an OpenAPI document as tools.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use reqwest::{Method, Url};
use serde_json::{Map, Value};
use tokio::sync::OnceCell;

use super::http_client::{RemoteToolError, SecretHeaders, ToolHttpClient, display_url, parse_web_url};
use super::own_server::OwnServer;
use super::text::{pluralize, truncate};
use super::{OpenFuture, Toolset, ToolsetContext, ToolsetError};
use crate::id::Digest;
use crate::model::ToolSpec;
use crate::permission::ToolIdentity;
use crate::tool::{
    CallContext, CallFuture, DynTool, ToolEffects, ToolError, identity_from_spec, parse_arguments,
};
use document::OpenApiDocument;
use operation::OpenApiOperation;

mod document;
mod operation;

/// The largest document, how many bytes of a response are read, and how long either may take.
const LARGEST: usize = 16 << 20;
const MOST: usize = 1 << 20;
const TIME: Duration = Duration::from_secs(30);

/// The toolset `openapi`: one tool per operation in a document.
pub struct OpenApi {
    at: String,
    headers: SecretHeaders,
    own_server: OwnServer,
    /// The operations, loaded on first use: the document is read only once.
    tools: OnceCell<Vec<Arc<dyn DynTool>>>,
}

impl OpenApi {
    /// Creates a toolset from the document at a URL or in a file. The headers are sent with every request,
    /// including the one for the document.
    pub fn new(url_or_path: impl Into<String>, headers: SecretHeaders) -> Self {
        OpenApi { at: url_or_path.into(), headers, own_server: OwnServer::default(), tools: OnceCell::new() }
    }

    /// Sets the server that this process is. Its agents may not call it.
    pub fn own_server(mut self, server: OwnServer) -> Self {
        self.own_server = server;
        self
    }

    async fn read(&self) -> Result<Vec<Arc<dyn DynTool>>, RemoteToolError> {
        let client = ToolHttpClient::new(&self.headers, &self.own_server)
            .map_err(|why| RemoteToolError(format!("headers: {why}")))?;
        let at = self.at.trim();
        let lower = at.to_ascii_lowercase();
        let (text, url) = match lower.starts_with("http://") || lower.starts_with("https://") {
            true => {
                let url = parse_web_url(at)?;
                let text = fetched(&client, url.clone())
                    .await
                    .map_err(|why| RemoteToolError(format!("{}: {why}", display_url(&url))))?;
                (text, Some(url))
            }
            false => {
                let path = PathBuf::from(at.strip_prefix("file://").unwrap_or(at));
                (
                    from_file(path.clone())
                        .await
                        .map_err(|why| RemoteToolError(format!("{}: {why}", path.display())))?,
                    None,
                )
            }
        };
        let place = url.as_ref().map_or_else(|| at.to_owned(), display_url);
        let named = |why: String| RemoteToolError(format!("{place}: {why}"));
        // Parsing a large document takes long enough to block.
        let made = super::run_blocking(move || {
            let document = OpenApiDocument::parse(&text).map_err(|why| ToolError::Failed(why.to_string()))?;
            Ok(operation::operations(&document, url.as_ref()))
        });
        let (operations, wrong) = made.await.map_err(|error| named(error.to_string()))?;
        for why in &wrong {
            tracing::warn!(document = place, "an operation is left out: {why}");
        }
        if operations.is_empty() {
            let why = wrong.first().map_or("it describes no operation".to_owned(), |why| {
                format!("none of its {} can be used; {why}", pluralize(wrong.len() as u64, "operation"))
            });
            return Err(named(why));
        }
        let toolset: Arc<str> = format!("openapi:{}", &Digest::of_bytes(at.as_bytes()).as_str()[..8]).into();
        let place: Arc<str> = place.as_str().into();
        let tool = |operation| -> Arc<dyn DynTool> {
            let (toolset, place) = (toolset.clone(), place.clone());
            Arc::new(OperationTool { operation, client: client.clone(), toolset, place })
        };
        Ok(operations.into_iter().map(tool).collect())
    }
}

impl std::fmt::Debug for OpenApi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let at = parse_web_url(&self.at).map_or_else(|_| self.at.clone(), |url| display_url(&url));
        f.debug_struct("OpenApi").field("at", &at).field("headers", &self.headers).finish_non_exhaustive()
    }
}

async fn fetched(client: &ToolHttpClient, url: Url) -> Result<String, RemoteToolError> {
    let accept = "application/json, application/yaml;q=0.9, */*;q=0.5";
    let request = client.request(Method::GET, url).header("accept", accept);
    let reply = client.send(request, LARGEST, TIME).await?;
    match reply.status {
        200 => Ok(reply.text),
        status => Err(RemoteToolError(format!("cannot download the document: status {status}"))),
    }
}

async fn from_file(path: PathBuf) -> Result<String, RemoteToolError> {
    let reading = super::run_blocking(move || {
        use std::io::Read as _;
        let failed = |error: std::io::Error| ToolError::Failed(error.to_string());
        let mut text = String::new();
        let file = std::fs::File::open(path).map_err(failed)?;
        file.take(LARGEST as u64 + 1).read_to_string(&mut text).map_err(failed)?;
        match text.len() > LARGEST {
            true => Err(ToolError::Failed(format!("it has more than {LARGEST} bytes"))),
            false => Ok(text),
        }
    });
    reading.await.map_err(|error| RemoteToolError(error.to_string()))
}

impl Toolset for OpenApi {
    fn name(&self) -> &str {
        "openapi"
    }

    fn open<'a>(&'a self, _context: &'a ToolsetContext) -> OpenFuture<'a> {
        Box::pin(async {
            let tools = self.tools.get_or_try_init(|| self.read()).await;
            tools.cloned().map_err(|why| ToolsetError { toolset: "openapi".to_owned(), why: why.to_string() })
        })
    }

    fn offered_tools(&self) -> Vec<Arc<dyn DynTool>> {
        self.tools.get().cloned().unwrap_or_default()
    }
}

struct OperationTool {
    operation: OpenApiOperation,
    client: ToolHttpClient,
    /// The name of the toolset, and the location of its document.
    toolset: Arc<str>,
    place: Arc<str>,
}

impl DynTool for OperationTool {
    fn spec(&self) -> ToolSpec {
        let OpenApiOperation { name, description, parameters, .. } = &self.operation;
        ToolSpec { name: name.clone(), description: description.clone(), parameters: parameters.clone() }
    }

    fn effects(&self) -> ToolEffects {
        match [Method::GET, Method::HEAD, Method::OPTIONS].contains(&self.operation.method) {
            true => ToolEffects::READ_ONLY,
            false => ToolEffects::default(),
        }
    }

    fn identity(&self) -> ToolIdentity {
        ToolIdentity {
            toolset: self.toolset.to_string(),
            server: Some(self.place.to_string()),
            setting: Some(self.operation.describe_target()),
            ..identity_from_spec(&self.spec(), self.effects())
        }
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a CallContext) -> CallFuture<'a> {
        Box::pin(async move {
            let operation = &self.operation;
            let said = |why: &str| {
                self.client
                    .scrub(format!("{} ({} {}): {why}", operation.name, operation.method, operation.path))
            };
            let arguments: Map<String, Value> = parse_arguments(arguments)?;
            let aimed = operation
                .build_request(&arguments)
                .map_err(|why| ToolError::Retry(said(&why.to_string())))?;
            let mut request = self.client.request(operation.method.clone(), aimed.url);
            request = request.header("accept", "application/json, */*;q=0.5");
            for (name, value) in &aimed.headers {
                request = request.header(name, value);
            }
            if let Some((kind, content)) = aimed.body {
                request = request.header("content-type", kind).body(content);
            }
            let reply = tokio::select! {
                reply = self.client.send(request, MOST, TIME) => reply,
                () = context.cancel.cancelled() => Err(RemoteToolError("the task is being stopped".to_owned())),
            };
            match reply {
                Ok(reply) if reply.status >= 400 => {
                    let text = format!("status {}: {}", reply.status, truncate(&reply.text, 4_000));
                    Err(ToolError::Failed(said(&text)))
                }
                Ok(reply) if reply.text.trim().is_empty() => {
                    Ok(format!("Done: status {}, and nothing else was said.", reply.status).into())
                }
                Ok(reply) => Ok(reply.text.into()),
                Err(why) => Err(ToolError::Failed(said(&why.to_string()))),
            }
        })
    }
}

#[cfg(test)]
mod tests;
