//! Following tasks: turns journals into events while they grow.

use std::collections::{HashMap, HashSet};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _};

use super::LonghaulError;
use super::event_order::sort_events;
use super::task_service::{RECHECK_INTERVAL, TaskService};
use crate::entry::{EntryKind, Sender, WaitReason};
use crate::id::{LetterId, Seq, TaskId};
use crate::journal::{self, is_below, tasks_below};
use crate::snapshot::{Event, EventKind, EventProjector};
use crate::store::{EntryKinds, LiveReader, Subscription};

/// A stream of events. It ends when the followed task has ended; dropping it stops no task.
pub struct TaskEvents(BoxStream<'static, Result<Event, LonghaulError>>);

impl Stream for TaskEvents {
    type Item = Result<Event, LonghaulError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next_unpin(context)
    }
}

/// How long held-back events wait for earlier ones that may never come.
const SOON: Duration = Duration::from_millis(50);
/// How long a follower that finds many events at once pauses.
const BUSY: Duration = Duration::from_millis(20);
/// The same for a follower without live text.
const BUSY_WITHOUT_LIVE: Duration = Duration::from_millis(50);
/// How many events are many.
const MANY: usize = 32;

/// When following ends.
#[derive(Debug, Clone)]
pub(crate) enum FollowUntil {
    /// When the task has ended.
    Ended,
    /// When the task has ended, or has read this letter and has nothing left to do.
    Idle(Option<LetterId>),
}

/// Follows one task, starting after an entry.
pub(crate) fn follow_task(service: Arc<TaskService>, id: TaskId, after: Seq) -> TaskEvents {
    let subscription = service.subscriptions.for_tasks(&[id], EntryKinds::ALL);
    let seen = HashMap::from([(id, after)]);
    follow(EventFollower { seen, ..EventFollower::new(service, subscription, id, true) })
}

/// Follows one task, continuing with an existing projector.
pub(crate) fn follow_from(service: Arc<TaskService>, projector: EventProjector, after: Seq) -> TaskEvents {
    let id = projector.task();
    let subscription = service.subscriptions.for_tasks(&[id], EntryKinds::ALL);
    let projectors = HashMap::from([(id, (projector, after))]);
    follow(EventFollower { projectors, ..EventFollower::new(service, subscription, id, true) })
}

/// Follows a task and everything below it, without the entries that were seen before.
pub(crate) fn follow_tree(
    service: Arc<TaskService>,
    root: TaskId,
    seen: HashMap<TaskId, Seq>,
    until: FollowUntil,
    live: bool,
) -> TaskEvents {
    let subscription = service.subscriptions.for_tree(root, kinds(live));
    let follower = EventFollower::new(service, subscription, root, live);
    follow(EventFollower { tree: Some(root), seen, until, ..follower })
}

/// The kinds of entries that wake a follower. Without live text it reads that together with the next entry.
fn kinds(live: bool) -> EntryKinds {
    match live {
        true => EntryKinds::ALL,
        false => EntryKinds::ALL.without(EntryKind::Said),
    }
}

struct EventFollower {
    service: Arc<TaskService>,
    subscription: Subscription,
    root: TaskId,
    /// The root of the task's tree, if everything below the task is followed too.
    tree: Option<TaskId>,
    /// The last entry seen before, per task.
    seen: HashMap<TaskId, Seq>,
    until: FollowUntil,
    /// Whether streamed text is wanted while it is written.
    live: bool,
    /// Tells the runs of the tree that it is.
    reader: Option<LiveReader>,
    /// Whether the last read found so much that the next one should wait a little.
    busy: bool,
    /// Whether it has read anything yet.
    begun: bool,
    over: bool,
    projectors: HashMap<TaskId, (EventProjector, Seq)>,
    /// Tasks of the tree that are not below the followed one.
    beside: HashSet<TaskId>,
    /// Events that happened during the last read. Other tasks may have earlier ones, so these are held back
    /// and reported together with those.
    held_back: Vec<Event>,
}

