//! A changed byte is detected, wherever it is: nothing panics, and no wrong data is accepted.

use rusqlite::types::Value;

use super::*;
use crate::entry::{Letter, Record, Sender, StopCause};
use crate::id::LetterId;
use crate::task::Status;

/// SplitMix64: the same numbers for the same seed.
struct Seeded(u64);

impl Seeded {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((z ^ (z >> 31)) % end as u64).unwrap()
    }
}

fn said(text: &str) -> Entry {
    Entry::Said { voice: LiveTextKind::Text, text: text.to_owned() }
}

/// A database with a task in each of several states, of a stored team; closed again.
async fn rich(path: &Path) -> TeamRef {
    let store = SqliteStore::open(path).unwrap();
    let team = TeamRef::File(store.put_blob(b"a team with a deny rule".to_vec()).await.unwrap());
    let mut ids = Vec::new();
    for n in 0..5 {
        let key = TaskKey::named(&n.to_string());
        let id = key.candidate_ids().next().unwrap();
        let submitted = Submission::root(id, key, Order::new("worker", format!("Task {n}")), team.clone());
        let entry = Entry::Submitted(Box::new(submitted));
        store.append(Batch::one(id, Fence::New, vec![entry])).await.unwrap();
        ids.push(id);
    }
    store.renew_lease(WorkerId::from("w"), Duration::from_secs(60)).await.unwrap();
    let claim = ClaimRequest {
        worker: "w".into(),
        teams: vec![team.clone()],
        roots: None,
        fresh_only: false,
        except: vec![],
        max: 4,
    };
    assert_eq!(store.claim(claim).await.unwrap().len(), 4);
    let mine = Fence::Attempt(Attempt(1));
    let key = TaskKey::for_child(ids[0], CallId { turn: 1, index: 0 });
    let child = key.candidate_ids().next().unwrap();
    let submitted = Submission {
        parent: Some(ids[0]),
        depth: 1,
        ..Submission::root(ids[0], key, Order::new("worker", "Below"), team.clone())
    };
    let entry = Entry::Submitted(Box::new(submitted));
    store.append(Batch::one(child, Fence::New, vec![entry])).await.unwrap();
    let whole = store.put_blob(vec![b'x'; 5000]).await.unwrap();
    let returned =
        CallResult { whole: Some(whole), ..CallResult::new(CallId { turn: 1, index: 0 }, "a part") };
    let called = Entry::Called {
        call: returned.call,
        tool: "shell".into(),
        arguments: None,
        effects: false,
        foreign: false,
    };
    let entries = vec![said("so much for that"), called, Entry::Returned(Box::new(returned))];
    store.append(Batch::one(ids[0], mine, entries)).await.unwrap();
    let letter = Letter::new(LetterId::from("a-letter"), Sender::Person, "Go on.");
    store.append(Batch::one(ids[1], Fence::Anyone, vec![Entry::Letter(Box::new(letter))])).await.unwrap();
    let more = (0..30).map(|n| said(&n.to_string())).collect();
    store.append(Batch::one(ids[1], mine, more)).await.unwrap();
    let outcome = Outcome::Completed { output: "done".into(), cut_short: None };
    store.append(Batch::one(ids[2], mine, vec![Entry::Finished(Box::new(outcome))])).await.unwrap();
    let stop = crate::entry::StopRequest { cause: StopCause::Person, note: None };
    store.append(Batch::one(ids[3], Fence::Anyone, vec![Entry::StopRequested(stop)])).await.unwrap();
    assert!(store.put_stored_value("task:todo", 0, b"a list".to_vec()).await.unwrap());
    assert!(store.put_stored_value("task:todo", 1, b"a longer list".to_vec()).await.unwrap());
    team
}

/// Everything that can be read.
#[derive(Debug, PartialEq)]
struct Content {
    states: Vec<TaskState>,
    journals: Vec<Vec<Record>>,
    kept: Vec<Option<Vec<u8>>>,
    stored_value: StoredValue,
}

/// All content of a store; fails as soon as something cannot be read.
async fn content(store: &SqliteStore, like: Option<&Content>, team: &TeamRef) -> Result<Content, StoreError> {
    let states = store.list(TaskFilter::default()).await?;
    let known = like.map_or(&states, |like| &like.states);
    let mut journals = Vec::new();
    for state in known {
        journals.push(store.read(state.id, Seq(0), 1000).await?);
        store.task_state(state.id).await?;
    }
    let TeamRef::File(team) = team else { unreachable!() };
    let kept = vec![store.blob(team.clone()).await?, store.blob(Digest::of_bytes(&[b'x'; 5000])).await?];
    Ok(Content { kept, journals, stored_value: store.stored_value("task:todo").await?, states })
}

