//! What the processes do that are started, and killed.

use std::future::Future;
use std::io::BufRead as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use longhaul::agent::TeamError;
use longhaul::entry::TeamRef;
use longhaul::id::WorkerId;
use longhaul::permission::Permissions;
use longhaul::store::{ClaimRequest, SqliteOptions, SqliteStore, Store, TaskFilter};
use longhaul::supervisor::LonghaulBuilder;
use longhaul::worker::TeamLoader;
use longhaul::{Longhaul, Order, Team};
use nix::sys::signal::Signal;

use crate::crash::process::{generations, write_line};
use crate::crash::store::{Death, KillAt, clock, open};
use crate::crash::team;

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

/// Plays the role that the arguments name: `ROLE DIR …`.
pub(crate) fn play(args: &[String]) {
    let (role, dir) = (args[0].as_str(), PathBuf::from(&args[1]));
    let rest: Vec<&str> = args[2..].iter().map(String::as_str).collect();
    write_line(&generations(&dir), &std::process::id().to_string());
    println!("alive");
    block_on(async {
        match role {
            "crash" => crash(&dir, &rest).await,
            "claim" => claim(&dir, &rest).await,
            "count" => count(&dir, &rest).await,
            "chain" => chain(&dir, &rest).await,
            "owner" => owner(&dir, &rest).await,
            "stranger" => stranger(&dir, &rest).await,
            #[cfg(target_os = "linux")]
            "foreign" => foreign(&dir, &rest).await,
            #[cfg(target_os = "linux")]
            "guard" => crate::crash::guard::role(&dir, &rest),
            other => panic!("no role '{other}'"),
        }
    });
}

/// `NAME DEATH DELAY LEASE [OFFSET]`: works on the crash team's one root until that has ended, or death comes first. Its
/// clock is so many seconds fast.
async fn crash(dir: &Path, args: &[&str]) {
    let offset = args.get(4).map_or(0, |offset| offset.parse().unwrap());
    let options = SqliteOptions::default().clock(clock(offset));
    let store = KillAt::open_with(dir, args[0], death(args[1]), options).await;
    let longhaul = start(Longhaul::builder(team::crash(dir, args[2])).shared_store(store), args[3]).await;
    let root = longhaul.submit_once("crash", Order::new("lead", "go")).await.unwrap();
    longhaul.wait([root]).await.unwrap();
    longhaul.shutdown().await;
}

/// `NAME DEATH LEASE`: the same with a team whose agents are other programs.
#[cfg(target_os = "linux")]
async fn foreign(dir: &Path, args: &[&str]) {
    let store = KillAt::open(dir, args[0], death(args[1])).await;
    let team = crate::crash::foreign::team(dir);
    let longhaul = start(Longhaul::builder(team).shared_store(store), args[2]).await;
    let order = Order::new("lead", "go").working_dir(dir.to_owned());
    let root = longhaul.submit_once("foreign", order).await.unwrap();
    longhaul.wait([root]).await.unwrap();
    longhaul.shutdown().await;
}

/// `b7` is a death before the seventh append is written, `a7` after, `-` none; with an `s` before it, it is only stopped.
fn death(text: &str) -> Option<Death> {
    let (signal, text) = match text.strip_prefix('s') {
        Some(rest) => (Signal::SIGSTOP, rest),
        None => (Signal::SIGKILL, text),
    };
    let (when, number) = text.split_at(1);
    number.parse().ok().map(|at| Death { at, after: when == "a", signal })
}

/// `WORKER`: claims whatever there is, a few at a time, and then says how many.
async fn claim(dir: &Path, args: &[&str]) {
    let store = open(dir, SqliteOptions::default()).await;
    let worker = WorkerId::from(args[0]);
    store.renew_lease(worker.clone(), Duration::from_secs(60)).await.unwrap();
    println!("ready");
    heard().await;
    let mut claimed = 0;
    loop {
        let teams = vec![TeamRef::Named("counted".into())];
        let claim = ClaimRequest {
            worker: worker.clone(),
            teams,
            roots: None,
            fresh_only: false,
            except: vec![],
            max: 3,
        };
        match store.claim(claim).await.unwrap().len() {
            0 => break,
            some => claimed += some,
        }
    }
    println!("{claimed}");
}

