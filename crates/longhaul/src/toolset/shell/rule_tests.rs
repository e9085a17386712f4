//! Tests permission rules on many spellings of a denied command: `data/denied.txt` states the expected
//! verdict for each. Under the same rules, commands in `data/harmless.txt` must run without approval.

use std::process::{Command, Stdio};

use serde_json::json;

use super::*;
use crate::permission::{PermissionRequest, PermissionVerdict, Permissions, Rights, arguments};

const DENIED: &str = include_str!("data/denied.txt");
const HARMLESS: &str = include_str!("data/harmless.txt");

fn tools() -> [Arc<dyn DynTool>; 2] {
    let shell = Shell::new();
    [shell.run_command(), shell.run_job()]
}

fn rights(argument: &str, approved: bool) -> Rights {
    let deny = [format!("shell:{argument}=sudo*"), format!("shell:{argument}=rm *")];
    let rules = Permissions::parse(["shell", "run_background_job"], [""; 0], deny).unwrap();
    Rights { levels: vec![Arc::new(rules)], approved }
}

/// The verdict on a call, in one word.
fn becomes(rights: &Rights, tool: &dyn DynTool, given: &str) -> &'static str {
    let Ok(seen) = tool.canonical_arguments(given) else { return "malformed" };
    let request =
        PermissionRequest::new(&tool.spec().name, arguments(&seen)).with_rule_names(&tool.rule_names());
    match rights.decide_request(&request, false) {
        PermissionVerdict::Refuse(_) => "denied",
        PermissionVerdict::Unsure(_) => "asked",
        PermissionVerdict::Ask => "asked as usual",
        PermissionVerdict::Run => "documented",
    }
}

#[test]
fn every_form_of_a_denied_command_is_denied_or_asked_about_or_documented() {
    let forms: Vec<(&str, String)> = DENIED
        .lines()
        .map(|line| line.split_once(' ').unwrap())
        .map(|(expected, form)| (expected, serde_json::from_str(form).unwrap()))
        .collect();
    assert!(forms.len() >= 200, "{}", forms.len());
    let mut wrong = Vec::new();
    for (expected, form) in &forms {
        for tool in tools() {
            for given in ["cmd", "command"] {
                let call = json!({ given: form }).to_string();
                for named in ["cmd", "command"] {
                    let came = becomes(&rights(named, false), &*tool, &call);
                    if came != *expected {
                        wrong.push(format!("{came} and not {expected}: {form:?} ({})", tool.spec().name));
                    }
                    let nobody_asks = becomes(&rights(named, true), &*tool, &call);
                    if *expected == "asked" && nobody_asks != "denied" {
                        wrong.push(format!("{nobody_asks} with everything approved: {form:?}"));
                    }
                }
            }
        }
    }
    wrong.dedup();
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn what_denies_or_asks_for_the_shell_counts_for_background_jobs_and_what_allows_does_not() {
    let [shell, job] = tools();
    let call = json!({ "cmd": "make" }).to_string();
    for (allow, ask, deny, expected) in [
        (vec!["shell"], vec![], vec![], ["documented", "asked as usual"]),
        (vec![], vec!["shell:cmd=make"], vec![], ["asked as usual", "asked as usual"]),
        (vec!["run_background_job"], vec![], vec!["shell:cmd=make"], ["denied", "denied"]),
    ] {
        let rules = Permissions::parse(allow, ask, deny).unwrap();
        let rights = Rights { levels: vec![Arc::new(rules)], approved: false };
        assert_eq!([&*shell, &*job].map(|tool| becomes(&rights, tool, &call)), expected);
    }
}

#[test]
fn harmless_commands_are_not_asked_about_because_others_are_denied() {
    let lines: Vec<String> = HARMLESS.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.len() >= 60, "{}", lines.len());
    let [shell, _] = tools();
    let rights = rights("cmd", false);
    let asked: Vec<_> = lines
        .iter()
        .map(|line| (becomes(&rights, &*shell, &json!({ "cmd": line }).to_string()), line))
        .filter(|(came, _)| *came != "documented")
        .collect();
    assert!(asked.is_empty(), "{asked:#?}");
}

