//! Child processes that end with Longhaul, however it ends.

#[cfg(target_os = "linux")]
mod descent;
mod group;
#[cfg(target_os = "linux")]
mod supervise;
#[cfg(target_os = "linux")]
mod supervisor;
mod watchman;

pub(crate) use group::output_of;
pub use group::{Group, Left};
#[cfg(target_os = "linux")]
pub use supervise::{SUPERVISE, supervise};
pub use watchman::{Watched, Watchman};

#[cfg(test)]
mod tests;
