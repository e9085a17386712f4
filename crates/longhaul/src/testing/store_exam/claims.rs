//! Questions about claims and leases: each task goes to one worker, and none to a dead one.

use std::collections::HashSet;
use std::time::Duration;

use futures::future::join_all;

use super::StoreFactory;
use super::setup::{ExamSetup, claim, edit, ids, owner, released, replied, stop, submission};
use crate::entry::{Entry, TeamRef};
use crate::id::{Attempt, TaskId, WorkerId};
use crate::store::{ClaimRequest, Fence, StoreError};
use crate::task::Status;

/// The oldest first, at most as many as requested, each with its entry.
pub async fn claims_are_oldest_first(make: StoreFactory<'_>) {
    let s = ExamSetup::new(make);
    let mut tasks = Vec::new();
    for _ in 0..5 {
        tasks.push(s.task().await);
    }
    assert!(s.claim(claim("w", 0)).await.unwrap().is_empty());
    let states = s.claim(claim("w", 2)).await.unwrap();
    assert_eq!(ids(&states), tasks[..2]);
    for state in &states {
        assert_eq!((state.status, state.attempt), (Status::Running, Attempt(1)));
        assert_eq!(state.worker, Some(WorkerId::from("w")));
        let claimed = Entry::Claimed { attempt: Attempt(1), worker: WorkerId::from("w") };
        assert_eq!(s.journal(state.id).await[1].entry, claimed);
        assert_eq!(s.state(state.id).await, *state);
    }
    assert_eq!(ids(&s.claim(claim("v", 9)).await.unwrap()), tasks[2..]);
    assert!(s.claim(claim("v", 9)).await.unwrap().is_empty());
}

/// Teams, trees and freshness limit a claim.
pub async fn claims_take_what_they_ask_for(make: StoreFactory<'_>) {
    let s = ExamSetup::new(make);
    let other_team = TeamRef::File(crate::id::Digest::of_bytes(b"a team file"));
    let a = s.task().await;
    let b = s.fresh_id();
    s.submit(b, edit(submission(b), |submitted| submitted.team = other_team.clone())).await.unwrap();
    let root = s.task().await;
    let child = s.child(root).await;
    let released_before = s.task().await;
    let only = ClaimRequest { roots: Some(vec![released_before]), ..claim("w", 1) };
    assert_eq!(ids(&s.claim(only).await.unwrap()), [released_before]);
    s.write(released_before, owner(1), vec![released(1)]).await.unwrap();

    let none = ClaimRequest { teams: vec![TeamRef::Named("nobody's".into())], ..claim("w", 9) };
    assert!(s.claim(none).await.unwrap().is_empty());
    assert!(s.claim(ClaimRequest { teams: vec![], ..claim("w", 9) }).await.unwrap().is_empty());
    assert!(s.claim(ClaimRequest { roots: Some(vec![]), ..claim("w", 9) }).await.unwrap().is_empty());
    let other = ClaimRequest { teams: vec![other_team.clone()], ..claim("w", 9) };
    assert_eq!(ids(&s.claim(other).await.unwrap()), [b]);
    let tree = ClaimRequest { roots: Some(vec![root, b]), ..claim("w", 9) };
    assert_eq!(ids(&s.claim(tree).await.unwrap()), [root, child]);
    let others = ClaimRequest { except: vec![a], ..claim("w", 1) };
    assert_eq!(ids(&s.claim(others).await.unwrap()), [released_before], "the next one takes its place");
    s.write(released_before, owner(2), vec![released(2)]).await.unwrap();
    let fresh = ClaimRequest { fresh_only: true, ..claim("w", 9) };
    assert_eq!(ids(&s.claim(fresh).await.unwrap()), [a]);
    let both = ClaimRequest { teams: vec![other_team, TeamRef::Named("team".into())], ..claim("w", 9) };
    assert_eq!(ids(&s.claim(both).await.unwrap()), [released_before]);
}

/// Many workers claim at once; each task goes to one of them.
pub async fn a_task_is_claimed_by_one(make: StoreFactory<'_>) {
    let s = ExamSetup::new(make);
    let mut tasks = HashSet::new();
    for _ in 0..60 {
        tasks.insert(s.task().await);
    }
    let claimers = (0..10).map(|n| {
        let s = s.clone();
        tokio::spawn(async move {
            let mut mine: Vec<TaskId> = Vec::new();
            loop {
                let states = s.claim(claim(&format!("w{n}"), 3)).await.unwrap();
                if states.is_empty() {
                    return mine;
                }
                mine.extend(ids(&states));
            }
        })
    });
    let claimed: Vec<TaskId> = join_all(claimers).await.into_iter().flat_map(Result::unwrap).collect();
    assert_eq!(claimed.len(), 60);
    assert_eq!(claimed.into_iter().collect::<HashSet<_>>(), tasks);
}

/// A stop meets a claim: either the task never ran, or its owner is asked to stop. The stop is never lost.
pub async fn a_stop_and_a_claim_do_not_both_win(make: StoreFactory<'_>) {
    let s = ExamSetup::new(make);
    for _ in 0..20 {
        let id = s.task().await;
        let only = ClaimRequest { roots: Some(vec![id]), ..claim("w", 1) };
        let (claimed, stopped) = tokio::join!(s.claim(only), s.write(id, Fence::Anyone, vec![stop()]));
        stopped.unwrap();
        let state = s.state(id).await;
        assert!(state.stop.is_some());
        if claimed.unwrap().is_empty() {
            assert_eq!((state.status, state.attempt), (Status::Cancelled, Attempt(0)));
        } else {
            assert_eq!((state.status, state.attempt), (Status::Running, Attempt(1)));
        }
    }
}

