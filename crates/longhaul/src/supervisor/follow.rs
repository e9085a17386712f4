//! Following tasks: journals, told as events while they grow.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _};

use super::LonghaulError;
use super::office::{LOOK_ANYWAY, Office};
use super::sequence::in_order;
use crate::entry::{Sender, Wait};
use crate::id::{LetterId, Seq, TaskId};
use crate::runner::{below, read_all};
use crate::snapshot::{Event, Happening, Narrator};
use crate::store::{Bell, Filter, Kinds};

/// A stream of what happens. It ends when what it follows has ended; dropping it stops nothing.
pub struct Events(BoxStream<'static, Result<Event, LonghaulError>>);

impl Stream for Events {
    type Item = Result<Event, LonghaulError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next_unpin(context)
    }
}

/// How long what is held back waits for news that may never come.
const SOON: Duration = Duration::from_millis(50);

/// When following is over.
#[derive(Debug, Clone)]
pub(crate) enum Until {
    /// When the task has ended.
    End,
    /// When the task has ended, or has read this letter and has nothing more to say.
    Silence(Option<LetterId>),
}

/// One task, from after an entry on.
pub(crate) fn task(office: Arc<Office>, id: TaskId, after: Seq) -> Events {
    let bell = office.bells.for_tasks(&[id], Kinds::ALL);
    let seen = HashMap::from([(id, after)]);
    follow(Follower {
        office,
        bell,
        root: id,
        tree: None,
        seen,
        until: Until::End,
        over: false,
        told: HashMap::new(),
        held: Vec::new(),
    })
}

/// One task that was told up to an entry.
pub(crate) fn told(office: Arc<Office>, narrator: Narrator, after: Seq) -> Events {
    let id = narrator.task();
    let bell = office.bells.for_tasks(&[id], Kinds::ALL);
    follow(Follower {
        office,
        bell,
        root: id,
        tree: None,
        seen: HashMap::new(),
        until: Until::End,
        over: false,
        told: HashMap::from([(id, (narrator, after))]),
        held: Vec::new(),
    })
}

/// A task and all of its tree, without what was seen of them before.
pub(crate) fn tree(office: Arc<Office>, root: TaskId, seen: HashMap<TaskId, Seq>, until: Until) -> Events {
    let bell = office.bells.for_tree(root, Kinds::ALL);
    let (tree, over, told, held) = (Some(root), false, HashMap::new(), Vec::new());
    follow(Follower { office, bell, root, tree, seen, until, over, told, held })
}

struct Follower {
    office: Arc<Office>,
    bell: Bell,
    root: TaskId,
    /// The root of the tree it is in, where all that is below it is followed too.
    tree: Option<TaskId>,
    /// How far the one who follows has seen these tasks before.
    seen: HashMap<TaskId, Seq>,
    until: Until,
    over: bool,
    told: HashMap<TaskId, (Narrator, Seq)>,
    /// What happened while it was reading: others may have done something before that, and it is told with that.
    held: Vec<Event>,
}

