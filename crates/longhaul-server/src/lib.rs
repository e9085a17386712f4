//! Network interfaces of Longhaul: HTTP, server-sent events, OpenAI Responses and MCP.
//!
//! Each interface is a thin layer over [`backend::Backend`]. None of them owns a task: whoever comes through
//! one may die, and the task goes on.

pub mod backend;
pub mod problem;
pub mod responses;

pub use longhaul;
