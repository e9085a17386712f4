//! Serves MCP over HTTP for the official conformance suite: `real` is the MCP server of a played team, `fixture`
//! is the same stack with the tools that the suite calls.
//!
//! Prints its URL and serves until it is killed. `./test --clients` runs the suite against both.
#![allow(clippy::unwrap_used, missing_docs, reason = "a program for tests")]

mod fixture;
mod fixture_tasks;

use std::sync::Arc;

use longhaul::testing::{FnModel, reply};
use longhaul::{Agent, Budget, Longhaul, Team};
use longhaul_server::backend::{Backend, RunsHere, ServedTeam};
use longhaul_server::mcp::{McpHttpOptions, http_service, router};

#[tokio::main]
async fn main() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let options = McpHttpOptions::for_address(address);
    let app = match std::env::args().nth(1).as_deref() {
        Some("fixture") => {
            axum::Router::new().route_service("/mcp", http_service(fixture::Fixture::default(), &options))
        }
        Some("real") => {
            let model = Arc::new(FnModel::new(|_| reply().text("Fine.")));
            let team = Team::new(Agent::builder("worker").model(model).build().unwrap()).unwrap();
            let longhaul = Longhaul::builder(team.clone()).start().await.unwrap();
            let dir = std::env::current_dir().unwrap();
            let served =
                ServedTeam { name: "played".to_owned(), team, working_dir: dir, budget: Budget::default() };
            router(&Backend::new(longhaul, vec![served], Arc::new(RunsHere)), &options).unwrap()
        }
        _ => panic!("usage: mcp_conformance real|fixture"),
    };
    println!("http://{address}/mcp");
    axum::serve(listener, app).await.unwrap();
}
