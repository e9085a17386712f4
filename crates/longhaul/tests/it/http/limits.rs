use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use longhaul::dispatch::TaskLimits;
use longhaul::entry::WaitReason;
use longhaul::model::http::{HttpClient, HttpOptions, ModelSpec};

use crate::http::server::{Act, Server, says};
use crate::http::stage::{
    assert_said, end, journal, keys, model, replies_and_waits, solo, spec, start, submit, waiting,
};

/// Issue 3: 16 agents at once meet 429 with `Retry-After: 2`: all 16 finish, no request is sent before its time, and
/// there are at most two requests a reply.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_at_once_are_told_to_come_back_in_two_seconds() {
    let met = Mutex::new(HashSet::new());
    let server = Server::start(move |asked| match met.lock().unwrap().insert(asked.order()) {
        true => {
            Act::Refuse(429, vec![("retry-after", "2".into())], r#"{"error":{"message":"slow down"}}"#.into())
        }
        false => Act::Stream(says("All is well.")),
    })
    .await;
    let longhaul = start(solo(&model(&crate::http::stage::http(), &server.url()))).await;
    let mut ids = Vec::new();
    for n in 0..16 {
        ids.push(submit(&longhaul, &format!("task {n}")).await);
    }
    for id in &ids {
        assert_said(&end(&longhaul, *id).await, "All is well.");
        let (replies, waits) = replies_and_waits(&journal(&longhaul, *id).await);
        assert!(replies == 1 && (1..=6).contains(&waits), "{replies} replies, {waits} waits");
    }
    let mut times: HashMap<String, Vec<Instant>> = HashMap::new();
    for asked in server.asked() {
        times.entry(asked.order()).or_default().push(asked.at);
    }
    assert_eq!((times.len(), server.asked().len()), (16, 32));
    // A wish that one task heard holds for all. What was under way when it came is not before its time.
    let refused: Vec<Instant> = times.values().map(|times| times[0]).collect();
    for asked in server.asked() {
        for refused in refused.iter().filter(|refused| **refused < asked.at) {
            let after = asked.at.duration_since(*refused);
            let early = after > Duration::from_millis(150) && after < Duration::from_millis(1990);
            assert!(!early, "a request {after:?} after a refusal");
        }
    }
    let (first, last) = (server.asked()[0].at, server.asked()[31].at);
    println!("sixteen tasks took {:?}", last.duration_since(first));
    assert!(last.duration_since(first) < Duration::from_secs(20));
}

/// One hears it, all heed it: who comes while the provider wants to be left alone is held at the gate, and shown so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wish_heard_by_one_task_holds_another_which_is_shown_as_waiting() {
    let server = Server::start(|asked| match asked.number {
        0 => Act::Refuse(503, vec![("retry-after-ms", "1500".into())], String::new()),
        _ => Act::Stream(says("Here.")),
    })
    .await;
    let longhaul = start(solo(&model(&crate::http::stage::http(), &server.url()))).await;
    let first = submit(&longhaul, "first").await;
    server.until(|server| server.asked().len() == 1).await;
    waiting(&longhaul, first).await;
    let second = submit(&longhaul, "second").await;
    let waiting = waiting(&longhaul, second).await;
    let WaitReason::Provider(why) = &waiting.on else { panic!("{waiting:?}") };
    assert!(why.contains("rate limited"), "{why}");
    let left = waiting.until.unwrap().duration_since(waiting.since).as_millis();
    assert!((900..=2300).contains(&left), "{left} ms");
    for id in [first, second] {
        assert_said(&end(&longhaul, id).await, "Here.");
    }
    let asked = server.asked();
    assert_eq!(asked.len(), 3);
    assert!(asked[1].at.duration_since(asked[0].at) >= Duration::from_millis(1450));
    // Somebody else's key is somebody else's limit.
    let http = HttpClient::new(HttpOptions::default()).unwrap();
    let other = |name: &str| Some(format!("sk-other-{name}-012345").into());
    assert!(
        http.model(&spec(&server.url()), &other).is_ok() && http.model(&spec(&server.url()), &keys).is_ok()
    );
}

