use std::time::{Duration, Instant};

use longhaul::entry::{Entry, LiveTextKind};
use longhaul::store::SqliteStore;
use longhaul::{Longhaul, Team};

use crate::http::server::{Act, Server, says};
use crate::http::stage::{
    assert_said, end, http, journal, model, replies_and_waits, solo, start, submit, waiting,
};

/// Issue 3: a provider that is down for a while; tasks wait, are shown as waiting, and go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_wait_for_a_provider_that_is_down_and_go_on() {
    let at = Server::start(|_| Act::Hangup).await.at;
    // Nobody is there now: connections are refused.
    let longhaul = start(solo(&model(&http(), &format!("http://{at}/v1")))).await;
    let mut ids = Vec::new();
    for n in 0..8 {
        ids.push(submit(&longhaul, &format!("task {n}")).await);
    }
    for id in &ids {
        let waiting = waiting(&longhaul, *id).await;
        assert!(waiting.until.is_some(), "{waiting:?}");
    }
    let back = Instant::now();
    let server = Server::start_at(at, |_| Act::Stream(says("Back again."))).await;
    for id in &ids {
        assert_said(&end(&longhaul, *id).await, "Back again.");
    }
    assert!(back.elapsed() < Duration::from_secs(12), "{:?}", back.elapsed());
    assert_eq!(server.asked().len(), 8, "one request a reply once it is back");
}

/// A provider that answers 5xx, hangs up, and cuts in the middle, and then is well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_passing_failure_is_tried_again() {
    let server = Server::start(|asked| match asked.number {
        0 => Act::Refuse(500, Vec::new(), "oops".into()),
        1 => Act::Hangup,
        2 => Act::Cut(says("half a sentence").drain(..1).collect()),
        3 => Act::Stream(vec![says("no reason to stop").remove(0)]),
        4 => Act::Refuse(529, Vec::new(), r#"{"error":{"message":"Overloaded"}}"#.into()),
        _ => Act::Stream(says("The whole answer.")),
    })
    .await;
    let longhaul = start(solo(&model(&http(), &server.url()))).await;
    let id = submit(&longhaul, "go").await;
    assert_said(&end(&longhaul, id).await, "The whole answer.");
    assert_eq!(replies_and_waits(&journal(&longhaul, id).await), (1, 5));
    assert_eq!(server.asked().len(), 6);
}

/// Issue 3: a provider that hangs after the first byte: the silence time-out fires, the retry succeeds, and nothing is
/// doubled in the journal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_that_hangs_after_the_first_byte_is_asked_again() {
    let server = Server::start(|asked| match asked.number {
        0 => Act::Stall(says("The answer is 42.").drain(..2).collect()),
        1 => Act::Stall(vec![": keep-alive\n\n".into()]),
        _ => Act::Stream(says("The answer is 42.")),
    })
    .await;
    let place = tempfile::tempdir().unwrap();
    let team = Team::new(solo(&model(&http(), &server.url())).build().unwrap()).unwrap();
    let store = SqliteStore::open(place.path().join("longhaul.db")).unwrap();
    let longhaul = Longhaul::builder(team).store(store).start().await.unwrap();
    let id = submit(&longhaul, "go").await;
    assert_said(&end(&longhaul, id).await, "The answer is 42.");
    let journal = journal(&longhaul, id).await;
    assert_eq!(replies_and_waits(&journal), (1, 2));
    // What was said before the last wait is void; what counts was said once.
    let last = journal.iter().rposition(|record| matches!(record.entry, Entry::Waiting { .. })).unwrap();
    let text = |record: &longhaul::entry::Record| match &record.entry {
        Entry::Said { voice: LiveTextKind::Text, text } => Some(text.clone()),
        _ => None,
    };
    let told: String = journal[last..].iter().filter_map(text).collect();
    assert!("The answer is 42.".starts_with(&told), "{told}");
    assert_eq!(server.gone().len(), 2, "the connections that hung were closed");
    let between = server.gone()[0].duration_since(server.asked()[0].at);
    assert!(between >= Duration::from_millis(390) && between < Duration::from_secs(2), "{between:?}");
    longhaul.shutdown().await;
}

/// An answer that never begins is given up, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_does_not_begin_is_given_up() {
    let server = Server::start(|asked| match asked.number {
        0 => Act::Silence,
        _ => Act::Stream(says("Now.")),
    })
    .await;
    let options = crate::http::stage::options().first_byte_timeout(Duration::from_millis(300));
    let http = longhaul::model::http::HttpClient::new(options).unwrap();
    let longhaul = start(solo(&model(&http, &server.url()))).await;
    let id = submit(&longhaul, "go").await;
    assert_said(&end(&longhaul, id).await, "Now.");
    server.until(|server| server.gone().len() == 1).await;
}

/// A complete answer whose connection is not closed is an answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_complete_answer_need_not_end() {
    let server = Server::start(|_| Act::Stall(says("All said."))).await;
    let options = crate::http::stage::options().idle_timeout(Duration::from_secs(60));
    let http = longhaul::model::http::HttpClient::new(options).unwrap();
    let longhaul = start(solo(&model(&http, &server.url()))).await;
    let id = submit(&longhaul, "go").await;
    assert_said(&end(&longhaul, id).await, "All said.");
    assert_eq!(server.asked().len(), 1);
}
