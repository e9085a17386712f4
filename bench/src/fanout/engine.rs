//! The same run through the library, without the command: what the engine costs by itself.

use std::error::Error;

use super::store_counts::StoreCounter;
use longhaul::model::http::{HttpClient, HttpOptions};
use longhaul::store::SqliteStore;
use longhaul::teamfile::{Environment, TeamBundle, assemble};
use longhaul::{Longhaul, Order};

/// Runs `team.yaml` of the current directory, with its store in `data` there.
pub(crate) async fn measure_engine() -> Result<(), Box<dyn Error>> {
    let counter = StoreCounter::install()?;
    let bundle = TeamBundle::from_text("team.yaml", std::fs::read_to_string("team.yaml")?);
    let http = HttpClient::new(HttpOptions::default())?;
    let made = assemble(&bundle, &Environment::new(http, |_| None, "data"))?;
    let store = SqliteStore::open("data/longhaul.db")?;
    let longhaul = Longhaul::builder(made.team).store(store).limits(made.limits).start().await?;
    let root = longhaul.submit(Order::new("root", "Start everybody.")).await?;
    let done = longhaul.wait([root]).await?;
    longhaul.shutdown().await;
    eprintln!("{}", serde_json::to_string(&counter.counts())?);
    match done.tasks.iter().all(|task| task.state.error.is_none()) {
        true => Ok(()),
        false => Err("the run failed".into()),
    }
}
