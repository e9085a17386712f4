//! The integration tests of the library, as one program: `cargo test -p longhaul --test it [acp|engine|http|mcp|crash|docs|live]`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod acp;
mod crash;
mod docs;
mod engine;
mod http;
mod live;
#[cfg(all(target_os = "linux", feature = "mcp"))]
mod mcp;