fn follow(follower: EventFollower) -> TaskEvents {
    struct FollowState {
        follower: EventFollower,
        first: bool,
        over: bool,
    }
    let state = FollowState { follower, first: true, over: false };
    let batches = futures::stream::unfold(state, |mut state| async move {
        if state.over {
            return None;
        }
        let look = if std::mem::take(&mut state.first) { None } else { state.follower.wait_for_news().await };
        let events = match state.follower.next_events(look).await {
            Ok((events, over)) => {
                state.over = over;
                state.follower.busy = events.len() >= MANY;
                events.into_iter().map(Ok).collect()
            }
            Err(error) => {
                state.over = true;
                vec![Err(error)]
            }
        };
        Some((futures::stream::iter(events), state))
    });
    TaskEvents(batches.flatten().boxed())
}

impl EventFollower {
    fn new(service: Arc<TaskService>, subscription: Subscription, root: TaskId, live: bool) -> EventFollower {
        EventFollower {
            service,
            subscription,
            root,
            tree: None,
            seen: HashMap::new(),
            until: FollowUntil::Ended,
            live,
            reader: None,
            busy: false,
            begun: false,
            over: false,
            projectors: HashMap::new(),
            beside: HashSet::new(),
            held_back: Vec::new(),
        }
    }

    /// The tasks that have something new; `None` means that any may.
    async fn wait_for_news(&self) -> Option<Vec<TaskId>> {
        if self.busy {
            // Reading much now and then costs less than reading a little all the time.
            tokio::time::sleep(if self.live { BUSY } else { BUSY_WITHOUT_LIVE }).await;
        }
        tokio::select! {
            wake = self.subscription.next_wake() => (!wake.lagged).then(|| wake.tasks.into_iter().collect()),
            () = tokio::time::sleep(SOON), if !self.held_back.is_empty() => Some(Vec::new()),
            () = tokio::time::sleep(RECHECK_INTERVAL) => None,
        }
    }

    /// Finds the root of the tree. Fails if the task does not exist, because following it would never end.
    async fn find_tree(&mut self) -> Result<(), LonghaulError> {
        let root = self.service.state(self.root).await?.root;
        if self.live {
            self.reader = Some(self.service.store.read_live(root));
        }
        if self.tree.is_some_and(|tree| tree != root) {
            self.tree = Some(root);
            self.subscription = self.service.subscriptions.for_tree(root, kinds(self.live));
        }
        Ok(())
    }

    async fn next_events(&mut self, look: Option<Vec<TaskId>>) -> Result<(Vec<Event>, bool), LonghaulError> {
        if !std::mem::replace(&mut self.begun, true) {
            self.find_tree().await?;
        }
        let mut tasks = match (look, self.tree) {
            (None, None) => Vec::new(),
            (None, Some(_)) => self.tasks_below().await?,
            (Some(tasks), tree) if tree.is_none_or(|tree| tree == self.root) => tasks,
            // Other tasks of the tree may not be below the followed one.
            (Some(tasks), _) => self.only_below(tasks).await?,
        };
        tasks.retain(|task| *task != self.root);
        let since = self.service.store.now();
        let mut events = std::mem::take(&mut self.held_back);
        let before = events.len();
        events.extend(self.read_new_events(&tasks).await?);
        // The root comes last: its end ends the stream.
        let mut own = self.read_new_events(&[self.root]).await?;
        events.append(&mut own);
        if self.tree.is_some() && self.over {
            // Report first what the other tasks did in the meantime.
            let mut others = self.tasks_below().await?;
            others.push(self.root);
            events.extend(self.read_new_events(&others).await?);
        }
        if self.tree.is_none() {
            return Ok((events, self.over));
        }
        // Events reported now, including held-back ones, must follow their cause, even if no hint about the
        // cause has arrived yet.
        let mut at = 0;
        while at < events.len() {
            // Each once, however many events have the same cause: thousands of children have one parent.
            let is_now = |(n, event): &(usize, &Event)| *n < before || event.at <= since;
            let mut asked = HashSet::new();
            let causes: Vec<TaskId> = (events.iter().enumerate().skip(at).filter(is_now))
                .filter_map(|(_, event)| cause(event))
                .filter(|task| self.projectors.contains_key(task) && asked.insert(*task))
                .collect();
            at = events.len();
            events.extend(self.read_new_events(&causes).await?);
        }
        if self.over {
            return Ok((self.with_end_last(events), true));
        }
        // Events that were held back once are reported now, whatever the clocks say.
        let mut nth = 0;
        let is_later = |event: &mut Event| {
            nth += 1;
            nth > before && event.at > since
        };
        self.held_back = events.extract_if(.., is_later).collect();
        sort_events(&mut events);
        Ok((events, false))
    }

