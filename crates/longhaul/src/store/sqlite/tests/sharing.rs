//! Several handles on one file, as several processes have them.

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use super::*;
use crate::entry::{EntryKind, Letter, ReleaseReason, Sender};
use crate::id::{Attempt, LetterId};
use crate::store::{EntryKinds, Hint};
use crate::task::Status;

/// Waits for a hint about a task. Five seconds are far more than any hint takes.
async fn hint_of(hints: &mut HintStream, wanted: TaskId, of: EntryKind) {
    let search = async {
        loop {
            match hints.next().await {
                Some(Hint::Task { task, kinds, .. })
                    if task == wanted && kinds.intersects(EntryKinds::from_kinds([of])) =>
                {
                    return;
                }
                Some(_) => {}
                None => panic!("the store is gone"),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(5), search).await.unwrap();
}

#[tokio::test]
async fn two_handles_on_one_file_see_and_hear_each_other() {
    let directory = tempfile::tempdir().unwrap();
    let (a, b) = (SqliteStore::open(file(&directory)).unwrap(), SqliteStore::open(file(&directory)).unwrap());
    let (mut of_a, mut of_b) = (a.hints(), b.hints());
    for n in 0..3 {
        let (one, other) = if n % 2 == 0 { (&a, &b) } else { (&b, &a) };
        one.append(submission(id(n), "")).await.unwrap();
        assert_eq!(other.read(id(n), Seq(0), 9).await.unwrap().len(), 1);
        hint_of(&mut of_a, id(n), EntryKind::Submitted).await;
        hint_of(&mut of_b, id(n), EntryKind::Submitted).await;
        // The other's cached states are out of date now.
        let exists = other.append(submission(id(n), "")).await;
        assert!(matches!(exists, Err(StoreError::Exists(_))), "{exists:?}");
    }
    a.claim(claim("a", 3)).await.unwrap();
    let reply =
        |n| Batch::one(id(n), Fence::Attempt(Attempt(1)), vec![Entry::Replied(Arc::new(Reply::default()))]);
    for n in 0..20 {
        let store = if n % 2 == 0 { &a } else { &b };
        assert_eq!(store.append(reply(0)).await.unwrap(), [Seq(n + 3)]);
    }
    // The other's own hints do not hide what this one writes in between.
    a.append(reply(1)).await.unwrap();
    b.append(reply(2)).await.unwrap();
    hint_of(&mut of_b, id(1), EntryKind::Replied).await;
    hint_of(&mut of_a, id(2), EntryKind::Replied).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_handles_race_for_a_thousand_tasks_and_share_them() {
    let directory = tempfile::tempdir().unwrap();
    let stores = [0, 1].map(|_| Arc::new(SqliteStore::open(file(&directory)).unwrap()));
    let submitted = (0..1000).map(|n| stores[0].append(submission(id(n), "")));
    futures::future::try_join_all(submitted).await.unwrap();
    let claimers: Vec<_> = (0..8)
        .map(|n| {
            let store = stores[n % 2].clone();
            tokio::spawn(async move {
                let mut mine = Vec::new();
                loop {
                    let states = store.claim(claim(&format!("w{n}"), 7)).await.unwrap();
                    if states.is_empty() {
                        return mine;
                    }
                    mine.extend(states.into_iter().map(|task| task.state.id));
                }
            })
        })
        .collect();
    let mut claimed = Vec::new();
    for claimer in claimers {
        claimed.extend(claimer.await.unwrap());
    }
    assert_eq!(claimed.len(), 1000);
    assert_eq!(claimed.iter().collect::<HashSet<_>>().len(), 1000);
    let running = TaskFilter { status: vec![Status::Running], ..TaskFilter::default() };
    assert_eq!(stores[1].list(running).await.unwrap().len(), 1000);
}

#[tokio::test]
async fn a_worker_whose_process_ends_is_known_to_be_dead_before_its_lease_has_ended() {
    let directory = tempfile::tempdir().unwrap();
    let hour = Duration::from_secs(3600);
    let (w, v) = (WorkerId::from("w"), WorkerId::from("v"));
    let lock = with_suffix(&file(&directory), "-workers").join("w.lock");
    let released = || Entry::Released { attempt: Attempt(1), why: ReleaseReason::Lost };
    let release = || Batch::one(id(0), Fence::Abandoned(Attempt(1)), vec![released()]);

    let mine = SqliteStore::open(file(&directory)).unwrap();
    let other = SqliteStore::open(file(&directory)).unwrap();
    other.append(submission(id(0), "")).await.unwrap();
    mine.renew_lease(w.clone(), hour).await.unwrap();
    other.renew_lease(v, hour).await.unwrap();
    mine.claim(claim("w", 1)).await.unwrap();
    assert!(lock.exists());
    for store in [&mine, &other] {
        assert!(store.abandoned_tasks().await.unwrap().is_empty());
        let refused = store.append(release()).await;
        assert!(matches!(refused, Err(StoreError::Superseded { .. })), "{refused:?}");
    }
    // What the kernel does for a killed process: its files are closed.
    drop(mine);
    assert_eq!(other.abandoned_tasks().await.unwrap().len(), 1);
    other.append(release()).await.unwrap();
    assert!(!lock.exists(), "nothing is left of it");
    let workers = Connection::open(file(&directory)).unwrap();
    let left: String =
        workers.query_row("SELECT group_concat(id) FROM workers", [], |row| row.get(0)).unwrap();
    assert_eq!(left, "v");
    other.renew_lease(w.clone(), hour).await.unwrap();
    assert!(lock.exists());
    other.retire_worker(w).await.unwrap();
    assert!(!lock.exists());
}

#[tokio::test]
async fn without_a_lock_file_only_the_lease_counts() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(file(&directory)).unwrap();
    store.append(submission(id(0), "")).await.unwrap();
    store.renew_lease(WorkerId::from("w"), Duration::from_secs(3600)).await.unwrap();
    store.claim(claim("w", 1)).await.unwrap();
    drop(store);
    std::fs::remove_dir_all(with_suffix(&file(&directory), "-workers")).unwrap();
    let store = SqliteStore::open(file(&directory)).unwrap();
    assert!(store.abandoned_tasks().await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_writes_all_the_time_lets_others_have_their_turn() {
    let directory = tempfile::tempdir().unwrap();
    let busy = Arc::new(SqliteStore::open(file(&directory)).unwrap());
    let other = SqliteStore::open(file(&directory)).unwrap();
    let enough = tokio_util::sync::CancellationToken::new();
    let hammers: Vec<_> = (0..16)
        .map(|hammer| {
            let (busy, enough) = (busy.clone(), enough.clone());
            tokio::spawn(async move {
                let mut n = hammer;
                while !enough.is_cancelled() {
                    busy.append(submission(id(n), "")).await.unwrap();
                    n += 16;
                }
            })
        })
        .collect();
    for n in 0..10 {
        other.append(submission(id(1_000_000 + n), "")).await.unwrap();
    }
    enough.cancel();
    for hammer in hammers {
        hammer.await.unwrap();
    }
}

const FILE_OF_THE_KILLED: &str = "LONGHAUL_TEST_FILE_OF_THE_KILLED";

/// Not a test: the process that the next test kills. It prints which of its appends were acknowledged.
#[tokio::test]
#[ignore = "run by the test below, as a process of its own"]
async fn a_process_that_is_killed() {
    let Ok(path) = std::env::var(FILE_OF_THE_KILLED) else { return };
    let store = SqliteStore::open(path).unwrap();
    store.renew_lease(WorkerId::from("w"), Duration::from_secs(3600)).await.unwrap();
    store.append(submission(id(0), "")).await.unwrap();
    store.claim(claim("w", 1)).await.unwrap();
    for n in 1.. {
        store.append(submission(id(n), "")).await.unwrap();
        println!("\nstored {n}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_process_loses_nothing_that_was_acknowledged_and_is_known_to_be_dead() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(file(&directory)).unwrap();
    let mut hints = store.hints();
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "store::sqlite::tests::sharing::a_process_that_is_killed",
            "--ignored",
            "--nocapture",
        ])
        .env(FILE_OF_THE_KILLED, file(&directory))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut stored = lines.by_ref().filter_map(|line| line.strip_prefix("stored ")?.parse::<usize>().ok());
    assert_eq!(stored.nth(29), Some(30));
    hint_of(&mut hints, id(30), EntryKind::Submitted).await;
    assert!(store.abandoned_tasks().await.unwrap().is_empty(), "it lives");
    process.kill().unwrap();
    let last = stored.last().unwrap_or(30);
    assert!(!process.wait().unwrap().success(), "it was killed");

    let abandoned = store.abandoned_tasks().await.unwrap();
    assert_eq!(
        abandoned.iter().map(|h| h.id).collect::<Vec<_>>(),
        [id(0)],
        "though its lease has an hour left"
    );
    for n in 0..=last {
        assert!(store.task_state(id(n)).await.unwrap().is_some(), "task {n} of {last} was acknowledged");
    }
    let released = Entry::Released { attempt: Attempt(1), why: ReleaseReason::Lost };
    store.append(Batch::one(id(0), Fence::Abandoned(Attempt(1)), vec![released])).await.unwrap();
}

/// One of them creates the tables while others check whether they may write to the file.
#[test]
fn many_may_be_the_first_to_open_a_file() {
    for _ in 0..20 {
        let directory = tempfile::tempdir().unwrap();
        let together = std::sync::Barrier::new(6);
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    together.wait();
                    SqliteStore::open(file(&directory)).map(drop).unwrap();
                });
            }
        });
    }
}

