//! For tests of tools that need no other tasks: a call with nobody at the desk.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::CancellationToken;

use crate::dispatch::{Caller, Desk, DeskError, DeskFuture, Join, Note, Sent, Waited};
use crate::entry::Order;
use crate::id::{CallId, TaskId};
use crate::snapshot::Snapshot;
use crate::task::Head;
use crate::tool::{CallContext, Line, Signal};

/// A desk that refuses everything.
pub(crate) struct NoDesk;

fn refused<'a, T: Send + 'a>() -> DeskFuture<'a, T> {
    Box::pin(async { Err(DeskError::Stopping) })
}

impl Desk for NoDesk {
    fn submit<'a>(&'a self, _: &'a Caller, _: CallId, _: Order) -> DeskFuture<'a, TaskId> {
        refused()
    }

    fn list<'a>(&'a self, _: &'a Caller) -> DeskFuture<'a, Vec<Head>> {
        refused()
    }

    fn view<'a>(&'a self, _: &'a Caller, _: &'a str) -> DeskFuture<'a, Snapshot> {
        refused()
    }

    fn wait<'a>(
        &'a self,
        _: &'a Caller,
        _: &'a [String],
        _: Join,
        _: Option<Duration>,
    ) -> DeskFuture<'a, Waited> {
        refused()
    }

    fn stop<'a>(&'a self, _: &'a Caller, _: &'a str) -> DeskFuture<'a, Head> {
        refused()
    }

    fn send<'a>(&'a self, _: &'a Caller, _: CallId, _: &'a str, _: Note) -> DeskFuture<'a, Sent> {
        refused()
    }

    fn broadcast<'a>(&'a self, _: &'a Caller, _: CallId, _: Note) -> DeskFuture<'a, Vec<TaskId>> {
        refused()
    }
}

/// A call of a task that works in `dir`, and the end where its progress is heard.
pub(crate) fn call_in(dir: &Path) -> (CallContext, UnboundedReceiver<Signal>) {
    let task: TaskId = "t-7f3k2".parse().unwrap();
    let (line, heard) = Line::new();
    let context = CallContext {
        caller: Caller { task, root: task, agent: "tester".into(), depth: 0 },
        call: CallId { turn: 1, index: 0 },
        desk: Arc::new(NoDesk),
        cancel: CancellationToken::new(),
        working_dir: Some(dir.to_owned()),
        model: Arc::new(crate::testing::FnModel::new(|_| crate::testing::reply().text("Fine."))),
        line,
    };
    (context, heard)
}
