//! What a session watches besides its signals: events, keys, time, and the process that runs the tasks.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::{BoxStream, SelectAll};
use longhaul::snapshot::Event;
use longhaul::store::TaskFilter;
use longhaul::task::TaskState;
use longhaul::{Longhaul, LonghaulError, Status, TaskId};

use crate::background;
use crate::data_dir::DataDir;
use crate::exit::CliError;
use crate::keyboard::{Keyboard, KeyboardEvent};
use crate::seen_events::SeenEvents;
use crate::serve_lock;

/// How often a watcher checks that some process still runs the tasks.
const OWNER_POLL: Duration = Duration::from_secs(2);

/// Waits until this much wall-clock time has passed, including time the machine slept. Waits forever if there
/// is no limit.
pub(super) async fn wait_for_timeout(limit: Option<Duration>) {
    const STEP: Duration = Duration::from_secs(1);
    let Some(limit) = limit else { return std::future::pending().await };
    let clock = longhaul::store::Clock::system();
    let began = clock.elapsed();
    loop {
        let left = limit.saturating_sub(clock.elapsed().saturating_sub(began));
        if left.is_zero() {
            return;
        }
        // Sleep in steps: the runtime's clock may stop while the machine sleeps.
        tokio::time::sleep(left.min(STEP)).await;
    }
}

/// Follows the events of these tasks and everything below them, without those that were shown before.
pub(super) fn follow_events(
    longhaul: &Longhaul,
    tasks: &[TaskId],
    seen: &SeenEvents,
    live_text: bool,
) -> SelectAll<BoxStream<'static, Result<Event, LonghaulError>>> {
    let known = Arc::new(seen.clone());
    let news = |task: &TaskId| {
        let known = known.clone();
        let new = move |event: &Result<Event, LonghaulError>| {
            std::future::ready(event.as_ref().map_or(true, |event| known.is_new(event)))
        };
        let events = match live_text {
            true => longhaul.follow(*task),
            false => longhaul.follow_without_live_text(*task),
        };
        events.filter(new).boxed()
    };
    tasks.iter().map(news).collect()
}

pub(super) async fn list_trees(longhaul: &Longhaul, roots: &[TaskId]) -> Result<Vec<TaskState>, CliError> {
    let mut states = Vec::new();
    for root in roots {
        states.extend(longhaul.list(TaskFilter::tree(*root)).await?);
    }
    Ok(states)
}

/// Waits for the next keyboard event; forever if there is no keyboard.
pub(super) async fn next_keyboard_event(keys: Option<&mut Keyboard>) -> KeyboardEvent {
    match keys {
        Some(keys) => keys.next().await,
        None => std::future::pending().await,
    }
}

/// Checks regularly that some process still runs the tasks.
pub(super) struct OwnerMonitor<'a> {
    pub(super) longhaul: Longhaul,
    pub(super) data_dir: &'a DataDir,
    pub(super) roots: Vec<TaskId>,
    pub(super) runs_here: bool,
}

impl OwnerMonitor<'_> {
    /// Waits until no process runs the tasks although they have not ended.
    pub(super) async fn until_abandoned(&self) -> Result<(), CliError> {
        if self.runs_here {
            std::future::pending::<()>().await;
        }
        let mut alone = 0;
        // Another process may be about to take them over.
        while alone < 3 {
            tokio::time::sleep(OWNER_POLL).await;
            let states = list_trees(&self.longhaul, &self.roots).await?;
            let open = states.iter().any(|state| !state.status.is_final());
            let runs = states.iter().any(|state| state.status == Status::Running);
            let signed =
                self.roots.iter().any(|root| background::running_pid(self.data_dir, *root).is_some());
            let served = || states.iter().any(|state| serve_lock::is_served(self.data_dir, state));
            alone = if open && !runs && !signed && !served() { alone + 1 } else { 0 };
        }
        Ok(())
    }
}