/// Copies a closed database.
fn copied(from: &Path, directory: &TempDir, name: &str) -> PathBuf {
    let to = directory.path().join(name);
    std::fs::copy(from, &to).unwrap();
    to
}

/// The tables, and the columns in which a change must be detected. Not included: leases (`workers`), which
/// matter for seconds, and the time when a blob was last stored, which only decides when it may be deleted.
const COLUMNS: [(&str, &[&str]); 5] = [
    (
        "tasks",
        &[
            "id",
            "status",
            "team",
            "agent",
            "parent",
            "root",
            "attempt",
            "worker",
            "created",
            "head",
            "sum",
            "continues",
            "retries",
            "quiet",
        ],
    ),
    ("journal", &["task", "seq", "at", "kind", "format", "letter", "entry", "sum"]),
    ("kept", &["digest", "bytes"]),
    ("slips", &["name", "written", "bytes", "sum"]),
    ("keeps", &["digest", "task"]),
];

/// Changes one bit of a value; `None` if there is none.
fn flipped(value: Value, random: &mut Seeded) -> Option<Value> {
    let flip = |bytes: &mut Vec<u8>, random: &mut Seeded| {
        let at = random.below(bytes.len());
        bytes[at] ^= 1 << random.below(7);
    };
    Some(match value {
        Value::Integer(number) => Value::Integer(number ^ (1 << random.below(31))),
        Value::Text(text) if !text.is_empty() => {
            let mut bytes = text.into_bytes();
            flip(&mut bytes, random);
            Value::Text(String::from_utf8(bytes).ok()?)
        }
        Value::Blob(mut bytes) if !bytes.is_empty() => {
            flip(&mut bytes, random);
            Value::Blob(bytes)
        }
        _ => return None,
    })
}

