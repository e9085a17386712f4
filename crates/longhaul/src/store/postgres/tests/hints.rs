//! What one process writes, another one hears of.

use super::*;
use crate::entry::EntryKind;
use crate::store::EntryKinds;

async fn heard(hints: &mut HintStream, wanted: TaskId, kind: EntryKind) {
    let kinds = EntryKinds::from_kinds([kind]);
    let search = async {
        loop {
            match hints.next().await.expect("the store is there") {
                Hint::Task { task, kinds: of, .. } if task == wanted && of.intersects(kinds) => return,
                _ => {}
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(5), search).await.expect("a hint comes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_stores_hear_of_one_another() {
    let server = server_or_skip!();
    let options = fresh(server).await;
    let [one, two] = [0, 1].map(|_| now(PostgresStore::open(options.clone())).unwrap());
    let mut hints = [one.hints(), two.hints()];
    wait_until("both hear", || one.shared.signals.hears_others() && two.shared.signals.hears_others()).await;
    let task = id("heard");
    one.append(submission(task)).await.unwrap();
    heard(&mut hints[1], task, EntryKind::Submitted).await;
    assert_eq!(two.claim(claim("w", 1)).await.unwrap().len(), 1);
    heard(&mut hints[0], task, EntryKind::Claimed).await;
    let ended = Entry::Finished(Box::new(Outcome::Completed { output: "".into(), cut_short: None }));
    two.append(Batch::one(task, Fence::Attempt(Attempt(1)), vec![ended])).await.unwrap();
    heard(&mut hints[0], task, EntryKind::Finished).await;
    one.delete(vec![(task, Seq(3))]).await.unwrap();
    let lagged = async { while hints[1].next().await.expect("the store is there") != Hint::Lagged {} };
    tokio::time::timeout(Duration::from_secs(5), lagged).await.expect("a deletion is heard of");
}

/// Behind a pooler nobody can listen: the feed is read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_behind_a_pooler_looks_for_what_others_wrote() {
    let server = server_or_skip!();
    let options = fresh(server).await;
    let one = PostgresStore::open(options.clone()).await.unwrap();
    let two = PostgresStore::open(options.pooled(true)).await.unwrap();
    let mut hints = two.hints();
    // The first look says that anything may be new.
    let task = id("looked for");
    tokio::time::sleep(Duration::from_millis(1200)).await;
    one.append(submission(task)).await.unwrap();
    heard(&mut hints, task, EntryKind::Submitted).await;
    assert!(two.is_read_live(task), "who does not hear others does not know");
}

/// Who shows a tree is known elsewhere within a moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tree_that_is_shown_elsewhere_is_read_live() {
    let server = server_or_skip!();
    let options = fresh(server).await;
    let [one, two] = [0, 1].map(|_| now(PostgresStore::open(options.clone())).unwrap());
    let _hints = [one.hints(), two.hints()];
    wait_until("both hear", || one.shared.signals.hears_others() && two.shared.signals.hears_others()).await;
    let root = id("shown");
    assert!(!one.is_read_live(root) && !two.is_read_live(root));
    let shown = two.read_live(root);
    assert!(two.is_read_live(root));
    wait_until("it is known", || one.is_read_live(root)).await;
    drop(shown);
    assert!(!two.is_read_live(root));
}

/// Who begins to listen looks for what was written since the store was opened, not at all that was ever written: not even if
/// the server has no statistics of the journal yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_changed_is_found_without_reading_the_journal() {
    let server = server_or_skip!();
    let options = fresh(server).await;
    let connection = bystander(&options).await;
    let fill = "INSERT INTO @.journal (task, seq, at, kind, format, tx, k, entry) SELECT 't-' || n % 100, n, 0, 1, 1, 0, n / 64, \
                convert_to(repeat('a word; ', 75), 'UTF8') FROM generate_series(1, 30000) AS n";
    connection.batch(fill).await.unwrap();
    let plan = format!("EXPLAIN {}", feed::CHANGED);
    let plan = connection.query(&plan, &[&460_i64, &0_i64, &465_i64, &feed::MOST_CHANGES]).await.unwrap();
    let plan: Vec<String> = plan.iter().map(|row| row.get(0)).collect();
    let plan = plan.join("\n");
    assert!(plan.contains(" feed ") && !plan.contains("journal_pkey"), "{plan}");
}
