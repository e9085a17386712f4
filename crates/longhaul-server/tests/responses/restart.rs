//! A server that is killed, and the response that outlives it.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use futures::StreamExt as _;
use serde_json::{Value, json};

use crate::event_checks::{check_whole, numbers, output_text, parse_events};
use crate::stage::{self, Obedient, http_client};

const DIR: &str = "LONGHAUL_TEST_SERVE_DIR";
const PREFIX: &str = "LONGHAUL_TEST_SERVE_PREFIX";

/// Not a test: the server of the tests below, in a process of its own.
#[test]
#[ignore = "started by other tests"]
fn serve_process() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let prefix = std::env::var(PREFIX).unwrap();
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        // Slow enough that a busy machine kills it before the reply is whole.
        let model = Obedient { pause: Duration::from_millis(40), prefix };
        let address = stage::listen(stage::backend(Path::new(&dir), model).await).await;
        println!("\nlistening on http://{address}");
        std::future::pending::<()>().await;
    });
}

/// A server process. It is killed at the end.
pub(crate) struct Server {
    child: Child,
    pub(crate) url: String,
}

impl Server {
    /// Starts a server on the database in this directory. The texts of its model begin with the prefix.
    pub(crate) fn start(dir: &Path, prefix: &str) -> Server {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["restart::serve_process", "--exact", "--ignored", "--nocapture"])
            .env(DIR, dir)
            .env(PREFIX, prefix)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let url = lines.find_map(|line| line.unwrap().strip_prefix("listening on ").map(str::to_owned));
        Server { child, url: url.expect("the server starts") }
    }

    /// SIGKILL: it has no time for anything.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads events until there are this many deltas, or to the end.
async fn read(url: &str, path: &str, body: Option<Value>, deltas: usize) -> Vec<Value> {
    let client = http_client();
    let request = match body {
        Some(body) => client.post(format!("{url}{path}")).body(body.to_string()),
        None => client.get(format!("{url}{path}")),
    };
    let mut stream = request.send().await.unwrap().bytes_stream();
    let mut text = String::new();
    let mut bytes = Vec::new();
    while let Some(piece) = stream.next().await {
        bytes.extend_from_slice(&piece.unwrap());
        text = String::from_utf8_lossy(&bytes).into_owned();
        let whole = text.rfind("\n\n").map_or(0, |end| end + 2);
        if text[..whole].matches("event: response.output_text.delta").count() >= deltas {
            text.truncate(whole);
            break;
        }
    }
    parse_events(&text)
}

#[tokio::test]
async fn a_response_outlives_its_server_and_its_stream_continues_without_gap_or_double() {
    let dir = tempfile::tempdir().unwrap();
    let first = Server::start(dir.path(), "first");
    let body = json!({ "model": "alpha", "input": "count", "background": true, "stream": true });
    let mut events = read(&first.url, "/v1/responses", Some(body), 5).await;
    first.kill();
    let id = events[0]["response"]["id"].as_str().unwrap().to_owned();
    let after = |events: &[Value]| {
        let last = numbers(events).pop().unwrap();
        format!("/v1/responses/{id}?stream=true&starting_after={last}")
    };
    let second = Server::start(dir.path(), "second");
    events.extend(read(&second.url, &after(&events), None, 7).await);
    second.kill();
    let third = Server::start(dir.path(), "third");
    events.extend(read(&third.url, &after(&events), None, usize::MAX).await);
    check_whole(&events);
    let text = output_text(&events.last().unwrap()["response"]);
    assert!(text.starts_with("third ä0 ä1 ") && text.ends_with(" ä59"), "{text}");
    // What two servers began is withdrawn.
    let withdrawn = events.iter().filter(|event| event["item"]["status"] == "incomplete");
    assert_eq!(
        withdrawn.map(|event| &event["item"]["content"]).collect::<Vec<_>>(),
        [&json!([]), &json!([])]
    );
    // From the start it is the same.
    assert_eq!(read(&third.url, &format!("/v1/responses/{id}?stream=true"), None, usize::MAX).await, events);
}

#[tokio::test]
async fn a_stream_goes_on_when_another_process_that_ran_the_task_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let runs = Server::start(dir.path(), "first");
    let body = json!({ "model": "alpha", "input": "count far", "background": true, "stream": true });
    let events = read(&runs.url, "/v1/responses", Some(body), 3).await;
    let id = events[0]["response"]["id"].as_str().unwrap();
    let path = format!("/v1/responses/{id}?stream=true");
    // This one has the same store, and streams what the other one writes.
    let streams = Server::start(dir.path(), "second");
    let live = read(&streams.url, &path, None, 8).await;
    assert_eq!(live[..events.len()], events);
    let (url, from_start) = (streams.url.clone(), path.clone());
    let rest = tokio::spawn(async move { read(&url, &from_start, None, usize::MAX).await });
    runs.kill();
    let whole = rest.await.unwrap();
    check_whole(&whole);
    assert_eq!(whole[..live.len()], live);
    assert!(output_text(&whole.last().unwrap()["response"]).starts_with("second ä0 "));
}
