//! Appends: one transaction for all that wait together.
//!
//! First everything is locked and gathered, in one round trip: all statements are sent at once, and each sees what was
//! committed before it began, so what comes after the locks is true until the end. Then each batch is validated in
//! memory, over what the ones before it have changed. Then all of it is written, in another round trip.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use tokio_postgres::{Error, Row};

use super::clock::server_ms;
use super::connect::{ANSWER, ServerConnection};
use super::gathered::Gathered;
use super::lane::{LaneOperation, random_token};
use super::rows::{self, EncodedEntries, state_columns};
use super::write_set::{self, Marker, TransactionFailure, WriteSet, in_time};
use super::{Mutant, Shared, reader};
use crate::entry::Entry;
use crate::id::{Seq, TaskId};
use crate::store::validate::{WriteDraft, validate_batch};
use crate::store::{CountCondition, Fence, Hint, StoreError, TaskFilter};

/// Locked in the order of their ids, so that no two transactions wait for each other.
const LOCK_TASKS: &str = concat!(
    "SELECT ",
    state_columns!(),
    " FROM @.tasks t WHERE t.id = ANY($1) ORDER BY t.id FOR NO KEY UPDATE OF t"
);
const SEE_TASKS: &str = concat!("SELECT ", state_columns!(), " FROM @.tasks t WHERE t.id = ANY($1)");
/// What a new task refers to is not deleted meanwhile.
const LOCK_ANCHORS: &str = "SELECT 1 FROM @.tasks t WHERE t.id = ANY($1) ORDER BY t.id FOR KEY SHARE OF t";
/// Limited submissions take turns: no two of them count and then both take the last place.
const LOCK_LIMITS: &str = "SELECT 1 FROM @.scopes WHERE name = 'limits' FOR UPDATE";
const LETTERS: &str = "SELECT u.task, u.letter FROM unnest($1::text[], $2::bytea[]) AS u(task, letter) \
                       CROSS JOIN LATERAL (SELECT 1 FROM @.journal j WHERE j.task = u.task AND j.letter = u.letter \
                       LIMIT 1) AS there";
/// Which of these tasks have a worker with a lease. Locked: a renewal waits until it is known what became of its tasks.
const ALIVE: &str = concat!(
    "SELECT t.id FROM @.tasks t JOIN @.workers w ON w.id = t.worker WHERE t.id = ANY($1) AND ",
    super::leases::lease_holds!("$2"),
    " FOR SHARE OF w"
);
/// The time, and the place in the feed: see `feed.rs`. Asked when everything is locked.
pub(super) const NOW_AND_PLACE: &str = concat!("SELECT ", server_ms!(), ", ", super::feed::place!());

/// One batch.
pub(super) struct AppendRequest {
    drafts: Vec<WriteDraft>,
    encoded: EncodedEntries,
    only_if: Arc<[CountCondition]>,
}

impl AppendRequest {
    pub(super) fn new(
        drafts: Vec<WriteDraft>,
        only_if: Arc<[CountCondition]>,
    ) -> Result<AppendRequest, StoreError> {
        let encoded = rows::encode(&drafts)?;
        Ok(AppendRequest { drafts, encoded, only_if })
    }

    /// How much there is to write.
    pub(super) fn bytes(&self) -> usize {
        self.encoded.iter().flatten().map(Vec::len).sum()
    }

    fn entries(&self) -> impl Iterator<Item = (TaskId, &Entry)> {
        let of = |draft: &'_ WriteDraft| draft.task;
        self.drafts.iter().flat_map(move |draft| {
            let task = of(draft);
            draft.entries.iter().map(move |line| (task, &line.record.entry))
        })
    }
}

type Answers = Vec<Result<Vec<Seq>, StoreError>>;

/// A try of which nobody knows whether it was committed.
struct UnsureTry {
    marker: Marker,
    answers: Answers,
    hints: Vec<Hint>,
}

/// Batches that go into one transaction.
pub(super) struct AppendGroup {
    requests: Vec<AppendRequest>,
    unsure: Vec<UnsureTry>,
}

/// What a group asks of the database.
struct Asked {
    ids: Vec<String>,
    letters: (Vec<String>, Vec<Vec<u8>>),
    abandoned: Vec<String>,
    /// Tasks that new ones refer to.
    anchors: Vec<String>,
    /// Each with the number up to which it has to be counted.
    filters: Vec<(TaskFilter, i64)>,
    durable: bool,
}

impl AppendGroup {
    pub(super) fn new(requests: Vec<AppendRequest>) -> AppendGroup {
        AppendGroup { requests, unsure: Vec::new() }
    }

    pub(super) fn into_requests(self) -> Vec<AppendRequest> {
        self.requests
    }

