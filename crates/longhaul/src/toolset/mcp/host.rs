//! One server for all who name it: started when it is first needed, stopped when it is idle, started again when it
//! is needed again or has died.

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
use super::calls::Calls;
use super::fault::Fault;
use super::guarded::Guarded;
use super::handler::{self, Handler};
use super::health::{Health, Turn};
use super::link::{InUse, Link};
use super::login::Logins;
use super::pipe::Pipe;
use super::program::{self, Reading, Stderr};
use super::settings::{McpServer, McpWay};
use super::{limits, plain, remote};
use crate::process::Group;
use crate::toolset::text::clipped;

/// How many tools of a server are listed, and how many pages they may come in.
const MOST_TOOLS: usize = 2000;
const MOST_PAGES: usize = 100;
/// How long a server may take to end by itself when its connection is closed, and then after a SIGTERM.
const LEAVING: Duration = Duration::from_millis(1500);
const GRACE: Duration = Duration::from_secs(1);
/// How long a program whose connection is over may take to exit by itself.
const EXITING: Duration = Duration::from_millis(500);
/// What a server says about itself is cut there.
const LONGEST_INSTRUCTIONS: usize = 4000;

pub(super) type Service = RunningService<RoleClient, Handler>;

/// A server, whether it runs or not.
pub(super) struct Host {
    pub(super) server: McpServer,
    pub(super) label: Arc<str>,
    pub(super) options: Arc<McpOptions>,
    pub(super) logins: Logins,
    current: tokio::sync::Mutex<Option<Arc<Link>>>,
    listed: Mutex<Option<Listed>>,
    generation: AtomicU64,
    health: Mutex<Health>,
    /// Whether it is known to be older than the protocol of 2026.
    old: AtomicBool,
    users: AtomicUsize,
    pub(super) over: CancellationToken,
    pub(super) tasks: TaskTracker,
}

/// What a server offers.
#[derive(Clone, Default, PartialEq)]
pub(super) struct Listed {
    pub(super) tools: Arc<Vec<Tool>>,
    pub(super) instructions: Option<Arc<str>>,
}

/// A server that has just been started or connected to.
struct Started {
    service: Service,
    changed: Arc<Notify>,
    calls: Arc<Calls>,
    group: Option<Group>,
    fault: Fault,
}

/// Why it was not.
pub(super) struct Refused {
    why: String,
    /// Whether asking in another way may help.
    again: bool,
}

/// How a connection came to its end.
enum End {
    Exited(String),
    Disconnected,
    /// We do not want it any more, for this reason.
    Cut(String),
    Idle,
    Over,
}

impl Host {
    pub(super) fn new(server: McpServer, options: Arc<McpOptions>, over: CancellationToken) -> Arc<Host> {
        Arc::new(Host {
            label: server.label().into(),
            server,
            options,
            logins: Logins::default(),
            current: tokio::sync::Mutex::default(),
            listed: Mutex::default(),
            generation: AtomicU64::new(0),
            health: Mutex::default(),
            old: AtomicBool::new(false),
            users: AtomicUsize::new(0),
            over,
            tasks: TaskTracker::new(),
        })
    }

    fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more toolset names it.
    pub(super) fn take(&self) {
        self.users.fetch_add(1, Ordering::SeqCst);
    }

