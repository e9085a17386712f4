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
        kit.plays("team.yaml", "agents: {root: {model: play, toolsets: [{type: shell}]}}\n", play);
        let shared = Shared { kit, url: server.url_over(server.port(), &server.fresh_schema()) };
        shared.run(&["store", "migrate"]).ended(0);
        Some(shared)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.kit.command(args);
        command.env("LONGHAUL_STORE", &self.url).env("LONGHAUL_LEASE", "1.5");
        command
    }

    #[track_caller]
    fn run(&self, args: &[&str]) -> Ran {
        Ran::from(self.command(args).output().unwrap())
    }

    fn start(&self, args: &[&str]) -> Running {
        self.kit.started(self.command(args))
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

    fn id(&self) -> String {
        self.tasks().last().unwrap()["id"].as_str().unwrap().to_owned()
    }
}

fn is(status: &str) -> impl Fn(&[Value]) -> bool + '_ {
    move |tasks| tasks.last().is_some_and(|task| task["status"] == status)
}

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
    let running = shared.start(&["run", "team.yaml", "--yolo", "Go."]);
    let ran = shared.kit.ground.path().join("ran.txt");
    let deadline = Instant::now() + TIMEOUT;
    while !ran.exists() {
        assert!(Instant::now() < deadline, "the tool does not run");
        std::thread::sleep(Duration::from_millis(20));
    }
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
    let pid = std::fs::read_to_string(shared.kit.data.path().join(format!("carriers/{id}.pid"))).unwrap();
    // Its process gives it back, and no other machine may take it.
    let pid = nix::unistd::Pid::from_raw(pid.trim().parse().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::SIGTERM).unwrap();
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
    let refused = shared.run(&["resume", &id]);
    assert!(!refused.status.success() && refused.err.contains("'there'"), "{refused:?}");
    shared.run(&["stop", &id]).ended(0);
    shared.until("the stop", is("cancelled"));
}

#[test]
fn servers_with_the_same_team_share_its_tasks() {
    let Some(shared) = Shared::new(SAYS) else { return };
    let start = |name: &str| {
        let data = tempfile::tempdir().unwrap();
        let mut command = shared.kit.command_at(
            data.path(),
            &["serve", "--json", "--trust", "--team", "team.yaml", "--listen", "127.0.0.1:0"],
        );
        command.env("LONGHAUL_STORE", &shared.url).env("LONGHAUL_LEASE", "1.5").env("LONGHAUL_HOST", name);
        let mut server = shared.kit.started(command);
        let line: Value = serde_json::from_str(&server.until(|line| line.starts_with('{'))).unwrap();
        (server, line["url"].as_str().unwrap().to_owned(), data)
    };
    let (one, url, data) = start("one");
    let (two, _, _data) = start("two");
    let token = std::fs::read_to_string(data.path().join("access/token")).unwrap();
    let submit = |text: &str| {
        let auth = format!("Authorization: Bearer {}", token.trim());
        let body = format!("{{\"task\": \"{text}\"}}");
        let curl = Command::new("curl")
            .args([
                "-sS",
                "--fail-with-body",
                "--noproxy",
                "*",
                "-H",
                &auth,
                "-H",
                "Content-Type: application/json",
                "-d",
                &body,
            ])
            .arg(format!("{url}/api/v1/tasks"))
            .output()
            .unwrap();
        assert!(curl.status.success(), "{}", String::from_utf8_lossy(&[curl.stdout, curl.stderr].concat()));
    };
    submit("first");
    shared.until("the first task", is("completed"));
    for nth in 0..20 {
        submit(&format!("task {nth}"));
    }
    // The one that took them is gone: the other, on another machine, ends them.
    one.murder();
    shared.until("all tasks", |tasks| {
        tasks.len() == 21 && tasks.iter().all(|task| task["status"] == "completed")
    });
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
