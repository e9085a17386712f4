//! What a turn leaves in the journal, and how sessions go on.

use longhaul::Status;
use longhaul::entry::Entry;

use super::{fake, journal, kinds, nothing_is_left, order, outcome, run, start, within};

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_is_journaled_and_its_calls_are_foreign() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, end) = run(dir.path(), "", "tag<one>").await;
    assert_eq!(&**end.output(), "FOUND[one]");
    assert_eq!(
        kinds(&journal),
        ["Submitted", "Claimed", "SessionOpened", "Prompted", "Called", "Returned", "Replied", "Finished"]
    );
    let called = journal.iter().find_map(|record| match &record.entry {
        Entry::Called { tool, arguments, foreign, effects, .. } => {
            Some((tool.to_string(), arguments.clone().unwrap(), *foreign, *effects))
        }
        _ => None,
    });
    let (tool, arguments, foreign, effects) = called.unwrap();
    assert_eq!((tool.as_str(), foreign, effects), ("execute", true, true));
    assert!(arguments.contains("\"command\":\"echo hello\""), "{arguments}");
    let reply = journal.iter().find_map(|record| match &record.entry {
        Entry::Replied(reply) => Some(reply.clone()),
        _ => None,
    });
    let reply = reply.unwrap();
    assert_eq!(
        (reply.usage.total(), reply.cost, reply.reasoning()),
        (15, Some(500_000), "Let me look. ".to_owned())
    );
    let prompts = fake::received(dir.path());
    assert_eq!(prompts.len(), 1);
    assert!(prompts[0].1.contains("You are careful.") && prompts[0].1.ends_with("tag<one>"), "{prompts:?}");
    nothing_is_left(dir.path());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_letter_is_the_next_prompt_of_the_same_session() {
    let dir = tempfile::tempdir().unwrap();
    let longhaul = start(dir.path(), "").await;
    let id = longhaul.submit(order(dir.path(), "tag<one>").interactive()).await.unwrap();
    let until_replies = |count: usize| {
        let longhaul = &longhaul;
        async move {
            let is_there = |entry: &Entry| matches!(entry, Entry::Replied(_));
            while journal(longhaul, id).await.iter().filter(|record| is_there(&record.entry)).count() < count
            {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        }
    };
    within(until_replies(1)).await;
    longhaul.send(id, "tag<two>").await.unwrap();
    within(until_replies(2)).await;
    longhaul.stop(id).await.unwrap();
    within(longhaul.wait([id])).await.unwrap();
    let prompts = fake::received(dir.path());
    assert_eq!(prompts.len(), 2, "{prompts:?}");
    assert_eq!(
        (&prompts[0].0, prompts[1].1.as_str()),
        (&prompts[1].0, "tag<two>"),
        "one session, and only what is new"
    );
    assert_eq!(fake::pids(dir.path()).len(), 1, "one process for the session");
    longhaul.shutdown().await;
    nothing_is_left(dir.path());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_continued_task_loads_the_session() {
    let dir = tempfile::tempdir().unwrap();
    let longhaul = start(dir.path(), "").await;
    let id = longhaul.submit(order(dir.path(), "tag<one>")).await.unwrap();
    within(longhaul.wait([id])).await.unwrap();
    let sent = longhaul.send(id, "tag<two>").await.unwrap();
    let next = sent.to;
    assert_ne!(next, id);
    within(longhaul.wait([next])).await.unwrap();
    assert_eq!(&**outcome(&journal(&longhaul, next).await).output(), "FOUND[one two]");
    let prompts = fake::received(dir.path());
    assert_eq!((prompts.len(), &prompts[0].0), (2, &prompts[1].0), "{prompts:?}");
    longhaul.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_cancels_the_turn_and_ends_the_process() {
    let dir = tempfile::tempdir().unwrap();
    for faults in ["waits", "flood", "hang", "waits ignores_cancel ignores_eof ignores_term"] {
        let dir = dir.path().join(faults.replace(' ', "_"));
        std::fs::create_dir_all(&dir).unwrap();
        let longhaul = start(&dir, faults).await;
        let id = longhaul.submit(order(&dir, "tag<one>")).await.unwrap();
        within(async {
            while fake::received(&dir).is_empty() {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        })
        .await;
        let begun = std::time::Instant::now();
        longhaul.stop(id).await.unwrap();
        within(longhaul.wait([id])).await.unwrap();
        assert!(begun.elapsed().as_secs() < 5, "{faults}: {:?}", begun.elapsed());
        assert_eq!(longhaul.snapshot(id).await.unwrap().state.status, Status::Cancelled, "{faults}");
        longhaul.shutdown().await;
        nothing_is_left(&dir);
    }
}