#[test]
fn a_call_that_names_its_command_twice_is_refused() {
    for tool in tools() {
        for call in [
            r#"{"cmd":"ls","command":"sudo ls"}"#,
            r#"{"cmd":"ls","cmd":"sudo ls"}"#,
            r#"{"cmd":["sudo","ls"]}"#,
        ] {
            assert_eq!(becomes(&rights("cmd", false), &*tool, call), "malformed", "{call}");
        }
    }
}

/// Parts of command lines; some combinations run `sudo`.
const PARTS: [&str; 58] = [
    "sudo x",
    "sudo",
    "su",
    "do",
    "x",
    "a",
    ";",
    "&&",
    "||",
    "|",
    "&",
    "\n",
    "(",
    ")",
    "{ ",
    " ;}",
    "'",
    "\"",
    "\\",
    "\\\n",
    "$(",
    "`",
    "$",
    "${a:-",
    "}",
    "if ",
    "then ",
    "fi",
    "for i in a; do ",
    " done",
    "case a in a) ",
    ";; esac",
    "<<E\n",
    "\nE\n",
    ">f ",
    "2>&1 ",
    "&>f ",
    "<f ",
    "#",
    "''",
    "A=1 ",
    "! ",
    "time ",
    "eval ",
    "exec ",
    "command ",
    "[[ ",
    " ]]",
    "((",
    "))",
    "$((",
    "$'",
    "\\'",
    ":",
    "sh -c ",
    "f() ",
    "while false; do ",
    "echo ",
];

/// Parses generated lines and runs them in real shells. If a shell ran `sudo`, the parser must have found it,
/// or have said that it cannot tell.
fn compare_with_shells(lines: u32, seed: u64) {
    let dir = tempfile::tempdir().unwrap();
    let bin = dir.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    let marker = dir.path().join("ran");
    let stub = format!("#!/bin/sh\n: > '{}'\n", marker.display());
    std::fs::write(bin.join("sudo"), stub).unwrap();
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(bin.join("sudo"), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink("/bin/sh", bin.join("sh")).unwrap();
    let shells: Vec<&str> =
        ["/bin/sh", "/bin/bash"].into_iter().filter(|shell| std::path::Path::new(shell).exists()).collect();
    let mut random = seed;
    let mut pick = |most: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % most
    };
    let [tool, _] = tools();
    let (mut ran_it, rights) = (0, rights("cmd", false));
    for _ in 0..lines {
        let mut line = String::new();
        for _ in 0..2 + pick(9) {
            line.push_str(PARTS[pick(PARTS.len())]);
            line.push_str(if pick(2) == 0 { " " } else { "" });
        }
        let came = becomes(&rights, &*tool, &json!({ "cmd": line }).to_string());
        if came != "documented" {
            continue;
        }
        for shell in &shells {
            let work = tempfile::tempdir_in(dir.path()).unwrap();
            let mut command = Command::new(shell);
            command.arg("-c").arg(&line).current_dir(work.path()).env_clear().env("PATH", &bin);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let mut child = command.spawn().unwrap();
            child.wait().unwrap();
            ran_it += 1;
            assert!(!marker.exists(), "{shell} ran it, and nobody knew: {line:?}");
        }
    }
    assert!(ran_it > lines / 20, "too few lines were let through to tell anything: {ran_it}");
}

#[test]
fn what_real_shells_run_was_known_before() {
    compare_with_shells(1500, 7);
}

#[test]
#[ignore = "long: ./test --all"]
fn long_what_real_shells_run_was_known_before() {
    (0..10).for_each(|seed| compare_with_shells(5000, seed));
}
