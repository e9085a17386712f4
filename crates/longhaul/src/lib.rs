//! Background agents that survive.
//!
//! An orchestrating agent hands tasks to sub-agents, goes on working, looks in on them, writes to them, stops them
//! and collects what they made. A task *is* its journal, so a killed process loses nothing.
//!
//! The rooms, bottom up; a room uses only rooms above it in this list:

pub mod dispatch;
pub mod entry;
pub mod id;
pub mod message;
pub mod model;
pub mod snapshot;
pub mod store;
pub mod task;
pub mod tool;
pub mod toolset;
pub mod agent;
pub mod turn;
mod runner;
pub mod worker;
pub mod supervisor;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
