//! Databases that earlier versions of Longhaul wrote are opened, shown as what they are, and carried on.
//!
//! `tests/formats/README.md` says what they are and how they were made. A new format adds a directory there.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use longhaul::entry::{Entry, Outcome};
use longhaul::id::{CallId, Seq, TaskKey};
use longhaul::store::{SqliteStore, Store as _};
use serde_json::Value;

use crate::kit::{Kit, Ran, block_on};

/// Where the tasks of all these databases work: it is in their orders.
const GROUND: &str = "/tmp/longhaul-formats/ground";

/// What each task is, before anything is carried on: a word that `tasks --state` knows, and whether `--state open` has it.
const STANDS: [(&str, &str); 34] = [
    ("completed", "completed"),
    ("failed", "failed"),
    ("cut short", "completed"),
    ("kept", "completed"),
    ("handed over", "completed"),
    ("worktree kept", "completed"),
    ("worktree kept, below", "completed"),
    ("cancelled", "cancelled"),
    ("continued", "completed"),
    ("continuation", "completed"),
    ("continued again", "completed"),
    ("continuation, pending", "pending"),
    ("retried", "failed"),
    ("retry", "failed"),
    ("retried, too", "failed"),
    ("retry, pending", "pending"),
    ("session", "interrupted"),
    ("running", "interrupted"),
    ("streaming", "interrupted"),
    ("waits for tasks", "interrupted"),
    ("transfers", "interrupted"),
    ("waits for approval", "asks"),
    ("waits below", "interrupted"),
    ("waits for an answer", "asks"),
    ("waits for the provider", "interrupted"),
    ("remembers", "interrupted"),
    ("worktree", "interrupted"),
    ("worktree, below", "interrupted"),
    ("denied", "interrupted"),
    ("granted", "interrupted"),
    ("given back", "interrupted"),
    ("unread letter", "interrupted"),
    ("stopping", "stopping"),
    ("backgrounded", "interrupted"),
];

/// What each open task comes to: how it ends, and what is in its output.
const ENDS: [(&str, &str, &str); 19] = [
    ("continuation, pending", "completed", "CONTINUED Go on later."),
    ("retry, pending", "failed", "refused"),
    ("session", "completed", "NEXT And now?"),
    ("running", "completed", "WENT ON."),
    ("streaming", "completed", "STREAMED"),
    ("waits for tasks", "completed", "HEARD DONE quick, DONE slow"),
    ("transfers", "completed", "TOLD DONE slow"),
    ("waits for approval", "completed", "APPROVAL asked.txt"),
    ("waits below", "completed", "COLOUR"),
    ("waits for an answer", "completed", "blue"),
    ("waits for the provider", "completed", "PROVIDED"),
    ("remembers", "completed", "Buy paper"),
    ("worktree", "completed", "FOUND"),
    ("denied", "completed", "DENIED"),
    ("granted", "completed", "APPROVAL asked.txt"),
    ("given back", "completed", "green"),
    ("unread letter", "completed", "A letter that nobody has read."),
    ("stopping", "cancelled", ""),
    // What it said was not the last word: the end of what went on in the background woke it.
    ("backgrounded", "completed", "The script has ended."),
];

/// A database of an earlier format, copied to where it may be written to, and the ground of its tasks.
struct Old {
    kit: Kit,
    states: BTreeMap<String, String>,
    _ground: File,
}

/// The files beside a database by which others see that the processes which ran its tasks are dead.
fn leave_lock_files(database: &Path) {
    let beside = PathBuf::from(format!("{}-workers", database.display()));
    std::fs::create_dir_all(&beside).unwrap();
    let connection = rusqlite::Connection::open(database).unwrap();
    let mut workers = connection.prepare("SELECT id FROM workers").unwrap();
    for worker in workers.query_map([], |row| row.get::<_, String>(0)).unwrap() {
        File::create(beside.join(format!("{}.lock", worker.unwrap()))).unwrap();
    }
}

impl Old {
    fn open(format: &Path) -> Old {
        // Several checkouts may be tested on one machine.
        let lock = File::create("/tmp/longhaul-formats.lock").unwrap();
        lock.lock().unwrap();
        let _ = std::fs::remove_dir_all(GROUND);
        std::fs::create_dir_all(GROUND).unwrap();
        let kit = Kit::new();
        std::fs::copy(format.join("tasks.db"), kit.database()).unwrap();
        leave_lock_files(&kit.database());
        std::fs::copy(format.join("memory.db"), Path::new(GROUND).join("memory.db")).unwrap();
        let states = std::fs::read_to_string(format.join("states.json")).unwrap();
        let old = Old { kit, states: serde_json::from_str(&states).unwrap(), _ground: lock };
        old.repository();
        old
    }

