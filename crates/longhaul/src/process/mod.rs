//! Child processes that never outlive Longhaul, however it ends.

#[cfg(target_os = "linux")]
mod descent;
mod group;
#[cfg(target_os = "linux")]
mod supervise;
#[cfg(target_os = "linux")]
mod supervisor;
mod watchman;

pub(crate) use group::run_to_output;
pub use group::{ProcessGroup, LeftoverProcesses};
#[cfg(target_os = "linux")]
pub use supervise::{SUPERVISE_COMMAND, run_supervisor};
pub use watchman::{GuardedGroup, ProcessGuardian};

#[cfg(test)]
mod tests;
