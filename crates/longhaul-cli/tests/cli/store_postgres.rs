//! The commands on a PostgreSQL database, as on a file.

use std::process::Command;
use std::time::{Duration, Instant};

use longhaul::testing::TestPostgres;
use serde_json::{Value, json};

use crate::kit::{Kit, Ran, Running, TIMEOUT};
use crate::mcp_wire::McpWire;

/// A server's schema, and a place to work in.
struct Shared {
    kit: Kit,
    url: String,
}

impl Shared {
    /// `None` if there is no PostgreSQL here.
    fn new(play: &str) -> Option<Shared> {
        let server = TestPostgres::shared()?;
        let kit = Kit::new();
        kit.plays("team.yaml", TEAM, play);
        let shared = Shared { kit, url: server.url_over(server.port(), &server.fresh_schema()) };
        shared.run(&["store", "migrate"]).ended(0);
        Some(shared)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.kit.command(args);
        command.env("LONGHAUL_LEASE", "1.5");
        self.set(&mut command);
        command
    }

    /// The store, and a home where the lock files of workers are.
    fn set(&self, command: &mut Command) {
        command.env("LONGHAUL_STORE", &self.url).env("XDG_DATA_HOME", self.kit.data.path().join("home"));
    }

    #[track_caller]
    fn run(&self, args: &[&str]) -> Ran {
        Ran::from(self.command(args).output().unwrap())
    }

    /// Ends the background process with this file.
    fn end_process(&self, pid_file: &std::path::Path) {
        let pid = std::fs::read_to_string(pid_file).unwrap();
        let pid = nix::unistd::Pid::from_raw(pid.trim().parse().unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::SIGTERM).unwrap();
    }

    fn tasks(&self) -> Vec<Value> {
        self.run(&["tasks", "--all", "--json"]).json()
    }

