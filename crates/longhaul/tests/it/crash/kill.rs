//! The crash harness: a tree of tasks whose process is killed at seeded boundaries of its journal, until it is done.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::crash::Options;
use crate::crash::audit::Audit;
use crate::crash::process::{Player, generations, lines};
use crate::crash::seeded::Seeded;
use crate::crash::team::{ANSWER, TASKS};

/// After so many kills a run is left to end in peace.
const KILLS: u32 = 12;
/// How far into a generation its death can be: of a process that works alone, and of one of two.
const FAR: u64 = 40;
const NEAR: u64 = 10;

/// Runs a test for each seed, two at a time. Answers how many kills there were in all.
pub(crate) fn for_seeds(options: &Options, seeds: u64, test: impl Fn(u64, &Path) -> u32 + Sync) -> u64 {
    if let Some(seed) = options.only {
        let dir = tempfile::tempdir().unwrap().keep();
        println!("  seed {seed} in {}", dir.display());
        return u64::from(test(seed, &dir));
    }
    let (next, kills) = (AtomicU64::new(0), AtomicU64::new(0));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::SeqCst);
            if seed >= seeds {
                return;
            }
            let dir = tempfile::tempdir().unwrap();
            let told = Told(seed);
            kills.fetch_add(test(seed, dir.path()).into(), Ordering::SeqCst);
            std::mem::forget(told);
        }
    };
    std::thread::scope(|scope| {
        let threads = [scope.spawn(work), scope.spawn(work)];
        let lost = threads.into_iter().filter_map(|thread| thread.join().err()).count();
        assert_eq!(lost, 0, "a seed failed");
    });
    kills.into_inner()
}

/// Says which seed it was when its test fails.
struct Told(u64);

impl Drop for Told {
    fn drop(&mut self) {
        println!("  failed: replay it with --seed {}", self.0);
    }
}

pub(crate) fn one_process(options: &Options) {
    let kills = one_process_in(options, options.seeds, "5", |_| ());
    assert!(options.only.is_some() || options.seeds < 28 || kills >= 200, "only {kills} kills");
}

/// The same with stores that are prepared first, and leases of so many seconds.
pub(crate) fn one_process_in(
    options: &Options,
    seeds: u64,
    lease: &str,
    prepare: impl Fn(&Path) + Sync,
) -> u64 {
    let begun = Instant::now();
    let kills = for_seeds(options, seeds, |seed, dir| {
        prepare(dir);
        let mut seeded = Seeded::new(seed);
        let mut kills = 0;
        loop {
            let death = if kills < KILLS { death(&mut seeded, FAR) } else { "-".to_owned() };
            let before = lines(&generations(dir)).len();
            let mut player = Player::start("crash", dir, &["p", &death, "0ms", lease]);
            let status = player.end();
            assert_eq!(lines(&generations(dir)).len(), before + 1, "no generation began");
            if status.success() {
                break;
            }
            assert_eq!(status.signal(), Some(9), "the death of '{death}' was another: {status}");
            kills += 1;
            Audit::of(dir);
        }
        finished(dir);
        kills
    });
    println!("  {kills} kills of one process in {:.1?}", begun.elapsed());
    kills
}

pub(crate) fn two_processes(options: &Options) {
    two_processes_in(options, options.seeds.div_ceil(7), |_| ());
}

/// The same with stores that are prepared first.
pub(crate) fn two_processes_in(options: &Options, seeds: u64, prepare: impl Fn(&Path) + Sync) {
    let begun = Instant::now();
    let kills = for_seeds(options, seeds, |seed, dir| {
        prepare(dir);
        let mut seeded = Seeded::new(seed ^ 0xABCD);
        let mut kills = 0;
        let mut steady = Player::start("crash", dir, &["steady", "-", "100ms", "1.5"]);
        while steady.ended().is_none() {
            let mut mortal =
                Player::start("crash", dir, &["mortal", &death(&mut seeded, NEAR), "100ms", "1.5"]);
            let status = mortal.end();
            if status.success() {
                break;
            }
            assert_eq!(status.signal(), Some(9), "another death: {status}");
            kills += 1;
            Audit::of(dir);
        }
        steady.done();
        finished(dir);
        kills
    });
    println!("  {kills} kills of one of two processes in {:.1?}", begun.elapsed());
    assert!(options.only.is_some() || kills >= seeds, "only {kills} kills");
}

pub(crate) fn death(seeded: &mut Seeded, far: u64) -> String {
    let when = if seeded.coin() { "b" } else { "a" };
    format!("{when}{}", seeded.up_to(far))
}

pub(crate) fn finished(dir: &Path) {
    let audit = finished_by_any_clock(dir);
    audit.nothing_began_after_its_result(dir);
}

/// The same for processes whose clocks differ.
pub(crate) fn finished_by_any_clock(dir: &Path) -> Audit {
    let audit = Audit::of(dir);
    assert_eq!(audit.tasks.len(), TASKS, "tasks were lost, or made twice");
    audit.all_ended_once();
    audit.letters_went_once();
    audit.side_effects_are_as_told(dir);
    assert_eq!(audit.answer(), ANSWER);
    audit
}
