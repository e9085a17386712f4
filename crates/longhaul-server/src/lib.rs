//! The doors of Longhaul that listen: HTTP, server-sent events, the dashboard and MCP.
//!
//! An empty room for now. It stands here so that the direction of dependencies is settled:
//! `longhaul-cli → longhaul-server → longhaul`.

pub use longhaul;
