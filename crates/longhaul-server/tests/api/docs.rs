//! The examples of docs/http-api.md run.

use std::path::Path;
use std::process::Command;

use longhaul::testing::report_skipped;

use crate::setup::Server;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_examples_of_the_page_run() {
    for program in ["bash", "curl", "jq"] {
        if Command::new(program).arg("--version").output().is_err() {
            return report_skipped(&format!("there is no {program}"));
        }
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/http-api.md");
    let page = std::fs::read_to_string(page).unwrap();
    let example = page.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap().to_owned();
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path()).await;
    let url = server.url.clone();
    let run = move || {
        let script = ["-eu", "-o", "pipefail", "-c", &example];
        Command::new("bash").args(script).env("URL", url).env("TOKEN", "none").output().unwrap()
    };
    let output = tokio::task::spawn_blocking(run).await.unwrap();
    let (said, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{complained}");
    for part in ["completed\n", "done: ", "event: finished\n", "event: bye\n"] {
        assert!(said.contains(part), "{part:?} in {said}");
    }
}
