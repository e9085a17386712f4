//! Network interfaces of Longhaul: HTTP, server-sent events, OpenAI Responses, MCP, and ACP on stdio.
//!
//! Each interface is a thin layer over [`backend::Backend`]. None of them owns a task: whoever comes through
//! one may die, and the task goes on. [`app::app`] puts all of them behind one [guard], and
//! [`listen::Listener`] serves the result.

pub mod access;
pub mod acp;
pub mod api;
pub mod app;
pub mod backend;
pub mod dashboard;
pub mod events;
pub mod guard;
pub mod listen;
pub mod mcp;
pub mod problem;
pub mod views;
pub mod responses;

pub use axum::Router;
pub use longhaul;
