//! What survives a kill: real processes on one SQLite file, killed with SIGKILL at seeded places.
//!
//! The binary is its own victim: with `child ROLE DIR …` it is one of the processes (see [`roles`]), otherwise the
//! one that starts them, kills them and audits what they left. `cargo test --test crash -- [NAME] [--seeds N]
//! [--seed K] [--list]`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails is to say where")]

mod asked;
mod audit;
mod claims;
mod drain;
#[cfg(target_os = "linux")]
mod guard;
mod inside;
mod kill;
mod process;
mod recovery;
mod roles;
mod seeded;
mod stop;
mod stopped;
mod store;
mod team;

use std::panic::AssertUnwindSafe;
use std::time::Instant;

/// What was asked for on the command line.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    seeds: u64,
    only: Option<u64>,
}

type Test = (&'static str, fn(&Options));

const TESTS: &[Test] = &[
    ("killed_at_any_boundary_it_ends_as_if_never_killed", kill::one_process),
    ("one_of_two_processes_is_killed_again_and_again", kill::two_processes),
    ("two_processes_claim_a_thousand_tasks_once_each", claims::a_thousand),
    ("two_engines_finish_what_is_in_one_file_once_each", claims::two_engines),
    ("a_tree_of_depth_three_is_stopped_from_another_process", stop::of_a_tree),
    ("a_stop_outlives_the_kill_of_the_process_it_was_meant_for", stop::then_a_kill),
    ("half_a_stop_is_finished_by_whoever_comes_next", stop::half_done),
    ("a_stranger_with_a_loader_carries_a_task_to_its_end", recovery::by_a_stranger),
    ("who_knows_neither_team_nor_loader_leaves_a_task_alone", recovery::not_by_the_ignorant),
    ("a_task_whose_owner_is_alive_is_never_taken", recovery::not_of_the_living),
    ("a_drained_process_gives_its_tasks_back_and_another_ends_them", drain::drained),
    ("a_slow_drain_keeps_its_lease", drain::slowly),
    ("a_read_that_nobody_polls_keeps_no_other_waiting", inside::unpolled_reads),
    ("the_last_seat_is_given_back_when_only_a_wait_is_left", inside::one_seat),
    ("a_task_that_the_store_failed_goes_on_and_sends_nothing_twice", inside::failed_once),
    ("stops_letters_and_drains_in_any_order_leave_whole_journals", inside::any_order),
    ("a_question_outlives_two_kills_and_is_answered_from_another_process", asked::killed_while_asking),
    #[cfg(target_os = "linux")]
    ("stopped_at_any_boundary_past_its_lease_it_does_nothing_any_more", stopped::at_any_boundary),
    #[cfg(target_os = "linux")]
    ("killed_and_stopped_in_any_order_nothing_is_done_twice", stopped::mixed_with_kills),
    #[cfg(target_os = "linux")]
    ("clocks_that_differ_take_nothing_from_the_living", stopped::other_clocks),
    #[cfg(target_os = "linux")]
    ("no_child_process_outlives_a_kill", guard::killed),
    #[cfg(target_os = "linux")]
    ("no_child_process_outlives_a_good_end", guard::in_good_order),
];

/// Those that take minutes: only with `--ignored` or `--include-ignored`, as `./test --all` runs them.
const LONG: &[Test] = &[
    #[cfg(target_os = "linux")]
    ("long_200_seeds_stopped_at_any_boundary", stopped::at_any_boundary_200),
    #[cfg(target_os = "linux")]
    ("long_2000_kills_mixed_with_stops", stopped::mixed_2000),
];

fn main() {
    let mut args = std::env::args().skip(1).peekable();
    if args.peek().is_some_and(|arg| arg == "child") {
        return roles::play(&args.skip(1).collect::<Vec<_>>());
    }
    let mut options = Options { seeds: 28, only: None };
    let mut filters = Vec::new();
    let mut list = false;
    let (mut short, mut long) = (true, false);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--seeds" => options.seeds = args.next().and_then(|n| n.parse().ok()).expect("--seeds N"),
            "--seed" => options.only = Some(args.next().and_then(|n| n.parse().ok()).expect("--seed K")),
            "--list" => list = true,
            "--ignored" => (short, long) = (false, true),
            "--include-ignored" => long = true,
            // Options of the usual harness that mean nothing here.
            flag if flag.starts_with('-') => {}
            name => filters.push(name.to_owned()),
        }
    }
    let wanted = |name: &str| filters.is_empty() || filters.iter().any(|f| name.contains(f.as_str()));
    let chosen = |tests: &'static [Test], on: bool| tests.iter().filter(move |_| on);
    let tests: Vec<&Test> =
        chosen(TESTS, short).chain(chosen(LONG, long)).filter(|(name, _)| wanted(name)).collect();
    let ignored = if long { 0 } else { LONG.iter().filter(|(name, _)| wanted(name)).count() };
    if list {
        tests.iter().for_each(|(name, _)| println!("{name}: test"));
        return;
    }
    println!("\nrunning {} tests", tests.len());
    let begun = Instant::now();
    let mut failed = Vec::new();
    for (name, test) in &tests {
        let since = Instant::now();
        let ok = std::panic::catch_unwind(AssertUnwindSafe(|| test(&options))).is_ok();
        let word = if ok { "ok" } else { "FAILED" };
        println!("test {name} ... {word} ({:.1?})", since.elapsed());
        if !ok {
            failed.push(*name);
        }
    }
    let word = if failed.is_empty() { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {word}. {} passed; {} failed; {ignored} ignored; 0 measured; {} filtered out; finished in {:.2}s\n",
        tests.len() - failed.len(),
        failed.len(),
        (TESTS.len() + LONG.len()).saturating_sub(tests.len() + ignored),
        begun.elapsed().as_secs_f64()
    );
    if !failed.is_empty() {
        println!("failures:\n    {}\n", failed.join("\n    "));
        std::process::exit(101);
    }
}
