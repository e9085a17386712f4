//! Helpers for tests of Longhaul, and of anything that implements its traits (feature `testing`).

mod no_dispatcher;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
mod reply;
mod sse;
mod test_call;
pub mod store_exam;

pub use crate::model::FnModel;
pub use no_dispatcher::NoDispatcher;
#[cfg(feature = "postgres")]
pub use postgres::TestPostgres;
pub use reply::{ReplyBuilder, reply};
pub use sse::sse_events;
#[cfg(test)]
pub(crate) use test_call::call_with_signals;
pub use test_call::{CallRequest, CallRequests, Responder, call_context};

/// Folds a journal into the conversation that the model sees, as every run does first, and returns how many
/// messages it has. For benchmarks.
pub fn fold_conversation(
    submission: &crate::entry::Submission,
    agent: &crate::id::AgentName,
    journal: &[crate::entry::Record],
) -> usize {
    let mut conversation = crate::conversation::Conversation::begin(submission, agent);
    journal.iter().for_each(|record| conversation.apply(record));
    conversation.messages().len()
}

/// Reports that a test cannot run here, and why. The harness counts such a test as passed; `./test` counts
/// these lines and reports how many were skipped. The line bypasses the harness, which captures what tests
/// print.
pub fn report_skipped(why: &str) {
    use std::io::Write as _;
    let thread = std::thread::current();
    let _ = writeln!(std::io::stderr(), "\nskipped: {}: {why}", thread.name().unwrap_or("a test"));
}
