//! Claims: the oldest pending tasks, each locked by one claimer, and skipped by all others.

use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use tokio_postgres::{Error, Row};

use super::appends::NOW_AND_PLACE;
use super::connect::ServerConnection;
use super::lane::{LaneOperation, LaneReply, random_token};
use super::rows::{self, state_columns};
use super::sql_value::SqlValue;
use super::write_set::{self, Marker, TransactionFailure, WriteSet, in_time};
use super::{Mutant, Shared};
use crate::entry::{Entry, EntryKind, Record};
use crate::id::{Seq, TaskId};
use crate::store::{ClaimRequest, ClaimedTask, EntryKinds, Hint};

/// How often it is looked again if others took what was found.
const LOOKS: usize = 4;

/// Locks an earlier claim's tasks, to see whether it was committed.
const LOCK_ONE: &str = "SELECT 1 FROM @.tasks WHERE id = $1 FOR NO KEY UPDATE";

/// Claims with the same conditions, which go into one transaction: the first gets the oldest.
pub(super) struct ClaimGroup {
    claims: Vec<ClaimRequest>,
    unsure: Vec<(Marker, Vec<Vec<ClaimedTask>>)>,
}

/// An entry that a claim writes, and its bytes.
type ClaimEntry = (TaskId, Record, Vec<u8>);

/// A pending task that is locked.
struct Pending {
    n: i64,
    task: ClaimedTask,
}

impl ClaimGroup {
    /// Puts claims with the same conditions together.
    pub(super) fn groups(
        claims: Vec<(ClaimRequest, LaneReply<Vec<ClaimedTask>>)>,
    ) -> Vec<(ClaimGroup, Vec<LaneReply<Vec<ClaimedTask>>>)> {
        let mut groups: Vec<(ClaimGroup, Vec<_>)> = Vec::new();
        for (claim, reply) in claims {
            let same = |group: &&mut (ClaimGroup, Vec<_>)| {
                let first = &group.0.claims[0];
                (&first.teams, &first.roots, first.fresh_only, &first.except)
                    == (&claim.teams, &claim.roots, claim.fresh_only, &claim.except)
            };
            match groups.iter_mut().find(same) {
                Some((group, replies)) => {
                    group.claims.push(claim);
                    replies.push(reply);
                }
                None => groups.push((ClaimGroup { claims: vec![claim], unsure: Vec::new() }, vec![reply])),
            }
        }
        groups
    }

    fn nothing(&self) -> Vec<Vec<ClaimedTask>> {
        self.claims.iter().map(|_| Vec::new()).collect()
    }

    fn max(&self) -> usize {
        self.claims.iter().map(|claim| claim.max).fold(0, usize::saturating_add)
    }
}

/// What limits a claim besides its team, with its parameters from `$2` on: the number of tasks, the tasks that are left
/// out, the place where the search begins, and the trees.
fn conditions(claim: &ClaimRequest, format: u16) -> String {
    let fresh = if claim.fresh_only { " AND t.attempt = 0" } else { "" };
    let trees = if claim.roots.is_some() { " AND t.root = ANY($5)" } else { "" };
    // A task with entries of a newer Longhaul is for workers that can read them.
    format!(" AND t.format <= {format} AND t.id <> ALL($3) AND t.n >= $4{fresh}{trees}")
}

/// The statement that finds and locks the oldest pending tasks, and its parameters.
struct Search {
    sql: String,
    /// Finds one, and locks nothing.
    peek: String,
    teams: Vec<String>,
    most: i64,
    except: Vec<String>,
    roots: Option<Vec<String>>,
    /// Whether everything is searched for that may be claimed: then it may begin later.
    plain: bool,
    from: i64,
}

