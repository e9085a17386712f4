//! The HTTP API on a real listener, with a real store.

mod setup;
mod sse;
mod streams;
mod tasks;
