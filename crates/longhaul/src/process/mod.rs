//! Child processes that end with Longhaul, however it ends.

#[cfg(target_os = "linux")]
mod process_tree;
mod group;
#[cfg(target_os = "linux")]
mod supervisor_process;
#[cfg(target_os = "linux")]
mod supervisor_client;
mod guardian;

#[cfg(feature = "toolsets")]
pub(crate) use group::run_to_output;
pub use group::{LeftoverProcesses, ProcessGroup};
pub use guardian::{GuardedGroup, ProcessGuardian};
#[cfg(target_os = "linux")]
pub use supervisor_process::{SUPERVISE_COMMAND, run_supervisor};

#[cfg(test)]
mod tests;
