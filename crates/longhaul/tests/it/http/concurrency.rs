//! How many requests run at once: as many as the provider takes, or a fixed number.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use longhaul::dispatch::TaskLimits;
use longhaul::id::AgentName;
use longhaul::message::Message;
use longhaul::model::http::{HttpClient, HttpOptions};
use longhaul::model::wire::WireCache;
use longhaul::model::{Model, ModelErrorKind, ModelRequest, ReplyChunk, ReplyStream, StartTicket};
use longhaul::teamfile::{Environment, TeamBundle, assemble};
use longhaul::testing::{FnModel, reply};
use longhaul::{Longhaul, Order, SubAgentDialect, TaskId, Team};
use serde_json::json;

use crate::http::server::{Act, Crowd, Server, says};
use crate::http::stage::{
    agent, assert_said, end, http, keys, model, solo, spec, start, submit, waiting, within,
};
use crate::http::tls::Secure;

/// Whether there are descriptors for hundreds of connections, of which both ends are in this process. Takes as many as
/// this process may have.
fn has_descriptors(test: &str) -> bool {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    let enough = 8192;
    if soft < enough && hard >= enough {
        setrlimit(Resource::RLIMIT_NOFILE, enough, hard).unwrap();
    }
    let has = soft.max(hard) >= enough;
    if !has {
        use std::io::Write as _;
        // Past the harness, which keeps what tests print: `./test` counts these lines.
        let why = format!("it needs {enough} file descriptors, and may have {hard}");
        let _ = writeln!(std::io::stderr(), "\nskipped: {test}: {why}");
    }
    has
}

async fn start_many(model: &Arc<dyn Model>, running: usize) -> Longhaul {
    let team = Team::new(solo(model).build().unwrap()).unwrap();
    let limits = TaskLimits::default().running(running).queue(None);
    Longhaul::builder(team).limits(limits).start().await.unwrap()
}

/// One reply for a task. Like a runner, it asks again if the provider cannot be reached: with few descriptors, tests that
/// run at the same time take them from each other.
async fn ask(model: &dyn Model, root: TaskId, depth: u32, text: &str) {
    let (agent, memo, messages) =
        (AgentName::from("solo"), WireCache::default(), [Message::User(text.into())]);
    for retry in 0..100 {
        let request = ModelRequest {
            task: root,
            root,
            depth,
            agent: &agent,
            system: "",
            messages: &messages,
            tools: &[],
            output: None,
            turn: 0,
            retry,
            wire_cache: &memo,
            text_delay: None,
        };
        match model.stream(request).collect::<Vec<_>>().await.pop() {
            Some(Ok(ReplyChunk::Done(_))) => return,
            Some(Err(error)) if matches!(error.kind, ModelErrorKind::Unreachable(_)) => println!("{error}"),
            other => panic!("{other:?}"),
        }
    }
    panic!("it cannot be reached");
}

fn tree(n: u32) -> TaskId {
    format!("t-7f3k{n}").parse().unwrap()
}

/// Issue 17: a provider that takes 20 at once and answers 429 above that. Nobody was told the 20.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_gate_settles_near_what_the_provider_takes() {
    const TAKES: usize = 20;
    if !has_descriptors("the_gate_settles_near_what_the_provider_takes") {
        return;
    }
    let server = Server::start(|_| Act::UpTo(TAKES, Duration::from_millis(50), says("All is well."))).await;
    let longhaul = start_many(&model(&http(), &server.url()), 400).await;
    let mut ids = Vec::new();
    for n in 0..800 {
        ids.push(submit(&longhaul, &format!("task {n}")).await);
    }
    for id in ids {
        assert_said(&end(&longhaul, id).await, "All is well.");
    }
    let loads = server.loads();
    let refused = |loads: &[usize]| loads.iter().filter(|load| **load > TAKES).count();
    // What it was like once it had settled, and before the tasks ran out.
    let settled = &loads[loads.len() / 2..loads.len() * 9 / 10];
    let mut sorted = settled.to_vec();
    sorted.sort_unstable();
    let median = sorted[sorted.len() / 2];
    println!(
        "{} requests for 800 replies; settled: {} of {} refused, median load {median}",
        loads.len(),
        refused(settled),
        settled.len()
    );
    assert!(loads.len() < 800 * 2, "{} requests for 800 replies", loads.len());
    assert!(refused(settled) * 5 < settled.len(), "{} of {} refused", refused(settled), settled.len());
    assert!((TAKES / 2..=TAKES).contains(&median), "median load {median}");
}

