//! Trees that hang together, who has heard of their ends, and how they are deleted.

use std::collections::{HashMap, HashSet, hash_map};
use std::time::Duration;

use jiff::Timestamp;

use super::{Longhaul, LonghaulError};
use crate::entry::Entry;
use crate::id::{LetterId, Seq, TaskId};
use crate::runner::read_all;
use crate::store::{Filter, Store, StoreError};
use crate::task::{Head, Status};

/// How often whoever waits for the end of tasks looks whether their process is gone.
const LOOK: Duration = Duration::from_secs(1);

/// Trees that hang together because a task of one continues a task of another. A grove is kept or deleted as a whole.
#[derive(Debug, Clone)]
pub struct Grove {
    /// Its tasks, in the order of their submission.
    pub tasks: Vec<Head>,
}

impl Grove {
    /// The groves of these tasks, in the order of their first ones. Only right if all that belongs together is there.
    pub fn all(heads: Vec<Head>) -> Vec<Grove> {
        let mut first: HashMap<TaskId, TaskId> = HashMap::new();
        fn of(first: &HashMap<TaskId, TaskId>, mut tree: TaskId) -> TaskId {
            while let Some(above) = first.get(&tree).filter(|above| **above != tree) {
                tree = *above;
            }
            tree
        }
        let roots: HashMap<TaskId, TaskId> = heads.iter().map(|head| (head.id, head.root)).collect();
        for head in &heads {
            let links = [Some(head.root), head.continues, head.continued_by];
            let here = of(&first, head.root);
            for other in links.into_iter().flatten().filter_map(|id| roots.get(&id)) {
                let other = of(&first, *other);
                if other != here {
                    first.insert(other, here);
                }
            }
        }
        let mut groves: indexmap::IndexMap<TaskId, Vec<Head>> = indexmap::IndexMap::new();
        for head in heads {
            groves.entry(of(&first, head.root)).or_default().push(head);
        }
        groves.into_values().map(|tasks| Grove { tasks }).collect()
    }

    /// The tasks that have not ended.
    pub fn open(&self) -> impl Iterator<Item = &Head> {
        self.tasks.iter().filter(|head| !head.status.is_final())
    }

    /// When anything last happened in it.
    pub fn active(&self) -> Timestamp {
        self.tasks.iter().map(|head| head.active).max().unwrap_or_default()
    }
}

impl Longhaul {
    /// All groves, in the order of their first tasks. That reads every task there is; see [`quiet_trees`](Longhaul::quiet_trees).
    pub async fn groves(&self) -> Result<Vec<Grove>, LonghaulError> {
        Ok(Grove::all(self.snapshots(Filter::default()).await?))
    }

    /// The roots of trees in which nothing may have happened since `before`: those that have ended and been quiet since, and those of
    /// tasks that have not ended. In the order of their submission, as far as they have ended. Every grove that is
    /// [quiet](Grove::active) for that long has one of them.
    pub async fn quiet_trees(&self, before: Timestamp) -> Result<Vec<TaskId>, LonghaulError> {
        let store = &self.0.office.store;
        let open = store.list(Filter::default().live()).await?.into_iter();
        let ended = Filter { quiet_before: Some(before), roots: true, ..Filter::default() };
        let mut trees: indexmap::IndexSet<TaskId> =
            open.filter(|head| head.active < before).map(|head| head.root).collect();
        trees.extend(store.ids(ended).await?);
        Ok(trees.into_iter().collect())
    }

    /// The grove of a task: what it costs to find it depends on its size, and not on how many tasks there are.
    pub async fn grove(&self, id: TaskId) -> Result<Grove, LonghaulError> {
        let office = &self.0.office;
        let mut trees = vec![office.head(id).await?.root];
        let mut known: HashSet<TaskId> = trees.iter().copied().collect();
        let mut tasks = Vec::new();
        while let Some(root) = trees.pop() {
            let tree = office.store.list(Filter::tree(root)).await?;
            for head in &tree {
                let mut others = Vec::new();
                if let Some(old) = head.continues {
                    others.extend(office.store.head(old).await?);
                }
                // The link is to the first that continues it. There may be others, which try that again.
                if head.continued_by.is_some() {
                    let later = Filter { continues: Some(head.id), ..Filter::default() };
                    others.extend(office.store.list(later).await?);
                }
                trees.extend(others.iter().map(|other| other.root).filter(|root| known.insert(*root)));
            }
            tasks.extend(tree);
        }
        // Trees were found in any order; within each of them it is the one of their submission.
        if known.len() > 1 {
            tasks.sort_by_key(|head| head.created);
        }
        Ok(Grove { tasks: office.seen(tasks).await? })
    }

