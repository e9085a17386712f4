//! The HTTP API on a real listener, with a real store.

mod dashboard;
mod setup;
mod sse;
mod streams;
mod tasks;
