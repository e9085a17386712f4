//! Logs in to a server that requires it: OAuth with a browser that returns to a port on this machine.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::Url;
use rmcp::transport::{
    AuthError, AuthorizationManager, AuthorizationRequest, AuthorizationSession, CredentialStore,
    StoredCredentials,
};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;

use super::link_check;
use super::oauth_client::{OAuthClient, RefusalReason};
use super::shared_server::McpSharedServer;
use super::token_store::TokenStore;
use crate::toolset::http_client::display_url;

/// How long a person may take to log in.
const LOGIN: Duration = Duration::from_secs(600);
/// How many bytes a browser may send, and how long it may take.
const LONGEST_REQUEST: usize = 16 << 10;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a login failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct LoginError(String);

type LoginOutcome = Option<Result<(), LoginError>>;

/// The login in progress, if any.
#[derive(Default)]
pub(super) struct PendingLogin(Mutex<Option<watch::Receiver<LoginOutcome>>>);

impl PendingLogin {
    /// Starts a login, or joins the one in progress, and waits for it up to `limit`. After that the login
    /// continues in the background, and later connections find the tokens.
    pub(super) async fn login(
        &self,
        shared: &Arc<McpSharedServer>,
        url: &Url,
        challenge: Option<String>,
        limit: Duration,
    ) -> Result<(), LoginError> {
        let Some(show) = shared.options.show_login.clone() else {
            return Err(LoginError(
                "it asks for a login (OAuth), and no one can log in from here".to_owned(),
            ));
        };
        let mut outcome = {
            let mut under_way = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let open = under_way
                .as_ref()
                .filter(|outcome| outcome.borrow().is_none() && outcome.has_changed().is_ok());
            match open {
                Some(outcome) => outcome.clone(),
                None => {
                    let (tell, outcome) = watch::channel(None);
                    let (shared, url) = (shared.clone(), url.clone());
                    shared.clone().tasks.spawn(async move {
                        let flow = run_login(&shared, &url, challenge.as_deref(), &*show);
                        let done = tokio::select! {
                            done = timeout(LOGIN, flow) => done.unwrap_or_else(|_| Err(LoginError(format!("no one logged in within {LOGIN:?}")))),
                            () = shared.cancel.cancelled() => Err(LoginError("it has been shut down".to_owned())),
                        };
                        match &done {
                            Ok(()) => shared.try_again(),
                            Err(why) => {
                                tracing::warn!(server = %shared.label, %why, "the login to an MCP server failed");
                            }
                        }
                        let _ = tell.send(Some(done));
                    });
                    under_way.insert(outcome).clone()
                }
            }
        };
        let done = timeout(limit, outcome.wait_for(Option::is_some)).await;
        match done {
            Ok(Ok(done)) => done.clone().unwrap_or(Ok(())),
            Ok(Err(_)) => Err(LoginError("the login was cancelled".to_owned())),
            Err(_) => Err(LoginError(
                "it asks for a login (OAuth): open the page that was shown and log in; its tools are available after that"
                    .to_owned(),
            )),
        }
    }
}

async fn run_login(
    shared: &McpSharedServer,
    url: &Url,
    challenge: Option<&str>,
    show: &(dyn Fn(&str, &str) + Send + Sync),
) -> Result<(), LoginError> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await;
    let (listener, port) = listener
        .and_then(|listener| listener.local_addr().map(|at| (listener, at.port())))
        .map_err(|error| LoginError(format!("cannot listen on a local port for the login: {error}")))?;
    let back = format!("http://127.0.0.1:{port}");
    let (mut manager, refusal) = authorization_manager(shared, url).await?;
    let explained = |error: AuthError| LoginError(format!("the login failed: {}", refusal.explain(&error)));
    let found = manager.resolve_metadata_from_challenge(challenge).await.map_err(explained)?;
    manager.set_metadata(found.metadata);
    let request = AuthorizationRequest::new(format!("{back}/callback")).with_client_name("Longhaul");
    let session = AuthorizationSession::new(manager, request).await.map_err(|(_, error)| explained(error))?;
    let page = link_check::check_link(session.get_authorization_url());
    let page = page.map_err(|why| LoginError(format!("its login page is not shown: {why}")))?;
    show(&shared.label, &page.url);
    loop {
        let Ok((mut stream, _)) = listener.accept().await else { continue };
        // Any process on this machine can connect; only a request with the right state and code counts.
        let Ok(Some(target)) = timeout(REQUEST_TIMEOUT, target(&mut stream)).await else { continue };
        if !target.starts_with("/callback?") {
            reply(&mut stream, "404 Not Found", "There is nothing here.").await;
            continue;
        }
        match session.handle_callback_url(&format!("{back}{target}")).await {
            Ok(_) => {
                reply(&mut stream, "200 OK", "You are logged in. This page can be closed.").await;
                return Ok(());
            }
            Err(error @ AuthError::AuthorizationFailed(_)) => {
                reply(&mut stream, "400 Bad Request", "The login was refused. This page can be closed.")
                    .await;
                return Err(explained(error));
            }
            Err(error) => {
                tracing::warn!(server = %shared.label, %error, "rejected an invalid login callback");
                reply(
                    &mut stream,
                    "400 Bad Request",
                    "That did not work. Try the page that was shown again.",
                )
                .await;
            }
        }
    }
}

