//! Questions about lists and about finding a task.

use std::time::Duration;

use super::StoreFactory;
use super::setup::{ExamSetup, cancelled, claim, completed, edit, ids, owner, stop, submission};
use crate::entry::{Entry, TeamRef};
use crate::id::{AgentName, TaskId, TaskKey, WorkerId};
use crate::store::{Fence, StoreError, TaskFilter};
use crate::task::Status;

/// In submission order, whatever happened to the tasks since; a limit keeps the newest.
pub async fn lists_are_in_order_of_submission(make: StoreFactory<'_>) {
    let s = ExamSetup::new(make);
    assert!(s.store.list(TaskFilter::default()).await.unwrap().is_empty());
    let mut tasks = Vec::new();
    for _ in 0..12 {
        tasks.push(s.task().await);
    }
    s.claim(claim("w", 3)).await.unwrap();
    s.write(tasks[7], Fence::Anyone, vec![stop()]).await.unwrap();
    s.write(tasks[1], owner(1), vec![completed()]).await.unwrap();
    assert_eq!(ids(&s.store.list(TaskFilter::default()).await.unwrap()), tasks);
    for (limit, from) in [(0, 12), (1, 11), (5, 7), (12, 0), (99, 0)] {
        let filter = TaskFilter { limit: Some(limit), ..TaskFilter::default() };
        assert_eq!(ids(&s.store.list(filter).await.unwrap()), tasks[from..]);
    }
    let live = TaskFilter { limit: Some(2), ..TaskFilter::default().live() };
    assert_eq!(ids(&s.store.list(live).await.unwrap()), tasks[10..]);
    for state in s.store.list(TaskFilter::default()).await.unwrap() {
        assert_eq!(s.state(state.id).await, state);
    }
}

/// The pages of a list, from the newest to the oldest, have every task once, whatever the filter is.
pub async fn a_list_is_read_in_pages_from_the_newest(make: StoreFactory<'_>) {
    let s = ExamSetup::new(make);
    let other_team = TeamRef::Named("other".into());
    let mut tasks = Vec::new();
    for nth in 0..14 {
        let id = s.fresh_id();
        let change = |submitted: &mut crate::entry::Submission| {
            if nth % 3 == 1 {
                submitted.team = other_team.clone();
            }
            if nth % 4 == 3 {
                (submitted.parent, submitted.root, submitted.depth) = (Some(tasks[0]), tasks[0], 1);
            }
        };
        s.submit(id, edit(submission(id), change)).await.unwrap();
        if nth % 5 == 2 {
            s.write(id, Fence::Anyone, vec![stop()]).await.unwrap();
        }
        tasks.push(id);
    }
    let all = TaskFilter::default;
    let status = |status: Status| TaskFilter { status: vec![status], ..TaskFilter::default() };
    let filters = [
        all(),
        all().roots(true),
        all().roots(true).live(),
        all().live(),
        status(Status::Cancelled),
        status(Status::Cancelled).roots(true),
        all().teams(vec![other_team.clone()]),
        all().teams(vec![other_team.clone()]).live(),
        all().teams(vec![other_team.clone(), TeamRef::Named("nobody's".into())]).roots(true),
        all().teams(vec![TeamRef::Named("nobody's".into())]),
        TaskFilter::tree(tasks[0]),
        TaskFilter::children(tasks[0]).live(),
        all().agents(vec![AgentName::from("worker")]).roots(true),
        all().since(Some(s.store.now())).before(None),
    ];
    for filter in filters {
        let whole: Vec<TaskId> = ids(&s.store.list(filter.clone()).await.unwrap());
        let by_hand = s.store.list(all()).await.unwrap().into_iter().filter(|state| filter.matches(state));
        assert_eq!(whole, by_hand.map(|state| state.id).collect::<Vec<_>>(), "{filter:?}");
        for size in [1, 2, 5, 100] {
            let (mut pages, mut before) = (Vec::new(), None);
            loop {
                let next = filter.clone().limit(Some(size)).submitted_before(before);
                let page = ids(&s.store.list(next.clone()).await.unwrap());
                assert_eq!(s.store.ids(next.clone()).await.unwrap(), page);
                assert_eq!(s.store.count(next).await.unwrap(), page.len());
                let Some(first) = page.first() else { break };
                before = Some(*first);
                pages.splice(0..0, page);
            }
            assert_eq!(pages, whole, "{filter:?}, {size} a page");
        }
        let nobody = filter.submitted_before(Some(s.fresh_id()));
        assert!(s.store.list(nobody).await.unwrap().is_empty());
    }
}