    fn asked(&self) -> Asked {
        let drafts = || self.requests.iter().flat_map(|request| &request.drafts);
        let ids: BTreeSet<String> = drafts().map(|draft| draft.task.to_string()).collect();
        let abandoned = drafts().filter(|draft| matches!(draft.fence, Fence::Abandoned(_)));
        let abandoned: BTreeSet<String> = abandoned.map(|draft| draft.task.to_string()).collect();
        let mut letters = (Vec::new(), Vec::new());
        let mut durable = false;
        let mut anchors = BTreeSet::new();
        for (task, entry) in self.requests.iter().flat_map(AppendRequest::entries) {
            durable |= !entry.is_live();
            if let Entry::Letter(letter) = entry {
                letters.0.push(task.to_string());
                letters.1.push(rows::letter_key(&letter.id));
            }
            if let Entry::Submitted(submitted) = entry {
                let root = Some(submitted.root).filter(|root| *root != task);
                let named = [submitted.parent, root, submitted.continues];
                anchors.extend(named.into_iter().flatten().map(|id| id.to_string()));
            }
        }
        let mut filters: Vec<(TaskFilter, i64)> = Vec::new();
        // The group itself may take tasks out of a count.
        let own = rows::number(ids.len() as u64);
        let conditions = self.requests.iter().flat_map(|request| request.only_if.iter());
        for (filter, most) in conditions.flat_map(CountCondition::alternatives) {
            let most = i64::from(most).saturating_add(own);
            match filters.iter_mut().find(|(known, _)| known == filter) {
                Some((_, known)) => *known = most.max(*known),
                None => filters.push((filter.clone(), most)),
            }
        }
        let anchors = anchors.into_iter().filter(|id| !ids.contains(id)).collect();
        let (ids, abandoned) = (ids.into_iter().collect(), abandoned.into_iter().collect());
        Asked { ids, letters, abandoned, anchors, filters, durable }
    }

    /// Validates each batch. Returns the answers and the hints.
    fn validate(&mut self, gathered: &mut Gathered, now: i64, monotonic: bool) -> (Answers, Vec<Hint>) {
        let (mut answers, mut hints) = (Vec::with_capacity(self.requests.len()), Vec::new());
        for AppendRequest { drafts, only_if, .. } in &mut self.requests {
            let at = if monotonic { not_before(gathered, drafts, now) } else { now };
            let at = Timestamp::from_millisecond(at).unwrap_or_default();
            let checked = gathered.check_limits(drafts, only_if);
            answers.push(checked.and_then(|()| validate_batch(drafts, at, gathered)).map(|verdict| {
                hints.extend(drafts.iter().filter_map(|draft| draft.hint(verdict.root(draft.task))));
                let ends = verdict.ends.clone();
                gathered.apply(drafts, verdict);
                ends
            }));
        }
        (answers, hints)
    }

    fn write_set(&self, gathered: &Gathered, answers: &Answers) -> WriteSet<'_> {
        let mut set = WriteSet::default();
        for id in &gathered.changed {
            match gathered.tasks.get(id) {
                Some(Ok(state)) if gathered.stored.contains(id) => set.update(state),
                Some(Ok(state)) => set.insert(state),
                _ => {}
            }
        }
        let accepted = self.requests.iter().zip(answers).filter(|(_, answer)| answer.is_ok());
        for (request, _) in accepted {
            for (draft, encoded) in request.drafts.iter().zip(&request.encoded) {
                for (line, bytes) in draft.entries.iter().zip(encoded).filter(|(line, _)| !line.known) {
                    set.append(draft.task, &line.record, bytes);
                }
            }
        }
        set
    }
}

/// A time that is not before what is already in the journals of a batch: the server's clock may be set, and another
/// server may take over.
fn not_before(gathered: &Gathered, drafts: &[WriteDraft], now: i64) -> i64 {
    let states = drafts.iter().filter_map(|draft| gathered.tasks.get(&draft.task)?.as_ref().ok());
    states.map(|state| state.active.as_millisecond()).fold(now, i64::max)
}

impl LaneOperation for AppendGroup {
    type Answer = Answers;

    fn is_unsure(&self) -> bool {
        !self.unsure.is_empty()
    }

    async fn attempt(
        &mut self,
        connection: &ServerConnection,
        shared: &Shared,
    ) -> Result<Answers, TransactionFailure> {
        let asked = self.asked();
        in_time(connection, connection.prepare_all(&write_set::STATEMENTS)).await?;
        let (mut gathered, now, place, committed) = gather(connection, shared, &asked, &self.unsure).await?;
        if let Some(nth) = committed
            && nth < self.unsure.len()
        {
            in_time(connection, connection.batch("ROLLBACK")).await?;
            let UnsureTry { answers, hints, .. } = self.unsure.swap_remove(nth);
            self.unsure.clear();
            shared.signals.written(hints);
            return Ok(answers);
        }
        let now = shared.clock.date(now);
        let (answers, hints) = self.validate(&mut gathered, now, shared.clock.is_servers());
        let set = self.write_set(&gathered, &answers);
        if set.is_empty() {
            in_time(connection, connection.batch("COMMIT")).await?;
            return Ok(answers);
        }
        let token = random_token();
        let marker = set.marker(token);
        match set.commit(connection, token, place).await {
            Ok(()) => {
                self.unsure.clear();
                shared.signals.written(hints);
                Ok(answers)
            }
            Err(TransactionFailure::Unknown) if !shared.is_broken(Mutant::NoToken) => {
                self.unsure.extend(marker.map(|marker| UnsureTry { marker, answers, hints }));
                Err(TransactionFailure::Unknown)
            }
            Err(failure) => Err(failure),
        }
    }
}

