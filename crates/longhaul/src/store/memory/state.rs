//! The data of a [`MemoryStore`](super::MemoryStore), with indexes, and what is asked of it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::entry::{Entry, Record, TeamRef};
use crate::id::{Digest, LetterId, Seq, TaskId, WorkerId};
use crate::store::copy::folded;
use crate::store::leases::{LeaseRenewal, LeaseWatch};
use crate::store::validate::{StoreLookup, TaskLinks, WriteDraft, check_deletable, validate_batch};
use crate::store::{
    Batch, ClaimRequest, ClaimedTask, CountCondition, FeedItem, FeedPage, FeedPosition, FeedScope, Fence,
    Hint, MAX_MATCHES, StoreError, StoredValue, TaskFilter, single_match, task_of_stored_value,
};
use crate::task::{Status, TaskState};

/// A task with its position in submission order.
pub(super) struct MemoryTask {
    place: usize,
    pub(super) state: TaskState,
    pub(super) journal: Vec<Record>,
    letters: HashSet<LetterId>,
}

/// All data. The sets of positions are indexes: they can be rebuilt from the states.
#[derive(Default)]
pub(super) struct MemoryState {
    pub(super) tasks: HashMap<TaskId, MemoryTask>,
    /// In submission order; a deleted task leaves an empty position.
    order: Vec<Option<TaskId>>,
    pending: HashMap<TeamRef, BTreeSet<usize>>,
    pub(super) running: HashMap<WorkerId, BTreeSet<usize>>,
    children: HashMap<TaskId, Vec<usize>>,
    trees: HashMap<TaskId, MemoryTree>,
    counts: StatusCounts,
    pub(super) leases: HashMap<WorkerId, LeaseRenewal>,
    watch: LeaseWatch,
    /// The number of this store in the positions of its feed.
    number: u32,
    /// How many entries and deletions there were.
    rows: u64,
    /// Every entry with its row, in order. A deletion has no task, and only the last is kept.
    feed: Vec<(u64, Option<(TaskId, Seq)>)>,
    /// With the time when it was last stored.
    pub(super) blobs: HashMap<Digest, (Arc<[u8]>, Timestamp)>,
    pub(super) values: HashMap<String, StoredValue>,
}

#[derive(Default)]
struct MemoryTree {
    members: Vec<usize>,
    census: StatusCounts,
}

/// How many tasks have each [`Status`].
#[derive(Default)]
struct StatusCounts([usize; Status::ALL.len()]);

impl StatusCounts {
    fn count(&self, among: &[Status]) -> usize {
        if among.is_empty() { self.0.iter().sum() } else { among.iter().map(|s| self.0[*s as usize]).sum() }
    }
}

/// The state at a moment, to judge leases.
struct StateAt<'a>(&'a MemoryState, Duration);

impl StoreLookup for StateAt<'_> {
    fn task_state(&mut self, task: TaskId) -> Result<Option<TaskState>, StoreError> {
        Ok(self.0.tasks.get(&task).map(|t| t.state.clone()))
    }

    fn has_letter(&mut self, task: TaskId, letter: &LetterId) -> Result<bool, StoreError> {
        Ok(self.0.tasks.get(&task).is_some_and(|t| t.letters.contains(letter)))
    }

    fn is_abandoned(&mut self, state: &TaskState) -> Result<bool, StoreError> {
        Ok(state.worker.as_ref().is_none_or(|w| !self.0.is_alive(w, self.1)))
    }
}

impl MemoryState {
    pub(super) fn new(number: u32) -> MemoryState {
        MemoryState { number, ..MemoryState::default() }
    }

    pub(super) fn at(&self, place: usize) -> Option<&MemoryTask> {
        self.tasks.get(self.order.get(place)?.as_ref()?)
    }

    pub(super) fn is_alive(&self, worker: &WorkerId, now: Duration) -> bool {
        self.leases.get(worker).is_some_and(|lease| !self.watch.has_run_out(worker, *lease, now, now))
    }

