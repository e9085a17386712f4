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
use longhaul::entry::{Entry, Order, Outcome, Returned, Submitted, TeamRef};
use longhaul::id::{Attempt, CallId, TaskId, TaskKey, WorkerId};
use longhaul::message::{Reply, Usage};
use longhaul::store::{Batch, Claim, Clock, Durability, Fence, Sqlite, SqliteOptions, Store, StoreError};

/// How many are made together.
const TOGETHER: usize = 250;
/// How long ago the first was submitted, and the last ended.
const FIRST: SignedDuration = SignedDuration::from_hours(401 * 24);
const LAST: SignedDuration = SignedDuration::from_hours(24);

pub(crate) async fn grow(directory: &Path, tasks: usize) -> Result<(), Box<dyn Error>> {
    let begin = Timestamp::now() - FIRST;
    let step = (FIRST - LAST).as_millis() / i128::try_from(tasks.max(1))?;
    let now = Arc::new(AtomicI64::new(begin.as_millisecond()));
    let clock = {
        let now = now.clone();
        Clock::of(move || Timestamp::from_millisecond(now.load(Ordering::Relaxed)).unwrap_or_default())
    };
    let options = SqliteOptions { durability: Durability::Normal, clock, ..SqliteOptions::default() };
    let store = Sqlite::open_with(directory.join("longhaul.db"), options)?;
    let team = TeamRef::Named("grown".into());
    let worker = WorkerId::from("grown");
    store.renew(worker.clone(), Duration::from_secs(500 * 24 * 3600)).await?;
    for first in (0..tasks).step_by(TOGETHER) {
        let ids: Vec<TaskId> = (first..tasks.min(first + TOGETHER)).map(id).collect();
        let batches = (first..).zip(&ids).map(|(n, id)| {
            let parent = (n % 5 == 4 && n > first).then(|| ids[n - first - 1]);
            let order = Order::new("worker", format!("Task {n}: {}", "look at what there is. ".repeat(12)));
            let submitted =
                Submitted::root(parent.unwrap_or(*id), TaskKey::chosen(&n.to_string()), order, team.clone());
            let submitted = Submitted { parent, depth: u32::from(parent.is_some()), ..submitted };
            Batch::one(*id, Fence::New, vec![Entry::Submitted(Box::new(submitted))])
        });
        together(batches.map(|batch| store.append(batch))).await?;
        let claim = Claim {
            worker: worker.clone(),
            teams: vec![team.clone()],
            roots: None,
            fresh: true,
            max: TOGETHER,
        };
        let claimed = store.claim(claim).await?;
        let batches = claimed.iter().map(|task| Batch::one(task.head.id, Fence::Attempt(Attempt(1)), life()));
        together(batches.map(|batch| store.append(batch))).await?;
        let slips: Vec<String> = ids.iter().map(|id| format!("seen:{id}")).collect();
        together(slips.iter().map(|slip| store.write_slip(slip, 0, b"looked at".to_vec()))).await?;
        now.fetch_add(i64::try_from(step * i128::try_from(ids.len())?)?, Ordering::Relaxed);
    }
    store.retire(worker).await?;
    Ok(())
}

async fn together<T>(
    all: impl Iterator<Item = impl Future<Output = Result<T, StoreError>>>,
) -> Result<(), StoreError> {
    futures::stream::iter(all).buffer_unordered(TOGETHER).try_for_each(|_| async { Ok(()) }).await
}

fn id(n: usize) -> TaskId {
    #[expect(clippy::unwrap_used, reason = "a key has candidates")]
    TaskKey::chosen(&n.to_string()).candidates().last().unwrap()
}

/// What a small task does: a call, and an answer.
fn life() -> Vec<Entry> {
    let call = CallId { turn: 1, index: 0 };
    let reply = |text: String| {
        let usage = Usage { input: 900, output: 60, ..Usage::default() };
        Entry::Replied(Arc::new(Reply { usage, model: "some/model".into(), ..Reply::text_only(text) }))
    };
    let returned = Returned {
        call,
        output: "One line of what a command has printed.\n".repeat(12).into(),
        is_error: false,
        whole: None,
        collected: Vec::new(),
        handoff: None,
        model: None,
    };
    let answer = "This is what was found, in a few sentences. ".repeat(6);
    let outcome = Outcome::Completed { output: answer.clone().into(), cut_short: None };
    vec![
        reply("I look at it.".into()),
        Entry::Called { call, tool: "shell".into(), arguments: None },
        Entry::Returned(Box::new(returned)),
        reply(answer),
        Entry::Finished(Box::new(outcome)),
    ]
}
