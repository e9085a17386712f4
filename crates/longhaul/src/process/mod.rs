//! Child processes that never outlive Longhaul, however it ends.

mod group;
mod watchman;

pub use group::Group;
pub use watchman::{Watched, Watchman};

#[cfg(test)]
mod tests;