/// `WORKER`: runs whatever there is until all has ended.
async fn count(dir: &Path, args: &[&str]) {
    let store = KillAt::open(dir, args[0], None).await;
    println!("ready");
    heard().await;
    let longhaul = start(Longhaul::builder(team::stranger("counted")).shared_store(store), "15").await;
    let tasks = longhaul.list(TaskFilter::default()).await.unwrap();
    longhaul.wait(tasks.iter().map(|task| task.id)).await.unwrap();
    longhaul.shutdown().await;
}

/// `LEASE [stay] [ask]`: runs the chain team (which has to ask for what it does) by the script in `script.yaml`, and its root, until that has ended (unless it
/// is to stay), it is told `drain` or its input ends.
async fn chain(dir: &Path, args: &[&str]) {
    let script = std::fs::read_to_string(dir.join("script.yaml")).unwrap();
    let mut team = team::chain(dir, &script);
    if args.contains(&"ask") {
        team = team.with_permissions(Permissions::default());
    }
    let builder = Longhaul::builder(team).shared_store(KillAt::open(dir, "chain", None).await);
    let longhaul = start(builder, args[0]).await;
    let order = Order::new("lead", "go").working_dir(dir.to_owned());
    let root = longhaul.submit_once("chain", order).await.unwrap();
    println!("started");
    tokio::select! {
        line = heard() => assert!(matches!(line.as_deref(), Some("drain") | None)),
        done = longhaul.wait([root]), if !args.contains(&"stay") => drop(done.unwrap()),
    }
    longhaul.shutdown().await;
}

/// `LEASE`: the same with a team that is kept in the store as a file.
async fn owner(dir: &Path, args: &[&str]) {
    let script = std::fs::read_to_string(dir.join("script.yaml")).unwrap();
    let store = KillAt::open(dir, "owner", None).await;
    let digest = store.put_blob(script.clone().into_bytes()).await.unwrap();
    let team = team::chain(dir, &script).with_reference(TeamRef::File(digest));
    let longhaul = start(Longhaul::builder(team).shared_store(store), args[0]).await;
    let root = longhaul.submit_once("owner", Order::new("lead", "go")).await.unwrap();
    println!("started");
    longhaul.wait([root]).await.unwrap();
    longhaul.shutdown().await;
}

struct Loader(PathBuf);

impl TeamLoader for Loader {
    fn load(&self, file: &[u8]) -> Result<Team, TeamError> {
        Ok(team::chain(&self.0, std::str::from_utf8(file).unwrap()))
    }
}

/// `NAME loader|- LEASE`: has a team of its own, does a task of that, and then whatever else it finds, until its
/// input ends.
async fn stranger(dir: &Path, args: &[&str]) {
    let store = KillAt::open(dir, args[0], None).await;
    let mut builder = Longhaul::builder(team::stranger(args[0])).shared_store(store);
    if args[1] == "loader" {
        builder = builder.loader(Loader(dir.to_owned()));
    }
    let longhaul = start(builder, args[2]).await;
    let own = longhaul.submit(Order::new(args[0], "mine")).await.unwrap();
    longhaul.wait([own]).await.unwrap();
    println!("at work");
    heard().await;
    longhaul.shutdown().await;
}

async fn start(builder: LonghaulBuilder, lease: &str) -> Longhaul {
    let lease = Duration::from_secs_f64(lease.parse().unwrap());
    builder.lease(lease).shutdown_grace(Duration::from_secs(30)).start().await.unwrap()
}

/// The next line of the input; `None` at its end.
async fn heard() -> Option<String> {
    let read = || std::io::stdin().lock().lines().next().map(Result::unwrap);
    // A thread of its own: the runtime waits for its own blocking threads when it ends.
    let (send, receive) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || send.send(read()));
    receive.await.unwrap_or(None)
}

/// A store, and what a client can do there.
pub(crate) fn client(dir: &Path) -> (Arc<SqliteStore>, impl Future<Output = Longhaul>) {
    let store = Arc::new(SqliteStore::open(dir.join("db")).unwrap());
    let shared: Arc<dyn Store> = store.clone();
    (store, async move { Longhaul::client(shared).await.unwrap() })
}
