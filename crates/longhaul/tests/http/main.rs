//! Models over HTTP, against a provider of our own on loopback.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod server;
mod stage;
mod tls;

mod bodies;
mod costs;
mod fallback;
mod limits;
mod outage;
mod recording;
mod secrets;
mod small;
mod streams;
