//! One server, shared by all toolsets that name it: started when first needed, stopped when idle, and
//! restarted when it is needed again or has crashed.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::model::{PaginatedRequestParams, ProtocolVersion, SubscriptionFilter, Tool};
use rmcp::service::{ClientInitializeError, ClientLifecycleMode, RunningService};
use rmcp::{Peer, RoleClient};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::McpOptions;
use super::client_handler::{self, McpClientHandler};
use super::connection::{ConnectionGuard, McpConnection};
use super::connection_fault::ConnectionFault;
use super::limited_transport::LimitedTransport;
use super::login::PendingLogin;
use super::restart_backoff::{RestartBackoff, RestartDecision};
use super::running_calls::McpRunningCalls;
use super::server_process::{self, ServerStderr, StderrReader};
use super::settings::{McpEndpoint, McpServer};
use super::stdio::StdioTransport;
use super::{error_text, limits, remote};
use crate::process::ProcessGroup;
use crate::toolset::text::truncate;

/// How many tools of a server are listed, and in how many pages.
const MOST_TOOLS: usize = 2000;
const MOST_PAGES: usize = 100;
/// How long a server may take to exit after its connection is closed, and then after SIGTERM.
const LEAVING: Duration = Duration::from_millis(1500);
const GRACE: Duration = Duration::from_secs(1);
/// How long a program may take to exit by itself after its connection has ended.
const EXITING: Duration = Duration::from_millis(500);
/// A server's instructions are truncated to this length.
const LONGEST_INSTRUCTIONS: usize = 4000;

pub(super) type McpService = RunningService<RoleClient, McpClientHandler>;

/// A server, running or not.
pub(super) struct McpSharedServer {
    pub(super) server: McpServer,
    pub(super) label: Arc<str>,
    pub(super) options: Arc<McpOptions>,
    pub(super) logins: PendingLogin,
    current: tokio::sync::Mutex<Option<Arc<McpConnection>>>,
    listing: Mutex<Option<McpToolListing>>,
    generation: AtomicU64,
    backoff: Mutex<RestartBackoff>,
    /// Whether it is known to speak a protocol older than 2026.
    is_legacy: AtomicBool,
    users: AtomicUsize,
    pub(super) cancel: CancellationToken,
    pub(super) tasks: TaskTracker,
}

/// The tools and the instructions of a server.
#[derive(Clone, Default, PartialEq)]
pub(super) struct McpToolListing {
    pub(super) tools: Arc<Vec<Tool>>,
    pub(super) instructions: Option<Arc<str>>,
}

/// A server that was just started or connected to.
struct StartedConnection {
    service: McpService,
    changed: Arc<Notify>,
    calls: Arc<McpRunningCalls>,
    group: Option<ProcessGroup>,
    fault: ConnectionFault,
}

/// Why a server cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct McpServerError(pub(super) String);

/// Why connecting failed.
pub(super) struct ConnectError {
    why: String,
    /// Whether to try again with the older protocol.
    retry_legacy: bool,
}

/// How a connection ended.
enum ConnectionEnd {
    Exited(String),
    Disconnected,
    /// We closed it, for this reason.
    Faulted(String),
    Idle,
    ShutDown,
}

impl McpSharedServer {
    pub(super) fn new(
        server: McpServer,
        options: Arc<McpOptions>,
        cancel: CancellationToken,
    ) -> Arc<McpSharedServer> {
        Arc::new(McpSharedServer {
            label: server.label().into(),
            server,
            options,
            logins: PendingLogin::default(),
            current: tokio::sync::Mutex::default(),
            listing: Mutex::default(),
            generation: AtomicU64::new(0),
            backoff: Mutex::default(),
            is_legacy: AtomicBool::new(false),
            users: AtomicUsize::new(0),
            cancel,
            tasks: TaskTracker::new(),
        })
    }

    fn backoff(&self) -> MutexGuard<'_, RestartBackoff> {
        self.backoff.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a toolset that uses the server.
    pub(super) fn add_user(&self) {
        self.users.fetch_add(1, Ordering::SeqCst);
    }