/// A released task keeps its place in the queue, and its next attempt has the next number.
pub async fn a_released_task_is_claimed_again(make: StoreFactory<'_>) {
    let s = ExamSetup::new(make);
    let first = s.running().await;
    let second = s.task().await;
    s.write(first, owner(1), vec![released(1)]).await.unwrap();
    let states = s.claim(claim("v", 9)).await.unwrap();
    assert_eq!(ids(&states), [first, second]);
    assert_eq!(states[0].attempt, Attempt(2));
}

/// A lease covers all tasks of its worker until it ends; a renewal starts it again.
pub async fn leases_end_and_are_renewed(make: StoreFactory<'_>) {
    let s = ExamSetup::new(make);
    let (w, ten) = (WorkerId::from("w"), Duration::from_secs(10));
    let (a, b) = (s.task().await, s.task().await);
    s.claim(claim("w", 9)).await.unwrap();
    assert_eq!(ids(&s.store.abandoned_tasks().await.unwrap()), [a, b], "a worker without a lease has none");
    assert_eq!(s.store.lease(w.clone()).await.unwrap(), None);
    for renewals in 1..4 {
        s.store.renew_lease(w.clone(), ten).await.unwrap();
        let lease = s.store.lease(w.clone()).await.unwrap().unwrap();
        assert_eq!((lease.renewals, lease.length), (renewals, ten));
        assert!(s.advance_watching(9).await.is_empty());
    }
    assert_eq!(s.advance_watching(10).await, [a, b], "it ends at its end");
    s.write(a, Fence::Abandoned(Attempt(1)), vec![released(1)]).await.unwrap();
    assert_eq!(ids(&s.store.abandoned_tasks().await.unwrap()), [b]);
    s.store.renew_lease(w, ten).await.unwrap();
    assert!(s.store.abandoned_tasks().await.unwrap().is_empty(), "it was only late");
    s.write(b, owner(1), vec![replied("still here")]).await.unwrap();
    s.store.renew_lease(WorkerId::from("odd/../name \u{1F980}"), Duration::MAX).await.unwrap();
}

/// Clocks may be set, and differ between processes: that ends no lease, and no lease lasts forever.
pub async fn a_clock_that_is_set_ends_no_lease(make: StoreFactory<'_>) {
    for seconds in [3600, -3600] {
        let s = ExamSetup::new(make);
        let (w, ten) = (WorkerId::from("w"), Duration::from_secs(10));
        let a = s.task().await;
        s.store.renew_lease(w.clone(), ten).await.unwrap();
        s.claim(claim("w", 9)).await.unwrap();
        assert!(s.store.abandoned_tasks().await.unwrap().is_empty());
        s.clock.set(seconds);
        assert!(s.advance_watching(5).await.is_empty(), "by {seconds} s");
        let refused = s.write(a, Fence::Abandoned(Attempt(1)), vec![released(1)]).await;
        assert!(matches!(refused, Err(StoreError::Superseded { .. })), "{refused:?}");
        s.store.renew_lease(w, ten).await.unwrap();
        assert!(s.advance_watching(9).await.is_empty());
        assert_eq!(s.advance_watching(10).await, [a], "nobody renewed it");
    }
}

/// After a time in which no one could reach the store, no worker has renewed its lease, and each has the
/// chance to before another takes its tasks.
pub async fn after_a_silence_no_one_is_gone_yet(make: StoreFactory<'_>) {
    let s = ExamSetup::new(make);
    let (w, ten) = (WorkerId::from("w"), Duration::from_secs(10));
    let a = s.task().await;
    s.store.renew_lease(w.clone(), ten).await.unwrap();
    s.claim(claim("w", 9)).await.unwrap();
    assert!(s.advance_watching(2).await.is_empty());
    s.clock.advance(Duration::from_secs(3600));
    assert!(s.store.abandoned_tasks().await.unwrap().is_empty(), "it could not renew either");
    s.store.renew_lease(w, ten).await.unwrap();
    assert!(s.advance_watching(9).await.is_empty());
    assert_eq!(s.advance_watching(10).await, [a], "now it is");
}

/// A worker that retires is gone at once, and no other worker with it.
pub async fn a_retired_worker_is_gone_at_once(make: StoreFactory<'_>) {
    let s = ExamSetup::new(make);
    let (a, b) = (s.task().await, s.task().await);
    for (worker, task) in [("v", a), ("w", b)] {
        s.store.renew_lease(WorkerId::from(worker), Duration::from_secs(60)).await.unwrap();
        assert_eq!(ids(&s.claim(claim(worker, 1)).await.unwrap()), [task]);
    }
    s.store.retire_worker(WorkerId::from("v")).await.unwrap();
    assert_eq!(ids(&s.store.abandoned_tasks().await.unwrap()), [a]);
    let refused = s.write(b, Fence::Abandoned(Attempt(1)), vec![released(1)]).await;
    assert!(matches!(refused, Err(StoreError::Superseded { .. })), "{refused:?}");
    s.write(a, Fence::Abandoned(Attempt(1)), vec![released(1)]).await.unwrap();
}
