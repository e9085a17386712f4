//! Where tasks are kept: `--store`, `LONGHAUL_STORE`, and copies from one store into another.

use std::fs;

use longhaul::Status;

use crate::kit::Kit;

const SAYS: &str = "agents: {root: {turns: [{text: 'Here I am.'}]}}";
/// In the address of a store: nobody else may see it.
const MARK: &str = "MARKED-5ad0";

fn kit() -> Kit {
    let kit = Kit::new();
    kit.plays("team.yaml", "agents: {root: {model: play}}\n", SAYS);
    kit
}

#[test]
fn a_store_is_named_by_a_flag_or_by_the_environment() {
    let kit = kit();
    let file = kit.data.path().join("other.db");
    let other = file.to_str().unwrap();
    kit.run(&["--store", other, "run", "team.yaml", "Go."]).ended(0);
    assert!(file.is_file() && !kit.database().exists(), "it is kept there, and nowhere else");
    let named = kit.run(&["--store", other, "tasks", "--json"]).ended(0);
    assert_eq!(named.json().len(), 1);
    let mut command = kit.command(&["tasks", "--json"]);
    let by_variable = command.env("LONGHAUL_STORE", other).output().unwrap();
    assert_eq!(String::from_utf8(by_variable.stdout).unwrap(), named.out);
    let flag_first =
        kit.command(&["--store", other, "tasks", "--json"]).env("LONGHAUL_STORE", "x.db").output();
    assert_eq!(String::from_utf8(flag_first.unwrap().stdout).unwrap(), named.out);
    assert!(kit.run(&["tasks"]).ended(0).out.contains("no tasks yet"));
    // What a run suggests finds the same store again.
    let id = named.json()[0]["id"].as_str().unwrap().to_owned();
    let hint = kit.run(&["--store", other, "send", &id, "And?"]).ended(0);
    let (out, err) = (hint.out, hint.err);
    assert!(format!("{out}{err}").contains(&format!("longhaul --store {other} ")), "{out}{err}");
    kit.run(&["--store", other, "wait", "--timeout", "60s", &id]);
}

#[test]
fn a_url_with_a_password_is_refused_and_not_repeated() {
    let kit = kit();
    let url = format!("postgres://me:{MARK}@127.0.0.1:1/tasks");
    let refused = kit.run(&["--store", &url, "tasks"]).complains(2, &["password", "LONGHAUL_STORE"]);
    assert!(!refused.err.contains(MARK), "{}", refused.err);
    for address in ["mysql://h/x", "@/no/such/file"] {
        kit.run(&["--store", address, "tasks"]).ended(2);
    }
    // Whatever is wrong with a server, the password is not said.
    for args in [&["tasks"][..], &["doctor"], &["run", "team.yaml", "Go."], &["store", "migrate"]] {
        let mut command = kit.command(args);
        let ran = command.env("LONGHAUL_STORE", &url).env("RUST_LOG", "trace").output().unwrap();
        let text = [ran.stdout, ran.stderr].concat();
        assert!(!ran.status.success(), "{args:?}");
        assert!(
            !String::from_utf8_lossy(&text).contains(MARK),
            "{args:?}: {}",
            String::from_utf8_lossy(&text)
        );
    }
    for (path, bytes) in kit.left() {
        assert!(!String::from_utf8_lossy(&bytes).contains(MARK), "{}", path.display());
    }
}

#[test]
#[cfg(not(feature = "postgres"))]
fn a_program_without_postgresql_says_so() {
    let kit = kit();
    kit.run(&["--store", "postgres://127.0.0.1:1/x", "tasks"]).complains(5, &["without PostgreSQL"]);
}

