//! What these tests are made of.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use longhaul::agent::AgentBuilder;
use longhaul::entry::{Entry, Record};
use longhaul::id::Seq;
use longhaul::model::Model;
use longhaul::model::http::{HttpClient, HttpOptions, ModelSpec};
use longhaul::task::WaitState;
use longhaul::{Agent, EventKind, Longhaul, Order, Policy, Snapshot, Status, TaskId, Team};
use secrecy::SecretString;

/// A key that is easy to find again.
pub(crate) const MARK: &str = "sk-MARKED-0123456789abcdef";

pub(crate) fn keys(_: &str) -> Option<SecretString> {
    Some(SecretString::from(MARK.to_owned()))
}

pub(crate) fn options() -> HttpOptions {
    HttpOptions::default().idle_timeout(Duration::from_millis(400))
}

pub(crate) fn http() -> HttpClient {
    HttpClient::new(options()).unwrap()
}

/// `openai/gpt-5`, as spoken at this place.
pub(crate) fn spec(url: &str) -> ModelSpec {
    ModelSpec::parse("openai/gpt-5").unwrap().base_url(url)
}

pub(crate) fn model(http: &HttpClient, url: &str) -> Arc<dyn Model> {
    http.model(&spec(url), &keys).unwrap()
}

pub(crate) fn solo(model: &Arc<dyn Model>) -> AgentBuilder {
    agent("solo", model)
}

pub(crate) fn agent(name: &str, model: &Arc<dyn Model>) -> AgentBuilder {
    // Quick to try again: these tests run on the real clock.
    let mut policy = Policy::default();
    policy.retry.initial_backoff = Duration::from_millis(100);
    Agent::builder(name).model(model.clone()).instruction("Be brief.").policy(policy)
}

pub(crate) async fn start(agent: AgentBuilder) -> Longhaul {
    Longhaul::builder(Team::new(agent.build().unwrap()).unwrap()).start().await.unwrap()
}

pub(crate) async fn submit(longhaul: &Longhaul, task: &str) -> TaskId {
    longhaul.submit(Order::new("solo", task)).await.unwrap()
}

pub(crate) async fn within<F: IntoFuture>(what: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(60), what.into_future()).await.expect("it hangs")
}

pub(crate) async fn end(longhaul: &Longhaul, id: TaskId) -> Snapshot {
    within(longhaul.wait([id])).await.unwrap().tasks.remove(0)
}

/// Waits until a task waits for something, and returns what it then waits for.
pub(crate) async fn waiting(longhaul: &Longhaul, id: TaskId) -> WaitState {
    let mut events = longhaul.events(id, Seq(0));
    let waits = async {
        loop {
            let event = events.next().await.expect("it ended").unwrap();
            if !matches!(event.kind, EventKind::Waiting { .. }) {
                continue;
            }
            // It may have gone on in the meantime.
            if let Some(waiting) = longhaul.snapshot(id).await.unwrap().state.waiting {
                break waiting;
            }
        }
    };
    within(waits).await
}

pub(crate) fn assert_said(done: &Snapshot, text: &str) {
    assert_eq!(done.state.status, Status::Completed, "{:?}", done.state.error);
    assert_eq!(done.output, text);
}

pub(crate) async fn journal(longhaul: &Longhaul, id: TaskId) -> Vec<Record> {
    longhaul.store().read(id, Seq(0), 100_000).await.unwrap()
}

/// How many replies are in a journal, and how often it says that it waits for the provider.
pub(crate) fn replies_and_waits(journal: &[Record]) -> (usize, usize) {
    let replies = journal.iter().filter(|record| matches!(record.entry, Entry::Replied(_))).count();
    let waits = journal.iter().filter(|record| matches!(record.entry, Entry::Waiting { .. })).count();
    (replies, waits)
}