/// Gemini says in the body of the answer when to come back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wish_in_the_body_of_an_error_is_heeded() {
    let server = Server::start(|asked| match asked.number {
        0 => {
            let details = r#"[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"1.2s"}]"#;
            let error = format!(
                r#"{{"error":{{"code":429,"message":"quota","status":"RESOURCE_EXHAUSTED","details":{details}}}}}"#
            );
            Act::Refuse(429, Vec::new(), error)
        }
        _ => {
            let said = r#"{"candidates":[{"content":{"parts":[{"text":"Fine."}]},"finishReason":"STOP"}]}"#;
            Act::Stream(vec![format!("data: {said}\r\n\r\n")])
        }
    })
    .await;
    let gemini = ModelSpec::parse("google/gemini-2.5-flash").unwrap().base_url(server.url());
    let model: std::sync::Arc<dyn longhaul::model::Model> =
        crate::http::stage::http().model(&gemini, &keys).unwrap();
    let longhaul = start(solo(&model)).await;
    let id = submit(&longhaul, "go").await;
    assert_said(&end(&longhaul, id).await, "Fine.");
    let asked = server.asked();
    let after = asked[1].at.duration_since(asked[0].at);
    assert!(asked.len() == 2 && after >= Duration::from_millis(1150), "{after:?}");
    assert!(asked[0].headers.contains(":streamGenerateContent?alt=sse"), "{}", asked[0].headers);
}

/// Who is held at the gate has nothing to finish: it goes back at once when the process ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_is_held_is_given_back_at_once_by_a_shutdown() {
    let server = Server::start(|_| Act::Refuse(429, vec![("retry-after", "60".into())], String::new())).await;
    let longhaul = start(solo(&model(&crate::http::stage::http(), &server.url()))).await;
    let first = submit(&longhaul, "first").await;
    waiting(&longhaul, first).await;
    let second = submit(&longhaul, "second").await;
    waiting(&longhaul, second).await;
    let (began, store) = (Instant::now(), longhaul.store().clone());
    longhaul.shutdown().await;
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    for id in [first, second] {
        assert_eq!(store.task_state(id).await.unwrap().unwrap().status, longhaul::Status::Pending);
    }
    assert_eq!(server.asked().len(), 1, "the second was never sent");
}

/// As many under way as may be, not more, over no more connections than that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_under_way_are_bounded_and_their_connections_are_used_again() {
    let server = Server::start(|_| Act::Slowly(says("a b"), Duration::from_millis(1))).await;
    let http = HttpClient::new(crate::http::stage::options().max_concurrent(Some(16))).unwrap();
    let agent = solo(&model(&http, &server.url()));
    let team = longhaul::Team::new(agent.build().unwrap()).unwrap();
    let longhaul =
        longhaul::Longhaul::builder(team).limits(TaskLimits::default().running(64)).start().await.unwrap();
    let mut ids = Vec::new();
    for n in 0..400 {
        ids.push(submit(&longhaul, &format!("task {n}")).await);
    }
    for id in ids {
        assert_said(&end(&longhaul, id).await, "a b");
    }
    assert_eq!(server.asked().len(), 400);
    assert!(server.most_at_once() <= 16, "{}", server.most_at_once());
    println!("{} connections, {} at once", server.connections(), server.most_at_once());
    assert!(server.connections() <= 19, "{} connections for 16 under way", server.connections());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_succeed_is_not_tried_again() {
    let server = Server::start(|_| {
        Act::Refuse(
            401,
            Vec::new(),
            r#"{"error":{"message":"Incorrect API key","code":"invalid_api_key"}}"#.into(),
        )
    })
    .await;
    let longhaul = start(solo(&model(&crate::http::stage::http(), &server.url()))).await;
    let id = submit(&longhaul, "go").await;
    let done = end(&longhaul, id).await;
    let error = done.state.error.unwrap();
    assert!(error.contains("openai/gpt-5") && error.contains("Incorrect API key"), "{error}");
    assert_eq!(server.asked().len(), 1);
}
