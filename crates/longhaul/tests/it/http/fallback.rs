use std::sync::Arc;
use std::time::Duration;

use longhaul::entry::{Entry, WaitReason};
use longhaul::model::Model;
use longhaul::model::http::FallbackModel;

use crate::http::server::{Act, Server, says};
use crate::http::stage::{assert_said, end, http, journal, model, solo, start, submit};

/// The first model is rate limited: the second is asked at once, and the first left alone until it has cooled down.
#[tokio::test]
async fn another_model_is_asked_and_the_first_again_when_it_has_cooled_down() {
    let first = Server::start(|asked| match asked.number {
        0 => Act::Refuse(429, Vec::new(), "busy".into()),
        _ => Act::Stream(says("First.")),
    })
    .await;
    let second = Server::start(|_| Act::Stream(says("Second."))).await;
    let http = http();
    let (a, b) = (model(&http, &first.url()), model(&http, &second.url()));
    let both: Arc<dyn Model> = Arc::new(FallbackModel::new(a, [b], 1, Duration::from_secs(60)));
    let longhaul = start(solo(&both)).await;
    let ask = async |text: &str| {
        let id = submit(&longhaul, text).await;
        (id, end(&longhaul, id).await)
    };
    let (id, done) = ask("one").await;
    assert_said(&done, "Second.");
    let told = journal(&longhaul, id).await.into_iter().any(|record| {
        matches!(record.entry, Entry::Waiting { on: WaitReason::Provider(why), .. } if why.contains("falling back to"))
    });
    assert!(told);
    assert_said(&ask("two").await.1, "Second.");
    assert_eq!((first.asked().len(), second.asked().len()), (1, 2), "it is left alone");
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(60)).await;
    tokio::time::resume();
    assert_said(&ask("three").await.1, "First.");
}

/// What may pass is tried on the same model first; what was said before a switch does not count.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_that_breaks_off_is_tried_again_and_then_replaced() {
    let first = Server::start(|_| Act::Cut(says("I was going to").drain(..2).collect())).await;
    let second = Server::start(|_| Act::Stream(says("I did."))).await;
    let http = http();
    let (a, b) = (model(&http, &first.url()), model(&http, &second.url()));
    let both: Arc<dyn Model> = Arc::new(FallbackModel::new(a, [b], 1, Duration::from_secs(60)));
    let longhaul = start(solo(&both)).await;
    let id = submit(&longhaul, "go").await;
    assert_said(&end(&longhaul, id).await, "I did.");
    assert_eq!((first.asked().len(), second.asked().len()), (2, 1));
}

/// With nobody left to ask, the last error is the one that is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_all_fail_the_last_one_says_why() {
    let first =
        Server::start(|_| Act::Refuse(400, Vec::new(), r#"{"error":{"message":"too long"}}"#.into())).await;
    let second =
        Server::start(|_| Act::Refuse(403, Vec::new(), r#"{"error":{"message":"no way"}}"#.into())).await;
    let http = http();
    let (a, b) = (model(&http, &first.url()), model(&http, &second.url()));
    let both: Arc<dyn Model> = Arc::new(FallbackModel::new(a, [b], 1, Duration::from_secs(60)));
    let longhaul = start(solo(&both)).await;
    let id = submit(&longhaul, "go").await;
    let error = end(&longhaul, id).await.state.error.unwrap();
    assert!(error.contains("no way"), "{error}");
}
