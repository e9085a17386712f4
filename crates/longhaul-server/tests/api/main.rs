//! The HTTP API on a real listener, with a real store.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod dashboard;
mod docs;
mod fuzz;
mod fuzzer;
mod load;
mod setup;
mod sse;
mod stored_tasks;
mod streams;
mod tasks;
