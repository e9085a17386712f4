//! Limits of many trees, asked for at once.

use super::*;
use crate::store::CountCondition;

/// Each tree has a limit of its own, and all of them are counted for one transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_limits_fit_into_one_transaction() {
    let server = server_or_skip!();
    let store = PostgresStore::open(fresh(server).await.lanes(1)).await.unwrap();
    let limited = |nth: usize| {
        let root = id(&format!("tree {}", nth % 70));
        let mut batch = submission(id(&format!("task {nth}")));
        if let Some(Entry::Submitted(submitted)) = batch.writes[0].entries.first_mut() {
            submitted.root = root;
        }
        let filter = TaskFilter::tree(root).live();
        batch.only_if = Arc::new([CountCondition { filter, limit: 2, or_fewer: None, what: "tasks" }]);
        store.append(batch)
    };
    // Three for each of seventy trees, of which two fit.
    let answers = futures::future::join_all((0..210).map(limited)).await;
    let refused =
        answers.iter().filter(|answer| matches!(answer, Err(StoreError::Limit { limit: 2, .. }))).count();
    assert_eq!((refused, answers.iter().filter(|answer| answer.is_ok()).count()), (70, 140));
    assert_eq!(store.count(TaskFilter::default()).await.unwrap(), 140);
}
