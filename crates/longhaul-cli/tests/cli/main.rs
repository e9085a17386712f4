//! The command as people and programs meet it: real processes, real databases, no terminal.
#![expect(clippy::unwrap_used, reason = "helpers of tests, too, fail by panicking")]

mod acp_unfinished;
mod answer;
mod approval;
mod auto;
mod bad;
mod block;
mod ci;
mod concurrency;
mod crash;
#[cfg(target_os = "linux")]
mod dashboard;
mod demo;
mod detach;
mod edges;
mod ends;
mod events;
mod exit;
mod form;
mod formats;
#[path = "../../../longhaul-server/tests/api/fuzzer.rs"]
mod fuzzer;
mod given_back;
mod harm;
mod heavy;
mod kit;
mod live;
mod long;
#[cfg(target_os = "linux")]
mod mcp;
mod mcp_server;
#[cfg(target_os = "linux")]
mod mcp_task;
mod mcp_wire;
#[cfg(target_os = "linux")]
mod sandbox;
#[cfg(target_os = "linux")]
mod supervised;
#[cfg(target_os = "linux")]
#[path = "../../../longhaul-server/tests/api/stored_tasks.rs"]
mod stored_tasks;
mod timeout;
#[path = "../../../longhaul-server/tests/responses/event_checks.rs"]
#[allow(dead_code, reason = "it belongs to the server's tests, which use more of it")]
mod openai_events;
#[path = "../../../longhaul-server/tests/responses/sdk.rs"]
#[allow(dead_code, reason = "it belongs to the server's tests, which use more of it")]
mod openai_sdk;
mod person;
mod places;
mod run;
mod sampling;
mod second;
mod secrets;
mod serve;
#[cfg(target_os = "linux")]
mod serve_load;
mod serve_fuzz;
mod serve_sdk;
mod serve_watchers;
#[path = "../../../longhaul/tests/it/http/server.rs"]
#[allow(dead_code, clippy::expect_used, reason = "it belongs to the library's tests, which use more of it")]
mod server;
#[cfg(target_os = "linux")]
mod starting;
mod store;
#[cfg(all(target_os = "linux", feature = "postgres"))]
mod store_postgres;
mod taken;
mod tape;
mod team;
mod term;
mod tools;
mod trust;
mod tui;
#[cfg(target_os = "linux")]
mod tui_load;
mod words;