/// Reads the target of a GET request.
async fn target(stream: &mut TcpStream) -> Option<String> {
    let mut request = Vec::new();
    let mut buffer = [0; 2048];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let n = stream.read(&mut buffer).await.ok().filter(|n| *n > 0)?;
        request.extend_from_slice(&buffer[..n]);
        if request.len() > LONGEST_REQUEST {
            return None;
        }
    }
    let request = String::from_utf8(request).ok()?;
    let mut words = request.lines().next()?.split(' ');
    (words.next() == Some("GET")).then(|| words.next().map(str::to_owned))?
}

async fn reply(stream: &mut TcpStream, status: &str, text: &str) {
    let page = format!("<!doctype html><meta charset=utf-8><title>Longhaul</title><p>{text}");
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/html\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{page}",
        page.len()
    );
    let _ = stream.write_all(answer.as_bytes()).await;
    let _ = stream.shutdown().await;
}

/// Creates the manager that loads the tokens of a server and renews them.
pub(super) async fn authorization_manager(
    shared: &McpSharedServer,
    url: &Url,
) -> Result<(AuthorizationManager, RefusalReason), LoginError> {
    let wrong = |why: String| LoginError(format!("its login cannot be used: {why}"));
    let client = OAuthClient::new(url).await.map_err(|why| wrong(why.to_string()))?;
    let refusal = client.refusal.clone();
    let manager = AuthorizationManager::new_with_oauth_http_client(url.clone(), Arc::new(client)).await;
    let mut manager = manager.map_err(|error| wrong(refusal.explain(&error)))?;
    manager.set_credential_store(ServerCredentials {
        tokens: shared.options.token_store.clone(),
        server: display_url(url),
    });
    Ok((manager, refusal))
}

/// The stored tokens of one server.
struct ServerCredentials {
    tokens: Arc<dyn TokenStore>,
    server: String,
}

type CredentialFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, AuthError>> + Send + 'a>>;

impl ServerCredentials {
    fn run_blocking<'a, T: Send + 'static>(
        &self,
        act: impl FnOnce(&dyn TokenStore, &str) -> std::io::Result<T> + Send + 'static,
    ) -> CredentialFuture<'a, T> {
        let (tokens, server) = (self.tokens.clone(), self.server.clone());
        Box::pin(async move {
            let done = tokio::task::spawn_blocking(move || act(&*tokens, &server)).await;
            let failed = |error: String| AuthError::CredentialStoreError(error);
            done.map_err(|error| failed(error.to_string()))?.map_err(|error| failed(error.to_string()))
        })
    }
}

impl CredentialStore for ServerCredentials {
    fn load<'life0, 'async_trait>(&'life0 self) -> CredentialFuture<'async_trait, Option<StoredCredentials>>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        let loading = self.run_blocking(|tokens, server| tokens.load(server));
        Box::pin(async {
            // Tokens in an unknown format come from another version: a new login replaces them.
            Ok(loading.await?.and_then(|tokens| serde_json::from_str(tokens.expose_secret()).ok()))
        })
    }

    fn save<'life0, 'async_trait>(
        &'life0 self,
        credentials: StoredCredentials,
    ) -> CredentialFuture<'async_trait, ()>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        self.run_blocking(move |tokens, server| {
            let text = serde_json::to_string(&credentials).map_err(std::io::Error::other)?;
            tokens.save(server, &SecretString::from(text))
        })
    }

    fn clear<'life0, 'async_trait>(&'life0 self) -> CredentialFuture<'async_trait, ()>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        self.run_blocking(|tokens, server| tokens.clear(server))
    }
}