/// Each field of a filter, alone and combined with others.
pub async fn every_filter_filters(make: StoreFactory<'_>) {
    let s = ExamSetup::new(make);
    let a = s.task().await;
    let b = s.child(a).await;
    s.clock.advance(Duration::from_millis(1));
    let since = s.store.now();
    let c = s.fresh_id();
    let by_another = |submitted: &mut crate::entry::Submission| {
        submitted.order.agent = Some(AgentName::from("another"));
    };
    s.submit(c, edit(submission(c), by_another)).await.unwrap();
    let d = s.fresh_id();
    let deep = |submitted: &mut crate::entry::Submission| {
        (submitted.parent, submitted.root, submitted.depth) = (Some(b), a, 2);
    };
    s.submit(d, edit(submission(d), deep)).await.unwrap();
    s.claim(claim("w", 1)).await.unwrap();
    s.write(c, Fence::Anyone, vec![stop()]).await.unwrap();

    let status = |status| TaskFilter { status: vec![status], ..TaskFilter::default() };
    let all = TaskFilter::default;
    let another = vec![AgentName::from("another")];
    let questions = [
        (all(), vec![a, b, c, d]),
        (status(Status::Running), vec![a]),
        (status(Status::Pending), vec![b, d]),
        (status(Status::Cancelled), vec![c]),
        (status(Status::Failed), vec![]),
        (TaskFilter { status: Status::ALL.to_vec(), ..all() }, vec![a, b, c, d]),
        (all().live(), vec![a, b, d]),
        (TaskFilter::tree(a), vec![a, b, d]),
        (TaskFilter::tree(a).live(), vec![a, b, d]),
        (TaskFilter::tree(b), vec![]),
        (TaskFilter::tree(c), vec![c]),
        (TaskFilter::children(a), vec![b]),
        (TaskFilter::children(b), vec![d]),
        (TaskFilter::children(d), vec![]),
        (TaskFilter { parents: vec![b, a], ..TaskFilter::default() }, vec![b, d]),
        (TaskFilter { agents: another.clone(), ..all() }, vec![c]),
        (TaskFilter { agents: another, root: Some(a), ..all() }, vec![]),
        (TaskFilter { worker: Some(WorkerId::from("w")), ..all() }, vec![a]),
        (TaskFilter { worker: Some(WorkerId::from("w")), ..all().live() }, vec![a]),
        (TaskFilter { worker: Some(WorkerId::from("w")), root: Some(c), ..all() }, vec![]),
        (TaskFilter { worker: Some(WorkerId::from("v")), ..all() }, vec![]),
        (TaskFilter { roots: true, ..all() }, vec![a, c]),
        (TaskFilter { roots: true, limit: Some(1), ..all() }, vec![c]),
        (TaskFilter { since: Some(since), ..all() }, vec![c, d]),
        (TaskFilter { since: Some(since), root: Some(a), ..all() }, vec![d]),
        (TaskFilter { limit: Some(1), ..TaskFilter::tree(a).live() }, vec![d]),
    ];
    for (filter, expected) in questions {
        let asked = format!("{filter:?}");
        assert_eq!(ids(&s.store.list(filter).await.unwrap()), expected, "{asked}");
    }
}

