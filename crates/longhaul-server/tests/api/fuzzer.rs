//! Schemathesis, which makes requests from the description of an API.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The version whose checks these are.
const VERSION: &str = "4.32.5";
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
                      response_headers_conformance,response_schema_conformance,unsupported_method,\
                      allow_header_conformance,negative_data_rejection,positive_data_acceptance,\
                      use_after_free,ensure_resource_availability,missing_required_header,ignored_auth";
/// What the description cannot say: usage by model is for one tree.
const CONFIG: &str = "[[operations]]\ninclude-path = \"/api/v1/usage\"\nchecks.positive_data_acceptance.expected-statuses = [\"2xx\", \"400\", \"404\"]\n";

fn succeeds(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => {
            Err(String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or("it failed").to_owned())
        }
    }
}

/// Requests to a server that are made from its description.
pub(crate) struct Fuzzer {
    program: PathBuf,
    directory: PathBuf,
}

impl Fuzzer {
    /// In an environment of its own below `target`, installed if that is possible. It works in this directory.
    pub(crate) fn install(directory: &Path) -> Result<Fuzzer, String> {
        let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("schemathesis-{VERSION}"));
        let program = place.join("bin/st");
        if !program.exists() {
            succeeds(Command::new("python3").args(["-m", "venv"]).arg(&place))?;
            let package = format!("schemathesis=={VERSION}");
            let pip =
                ["install", "--quiet", "--disable-pip-version-check", "--retries", "0", "--timeout", "10"];
            succeeds(Command::new(place.join("bin/pip")).args(pip).arg(package))?;
        }
        Ok(Fuzzer { program, directory: directory.to_owned() })
    }

    /// Runs it. With a task, all requests for a task are for that one.
    pub(crate) fn run(&self, url: &str, token: &str, task: Option<&str>, more: &[&str]) {
        let config = self.directory.join("schemathesis.toml");
        let parameters = task.map(|id| format!("[parameters]\n\"path.id\" = \"{id}\"\n")).unwrap_or_default();
        std::fs::write(&config, format!("{parameters}{CONFIG}")).unwrap();
        let mut command = Command::new(&self.program);
        command
            .current_dir(&self.directory)
            .env("NO_PROXY", "*")
            .arg("--config-file")
            .arg(&config)
            .args(["run", &format!("{url}/api/v1/openapi.json"), "--checks", CHECKS])
            .args(["--seed", "1", "--request-timeout", "30", "--continue-on-failure"])
            .args(["--suppress-health-check", "all", "--warnings", "off", "--no-color"])
            .args(["--header", &format!("Authorization: Bearer {token}")])
            .args(more);
        let Output { status, stdout, stderr } = command.output().unwrap();
        let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        assert!(status.success(), "{stdout}\n{stderr}");
        assert!(!stdout.contains("No operations"), "{stdout}");
        let summary: Vec<&str> = stdout.lines().skip_while(|line| !line.contains(" SUMMARY ")).collect();
        println!("{}", summary.join("\n"));
    }
}