/// Changes one bit of a column in a row at random. False if that was not possible.
fn flip_column(path: &Path, table: &str, column: &str, random: &mut Seeded) -> bool {
    let database = Connection::open(path).unwrap();
    let order = if table == "keeps" { "task" } else { "rowid" };
    let count: i64 =
        database.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap();
    let nth = random.below(usize::try_from(count).unwrap());
    let sql = format!("SELECT {order}, {column} FROM {table} ORDER BY {order} LIMIT 1 OFFSET {nth}");
    let (row, value): (i64, Value) =
        database.query_row(&sql, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    let Some(value) = flipped(value, random) else { return false };
    let sql = format!("UPDATE OR IGNORE {table} SET {column} = ?2 WHERE {order} = ?1");
    database.execute(&sql, rusqlite::params![row, value]).unwrap() == 1
}

#[tokio::test]
async fn a_changed_bit_in_any_column_is_noticed_and_what_derives_is_made_again() {
    let directory = tempfile::tempdir().unwrap();
    let pristine = directory.path().join("pristine.db");
    let team = rich(&pristine).await;
    let before = content(&SqliteStore::open(&pristine).unwrap(), None, &team).await.unwrap();
    assert_eq!(SqliteStore::examine(&pristine).unwrap().unwrap().problems, Vec::<String>::new());
    let mut flips = 0;
    for (table, columns) in COLUMNS {
        for column in columns {
            for seed in 0..6 {
                let path = copied(&pristine, &directory, &format!("{table}-{column}-{seed}.db"));
                let mut random = Seeded(seed);
                if !flip_column(&path, table, column, &mut random) {
                    continue;
                }
                flips += 1;
                let what = format!("{table}.{column}, seed {seed}");
                let wrong = SqliteStore::examine(&path).unwrap().unwrap().problems;
                assert!(!wrong.is_empty(), "the doctor sees nothing: {what}");

                let store = SqliteStore::open(&path).unwrap();
                let damaged = store.find_damaged(TaskFilter::default(), true).await.unwrap();
                let after = content(&store, Some(&before), &team).await;
                if table == "tasks" {
                    assert_eq!(damaged, [], "{what}");
                    assert_eq!(after.as_ref().ok(), Some(&before), "it was not made again: {what}");
                    let claim = ClaimRequest {
                        worker: "w".into(),
                        teams: vec![team.clone()],
                        roots: None,
                        fresh_only: false,
                        except: vec![],
                        max: 9,
                    };
                    assert_eq!(store.claim(claim).await.unwrap().len(), 2, "{what}");
                    continue;
                }
                let Ok(after) = after else { continue };
                // Whatever is not an error is what was written, or nothing if it cannot be found any more.
                assert_eq!(after.states, before.states, "{what}");
                for (found, was) in after.kept.iter().zip(&before.kept) {
                    assert!(found.is_none() || found == was, "{what}");
                }
                assert!(
                    after.stored_value == before.stored_value || after.stored_value == StoredValue::default(),
                    "{what}"
                );
                for ((found, was), state) in after.journals.iter().zip(&before.journals).zip(&before.states) {
                    assert!(was.starts_with(found), "{what}");
                    let told = damaged.iter().any(|damage| damage.task == state.id);
                    assert!(found == was || told || state.status.is_final(), "{what}");
                }
            }
        }
    }
    assert!(flips > 120, "{flips}");
}

#[tokio::test]
async fn a_changed_byte_anywhere_in_the_file_is_noticed_or_does_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let pristine = directory.path().join("pristine.db");
    let team = rich(&pristine).await;
    let before = content(&SqliteStore::open(&pristine).unwrap(), None, &team).await.unwrap();
    let bytes = std::fs::read(&pristine).unwrap();
    let (mut noticed, mut unchanged) = (0, 0);
    for seed in 0..150 {
        let mut random = Seeded(seed);
        let mut bytes = bytes.clone();
        let at = random.below(bytes.len());
        bytes[at] ^= 1 << random.below(8);
        let path = directory.path().join(format!("{seed}.db"));
        std::fs::write(&path, &bytes).unwrap();
        let sound = SqliteStore::examine(&path)
            .is_ok_and(|health| health.is_some_and(|health| health.problems.is_empty()));
        let read = match SqliteStore::open(&path) {
            Ok(store) => match store.find_damaged(TaskFilter::default(), true).await {
                Ok(damaged) if damaged.is_empty() => content(&store, Some(&before), &team).await,
                Ok(_) => Err(StoreError::Closed),
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        match read {
            Ok(read) if read == before => unchanged += 1,
            Ok(_) => assert!(!sound, "seed {seed}, byte {at}: something else is read, and nobody notices"),
            Err(_) => noticed += 1,
        }
    }
    assert!(noticed > 10 && unchanged > 10, "{noticed} {unchanged}");
}

#[tokio::test]
async fn a_damaged_team_is_an_error_that_says_what_to_do_and_keeping_it_again_mends_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory);
    let TeamRef::File(digest) = rich(&path).await else { unreachable!() };
    let sql = "UPDATE kept SET bytes = CAST(replace(CAST(bytes AS TEXT), 'deny', 'demy') AS BLOB) WHERE digest = ?1";
    assert_eq!(Connection::open(&path).unwrap().execute(sql, [digest.as_str()]).unwrap(), 1);
    let store = SqliteStore::open(&path).unwrap();
    let Err(StoreError::Damaged { what }) = store.blob(digest.clone()).await else { panic!("it was taken") };
    for words in [digest.as_str(), &path.display().to_string(), "backup"] {
        assert!(what.contains(words), "'{words}' in: {what}");
    }
    store.put_blob(b"a team with a deny rule".to_vec()).await.unwrap();
    assert_eq!(store.blob(digest).await.unwrap().unwrap(), b"a team with a deny rule");
}

#[tokio::test]
async fn rows_from_before_there_were_checksums_are_read_and_new_ones_must_have_them() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory);
    written(&path, 2).await;
    let database = Connection::open(&path).unwrap();
    database.execute("UPDATE journal SET sum = NULL WHERE task = 1", []).unwrap();
    let store = SqliteStore::open(&path).unwrap();
    let read = store.read(id(0), Seq(0), 9).await;
    assert!(matches!(read, Err(StoreError::BadEntry { .. })), "{read:?}");
    assert_eq!(store.find_damaged(TaskFilter::default(), true).await.unwrap().len(), 1);
    database.execute("UPDATE store SET since = 1", []).unwrap();
    assert_eq!(store.read(id(0), Seq(0), 9).await.unwrap().len(), 1);
    assert_eq!(store.find_damaged(TaskFilter::default(), true).await.unwrap(), []);
    assert_eq!(store.task_state(id(0)).await.unwrap().unwrap().status, Status::Pending);
}
