//! A database that was harmed, taken away or left open to others: it is said, and what is whole goes on.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use longhaul::entry::Entry;
use longhaul::{Status, TaskId};

use crate::kit::{Kit, Ran, Running};

/// A team that waits in a command, and then tries what a rule denies.
const TEAM: &str = "
permissions:
  allow: [shell]
  deny: [\"shell:cmd=touch denied*\"]
agents:
  root:
    model: play
    toolsets: [{ type: shell }]
";

const PLAY: &str = "
agents:
  root:
    turns:
      - calls: [{ tool: shell, arguments: { cmd: sleep 300 } }]
      - calls: [{ tool: shell, arguments: { cmd: touch denied.txt } }]
      - text: \"WENT ON with {{ task }}\"
";

/// Runs a team until it is in its command, and kills it.
fn left(kit: &Kit, file: &str, prompt: &str) -> TaskId {
    kit.plays(file, &format!("# {file}{TEAM}"), PLAY);
    let running = kit.start(&["run", file, prompt]);
    let task = kit.until("the command", |journals| {
        let (state, journal) = journals.iter().find(|(state, _)| state.headline == prompt)?;
        journal.iter().any(|record| matches!(record.entry, Entry::Called { .. })).then_some(state.id)
    });
    running.murder();
    task
}

/// Does something to the database with SQL.
fn sql(kit: &Kit, sql: &str) {
    let changed = rusqlite::Connection::open(kit.database()).unwrap().execute(sql, []).unwrap();
    assert!(changed > 0, "{sql}");
}

fn status(kit: &Kit, task: TaskId) -> Status {
    kit.client(async |longhaul| longhaul.state(task).await.unwrap().status)
}

#[test]
fn a_team_that_was_changed_in_the_database_is_not_run_and_others_are() {
    let kit = Kit::new();
    let harmed = left(&kit, "harmed.yaml", "Mine.");
    let whole = left(&kit, "whole.yaml", "Yours.");
    // One character, and a deny rule denies something else.
    sql(
        &kit,
        "UPDATE kept SET bytes = CAST(replace(CAST(bytes AS TEXT), 'touch denied*', 'touch demied*') AS BLOB) \
               WHERE CAST(bytes AS TEXT) LIKE '%harmed.yaml%'",
    );
    let resumed = kit.run(&["resume"]).ended(5);
    let named = resumed.err.lines().find(|line| line.contains(&harmed.to_string()));
    let named = named.unwrap_or_else(|| panic!("{}", resumed.err));
    assert!(named.contains("cannot be loaded") && named.contains("digest"), "{named}");
    assert!(resumed.out.contains("WENT ON with Yours."), "{}", resumed.out);
    assert!(!kit.ground.path().join("denied.txt").exists(), "what is denied was run");
    assert_eq!((status(&kit, whole), status(&kit, harmed)), (Status::Completed, Status::Pending));
    kit.run(&["resume", &harmed.to_string()]).ended(5);
    let doctor = kit.run(&["doctor"]).ended(1);
    assert!(doctor.out.contains("is damaged") && doctor.out.contains(&harmed.to_string()), "{}", doctor.out);
}

#[test]
fn a_task_whose_row_is_damaged_is_shown_and_carried_on_as_its_journal_says() {
    let harms = [
        "UPDATE tasks SET team = 'file:0000'",
        "UPDATE tasks SET status = 2, worker = NULL",
        "UPDATE tasks SET head = CAST(replace(CAST(head AS TEXT), '\"status\":\"running\"', '\"status\":\"pending\"') AS BLOB)",
        "UPDATE tasks SET status = 'x', root = x'00'",
    ];
    for harm in harms {
        let kit = Kit::new();
        let task = left(&kit, "team.yaml", "Mine.");
        sql(&kit, harm);
        let doctor = kit.run(&["doctor"]).ended(1);
        assert!(doctor.out.contains("its row is damaged"), "{harm}: {}", doctor.out);
        let tasks = kit.run(&["tasks"]).ended(0);
        assert!(
            tasks.out.contains("interrupted") && tasks.out.contains(&task.to_string()),
            "{harm}: {}",
            tasks.out
        );
        let resumed = kit.run(&["resume"]).ended(0);
        assert!(resumed.out.contains("WENT ON with Mine."), "{harm}: {}", resumed.out);
    }
}

#[test]
fn a_task_whose_journal_is_damaged_is_named_and_others_go_on() {
    let harms = [
        "UPDATE journal SET entry = CAST(replace(CAST(entry AS TEXT), 'sleep 300', 'sleep 301') AS BLOB) \
         WHERE task = 1",
        "UPDATE journal SET entry = x'7b7d' WHERE task = 1 AND seq = 1",
        "UPDATE journal SET at = 'never' WHERE task = 1 AND seq = 2",
        "DELETE FROM journal WHERE task = 1 AND seq = 3",
        "DELETE FROM journal WHERE task = 1 AND seq = 4",
    ];
    for harm in harms {
        let kit = Kit::new();
        let harmed = left(&kit, "harmed.yaml", "Mine.").to_string();
        left(&kit, "whole.yaml", "Yours.");
        sql(&kit, harm);
        let resumed = kit.run(&["resume"]).ended(5);
        let named = resumed.err.lines().find(|line| line.contains(&harmed));
        assert!(named.is_some_and(|line| line.contains("cannot be loaded")), "{harm}: {}", resumed.err);
        assert!(resumed.out.contains("WENT ON with Yours."), "{harm}: {}", resumed.out);
        let doctor = kit.run(&["doctor"]).ended(1);
        assert!(doctor.out.contains(&harmed) && doctor.out.contains("damaged"), "{harm}: {}", doctor.out);
        kit.run(&["tasks"]);
        // It can be ended, so that what waits for it need not.
        kit.run(&["stop", &harmed]);
    }
}

#[test]
fn a_task_whose_team_is_missing_is_named() {
    let kit = Kit::new();
    let task = left(&kit, "team.yaml", "Mine.").to_string();
    sql(&kit, "DELETE FROM kept");
    let resumed = kit.run(&["resume"]).ended(5);
    assert!(resumed.err.contains(&task) && resumed.err.contains("is not in the database"), "{}", resumed.err);
    let doctor = kit.run(&["doctor"]).ended(1);
    assert!(doctor.out.contains("its team") && doctor.out.contains("is missing"), "{}", doctor.out);
}

/// A run that takes some seconds, and has begun.
fn begun(kit: &Kit) -> Running {
    kit.plays(
        "slow.yaml",
        "agents: { root: { model: play, toolsets: [{ type: shell }] } }\npermissions: { allow: [shell] }\n",
        "agents: { root: { turns: [{ calls: [{ tool: shell, arguments: { cmd: sleep 2 } }] }, { text: THE ANSWER }] } }",
    );
    let running = kit.start(&["run", "slow.yaml", "Go."]);
    kit.until("the command", |journals| {
        let (_, journal) = journals.first()?;
        journal.iter().any(|record| matches!(record.entry, Entry::Called { .. })).then_some(())
    });
    running
}

fn told(ran: Ran, words: &str) {
    let ran = ran.ended(5);
    assert!(ran.out.contains("THE ANSWER"), "the answer is still printed: {ran:?}");
    assert!(ran.err.contains("warning: ") && ran.err.contains(words), "{}", ran.err);
    assert!(ran.err.contains("error: ") && ran.err.contains("longhaul.db"), "{}", ran.err);
}

#[test]
fn a_database_that_is_deleted_during_a_run_is_told_of_and_the_answer_is_printed() {
    let kit = Kit::new();
    let running = begun(&kit);
    fs::remove_file(kit.database()).unwrap();
    told(running.end(), "was deleted or moved away");
}

#[test]
fn a_database_that_is_replaced_or_loses_its_log_during_a_run_is_told_of() {
    let kit = Kit::new();
    let running = begun(&kit);
    let other = kit.data.path().join("other");
    fs::copy(kit.database(), &other).unwrap();
    fs::rename(other, kit.database()).unwrap();
    told(running.end(), "was replaced");
    let kit = Kit::new();
    let running = begun(&kit);
    fs::remove_file(kit.data.path().join("longhaul.db-wal")).unwrap();
    told(running.end(), "has lost its log");
    let kit = Kit::new();
    let running = begun(&kit);
    fs::remove_dir_all(kit.data.path()).unwrap();
    told(running.end(), "was deleted or moved away");
}

/// All files and directories below one that others have rights to.
fn open_to_others(directory: &Path, open: &mut Vec<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let Ok(is) = path.metadata() else { continue };
        if is.permissions().mode() & 0o077 != 0 {
            open.push(format!("{} {:o}", path.display(), is.permissions().mode()));
        }
        if path.is_dir() {
            open_to_others(&path, open);
        }
    }
}

