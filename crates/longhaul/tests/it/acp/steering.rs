//! Letters to an agent in the middle of its turn.

use std::path::Path;

use longhaul::entry::Entry;
use longhaul::{Longhaul, TaskId};

use super::{fake, journal, kinds, nothing_is_left, order, outcome, start, within};
use crate::crash::process::lines;

async fn started(dir: &Path, faults: &str) -> (Longhaul, TaskId) {
    let longhaul = start(dir, &format!("waits_for_message {faults}")).await;
    let id = longhaul.submit(order(dir, "tag<one>")).await.unwrap();
    within(async {
        while lines(&dir.join("waits")).is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    })
    .await;
    (longhaul, id)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_letter_reaches_the_turn_of_an_agent_that_can_be_steered() {
    for faults in ["steers", "queues"] {
        let dir = tempfile::tempdir().unwrap();
        let (longhaul, id) = started(dir.path(), faults).await;
        longhaul.send(id, "tag<two>").await.unwrap();
        within(longhaul.wait([id])).await.unwrap();
        let journal = journal(&longhaul, id).await;
        assert_eq!(&**outcome(&journal).output(), "FOUND[one two]", "{faults}: {:?}", kinds(&journal));
        let replies = journal.iter().filter(|record| matches!(record.entry, Entry::Replied(_))).count();
        assert_eq!((replies, fake::received(dir.path()).len()), (1, 2), "{faults}: one turn");
        // The letter was read, and its text in the journal, before it was sent.
        let prompted = journal.iter().rposition(
            |record| matches!(&record.entry, Entry::Prompted { text, .. } if &**text == "tag<two>"),
        );
        let read = journal.iter().position(|record| matches!(record.entry, Entry::Read { .. }));
        assert!(read.unwrap() < prompted.unwrap(), "{faults}: {:?}", kinds(&journal));
        longhaul.shutdown().await;
        nothing_is_left(dir.path());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_letter_that_the_turn_does_not_take_is_the_next_prompt() {
    let dir = tempfile::tempdir().unwrap();
    let (longhaul, id) = started(dir.path(), "steers refuses_steering").await;
    longhaul.send(id, "tag<two>").await.unwrap();
    within(longhaul.wait([id])).await.unwrap();
    let journal = journal(&longhaul, id).await;
    assert_eq!(&**outcome(&journal).output(), "FOUND[one two]", "{:?}", kinds(&journal));
    let prompts: Vec<String> = fake::received(dir.path()).into_iter().map(|(_, text)| text).collect();
    assert_eq!((prompts.len(), prompts[1].as_str()), (2, "tag<two>"), "{prompts:?}");
    let replies = journal.iter().filter(|record| matches!(record.entry, Entry::Replied(_))).count();
    assert_eq!(replies, 2, "{:?}", kinds(&journal));
    longhaul.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_dies_after_it_was_steered_goes_on_with_both() {
    let dir = tempfile::tempdir().unwrap();
    let (longhaul, id) = started(dir.path(), "steers die:1").await;
    longhaul.send(id, "tag<two>").await.unwrap();
    within(longhaul.wait([id])).await.unwrap();
    let journal = journal(&longhaul, id).await;
    assert_eq!(&**outcome(&journal).output(), "FOUND[one two]", "{:?}", kinds(&journal));
    let prompts: Vec<String> = fake::received(dir.path()).into_iter().map(|(_, text)| text).collect();
    assert_eq!(prompts.iter().filter(|text| text.contains("tag<two>")).count(), 1, "{prompts:?}");
    assert!(prompts.last().unwrap().starts_with("You were interrupted"), "{prompts:?}");
    longhaul.shutdown().await;
}
