//! Child processes that never outlive Longhaul, however it ends.

mod group;
mod watchman;

pub use group::Group;
pub(crate) use group::output_of;
pub use watchman::{Watched, Watchman};

#[cfg(test)]
mod tests;