/// Issue 17: connections are refused, then the provider is back: all finish, and soon many at once again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_refused_connections_many_run_at_once_again() {
    let at = Server::start(|_| Act::Hangup).await.at;
    let longhaul = start_many(&model(&http(), &format!("http://{at}/v1")), 100).await;
    let mut ids = Vec::new();
    for n in 0..100 {
        ids.push(submit(&longhaul, &format!("task {n}")).await);
    }
    for id in &ids {
        waiting(&longhaul, *id).await;
    }
    let back = Instant::now();
    let server = Server::start_at(at, |_| Act::Later(Duration::from_millis(100), says("Back."))).await;
    for id in &ids {
        assert_said(&end(&longhaul, *id).await, "Back.");
    }
    println!("all were back after {:?}, {} at once", back.elapsed(), server.most_at_once());
    assert_eq!(server.asked().len(), 100, "one request a reply once it is back");
    assert!(server.most_at_once() >= 8, "{} at once", server.most_at_once());
    assert!(back.elapsed() < Duration::from_secs(30), "{:?}", back.elapsed());
}

/// Issue 17: 1,000 requests to a provider that takes 200 ms for each, whatever their number. It answers nothing before
/// 200 are there, and of the later ones nothing before there are more than the gate begins with: with fewer at once, this
/// would hang.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_requests_run_as_many_at_once_as_there_may_be() {
    if !has_descriptors("a_thousand_requests_run_as_many_at_once_as_there_may_be") {
        return;
    }
    let (early, late) = (Crowd::of(200), Crowd::of(300));
    let server = Server::start(move |asked| {
        let crowd = if asked.number < 256 { &early } else { &late };
        Act::Together(crowd.clone(), Duration::from_millis(200), says("Here."))
    })
    .await;
    let model = model(&http(), &server.url());
    let began = Instant::now();
    let all = (0..1000).map(|n| ask(&*model, tree(n % 10), 0, "go"));
    within(futures::future::join_all(all)).await;
    println!("{:?}, {} at once", began.elapsed(), server.most_at_once());
    assert_eq!(server.asked().len(), 1000);
    assert!(server.most_at_once() >= 300, "{} at once", server.most_at_once());
}

/// A fixed bound in a team file: on a provider, on a model, and overridden by the options.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_team_file_fixes_how_many_run_at_once() {
    for (provider, model, options, expected) in [
        ("max_concurrent: 3", "", HttpOptions::default(), 3),
        ("", "max_concurrent: 2", HttpOptions::default(), 2),
        ("max_concurrent: 9", "max_concurrent: 2", HttpOptions::default(), 2),
        ("max_concurrent: 9", "max_concurrent: 2", HttpOptions::default().max_concurrent(Some(5)), 5),
    ] {
        let server = Server::start(|_| Act::Later(Duration::from_millis(20), says("Here."))).await;
        let text = format!(
            "providers: {{mine: {{base_url: '{}', {provider}}}}}\nmodels: {{m: {{provider: mine, model: x, {model}}}}}\n\
             agents:\n  root:\n    model: m\n    instruction: Be brief.\n",
            server.url()
        );
        let environment = Environment::new(HttpClient::new(options).unwrap(), |_: &str| None, "data");
        let made = assemble(&TeamBundle::from_text("team.yaml", &text), &environment).unwrap();
        let longhaul = Longhaul::builder(made.team).start().await.unwrap();
        let mut ids = Vec::new();
        for n in 0..30 {
            ids.push(longhaul.submit(Order::new("root", format!("task {n}"))).await.unwrap());
        }
        for id in ids {
            assert_said(&end(&longhaul, id).await, "Here.");
        }
        assert_eq!(server.most_at_once(), expected, "{text}");
    }
}

