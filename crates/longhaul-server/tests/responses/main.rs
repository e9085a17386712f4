//! The OpenAI Responses API, over a real listener, on a real database, and with OpenAI's own SDKs.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod clients;
mod event_checks;
mod http_api;
mod restart;
mod sdk;
mod stage;
