//! The screen under load: a thousand tasks, three hundred of which run, and two hundred events a second.

use std::collections::VecDeque;
use std::io::Read as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use longhaul::TaskId;
use longhaul::entry::{Entry, LiveTextKind, Order, Outcome, Submission, TeamRef};
use longhaul::id::{Attempt, CallId, TaskKey, WorkerId};
use longhaul::message::{Block, Call, Reply};
use longhaul::store::{Batch, ClaimRequest, Fence, SqliteStore, Store};

use crate::kit::{Kit, block_on};
use crate::term::Terminal;

const TASKS: usize = 1_000;
const LIVE: usize = 300;
const A_SECOND: u32 = 200;
const SECONDS: u32 = 20;

/// How often a picture begins in what the screen writes.
const PICTURE: &[u8] = b"\x1b[?2026h";

/// Trees of ten: the newest run, the others are over. Those that run.
async fn plant(store: &SqliteStore) -> Vec<TaskId> {
    let team = TeamRef::Named("none".into());
    let mut tasks: Vec<TaskId> = Vec::new();
    for number in 0..TASKS {
        let key = TaskKey::named(&number.to_string());
        let id = key.candidate_ids().next().unwrap();
        let root = if number % 10 == 0 { id } else { tasks[number / 10 * 10] };
        let submitted = Submission {
            parent: (id != root).then_some(root),
            depth: u32::from(id != root),
            ..Submission::root(
                root,
                key,
                Order::new(
                    if id == root { "lead" } else { "scout" },
                    format!("Look into matter {number} and write down what there is"),
                ),
                team.clone(),
            )
        };
        let batch = Batch::one(id, Fence::New, vec![Entry::Submitted(Box::new(submitted))]);
        store.append(batch).await.unwrap();
        tasks.push(id);
    }
    let worker = WorkerId::random();
    store.renew_lease(worker.clone(), Duration::from_secs(6_000)).await.unwrap();
    let claim = ClaimRequest {
        worker,
        teams: vec![team],
        roots: None,
        fresh_only: false,
        except: vec![],
        max: TASKS,
    };
    assert_eq!(store.claim(claim).await.unwrap().len(), TASKS);
    for task in &tasks[..TASKS - LIVE] {
        let done = Outcome::Completed { output: "Done.".into(), cut_short: None };
        let batch = Batch::one(*task, Fence::Attempt(Attempt(1)), vec![Entry::Finished(Box::new(done))]);
        store.append(batch).await.unwrap();
    }
    tasks.split_off(TASKS - LIVE)
}

/// Events of the tasks that run, so many a second, until somebody has seen enough. How many there were.
async fn happen(store: &SqliteStore, tasks: &[TaskId], enough: &AtomicBool) -> usize {
    let mut pace = tokio::time::interval(Duration::from_secs(1) / A_SECOND);
    let mut many = 0;
    while !enough.load(Ordering::Relaxed) {
        pace.tick().await;
        // Each says something, calls a tool and gets an answer, in turn.
        let (task, round) = (tasks[many % tasks.len()], many / tasks.len());
        let turn = u32::try_from(round / 4 + 1).unwrap();
        let call = CallId { turn, index: 0 };
        let entry = match round % 4 {
            0 => Entry::Said { voice: LiveTextKind::Text, text: "Some words that are said. ".to_owned() },
            1 => Entry::Replied(Arc::new(Reply {
                blocks: vec![
                    Block::Text("Some words that are said.".to_owned()),
                    Block::Call(Call {
                        id: "c".to_owned(),
                        tool: "shell".to_owned(),
                        arguments: r#"{"cmd":"ls -la"}"#.to_owned(),
                    }),
                ],
                ..Reply::default()
            })),
            2 => {
                Entry::Called { call, tool: "shell".into(), arguments: None, effects: false, foreign: false }
            }
            _ => Entry::Said { voice: LiveTextKind::Progress, text: "half of it".to_owned() },
        };
        store.append(Batch::one(task, Fence::Attempt(Attempt(1)), vec![entry])).await.unwrap();
        many += 1;
    }
    many
}

/// What the screen writes, as it comes.
#[derive(Default)]
struct Written {
    pictures: usize,
    bytes: usize,
    /// When the bar of the chosen line was drawn.
    moved: VecDeque<Instant>,
}

