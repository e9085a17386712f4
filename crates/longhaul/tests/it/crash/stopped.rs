//! Processes that are stopped (SIGSTOP, Ctrl-Z, a machine that sleeps) for longer than their lease, while others go on
//! with their tasks: when they wake up they must do nothing more. And clocks that differ.
#![cfg(target_os = "linux")]

use std::path::Path;
use std::time::Instant;

use longhaul::entry::{Entry, ReleaseReason};
use nix::sys::signal::Signal;

use crate::crash::Options;
use crate::crash::audit::Audit;
use crate::crash::kill::{death, finished, finished_by_any_clock, for_seeds};
use crate::crash::process::{Player, until};
use crate::crash::seeded::Seeded;
use crate::crash::team::ledger;

/// How long a process that says nothing keeps its tasks here, in seconds.
const LEASE: &str = "0.8";
/// How far into a generation it can be stopped.
const FAR: u64 = 100;

pub(crate) fn at_any_boundary(options: &Options) {
    stop_at_boundaries(options, options.seeds.div_ceil(5), |_, seeded| stop(seeded));
}

pub(crate) fn at_any_boundary_200(options: &Options) {
    // Each in turn, before and after it.
    stop_at_boundaries(options, 200, |seed, _| {
        format!("s{}{}", if seed % 2 == 0 { "b" } else { "a" }, 1 + seed / 2)
    });
}

fn stop_at_boundaries(options: &Options, seeds: u64, fate: impl Fn(u64, &mut Seeded) -> String + Sync) {
    let begun = Instant::now();
    let stops = for_seeds(options, seeds, |seed, dir| {
        let mut seeded = Seeded::new(seed ^ 0x5707);
        let mut sleeper = Player::start("crash", dir, &["sleeper", &fate(seed, &mut seeded), "3ms", LEASE]);
        let stopped = sleeper.stopped_or_ended();
        if stopped {
            lets_go_of(dir, &mut sleeper);
            Audit::of(dir);
            let other = Player::start("crash", dir, &["other", "-", "3ms", LEASE]);
            wake(&mut seeded, dir, &sleeper);
            other.done();
        }
        sleeper.done();
        finished(dir);
        u32::from(stopped)
    });
    println!("  {stops} processes stopped past their lease in {:.1?}", begun.elapsed());
    assert!(options.only.is_some() || stops >= seeds / 2, "only {stops} stops");
}

/// A process that is stopped in the middle of a transaction holds the file, and nobody can write until it goes on: it
/// goes on for a moment, and is stopped again.
fn lets_go_of(dir: &Path, sleeper: &mut Player) {
    let file = rusqlite::Connection::open(dir.join("db")).unwrap();
    file.busy_timeout(std::time::Duration::from_millis(20)).unwrap();
    while file.execute_batch("BEGIN IMMEDIATE; ROLLBACK").is_err() {
        sleeper.signal(Signal::SIGCONT);
        std::thread::yield_now();
        sleeper.signal(Signal::SIGSTOP);
        assert!(sleeper.stopped_or_ended(), "it ended in between");
    }
}

/// Wakes a process up when another has taken its tasks: at once, a little later, or when all is done.
fn wake(seeded: &mut Seeded, dir: &Path, sleeper: &Player) {
    let more = seeded.up_to(40) as usize - 1;
    let mut seen = None;
    until("another to take the tasks of the stopped one", || {
        let audit = Audit::of(dir);
        let over = !audit.tasks.is_empty() && audit.states().all(|state| state.status.is_final());
        let taken = audit.states().any(|state| state.attempt.0 > 1);
        let lines = ledger(dir).len();
        over || taken && lines >= *seen.get_or_insert(lines) + more
    });
    sleeper.signal(Signal::SIGCONT);
}

fn stop(seeded: &mut Seeded) -> String {
    format!("s{}", death(seeded, FAR))
}

pub(crate) fn mixed_with_kills(options: &Options) {
    mixed(options, options.seeds.div_ceil(10), 6);
}

pub(crate) fn mixed_2000(options: &Options) {
    // Seeds until there were enough.
    let (mut kills, mut from) = (0, 0);
    while kills < 2000 {
        kills += mixed_from(options, from, 50, 12);
        from += 50;
        println!("  {kills} kills so far");
    }
}

fn mixed(options: &Options, seeds: u64, most: u32) {
    let begun = Instant::now();
    let kills = mixed_from(options, 0, seeds, most);
    println!("  {kills} kills with stops in between in {:.1?}", begun.elapsed());
    assert!(options.only.is_some() || kills >= seeds, "only {kills} kills");
}

fn mixed_from(options: &Options, from: u64, seeds: u64, most: u32) -> u64 {
    for_seeds(options, seeds, |seed, dir| {
        let mut seeded = Seeded::new((seed + from) ^ 0x3117);
        let (mut kills, mut stops) = (0, 0);
        let mut sleepers: Vec<Player> = Vec::new();
        loop {
            let fate = match seeded.up_to(4) {
                _ if kills >= most => "-".to_owned(),
                1 if stops < 3 => stop(&mut seeded),
                _ => death(&mut seeded, 40),
            };
            let mut player = Player::start("crash", dir, &["p", &fate, "0ms", LEASE]);
            if player.stopped_or_ended() {
                stops += 1;
                lets_go_of(dir, &mut player);
                Audit::of(dir);
                sleepers.push(player);
            } else if player.end().success() {
                break;
            } else {
                kills += 1;
                Audit::of(dir);
            }
            // Some wake up while others work, some when all is done.
            if !sleepers.is_empty() && seeded.up_to(3) == 1 {
                let which = seeded.up_to(sleepers.len() as u64) as usize - 1;
                sleepers[which].signal(Signal::SIGCONT);
            }
        }
        for sleeper in sleepers {
            sleeper.signal(Signal::SIGCONT);
            sleeper.done();
        }
        finished(dir);
        kills
    })
}

/// One process is a minute ahead, one a minute behind; all three live, so that nobody's task is taken.
pub(crate) fn other_clocks(_: &Options) {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let offsets = ["0", "60", "-60"];
    let players = offsets.map(|offset| Player::start("crash", dir, &[offset, "-", "200ms", "1.5", offset]));
    players.into_iter().for_each(Player::done);
    let audit = finished_by_any_clock(dir);
    for id in audit.tasks.keys() {
        let lost = |entry: &Entry| matches!(entry, Entry::Released { why: ReleaseReason::Lost, .. });
        assert_eq!(audit.count(*id, lost), 0, "{id} was taken from the living");
    }
}