/// Two models with the same URL and key share a gate, and with another key they do not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn models_with_the_same_url_and_key_share_a_gate() {
    let server = Server::start(|_| Act::Later(Duration::from_millis(20), says("Here."))).await;
    let http = http();
    let small = spec(&server.url()).max_concurrent(2);
    let small = http.model(&small, &keys).unwrap();
    let mut other = spec(&server.url());
    other.settings.model = "gpt-5-mini".to_owned();
    let other = http.model(&other, &keys).unwrap();
    let asks = |model: &Arc<longhaul::model::http::HttpModel>, n: u32| {
        let model = model.clone();
        async move { ask(&*model, tree(n), 0, "go").await }
    };
    within(futures::future::join_all((0..10).flat_map(|n| [asks(&small, n), asks(&other, n)]))).await;
    assert_eq!(server.most_at_once(), 2);
    let another = |_: &str| Some("sk-another-0123456789".to_owned().into());
    let elsewhere = http.model(&spec(&server.url()), &another).unwrap();
    within(futures::future::join_all((0..10).map(|n| asks(&elsewhere, n)))).await;
    assert!(server.most_at_once() > 2, "{}", server.most_at_once());
}

/// Issue 17: one slot, a tree with many waiting requests, and another with one: they take turns, and the orchestrator
/// goes before its children.
#[tokio::test]
async fn trees_take_turns_at_the_gate_and_the_orchestrator_goes_first() {
    let server = Server::start(|_| Act::Later(Duration::from_millis(5), says("Here."))).await;
    let http = HttpClient::new(HttpOptions::default().max_concurrent(Some(1))).unwrap();
    let model = model(&http, &server.url());
    let (model, big, small) = (&*model, tree(1), tree(2));
    // They reach the gate in this order: a future runs as far as it can when it is polled first.
    let all = [
        (big, 1, "big first"),
        (big, 1, "big child"),
        (big, 2, "big grandchild"),
        (big, 1, "big second child"),
        (small, 1, "small child"),
        (big, 0, "big orchestrator"),
        (small, 0, "small orchestrator"),
    ];
    within(futures::future::join_all(all.map(|(root, depth, text)| ask(model, root, depth, text)))).await;
    let order: Vec<String> =
        server.asked().iter().map(|asked| asked.order().trim_matches('"').to_owned()).collect();
    assert_eq!(
        order,
        [
            "big first",
            "big orchestrator",
            "small orchestrator",
            "big child",
            "small child",
            "big second child",
            "big grandchild"
        ]
    );
}

/// Counts the requests of tasks that have begun and not got their reply.
struct Counted {
    model: Arc<dyn Model>,
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Model for Counted {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn stream<'a>(&'a self, request: ModelRequest<'a>) -> ReplyStream<'a> {
        self.most.fetch_max(self.now.fetch_add(1, SeqCst) + 1, SeqCst);
        let counting = Counting(&self.now);
        let count_until_end = move |chunk| {
            let _ = &counting;
            chunk
        };
        self.model.stream(request).map(count_until_end).boxed()
    }

    fn start_ticket(&self, root: TaskId, depth: u32) -> Option<Box<dyn StartTicket>> {
        self.model.start_ticket(root, depth)
    }
}

struct Counting<'a>(&'a AtomicUsize);