fn follow(follower: Follower) -> Events {
    struct State {
        follower: Follower,
        first: bool,
        over: bool,
    }
    let state = State { follower, first: true, over: false };
    let batches = futures::stream::unfold(state, |mut state| async move {
        if state.over {
            return None;
        }
        let look = if std::mem::take(&mut state.first) { None } else { state.follower.heard().await };
        let events = match state.follower.tell(look).await {
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
    Events(batches.flatten().boxed())
}

impl Follower {
    /// The tasks that have something new; `None` if any may.
    async fn heard(&self) -> Option<Vec<TaskId>> {
        tokio::select! {
            heard = self.bell.rung() => (!heard.lagged).then(|| heard.tasks.into_iter().collect()),
            () = tokio::time::sleep(SOON), if !self.held.is_empty() => Some(Vec::new()),
            () = tokio::time::sleep(LOOK_ANYWAY) => None,
        }
    }

    /// Finds out which tree it is. What is not there would never end: it is an error.
    async fn find_tree(&mut self) -> Result<(), LonghaulError> {
        let root = self.office.head(self.root).await?.root;
        if self.tree.is_some_and(|tree| tree != root) {
            self.tree = Some(root);
            self.bell = self.office.bells.for_tree(root, Kinds::ALL);
        }
        Ok(())
    }

    async fn tell(&mut self, look: Option<Vec<TaskId>>) -> Result<(Vec<Event>, bool), LonghaulError> {
        if self.told.is_empty() {
            self.find_tree().await?;
        }
        let mut tasks = match (look, self.tree) {
            (None, None) => vec![self.root],
            (Some(tasks), tree) if tree.is_none_or(|tree| tree == self.root) => tasks,
            // Of others in the tree it may be that they are not below the one that is followed.
            (_, tree) => {
                let tree = self.office.store.list(Filter::tree(tree.unwrap_or(self.root))).await?;
                below(&tree, self.root).iter().map(|task| task.id).collect()
            }
        };
        tasks.retain(|task| *task != self.root);
        let since = self.office.store.now();
        let mut events = std::mem::take(&mut self.held);
        let before = events.len();
        events.extend(self.news(&tasks).await?);
        // The root last: its end is the end.
        let mut own = self.news(&[self.root]).await?;
        events.append(&mut own);
        if let Some(tree) = self.tree.filter(|_| self.over) {
            // What the others did in the meantime is told before it.
            let tree = self.office.store.list(Filter::tree(tree)).await?;
            let others: Vec<TaskId> = below(&tree, self.root).iter().map(|task| task.id).collect();
            events.extend(self.news(&others).await?);
        }
        if self.tree.is_none() {
            return Ok((events, self.over));
        }
        // What is told now, with what was held back, is told after its cause, though no bell has rung for that yet.
        let mut at = 0;
        while let Some(event) = events.get(at) {
            let now = at < before || event.at <= since;
            let cause = cause(event).filter(|task| now && self.told.contains_key(task));
            events.extend(match cause {
                Some(task) => self.news(&[task]).await?,
                None => Vec::new(),
            });
            at += 1;
        }
        if self.over {
            return Ok((self.ended(events), true));
        }
        // What was held before has waited long enough, whatever clocks say.
        let late = events.split_off(before);
        let (now, later): (Vec<_>, Vec<_>) = late.into_iter().partition(|event| event.at <= since);
        self.held = later;
        events.extend(now);
        Ok((in_order(events), false))
    }

    /// The last events: the root's end is the end, though others may go on.
    fn ended(&self, events: Vec<Event>) -> Vec<Event> {
        let end = |event: &Event| event.task == self.root && matches!(event.what, Happening::Finished { .. });
        let (end, mut events): (Vec<_>, Vec<_>) = in_order(events).into_iter().partition(end);
        events.extend(end);
        events
    }

    /// What these tasks have to tell that was not told yet.
    async fn news(&mut self, tasks: &[TaskId]) -> Result<Vec<Event>, LonghaulError> {
        let mut events = Vec::new();
        for task in tasks {
            let (narrator, seq) = self.told.entry(*task).or_insert_with(|| (Narrator::new(*task), Seq(0)));
            for record in read_all(&*self.office.store, *task, *seq).await? {
                *seq = record.seq;
                let told = narrator.tell(&record);
                if *task == self.root {
                    self.over |= told.iter().any(|event| ends(&mut self.until, &event.what));
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
    match &event.what {
        Happening::Submitted { parent, .. } => *parent,
        Happening::Letter { from: Sender::Task(child), .. } => Some(*child),
        _ => None,
    }
}

fn ends(until: &mut Until, what: &Happening) -> bool {
    match (until, what) {
        (_, Happening::Finished { .. }) => true,
        (Until::Silence(letter), Happening::Read { letters }) => {
            if letter.as_ref().is_some_and(|letter| letters.contains(letter)) {
                *letter = None;
            }
            false
        }
        (Until::Silence(None), Happening::Waiting { on: Wait::Letter, .. }) => true,
        _ => false,
    }
}
