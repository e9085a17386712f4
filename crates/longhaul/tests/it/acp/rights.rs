//! Permissions: what the agent asks for goes through our rules and our people, and counts once.

use longhaul::entry::{Entry, Outcome};
use longhaul::permission::Permissions;

use super::{fake, journal, nothing_is_left, order, outcome, start_asking, within};
use crate::crash::process::lines;

#[tokio::test(flavor = "multi_thread")]
async fn rules_decide_first() {
    let cases = [
        (Permissions::parse(["execute:command=echo *"], [""; 0], [""; 0]), "FOUND[one]"),
        (Permissions::parse(["execute"], [""; 0], ["shell:cmd=echo *"]), "FOUND[one denied]"),
    ];
    for (permissions, answer) in cases {
        let dir = tempfile::tempdir().unwrap();
        let longhaul = start_asking(dir.path(), "asks", permissions.unwrap()).await;
        let id = longhaul.submit(order(dir.path(), "tag<one>")).await.unwrap();
        within(longhaul.wait([id])).await.unwrap();
        let journal = journal(&longhaul, id).await;
        assert_eq!(&**outcome(&journal).output(), answer);
        assert!(!journal.iter().any(|record| matches!(record.entry, Entry::Asked { .. })));
        longhaul.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_is_asked_once_for_one_call_and_always_stays_ours() {
    let dir = tempfile::tempdir().unwrap();
    let longhaul = start_asking(dir.path(), "asks_twice", Permissions::default()).await;
    let id = longhaul.submit(order(dir.path(), "tag<one>")).await.unwrap();
    within(async {
        while longhaul.snapshot(id).await.unwrap().state.asked.is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    })
    .await;
    longhaul.answer(id, None, "always tool").await.unwrap();
    within(longhaul.wait([id])).await.unwrap();
    let first = journal(&longhaul, id).await;
    assert_eq!(&**outcome(&first).output(), "FOUND[one]");
    let count = |wanted: fn(&Entry) -> bool| first.iter().filter(|record| wanted(&record.entry)).count();
    assert_eq!(count(|entry| matches!(entry, Entry::Asked { .. })), 1);
    assert_eq!(count(|entry| matches!(entry, Entry::Granted { .. })), 1);
    let answers = lines(&dir.path().join("answers"));
    assert_eq!(answers.len(), 2);
    assert!(answers.iter().all(|answer| answer.contains("id-allow_once")), "{answers:?}");
    longhaul.shutdown().await;
    nothing_is_left(dir.path());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_while_it_asks_answers_cancelled() {
    let dir = tempfile::tempdir().unwrap();
    let longhaul = start_asking(dir.path(), "asks", Permissions::default()).await;
    let id = longhaul.submit(order(dir.path(), "tag<one>")).await.unwrap();
    within(async {
        while longhaul.snapshot(id).await.unwrap().state.asked.is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    })
    .await;
    longhaul.stop(id).await.unwrap();
    within(longhaul.wait([id])).await.unwrap();
    assert!(matches!(outcome(&journal(&longhaul, id).await), Outcome::Cancelled { .. }));
    assert_eq!(lines(&dir.path().join("answers")), ["{\"outcome\":\"cancelled\"}"]);
    assert!(lines(&dir.path().join("effects")).is_empty(), "nothing was done");
    assert_eq!(fake::received(dir.path()).len(), 1);
    longhaul.shutdown().await;
    nothing_is_left(dir.path());
}
