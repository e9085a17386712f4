//! Attacks on a real listener. Each test is named after what is refused; docs/serve.md names the advisories of
//! other servers that they come from.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests, too, fail by panicking")]

mod connections;
mod credentials;
mod kit;
mod origins;
mod pages;
mod routes;
mod streams;
