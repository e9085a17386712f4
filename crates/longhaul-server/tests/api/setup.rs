//! A server on loopback with a team whose models are functions.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longhaul::store::{SqliteStore, Store};
use longhaul::testing::{FnModel, reply};
use longhaul::tool::{FnTool, ToolEffects};
use longhaul::{Agent, Budget, Longhaul, Team};
use longhaul_server::backend::{Backend, RunsHere, ServedTeam};
use longhaul_server::events::{EventHub, HubOptions};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

pub struct Server {
    pub url: String,
    pub longhaul: Longhaul,
    pub hub: EventHub,
    pub drain: CancellationToken,
    pub client: reqwest::Client,
    listener: tokio::task::JoinHandle<()>,
}

