//! AcpSessions: each is an interactive root task. Its id is the client's; the task is found by a label of its order.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use longhaul::entry::Order;
use longhaul::store::TaskFilter;
use longhaul::task::TaskState;
use longhaul::{LonghaulError, TaskId};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::connection::{INTERNAL, INVALID_PARAMS, INVALID_REQUEST, RequestError};
use super::options::SessionOptions;
use super::updates::EditorQuestion;
use crate::backend::{Backend, BackendError, NewTask, ServedTeam};

/// The labels that a session's first task has.
const SESSION: &str = "acp.session";
const DIR: &str = "acp.cwd";
/// How many sessions are listed.
const LISTED: usize = 200;
/// How many tasks are searched for a session.
const SEARCHED: usize = 5000;

/// A session that the client has opened.
#[derive(Debug, Clone)]
pub(super) struct AcpSession {
    pub(super) dir: PathBuf,
    /// Its first task; none before the first prompt.
    pub(super) task: Option<TaskId>,
    /// Fires when the client cancels the prompt that runs.
    pub(super) running: Option<CancellationToken>,
    /// A question that the next prompt answers.
    pub(super) question: Option<EditorQuestion>,
    pub(super) options: SessionOptions,
}

/// The open sessions.
#[derive(Clone)]
pub(super) struct AcpSessions {
    backend: Backend,
    open: Arc<Mutex<HashMap<String, AcpSession>>>,
}

impl From<LonghaulError> for RequestError {
    fn from(error: LonghaulError) -> RequestError {
        RequestError::new(INTERNAL, error.to_string())
    }
}

impl From<BackendError> for RequestError {
    fn from(error: BackendError) -> RequestError {
        RequestError::new(INTERNAL, error.to_string())
    }
}

fn text_at<'a>(params: &'a Value, key: &str) -> Option<&'a str> {
    params.get(key).and_then(Value::as_str)
}

/// The id of the session that a request is about.
pub(super) fn session_id(params: &Value) -> Result<&str, RequestError> {
    text_at(params, "sessionId").ok_or_else(|| RequestError::new(INVALID_PARAMS, "sessionId is missing"))
}

fn dir(params: &Value) -> Result<PathBuf, RequestError> {
    let dir = text_at(params, "cwd").map(PathBuf::from).filter(|dir| dir.is_absolute());
    let dir = dir.ok_or_else(|| RequestError::new(INVALID_PARAMS, "cwd must be an absolute path"))?;
    match dir.is_dir() {
        true => Ok(dir),
        false => Err(RequestError::new(INVALID_PARAMS, format!("cwd: {} is not a directory", dir.display()))),
    }
}

fn not_open(id: &str) -> RequestError {
    let text = format!("session '{id}' is not open: use session/new or session/load");
    RequestError::new(INVALID_PARAMS, text)
}

