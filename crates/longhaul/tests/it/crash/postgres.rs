//! The same kills on PostgreSQL: processes that share nothing but the server.

use std::path::Path;
use std::sync::Arc;

use longhaul::store::{PostgresOptions, PostgresStore, Store};
use longhaul::testing::TestPostgres;

use crate::crash::Options;
use crate::crash::kill;
use crate::crash::roles::block_on;
use crate::crash::store::address_file;

/// Opens the store with this address.
pub(crate) async fn open(address: &str) -> Arc<dyn Store> {
    Arc::new(PostgresStore::open(PostgresOptions::new(address).unwrap()).await.unwrap())
}

/// Makes a store for a test, and writes its address into the test's directory.
fn prepare(server: &TestPostgres, dir: &Path) {
    let address = server.url(&server.fresh_schema());
    block_on(async { PostgresStore::migrate(&PostgresOptions::new(&address).unwrap()).await.unwrap() });
    std::fs::write(address_file(dir), address).unwrap();
}

/// One process after another is killed: this many in all, at least.
fn kills(options: &Options, seeds: u64, least: u64) {
    let Some(server) = TestPostgres::shared() else { return };
    let kills = kill::one_process_in(options, seeds, "0.9", |dir| prepare(server, dir));
    assert!(options.only.is_some() || kills >= least, "only {kills} kills");
}

pub(crate) fn some_kills(options: &Options) {
    kills(options, 4, 15);
}

pub(crate) fn kills_500(options: &Options) {
    kills(options, 46, 500);
}

pub(crate) fn two_processes(options: &Options) {
    let Some(server) = TestPostgres::shared() else { return };
    kill::two_processes_in(options, 2, |dir| prepare(server, dir));
}