/// How long a process has been at work.
fn worked(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

/// Run it with `cargo test --release -p longhaul-cli --test cli -- --ignored --nocapture tui_load`.
#[test]
#[ignore = "a measurement, for a release build"]
fn a_thousand_tasks_and_two_hundred_events_a_second_do_not_lag() {
    let kit = Kit::new();
    // Open as long as this lasts: whoever closes it is known not to run anything any more.
    let store = Arc::new(SqliteStore::open(kit.database()).unwrap());
    let live = block_on(plant(&store));
    let terminal = Terminal::run(&kit.command(&["tui"]), 120, 40);
    terminal.until("the tasks", |screen| {
        screen.contains("● t-") && screen.contains(" lead ") && screen.contains("700 finished")
    });
    let pid = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", terminal.state("#{pane_pid}")));
    let pid: u32 = pid.unwrap().trim().parse().unwrap();

    let pipe = kit.data.path().join("written");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    terminal.pipe(&pipe);
    let written = Arc::<Mutex<Written>>::default();
    let reader = {
        let (written, mut pipe) = (written.clone(), std::fs::File::open(&pipe).unwrap());
        std::thread::spawn(move || {
            let mut bytes = vec![0; 1 << 16];
            while let Ok(many @ 1..) = pipe.read(&mut bytes) {
                let (now, piece) = (Instant::now(), &bytes[..many]);
                let count = |what: &[u8]| piece.windows(what.len()).filter(|part| *part == what).count();
                let mut written = written.lock().unwrap();
                written.bytes += many;
                written.pictures += count(PICTURE);
                if count("▌".as_bytes()) > 0 {
                    written.moved.push_back(now);
                }
            }
        })
    };

    // Nothing happens: what does it cost to have it open?
    let idle = worked(pid);
    std::thread::sleep(Duration::from_secs(5));
    let idle = (worked(pid) - idle) / 5;

    let enough = Arc::<AtomicBool>::default();
    let writer = {
        let (store, enough) = (store.clone(), enough.clone());
        std::thread::spawn(move || block_on(happen(&store, &live, &enough)))
    };
    std::thread::sleep(Duration::from_millis(500));
    let (begin, before) = (Instant::now(), worked(pid));
    let (pictures, bytes) = {
        let written = written.lock().unwrap();
        (written.pictures, written.bytes)
    };
    let mut delays = Vec::new();
    while begin.elapsed() < Duration::from_secs(SECONDS.into()) {
        written.lock().unwrap().moved.clear();
        let pressed = Instant::now();
        // Down and up again, so that the bar is drawn elsewhere each time.
        terminal.keys(&[if delays.len() % 24 < 12 { "Down" } else { "Up" }]);
        let moved = loop {
            if let Some(moved) = written.lock().unwrap().moved.pop_front() {
                break moved;
            }
            assert!(pressed.elapsed() < Duration::from_secs(10), "it did not move: {}", terminal.screen());
            std::thread::sleep(Duration::from_millis(1));
        };
        delays.push(moved - pressed);
        std::thread::sleep(Duration::from_millis(83));
    }
    let (took, work) = (begin.elapsed(), worked(pid) - before);
    let (pictures, bytes) = {
        let written = written.lock().unwrap();
        (written.pictures - pictures, written.bytes - bytes)
    };
    enough.store(true, Ordering::Relaxed);
    let events = writer.join().unwrap();
    terminal.keys(&["q", "q"]);
    terminal.end();
    drop(terminal);
    reader.join().unwrap();

    delays.sort();
    let (middle, worst) = (delays[delays.len() / 2], delays[delays.len() - 1]);
    let (a_second, share) =
        (pictures as f64 / took.as_secs_f64(), 100.0 * work.as_secs_f64() / took.as_secs_f64());
    #[expect(clippy::print_stdout, reason = "a measurement")]
    {
        println!(
            "{events} events in {took:?}: {a_second:.1} pictures a second of {} bytes each, {share:.1} % of a core \
             (silent {:.1} %), a key is answered after {middle:?}, at worst {worst:?}, of {}",
            bytes / pictures.max(1),
            100.0 * idle.as_secs_f64(),
            delays.len(),
        );
    }
    assert!(a_second <= 30.0, "{a_second} pictures a second");
    // With what tmux needs to bring the key and the picture.
    assert!(middle < Duration::from_millis(100), "{middle:?}");
}
