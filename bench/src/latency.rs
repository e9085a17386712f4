//! From the call of `submit` to the claim, one task at a time.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul::model::Model;
use longhaul::testing::{FnModel, reply};
use longhaul::{Agent, Longhaul, Order, Team};
use tokio::sync::mpsc;

use crate::gauge::{self, Measurement};

pub(crate) async fn measure(store: &str, tasks: usize) -> Result<Measurement, Box<dyn Error>> {
    // The model is asked right after the claim; that moment is the one that is heard.
    let (asked, mut heard) = mpsc::unbounded_channel();
    let model: Arc<dyn Model> = Arc::new(FnModel::new(move |_| {
        let _ = asked.send(Instant::now());
        reply().text("Yes.")
    }));
    let (store, _dir) = gauge::open_store(store)?;
    let worker = Agent::builder("worker").model(model).build()?;
    let longhaul = Longhaul::builder(Team::new(worker)?).shared_store(store).start().await?;
    let mut took: Vec<Duration> = Vec::with_capacity(tasks);
    for n in 0..tasks {
        let start = Instant::now();
        let id = longhaul.submit(Order::new("worker", format!("Task {n}"))).await?;
        took.push(heard.recv().await.ok_or("nobody asked the model")? - start);
        longhaul.wait([id]).await?;
    }
    longhaul.shutdown().await;
    took.sort();
    let at = |part: usize| took[took.len() * part / 100].as_secs_f64() * 1e6;
    Ok(Measurement { tasks: tasks as u64, p50_us: at(50), p99_us: at(99), ..Measurement::default() })
}