/// Locks and gathers everything in one round trip. Also returns the server's time, the place in the feed, and which of
/// the unsure tries was committed.
async fn gather(
    connection: &ServerConnection,
    shared: &Shared,
    asked: &Asked,
    unsure: &[UnsureTry],
) -> Result<(Gathered, i64, i64, Option<usize>), TransactionFailure> {
    let prepared = async {
        connection
            .prepare_all(&[LOCK_TASKS, SEE_TASKS, LOCK_ANCHORS, LOCK_LIMITS, LETTERS, ALIVE, NOW_AND_PLACE])
            .await?;
        // Prepared by being run: a filter has one of many forms.
        for (filter, _) in &asked.filters {
            reader::prepare_count(connection, filter).await?;
        }
        Ok(())
    };
    in_time(connection, prepared).await?;
    let lease_time = shared.lease_time();
    let limits = async {
        match asked.filters.is_empty() || shared.is_broken(Mutant::NoLimitLock) {
            true => Ok(Vec::new()),
            false => connection.query(LOCK_LIMITS, &[]).await,
        }
    };
    let lock = if shared.is_broken(Mutant::NoRowLock) { SEE_TASKS } else { LOCK_TASKS };
    let tasks = async { connection.query(lock, &[&asked.ids]).await };
    let anchors = async {
        match asked.anchors.is_empty() {
            true => Ok(Vec::new()),
            false => connection.query(LOCK_ANCHORS, &[&asked.anchors]).await,
        }
    };
    let letters = async {
        match asked.letters.0.is_empty() {
            true => Ok(Vec::new()),
            false => connection.query(LETTERS, &[&asked.letters.0, &asked.letters.1]).await,
        }
    };
    let alive = async {
        match asked.abandoned.is_empty() {
            true => Ok(Vec::new()),
            false => connection.query(ALIVE, &[&asked.abandoned, &lease_time]).await,
        }
    };
    // One for each kind of limit, and for each tree that has one.
    let counts = futures::future::join_all(
        asked.filters.iter().map(|(filter, most)| reader::count(connection, filter, *most)),
    );
    let found = futures::future::join_all(unsure.iter().map(|tried| tried.marker.is_there(connection)));
    let now = connection.query(NOW_AND_PLACE, &[]);
    // Polled in this order, so sent in this order.
    let begin = connection.begin(asked.durable);
    let answers = async { futures::join!(begin, limits, tasks, anchors, letters, alive, counts, found, now) };
    let Ok((begun, limits, tasks, anchors, letters, alive, counts, found, now)) =
        tokio::time::timeout(ANSWER, answers).await
    else {
        return Err(TransactionFailure::timeout(connection));
    };
    let errors = [&limits, &tasks, &anchors, &letters, &alive].map(|answer| answer.as_ref().err());
    let errors = errors.into_iter().chain(counts.iter().map(|count| count.as_ref().err()));
    let errors = errors.chain(found.iter().map(|found| found.as_ref().err())).chain([now.as_ref().err()]);
    if let Some(failure) =
        TransactionFailure::of_first(connection, [begun.as_ref().err()].into_iter().chain(errors).flatten())
    {
        return Err(failure);
    }
    let failed = |error: Error| TransactionFailure::of(connection, &error);
    let rows = |rows: Result<Vec<Row>, Error>| rows.map_err(failed);
    let mut gathered = Gathered::default();
    for row in rows(tasks)? {
        let (Some(id), state) = rows::saved(&row, 0).map_err(failed)? else { continue };
        let state = match state {
            Some(state) => Ok(state),
            None => in_time(connection, rows::rebuild(connection, id)).await?,
        };
        gathered.tasks.insert(id, state);
        gathered.stored.insert(id);
    }
    for row in rows(letters)? {
        if let Some(task) = rows::task_id(&row, 0).map_err(failed)? {
            gathered.letters.insert((task, row.try_get(1).map_err(failed)?));
        }
    }
    let alive: Result<HashSet<_>, Error> =
        rows(alive)?.iter().filter_map(|row| rows::task_id(row, 0).transpose()).collect();
    gathered.alive = alive.map_err(failed)?;
    for ((filter, _), count) in asked.filters.iter().zip(counts) {
        gathered.counts.push((filter.clone(), count.map_err(failed)?));
    }
    let committed = found.iter().position(|found| matches!(found, Ok(true)));
    let now = rows(now)?;
    let first = now.first().ok_or_else(|| TransactionFailure::timeout(connection))?;
    let (at, place) = (first.try_get(0).map_err(failed)?, first.try_get(1).map_err(failed)?);
    Ok((gathered, at, place, committed))
}