/// Queries for old tasks: which task continues or retries one, and which are quiet. Ids and counts match the
/// lists.
pub async fn old_tasks_are_found_by_what_became_of_them(make: StoreFactory<'_>) {
    let s = ExamSetup::new(make);
    let (old, open) = (s.task().await, s.task().await);
    s.write(old, Fence::Anyone, vec![stop(), cancelled()]).await.unwrap();
    s.clock.advance(Duration::from_millis(5));
    let later = s.store.now();
    let (next, again, other) = (s.fresh_id(), s.fresh_id(), s.fresh_id());
    s.submit(next, edit(submission(next), |s| s.continues = Some(old))).await.unwrap();
    s.submit(again, edit(submission(again), |s| s.retries = Some(old))).await.unwrap();
    let by_another = |submitted: &mut crate::entry::Submission| {
        submitted.order.agent = Some(AgentName::from("another"));
    };
    s.submit(other, edit(submission(other), by_another)).await.unwrap();
    s.write(next, Fence::Anyone, vec![stop(), cancelled()]).await.unwrap();
    s.clock.advance(Duration::from_millis(5));
    let last = s.store.now();
    let all = TaskFilter::default;
    let both = vec![AgentName::from("another"), s.state(old).await.agent];
    let questions = [
        (TaskFilter { continues: Some(old), ..all() }, vec![next]),
        (TaskFilter { continues: Some(next), ..all() }, vec![]),
        (TaskFilter { continues: Some(old), ..all().live() }, vec![]),
        (TaskFilter { retries: Some(old), ..all() }, vec![again]),
        (TaskFilter { retries: Some(old), limit: Some(1), ..all().live() }, vec![again]),
        (TaskFilter { agents: both, ..all() }, vec![old, open, next, again, other]),
        (TaskFilter { before: Some(later), ..all() }, vec![old, open]),
        (TaskFilter { before: Some(later), since: Some(later), ..all() }, vec![]),
        (TaskFilter { since: Some(later), before: Some(last), ..all() }, vec![next, again, other]),
        (TaskFilter { active_since: Some(later), ..all() }, vec![open, next, again, other]),
        (TaskFilter { active_since: Some(last), ..all() }, vec![open, again, other]),
        (TaskFilter { active_since: Some(last), root: Some(old), ..all() }, vec![]),
        (TaskFilter { active_since: Some(last), limit: Some(2), ..all() }, vec![again, other]),
        (TaskFilter { quiet_before: Some(later), ..all() }, vec![old]),
        (TaskFilter { quiet_before: Some(last), roots: true, ..all() }, vec![old, next]),
        (TaskFilter { quiet_before: Some(last), limit: Some(1), ..all() }, vec![next]),
        (TaskFilter { quiet_before: Some(last), ..all().live() }, vec![]),
    ];
    for (filter, expected) in questions {
        let asked = format!("{filter:?}");
        assert_eq!(ids(&s.store.list(filter.clone()).await.unwrap()), expected, "{asked}");
        assert_eq!(s.store.ids(filter.clone()).await.unwrap(), expected, "{asked}");
        assert_eq!(s.store.count(filter).await.unwrap(), expected.len(), "{asked}");
    }
    // Something happens to an ended task: it is no longer quiet.
    s.write(old, Fence::Anyone, vec![Entry::Continued { by: next }]).await.unwrap();
    let quiet = TaskFilter { quiet_before: Some(last), ..all() };
    assert_eq!(s.store.ids(quiet).await.unwrap(), [next]);
    assert_eq!(s.store.ids(TaskFilter { active_since: Some(last), ..all() }).await.unwrap().len(), 4);
}

/// By its id, or by a unique prefix, in any spelling; everything else returns the right error.
pub async fn a_task_is_found_by_its_id_or_its_beginning(make: StoreFactory<'_>) {
    let s = ExamSetup::new(make);
    // Two ids of one key: the longer begins with the whole of the shorter.
    let candidates: Vec<TaskId> = TaskKey::named("twins").candidate_ids().collect();
    let (short, long) = (candidates[0], candidates[3]);
    for id in [long, short] {
        s.submit(id, submission(id)).await.unwrap();
    }
    let other = s.task().await;
    assert_eq!(s.store.find(&short.to_string()).await.unwrap(), short, "the whole id of one wins");
    assert_eq!(s.store.find(&long.to_string()).await.unwrap(), long);
    assert_eq!(s.store.find(&candidates[1].to_string()).await.unwrap(), long, "the beginning of only one");
    assert_eq!(s.store.find(&other.letters()[..9]).await.unwrap(), other);
    assert_eq!(s.store.find(&format!("  T-{} ", other.letters().to_uppercase())).await.unwrap(), other);

    let several = s.store.find(&short.letters()[..4]).await;
    let Err(StoreError::Ambiguous { mut matches, .. }) = several else { panic!("{several:?}") };
    matches.sort();
    let mut both = [short, long];
    both.sort();
    assert_eq!(matches, both);
    let unknown = TaskKey::named("nothing").candidate_ids().last().map(|id| id.to_string());
    for nothing in [unknown.as_deref().unwrap_or_default(), "", "t-", "%", "t-_____", "'; --", "../x", "é\0"]
    {
        let found = s.store.find(nothing).await;
        assert!(matches!(found, Err(StoreError::NotFound { .. })), "{nothing:?}: {found:?}");
    }
}