impl Search {
    fn new(claim: &ClaimRequest, max: usize, shared: &Shared) -> Search {
        let roots = claim.roots.as_ref().map(|roots| roots.iter().map(ToString::to_string).collect());
        let mut teams: Vec<String> = claim.teams.iter().map(rows::team_text).collect();
        teams.sort();
        teams.dedup();
        let lock =
            if shared.is_broken(Mutant::NoRowLock) { "" } else { " FOR NO KEY UPDATE OF t SKIP LOCKED" };
        let columns = concat!(state_columns!(), ", t.n, j.seq, j.at, j.format, j.entry");
        let conditions = conditions(claim, shared.server.format());
        let sql = match teams.len() {
            1 => format!(
                "SELECT {columns} FROM @.tasks t JOIN @.journal j ON j.task = t.id AND j.seq = 1 \
                 WHERE t.team = $1 AND t.status = 0{conditions} ORDER BY t.n LIMIT $2{lock}"
            ),
            // The oldest of each team, the oldest of those, and then the locks: no more is locked than is taken.
            _ => format!(
                "SELECT {columns} FROM ( \
                   SELECT c.id FROM unnest($1::text[]) AS q(team) CROSS JOIN LATERAL ( \
                     SELECT t.id, t.n FROM @.tasks t WHERE t.team = q.team AND t.status = 0{conditions} ORDER BY t.n LIMIT $2 \
                   ) AS c ORDER BY c.n LIMIT $2 \
                 ) AS oldest JOIN @.tasks t ON t.id = oldest.id JOIN @.journal j ON j.task = t.id AND j.seq = 1 \
                 WHERE t.status = 0 ORDER BY t.n{lock}"
            ),
        };
        let except = claim.except.iter().map(ToString::to_string).collect();
        let plain = roots.is_none() && claim.except.is_empty() && !claim.fresh_only;
        let from = if plain { shared.claim_floors().begin(&teams, Instant::now()) } else { 0 };
        let peek =
            format!("SELECT 1 FROM @.tasks t WHERE t.team = ANY($1) AND t.status = 0{conditions} LIMIT $2");
        Search { sql, peek, teams, most: rows::number(max as u64), except, roots, plain, from }
    }

    async fn run(&self, connection: &ServerConnection) -> Result<Vec<Row>, Error> {
        let teams: &dyn SqlValue = match &self.teams[..] {
            [team] => team,
            _ => &self.teams,
        };
        match &self.roots {
            Some(roots) => {
                connection.query(&self.sql, &[teams, &self.most, &self.except, &self.from, roots]).await
            }
            None => connection.query(&self.sql, &[teams, &self.most, &self.except, &self.from]).await,
        }
    }

    /// Whether there is anything to claim: one statement without a transaction, which writes nothing.
    async fn finds_any(&self, connection: &ServerConnection) -> Result<bool, Error> {
        let (one, from, except) = (1_i64, &self.from, &self.except);
        let found = match &self.roots {
            Some(roots) => connection.query(&self.peek, &[&self.teams, &one, except, from, roots]).await,
            None => connection.query(&self.peek, &[&self.teams, &one, except, from]).await,
        };
        Ok(!found?.is_empty())
    }

    /// Begins a transaction, locks, and asks for the time and the place in the feed: in one round trip.
    async fn lock(&self, connection: &ServerConnection) -> Result<(Vec<Row>, Vec<Row>), Error> {
        let (begun, found, now) = futures::join!(
            connection.begin(true),
            self.run(connection),
            connection.query(NOW_AND_PLACE, &[])
        );
        begun?;
        let (mut found, mut now) = (found?, now?);
        // With several teams, others may have taken what was found before it was locked.
        let mut looks = 1;
        while found.is_empty() && self.teams.len() > 1 && looks < LOOKS {
            looks += 1;
            let (again, later) = futures::join!(self.run(connection), connection.query(NOW_AND_PLACE, &[]));
            (found, now) = (again?, later?);
        }
        Ok((found, now))
    }
}

/// The tasks in the rows of a search.
async fn pending(connection: &ServerConnection, found: &[Row]) -> Result<Vec<Pending>, Error> {
    let mut pending = Vec::with_capacity(found.len());
    for row in found {
        let (Some(id), state) = rows::saved(row, 0)? else { continue };
        let n = row.try_get(4)?;
        let state = match state {
            Some(state) => Ok(state),
            None => rows::rebuild(connection, id).await?,
        };
        match (state, rows::record(id, row, 5)?) {
            (Ok(state), Ok(first)) => {
                pending.push(Pending { n, task: ClaimedTask { state: Arc::new(state), first } })
            }
            // An unreadable task must not keep others from being claimed.
            (Err(error), _) | (_, Err(error)) => {
                tracing::warn!(task = %id, %error, "a task that cannot be read is not claimed");
            }
        }
    }
    pending.sort_by_key(|pending| pending.n);
    Ok(pending)
}

impl LaneOperation for ClaimGroup {
    type Answer = Vec<Vec<ClaimedTask>>;

    fn is_unsure(&self) -> bool {
        !self.unsure.is_empty()
    }