impl AcpSessions {
    pub(super) fn new(backend: Backend) -> AcpSessions {
        AcpSessions { backend, open: Arc::default() }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, AcpSession>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new session. It has no task before its first prompt.
    pub(super) fn create(&self, params: &Value) -> Result<Value, RequestError> {
        let id = uuid::Uuid::now_v7().to_string();
        let options = SessionOptions::default();
        let mut result = options.opened(self.team()?);
        result["sessionId"] = id.as_str().into();
        let session = AcpSession { dir: dir(params)?, task: None, running: None, question: None, options };
        self.lock().insert(id, session);
        Ok(result)
    }

    /// The team that answers.
    fn team(&self) -> Result<&ServedTeam, RequestError> {
        let first = self.backend.teams().first();
        first.ok_or_else(|| RequestError::new(INTERNAL, "no team is served"))
    }

    /// Sets an option of a session that has not begun.
    pub(super) fn set_option(&self, params: &Value) -> Result<Value, RequestError> {
        let id = session_id(params)?;
        let missing = |key: &str| RequestError::new(INVALID_PARAMS, format!("{key} is missing"));
        let (option, value) = match text_at(params, "modeId") {
            Some(mode) => ("mode", mode),
            None => (
                text_at(params, "configId").ok_or_else(|| missing("configId"))?,
                text_at(params, "value").ok_or_else(|| missing("value"))?,
            ),
        };
        let mut open = self.lock();
        let session = open.get_mut(id).ok_or_else(|| not_open(id))?;
        if session.task.is_some() || session.running.is_some() {
            let text = "the session has begun: what it works with is chosen before the first prompt. Open a new session";
            return Err(RequestError::new(INVALID_REQUEST, text));
        }
        session.options.set(self.team()?, option, value)?;
        Ok(json!({ "configOptions": session.options.describe(self.team()?) }))
    }

    /// Opens a session that exists.
    pub(super) async fn open(&self, params: &Value) -> Result<(String, TaskId, Value), RequestError> {
        let id = session_id(params)?.to_owned();
        let dir = dir(params)?;
        let found =
            self.roots(SEARCHED).await?.into_iter().find(|(_, order)| order.labels.get(SESSION) == Some(&id));
        let (state, order) =
            found.ok_or_else(|| RequestError::new(INVALID_PARAMS, format!("there is no session '{id}'")))?;
        let options = SessionOptions::of_order(&order);
        let opened = options.opened(self.team()?);
        let session = AcpSession { dir, task: Some(state.id), running: None, question: None, options };
        self.lock().insert(id.clone(), session);
        Ok((id, state.id, opened))
    }

    /// The first tasks of sessions, newest first.
    async fn roots(&self, most: usize) -> Result<Vec<(TaskState, Order)>, RequestError> {
        let longhaul = self.backend.longhaul();
        let mut all = longhaul.list(TaskFilter::default()).await?;
        all.retain(|state| {
            state.parent.is_none() && state.continues.is_none() && self.backend.serves(&state.team)
        });
        all.reverse();
        let mut roots = Vec::new();
        for state in all.into_iter().take(most) {
            let order = longhaul.order(state.id).await?;
            if order.labels.contains_key(SESSION) {
                roots.push((state, order));
            }
        }
        Ok(roots)
    }

    /// The list of sessions.
    pub(super) async fn list(&self, params: &Value) -> Result<Value, RequestError> {
        let wanted = text_at(params, "cwd");
        let roots = self.roots(SEARCHED).await?;
        let sessions: Vec<Value> = roots
            .iter()
            .filter(|(_, order)| {
                wanted.is_none_or(|dir| order.labels.get(DIR).map(String::as_str) == Some(dir))
            })
            .take(LISTED)
            .map(|(state, order)| {
                json!({
                    "sessionId": order.labels.get(SESSION),
                    "cwd": order.labels.get(DIR),
                    "title": state.headline,
                    "updatedAt": state.active.to_string(),
                })
            })
            .collect();
        Ok(json!({ "sessions": sessions }))
    }

    /// Forgets a session. Its task goes on.
    pub(super) fn close(&self, id: &str) {
        self.lock().remove(id);
    }

    /// Begins a prompt: one at a time.
    pub(super) fn begin(&self, id: &str) -> Result<(AcpSession, CancellationToken), RequestError> {
        let mut open = self.lock();
        let session = open.get_mut(id).ok_or_else(|| not_open(id))?;
        if session.running.is_some() {
            return Err(RequestError::new(INVALID_REQUEST, "the session is working on another prompt"));
        }
        let cancel = CancellationToken::new();
        session.running = Some(cancel.clone());
        let begun = session.clone();
        session.question = None;
        Ok((begun, cancel))
    }

    /// Ends a prompt. The next one answers `question`.
    pub(super) fn end(&self, id: &str, question: Option<EditorQuestion>) {
        if let Some(session) = self.lock().get_mut(id) {
            session.running = None;
            session.question = question;
        }
    }

    /// Cancels the prompt that runs.
    pub(super) fn cancel(&self, id: &str) {
        if let Some(running) = self.lock().get(id).and_then(|session| session.running.clone()) {
            running.cancel();
        }
    }

    /// Starts the task of a session with its first prompt.
    pub(super) async fn start(
        &self,
        id: &str,
        session: &AcpSession,
        text: String,
    ) -> Result<TaskId, RequestError> {
        let dir = session.dir.display().to_string();
        let labels = BTreeMap::from([(SESSION.to_owned(), id.to_owned()), (DIR.to_owned(), dir)]);
        let mut order = Order::default().interactive().labels(labels).working_dir(session.dir.clone());
        order.task = text.into();
        session.options.apply(&mut order);
        let new = NewTask { order, own_dir: true, key: Some(format!("acp/{id}")), ..NewTask::default() };
        let task = self.backend.start(new).await?.task;
        if let Some(session) = self.lock().get_mut(id) {
            session.task = Some(task);
        }
        Ok(task)
    }
}
