//! The store exam: the guarantees of [`Store`], as questions that every implementation must pass.
//!
//! Run it in the tests of a store, where each question becomes a test:
//!
//! ```
//! # use std::sync::Arc;
//! # use longhaul::store::MemoryStore;
//! mod exam {
//!     # use super::*;
//!     longhaul::store_exam!(|clock| Arc::new(MemoryStore::with_clock(clock)));
//! }
//! # fn main() {}
//! ```
//!
//! Outside of a test harness, [`run_all`] runs all of them, and panics at the first failure.
//!
//! Each question creates its own store with a clock that only the question moves; stores must be empty and
//! must not share anything.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a question is failed by panicking")]

mod claims;
mod copies;
mod deletion;
mod feed;
mod fences;
mod journal;
mod setup;
mod views;

use std::sync::Arc;

pub use self::claims::*;
pub use self::copies::*;
pub use self::deletion::*;
pub use self::feed::*;
pub use self::fences::*;
pub use self::journal::*;
pub use self::setup::{ExamSetup, TestClock};
pub use self::views::*;
use crate::store::{Clock, Store};

/// Creates the stores for the exam: empty ones, with this clock.
pub type StoreFactory<'a> = &'a (dyn Fn(Clock) -> Arc<dyn Store> + Send + Sync);

/// Runs every question, one after another. [`store_exam!`](crate::store_exam) makes a test of each.
///
/// ```
/// # use std::sync::Arc;
/// # use longhaul::{store::MemoryStore, testing::store_exam};
/// # #[tokio::main] async fn main() {
/// store_exam::run_all(&|clock| Arc::new(MemoryStore::with_clock(clock))).await;
/// # }
/// ```
pub async fn run_all(make: StoreFactory<'_>) {
    crate::store_exam!(@questions @sit [make]);
}

/// Defines a test for each question of the [store exam](crate::testing::store_exam), for the stores that
/// `$make` creates.
///
/// The crate that uses it needs `tokio` with the features `macros` and `rt-multi-thread`.
#[macro_export]
macro_rules! store_exam {
    (@sit [$make:ident] $($question:ident)*) => { $( $question($make).await; )* };
    (@tests [$make:expr] $($question:ident)*) => {
        $(
            #[::tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $question() {
                $crate::testing::store_exam::$question(&$make).await;
            }
        )*
    };
    (@questions @$then:ident $context:tt) => {
        $crate::store_exam! { @$then $context
            a_journal_is_read_in_the_order_in_which_it_was_written
            a_journal_is_read_in_pages
            a_task_that_is_not_there_has_no_journal
            a_batch_is_all_or_nothing
            a_letter_is_taken_once
            a_letter_is_taken_once_though_many_send_it
            large_entries_come_back_whole
            states_are_the_fold_of_their_journals
            only_live_words_are_live
            what_is_kept_is_found_by_its_digest
            a_stored_value_is_written_by_whoever_has_read_it
            what_is_deleted_is_gone
            only_what_has_ended_is_deleted
            only_what_belongs_together_is_deleted
            what_is_kept_goes_with_the_last_that_needs_it
            others_hear_that_something_was_deleted
            a_task_is_submitted_once
            only_the_owner_writes_as_owner
            an_attempt_that_is_over_writes_nothing
            only_a_dead_owner_is_abandoned
            anyone_writes_only_what_anyone_may
            a_new_task_begins_with_its_submission
            a_stop_of_a_pending_task_is_settled_by_anyone
            a_writer_can_insist_that_nothing_came_between
            a_write_without_entries_only_asks
            nothing_comes_after_the_end
            limits_hold_though_many_submit
            limits_do_not_refuse_what_is_there_already
            limits_count_what_they_say
            claims_are_oldest_first
            claims_take_what_they_ask_for
            a_task_is_claimed_by_one
            a_stop_and_a_claim_do_not_both_win
            a_released_task_is_claimed_again
            leases_end_and_are_renewed
            a_clock_that_is_set_ends_no_lease
            after_a_silence_no_one_is_gone_yet
            a_retired_worker_is_gone_at_once
            lists_are_in_order_of_submission
            every_filter_filters
            old_tasks_are_found_by_what_became_of_them
            a_task_is_found_by_its_id_or_its_beginning
            an_append_gives_a_hint
            a_claim_gives_a_hint
            the_feed_has_every_entry_once_and_in_order
            a_reader_of_the_feed_misses_nothing
            deleted_tasks_leave_the_feed
            a_foreign_position_is_refused
            a_list_is_read_in_pages_from_the_newest
            a_store_is_copied_whole
            the_time_is_the_clocks
        }
    };
    ($make:expr) => { $crate::store_exam!(@questions @tests [$make]); };
}
