//! Following tasks: journals, told as events while they grow.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _};

use super::LonghaulError;
use super::event_order::sort_events;
use super::task_service::{RECHECK_INTERVAL, TaskService};
use crate::entry::{Sender, WaitReason};
use crate::id::{LetterId, Seq, TaskId};
use crate::runner::{read_journal, subtree};
use crate::snapshot::{Event, EventKind, EventProjector};
use crate::store::{EntryKinds, Subscription, TaskFilter};

/// A stream of what happens. It ends when what it follows has ended; dropping it stops nothing.
pub struct TaskEvents(BoxStream<'static, Result<Event, LonghaulError>>);

impl Stream for TaskEvents {
    type Item = Result<Event, LonghaulError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next_unpin(context)
    }
}

/// How long what is held back waits for news that may never come.
const SOON: Duration = Duration::from_millis(50);

/// When following is over.
#[derive(Debug, Clone)]
pub(crate) enum FollowUntil {
    /// When the task has ended.
    Ended,
    /// When the task has ended, or has read this letter and has nothing more to say.
    Idle(Option<LetterId>),
}

/// One task, from after an entry on.
pub(crate) fn follow_task(office: Arc<TaskService>, id: TaskId, after: Seq) -> TaskEvents {
    let bell = office.subscriptions.for_tasks(&[id], EntryKinds::ALL);
    let seen = HashMap::from([(id, after)]);
    follow(EventFollower {
        service: office,
        subscription: bell,
        root: id,
        tree: None,
        seen,
        until: FollowUntil::Ended,
        over: false,
        projectors: HashMap::new(),
        held_back: Vec::new(),
    })
}

/// One task that was told up to an entry.
pub(crate) fn follow_from(office: Arc<TaskService>, narrator: EventProjector, after: Seq) -> TaskEvents {
    let id = narrator.task();
    let bell = office.subscriptions.for_tasks(&[id], EntryKinds::ALL);
    follow(EventFollower {
        service: office,
        subscription: bell,
        root: id,
        tree: None,
        seen: HashMap::new(),
        until: FollowUntil::Ended,
        over: false,
        projectors: HashMap::from([(id, (narrator, after))]),
        held_back: Vec::new(),
    })
}

/// A task and all of its tree, without what was seen of them before.
pub(crate) fn follow_tree(
    office: Arc<TaskService>,
    root: TaskId,
    seen: HashMap<TaskId, Seq>,
    until: FollowUntil,
) -> TaskEvents {
    let bell = office.subscriptions.for_tree(root, EntryKinds::ALL);
    let (tree, over, told, held) = (Some(root), false, HashMap::new(), Vec::new());
    follow(EventFollower {
        service: office,
        subscription: bell,
        root,
        tree,
        seen,
        until,
        over,
        projectors: told,
        held_back: held,
    })
}

struct EventFollower {
    service: Arc<TaskService>,
    subscription: Subscription,
    root: TaskId,
    /// The root of the tree it is in, where all that is below it is followed too.
    tree: Option<TaskId>,
    /// How far the one who follows has seen these tasks before.
    seen: HashMap<TaskId, Seq>,
    until: FollowUntil,
    over: bool,
    projectors: HashMap<TaskId, (EventProjector, Seq)>,
    /// What happened while it was reading: others may have done something before that, and it is told with that.
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
    /// The tasks that have something new; `None` if any may.
    async fn wait_for_news(&self) -> Option<Vec<TaskId>> {
        tokio::select! {
            heard = self.subscription.next_wake() => (!heard.lagged).then(|| heard.tasks.into_iter().collect()),
            () = tokio::time::sleep(SOON), if !self.held_back.is_empty() => Some(Vec::new()),
            () = tokio::time::sleep(RECHECK_INTERVAL) => None,
        }
    }

    /// Finds out which tree it is. What is not there would never end: it is an error.
    async fn find_tree(&mut self) -> Result<(), LonghaulError> {
        let root = self.service.state(self.root).await?.root;
        if self.tree.is_some_and(|tree| tree != root) {
            self.tree = Some(root);
            self.subscription = self.service.subscriptions.for_tree(root, EntryKinds::ALL);
        }
        Ok(())
    }

    async fn next_events(&mut self, look: Option<Vec<TaskId>>) -> Result<(Vec<Event>, bool), LonghaulError> {
        if self.projectors.is_empty() {
            self.find_tree().await?;
        }
        let mut tasks = match (look, self.tree) {
            (None, None) => vec![self.root],
            (Some(tasks), tree) if tree.is_none_or(|tree| tree == self.root) => tasks,
            // Of others in the tree it may be that they are not below the one that is followed.
            (_, tree) => {
                let tree = self.service.store.list(TaskFilter::tree(tree.unwrap_or(self.root))).await?;
                subtree(&tree, self.root).iter().map(|task| task.id).collect()
            }
        };
        tasks.retain(|task| *task != self.root);
        let since = self.service.store.now();
        let mut events = std::mem::take(&mut self.held_back);
        let before = events.len();
        events.extend(self.read_new_events(&tasks).await?);
        // The root last: its end is the end.
        let mut own = self.read_new_events(&[self.root]).await?;
        events.append(&mut own);
        if let Some(tree) = self.tree.filter(|_| self.over) {
            // What the others did in the meantime is told before it.
            let tree = self.service.store.list(TaskFilter::tree(tree)).await?;
            let others: Vec<TaskId> = subtree(&tree, self.root).iter().map(|task| task.id).collect();
            events.extend(self.read_new_events(&others).await?);
        }
        if self.tree.is_none() {
            return Ok((events, self.over));
        }
        // What is told now, with what was held back, is told after its cause, though no bell has rung for that yet.
        let mut at = 0;
        while let Some(event) = events.get(at) {
            let now = at < before || event.at <= since;
            let cause = cause(event).filter(|task| now && self.projectors.contains_key(task));
            events.extend(match cause {
                Some(task) => self.read_new_events(&[task]).await?,
                None => Vec::new(),
            });
            at += 1;
        }
        if self.over {
            return Ok((self.with_end_last(events), true));
        }
        // What was held before has waited long enough, whatever clocks say.
        let late = events.split_off(before);
        let (now, later): (Vec<_>, Vec<_>) = late.into_iter().partition(|event| event.at <= since);
        self.held_back = later;
        events.extend(now);
        Ok((sort_events(events), false))
    }

    /// The last events: the root's end is the end, though others may go on.
    fn with_end_last(&self, events: Vec<Event>) -> Vec<Event> {
        let end = |event: &Event| event.task == self.root && matches!(event.kind, EventKind::Finished { .. });
        let (end, mut events): (Vec<_>, Vec<_>) = sort_events(events).into_iter().partition(end);
        events.extend(end);
        events
    }

    /// What these tasks have to tell that was not told yet.
    async fn read_new_events(&mut self, tasks: &[TaskId]) -> Result<Vec<Event>, LonghaulError> {
        let mut events = Vec::new();
        for task in tasks {
            let (narrator, seq) =
                self.projectors.entry(*task).or_insert_with(|| (EventProjector::new(*task), Seq(0)));
            for record in read_journal(&*self.service.store, *task, *seq).await? {
                *seq = record.seq;
                let told = narrator.project(&record);
                if *task == self.root {
                    self.over |= told.iter().any(|event| ends(&mut self.until, &event.kind));
                }
                if self.seen.get(task).is_none_or(|seen| record.seq > *seen) {
                    events.extend(told);
                }
            }
        }
        Ok(events)
    }
}

/// The task in whose journal that stands which caused this.
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