    async fn tasks_below(&self) -> Result<Vec<TaskId>, LonghaulError> {
        let top = self.service.state(self.root).await?;
        Ok(tasks_below(&*self.service.store, &top).await?.iter().map(|task| task.id).collect())
    }

    /// Those of these tasks that are below the followed one. Each is looked up once.
    async fn only_below(&mut self, tasks: Vec<TaskId>) -> Result<Vec<TaskId>, LonghaulError> {
        let mut below = Vec::new();
        for task in tasks.into_iter().filter(|task| !self.beside.contains(task)).collect::<Vec<_>>() {
            let known = task == self.root || self.projectors.contains_key(&task);
            let store = &*self.service.store;
            match known || is_below(store, &self.service.state(task).await?, self.root).await? {
                true => below.push(task),
                false => drop(self.beside.insert(task)),
            }
        }
        Ok(below)
    }

    /// The last events, with the root's end at the very end, although other tasks may continue.
    fn with_end_last(&self, mut events: Vec<Event>) -> Vec<Event> {
        let is_end =
            |event: &Event| event.task == self.root && matches!(event.kind, EventKind::Finished { .. });
        sort_events(&mut events);
        if let Some(at) = events.iter().position(is_end) {
            let end = events.remove(at);
            events.push(end);
        }
        events
    }

    /// The events of these tasks that were not reported yet.
    async fn read_new_events(&mut self, tasks: &[TaskId]) -> Result<Vec<Event>, LonghaulError> {
        let mut events = Vec::new();
        for task in tasks {
            let (projector, seq) =
                self.projectors.entry(*task).or_insert_with(|| (EventProjector::new(*task), Seq(0)));
            for record in journal::read_all(&*self.service.store, *task, *seq).await? {
                *seq = record.seq;
                let new_events = projector.project(&record);
                let is_new = self.seen.get(task).is_none_or(|seen| record.seq > *seen);
                if *task == self.root {
                    // That it was idle before says nothing; that it has ended does.
                    let counts = |event: &Event| is_new || matches!(event.kind, EventKind::Finished { .. });
                    self.over |=
                        new_events.iter().any(|event| counts(event) && ends(&mut self.until, &event.kind));
                }
                if is_new {
                    events.extend(new_events);
                }
            }
        }
        Ok(events)
    }
}

/// The task whose journal holds the cause of an event.
fn cause(event: &Event) -> Option<TaskId> {
    match &event.kind {
        EventKind::Submitted { parent, .. } => *parent,
        EventKind::Letter { from: Sender::Task(child), .. } => Some(*child),
        _ => None,
    }
}

fn ends(until: &mut FollowUntil, what: &EventKind) -> bool {
    match (until, what) {
        (_, EventKind::Finished { .. }) => true,
        (FollowUntil::Idle(letter), EventKind::Read { letters }) => {
            if letter.as_ref().is_some_and(|letter| letters.contains(letter)) {
                *letter = None;
            }
            false
        }
        (FollowUntil::Idle(None), EventKind::Waiting { on: WaitReason::Letter, .. }) => true,
        _ => false,
    }
}