/// A crash between the two must not leave the row of a worker without the file that proves it dead.
#[tokio::test]
async fn a_lock_file_goes_only_when_it_is_on_disk_that_its_worker_is_forgotten() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory);
    let lock = with_suffix(&path, "-workers").join("w.lock");
    let dead = SqliteStore::open(&path).unwrap();
    dead.renew_lease(WorkerId::from("w"), Duration::from_secs(3600)).await.unwrap();
    drop(dead);
    assert!(lock.exists());

    let place = DatabasePath::prepare(&path).unwrap();
    let connection = schema::open(&place, Duration::from_secs(5)).unwrap();
    let hints = Arc::new(HintSender::new(&connection, &place).unwrap());
    let others = (super::worker_locks_of(&path), Arc::default());
    let mut reader_thread = transaction::WriteConnection::new(
        connection,
        place,
        SqliteOptions::default(),
        others,
        hints,
        Arc::default(),
    )
    .unwrap();
    reader_thread.begin().unwrap();
    reader_thread.forget_dead_workers().unwrap();
    assert!(lock.exists(), "nothing is on disk yet");
    reader_thread.roll_back();
    assert!(lock.exists(), "and now nothing ever will be");
    reader_thread.begin().unwrap();
    reader_thread.forget_dead_workers().unwrap();
    reader_thread.commit().unwrap();
    assert!(!lock.exists());
}