#[test]
fn whatever_the_umask_only_the_owner_reads_what_is_stored() {
    let kit = Kit::new();
    kit.plays(
        "team.yaml",
        "agents: { root: { model: play, toolsets: [{ type: shell }, { type: memory }] } }\npermissions: { allow: [shell, add_memory] }\n",
        "agents: { root: { turns: [{ calls: [{ tool: add_memory, arguments: { memory: blue } }] }, { calls: [{ tool: shell, arguments: { cmd: sleep 300 } }] }, { text: DONE }] } }",
    );
    let data = kit.data.path().join("data");
    let command = kit.command_at(&data, &["run", "team.yaml", "Go."]);
    let mut shell = Command::new("sh");
    shell.args(["-c", "umask 0; exec \"$0\" \"$@\""]).arg(command.get_program()).args(command.get_args());
    shell
        .current_dir(kit.ground.path())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let running = kit.started(shell);
    let deadline = std::time::Instant::now() + crate::kit::TIMEOUT;
    while !data.join("memory").exists() || fs::read_dir(data.join("memory")).unwrap().next().is_none() {
        assert!(std::time::Instant::now() < deadline, "nothing was remembered");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let mut open = Vec::new();
    open_to_others(kit.data.path(), &mut open);
    assert_eq!(open, Vec::<String>::new());
    assert!(data.join("carriers").exists() && data.join("longhaul.db-workers").exists());
    running.murder();
}

#[test]
fn six_retries_at_once_make_one_task() {
    let kit = Kit::new();
    kit.plays(
        "team.yaml",
        "permissions: { allow: [shell] }\nagents: { root: { model: play, toolsets: [{ type: shell }] } }\n",
        r#"
agents:
  root:
    turns:
      - calls: [{ tool: shell, arguments: { cmd: "until [ -e go ]; do sleep 0.05; done", timeout: 300 } }]
      - { errors: [{ status: 400 }], text: never }
"#,
    );
    kit.write("go", "");
    kit.run(&["run", "team.yaml", "Fail."]).ended(1);
    let failed = kit.journals()[0].0.id;
    for round in 1..3 {
        // No retry ends before all six have asked for one.
        fs::remove_file(kit.ground.path().join("go")).unwrap();
        let six: Vec<Running> = (0..6).map(|_| kit.start(&["retry", &failed.to_string()])).collect();
        let six: Vec<Ran> = six.into_iter().map(Running::end).collect();
        let made = six.iter().filter(|ran| ran.status.success()).count();
        assert_eq!((made, kit.journals().len()), (1, 1 + round), "{six:?}");
        let again = kit.journals().last().unwrap().0.id.to_string();
        for ran in six.iter().filter(|ran| !ran.status.success()) {
            assert_eq!(ran.status.code(), Some(1), "{ran:?}");
            assert!(ran.err.contains("is already being retried") && ran.err.contains(&again), "{}", ran.err);
        }
        // When it has ended, it may be tried once more.
        kit.write("go", "");
        kit.run(&["resume", &again]).ended(1);
    }
    let last = kit.journals().last().unwrap().0.id.to_string();
    kit.run(&["retry", &last]).ended(0);
}

/// A large database is looked at in a moment, as far as what matters most goes; that is said, and `--full` looks at all of it.
#[test]
fn the_doctor_says_what_it_has_not_looked_at_and_looks_at_it_when_asked() {
    use longhaul::entry::{Order, StopCause, StopRequest, Submission, TeamRef};
    use longhaul::id::TaskKey;
    use longhaul::store::{Batch, Fence};
    let kit = Kit::new();
    let open = left(&kit, "team.yaml", "Mine.");
    crate::kit::block_on(async {
        let store = kit.store();
        for n in 0..230 {
            let key = TaskKey::named(&format!("old {n}"));
            let id = key.candidate_ids().last().unwrap();
            let order = Order::new("root", format!("Old. {}", "text ".repeat(4000)));
            let submitted = Submission::root(id, key, order, TeamRef::Named("t".into()));
            let stop = StopRequest { cause: StopCause::Person, note: None };
            let batch = Batch::one(
                id,
                Fence::New,
                vec![Entry::Submitted(Box::new(submitted)), Entry::StopRequested(stop)],
            );
            store.append(batch).await.unwrap();
        }
    });
    let told = kit.run(&["doctor"]).ended(0).out;
    assert!(
        told.contains(
            "no damage found in open tasks and the newest 200 (`longhaul doctor --full` checks all)"
        ),
        "{told}"
    );
    let told = kit.run(&["doctor", "--full"]).ended(0).out;
    assert!(told.contains("no damage found") && !told.contains("--full"), "{told}");
    sql(&kit, "UPDATE journal SET entry = x'7b7d' WHERE task = 2 AND seq = 1");
    kit.run(&["doctor"]).ended(0);
    let told = kit.run(&["doctor", "--full"]).ended(1).out;
    assert!(told.contains("entry 1 of its journal"), "{told}");
    sql(&kit, "UPDATE journal SET entry = x'7b7d' WHERE task = 1 AND seq = 2");
    let told = kit.run(&["doctor"]).ended(1).out;
    assert!(told.contains(&open.to_string()) && told.contains("entry 2 of its journal"), "{told}");
}
