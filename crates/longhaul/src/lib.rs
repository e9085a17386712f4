//! Durable background agents.
//!
//! An orchestrating agent sends tasks to sub-agents, keeps working, checks on them, messages them, stops them
//! and collects their results. **A task is its journal**: every change to a task is an entry that is written
//! to disk before it takes effect. A killed process loses nothing, and the next process that opens the store
//! continues the work.
//!
//! ```
//! # use std::sync::Arc;
//! # use longhaul::{testing::{FnModel, reply}, model::Model};
//! use futures::StreamExt as _;
//! use longhaul::{Agent, Longhaul, Order, Team, store::SqliteStore};
//!
//! # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("longhaul.db");
//! # let model: Arc<dyn Model> = Arc::new(FnModel::new(|_| reply().text("Go and Rust are both fine.")));
//! let researcher = Agent::builder("researcher")
//!     .model(model.clone())
//!     .instruction("You are a concise research assistant.")
//!     .build()?;
//! let lead = Agent::builder("lead")
//!     .model(model)
//!     .instruction("Research each language in the background, then compare.")
//!     .sub_agent(researcher)
//!     .build()?;
//! let longhaul = Longhaul::builder(Team::new(lead)?).store(SqliteStore::open(path)?).start().await?;
//!
//! let mut events = longhaul.chat("Compare Go and Rust.").await?;
//! while let Some(event) = events.next().await {
//!     println!("{:?}", event?.kind);
//! }
//!
//! let id = longhaul.submit(Order::new("researcher", "Go").max_turns(8)).await?;
//! let done = longhaul.wait([id]).await?;
//! assert_eq!(done.tasks[0].output, "Go and Rust are both fine.");
//! longhaul.shutdown().await;
//! # Ok(()) }
//! ```
//!
//! The modules, bottom up: a module uses only modules above it in this list (a test checks this).
//! `docs/architecture.md` describes what each one guarantees.
//!
//! Features, all on by default: `sqlite` ([`store::SqliteStore`]), `http` ([`model::http`]), `toolsets` (tools for
//! files, programs and the web), `teamfile` ([`teamfile`], [`model::scripted`]) and `mcp` ([`toolset::Mcp`]). Not on by
//! default: `postgres` (`store::PostgresStore`).

// Parts that only the missing features would use.
#![cfg_attr(
    not(all(
        feature = "sqlite",
        feature = "http",
        feature = "toolsets",
        feature = "teamfile",
        feature = "mcp"
    )),
    allow(dead_code)
)]

#[cfg(not(unix))]
compile_error!("Longhaul needs Unix process groups and signals: build it on Linux or macOS.");

/// Fluent setters, named after the fields of a struct: a struct that may get more fields cannot be written as a
/// literal outside this crate. `field: u64 => Some(field)` sets the field to that value of its argument.
macro_rules! fluent_setters {
    ($name:ident { $($(#[$doc:meta])* $field:ident: $kind:ty $(=> $value:expr)?),* $(,)? }) => {
        impl $name {
            $(fluent_setters! { @one [$(#[$doc])*] $field: $kind $(=> $value)? })*
        }
    };
    (@one [] $field:ident: $kind:ty $(=> $value:expr)?) => {
        fluent_setters! {
            @one [#[doc = concat!("Sets the field `", stringify!($field), "`.")]] $field: $kind $(=> $value)?
        }
    };
    (@one [$(#[$doc:meta])+] $field:ident: $kind:ty) => {
        fluent_setters! { @one [$(#[$doc])+] $field: $kind => $field }
    };
    (@one [$(#[$doc:meta])+] $field:ident: $kind:ty => $value:expr) => {
        $(#[$doc])+
        #[must_use]
        pub fn $field(mut self, $field: $kind) -> Self {
            self.$field = $value;
            self
        }
    };
}

/// Declares a struct of options: each field with its default, and a setter for each.
macro_rules! options {
    ($(#[$meta:meta])* pub struct $name:ident {
        $($(#[$doc:meta])* $field:ident: $kind:ty = $default:expr,)*
    }) => {
        $(#[$meta])*
        #[non_exhaustive]
        pub struct $name {
            $($(#[$doc])* pub $field: $kind,)*
        }

        fluent_setters!($name { $($field: $kind),* });

        impl Default for $name {
            fn default() -> Self {
                $name { $($field: $default),* }
            }
        }
    };
}

pub mod id;
pub mod message;
pub mod permission;
pub mod entry;
pub mod task;
pub mod model;
pub mod store;
pub mod process;
pub mod snapshot;
pub mod journal;
pub mod transcript;
pub mod approval;
pub mod dispatch;
pub mod tool;
pub mod toolset;
pub mod hook;
pub mod agent;
mod conversation;
mod runner;
pub mod worker;
pub mod supervisor;
#[cfg(feature = "teamfile")]
pub mod teamfile;

#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use agent::{Agent, Policy, SubAgentDialect, Team};
pub use entry::{Budget, Isolation, OnFinish, Order};
pub use id::{AgentName, TaskId};
pub use snapshot::{Event, EventKind, Snapshot};
pub use supervisor::{Longhaul, LonghaulError};
pub use task::Status;

/// Compiles the code of the README as a doctest.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct ReadmeDoctests;