    pub(super) fn append(
        &mut self,
        batch: Batch,
        at: Timestamp,
        now: Duration,
    ) -> Result<(Vec<Seq>, Vec<Hint>), StoreError> {
        let only_if = batch.only_if.clone();
        let mut drafts = WriteDraft::from_batch(batch);
        if let Some(first) = drafts.first()
            && !(first.fence == Fence::New && self.tasks.contains_key(&first.task))
        {
            only_if.iter().try_for_each(|limit| self.check_limit(limit))?;
        }
        let verdict = validate_batch(&mut drafts, at, &mut StateAt(self, now))?;
        let hints = drafts.iter().filter_map(|d| d.hint(verdict.root(d.task))).collect();
        for (id, state) in verdict.states {
            if let Some(state) = state {
                self.put_state(id, state);
            }
        }
        for draft in drafts {
            let Some(task) = self.tasks.get_mut(&draft.task) else { continue };
            for line in draft.entries.into_iter().filter(|l| !l.known) {
                if let Entry::Letter(letter) = &line.record.entry {
                    task.letters.insert(letter.id.clone());
                }
                self.rows += 1;
                self.feed.push((self.rows, Some((draft.task, line.record.seq))));
                task.journal.push(line.record);
            }
        }
        Ok((verdict.ends, hints))
    }

    pub(super) fn import(&mut self, journals: Vec<(TaskId, Vec<Record>)>) -> Result<(), StoreError> {
        let mut states = Vec::with_capacity(journals.len());
        for (id, journal) in &journals {
            if self.tasks.contains_key(id) {
                return Err(StoreError::Exists(*id));
            }
            states.push(folded(*id, journal)?);
        }
        for (state, (id, journal)) in states.into_iter().zip(journals) {
            self.put_state(id, state);
            let Some(task) = self.tasks.get_mut(&id) else { continue };
            for record in journal {
                if let Entry::Letter(letter) = &record.entry {
                    task.letters.insert(letter.id.clone());
                }
                self.rows += 1;
                self.feed.push((self.rows, Some((id, record.seq))));
                task.journal.push(record);
            }
        }
        Ok(())
    }

    pub(super) fn feed_end(&self) -> FeedPosition {
        FeedPosition::new(self.number, 0, self.rows)
    }

    pub(super) fn read_feed(
        &self,
        scope: FeedScope,
        after: FeedPosition,
        limit: usize,
    ) -> Result<FeedPage, StoreError> {
        let end = self.feed_end();
        if after.store() != end.store() || after > end {
            return Err(StoreError::UnknownPosition(after));
        }
        let first = self.feed.partition_point(|(row, _)| *row <= after.minor());
        let mut items = Vec::new();
        for (row, entry) in &self.feed[first..] {
            let position = FeedPosition::new(self.number, 0, *row);
            match entry {
                None if scope == FeedScope::All => items.push(FeedItem::Deleted { position }),
                None => {}
                Some((id, seq)) => {
                    let Some(task) = self.tasks.get(id) else { continue };
                    let root = task.state.root;
                    let at = usize::try_from(seq.0.saturating_sub(1)).unwrap_or(usize::MAX);
                    if let Some(record) = task.journal.get(at).filter(|_| scope.contains(*id, root)) {
                        items.push(FeedItem::Entry { position, task: *id, root, record: record.clone() });
                    }
                }
            }
            if items.len() > limit {
                items.truncate(limit);
                let position = items.last().map_or(after, FeedItem::position);
                return Ok(FeedPage { items, position, more: true });
            }
        }
        Ok(FeedPage { items, position: end, more: false })
    }