/// Every program that a team starts: none of them gets the address of the store.
#[test]
fn no_program_that_a_team_starts_inherits_the_store() {
    let kit = Kit::new();
    let team = "agents:\n  root:\n    model: play\n    sub_agents: [foreign]\n    \
                hooks:\n      task_start: [{command: 'env > hook.env'}]\n    \
                toolsets:\n      - {type: shell}\n      - {type: script, shell: {show: {cmd: 'env > script.env'}}}\n      \
                - {type: mcp, command: sh, args: ['-c', 'env > mcp.env; cat']}\n  \
                foreign:\n    acp: {command: [/bin/sh, '-c', 'env > acp.env; cat']}\n";
    let play = "agents:\n  root:\n    turns:\n      - calls:\n          - { tool: shell, arguments: { cmd: 'env > shell.env' } }\n          \
                - { tool: run_background_job, arguments: { cmd: 'env > job.env' } }\n          - { tool: show, arguments: {} }\n          \
                - { tool: transfer_task, arguments: { agent: foreign, task: x } }\n      - text: done\n";
    kit.plays("team.yaml", team, play);
    let file = kit.data.path().join(format!("{MARK}.db"));
    let mut command = kit.command(&["run", "team.yaml", "--yolo", "--trust", "--timeout", "50s", "go"]);
    command.env("LONGHAUL_STORE", &file);
    let ran = kit.started(command).end();
    assert!(file.is_file(), "{ran:?}");
    for name in ["hook", "shell", "job", "script", "mcp", "acp"] {
        let env = fs::read_to_string(kit.ground.path().join(format!("{name}.env")));
        let env = env.unwrap_or_else(|error| panic!("{name} did not run: {error}: {ran:?}"));
        assert!(env.contains("PATH="), "{name}: {env}");
        assert!(!env.contains("LONGHAUL_STORE") && !env.contains(MARK), "{name}: {env}");
    }
    // Nor can a team file ask for it.
    kit.plays(
        "asks.yaml",
        "agents: {root: {model: play, hooks: {task_start: [{command: 'true'}], env: {S: '${LONGHAUL_STORE}'}}}}\n",
        SAYS,
    );
    let mut command = kit.command(&["run", "asks.yaml", "--trust", "go"]);
    command.env("LONGHAUL_STORE", &file);
    let asked = kit.started(command).end();
    assert!(!asked.status.success() && asked.err.contains("LONGHAUL_STORE"), "{asked:?}");
    assert!(!asked.err.contains(MARK), "{asked:?}");
}

#[test]
fn a_store_is_copied_into_an_empty_one_and_back() {
    let kit = kit();
    kit.run(&["run", "team.yaml", "Go."]).ended(0);
    kit.run(&["demo", "--pace", "0"]).ended(0);
    let before = kit.run(&["tasks", "--all", "--json"]).ended(0).out;
    let (there, back) = (kit.data.path().join("there.db"), kit.data.path().join("back.db"));
    let (there, back) = (there.to_str().unwrap(), back.to_str().unwrap());
    let told = kit.run(&["store", "copy", "-", there]).ended(0);
    assert!(told.out.contains("tasks with") && told.out.contains("there.db"), "{}", told.out);
    kit.run(&["store", "copy", there, back]).ended(0);
    for store in [there, back] {
        assert_eq!(kit.run(&["--store", store, "tasks", "--all", "--json"]).ended(0).out, before);
        kit.run(&["--store", store, "doctor", "--full"]).ended(0);
    }
    let logs = |store: &str, id: &str| kit.run(&["--store", store, "logs", id, "--json"]).ended(0).out;
    for (state, _) in kit.journals() {
        let id = state.id.to_string();
        assert_eq!(logs(back, &id), kit.run(&["logs", &id, "--json"]).ended(0).out);
        assert_eq!(state.status, Status::Completed);
    }
    kit.run(&["store", "copy", "-", there]).complains(1, &["has tasks", "stays as it is"]);
    kit.run(&["store", "copy", there, there]).ended(2);
    kit.run(&["store", "copy", "no-such.db", "new.db"]).ended(5);
    kit.run(&["store", "migrate"]).ended(0);
}
