//! Journals in memory, for tests and for programs whose tasks need not survive them.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::broadcast;

use super::copy::folded;
use super::leases::{LeaseRenewal, LeaseWatch};
use super::validate::{StoreLookup, TaskLinks, WriteDraft, check_deletable, validate_batch};
use super::{
    Batch, ClaimRequest, ClaimedTask, Clock, CountCondition, EntryKinds, FeedItem, FeedPage, FeedPosition,
    FeedScope, Fence, Hint, HintStream, Lease, LiveReader, LiveReaders, Store, StoreError, StoreFuture,
    StoredValue, TaskFilter,
};
use crate::entry::{Entry, EntryKind, Record, TeamRef};
use crate::id::{Digest, LetterId, Seq, TaskId, WorkerId};
use crate::task::{Status, TaskState};

/// A store that is lost when it is dropped.
pub struct MemoryStore {
    state: Mutex<MemoryState>,
    hints: broadcast::Sender<Hint>,
    clock: Clock,
    live_readers: LiveReaders,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        MemoryStore::with_clock(Clock::system())
    }

    /// An empty store with its own clock.
    pub fn with_clock(clock: Clock) -> Self {
        let (hints, _) = broadcast::channel(super::HINT_CAPACITY);
        // The low bits of such an id are random.
        let random = uuid::Uuid::now_v7().as_u128() & u128::from(u32::MAX);
        let state =
            MemoryState { number: u32::try_from(random).unwrap_or_default(), ..MemoryState::default() };
        MemoryStore { state: Mutex::new(state), hints, clock, live_readers: LiveReaders::default() }
    }

    /// Loses the end of a journal, as a database does that fails over to a replica which lags behind: keeps
    /// the entries up to this one. For tests.
    #[cfg(feature = "testing")]
    pub fn lose_entries_after(&self, task: TaskId, last: Seq) -> Result<(), StoreError> {
        let mut state = self.lock();
        let journal = &mut state.tasks.get_mut(&task).ok_or(StoreError::NoTask(task))?.journal;
        journal.truncate(usize::try_from(last.0).unwrap_or(usize::MAX));
        let folded = TaskState::from_journal(task, journal);
        let folded = folded.map_err(|why| StoreError::Illegal { task, why })?;
        state.put_state(task, folded.ok_or(StoreError::NoTask(task))?);
        Ok(())
    }

    /// Nothing is left half-done under the lock, so a panic of another holder is harmless.
    fn lock(&self) -> MutexGuard<'_, MemoryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hint(&self, hint: Option<Hint>) {
        if let Some(hint) = hint {
            // It is fine if there are no receivers.
            let _ = self.hints.send(hint);
        }
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        MemoryStore::new()
    }
}

impl std::fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryStore").field("tasks", &self.lock().tasks.len()).finish_non_exhaustive()
    }
}

/// A ready future: nothing here waits.
fn ready<'a, T: Send + 'a>(answer: Result<T, StoreError>) -> StoreFuture<'a, T> {
    Box::pin(std::future::ready(answer))
}