    /// Stores the state of a task, and updates the indexes.
    pub(super) fn put_state(&mut self, id: TaskId, state: TaskState) {
        let place = match self.tasks.get(&id) {
            Some(task) if !index_changes(&task.state, &state) => {
                if let Some(task) = self.tasks.get_mut(&id) {
                    task.state = state;
                }
                return;
            }
            Some(task) => {
                let (place, old) = (task.place, task.state.clone());
                self.unindex(place, &old);
                place
            }
            None => {
                let place = self.order.len();
                self.order.push(Some(id));
                self.trees.entry(state.root).or_default().members.push(place);
                if let Some(parent) = state.parent {
                    self.children.entry(parent).or_default().push(place);
                }
                place
            }
        };
        self.counts.0[state.status as usize] += 1;
        self.trees.entry(state.root).or_default().census.0[state.status as usize] += 1;
        if state.status == Status::Pending {
            self.pending.entry(state.team.clone()).or_default().insert(place);
        }
        if let Some(worker) = &state.worker {
            self.running.entry(worker.clone()).or_default().insert(place);
        }
        match self.tasks.get_mut(&id) {
            Some(task) => task.state = state,
            None => {
                self.tasks
                    .insert(id, MemoryTask { place, state, journal: Vec::new(), letters: HashSet::new() });
            }
        }
    }

    fn unindex(&mut self, place: usize, old: &TaskState) {
        self.counts.0[old.status as usize] -= 1;
        if let Some(tree) = self.trees.get_mut(&old.root) {
            tree.census.0[old.status as usize] -= 1;
        }
        if let Some(places) = self.pending.get_mut(&old.team) {
            places.remove(&place);
        }
        if let Some(worker) = &old.worker
            && let Some(places) = self.running.get_mut(worker)
        {
            places.remove(&place);
            if places.is_empty() {
                self.running.remove(worker);
            }
        }
    }

    fn check_limit(&self, limit: &CountCondition) -> Result<(), StoreError> {
        let holds = |(filter, most): (&TaskFilter, u32)| {
            let most = usize::try_from(most).unwrap_or(usize::MAX);
            let TaskFilter { status, root, .. } = filter;
            let by_status = TaskFilter { status: status.clone(), root: *root, ..TaskFilter::default() };
            let only_by_status = TaskFilter { limit: None, ..filter.clone() } == by_status;
            let count = match root {
                None if only_by_status => self.counts.count(status),
                Some(root) if only_by_status => self.trees.get(root).map_or(0, |t| t.census.count(status)),
                _ => self.matching(filter).take(most).count(),
            };
            count < most
        };
        match limit.alternatives().any(holds) {
            true => Ok(()),
            false => Err(StoreError::Limit { limit: limit.limit, what: limit.what }),
        }
    }

