//! The HTTP API on a real listener, with a real store.

mod docs;
mod fuzz;
mod load;
mod setup;
mod sse;
mod streams;
mod tasks;
