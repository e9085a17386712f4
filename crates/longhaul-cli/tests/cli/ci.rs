//! `examples/ci`: a team runs headless, and the job fails when it should.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::kit::{Kit, Ran};

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/ci")
}

/// The script of the example, with a team whose words are written down.
fn job(kit: &Kit, turns: &str, env: &[(&str, &str)]) -> Ran {
    kit.write(
        "team.yaml",
        &format!("permissions: {{ask: [shell]}}\nagents: {{root: {{model: s, toolsets: [{{type: shell}}]}}}}\nmodels: {{s: {{provider: scripted, script: \"agents: {{root: {{turns: [{turns}]}}}}\"}}}}\n"),
    );
    let own = kit.command(&[]);
    let mut script = Command::new("sh");
    script.arg(examples().join("review.sh")).current_dir(kit.ground.path());
    script.env("LONGHAUL", own.get_program()).env("LONGHAUL_DATA", kit.data.path()).env("TEAM", "team.yaml");
    script.env("GITHUB_STEP_SUMMARY", kit.ground.path().join("summary.md")).envs(env.iter().copied());
    Ran::from(script.output().unwrap())
}

#[test]
fn the_job_passes_and_fails_when_it_should() {
    let kit = Kit::new();
    let ran = job(&kit, "{text: 'No findings.'}", &[]).ended(0);
    assert!(ran.out.contains("No findings."), "{}", ran.out);
    let summary = std::fs::read_to_string(kit.ground.path().join("summary.md")).unwrap();
    assert!(summary.contains("No findings."), "{summary}");
    let events = std::fs::read_to_string(kit.ground.path().join("events.jsonl")).unwrap();
    assert!(
        events.lines().count() >= 4 && events.lines().all(|line| line.starts_with("{\"v\":1,")),
        "{events}"
    );

    // The model says that something is wrong: that fails the job, though the run is fine.
    let ran = job(&kit, "{text: 'BLOCKER: there is a key in the code.'}", &[]).ended(1);
    assert!(ran.err.contains("::error") && ran.err.contains("BLOCKER"), "{}", ran.err);
    // The run itself fails, is cut short, takes too long, needs a person.
    job(&kit, "{errors: [{status: 400, message: no}], text: x}", &[]).ended(1);
    job(&kit, "{text: a, calls: [{tool: nothing}]}, {text: b}", &[("MAX_TOKENS", "1")]).ended(7);
    job(&kit, "{text: late, delay: 60s}", &[("TIMEOUT", "300ms")]).ended(124);
    let ran = job(&kit, "{calls: [{tool: shell, arguments: {cmd: ls}}]}, {text: x}", &[]).ended(8);
    assert!(ran.err.contains("needs a person"), "{}", ran.err);
    kit.write("team.yaml", "agents: {}\n");
    let wrong = Command::new("sh")
        .arg(examples().join("review.sh"))
        .current_dir(kit.ground.path())
        .env("LONGHAUL", kit.command(&[]).get_program())
        .env("LONGHAUL_DATA", kit.data.path())
        .env("TEAM", "team.yaml")
        .output()
        .unwrap();
    assert_eq!(wrong.status.code(), Some(6));
}

#[test]
fn its_team_and_workflow_are_sound() {
    let kit = Kit::new();
    kit.run(&["check", examples().join("team.yaml").to_str().unwrap()]).ended(0);
    let workflow = std::fs::read_to_string(examples().join("agents.yml")).unwrap();
    assert!(workflow.contains("examples/ci/review.sh") && workflow.contains("timeout-minutes"), "{workflow}");
}