impl Store for MemoryStore {
    fn append(&self, batch: Batch) -> StoreFuture<'_, Vec<Seq>> {
        let (at, now) = (self.clock.now(), self.clock.elapsed());
        let answer = self.lock().append(batch, at, now).map(|(ends, hints)| {
            hints.into_iter().for_each(|hint| self.hint(Some(hint)));
            ends
        });
        ready(answer)
    }

    fn read(&self, task: TaskId, after: Seq, limit: usize) -> StoreFuture<'_, Vec<Record>> {
        let skip = usize::try_from(after.0).unwrap_or(usize::MAX);
        let state = self.lock();
        let journal = state.tasks.get(&task).map_or(&[][..], |t| &t.journal);
        ready(Ok(journal.iter().skip(skip).take(limit).cloned().collect()))
    }

    fn task_state(&self, task: TaskId) -> StoreFuture<'_, Option<TaskState>> {
        ready(Ok(self.lock().tasks.get(&task).map(|t| t.state.clone())))
    }

    fn list(&self, filter: TaskFilter) -> StoreFuture<'_, Vec<TaskState>> {
        let state = self.lock();
        let found: Vec<&MemoryTask> = state.matching(&filter).collect();
        let skipped = found.len().saturating_sub(filter.limit.unwrap_or(usize::MAX));
        ready(Ok(found[skipped..].iter().map(|t| t.state.clone()).collect()))
    }

    fn count(&self, filter: TaskFilter) -> StoreFuture<'_, usize> {
        ready(Ok(self.lock().matching(&filter).take(filter.limit.unwrap_or(usize::MAX)).count()))
    }

    fn find(&self, typed: &str) -> StoreFuture<'_, TaskId> {
        ready(self.lock().find(typed))
    }

    fn claim(&self, claim: ClaimRequest) -> StoreFuture<'_, Vec<ClaimedTask>> {
        let at = self.clock.now();
        let claimed = self.lock().claim(&claim, at);
        let kinds = EntryKinds::from_kinds([EntryKind::Claimed]);
        for ClaimedTask { state, .. } in &claimed {
            self.hint(Some(Hint::Task { task: state.id, root: state.root, kinds }));
        }
        ready(Ok(claimed))
    }

    fn renew_lease(&self, worker: WorkerId, lease: Duration) -> StoreFuture<'_, ()> {
        let until = super::lease_end(self.clock.now(), lease).as_millisecond();
        let mut state = self.lock();
        let count = state.leases.get(&worker).map_or(0, |had| had.count) + 1;
        state.leases.insert(worker, LeaseRenewal { count, until, length: lease });
        drop(state);
        ready(Ok(()))
    }

    fn retire_worker(&self, worker: WorkerId) -> StoreFuture<'_, ()> {
        self.lock().leases.remove(&worker);
        ready(Ok(()))
    }

    fn abandoned_tasks(&self) -> StoreFuture<'_, Vec<TaskState>> {
        let now = self.clock.elapsed();
        let state = self.lock();
        let gone = state.running.iter().filter(|(worker, _)| !state.is_alive(worker, now));
        let mut places: Vec<usize> = gone.flat_map(|(_, places)| places.iter().copied()).collect();
        places.sort_unstable();
        ready(Ok(places.into_iter().filter_map(|p| state.at(p)).map(|t| t.state.clone()).collect()))
    }

    fn lease(&self, worker: WorkerId) -> StoreFuture<'_, Option<Lease>> {
        let lease = self.lock().leases.get(&worker).map(|had| Lease {
            renewals: u64::try_from(had.count).unwrap_or_default(),
            length: had.length,
            until: Timestamp::from_millisecond(had.until).unwrap_or(Timestamp::MAX),
        });
        ready(Ok(lease))
    }

    fn put_blob(&self, bytes: Vec<u8>) -> StoreFuture<'_, Digest> {
        let (digest, now) = (Digest::of_bytes(&bytes), self.clock.now());
        self.lock().blobs.entry(digest.clone()).or_insert_with(|| (bytes.into(), now)).1 = now;
        ready(Ok(digest))
    }

    fn blob(&self, digest: Digest) -> StoreFuture<'_, Option<Vec<u8>>> {
        let bytes = self.lock().blobs.get(&digest).map(|(bytes, _)| bytes.clone());
        ready(Ok(bytes.map(|b| b.to_vec())))
    }

    fn stored_value(&self, name: &str) -> StoreFuture<'_, StoredValue> {
        ready(Ok(self.lock().values.get(name).cloned().unwrap_or_default()))
    }

    fn put_stored_value(&self, name: &str, after: u64, bytes: Vec<u8>) -> StoreFuture<'_, bool> {
        let mut state = self.lock();
        let stored = state.values.entry(name.to_owned()).or_default();
        let fits = stored.version == after;
        if fits {
            *stored = StoredValue { version: after + 1, bytes };
        }
        ready(Ok(fits))
    }

    fn stored_value_names(&self) -> StoreFuture<'_, Vec<String>> {
        let state = self.lock();
        ready(Ok(state
            .values
            .iter()
            .filter(|(_, value)| value.version > 0)
            .map(|(name, _)| name.clone())
            .collect()))
    }

    fn import_journals(&self, journals: Vec<(TaskId, Vec<Record>)>) -> StoreFuture<'_, ()> {
        let imported = self.lock().import(journals);
        if imported.is_ok() {
            self.hint(Some(Hint::Lagged));
        }
        ready(imported)
    }

    fn delete(&self, tasks: Vec<(TaskId, Seq)>) -> StoreFuture<'_, ()> {
        let deleted = self.lock().delete(&tasks, super::blob_cutoff(self.clock.now()));
        if deleted.is_ok() {
            // There are no hints for a deleted task: all receivers have to check.
            self.hint(Some(Hint::Lagged));
        }
        ready(deleted)
    }

    fn hints(&self) -> HintStream {
        HintStream::from_channel(self.hints.subscribe())
    }

    fn read_feed(&self, scope: FeedScope, after: FeedPosition, limit: usize) -> StoreFuture<'_, FeedPage> {
        ready(self.lock().read_feed(scope, after, limit))
    }

    fn feed_end(&self) -> StoreFuture<'_, FeedPosition> {
        ready(Ok(self.lock().feed_end()))
    }

    fn read_live(&self, root: TaskId) -> LiveReader {
        self.live_readers.add(root, None)
    }

    fn is_read_live(&self, root: TaskId) -> bool {
        self.live_readers.contains(root)
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

/// A task with its position in submission order.
struct MemoryTask {
    place: usize,
    state: TaskState,
    journal: Vec<Record>,
    letters: HashSet<LetterId>,
}

/// All data. The sets of positions are indexes: they can be rebuilt from the states.
#[derive(Default)]
struct MemoryState {
    tasks: HashMap<TaskId, MemoryTask>,
    /// In submission order; a deleted task leaves an empty position.
    order: Vec<Option<TaskId>>,
    pending: HashMap<TeamRef, BTreeSet<usize>>,
    running: HashMap<WorkerId, BTreeSet<usize>>,
    children: HashMap<TaskId, Vec<usize>>,
    trees: HashMap<TaskId, MemoryTree>,
    counts: StatusCounts,
    leases: HashMap<WorkerId, LeaseRenewal>,
    watch: LeaseWatch,
    /// The number of this store in the positions of its feed.
    number: u32,
    /// How many entries and deletions there were.
    rows: u64,
    /// Every entry with its row, in order. A deletion has no task, and only the last is kept.
    feed: Vec<(u64, Option<(TaskId, Seq)>)>,
    /// With the time when it was last stored.
    blobs: HashMap<Digest, (Arc<[u8]>, Timestamp)>,
    values: HashMap<String, StoredValue>,
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
    fn at(&self, place: usize) -> Option<&MemoryTask> {
        self.tasks.get(self.order.get(place)?.as_ref()?)
    }

    fn is_alive(&self, worker: &WorkerId, now: Duration) -> bool {
        self.leases.get(worker).is_some_and(|lease| !self.watch.has_run_out(worker, *lease, now, now))
    }

    fn append(
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

    fn import(&mut self, journals: Vec<(TaskId, Vec<Record>)>) -> Result<(), StoreError> {
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

    fn feed_end(&self) -> FeedPosition {
        FeedPosition::new(self.number, 0, self.rows)
    }

    fn read_feed(&self, scope: FeedScope, after: FeedPosition, limit: usize) -> Result<FeedPage, StoreError> {
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
    fn put_state(&mut self, id: TaskId, state: TaskState) {
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
    fn matching<'a>(&'a self, filter: &'a TaskFilter) -> Box<dyn Iterator<Item = &'a MemoryTask> + 'a> {
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

    fn find(&self, typed: &str) -> Result<TaskId, StoreError> {
        if let Ok(id) = typed.parse::<TaskId>()
            && self.tasks.contains_key(&id)
        {
            return Ok(id);
        }
        let begins = TaskId::parse_prefix(typed);
        let fits = |id: &&TaskId| begins.as_ref().is_some_and(|b| id.letters().starts_with(b.as_str()));
        let matches = self.order.iter().flatten().filter(fits).take(super::MAX_MATCHES).copied().collect();
        super::single_match(typed, matches)
    }

    fn delete(&mut self, tasks: &[(TaskId, Seq)], kept_since: Timestamp) -> Result<(), StoreError> {
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
            self.values.retain(|name, _| super::task_of_stored_value(name) != Some(id));
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

    fn claim(&mut self, claim: &ClaimRequest, at: Timestamp) -> Vec<ClaimedTask> {
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
        Some(ClaimedTask { state, first })
    }
}

fn index_changes(old: &TaskState, new: &TaskState) -> bool {
    old.status != new.status || old.worker != new.worker
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::MemoryStore;

    crate::store_exam!(|clock| Arc::new(MemoryStore::with_clock(clock)));
}
