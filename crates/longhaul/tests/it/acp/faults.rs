//! Agents that misbehave.

use longhaul::entry::{Entry, FailureKind, Outcome};
use longhaul::{Budget, Longhaul};

use super::{fake, journal, kinds, nothing_is_left, order, outcome, run, team, within};

fn failure(end: &Outcome) -> (FailureKind, String) {
    match end {
        Outcome::Failed { failure, .. } => (failure.kind, failure.message.clone()),
        other => panic!("it did not fail: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_dies_in_mid_turn_is_started_again_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, end) = run(dir.path(), "die:2", "tag<one>").await;
    assert_eq!(&**end.output(), "FOUND[one]");
    let prompts = fake::received(dir.path());
    assert_eq!(prompts.iter().filter(|(_, text)| text.contains("tag<one>")).count(), 1, "{prompts:?}");
    assert_eq!(prompts.iter().filter(|(_, text)| text.starts_with("You were interrupted")).count(), 2);
    let interrupted = journal.iter().filter(
        |record| matches!(&record.entry, Entry::Returned(returned) if returned.output.contains("may have happened")),
    );
    assert_eq!(interrupted.count(), 2, "{:?}", kinds(&journal));
    nothing_is_left(dir.path());
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_always_dies_is_given_up_with_its_last_words() {
    let dir = tempfile::tempdir().unwrap();
    let (_, end) = run(dir.path(), "die:99", "tag<one>").await;
    let (kind, text) = failure(&end);
    assert_eq!(kind, FailureKind::Tool);
    assert!(text.contains("3 times") && text.contains("the fake agent dies"), "{text}");
    nothing_is_left(dir.path());
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_cannot_load_gets_a_new_session_with_what_was_done() {
    for faults in ["die:1 forgets", "die:1 no_load"] {
        let dir = tempfile::tempdir().unwrap();
        let (_, end) = run(dir.path(), faults, "tag<one>").await;
        assert_eq!(&**end.output(), "FOUND[one]", "{faults}");
        let prompts = fake::received(dir.path());
        assert_eq!(prompts.len(), 2, "{faults}: {prompts:?}");
        assert_ne!(prompts[0].0, prompts[1].0, "{faults}: a new session");
        let told = &prompts[1].1;
        for part in [
            "in a session that is lost",
            "tag<one>",
            "[your call: execute]",
            "echo hello",
            "It may have happened",
        ] {
            assert!(told.contains(part), "{faults}: no '{part}' in {told}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_only_resumes_is_not_prompted_twice() {
    let dir = tempfile::tempdir().unwrap();
    let (_, end) = run(dir.path(), "die:1 no_load resumes", "tag<one>").await;
    assert_eq!(&**end.output(), "FOUND[one]");
    let prompts = fake::received(dir.path());
    assert_eq!((prompts.len(), &prompts[0].0), (2, &prompts[1].0), "{prompts:?}");
    assert!(prompts[1].1.contains("it is not known whether"), "{prompts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_that_are_no_messages_are_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let (_, end) = run(dir.path(), "malformed", "tag<one>").await;
    assert_eq!(&**end.output(), "FOUND[one]");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_work_says_what_to_do() {
    let cases = [
        ("version", FailureKind::Team, "speaks version 2"),
        ("login", FailureKind::Team, "requires a login (it offers: An API key)"),
        ("starts_in_yolo", FailureKind::Team, "start the run with --yolo"),
    ];
    for (faults, kind, words) in cases {
        let dir = tempfile::tempdir().unwrap();
        let (_, end) = run(dir.path(), faults, "tag<one>").await;
        let (was, text) = failure(&end);
        assert!(was == kind && text.contains(words), "{faults}: {was:?} {text}");
        assert!(fake::received(dir.path()).is_empty());
        nothing_is_left(dir.path());
    }
    let dir = tempfile::tempdir().unwrap();
    let missing = longhaul::agent::AcpAgent::new(["no-such-program-anywhere"], dir.path().join("home"));
    let longhaul = Longhaul::builder(team(missing)).start().await.unwrap();
    let id = longhaul.submit(order(dir.path(), "tag<one>")).await.unwrap();
    within(longhaul.wait([id])).await.unwrap();
    let (_, text) = failure(&outcome(&journal(&longhaul, id).await));
    assert!(text.contains("'no-such-program-anywhere'") && text.contains("install it"), "{text}");
    longhaul.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cost_limit_is_refused_if_the_cost_is_never_told_and_kept_if_it_is() {
    for (tells, words, prompts) in
        [(false, "does not tell what its work costs", 0), (true, "$0.5000 of $0.1000", 1)]
    {
        let dir = tempfile::tempdir().unwrap();
        let program = fake::program(dir.path(), "").tells_cost(tells);
        let longhaul = Longhaul::builder(team(program)).start().await.unwrap();
        let order = order(dir.path(), "tag<one>").budget(Budget::default().cost(100_000));
        let id = longhaul.submit(order).await.unwrap();
        within(longhaul.wait([id])).await.unwrap();
        let end = outcome(&journal(&longhaul, id).await);
        let (kind, text) = failure(&end);
        assert!(kind == FailureKind::Budget && text.contains(words), "{text}");
        assert_eq!(fake::received(dir.path()).len(), prompts);
        longhaul.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_says_nothing_is_reminded_once_and_then_fails() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, end) = run(dir.path(), "silent", "tag<one>").await;
    // What it said before its call counts as its answer if nothing follows.
    assert_eq!(&**end.output(), "Let me look. ", "{:?}", kinds(&journal));
}