#[tokio::test]
async fn lock_files_without_a_worker_are_cleared_away_unless_somebody_holds_them() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(file(&directory)).unwrap();
    let locks = with_suffix(&file(&directory), "-workers");
    std::fs::create_dir_all(&locks).unwrap();
    std::fs::write(locks.join("stray.lock"), "").unwrap();
    let held = std::fs::File::create(locks.join("held.lock")).unwrap();
    held.lock().unwrap();
    store.renew_lease(WorkerId::from("w"), Duration::from_secs(60)).await.unwrap();
    let mut left: Vec<_> = std::fs::read_dir(&locks)
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, ["held.lock", "w.lock"]);
}

/// A process that opened the file before another removed it must not hold a file that no one else sees.
#[test]
fn whoever_signs_holds_the_file_that_others_see() {
    let directory = tempfile::tempdir().unwrap();
    let roll = super::worker_locks_of(&file(&directory));
    let (w, enough) = (WorkerId::from("w"), std::sync::atomic::AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !enough.load(std::sync::atomic::Ordering::SeqCst) {
                roll.remove_if_unlocked(&w);
            }
        });
        for _ in 0..500 {
            let held = roll.lock(&w).unwrap().unwrap();
            assert!(roll.lock_path(&w).exists() && !roll.is_dead(&w), "it lives, and looks dead");
            drop(held);
        }
        enough.store(true, std::sync::atomic::Ordering::SeqCst);
    });
}

