//! Team files from the command line: `check`, `schema`, `init`.

use std::fs;
use std::time::{Duration, Instant};

use crate::kit::Kit;

const WRONG: &str =
    "agents:\n  root:\n    modle: auto\n    sub_agents: [helpr]\n  helper:\n    model: auto\n";

/// A model that needs no key.
const PLAYED: &str =
    "models: {s: {provider: scripted, script: 'agents: {\"*\": {turns: [{text: Done.}]}}'}}\n";

#[test]
fn check_and_doctor_refuse_what_run_refuses() {
    let kit = Kit::new();
    kit.write("broken.yaml", "agents: {root: {model: s}}\nmodels: {s: {provider: scripted, script: 'agents: {root: {turnz: []}}'}}\n");
    kit.write(
        "file.yaml",
        "agents: {root: {model: s}}\nmodels: {s: {provider: scripted, script: play.yaml}}\n",
    );
    kit.write(
        "typo.yaml",
        &format!("agents: {{root: {{model: s, toolsets: [{{type: filesytem}}]}}}}\n{PLAYED}"),
    );
    for (file, says) in
        [("broken.yaml", "turnz"), ("file.yaml", "play.yaml"), ("typo.yaml", "did you mean 'filesystem'?")]
    {
        kit.run(&["run", file, "Go."]).ended(6);
        let checked = kit.run(&["check", file]).ended(6).out;
        assert!(checked.contains(says), "{checked}");
        let doctor = kit.run(&["doctor", "--trust", file]).ended(1).out;
        assert!(doctor.contains(says), "{doctor}");
    }
    // What is only missing here is a warning of the file, and broken for whoever wants to run it.
    kit.write("auto.yaml", "agents: {root: {model: auto}}\n");
    kit.write("key.yaml", "agents: {root: {model: openai/gpt-5}}\n");
    for (file, says) in
        [("auto.yaml", "no model can be asked"), ("key.yaml", "needs a key: set OPENAI_API_KEY")]
    {
        kit.run(&["run", file, "Go."]).ended(6);
        let checked = kit.run(&["check", file]).ended(0).out;
        assert!(checked.contains(says) && checked.contains("1 warning"), "{checked}");
        kit.run(&["check", "--strict", file]).ended(6);
        let doctor = kit.run(&["doctor", "--trust", file]).ended(1).out;
        assert!(doctor.contains(says), "{doctor}");
    }
}