    /// Notes that somebody has looked at a task, if it has ended: its end is [read](Longhaul::unread) then.
    pub async fn look_at(&self, id: TaskId) -> Result<(), LonghaulError> {
        let office = &self.0.office;
        if office.head(id).await?.status.is_final() && !looked_at(&*office.store, id).await? {
            // Where another was quicker it is noted, too.
            office.store.write_slip(&slip(id), 0, b"looked at".to_vec()).await?;
        }
        Ok(())
    }

    /// The tasks of a grove whose end nobody has heard of: nobody has [looked at](Longhaul::look_at) them since, nobody
    /// has continued them, and their parent was not told. A task below another that was cancelled, or whose parent did
    /// not complete, is no news of its own.
    pub async fn unread(&self, grove: &Grove) -> Result<Vec<TaskId>, LonghaulError> {
        let store = &*self.0.office.store;
        let by_id: HashMap<TaskId, &Head> = grove.tasks.iter().map(|head| (head.id, head)).collect();
        let mut told: HashMap<TaskId, HashSet<TaskId>> = HashMap::new();
        let mut unread = Vec::new();
        for head in grove.tasks.iter().filter(|head| head.status.is_final() && head.continued_by.is_none()) {
            if let Some(parent) = head.parent.and_then(|parent| by_id.get(&parent)) {
                // A letter about every end is in the mailbox: who has read all has read of this one.
                let no_news = head.status == Status::Cancelled || parent.status != Status::Completed;
                if no_news || parent.unread == 0 {
                    continue;
                }
                let told = match told.entry(parent.id) {
                    hash_map::Entry::Occupied(told) => told.into_mut(),
                    hash_map::Entry::Vacant(place) => place.insert(heard(store, parent.id).await?),
                };
                if told.contains(&head.id) {
                    continue;
                }
            }
            if !looked_at(store, head.id).await? {
                unread.push(head.id);
            }
        }
        Ok(unread)
    }

    /// Stops what of a grove has not ended, and waits for that, no longer than `patience`. The grove as it is then.
    pub async fn end(&self, grove: &Grove, patience: Duration) -> Result<Grove, LonghaulError> {
        let open: Vec<TaskId> = grove.open().map(|head| head.id).collect();
        for id in &open {
            self.stop(*id).await?;
        }
        let mut left = patience;
        loop {
            let step = left.min(LOOK);
            if !self.wait(open.clone()).timeout(step).await?.timed_out || step == left {
                break;
            }
            left -= step;
            // A process that is stopped is only known to be gone when it was watched for long enough.
            self.0.office.end_abandoned(&open.iter().copied().collect()).await?;
        }
        let mut tasks = Vec::with_capacity(grove.tasks.len());
        for head in &grove.tasks {
            tasks.push(self.0.office.head(head.id).await?);
        }
        Ok(Grove { tasks })
    }

    /// Deletes a grove: journals, letters, slips, and what was kept for it alone. Refused whole if a task of it has not
    /// ended, or if anything has happened to one since it was seen.
    pub async fn delete(&self, grove: &Grove) -> Result<(), LonghaulError> {
        let tasks = grove.tasks.iter().map(|head| (head.id, head.seq)).collect();
        Ok(self.0.office.store.delete(tasks).await?)
    }
}

fn slip(id: TaskId) -> String {
    format!("seen:{id}")
}

async fn looked_at(store: &dyn Store, id: TaskId) -> Result<bool, StoreError> {
    match store.slip(&slip(id)).await {
        Ok(slip) => Ok(slip.written > 0),
        // Nobody can say that it was looked at.
        Err(StoreError::Damaged { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The tasks of whose end a task has heard: by letters that it read, or as results of its calls.
async fn heard(store: &dyn Store, task: TaskId) -> Result<HashSet<TaskId>, StoreError> {
    let mut told = HashSet::new();
    let mut endings: HashMap<LetterId, TaskId> = HashMap::new();
    for record in read_all(store, task, Seq(0)).await? {
        match record.entry {
            Entry::Letter(letter) => {
                if let Some(child) = letter.ending {
                    endings.insert(letter.id, child);
                }
            }
            Entry::Read { letters, known, .. } => {
                told.extend(letters.iter().chain(&known).filter_map(|letter| endings.get(letter)));
            }
            Entry::Returned(returned) => told.extend(returned.collected),
            _ => {}
        }
    }
    Ok(told)
}