impl Drop for Counting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// Issue 17: a thousand agents at a gate for a few need the memory of a few.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_begin_when_their_request_will_be_sent_soon() {
    const AGENTS: usize = 60;
    let server = Server::start(|_| Act::Later(Duration::from_millis(5), says("Here."))).await;
    let http = HttpClient::new(HttpOptions::default().max_concurrent(Some(4))).unwrap();
    let counted = Arc::new(Counted { model: model(&http, &server.url()), now: 0.into(), most: 0.into() });
    let worker: Arc<dyn Model> = counted.clone();
    let lead: Arc<dyn Model> = Arc::new(FnModel::new(|request| match request.turn {
        0 => (0..AGENTS).fold(reply(), |reply, n| {
            reply.call("run_background_agent", json!({"agent": "worker", "task": format!("Task {n}.")}))
        }),
        _ => reply().text("All are back."),
    }));
    let lead = agent("solo", &lead)
        .sub_agent(agent("worker", &worker).build().unwrap())
        .dialect(SubAgentDialect::Background);
    let limits = TaskLimits::default().running(100).queue(None);
    let team = Team::new(lead.build().unwrap()).unwrap();
    let longhaul = Longhaul::builder(team).limits(limits).start().await.unwrap();
    let id = submit(&longhaul, "go").await;
    assert_said(&end(&longhaul, id).await, "All are back.");
    assert_eq!(server.asked().len(), AGENTS);
    assert_eq!(server.most_at_once(), 4);
    let most = counted.most.load(SeqCst);
    assert!((4..=10).contains(&most), "{most} of {AGENTS} had begun and waited");
}

/// Where the crowd finds its provider, in the process that is the crowd.
const CROWD: &str = "LONGHAUL_TEST_CROWD";
/// More than a connection takes at once.
const CROWD_SIZE: usize = 150;

/// A connection over HTTP/2 takes 100 requests at once. Here are 150, and none is answered before all are there.
#[test]
fn more_requests_than_one_connection_takes_run_at_once() {
    if !has_descriptors("more_requests_than_one_connection_takes_run_at_once") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let output = runtime.block_on(async {
        let secure = Secure::start_crowded(place.path(), CROWD_SIZE).await;
        let mut crowd = std::process::Command::new(std::env::current_exe().unwrap());
        crowd
            .args(["--exact", "http::concurrency::the_crowd_itself", "--ignored", "--nocapture"])
            .env(CROWD, secure.url())
            .env("SSL_CERT_FILE", secure.certificate());
        tokio::task::spawn_blocking(move || crowd.output().unwrap()).await.unwrap()
    });
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && stdout.contains("the crowd was answered"), "{stdout}\n{stderr}");
}

/// The crowd; only in the process that the test above starts, which trusts the provider's certificate.
#[test]
#[ignore = "run by the test above, as a process of its own"]
fn the_crowd_itself() {
    let Ok(url) = std::env::var(CROWD) else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let model = model(&http(), &url);
        let all = (0..CROWD_SIZE).map(|_| ask(&*model, tree(0), 0, "go"));
        let all = tokio::time::timeout(Duration::from_secs(20), futures::future::join_all(all)).await;
        all.expect("it hangs");
        println!("the crowd was answered");
    });
}

/// The engine says of which tree and how deep each request is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_carry_the_root_and_the_depth_of_their_task() {
    use longhaul::testing::{FnModel, reply};
    let seen: Arc<std::sync::Mutex<Vec<(TaskId, TaskId, u32)>>> = Arc::default();
    let notes = seen.clone();
    let model: Arc<dyn Model> = Arc::new(FnModel::new(move |request| {
        notes.lock().unwrap().push((request.task, request.root, request.depth));
        match (request.agent.as_str(), request.turn) {
            ("solo", 0) => reply().call("helper", serde_json::json!({"task": "help"})),
            _ => reply().text("Done."),
        }
    }));
    let helper = agent("helper", &model).build().unwrap();
    let longhaul = start(solo(&model).sub_agent(helper)).await;
    let root = submit(&longhaul, "lead it").await;
    assert_said(&end(&longhaul, root).await, "Done.");
    let seen = seen.lock().unwrap().clone();
    assert!(seen.iter().all(|(_, of, _)| *of == root), "{seen:?}");
    let depths: Vec<u32> = seen.iter().map(|(_, _, depth)| *depth).collect();
    assert_eq!(depths, [0, 1, 0], "{seen:?}");
}