#[test]
fn a_line_a_file_and_a_total() {
    let kit = Kit::new();
    let write = |name: &str, text: &str| {
        let path = kit.ground.path().join("teams").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("good.yaml", &format!("agents: {{root: {{model: s}}, helper: {{model: s}}}}\n{PLAYED}"));
    write("workflow.yaml", "on: push\njobs: {agents: {}}\n");
    write("deeper/wrong.yml", WRONG);
    write(
        "warned.yaml",
        &format!(
            "agents: {{root: {{model: s, code_mode_tools: true, toolsets: [{{type: telepathy}}]}}}}\n{PLAYED}"
        ),
    );
    write("notes.txt", "no team");
    write(".hidden.yaml", "no team either");
    let ran = kit.run(&["check", "teams"]).ended(6);
    insta::assert_snapshot!("check", ran.out);
    assert_eq!(ran.err, "");
    kit.run(&["check", "teams/good.yaml", "teams/warned.yaml"]).ended(0);
    kit.run(&["check", "--strict", "teams/good.yaml"]).ended(0);
    kit.run(&["check", "--strict", "teams/good.yaml", "teams/warned.yaml"]).ended(6);
    kit.run(&["check", "teams/workflow.yaml"]).ended(6);

    let json = kit.run(&["check", "--json", "teams"]).ended(6).json();
    assert_eq!(json.len(), 3);
    assert_eq!((&json[0]["file"], &json[0]["ok"]), (&"teams/deeper/wrong.yml".into(), &false.into()));
    assert_eq!(json[0]["problems"][0]["line"], 3);
    assert_eq!(json[0]["problems"][0]["path"], "agents.root.modle");
    assert_eq!(json[0]["problems"][0]["help"], "did you mean 'model'?");
    assert_eq!(json[1]["agents"], serde_json::json!(["root", "helper"]));
}

#[test]
fn one_that_cannot_be_read_is_a_line_among_the_others() {
    let kit = Kit::new();
    fs::create_dir(kit.ground.path().join("teams")).unwrap();
    fs::write(kit.ground.path().join("teams/a-binary.yaml"), b"\x7fELF\x02\x01\xff\xfe").unwrap();
    kit.write("teams/b-good.yaml", &format!("agents: {{root: {{model: s}}}}\n{PLAYED}"));
    let ran = kit.run(&["check", "teams"]).ended(6);
    insta::assert_snapshot!("check_binary", ran.out);
    assert_eq!(ran.err, "");
    assert_eq!(kit.run(&["check", "teams", "--json"]).ended(6).json()[0]["ok"], false);
}

/// What is shipped is right, and what is wrong on purpose is wrong: as whoever runs the command sees it.
#[test]
fn the_teams_of_the_project_are_as_they_should_be() {
    let kit = Kit::new();
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let check = |directory: &str, code: i32| {
        let directory = root.join(directory).canonicalize().unwrap().display().to_string();
        let files = kit.run(&["check", "--json", &directory]).ended(code).json();
        let lines = kit.run(&["check", &directory]).ended(code).out;
        let total = lines.lines().last().unwrap();
        assert!(total.starts_with(&format!("{} files: ", files.len())), "{total}");
        for file in &files {
            let name = file["file"].as_str().unwrap();
            let of = lines.lines().filter(|line| line.contains(&format!(" {name}  "))).count();
            assert_eq!(of, 1, "{name} has a line of its own");
            assert_eq!(file["ok"], code == 0, "{file}");
        }
        files.len()
    };
    let right = check("examples/teams", 0);
    let odd = check("crates/longhaul/tests/teams/odd", 0);
    let wrong = check("crates/longhaul/tests/teams/wrong", 6);
    assert!(wrong >= 15 && right + odd + wrong >= 40, "{right} {odd} {wrong}");
}

#[test]
fn what_cannot_be_checked_is_said() {
    let kit = Kit::new();
    kit.run(&["check", "nowhere.yaml"]).complains(6, &["nowhere.yaml", "longhaul init"]);
    kit.run(&["check", "docs"]).complains(2, &["no team file", "docs"]);
    fs::write(kit.ground.path().join("bytes.yaml"), b"agents: \xff\xfe").unwrap();
    kit.run(&["check", "bytes.yaml"]).complains(6, &["bytes.yaml", "UTF-8"]);
}

#[test]
fn a_mountain_of_a_file_is_refused_at_once() {
    let kit = Kit::new();
    let text = format!("agents:\n  root:\n    instruction: {}\n", "x".repeat(50 << 20));
    fs::write(kit.ground.path().join("mountain.yaml"), text).unwrap();
    let began = Instant::now();
    let ran = kit.run(&["check", "mountain.yaml"]).ended(6);
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert!(ran.out.contains("a team file has at most"), "{}", ran.out);
}

#[test]
fn what_files_say_cannot_command_the_terminal() {
    let kit = Kit::new();
    fs::write(
        kit.ground.path().join("evil.yaml"),
        "agents:\n  \"\\e[31mred\\a\": {modle\u{202e}: \"\\e]0;title\\a\"}\n",
    )
    .unwrap();
    let ran = kit.run(&["check", "evil.yaml"]).ended(6);
    assert!(ran.out.contains("unknown key"), "{}", ran.out);
    assert!(ran.out.chars().all(|c| c == '\n' || !c.is_control()), "{:?}", ran.out);
}

#[test]
fn init_writes_a_team_that_is_right_and_never_over_another() {
    let kit = Kit::new();
    for args in [&["init"][..], &["init", "other.yaml", "--scripted"]] {
        let ran = kit.run(args).ended(0);
        let file = args.get(1).copied().unwrap_or("team.yaml");
        assert!(ran.out.contains(&format!("longhaul check {file}")), "{}", ran.out);
        let checked = kit.run(&["check", file]).ended(0);
        assert!(checked.out.contains("1 file: 0 errors"), "{}", checked.out);
        fs::write(kit.ground.path().join(file), "mine").unwrap();
        kit.run(args).complains(2, &[file, "--force"]);
        assert_eq!(fs::read_to_string(kit.ground.path().join(file)).unwrap(), "mine");
    }
    kit.run(&["init", "--force"]).ended(0);
    kit.run(&["check", "team.yaml"]).ended(0);
    kit.run(&["init", "no/such/dir/team.yaml"]).complains(1, &["no/such/dir"]);
}

#[test]
fn the_schema_is_json() {
    let out = Kit::new().run(&["schema"]).ended(0).out;
    let schema: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(schema["title"], "Longhaul team file");
    assert_eq!(schema["additionalProperties"], false);
}

#[test]
fn two_files_that_name_each_other_are_refused_by_the_check_as_by_the_run() {
    let kit = Kit::new();
    kit.write("one.yaml", "agents:\n  root:\n    model: auto\n    sub_agents: [\"two:./two.yaml\"]\n");
    kit.write("two.yaml", "agents:\n  root:\n    model: auto\n    sub_agents: [\"one:./one.yaml\"]\n");
    let told = kit.run(&["check", "one.yaml"]).ended(6).out;
    assert!(told.contains("refers to itself: one.yaml → two.yaml → one.yaml"), "{told}");
    assert!(told.contains("one.yaml:4:"), "{told}");
    let both = kit.run(&["check", "."]).ended(6).out;
    assert!(both.contains("two.yaml → one.yaml → two.yaml") && both.contains("2 errors"), "{both}");
    let ran = kit.run(&["run", "one.yaml", "Go."]).ended(6).err;
    assert!(ran.contains("two.yaml' refers to itself") && ran.contains("one.yaml:4:"), "{ran}");
    assert!(
        ran.starts_with("error: the team file is wrong") && ran.contains("`longhaul check one.yaml`"),
        "{ran}"
    );
}
