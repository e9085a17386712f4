//! Serves MCP over HTTP for the official conformance suite: the stack of `longhaul serve` with the tools that the suite calls.
//!
//! Prints its URL and serves until it is killed. `./test --clients` runs the suite against it, and against `longhaul serve`.
#![allow(clippy::unwrap_used, missing_docs, reason = "a program for tests")]
#![allow(deprecated, reason = "the suite also tests what the newest protocol has dropped")]

mod content;
mod fixture;
mod fixture_tasks;
mod input_required;
mod tools;

use longhaul_server::mcp::{McpHttpOptions, http_service};

#[tokio::main]
async fn main() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let options = McpHttpOptions::for_address(address);
    let service = http_service(fixture::Fixture::default(), &options);
    println!("http://{address}/mcp");
    axum::serve(listener, axum::Router::new().route_service("/mcp", service)).await.unwrap();
}
