//! The command as people and programs meet it: real processes, real databases, no terminal.
#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "helpers of tests, too, fail by panicking")]

mod answer;
mod approval;
mod bad;
mod crash;
mod demo;
mod form;
mod kit;
#[cfg(target_os = "linux")]
mod mcp;
#[cfg(target_os = "linux")]
mod sandbox;
mod places;
mod second;
mod team;
