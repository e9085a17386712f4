//! Arguments of `store`.

use clap::{Args, Subcommand};

/// Arguments of `store`.
#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    #[command(subcommand)]
    pub(crate) command: StoreCommand,
}

/// What to do with a store.
#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Create the tables of a PostgreSQL database, or bring them up to date
    ///
    /// Run it once before the first task, and after an upgrade that asks for it. Other commands do not change the tables
    /// of PostgreSQL. Names the store as all commands do: --store, or LONGHAUL_STORE.
    Migrate,
    /// Copy all tasks into another, empty store
    ///
    /// A store is a PostgreSQL URL, a database file or its directory, or `@FILE` with a URL in it; `-` is the store of
    /// --store or LONGHAUL_STORE. No process may run tasks meanwhile. Journals, team files, outputs and stored lists are
    /// copied; tasks that had not ended are pending in the copy.
    Copy {
        /// The store to copy
        from: String,
        /// The empty store to copy into
        to: String,
    },
}
