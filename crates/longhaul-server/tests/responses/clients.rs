//! OpenAI's own SDKs, from PyPI and npm, as clients. They are installed on first use, below the target directory.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use longhaul::testing::report_skipped;
use serde_json::Value;

use crate::restart::{Server, check_whole};

const PYTHON_SDK: &str = "openai==3.51.0";
const NODE_SDK: &str = "openai@6.49.0";

/// A program that runs a script with an SDK.
struct Sdk {
    program: PathBuf,
    script: PathBuf,
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (told, wrong) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{told}\n{wrong}", output.status);
    output
}

/// Does something once for this version, in a directory below the target directory.
fn install(name: &str, version: &str, how: impl FnOnce(&Path)) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&dir).unwrap();
    // Two test processes may be at it at once.
    let lock = File::create(dir.join("lock")).unwrap();
    lock.lock().unwrap();
    let done = dir.join("installed");
    if std::fs::read_to_string(&done).is_ok_and(|had| had == version) {
        return dir;
    }
    how(&dir);
    std::fs::write(done, version).unwrap();
    dir
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/responses").join(name)
}

fn python() -> Option<Sdk> {
    let has_venv = Command::new("python3").args(["-c", "import venv, ensurepip"]).output();
    if !has_venv.is_ok_and(|output| output.status.success()) {
        report_skipped("there is no python3 with venv: the OpenAI SDK for Python is not tested");
        return None;
    }
    let dir = install("openai-python", PYTHON_SDK, |dir| {
        run(Command::new("python3").args(["-m", "venv"]).arg(dir));
        run(Command::new(dir.join("bin/pip")).args(["install", "--quiet", PYTHON_SDK]));
    });
    Some(Sdk { program: dir.join("bin/python"), script: script("sdk.py") })
}

fn node() -> Sdk {
    let dir = install("openai-node", NODE_SDK, |dir| {
        std::fs::write(dir.join("package.json"), "{ \"private\": true }").unwrap();
        let options = ["--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts"];
        run(Command::new("npm").arg("install").args(options).arg(NODE_SDK).current_dir(dir));
    });
    // A module is looked for beside the script.
    let copy = dir.join("sdk.mjs");
    std::fs::copy(script("sdk.mjs"), &copy).unwrap();
    Sdk { program: "node".into(), script: copy }
}

impl Sdk {
    /// Runs a part of the script; returns the events that it printed.
    fn run(&self, part: &str, url: &str, more: &[String]) -> Vec<Value> {
        let mut command = Command::new(&self.program);
        command.arg(&self.script).arg(part).arg(url).args(more);
        command
            .env("OPENAI_BASE_URL", format!("{url}/v1"))
            .env("OPENAI_API_KEY", "none")
            .env("NO_PROXY", "*");
        let told = run(&mut command).stdout;
        String::from_utf8(told).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Creates a response in the background, kills the server, and streams on from another one.
    fn survives(&self) {
        let dir = tempfile::tempdir().unwrap();
        let first = Server::start(dir.path(), "first");
        let mut events = self.run("begin", &first.url, &[]);
        first.kill();
        let id = events[0]["response"]["id"].as_str().unwrap().to_owned();
        let last = events.last().unwrap()["sequence_number"].to_string();
        let second = Server::start(dir.path(), "second");
        events.extend(self.run("continue", &second.url, &[id, last]));
        check_whole(&events);
    }

    fn tours(&self) {
        let dir = tempfile::tempdir().unwrap();
        let server = Server::start(dir.path(), "");
        self.run("tour", &server.url, &[]);
    }
}

#[test]
fn the_python_sdk_streams_on_after_the_server_was_killed() {
    if let Some(sdk) = python() {
        sdk.survives();
    }
}

#[test]
fn the_python_sdk_finds_what_it_expects() {
    if let Some(sdk) = python() {
        sdk.tours();
    }
}

#[test]
fn the_node_sdk_streams_on_after_the_server_was_killed() {
    node().survives();
}

#[test]
fn the_node_sdk_finds_what_it_expects() {
    node().tours();
}
