//! The crash harness: a tree of tasks whose process is killed at seeded boundaries of its journal, until it is done.

use std::collections::{HashMap, HashSet};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::Options;
use crate::audit::{Audit, Call, Run, parse};
use crate::process::{Player, generations, lines, since_boot};
use crate::seeded::Seeded;
use crate::team::{ANSWER, TASKS, ledger};

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
    let begun = Instant::now();
    let kills = for_seeds(options, options.seeds, |seed, dir| {
        let mut seeded = Seeded::new(seed);
        let mut watch = Watch::default();
        let mut kills = 0;
        loop {
            let death = if kills < KILLS { death(&mut seeded, FAR) } else { "-".to_owned() };
            let before = lines(&generations(dir)).len();
            let mut player = Player::start("crash", dir, &["p", &death, "0ms", "5"]);
            let status = player.end();
            assert_eq!(lines(&generations(dir)).len(), before + 1, "no generation began");
            if status.success() {
                break;
            }
            assert_eq!(status.signal(), Some(9), "the death of '{death}' was another: {status}");
            kills += 1;
            watch.look(dir);
        }
        finished(dir, &watch);
        kills
    });
    println!("  {kills} kills of one process in {:.1?}", begun.elapsed());
    assert!(options.only.is_some() || options.seeds < 28 || kills >= 200, "only {kills} kills");
}

pub(crate) fn two_processes(options: &Options) {
    let begun = Instant::now();
    let seeds = options.seeds.div_ceil(7);
    let kills = for_seeds(options, seeds, |seed, dir| {
        let mut seeded = Seeded::new(seed ^ 0xABCD);
        let mut watch = Watch::default();
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
            watch.look(dir);
        }
        steady.done();
        finished(dir, &watch);
        kills
    });
    println!("  {kills} kills of one of two processes in {:.1?}", begun.elapsed());
    assert!(options.only.is_some() || kills >= seeds, "only {kills} kills");
}

pub(crate) fn death(seeded: &mut Seeded, far: u64) -> String {
    let when = if seeded.coin() { "b" } else { "a" };
    format!("{when}{}", seeded.up_to(far))
}

/// What was written down at the kills, so that nothing of it happens again.
#[derive(Default)]
pub(crate) struct Watch {
    kills: Vec<(HashSet<Call>, usize)>,
    /// What processes that are stopped were in the middle of, and since when they are.
    asleep: HashMap<u32, (HashSet<Call>, u64)>,
}

impl Watch {
    pub(crate) fn look(&mut self, dir: &Path) {
        // The ledger last: what ran in between has no result yet in what was read before.
        let returned = Audit::of(dir).returned();
        self.kills.push((returned, ledger(dir).len()));
    }

    /// The same when a process was stopped. What it was in the middle of, and that may be repeated, it may end when it is woken
    /// up, though another has done it meanwhile: it had begun.
    pub(crate) fn look_at_stopped(&mut self, dir: &Path, process: u32) {
        self.asleep.insert(process, (Audit::of(dir).begun(), since_boot()));
        self.look(dir);
    }

    fn may_end(&self, run: &Run<'_>) -> bool {
        let asleep = self.asleep.get(&run.process);
        asleep.is_some_and(|(begun, since)| begun.contains(&run.call) && run.begun < *since)
    }
}

pub(crate) fn finished(dir: &Path, watch: &Watch) {
    let audit = Audit::of(dir);
    assert_eq!(audit.tasks.len(), TASKS, "tasks were lost, or made twice");
    audit.all_ended_once();
    audit.letters_went_once();
    audit.side_effects_are_as_told(dir);
    assert_eq!(audit.answer(), ANSWER);
    let ledger = ledger(dir);
    for (returned, seen) in &watch.kills {
        let mut after = ledger[*seen..].iter().map(|line| parse(line));
        let again = after.find(|run| returned.contains(&run.call) && !watch.may_end(run));
        assert_eq!(again, None, "a call whose result was written down was made again");
    }
}