    /// The repository as the tasks left it: what was written in the worktrees is there.
    fn repository(&self) {
        std::fs::write(Path::new(GROUND).join("README"), "The ground of the tasks.\n").unwrap();
        git(GROUND, &["init", "-q", "-b", "main"]);
        git(GROUND, &["add", "README"]);
        git(GROUND, &["commit", "-q", "-m", "The ground"]);
        for (task, file) in [("worktree kept, below", "ended.txt"), ("worktree, below", "stays.txt")] {
            let top = self.worktree(task);
            let branch = format!("longhaul/{}", top.file_name().unwrap().to_str().unwrap());
            git(GROUND, &["worktree", "add", "-q", "-b", &branch, top.to_str().unwrap(), "HEAD"]);
            std::fs::write(top.join(file), "kept").unwrap();
        }
    }

    /// The worktree of a task that the first call of another launched: named after its key, which derives from that.
    fn worktree(&self, task: &str) -> PathBuf {
        let parent = self.id(task.strip_suffix(", below").unwrap()).parse().unwrap();
        let name = TaskKey::for_child(parent, CallId { turn: 1, index: 0 }).candidate_ids().last().unwrap();
        Path::new(GROUND).join(".git/longhaul").join(name.to_string())
    }

    fn id(&self, state: &str) -> &str {
        self.states.get(state).unwrap_or_else(|| panic!("there is no task that is {state}"))
    }

    fn run(&self, args: &[&str]) -> Ran {
        self.kit.run(args)
    }

    /// All tasks, as `tasks` tells of them.
    fn tasks(&self, more: &[&str]) -> BTreeMap<String, Value> {
        let told = self.run(&[&["tasks", "--json"], more].concat()).ended(0).json();
        told.into_iter().map(|task| (task["id"].as_str().unwrap().to_owned(), task)).collect()
    }
}

fn git(dir: &str, args: &[&str]) {
    let who = ["-c", "user.name=a", "-c", "user.email=a@example.org"];
    let done = Command::new("git").arg("-C").arg(dir).args(who).args(args).output().unwrap();
    assert!(done.status.success(), "git {args:?}: {done:?}");
}

/// Every format that there is.
fn formats() -> Vec<PathBuf> {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats");
    let all = std::fs::read_dir(all).unwrap().map(|entry| entry.unwrap().path());
    let mut formats: Vec<PathBuf> = all.filter(|path| path.is_dir()).collect();
    formats.sort();
    assert!(!formats.is_empty());
    formats
}

#[test]
fn every_task_of_every_format_is_shown_as_what_it_is() {
    for format in formats() {
        let old = Old::open(&format);
        assert_eq!(old.states.len(), STANDS.len());
        for state in ["completed", "failed", "cancelled", "pending", "interrupted", "asks", "stopping"] {
            let found = old.tasks(&["--all", "--state", state]);
            for (task, stands) in STANDS {
                let id = old.id(task);
                // From format 5 on, `stop` ended a task at once whose process was dead.
                let ended = task == "stopping" && format.file_name().is_some_and(|name| name == "5");
                let stands = if ended { "cancelled" } else { stands };
                // Who asks and was left is both.
                if stands == state || state != "interrupted" && state != "pending" {
                    assert_eq!(found.contains_key(id), stands == state, "{task} ({id}), {state}");
                }
            }
        }
        let told = old.tasks(&["--all"]);
        let is = |task: &str, key: &str| told[old.id(task)][key].clone();
        assert_eq!(is("cut short", "cut_short"), "the limit of 2 turns");
        assert_eq!(is("continued", "continued_by"), old.id("continuation"));
        assert_eq!(is("continuation", "continues"), old.id("continued"));
        assert_eq!(is("retry, pending", "retries"), old.id("retried, too"));
        assert_eq!(is("waits for an answer", "parent"), old.id("waits below"));
        assert_eq!(is("unread letter", "unread"), 1);
        assert_eq!(is("granted", "granted").as_array().map(Vec::len), Some(1));
        assert_eq!(is("session", "interactive"), true);
        assert!(is("failed", "error").as_str().unwrap().contains("refused"));
        for id in old.states.values() {
            let shown = old.run(&["show", id]).ended(0);
            assert!(shown.out.contains(id.as_str()), "{}", shown.out);
            old.run(&["logs", id]).ended(0);
            let export = old.run(&["export", id, "--format", "json"]).ended(0);
            assert!(serde_json::from_str::<Value>(&export.out).unwrap()["tasks"].is_array());
        }
        let doctor = old.run(&["doctor", "--json"]);
        let told = doctor.json().into_iter().find(|check| check["name"] == "database").unwrap();
        assert_eq!(told["mark"], "fine", "{told}");
    }
}

/// What is in the first value and not, or otherwise, in the second. What was added since does not count.
fn changed(before: &Value, now: &Value, path: &str, found: &mut Vec<String>) {
    match (before, now) {
        (Value::Object(before), Value::Object(now)) => {
            for (key, value) in before {
                let path = format!("{path}/{key}");
                match now.get(key) {
                    Some(now) => changed(value, now, &path, found),
                    None => found.push(format!("{path} is gone")),
                }
            }
        }
        _ if before != now => found.push(format!("{path} was {before}, and is {now}")),
        _ => {}
    }
}

