//! A store with many tasks.

use longhaul::entry::{Entry, Outcome, StopCause, StopRequest, Submission, TeamRef};
use longhaul::id::TaskKey;
use longhaul::store::{Batch, Fence, Store};
use longhaul::{Order, TaskId};

/// Adds tasks that have ended, most of them roots, to a store.
pub(crate) async fn fill(store: &dyn Store, tasks: usize) {
    let ids: Vec<TaskId> =
        (0..tasks).map(|nth| TaskKey::named(&nth.to_string()).candidate_ids().nth(6).unwrap()).collect();
    for some in ids.chunks(500) {
        let mut submits = Batch::default();
        let mut ends = Batch::default();
        for (nth, id) in some.iter().enumerate() {
            let (key, team) = (TaskKey::named(id.letters()), TeamRef::Named("elsewhere".into()));
            let order = Order::new(
                ["lead", "worker", "asker"][nth % 3],
                format!("task {nth} of many {}", "x".repeat(60)),
            );
            let mut submitted = Submission::root(*id, key, order, team);
            if nth % 5 == 4 {
                (submitted.parent, submitted.root, submitted.depth) = (Some(some[0]), some[0], 1);
            }
            let stop = StopRequest { cause: StopCause::Person, note: None };
            let end = Outcome::Cancelled { stop: stop.clone(), partial: "".into() };
            submits = submits.and_write(*id, Fence::New, vec![Entry::Submitted(Box::new(submitted))]);
            let entries = vec![Entry::StopRequested(stop), Entry::Finished(Box::new(end))];
            ends = ends.and_write(*id, Fence::Anyone, entries);
        }
        store.append(submits).await.unwrap();
        store.append(ends).await.unwrap();
    }
}