/// Whatever one handle remembers, it answers what is in the file, also if the other has just written.
#[tokio::test]
async fn what_a_handle_remembers_is_never_older_than_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let stores = [0, 1].map(|_| SqliteStore::open(file(&directory)).unwrap());
    let mut random = 7_u64;
    let mut draw = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    let letter = |n: u64, text: String| Letter::new(LetterId::from(n.to_string()), Sender::Person, text);
    let (mut answered, mut refused, mut deleted) = (0, 0, 0);
    for step in 0..600 {
        let (writer, task) = (&stores[draw(2) as usize], id(draw(6) as usize));
        let state = writer.task_state(task).await.unwrap();
        let by_owner =
            |state: &TaskState, entry| Batch::one(task, Fence::Attempt(state.attempt), vec![entry]);
        let outcome = Outcome::Completed { output: "done".into(), cut_short: None };
        let wrote = match (state, draw(8)) {
            (None, _) => writer.append(submission(task, "")).await.map(drop),
            (Some(_), 0) => writer.claim(claim("w", 1)).await.map(drop),
            // Large ones push others, and their own beginning, out of memory.
            (Some(_), 1..=3) => {
                let text = "word ".repeat(draw(12_000) as usize);
                let entry = Entry::Letter(Box::new(letter(step, text)));
                writer.append(Batch::one(task, Fence::Anyone, vec![entry])).await.map(drop)
            }
            (Some(state), 4..=6) => {
                let reply = Entry::Replied(Arc::new(Reply::text_only("a reply".to_owned())));
                writer.append(by_owner(&state, reply)).await.map(drop)
            }
            (Some(state), _) if state.status.is_final() => {
                deleted += 1;
                writer.delete(vec![(task, state.seq)]).await
            }
            (Some(state), _) => {
                writer.append(by_owner(&state, Entry::Finished(Box::new(outcome)))).await.map(drop)
            }
        };
        match wrote {
            Ok(()) => answered += 1,
            Err(_) => refused += 1,
        }
        let after = Seq(draw(5));
        for reader in &stores {
            let in_file = reader.readers.run(move |file| {
                Ok((file.task_state(task)?, file.read(task, Seq(0), 500)?, file.read(task, after, 3)?))
            });
            let (state, journal, part) = in_file.await.unwrap();
            assert_eq!(reader.task_state(task).await.unwrap(), state, "step {step}");
            assert_eq!(reader.read(task, Seq(0), 500).await.unwrap(), journal, "step {step}");
            assert_eq!(reader.read(task, after, 3).await.unwrap(), part, "step {step}");
        }
    }
    assert!(answered > 200 && refused > 20 && deleted > 5, "{answered} {refused} {deleted}");
}

#[tokio::test]
async fn a_tree_that_another_process_shows_is_read_live_until_it_does_not() {
    let directory = tempfile::tempdir().unwrap();
    let (runs, shows) =
        (SqliteStore::open(file(&directory)).unwrap(), SqliteStore::open(file(&directory)).unwrap());
    let _hints = runs.hints();
    let becomes = async |live: bool| {
        let seen = async {
            while runs.is_read_live(id(0)) != live {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), seen).await.unwrap();
    };
    assert!(!runs.is_read_live(id(0)));
    let reader = shows.read_live(id(0));
    becomes(true).await;
    assert!(!runs.is_read_live(id(1)) && shows.is_read_live(id(0)));
    drop(reader);
    becomes(false).await;
    // A file that a killed process left is removed.
    let left = directory.path().join("tasks.db-readers").join(format!("{}.left", id(0)));
    std::fs::write(&left, "").unwrap();
    let removed = async {
        while left.exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), removed).await.unwrap();
    assert!(!runs.is_read_live(id(0)));
}
