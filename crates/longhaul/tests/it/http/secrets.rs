//! A session with a marked key, which providers throw back in every way they can. It runs in a process of its own, with
//! everything logged that any crate has to say, and ends without tidying up: the mark is nowhere to be found.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use futures::StreamExt as _;
use longhaul::model::http::{Cassette, HttpClient, ModelSpec};
use longhaul::store::SqliteStore;
use longhaul::{Longhaul, Policy, Team};
use secrecy::SecretString;

use crate::http::server::{Act, Asked, Server, says};
use crate::http::stage::{agent, options};
use crate::http::tls::Secure;

/// A key that no pattern knows, with characters that URLs write in another way.
const KEY: &str = "mk-0123/abc+XYZ=MARKED-9f8e7d6c";
/// What of it must not be seen.
const MARKS: [&str; 4] = [KEY, "MARKED-9f8e7d6c", "mk-0123/abc+XYZ", "mk-0123%2Fabc%2BXYZ"];
/// Where the session leaves what it writes, in the process that is the session.
const HERE: &str = "LONGHAUL_TEST_SECRETS_HERE";

/// What the plain provider does with each order.
fn misbehave(asked: &Asked) -> Act {
    let order = asked.order();
    let error = format!(r#"{{"error":{{"message":"Incorrect API key provided: {KEY}. Get another"}}}}"#);
    if order.contains("refused") {
        return Act::Refuse(401, vec![("x-ratelimit-note", KEY.to_owned())], error);
    }
    if order.contains("redirected") {
        let place = format!("http://127.0.0.1:9/elsewhere?key={KEY}");
        return Act::Refuse(302, vec![("location", place.clone())], format!("Moved to {place}"));
    }
    if order.contains("malformed") {
        // So long that what is kept of it ends in the middle of the key.
        return Act::Stream(vec![format!("data: {{\"choices\": [{} {KEY}\n\n", "y ".repeat(283))]);
    }
    match asked.number {
        0 => Act::Refuse(500, Vec::new(), format!("no backend for Bearer {KEY}")),
        1 => Act::Hangup,
        2 => {
            let (one, two) = KEY.split_at(9);
            Act::Cut(vec![format!("data: {{\"error\":{{\"message\":\"key {one}"), format!("{two}\"}}}}\n\n")])
        }
        3 => Act::Refuse(429, vec![("retry-after-ms", "50".into())], error),
        _ => Act::Stream(says("Safe.")),
    }
}

#[test]
fn a_key_is_in_no_journal_error_log_event_or_recording() {
    let place = tempfile::tempdir().unwrap();
    let here = place.path().join("session");
    std::fs::create_dir(&here).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (output, seen) = runtime.block_on(async {
        let plain = Server::start(misbehave).await;
        let secure = Secure::start(place.path()).await;
        let mut session = Command::new(std::env::current_exe().unwrap());
        session
            .args(["--exact", "http::secrets::the_session_itself", "--ignored", "--nocapture"])
            .env(HERE, &here)
            .env("LONGHAUL_TEST_PLAIN", plain.url())
            .env("LONGHAUL_TEST_SECURE", secure.url())
            .env("SSL_CERT_FILE", secure.certificate())
            .env("RUST_LOG", "trace")
            .env("RUST_BACKTRACE", "full");
        let output = tokio::task::spawn_blocking(move || session.output().unwrap()).await.unwrap();
        assert!(plain.asked().len() >= 8, "{}", plain.asked().len());
        assert!(plain.asked().iter().all(|asked| asked.headers.contains(KEY)), "the key was really sent");
        (output, secure.seen())
    });
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let tail = stderr.len().saturating_sub(3000);
    assert!(output.status.success(), "{stdout}\n…{}", String::from_utf8_lossy(&output.stderr[tail..]));

    // It was really sent over HTTP/2 too, in each of the headers that there are for it, and really thrown back.
    for header in ["authorization", "x-api-key", "x-goog-api-key", "api-key"] {
        assert!(seen.iter().any(|(name, value)| name == header && value.contains(KEY)), "{header}: {seen:?}");
    }
    assert!(stdout.contains("Incorrect API key provided: [key]") && stdout.contains("Safe."), "{stdout}");
    // Everybody had a say.
    for target in ["h2::", "hyper_util::", "reqwest::"] {
        assert!(stderr.contains(target), "nothing was logged by {target}");
    }
    println!("{} bytes of log, {} of output", stderr.len(), stdout.len());

    let mut places = vec![("stdout".to_owned(), output.stdout.clone()), ("stderr".to_owned(), output.stderr)];
    let mut folders = vec![here];
    while let Some(folder) = folders.pop() {
        for file in std::fs::read_dir(folder).unwrap() {
            match file.unwrap().path() {
                path if path.is_dir() => folders.push(path),
                path => places.push((path.display().to_string(), std::fs::read(&path).unwrap())),
            }
        }
    }
    let has = |end: &str| places.iter().any(|(name, bytes)| name.ends_with(end) && bytes.len() > 1000);
    assert!(has(".db") && has(".db-wal") && has("tape.jsonl"), "{:?}", places.iter().map(|p| &p.0));
    for (name, bytes) in &places {
        for mark in MARKS {
            if let Some(at) = bytes.windows(mark.len()).position(|window| window == mark.as_bytes()) {
                let around = &bytes[at.saturating_sub(300)..(at + 60).min(bytes.len())];
                panic!("{name} has the key: {}", String::from_utf8_lossy(around));
            }
        }
        println!("{name}: {} bytes without it", bytes.len());
    }
}

/// The session; only in the process that the test above starts.
#[test]
#[ignore = "run by the test above, as a process of its own"]
fn the_session_itself() {
    let Ok(here) = std::env::var(HERE) else { return };
    // With what speaks to the crate `log`.
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .init();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(session(Path::new(&here)));
    // As if it had been killed: what was written ahead stays where it is.
    std::process::exit(0);
}

async fn session(here: &Path) {
    let keys = |_: &str| Some(SecretString::from(KEY.to_owned()));
    let http = HttpClient::recording(options(), Cassette::create(&here.join("tape.jsonl")).unwrap()).unwrap();
    let (plain, secure) =
        (std::env::var("LONGHAUL_TEST_PLAIN").unwrap(), std::env::var("LONGHAUL_TEST_SECURE").unwrap());
    let in_the_url = format!("{plain}?token={}", KEY.replace('/', "%2F").replace('+', "%2B"));
    let nowhere = format!("http://127.0.0.1:9/v1?token={KEY}");
    for (n, (name, base_url, orders)) in [
        ("openai/gpt-5", &secure, ["go", "be refused"].as_slice()),
        ("openai/gpt-5", &in_the_url, &["go", "be refused", "be redirected", "be malformed"]),
        ("anthropic/claude-sonnet-4-5", &secure, &["be refused"]),
        ("google/gemini-2.5-flash", &secure, &["be refused"]),
        ("azure/gpt-5", &secure, &["be refused"]),
        ("openai/gpt-5", &nowhere, &["go"]),
    ]
    .into_iter()
    .enumerate()
    {
        let spec = ModelSpec::parse(name).unwrap().base_url(base_url);
        let model = http.model(&spec, &keys).unwrap();
        println!("{model:?} {http:?} {spec_name}", spec_name = spec.name());
        let model: std::sync::Arc<dyn longhaul::model::Model> = model;
        let mut policy = Policy::default();
        policy.retry.initial_backoff = Duration::from_millis(20);
        policy.retry.max_outage = Duration::from_millis(200);
        let team = Team::new(agent("solo", &model).policy(policy).build().unwrap()).unwrap();
        let store = SqliteStore::open(here.join(format!("session-{n}.db"))).unwrap();
        let longhaul = Longhaul::builder(team).store(store).start().await.unwrap();
        for order in orders {
            let mut events = longhaul.chat(*order).await.unwrap();
            while let Some(event) = events.next().await {
                match event {
                    Ok(event) => println!("{}", serde_json::to_string(&event).unwrap()),
                    Err(error) => println!("{error} {error:?}"),
                }
            }
        }
        for state in longhaul.list(longhaul::store::TaskFilter::default()).await.unwrap() {
            println!("{state:?}");
        }
        // Never shut down.
        std::mem::forget(longhaul);
    }
}
