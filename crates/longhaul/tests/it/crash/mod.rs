//! What survives a kill: real processes on one SQLite file or one PostgreSQL schema, killed with SIGKILL at seeded places.
//!
//! The test program starts itself again as the process to be killed ([`child_process`], see [`roles`]), and audits what that
//! left. `LONGHAUL_SEEDS=N` and `LONGHAUL_SEED=K` choose how many seeds are tried, or which one.

mod asked;
mod audit;
mod claims;
mod drain;
#[cfg(target_os = "linux")]
mod foreign;
#[cfg(target_os = "linux")]
mod guard;
mod inside;
mod kill;
mod postgres;
pub(crate) mod process;
mod recovery;
mod roles;
mod seeded;
mod stop;
mod stopped;
mod store;
pub(crate) mod team;

use std::sync::{Mutex, PoisonError};

/// How many seeds are tried, and which.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    seeds: u64,
    only: Option<u64>,
}

impl Options {
    fn from_env() -> Options {
        let number = |name| std::env::var(name).ok().map(|n: String| n.parse().expect(name));
        Options { seeds: number("LONGHAUL_SEEDS").unwrap_or(28), only: number("LONGHAUL_SEED") }
    }
}

/// Runs a crash test. One at a time: each starts several processes.
fn run(test: fn(&Options)) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    test(&Options::from_env());
}

/// One of the processes that the tests start: plays the role that the environment names.
#[test]
#[ignore = "the crash tests start it"]
fn child_process() {
    let Ok(args) = std::env::var(process::CHILD) else { return };
    roles::play(&serde_json::from_str::<Vec<String>>(&args).unwrap());
    std::process::exit(0);
}

#[test]
fn killed_at_any_boundary_it_ends_as_if_never_killed() {
    run(kill::one_process);
}

#[test]
fn one_of_two_processes_is_killed_again_and_again() {
    run(kill::two_processes);
}

#[test]
fn two_processes_claim_a_thousand_tasks_once_each() {
    run(claims::a_thousand);
}

#[test]
fn two_engines_finish_what_is_in_one_file_once_each() {
    run(claims::two_engines);
}

#[test]
fn a_tree_of_depth_three_is_stopped_from_another_process() {
    run(stop::of_a_tree);
}

#[test]
fn a_stop_outlives_the_kill_of_the_process_it_was_meant_for() {
    run(stop::then_a_kill);
}

#[test]
fn half_a_stop_is_finished_by_whoever_comes_next() {
    run(stop::half_done);
}

#[test]
fn a_stranger_with_a_loader_carries_a_task_to_its_end() {
    run(recovery::by_a_stranger);
}

#[test]
fn who_knows_neither_team_nor_loader_leaves_a_task_alone() {
    run(recovery::not_by_the_ignorant);
}

#[test]
fn a_task_whose_owner_is_alive_is_never_taken() {
    run(recovery::not_of_the_living);
}

#[test]
fn a_drained_process_gives_its_tasks_back_and_another_ends_them() {
    run(drain::drained);
}

#[test]
fn a_slow_drain_keeps_its_lease() {
    run(drain::slowly);
}

#[test]
fn a_read_that_nobody_polls_keeps_no_other_waiting() {
    run(inside::unpolled_reads);
}

#[test]
fn the_last_seat_is_given_back_when_only_a_wait_is_left() {
    run(inside::one_seat);
}

#[test]
fn a_task_that_the_store_failed_goes_on_and_sends_nothing_twice() {
    run(inside::failed_once);
}

#[test]
fn stops_letters_and_drains_in_any_order_leave_whole_journals() {
    run(inside::any_order);
}

#[test]
fn a_question_outlives_two_kills_and_is_answered_from_another_process() {
    run(asked::killed_while_asking);
}

#[test]
#[cfg(target_os = "linux")]
fn stopped_at_any_boundary_past_its_lease_it_does_nothing_any_more() {
    run(stopped::at_any_boundary);
}

#[test]
#[cfg(target_os = "linux")]
fn killed_and_stopped_in_any_order_nothing_is_done_twice() {
    run(stopped::mixed_with_kills);
}

#[test]
#[cfg(target_os = "linux")]
fn clocks_that_differ_take_nothing_from_the_living() {
    run(stopped::other_clocks);
}

#[test]
#[cfg(target_os = "linux")]
fn no_child_process_outlives_a_kill() {
    run(guard::killed);
}

#[test]
#[cfg(target_os = "linux")]
fn no_child_process_outlives_a_good_end() {
    run(guard::in_good_order);
}

#[test]
#[cfg(target_os = "linux")]
fn no_prompt_to_another_program_is_sent_twice_whenever_it_is_killed() {
    run(foreign::killed);
}

#[test]
fn killed_at_any_boundary_on_postgresql_it_ends_as_if_never_killed() {
    run(postgres::some_kills);
}

#[test]
fn one_of_two_processes_on_postgresql_is_killed_again_and_again() {
    run(postgres::two_processes);
}

// These take minutes: `./test --all` runs them.

#[test]
#[ignore = "takes minutes"]
fn long_500_kills_on_postgresql() {
    run(postgres::kills_500);
}

#[test]
#[ignore = "takes minutes"]
#[cfg(target_os = "linux")]
fn long_300_kills_with_agents_of_other_programs() {
    run(foreign::killed_300_times);
}

#[test]
#[ignore = "takes minutes"]
#[cfg(target_os = "linux")]
fn long_200_seeds_stopped_at_any_boundary() {
    run(stopped::at_any_boundary_200);
}

#[test]
#[ignore = "takes minutes"]
#[cfg(target_os = "linux")]
fn long_2000_kills_mixed_with_stops() {
    run(stopped::mixed_2000);
}
