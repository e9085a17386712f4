//! The API, fuzzed from its own description with schemathesis: no failure of the server, and every answer as
//! described.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use longhaul::testing::report_skipped;
use serde_json::json;

use crate::setup::Server;

/// The version whose checks these are.
const VERSION: &str = "4.32.5";
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
                      response_headers_conformance,response_schema_conformance,unsupported_method,\
                      allow_header_conformance,negative_data_rejection";

fn succeeds(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => {
            Err(String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or("it failed").to_owned())
        }
    }
}

/// Schemathesis in an environment of its own below `target`, installed if that is possible.
fn schemathesis() -> Result<PathBuf, String> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let place = target.join(format!("schemathesis-{VERSION}"));
    let program = place.join("bin/st");
    if !program.exists() {
        succeeds(Command::new("python3").args(["-m", "venv"]).arg(&place))?;
        let package = format!("schemathesis=={VERSION}");
        let pip = ["install", "--quiet", "--disable-pip-version-check", "--retries", "0", "--timeout", "10"];
        succeeds(Command::new(place.join("bin/pip")).args(pip).arg(package))?;
    }
    Ok(program)
}

struct Fuzzer {
    program: PathBuf,
    directory: PathBuf,
    url: String,
}

impl Fuzzer {
    /// Runs it, with a task that exists if there is one.
    async fn run(&self, task: Option<&str>, more: &[&str]) {
        let config = self.directory.join("schemathesis.toml");
        let parameters = task.map(|id| format!("[parameters]\n\"path.id\" = \"{id}\"\n")).unwrap_or_default();
        std::fs::write(&config, parameters).unwrap();
        let mut command = Command::new(&self.program);
        command
            .current_dir(&self.directory)
            .arg("--config-file")
            .arg(&config)
            .args(["run", &format!("{}/api/v1/openapi.json", self.url), "--checks", CHECKS])
            .args(["--phases", "examples,coverage,fuzzing", "--seed", "1", "--request-timeout", "30"])
            .args(["--suppress-health-check", "all", "--warnings", "off", "--no-color"])
            .args(more);
        let run = move || command.output().unwrap();
        let Output { status, stdout, stderr } = tokio::task::spawn_blocking(run).await.unwrap();
        let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        assert!(status.success(), "{stdout}\n{stderr}");
        assert!(!stdout.contains("No operations"), "{stdout}");
        println!(
            "{}",
            stdout
                .lines()
                .rev()
                .take(12)
                .collect::<Vec<_>>()
                .into_iter()
                .rev()
                .collect::<Vec<_>>()
                .join("\n")
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_api_is_as_it_describes_itself() {
    let program = match tokio::task::spawn_blocking(schemathesis).await.unwrap() {
        Ok(program) => program,
        Err(why) => return report_skipped(&format!("schemathesis cannot be installed: {why}")),
    };
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path()).await;
    let fuzzer = Fuzzer { program, directory: directory.path().to_owned(), url: server.url.clone() };
    let tree = server.submit(json!({ "task": "team up" })).await;
    server.wait(&tree).await;
    // Streams and waits take their time; they come when the server drains.
    let others = ["--exclude-path-regex", "events$|wait$|readyz$"];
    let few = [&others[..], &["--max-examples", "15"]].concat();
    fuzzer.run(Some(&tree), &few).await;
    fuzzer.run(None, &few).await;
    server.drain.cancel();
    for task in [Some(tree.as_str()), None] {
        let rest = ["--include-path-regex", "events$|wait$", "--max-examples", "10"];
        fuzzer.run(task, &rest).await;
    }
}
