//! The HTTP API on a real listener, with a real store.

mod fuzz;
mod load;
mod setup;
mod streams;
mod tasks;
