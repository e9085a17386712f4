//! A store that has grown: many tasks that have ended, as real runs leave them behind.
//!
//! `./bench/grow DIR TASKS` writes `DIR/longhaul.db`. The tasks are spread evenly over the 400 days before yesterday, each is in a tree
//! of its own but for every fifth, which is below the one before it, and somebody has looked at all of them.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use jiff::{SignedDuration, Timestamp};
use longhaul::entry::{CallResult, Entry, Order, Outcome, Submission, TeamRef};
use longhaul::id::{Attempt, CallId, TaskId, TaskKey, WorkerId};
use longhaul::message::{Reply, Usage};
use longhaul::store::{
    Batch, ClaimRequest, Clock, Durability, Fence, SqliteOptions, SqliteStore, Store, StoreError,
};

/// How many are made together.
const BATCH_SIZE: usize = 250;
/// How long ago the first was submitted, and the last ended.
const FIRST: SignedDuration = SignedDuration::from_hours(401 * 24);
const LAST: SignedDuration = SignedDuration::from_hours(24);

pub(crate) async fn grow_store(directory: &Path, tasks: usize) -> Result<(), Box<dyn Error>> {
    let begin = Timestamp::now() - FIRST;
    let step = (FIRST - LAST).as_millis() / i128::try_from(tasks.max(1))?;
    let now = Arc::new(AtomicI64::new(begin.as_millisecond()));
    let clock = {
        let now = now.clone();
        Clock::from_fn(move || Timestamp::from_millisecond(now.load(Ordering::Relaxed)).unwrap_or_default())
    };
    let options = SqliteOptions::default().durability(Durability::Normal).clock(clock);
    let store = SqliteStore::open_with(directory.join("longhaul.db"), options)?;
    let team = TeamRef::Named("grown".into());
    let worker = WorkerId::from("grown");
    store.renew_lease(worker.clone(), Duration::from_secs(500 * 24 * 3600)).await?;
    for first in (0..tasks).step_by(BATCH_SIZE) {
        let ids: Vec<TaskId> = (first..tasks.min(first + BATCH_SIZE)).map(id).collect();
        let batches = (first..).zip(&ids).map(|(n, id)| {
            let parent = (n % 5 == 4 && n > first).then(|| ids[n - first - 1]);
            let order = Order::new("worker", format!("Task {n}: {}", "look at what there is. ".repeat(12)));
            let submitted =
                Submission::root(parent.unwrap_or(*id), TaskKey::named(&n.to_string()), order, team.clone());
            let submitted = Submission { parent, depth: u32::from(parent.is_some()), ..submitted };
            Batch::one(*id, Fence::New, vec![Entry::Submitted(Box::new(submitted))])
        });
        run_batch(batches.map(|batch| store.append(batch))).await?;
        let claim = ClaimRequest {
            worker: worker.clone(),
            teams: vec![team.clone()],
            roots: None,
            fresh_only: true,
            except: Vec::new(),
            max: BATCH_SIZE,
        };
        let claimed = store.claim(claim).await?;
        let batches =
            claimed.iter().map(|task| Batch::one(task.state.id, Fence::Attempt(Attempt(1)), task_entries()));
        run_batch(batches.map(|batch| store.append(batch))).await?;
        let stored_values: Vec<String> = ids.iter().map(|id| format!("seen:{id}")).collect();
        run_batch(
            stored_values
                .iter()
                .map(|stored_value| store.put_stored_value(stored_value, 0, b"looked at".to_vec())),
        )
        .await?;
        now.fetch_add(i64::try_from(step * i128::try_from(ids.len())?)?, Ordering::Relaxed);
    }
    store.retire_worker(worker).await?;
    Ok(())
}

async fn run_batch<T>(
    all: impl Iterator<Item = impl Future<Output = Result<T, StoreError>>>,
) -> Result<(), StoreError> {
    futures::stream::iter(all).buffer_unordered(BATCH_SIZE).try_for_each(|_| async { Ok(()) }).await
}

fn id(n: usize) -> TaskId {
    #[expect(clippy::unwrap_used, reason = "a key has candidates")]
    TaskKey::named(&n.to_string()).candidate_ids().last().unwrap()
}

/// What a small task does: a call, and an answer.
fn task_entries() -> Vec<Entry> {
    let call = CallId { turn: 1, index: 0 };
    let reply = |text: String| {
        let usage = Usage { input: 900, output: 60, ..Usage::default() };
        Entry::Replied(Arc::new(Reply { usage, model: "some/model".into(), ..Reply::text_only(text) }))
    };
    let returned = CallResult::new(call, "One line of what a command has printed.\n".repeat(12));
    let answer = "This is what was found, in a few sentences. ".repeat(6);
    let outcome = Outcome::Completed { output: answer.clone().into(), cut_short: None };
    vec![
        reply("I look at it.".into()),
        Entry::Called { call, tool: "shell".into(), arguments: None, effects: false, foreign: false },
        Entry::Returned(Box::new(returned)),
        reply(answer),
        Entry::Finished(Box::new(outcome)),
    ]
}
