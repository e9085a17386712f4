//! Network interfaces of Longhaul: HTTP, server-sent events, the dashboard and MCP.
//!
//! Empty for now. The crate exists so that the direction of dependencies is fixed:
//! `longhaul-cli → longhaul-server → longhaul`.

pub use longhaul;
