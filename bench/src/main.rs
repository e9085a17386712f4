//! What Longhaul costs: one table, measured in one run so that its rows can be compared.
//!
//! `./bench/run [TASKS]` (10,000 unless told). Each measurement runs in a process of its own, so that its CPU time and its
//! peak memory are its own. `./bench/fanout [AGENTS…] [ROWS…]` compares many agents over HTTP
//! with a bare loop that makes the same requests. `./bench/grow DIR TASKS` makes a store with many tasks that have ended.
//! `./bench/stores [SECONDS]` compares PostgreSQL with SQLite, `./bench/stores churn [TASKS]` submits, runs and deletes many tasks beside a
//! transaction that stays open, and `./bench/stores hints [PAIRS] [LISTENERS]` appends while other processes listen.

mod churn;
mod fanout;
mod gauge;
mod grown_store;
mod hint_cost;
mod idle;
mod latency;
mod stores;
mod throughput;
mod waiting_memory;

use std::error::Error;
use std::process::Command;
use std::time::Duration;

use gauge::Measurement;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["--serve"] => fanout::serve(),
        ["--spawn", program, args @ ..] => fanout::spawn_and_measure(program, args),
        ["--bare", url, agents, gate] => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            runtime.block_on(fanout::measure_bare(url, agents.parse()?, gate.parse()?))
        }
        ["--engine"] => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            runtime.block_on(fanout::measure_engine())
        }
        ["fanout", rest @ ..] => {
            let agents: Vec<usize> = rest.iter().filter_map(|arg| arg.parse().ok()).collect();
            let only: Vec<&str> = rest.iter().copied().filter(|arg| arg.parse::<usize>().is_err()).collect();
            fanout::print_fanout_tables(&agents, &only)
        }
        ["grow", directory, tasks] => {
            let tasks = tasks.parse().map_err(|_| format!("'{tasks}' is not a number of tasks"))?;
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            runtime.block_on(grown_store::grow_store(directory.as_ref(), tasks))
        }
        ["stores"] => stores::print_table(5),
        ["--listen", url] => hint_cost::listen(url),
        ["stores", "hints", rest @ ..] => {
            let number = |nth: usize, usual: usize| rest.get(nth).map_or(Ok(usual), |text| text.parse());
            hint_cost::print_alone(number(0, 15)?, Duration::from_secs(2), number(1, 1)?)
        }
        ["stores", "churn"] => churn::print(100_000),
        ["stores", "churn", tasks] => churn::print(tasks.parse()?),
        ["stores", seconds] => stores::print_table(seconds.parse()?),
        ["--one", what, tasks] => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            let reading = runtime.block_on(run_measurement(what, tasks.parse()?))?;
            println!("{}", serde_json::to_string(&reading)?);
            Ok(())
        }
        [] => table(10_000),
        [tasks] => table(tasks.parse().map_err(|_| format!("'{tasks}' is not a number of tasks"))?),
        _ => {
            Err("usage: ./bench/run [TASKS], ./bench/fanout [AGENTS…] [ROWS…], ./bench/stores [SECONDS], ./bench/stores churn [TASKS], ./bench/stores hints [PAIRS] [LISTENERS] or ./bench/grow DIR TASKS"
                .into())
        }
    }
}

async fn run_measurement(what: &str, tasks: usize) -> Result<Measurement, Box<dyn Error>> {
    let (what, store) = what.split_once('/').ok_or("a measurement is WHAT/STORE")?;
    match what {
        "throughput" => throughput::measure(store, tasks).await,
        "latency" => latency::measure(store, tasks).await,
        "crowd" => waiting_memory::measure(store, tasks).await,
        _ => Err(format!("no measurement '{what}'").into()),
    }
}

fn measure_in_child(what: &str, tasks: usize) -> Result<Measurement, Box<dyn Error>> {
    eprintln!("measuring {what} …");
    let output = Command::new(std::env::current_exe()?).args(["--one", what, &tasks.to_string()]).output()?;
    if !output.status.success() {
        return Err(format!("{what} failed: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn table(tasks: usize) -> Result<(), Box<dyn Error>> {
    let stores = ["memory", "sqlite-normal", "sqlite"];
    let mut rows = Vec::new();
    for store in stores {
        rows.push((store, measure_in_child(&format!("throughput/{store}"), tasks)?));
    }
    println!(
        "\n{tasks} tasks of 3 tool turns, one tool call a turn, scripted model without delay, 256 seats\n"
    );
    println!(
        "{:<15}{:>10}{:>10}{:>13}{:>12}{:>14}",
        "store", "tasks/s", "turns/s", "CPU µs/turn", "peak MiB", "disk B/task"
    );
    for (store, r) in &rows {
        println!(
            "{store:<15}{:>10.0}{:>10.0}{:>13.1}{:>12.1}{:>14}",
            r.tasks_per_second(),
            r.tasks_per_second() * 3.0,
            r.cpu_us / (r.tasks as f64 * 3.0),
            r.peak_kib as f64 / 1024.0,
            if r.disk_bytes == 0 { "–".to_owned() } else { (r.disk_bytes / r.tasks).to_string() },
        );
    }
    println!("\nsubmit → claimed, one at a time\n");
    println!("{:<15}{:>12}{:>12}", "store", "p50 µs", "p99 µs");
    for store in stores {
        let r = measure_in_child(&format!("latency/{store}"), 2000)?;
        println!("{store:<15}{:>12.0}{:>12.0}", r.p50_us, r.p99_us);
    }
    println!("\n{tasks} tasks that wait at once for their model\n");
    println!("{:<15}{:>16}{:>18}", "store", "RSS KiB/task", "all claimed in s");
    for store in ["memory", "sqlite"] {
        let r = measure_in_child(&format!("crowd/{store}"), tasks)?;
        println!("{store:<15}{:>16.1}{:>18.2}", r.kib_per_task, r.seconds);
    }
    Ok(())
}