    #[track_caller]
    fn until(&self, what: &str, holds: impl Fn(&[Value]) -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        while !holds(&self.tasks()) {
            assert!(Instant::now() < deadline, "waited in vain for: {what}: {:?}", self.tasks());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Waits until the tool of `SLOW` runs, and returns the file that it writes to.
    #[track_caller]
    fn until_ran(&self) -> std::path::PathBuf {
        let ran = self.kit.ground.path().join("ran.txt");
        let deadline = Instant::now() + TIMEOUT;
        while !ran.exists() {
            assert!(Instant::now() < deadline, "the tool does not run");
            std::thread::sleep(Duration::from_millis(20));
        }
        ran
    }

    /// Starts `longhaul serve` with this data directory, as on the machine of this name. Returns it, and its URL.
    fn serve(&self, data: &std::path::Path, host: &str, lease: &str) -> (Running, String) {
        let args = ["serve", "--json", "--trust", "--team", "team.yaml", "--listen", "127.0.0.1:0"];
        let mut command = self.kit.command_at(data, &args);
        command.env("LONGHAUL_LEASE", lease).env("LONGHAUL_HOST", host);
        self.set(&mut command);
        let mut server = self.kit.started(command);
        let line: Value = serde_json::from_str(&server.until(|line| line.starts_with('{'))).unwrap();
        (server, line["url"].as_str().unwrap().to_owned())
    }

    /// Submits a task to a server.
    #[track_caller]
    fn submit(&self, url: &str, data: &std::path::Path, text: &str) {
        let token = std::fs::read_to_string(data.join("access/token")).unwrap();
        let auth = format!("Authorization: Bearer {}", token.trim());
        let body = format!("{{\"task\": \"{text}\"}}");
        let curl = Command::new("curl")
            .args(["-sS", "--fail-with-body", "--noproxy", "*", "-d", &body])
            .args(["-H", &auth, "-H", "Content-Type: application/json"])
            .arg(format!("{url}/api/v1/tasks"))
            .output()
            .unwrap();
        assert!(curl.status.success(), "{}", String::from_utf8_lossy(&[curl.stdout, curl.stderr].concat()));
    }

    fn id(&self) -> String {
        self.tasks().last().unwrap()["id"].as_str().unwrap().to_owned()
    }
}

fn is(status: &str) -> impl Fn(&[Value]) -> bool + '_ {
    move |tasks| tasks.last().is_some_and(|task| task["status"] == status)
}

const TEAM: &str = "agents: {root: {model: play, toolsets: [{type: shell}]}}\n";
const SAYS: &str = "agents: {root: {turns: [{text: 'Here I am.'}], otherwise: {text: Again.}}}";
const ASKS: &str = "agents: {root: {turns: [{calls: [{tool: shell, arguments: {cmd: 'echo ran >> ran.txt'}}]}, {text: Done.}]}}";
const SLOW: &str = "agents: {root: {turns: [{calls: [{tool: shell, arguments: {cmd: 'echo ran >> ran.txt; sleep 60', timeout: 90}}]}, {text: Done.}]}}";

#[test]
fn a_run_is_watched_continued_kept_and_deleted_as_on_a_file() {
    let Some(shared) = Shared::new(SAYS) else { return };
    assert_eq!(shared.run(&["run", "team.yaml", "Go."]).ended(0).out, "Here I am.\n");
    assert!(!shared.kit.database().exists(), "nothing is kept in the data directory");
    let id = shared.id();
    for args in
        [&["show", &id][..], &["logs", &id], &["export", &id], &["wait", &id], &["tasks"], &["doctor"]]
    {
        let ran = shared.run(args).ended(0);
        assert!(
            !ran.out.contains(TestPostgres::PASSWORD) && !ran.err.contains(TestPostgres::PASSWORD),
            "{ran:?}"
        );
    }
    assert!(shared.run(&["doctor"]).ended(0).out.contains("1 task, 0 open"));
    // In the background, and watched from elsewhere.
    let ran = shared.run(&["run", "team.yaml", "Go on.", "--detach", "--json"]).ended(0);
    let detached = ran.json()[0]["task"].as_str().unwrap().to_owned();
    assert_eq!(shared.run(&["attach", &detached]).ended(0).out, "Here I am.\n");
    // A letter to a task that has ended continues it.
    shared.run(&["send", &id, "And?"]).ended(0);
    shared.until("the continuation", |tasks| {
        tasks.len() == 3 && tasks.iter().all(|t| t["status"] == "completed")
    });
    shared.run(&["prune", "--older-than", "0s", "--force", "--vacuum"]).ended(0);
    assert!(shared.tasks().is_empty());
}

#[test]
fn questions_stops_and_retries_reach_a_background_process() {
    let Some(shared) = Shared::new(ASKS) else { return };
    shared.run(&["run", "team.yaml", "Go.", "--detach"]).ended(0);
    shared.until("a question", |tasks| {
        tasks.last().is_some_and(|task| !task["asked"].as_array().unwrap().is_empty())
    });
    let id = shared.id();
    shared.run(&["answer", &id, "yes"]).ended(0);
    shared.until("the end", is("completed"));
    assert_eq!(std::fs::read_to_string(shared.kit.ground.path().join("ran.txt")).unwrap(), "ran\n");
    shared.run(&["run", "team.yaml", "Again.", "--detach"]).ended(0);
    shared.until("another question", |tasks| {
        tasks.len() == 2 && !tasks[1]["asked"].as_array().unwrap().is_empty()
    });
    let second = shared.id();
    shared.run(&["stop", &second]).ended(0);
    shared.until("the stop", is("cancelled"));
    shared.run(&["retry", &second]).ended(0);
    shared.until("the retry", |tasks| tasks.len() == 3 && !tasks[2]["asked"].as_array().unwrap().is_empty());
    shared.run(&["stop", &shared.id()]).ended(0);
    shared.until("the end of the retry", is("cancelled"));
}

#[test]
fn what_a_killed_process_left_goes_on_here_and_on_no_other_machine() {
    let Some(shared) = Shared::new(SLOW) else { return };
    // Its lease outlives the test: only its lock file can tell that it is dead.
    let mut command = shared.command(&["run", "team.yaml", "--yolo", "Go."]);
    command.env("LONGHAUL_LEASE", "3600");
    let running = shared.kit.started(command);
    let ran = shared.until_ran();
    running.murder();
    let id = shared.id();
    // Another machine leaves it alone, and says what it waits for.
    let elsewhere =
        |args: &[&str]| Ran::from(shared.command(args).env("LONGHAUL_HOST", "elsewhere").output().unwrap());
    let refused = elsewhere(&["resume", &id]);
    assert!(!refused.status.success() && refused.err.contains("directory of the machine"), "{refused:?}");
    let resumed = shared.run(&["resume", &id]).ended(0);
    assert!(resumed.out.contains("Done."), "{resumed:?}");
    assert_eq!(std::fs::read_to_string(&ran).unwrap(), "ran\n", "the call was not repeated");
}

#[test]
fn a_pending_task_says_which_machine_it_waits_for() {
    let Some(shared) = Shared::new(ASKS) else { return };
    let mut command = shared.command(&["run", "team.yaml", "--detach", "Go."]);
    Ran::from(command.env("LONGHAUL_HOST", "there").output().unwrap()).ended(0);
    shared.until("a question", |tasks| {
        tasks.last().is_some_and(|task| !task["asked"].as_array().unwrap().is_empty())
    });
    let id = shared.id();
    // Its process gives it back, and no other machine may take it.
    shared.end_process(&shared.kit.data.path().join(format!("carriers/{id}.pid")));
    shared.until("the release", is("pending"));
    let shown = shared.run(&["show", &id]).ended(0);
    assert!(shown.out.contains("the machine 'there'"), "{}", shown.out);
    assert!(shared.run(&["tasks"]).ended(0).out.contains("1 task waits for the machine 'there'"));
    let refused = shared.run(&["resume", &id]);
    assert!(!refused.status.success() && refused.err.contains("'there'"), "{refused:?}");
    let mut command = shared.command(&["show", &id]);
    let there = Ran::from(command.env("LONGHAUL_HOST", "there").output().unwrap()).ended(0);
    assert!(!there.out.contains("the machine 'there'"), "{}", there.out);
    // Whatever needs no directory works from anywhere.
    shared.run(&["stop", &id]).ended(0);
    shared.until("the stop", is("cancelled"));
}

/// The tasks of `mcp` work in a directory of its machine, too.
#[test]
fn a_task_of_an_mcp_client_stays_on_its_machine() {
    let Some(shared) = Shared::new(ASKS) else { return };
    let mut command = shared.command(&["mcp", "--team", "team.yaml", "--trust"]);
    command.env("LONGHAUL_HOST", "there").env("LONGHAUL_LINGER", "1s");
    let mut client = McpWire::spawn(command, "2025-06-18", json!({}));
    client.call("run_background_agent", json!({ "agent": "root", "task": "Go." }));
    shared.until("a question", |tasks| {
        tasks.last().is_some_and(|task| !task["asked"].as_array().unwrap().is_empty())
    });
    let id = shared.id();
    drop(client);
    let is_pid = |path: &std::path::PathBuf| path.extension().is_some_and(|extension| extension == "pid");
    let carriers = std::fs::read_dir(shared.kit.data.path().join("carriers")).unwrap();
    let mut pids = carriers.map(|file| file.unwrap().path()).filter(is_pid);
    shared.end_process(&pids.next().expect("a background process runs it"));
    shared.until("the release", is("pending"));
    let refused = shared.run(&["resume", &id]);
    assert!(!refused.status.success() && refused.err.contains("'there'"), "{refused:?}");
    shared.run(&["stop", &id]).ended(0);
    shared.until("the stop", is("cancelled"));
}

#[test]
fn servers_with_the_same_team_share_its_tasks() {
    let Some(shared) = Shared::new(SAYS) else { return };
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (one, url) = shared.serve(here.path(), "one", "1.5");
    let (two, _) = shared.serve(there.path(), "two", "1.5");
    shared.submit(&url, here.path(), "first");
    shared.until("the first task", is("completed"));
    for nth in 0..20 {
        shared.submit(&url, here.path(), &format!("task {nth}"));
    }
    // The one that took them is gone: the other, on another machine, ends them.
    one.murder();
    shared.until("all tasks", |tasks| {
        tasks.len() == 21 && tasks.iter().all(|task| task["status"] == "completed")
    });
    two.signal(nix::sys::signal::Signal::SIGTERM);
    two.end().ended(0);
}

/// On one machine, the lock file of a dead process tells the others: its lease outlives the test.
#[test]
fn a_server_takes_up_the_tasks_of_one_that_was_killed_beside_it() {
    let Some(shared) = Shared::new(SLOW) else { return };
    shared.kit.plays("team.yaml", &format!("permissions: {{allow: [shell]}}\n{TEAM}"), SLOW);
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (one, url) = shared.serve(first.path(), "here", "3600");
    shared.submit(&url, first.path(), "Go.");
    let ran = shared.until_ran();
    let (two, _) = shared.serve(second.path(), "here", "3600");
    one.murder();
    shared.until("the end", is("completed"));
    assert_eq!(std::fs::read_to_string(&ran).unwrap(), "ran\n", "the call was not repeated");
    two.signal(nix::sys::signal::Signal::SIGTERM);
    two.end().ended(0);
}

#[test]
fn a_store_is_copied_to_postgresql_and_back() {
    let Some(shared) = Shared::new(SAYS) else { return };
    let kit = &shared.kit;
    kit.run(&["run", "team.yaml", "Go."]).ended(0);
    kit.run(&["demo", "--pace", "0"]).ended(0);
    let before = kit.run(&["tasks", "--all", "--json"]).ended(0).out;
    let file = kit.database();
    shared.run(&["store", "copy", file.to_str().unwrap(), "-"]).ended(0);
    assert_eq!(shared.run(&["tasks", "--all", "--json"]).ended(0).out, before);
    let back = kit.data.path().join("back.db");
    shared.run(&["store", "copy", "-", back.to_str().unwrap()]).ended(0);
    let again = kit.run(&["--store", back.to_str().unwrap(), "tasks", "--all", "--json"]).ended(0).out;
    assert_eq!(again, before);
    for (state, _) in kit.journals() {
        let id = state.id.to_string();
        let logs = kit.run(&["logs", &id, "--json"]).ended(0).out;
        assert_eq!(shared.run(&["logs", &id, "--json"]).ended(0).out, logs);
    }
    shared
        .run(&["store", "copy", file.to_str().unwrap(), "-"])
        .complains(1, &["has tasks", "stays as it is"]);
}

#[test]
fn what_is_wrong_with_the_database_is_said_in_a_sentence_and_a_hint() {
    let Some(server) = TestPostgres::shared() else { return };
    let kit = Kit::new();
    let schema = server.fresh_schema();
    let wrong = |url: &str, words: &[&str]| {
        let ran = Ran::from(kit.command(&["tasks"]).env("LONGHAUL_STORE", url).output().unwrap());
        assert!(!ran.err.contains(TestPostgres::PASSWORD), "{}", ran.err);
        ran.complains(5, words);
    };
    let good = server.url_over(server.port(), &schema);
    wrong(&good, &["longhaul store migrate"]);
    wrong(&good.replace(TestPostgres::PASSWORD, "guess"), &["password"]);
    wrong(&good.replace("/postgres?", "/nowhere?"), &["no database"]);
    wrong(&server.url_over(1, &schema), &["cannot be reached"]);
}
