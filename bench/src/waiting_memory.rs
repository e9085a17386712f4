//! Many tasks that wait at once: what each keeps in memory.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use longhaul::dispatch::TaskLimits;
use longhaul::model::Model;
use longhaul::testing::FnModel;
use longhaul::{Agent, Longhaul, Order, Team};
use tokio::sync::Notify;

use crate::gauge::{self, Measurement};

pub(crate) async fn measure(store: &str, tasks: usize) -> Result<Measurement, Box<dyn Error>> {
    let (asked, all_here) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let (count, here) = (asked.clone(), all_here.clone());
    let model: Arc<dyn Model> = Arc::new(FnModel::try_new(move |_| {
        if count.fetch_add(1, Ordering::Relaxed) + 1 == tasks {
            here.notify_one();
        }
        std::future::pending::<Result<longhaul::message::Reply, longhaul::model::ModelError>>()
    }));
    let (store, _dir) = gauge::open_store(store)?;
    let worker = Agent::builder("worker").model(model).build()?;
    let limits = TaskLimits::default().running(tasks).queue(None);
    let longhaul = Longhaul::builder(Team::new(worker)?).shared_store(store).limits(limits).start().await?;
    let before = gauge::proc_status_kib("VmRSS")?;
    let start = Instant::now();
    for n in 0..tasks / 100 {
        let submits = (0..100).map(|m| longhaul.submit(Order::new("worker", format!("Task {n}.{m}"))));
        futures::future::try_join_all(submits).await?;
    }
    all_here.notified().await;
    let seconds = start.elapsed().as_secs_f64();
    let after = gauge::proc_status_kib("VmRSS")?;
    let kib_per_task = after.saturating_sub(before) as f64 / tasks as f64;
    Ok(Measurement { tasks: tasks as u64, seconds, kib_per_task, ..Measurement::default() })
}
