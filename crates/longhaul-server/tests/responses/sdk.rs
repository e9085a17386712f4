//! OpenAI's own SDKs, from PyPI and npm. They are installed on first use, below the target directory.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use longhaul::testing::report_skipped;
use serde_json::Value;
use tempfile::TempDir;

const PYTHON_SDK: &str = "openai==3.51.0";
const NODE_SDK: &str = "openai@6.49.0";

/// Where a server listens, and the token that it wants.
pub(crate) struct ServerAt<'a> {
    pub(crate) url: &'a str,
    pub(crate) token: &'a str,
}

/// A program that runs scripts which use an SDK.
pub(crate) struct Sdk {
    program: PathBuf,
    /// Scripts in here find the SDK.
    scripts: TempDir,
    /// The script of these tests.
    pub(crate) script: &'static str,
    code: &'static str,
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

pub(crate) fn python() -> Option<Sdk> {
    let has_venv = Command::new("python3").args(["-c", "import venv, ensurepip"]).output();
    if !has_venv.is_ok_and(|output| output.status.success()) {
        report_skipped("there is no python3 with venv: the OpenAI SDK for Python is not tested");
        return None;
    }
    let dir = install("openai-python", PYTHON_SDK, |dir| {
        run(Command::new("python3").args(["-m", "venv"]).arg(dir));
        run(Command::new(dir.join("bin/pip")).args(["install", "--quiet", PYTHON_SDK]));
    });
    let scripts = tempfile::tempdir_in(&dir).unwrap();
    Some(Sdk { program: dir.join("bin/python"), scripts, script: "sdk.py", code: include_str!("sdk.py") })
}

pub(crate) fn node() -> Sdk {
    let dir = install("openai-node", NODE_SDK, |dir| {
        std::fs::write(dir.join("package.json"), "{ \"private\": true }").unwrap();
        let options = ["--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts"];
        run(Command::new("npm").arg("install").args(options).arg(NODE_SDK).current_dir(dir));
    });
    // A module is looked for in the directories above its script.
    let scripts = tempfile::tempdir_in(&dir).unwrap();
    Sdk { program: "node".into(), scripts, script: "sdk.mjs", code: include_str!("sdk.mjs") }
}

impl Sdk {
    /// Runs a script against a server; returns what it prints.
    pub(crate) fn run_script(&self, name: &str, code: &str, at: &ServerAt, arguments: &[String]) -> String {
        let script = self.scripts.path().join(name);
        std::fs::write(&script, code).unwrap();
        let mut command = Command::new(&self.program);
        command.arg(&script).args(arguments).env("OPENAI_BASE_URL", format!("{}/v1", at.url));
        let output = run(command.env("OPENAI_API_KEY", at.token).env("NO_PROXY", "*"));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a part of the script of these tests; returns the events that it printed.
    pub(crate) fn run(&self, part: &str, at: &ServerAt, more: &[String]) -> Vec<Value> {
        let arguments: Vec<String> = [&[part.to_owned()], more].concat();
        let told = self.run_script(self.script, self.code, at, &arguments);
        told.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}