    /// One less. The last one ends it.
    pub(super) async fn leave(&self) {
        if self.users.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.end().await;
        }
    }

    /// Ends it for good.
    pub(super) async fn end(&self) {
        self.over.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Changes when what it offers does.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    fn renew(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    /// What kept it from starting may be over: it is tried again at once, also by agents that are at work.
    pub(super) fn try_again(&self) {
        *self.health() = Health::default();
        self.renew();
    }

    /// What it offers; what it has offered, if it does not run.
    pub(super) async fn listed(self: &Arc<Self>) -> Result<Listed, String> {
        if let Some(listed) = self.known() {
            return Ok(listed);
        }
        let _in_use = self.link().await?;
        Ok(self.known().unwrap_or_default())
    }

    pub(super) fn known(&self) -> Option<Listed> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn learn(&self, listed: Listed) {
        let before = self.listed.lock().unwrap_or_else(PoisonError::into_inner).replace(listed.clone());
        if before.is_some_and(|before| before != listed) {
            tracing::info!(server = %self.label, tools = listed.tools.len(), "the server offers other tools now");
            self.renew();
        }
    }

    /// The connection, made now if there is none.
    pub(super) async fn link(self: &Arc<Self>) -> Result<InUse, String> {
        let mut current = self.current.lock().await;
        if self.over.is_cancelled() {
            return Err("it has been shut down".to_owned());
        }
        if let Some(in_use) = current.as_ref().and_then(Link::enter) {
            return Ok(in_use);
        }
        let turn = self.health().turn(Instant::now());
        let at = match turn {
            Turn::Now => None,
            Turn::At(at) => Some(at),
            Turn::Refused(why) => return Err(why),
        };
        let starting = async {
            if let Some(at) = at {
                tokio::time::sleep_until(at).await;
            }
            self.start().await
        };
        let started = tokio::select! {
            started = starting => started,
            () = self.over.cancelled() => Err("it has been shut down".to_owned()),
        };
        match started {
            Ok((link, in_use)) => {
                self.health().started();
                *current = Some(link);
                Ok(in_use)
            }
            Err(why) => {
                self.health().refused(Instant::now(), &why);
                Err(why)
            }
        }
    }

    async fn start(self: &Arc<Self>) -> Result<(Arc<Link>, InUse), String> {
        let stderr = Arc::new(Stderr::new(&self.server, self.label.clone()));
        let (limit, is_listing) = (self.options.connect, AtomicBool::new(false));
        let connecting = async {
            let mut started = self.connect(&stderr).await?;
            is_listing.store(true, Ordering::SeqCst);
            match list(started.service.peer()).await {
                Ok(listed) => Ok((started, listed)),
                Err(why) => {
                    let why = match exited_just_now(&mut started.group).await {
                        Some(how) => {
                            stderr.hear_out().await;
                            format!("{how} before its tools were listed")
                        }
                        None => why,
                    };
                    if let Some(group) = &mut started.group {
                        group.terminate(GRACE).await;
                    }
                    Err(format!("{why}{}", stderr.last_words().await))
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
                // It was killed when the connection was given up.
                return Err(format!(
                    "it did not answer {what} within {limit:?}{}",
                    stderr.last_words().await
                ));
            }
        };
        let info = started.service.peer().peer_info();
        let version = info.as_ref().map(|info| info.protocol_version.clone());
        self.old.store(version.as_ref().is_some_and(ProtocolVersion::has_initialize), Ordering::SeqCst);
        tracing::debug!(server = %self.label, ?version, tools = listed.tools.len(), "an MCP server is ready");
        self.learn(listed);
        let link = Link::new(started.service.peer().clone(), started.calls.clone());
        let in_use = link.enter().ok_or_else(|| "it ended at once".to_owned())?;
        self.tasks.spawn(self.clone().tend(link.clone(), started, stderr));
        Ok((link, in_use))
    }

    /// Connects in the newest way that the server knows.
    async fn connect(self: &Arc<Self>, stderr: &Arc<Stderr>) -> Result<Started, String> {
        let old = ClientLifecycleMode::Initialize;
        let new = ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
        };
        if !self.old.load(Ordering::SeqCst) {
            match self.attempt(new, stderr).await {
                // Some servers of old end when they are asked something before `initialize`.
                Err(refused) if refused.again => {}
                other => return other.map_err(|refused| refused.why),
            }
        }
        self.attempt(old, stderr).await.map_err(|refused| refused.why)
    }

    async fn attempt(
        self: &Arc<Self>,
        mode: ClientLifecycleMode,
        stderr: &Arc<Stderr>,
    ) -> Result<Started, Refused> {
        let (calls, changed, fault) = (Arc::<Calls>::default(), Arc::<Notify>::default(), Fault::default());
        let handler = Handler {
            server: self.label.clone(),
            calls: calls.clone(),
            changed: changed.clone(),
            sampling: self.server.sampling,
            questions: handler::questions(),
        };
        if let McpWay::Remote(remote) = &self.server.way {
            let service = remote::connect(self, remote, handler, mode, &fault).await?;
            return Ok(Started { service, changed, calls, group: None, fault });
        }
        let refused = |why| Refused { why, again: false };
        let program = self.server.program().ok_or_else(|| refused("there is nothing to start".to_owned()))?;
        let program::Program { mut group, stdin, stdout, stderr: pipe } =
            program::start(&program, &self.options).map_err(refused)?;
        // It ends with the pipe, or with the server's last process.
        self.tasks.spawn(Reading::new(stderr).read(pipe, self.over.clone()));
        let transport = Guarded::new(Pipe::new(stdout, stdin, fault.clone()), fault.clone());
        let serving = rmcp::service::serve_client_with_lifecycle(handler, transport, mode);
        // What it has left behind may hold its output open: that is no server.
        let exited = async {
            let status = group.exits().await;
            tokio::time::sleep(EXITING).await;
            status
        };
        let (error, ended) = tokio::select! {
            biased;
            served = serving => match served {
                Ok(service) => return Ok(Started { service, changed, calls, group: Some(group), fault }),
                Err(error) => (Some(error), timeout(EXITING, group.exits()).await.ok()),
            },
            status = exited => (None, Some(status)),
        };
        // One of old that was slow: what it was asked first it has answered late, in place of `initialize`.
        let late = matches!(
            error,
            Some(
                ClientInitializeError::UncorrelatedErrorResponse { .. }
                    | ClientInitializeError::ConflictInitResponseId(..)
            )
        );
        // How it ends then is our doing: its pipe is closed.
        let misread = error.as_ref().and_then(plain::unreadable).or_else(|| fault.why().map(str::to_owned));
        let again = misread.is_none() && (ended.is_some() || late);
        if ended.is_some() {
            stderr.hear_out().await;
        }
        group.terminate(GRACE).await;
        let how = match (ended, error) {
            _ if misread.is_some() => clipped(&self.server.scrub(misread.unwrap_or_default()), 400),
            (Some(status), _) => format!("{} before it was ready", program::ending(status)),
            (None, Some(error)) => self.explained(&error, &fault),
            (None, None) => "it ended before it was ready".to_owned(),
        };
        Err(Refused { why: format!("{how}{}", stderr.last_words().await), again })
    }

    /// Why a connection did not come about: what could not be read, rather than what came of that.
    pub(super) fn explained(&self, error: &ClientInitializeError, fault: &Fault) -> String {
        let why = fault.why().map_or_else(|| plain::beginning(error), str::to_owned);
        clipped(&self.server.scrub(why), 400)
    }

    /// Looks after a connection until it ends, and sees to it that nothing of it is left.
    async fn tend(self: Arc<Self>, link: Arc<Link>, started: Started, stderr: Arc<Stderr>) {
        let Started { service, changed, mut group, fault, .. } = started;
        let peer = service.peer().clone();
        let stop = service.cancellation_token();
        let mut running = pin!(service.waiting());
        let mut is_running = true;
        let mut listening = pin!(listen(peer.clone(), changed.clone()));
        let mut listing = None;
        let end = loop {
            tokio::select! {
                biased;
                () = self.over.cancelled() => break End::Over,
                why = fault.raised() => break End::Cut(why),
                status = exits(&mut group) => break End::Exited(program::ending(status)),
                _ = &mut running => {
                    is_running = false;
                    break End::Disconnected;
                }
                () = link.idle(self.options.idle) => break End::Idle,
                // What changes meanwhile is listed after that: a server that never rests must not put it off for ever.
                () = changed.notified(), if listing.is_none() => listing = Some(Box::pin(relist(peer.clone(), self.options.connect))),
                Some(listed) = now(&mut listing) => {
                    listing = None;
                    match listed {
                        Ok(listed) => self.learn(listed),
                        Err(why) => tracing::warn!(server = %self.label, why, "the server's tools cannot be listed again"),
                    }
                }
                () = &mut listening => {}
            }
        };
        match &end {
            End::Exited(how) => {
                link.end(format!("died during the call: {how}{}", all_words(&mut group, &stderr).await))
            }
            End::Disconnected => {
                // It closes its output before it exits; how it did says more.
                link.end(match exited_just_now(&mut group).await {
                    Some(how) => {
                        format!("died during the call: {how}{}", all_words(&mut group, &stderr).await)
                    }
                    None => {
                        format!("died during the call: it closed the connection{}", stderr.words_so_far())
                    }
                });
            }
            End::Cut(why) => link.end(format!("was disconnected during the call: {why}")),
            End::Idle | End::Over => link.end("was stopped during the call".to_owned()),
        }
        if matches!(end, End::Exited(_) | End::Disconnected | End::Cut(_)) {
            match &end {
                End::Cut(why) => tracing::warn!(server = %self.label, why, "an MCP server is disconnected"),
                _ => tracing::warn!(server = %self.label, "an MCP server has ended{}", stderr.words_so_far()),
            }
            self.health().died(Instant::now(), link.since);
        } else {
            tracing::debug!(server = %self.label, "an MCP server is stopped");
        }
        // First its input is closed, then it is asked to end, then it is made to.
        stop.cancel();
        let leaves_by = Instant::now() + LEAVING;
        if is_running {
            let _ = timeout_at(leaves_by, &mut running).await;
        }
        if let Some(mut group) = group {
            if matches!(end, End::Idle | End::Over) {
                let _ = timeout_at(leaves_by, group.exits()).await;
            }
            group.terminate(GRACE).await;
        }
    }
}

impl From<String> for Refused {
    fn from(why: String) -> Self {
        Refused { why, again: false }
    }
}

impl Refused {
    /// The server closed, or answered something that is not MCP: an older way of asking may help.
    pub(super) fn again(why: String) -> Self {
        Refused { why, again: true }
    }
}

async fn exits(group: &mut Option<Group>) -> std::io::Result<std::process::ExitStatus> {
    match group {
        Some(group) => group.exits().await,
        None => std::future::pending().await,
    }
}

/// How a program ended whose connection is over. It closes its output before it exits.
async fn exited_just_now(group: &mut Option<Group>) -> Option<String> {
    timeout(EXITING, exits(group)).await.ok().map(program::ending)
}

/// The last words of a program that has exited, and of what it has left behind, which ends here.
async fn all_words(group: &mut Option<Group>, stderr: &Stderr) -> String {
    stderr.hear_out().await;
    if let Some(group) = group {
        group.kill().await;
    }
    stderr.last_words().await
}

async fn now<F: Future + Unpin>(future: &mut Option<F>) -> Option<F::Output> {
    match future {
        Some(future) => Some(future.await),
        None => std::future::pending().await,
    }
}

/// Since 2026 a client must ask to be told that the tools have changed.
async fn listen(peer: Peer<RoleClient>, changed: Arc<Notify>) {
    let info = peer.peer_info();
    let wanted = info.is_some_and(|info| {
        let tells = info.capabilities.tools.as_ref().is_some_and(|tools| tools.list_changed == Some(true));
        tells && !info.protocol_version.has_initialize()
    });
    if wanted
        && let Ok(mut news) = peer.listen(SubscriptionFilter::builder().tools_list_changed().build()).await
    {
        while let Ok(Some(_)) = news.next().await {
            changed.notify_one();
        }
    }
    std::future::pending().await
}

async fn relist(peer: Peer<RoleClient>, limit: Duration) -> Result<Listed, String> {
    // What changes often is listed once.
    tokio::time::sleep(Duration::from_millis(100)).await;
    timeout(limit, list(&peer)).await.unwrap_or_else(|_| Err(format!("there was no answer within {limit:?}")))
}

/// All tools, page by page.
async fn list(peer: &Peer<RoleClient>) -> Result<Listed, String> {
    let info = peer.peer_info();
    let instructions = info.as_ref().and_then(|info| info.instructions.as_deref()).map(str::trim);
    let instructions =
        instructions.filter(|text| !text.is_empty()).map(|text| clipped(text, LONGEST_INSTRUCTIONS).into());
    if info.is_some_and(|info| info.capabilities.tools.is_none()) {
        return Ok(Listed { tools: Arc::default(), instructions });
    }
    let (mut tools, mut cursor, mut bytes) = (Vec::new(), None, 0);
    for _ in 0..MOST_PAGES {
        let page = peer.list_tools(Some(PaginatedRequestParams::default().with_cursor(cursor))).await;
        let page = page.map_err(|error| {
            format!("its tools cannot be listed: {}", clipped(&plain::asking(&error), 300))
        })?;
        bytes += page.tools.iter().map(size).sum::<usize>();
        if bytes > limits::TOOLS_BYTES {
            return Err(format!(
                "its list of tools is longer than {} MB, which is the limit",
                limits::TOOLS_BYTES >> 20
            ));
        }
        tools.extend(page.tools);
        cursor = page.next_cursor;
        if cursor.is_none() || tools.len() >= MOST_TOOLS {
            break;
        }
    }
    tools.truncate(MOST_TOOLS);
    Ok(Listed { tools: Arc::new(tools), instructions })
}

/// How much memory a tool takes, about.
fn size(tool: &Tool) -> usize {
    serde_json::to_vec(tool).map_or(usize::MAX >> 1, |json| json.len())
}