    /// The tasks that match, in order, regardless of the filter's limit.
    pub(super) fn matching<'a>(
        &'a self,
        filter: &'a TaskFilter,
    ) -> Box<dyn Iterator<Item = &'a MemoryTask> + 'a> {
        let known = |places: Option<&'a Vec<usize>>| {
            places.map_or(&[][..], Vec::as_slice).iter().filter_map(|p| self.at(*p))
        };
        let bound = match filter.submitted_before {
            None => usize::MAX,
            Some(task) => self.tasks.get(&task).map_or(0, |task| task.place),
        };
        let is_wanted = move |t: &&MemoryTask| t.place < bound && filter.matches(&t.state);
        if let Some(worker) = &filter.worker {
            let places = self.running.get(worker).into_iter().flatten();
            return Box::new(places.filter_map(|place| self.at(*place)).filter(is_wanted));
        }
        match (&filter.parents[..], &filter.root) {
            ([parent], _) => Box::new(known(self.children.get(parent)).filter(is_wanted)),
            (parents @ [_, ..], _) => {
                let places = parents.iter().filter_map(|parent| self.children.get(parent)).flatten();
                let places: BTreeSet<usize> = places.copied().collect();
                Box::new(places.into_iter().filter_map(|place| self.at(place)).filter(is_wanted))
            }
            ([], Some(root)) => Box::new(known(self.trees.get(root).map(|t| &t.members)).filter(is_wanted)),
            ([], None) => {
                Box::new(self.order.iter().flatten().filter_map(|id| self.tasks.get(id)).filter(is_wanted))
            }
        }
    }

    pub(super) fn find(&self, typed: &str) -> Result<TaskId, StoreError> {
        if let Ok(id) = typed.parse::<TaskId>()
            && self.tasks.contains_key(&id)
        {
            return Ok(id);
        }
        let begins = TaskId::parse_prefix(typed);
        let fits = |id: &&TaskId| begins.as_ref().is_some_and(|b| id.letters().starts_with(b.as_str()));
        let matches = self.order.iter().flatten().filter(fits).take(MAX_MATCHES).copied().collect();
        single_match(typed, matches)
    }

    pub(super) fn delete(
        &mut self,
        tasks: &[(TaskId, Seq)],
        kept_since: Timestamp,
    ) -> Result<(), StoreError> {
        let doomed = tasks.iter().filter_map(|(id, _)| Some((*id, self.tasks.get(id)?.state.clone())));
        let doomed: HashMap<TaskId, TaskState> = doomed.collect();
        let bond =
            |t: &MemoryTask| TaskLinks { task: t.state.id, root: t.state.root, continues: t.state.continues };
        check_deletable(tasks, &doomed, self.tasks.values().map(bond))?;
        for (id, state) in doomed {
            let Some(task) = self.tasks.remove(&id) else { continue };
            self.unindex(task.place, &state);
            self.order[task.place] = None;
            self.children.remove(&id);
            self.trees.remove(&id);
            self.values.retain(|name, _| task_of_stored_value(name) != Some(id));
        }
        let tasks = &self.tasks;
        self.feed.retain(|(_, entry)| entry.is_some_and(|(id, _)| tasks.contains_key(&id)));
        self.rows += 1;
        self.feed.push((self.rows, None));
        let mut needed: HashSet<&Digest> = HashSet::new();
        for task in self.tasks.values() {
            if let TeamRef::File(digest) = &task.state.team {
                needed.insert(digest);
            }
            needed.extend(task.journal.iter().filter_map(|record| match &record.entry {
                Entry::Returned(returned) => returned.whole.as_ref(),
                _ => None,
            }));
        }
        self.blobs.retain(|digest, (_, at)| *at >= kept_since || needed.contains(digest));
        Ok(())
    }

    pub(super) fn claim(&mut self, claim: &ClaimRequest, at: Timestamp) -> Vec<ClaimedTask> {
        let is_wanted = |place: &usize| {
            self.at(*place).is_some_and(|t| {
                (!claim.fresh_only || t.state.attempt.0 == 0)
                    && !claim.except.contains(&t.state.id)
                    && claim.roots.as_ref().is_none_or(|roots| roots.contains(&t.state.root))
            })
        };
        // Each team's queue is in order, so only its first `max` can be among the first of all.
        let mut places = Vec::new();
        for team in claim.teams.iter().collect::<HashSet<_>>() {
            let queue = self.pending.get(team).into_iter().flatten().copied();
            places.extend(queue.filter(is_wanted).take(claim.max));
        }
        places.sort_unstable();
        places.truncate(claim.max);
        places.into_iter().filter_map(|place| self.claim_one(place, &claim.worker, at)).collect()
    }

    fn claim_one(&mut self, place: usize, worker: &WorkerId, at: Timestamp) -> Option<ClaimedTask> {
        let task = self.at(place)?;
        let mut state = task.state.clone();
        let entry = Entry::Claimed { attempt: state.attempt.next(), worker: worker.clone() };
        let record = Record { seq: Seq(state.seq.0 + 1), at, entry };
        state.apply(&record).ok()?;
        self.put_state(state.id, state.clone());
        self.rows += 1;
        self.feed.push((self.rows, Some((state.id, record.seq))));
        let journal = &mut self.tasks.get_mut(&state.id)?.journal;
        journal.push(record);
        let first = journal.first()?.clone();
        Some(ClaimedTask { state: Arc::new(state), first })
    }
}

fn index_changes(old: &TaskState, new: &TaskState) -> bool {
    old.status != new.status || old.worker != new.worker
}