    /// Removes a toolset; removing the last one stops the server.
    pub(super) async fn remove_user(&self) {
        if self.users.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.shut_down().await;
        }
    }

    /// Stops the server for good.
    pub(super) async fn shut_down(&self) {
        self.cancel.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Returns a number that changes whenever its tools change.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    fn bump_generation(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    /// Allows the next start at once, and makes running agents open the tools again. Called when the reason
    /// for a failed start may be gone.
    pub(super) fn try_again(&self) {
        *self.backoff() = RestartBackoff::default();
        self.bump_generation();
    }

    /// Returns its tools and instructions; the last known ones if it is not running.
    pub(super) async fn listing(self: &Arc<Self>) -> Result<McpToolListing, McpServerError> {
        if let Some(listed) = self.known_listing() {
            return Ok(listed);
        }
        let _in_use = self.connection().await?;
        Ok(self.known_listing().unwrap_or_default())
    }

    pub(super) fn known_listing(&self) -> Option<McpToolListing> {
        self.listing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn update_listing(&self, listed: McpToolListing) {
        let before = self.listing.lock().unwrap_or_else(PoisonError::into_inner).replace(listed.clone());
        if before.is_some_and(|before| before != listed) {
            tracing::info!(server = %self.label, tools = listed.tools.len(), "the MCP server's tools have changed");
            self.bump_generation();
        }
    }

    /// Returns the connection, and opens one if there is none.
    pub(super) async fn connection(self: &Arc<Self>) -> Result<ConnectionGuard, McpServerError> {
        let mut current = self.current.lock().await;
        if self.cancel.is_cancelled() {
            return Err(McpServerError("it has been shut down".to_owned()));
        }
        if let Some(in_use) = current.as_ref().and_then(McpConnection::acquire) {
            return Ok(in_use);
        }
        let decision = self.backoff().decide(Instant::now());
        let at = match decision {
            RestartDecision::Now => None,
            RestartDecision::At(at) => Some(at),
            RestartDecision::FailedRecently(why) => return Err(McpServerError(why)),
        };
        let starting = async {
            if let Some(at) = at {
                tokio::time::sleep_until(at).await;
            }
            self.start().await
        };
        let started = tokio::select! {
            started = starting => started,
            () = self.cancel.cancelled() => Err(McpServerError("it has been shut down".to_owned())),
        };
        match started {
            Ok((connection, in_use)) => {
                self.backoff().record_start();
                *current = Some(connection);
                Ok(in_use)
            }
            Err(why) => {
                self.backoff().record_failed_start(Instant::now(), &why.to_string());
                Err(why)
            }
        }
    }

    async fn start(self: &Arc<Self>) -> Result<(Arc<McpConnection>, ConnectionGuard), McpServerError> {
        let stderr = Arc::new(ServerStderr::new(&self.server, self.label.clone()));
        let (limit, is_listing) = (self.options.connect_timeout, AtomicBool::new(false));
        let connecting = async {
            let mut started = self.connect(&stderr).await?;
            is_listing.store(true, Ordering::SeqCst);
            match list(started.service.peer()).await {
                Ok(listed) => Ok((started, listed)),
                Err(why) => {
                    let why = match exited_just_now(&mut started.group).await {
                        Some(how) => {
                            stderr.wait_for_leftovers().await;
                            format!("{how} before its tools were listed")
                        }
                        None => why.to_string(),
                    };
                    if let Some(group) = &mut started.group {
                        group.terminate(GRACE).await;
                    }
                    Err(McpServerError(format!("{why}{}", stderr.last_lines_after_exit().await)))
                }
            }
        };
        let connected = timeout(limit, connecting).await;
        let (started, listed) = match connected {
            Ok(connected) => connected?,
            Err(_) => {
                let what = match self.server.program() {
                    _ if is_listing.load(Ordering::SeqCst) => "`tools/list`",
                    Some(_) => "`initialize`",
                    None => "in time",
                };
                // The process was killed when the attempt was dropped.
                return Err(McpServerError(format!(
                    "it did not answer {what} within {limit:?}{}",
                    stderr.last_lines_after_exit().await
                )));
            }
        };
        let info = started.service.peer().peer_info();
        let version = info.as_ref().map(|info| info.protocol_version.clone());
        self.is_legacy.store(version.as_ref().is_some_and(ProtocolVersion::has_initialize), Ordering::SeqCst);
        tracing::debug!(server = %self.label, ?version, tools = listed.tools.len(), "an MCP server is ready");
        self.update_listing(listed);
        let connection = McpConnection::new(started.service.peer().clone(), started.calls.clone());
        let in_use = connection.acquire().ok_or_else(|| McpServerError("it ended at once".to_owned()))?;
        self.tasks.spawn(self.clone().supervise(connection.clone(), started, stderr));
        Ok((connection, in_use))
    }

    /// Connects with the newest protocol that the server speaks.
    async fn connect(
        self: &Arc<Self>,
        stderr: &Arc<ServerStderr>,
    ) -> Result<StartedConnection, McpServerError> {
        let old = ClientLifecycleMode::Initialize;
        let new = ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
        };
        if !self.is_legacy.load(Ordering::SeqCst) {
            match self.attempt(new, stderr).await {
                // Some older servers exit when they receive a request before `initialize`.
                Err(refused) if refused.retry_legacy => {}
                other => return other.map_err(|refused| McpServerError(refused.why)),
            }
        }
        self.attempt(old, stderr).await.map_err(|refused| McpServerError(refused.why))
    }

    async fn attempt(
        self: &Arc<Self>,
        mode: ClientLifecycleMode,
        stderr: &Arc<ServerStderr>,
    ) -> Result<StartedConnection, ConnectError> {
        let (calls, changed, fault) =
            (Arc::<McpRunningCalls>::default(), Arc::<Notify>::default(), ConnectionFault::default());
        let handler = McpClientHandler {
            server: self.label.clone(),
            calls: calls.clone(),
            changed: changed.clone(),
            sampling: self.server.sampling,
            question_slots: client_handler::question_slots(),
        };
        if let McpEndpoint::Remote(remote) = &self.server.endpoint {
            let service = remote::connect(self, remote, handler, mode, &fault).await?;
            return Ok(StartedConnection { service, changed, calls, group: None, fault });
        }
        let nothing = || McpServerError("there is nothing to start".to_owned());
        let program = self.server.program().ok_or_else(nothing)?;
        let server_process::ServerProcess { mut group, stdin, stdout, stderr: pipe } =
            server_process::spawn_server(&program, &self.options)?;
        // Ends with the pipe, or with the server's last process.
        self.tasks.spawn(StderrReader::new(stderr).read(pipe, self.cancel.clone()));
        let transport =
            LimitedTransport::new(StdioTransport::new(stdout, stdin, fault.clone()), fault.clone());
        let serving = rmcp::service::serve_client_with_lifecycle(handler, transport, mode);
        // The server has exited even if processes that it left behind hold its stdout open.
        let exited = async {
            let status = group.wait_for_exit().await;
            tokio::time::sleep(EXITING).await;
            status
        };
        let (error, ended) = tokio::select! {
            biased;
            served = serving => match served {
                Ok(service) => return Ok(StartedConnection { service, changed, calls, group: Some(group), fault }),
                Err(error) => (Some(error), timeout(EXITING, group.wait_for_exit()).await.ok()),
            },
            status = exited => (None, Some(status)),
        };
        // A slow older server answered the first request late, in place of `initialize`.
        let late = matches!(
            error,
            Some(
                ClientInitializeError::UncorrelatedErrorResponse { .. }
                    | ClientInitializeError::ConflictInitResponseId(..)
            )
        );
        // After an unreadable message we close the pipe, so the exit status says nothing.
        let misread = error
            .as_ref()
            .and_then(error_text::unreadable_text)
            .or_else(|| fault.reason().map(str::to_owned));
        let retry_legacy = misread.is_none() && (ended.is_some() || late);
        if ended.is_some() {
            stderr.wait_for_leftovers().await;
        }
        group.terminate(GRACE).await;
        let how = match (ended, error) {
            _ if misread.is_some() => truncate(&self.server.scrub(misread.unwrap_or_default()), 400),
            (Some(status), _) => format!("{} before it was ready", server_process::exit_text(status)),
            (None, Some(error)) => self.explain_error(&error, &fault),
            (None, None) => "it ended before it was ready".to_owned(),
        };
        Err(ConnectError { why: format!("{how}{}", stderr.last_lines_after_exit().await), retry_legacy })
    }

    /// Explains why connecting failed: names the fault if there is one, not its consequences.
    pub(super) fn explain_error(&self, error: &ClientInitializeError, fault: &ConnectionFault) -> String {
        let why = fault.reason().map_or_else(|| error_text::connect_error_text(error), str::to_owned);
        truncate(&self.server.scrub(why), 400)
    }

    /// Watches a connection until it ends, then stops everything that belongs to it.
    async fn supervise(
        self: Arc<Self>,
        connection: Arc<McpConnection>,
        started: StartedConnection,
        stderr: Arc<ServerStderr>,
    ) {
        let StartedConnection { service, changed, mut group, fault, .. } = started;
        let peer = service.peer().clone();
        let stop = service.cancellation_token();
        let mut running = pin!(service.waiting());
        let mut is_running = true;
        let mut listening = pin!(listen(peer.clone(), changed.clone()));
        let mut listing = None;
        let end = loop {
            tokio::select! {
                biased;
                () = self.cancel.cancelled() => break ConnectionEnd::ShutDown,
                why = fault.until_raised() => break ConnectionEnd::Faulted(why),
                status = exits(&mut group) => break ConnectionEnd::Exited(server_process::exit_text(status)),
                _ = &mut running => {
                    is_running = false;
                    break ConnectionEnd::Disconnected;
                }
                () = connection.until_idle(self.options.idle_timeout) => break ConnectionEnd::Idle,
                // Changes during a listing are listed afterwards, so that a server that changes constantly
                // cannot delay it for ever.
                () = changed.notified(), if listing.is_none() => listing = Some(Box::pin(relist(peer.clone(), self.options.connect_timeout))),
                Some(listed) = poll_optional(&mut listing) => {
                    listing = None;
                    match listed {
                        Ok(listed) => self.update_listing(listed),
                        Err(why) => tracing::warn!(server = %self.label, %why, "cannot list the MCP server's tools again"),
                    }
                }
                () = &mut listening => {}
            }
        };
        match &end {
            ConnectionEnd::Exited(how) => connection.mark_ended(format!(
                "died during the call: {how}{}",
                final_stderr(&mut group, &stderr).await
            )),
            ConnectionEnd::Disconnected => {
                // A program closes its stdout before it exits; its exit status says more.
                connection.mark_ended(match exited_just_now(&mut group).await {
                    Some(how) => {
                        format!("died during the call: {how}{}", final_stderr(&mut group, &stderr).await)
                    }
                    None => {
                        format!("died during the call: it closed the connection{}", stderr.last_lines())
                    }
                });
            }
            ConnectionEnd::Faulted(why) => {
                connection.mark_ended(format!("was disconnected during the call: {why}"))
            }
            ConnectionEnd::Idle | ConnectionEnd::ShutDown => {
                connection.mark_ended("was stopped during the call".to_owned())
            }
        }
        if matches!(end, ConnectionEnd::Exited(_) | ConnectionEnd::Disconnected | ConnectionEnd::Faulted(_)) {
            match &end {
                ConnectionEnd::Faulted(why) => {
                    tracing::warn!(server = %self.label, why, "an MCP server is disconnected")
                }
                _ => tracing::warn!(server = %self.label, "an MCP server has ended{}", stderr.last_lines()),
            }
            self.backoff().record_crash(Instant::now(), connection.since);
        } else {
            tracing::debug!(server = %self.label, "an MCP server is stopped");
        }
        // Close its stdin first, then send SIGTERM, then SIGKILL.
        stop.cancel();
        let leaves_by = Instant::now() + LEAVING;
        if is_running {
            let _ = timeout_at(leaves_by, &mut running).await;
        }
        if let Some(mut group) = group {
            if matches!(end, ConnectionEnd::Idle | ConnectionEnd::ShutDown) {
                let _ = timeout_at(leaves_by, group.wait_for_exit()).await;
            }
            group.terminate(GRACE).await;
        }
    }
}

impl<E: std::error::Error> From<E> for ConnectError {
    fn from(error: E) -> Self {
        ConnectError { why: error.to_string(), retry_legacy: false }
    }
}

impl ConnectError {
    /// The server disconnected, or its answer is not MCP: the older protocol may work.
    pub(super) fn retry_legacy(why: String) -> Self {
        ConnectError { why, retry_legacy: true }
    }
}

async fn exits(group: &mut Option<ProcessGroup>) -> std::io::Result<std::process::ExitStatus> {
    match group {
        Some(group) => group.wait_for_exit().await,
        None => std::future::pending().await,
    }
}

/// Returns how a program exited whose connection has just ended: it closes its stdout before it exits.
async fn exited_just_now(group: &mut Option<ProcessGroup>) -> Option<String> {
    timeout(EXITING, exits(group)).await.ok().map(server_process::exit_text)
}

/// Returns the last stderr lines of an exited program and of the processes that it left behind, which are
/// killed here.
async fn final_stderr(group: &mut Option<ProcessGroup>, stderr: &ServerStderr) -> String {
    stderr.wait_for_leftovers().await;
    if let Some(group) = group {
        group.kill().await;
    }
    stderr.last_lines_after_exit().await
}

async fn poll_optional<F: Future + Unpin>(future: &mut Option<F>) -> Option<F::Output> {
    match future {
        Some(future) => Some(future.await),
        None => std::future::pending().await,
    }
}

/// Subscribes to changes of the tools, which a client must do since 2026.
async fn listen(peer: Peer<RoleClient>, changed: Arc<Notify>) {
    let info = peer.peer_info();
    let wanted = info.is_some_and(|info| {
        let tells = info.capabilities.tools.as_ref().is_some_and(|tools| tools.list_changed == Some(true));
        tells && !info.protocol_version.has_initialize()
    });
    if wanted
        && let Ok(mut changes) = peer.listen(SubscriptionFilter::builder().tools_list_changed().build()).await
    {
        while let Ok(Some(_)) = changes.next().await {
            changed.notify_one();
        }
    }
    std::future::pending().await
}

async fn relist(peer: Peer<RoleClient>, limit: Duration) -> Result<McpToolListing, McpServerError> {
    // Wait a moment, so that several changes in a row are listed once.
    tokio::time::sleep(Duration::from_millis(100)).await;
    timeout(limit, list(&peer))
        .await
        .unwrap_or_else(|_| Err(McpServerError(format!("there was no answer within {limit:?}"))))
}

/// Lists all tools, page by page.
async fn list(peer: &Peer<RoleClient>) -> Result<McpToolListing, McpServerError> {
    let info = peer.peer_info();
    let instructions = info.as_ref().and_then(|info| info.instructions.as_deref()).map(str::trim);
    let instructions =
        instructions.filter(|text| !text.is_empty()).map(|text| truncate(text, LONGEST_INSTRUCTIONS).into());
    if info.is_some_and(|info| info.capabilities.tools.is_none()) {
        return Ok(McpToolListing { tools: Arc::default(), instructions });
    }
    let (mut tools, mut cursor, mut bytes) = (Vec::new(), None, 0);
    for _ in 0..MOST_PAGES {
        let page = peer.list_tools(Some(PaginatedRequestParams::default().with_cursor(cursor))).await;
        let page = page.map_err(|error| {
            let why = truncate(&error_text::service_error_text(&error), 300);
            McpServerError(format!("its tools cannot be listed: {why}"))
        })?;
        bytes += page.tools.iter().map(size).sum::<usize>();
        if bytes > limits::TOOLS_BYTES {
            return Err(McpServerError(format!(
                "its list of tools is longer than {} MB, which is the limit",
                limits::TOOLS_BYTES >> 20
            )));
        }
        tools.extend(page.tools);
        cursor = page.next_cursor;
        if cursor.is_none() || tools.len() >= MOST_TOOLS {
            break;
        }
    }
    tools.truncate(MOST_TOOLS);
    Ok(McpToolListing { tools: Arc::new(tools), instructions })
}

/// Estimates the memory of a tool.
fn size(tool: &Tool) -> usize {
    serde_json::to_vec(tool).map_or(usize::MAX >> 1, |json| json.len())
}