/// `logs.jsonl` and `tasks.jsonl` are what the Longhaul before the renaming printed for this database.
#[test]
fn json_has_the_names_that_it_had_before_the_renaming() {
    let format = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats/5");
    let lines = |name: &str| -> Vec<Value> {
        let text = std::fs::read_to_string(format.join(name)).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let old = Old::open(&format);
    let mut found = Vec::new();
    let tasks = old.tasks(&["--all"]);
    for task in lines("tasks.jsonl") {
        let id = task["id"].as_str().unwrap();
        changed(&task, &tasks[id], id, &mut found);
    }
    let mut events: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for event in lines("logs.jsonl") {
        events.entry(event["task"].as_str().unwrap().to_owned()).or_default().push(event);
    }
    assert_eq!(events.len(), old.states.len());
    for (id, before) in events {
        let now = old.run(&["logs", &id, "--json"]).ended(0).json();
        assert_eq!(before.len(), now.len(), "{id}");
        for (before, now) in before.iter().zip(&now) {
            changed(before, now, &format!("{id} {}", before["event"]), &mut found);
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn every_task_of_every_format_goes_on_to_its_end() {
    for format in formats() {
        let old = Old::open(&format);
        let below = old.tasks(&["--all"]);
        let given_back = below
            .iter()
            .find(|(_, task)| task["parent"] == old.id("given back"))
            .map(|(id, _)| id.clone())
            .unwrap();
        old.run(&["answer", old.id("waits for approval"), "yes"]).ended(0);
        old.run(&["answer", old.id("waits for an answer"), "blue"]).ended(0);
        old.run(&["answer", &given_back, "green"]).ended(0);
        let resumed = old.kit.start(&["resume", "--all"]);
        // A session waits for the next word until somebody closes it.
        let session = old.id("session").parse().unwrap();
        old.kit.until("the session", |journals| {
            let (_, journal) = journals.iter().find(|(state, _)| state.id == session)?;
            let replies = journal.iter().filter(|record| matches!(record.entry, Entry::Replied(_))).count();
            (replies == 2).then_some(())
        });
        old.kit.client(async |longhaul| longhaul.close_session(session).await.unwrap());
        // The retry fails again.
        let resumed = resumed.end().ended(1);
        assert!(old.tasks(&["--all", "--state", "open"]).is_empty(), "{}\n{}", resumed.out, resumed.err);

        let store = SqliteStore::open(old.kit.database()).unwrap();
        for (task, ends, says) in ENDS {
            let id = old.id(task).parse().unwrap();
            let journal = block_on(store.read(id, Seq(0), 1000)).unwrap();
            let ended: Vec<(&str, String)> = journal
                .iter()
                .filter_map(|record| match &record.entry {
                    Entry::Finished(outcome) => Some(match &**outcome {
                        Outcome::Completed { output, .. } => ("completed", output.to_string()),
                        Outcome::Failed { failure, .. } => ("failed", failure.to_string()),
                        Outcome::Cancelled { .. } => ("cancelled", String::new()),
                    }),
                    _ => None,
                })
                .collect();
            let [(how, output)] = &ended[..] else { panic!("{task} ended like this: {ended:?}") };
            assert!(*how == ends && output.contains(says), "{task}: {how} {output}");
        }
        let kept = block_on(store.read(old.id("kept").parse().unwrap(), Seq(0), 1000)).unwrap();
        let whole = kept.iter().find_map(|record| match &record.entry {
            Entry::Returned(returned) => returned.whole.clone(),
            _ => None,
        });
        let whole = block_on(store.blob(whole.unwrap())).unwrap().unwrap();
        assert!(String::from_utf8(whole).unwrap().contains("\n13999\n"));
        drop(store);

        assert!(!Path::new(GROUND).join("denied.txt").exists(), "a deny rule of the kept team holds");
        let remembered = old.run(&["show", old.id("remembers")]).ended(0);
        assert!(remembered.out.contains("The paper is blue."), "{}", remembered.out);
        let worktree = old.worktree("worktree, below");
        assert!(worktree.join("stays.txt").exists(), "what was written in a worktree is there");
        let found = old.run(&["show", old.id("worktree")]).ended(0);
        assert!(found.out.contains("TOLD FOUND kept"), "{}", found.out);

        // What has ended can be continued, tried again, and deleted.
        old.run(&["send", "--wait", old.id("continuation"), "Once more."]).ended(0);
        old.run(&["retry", "--wait", old.id("cancelled")]).ended(0);
        old.run(&["prune", "--older-than", "0s", "--force"]).ended(0);
        assert!(old.tasks(&["--all"]).is_empty());
        let database = old.run(&["doctor", "--json"]).json();
        let database = database.into_iter().find(|check| check["name"] == "database").unwrap();
        assert_eq!(database["mark"], "fine", "{database}");
    }
}