    async fn attempt(
        &mut self,
        connection: &ServerConnection,
        shared: &Shared,
    ) -> Result<Self::Answer, TransactionFailure> {
        if let Some(claimed) = self.find_committed(connection).await? {
            shared.signals.written(hints(&claimed));
            return Ok(claimed);
        }
        let Some(first) = self.claims.first() else { return Ok(Vec::new()) };
        let max = self.max();
        let nobody = first.teams.is_empty() || first.roots.as_ref().is_some_and(Vec::is_empty);
        if max == 0 || nobody {
            return Ok(self.nothing());
        }
        let search = Search::new(first, max, shared);
        // A worker with nothing to do looks again and again.
        let is_idle = shared.claim_floors().found_nothing;
        if is_idle && !in_time(connection, search.finds_any(connection)).await? {
            return Ok(self.nothing());
        }
        in_time(connection, async {
            connection.prepare_all(&write_set::STATEMENTS).await?;
            connection.prepare_all(&[NOW_AND_PLACE, &search.sql]).await
        })
        .await?;
        let (found, now) = in_time(connection, search.lock(connection)).await?;
        let pending = in_time(connection, pending(connection, &found)).await?;
        let last = pending.last().map(|pending| pending.n);
        shared.claim_floors().found_nothing = pending.is_empty();
        let failed = |error: Error| TransactionFailure::of(connection, &error);
        let row = now.first().ok_or_else(|| TransactionFailure::timeout(connection))?;
        let (server_time, place): (i64, i64) =
            (row.try_get(0).map_err(failed)?, row.try_get(1).map_err(failed)?);
        let at = Timestamp::from_millisecond(shared.clock.date(server_time)).unwrap_or_default();

        let (claimed, written) = self.hand_out(pending, at);
        let mut set = WriteSet::default();
        for (task, record, bytes) in &written {
            set.append(*task, record, bytes);
        }
        for task in claimed.iter().flatten() {
            set.update(&task.state);
        }
        if set.is_empty() {
            in_time(connection, connection.batch("COMMIT")).await?;
            return Ok(claimed);
        }
        let token = random_token();
        let marker = set.marker(token);
        match set.commit(connection, token, place).await {
            Ok(()) => {
                if let Some(last) = last.filter(|_| search.plain) {
                    shared.claim_floors().claimed(&search.teams, last, found.len() >= max);
                }
                shared.signals.written(hints(&claimed));
                Ok(claimed)
            }
            Err(TransactionFailure::Unknown) if !shared.is_broken(Mutant::NoToken) => {
                self.unsure.extend(marker.map(|marker| (marker, claimed)));
                Err(TransactionFailure::Unknown)
            }
            Err(failure) => Err(failure),
        }
    }
}

impl ClaimGroup {
    /// Writes the claims into the states, the oldest for the first claimer.
    fn hand_out(&self, pending: Vec<Pending>, at: Timestamp) -> (Vec<Vec<ClaimedTask>>, Vec<ClaimEntry>) {
        let mut pending = pending.into_iter();
        let (mut claimed, mut written) = (self.nothing(), Vec::new());
        for (claim, tasks) in self.claims.iter().zip(&mut claimed) {
            while tasks.len() < claim.max
                && let Some(Pending { mut task, .. }) = pending.next()
            {
                let state = Arc::make_mut(&mut task.state);
                let at = at.max(state.active);
                let entry = Entry::Claimed { attempt: state.attempt.next(), worker: claim.worker.clone() };
                let record = Record { seq: Seq(state.seq.0 + 1), at, entry };
                if let (Ok(()), Ok(bytes)) = (state.apply(&record), record.entry.encode()) {
                    written.push((state.id, record, bytes));
                    tasks.push(task);
                }
            }
        }
        (claimed, written)
    }

    /// What an earlier try has claimed, if it was committed.
    async fn find_committed(
        &mut self,
        connection: &ServerConnection,
    ) -> Result<Option<Vec<Vec<ClaimedTask>>>, TransactionFailure> {
        let mut committed = None;
        for (nth, (marker, _)) in self.unsure.iter().enumerate() {
            let look = async {
                connection.begin(true).await?;
                connection.query(LOCK_ONE, &[&marker.task()]).await?;
                let there = marker.is_there(connection).await?;
                connection.batch("ROLLBACK").await?;
                Ok(there)
            };
            if in_time(connection, look).await? {
                committed = Some(nth);
            }
        }
        let found = committed.map(|nth| self.unsure.swap_remove(nth).1);
        // Those that are not there never come: their rows were locked.
        self.unsure.clear();
        Ok(found)
    }
}

fn hints(claimed: &[Vec<ClaimedTask>]) -> Vec<Hint> {
    let kinds = EntryKinds::from_kinds([EntryKind::Claimed]);
    let hint = |task: &ClaimedTask| Hint::Task { task: task.state.id, root: task.state.root, kinds };
    claimed.iter().flatten().map(hint).collect()
}
