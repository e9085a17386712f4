//! Real models. Runs only where `LONGHAUL_LIVE_BASE_URL` names a server that speaks chat completions, responses and
//! messages below it (llama.cpp's own server does all three); `LONGHAUL_LIVE_MODEL` names the model.
//!
//! What a model says is its own business: asserted is only the structure of what happened.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use longhaul::entry::Entry;
use longhaul::id::Seq;
use longhaul::model::Model;
use longhaul::model::http::{ApiType, HttpClient, HttpOptions, ModelSpec, NoKeys};
use longhaul::model::settings::ModelSettings;
use longhaul::store::TaskFilter;
use longhaul::{Agent, EventKind, Longhaul, Policy, Status, SubAgentDialect, Team};

const LEAD: &str = "You lead a team. You do no work yourself. Step 1: call run_background_agent twice in one reply, once for \
                    the agent `poet` and once for the agent `historian`, each with a short task. Step 2: end your turn with \
                    one short sentence. Step 3: their results come to you as messages. When you have both, answer with one \
                    short paragraph that uses both. Never give the same task twice.";

const PROMPT: &str = "Ask the poet for one line about the sea. Ask the historian for one fact about lighthouses. Then put \
                      both together.";

#[tokio::test(flavor = "multi_thread")]
async fn chat_completions() {
    a_lead_and_two_over(ApiType::Chat).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn responses() {
    a_lead_and_two_over(ApiType::Responses).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages() {
    a_lead_and_two_over(ApiType::Anthropic).await;
}

fn model(api_type: ApiType) -> Option<Arc<dyn Model>> {
    let Ok(base_url) = std::env::var("LONGHAUL_LIVE_BASE_URL") else {
        longhaul::testing::report_skipped("LONGHAUL_LIVE_BASE_URL is not set");
        return None;
    };
    let model = std::env::var("LONGHAUL_LIVE_MODEL").unwrap_or_else(|_| "qwen1.5b".to_owned());
    let settings = ModelSettings::new(model).max_tokens(400).temperature(0.0);
    let spec = ModelSpec::parse("llamacpp/x").unwrap().settings(settings);
    let spec = spec.base_url(base_url).api_type(api_type);
    let options = HttpOptions::default().first_byte_timeout(Duration::from_secs(600));
    let model = HttpClient::new(options).unwrap().model(&spec, &NoKeys).unwrap();
    Some(model)
}

async fn a_lead_and_two_over(api_type: ApiType) {
    let Some(model) = model(api_type) else { return };
    let sub = |name: &str, what: &str| {
        let instruction = format!("You are a {name}. {what} Answer with one sentence.");
        Agent::builder(name).description(what).model(model.clone()).instruction(instruction).build().unwrap()
    };
    let policy = Policy::default().max_turns(8).inactivity_timeout(Duration::from_secs(600));
    let mut lead = Agent::builder("lead")
        .model(model.clone())
        .instruction(LEAD)
        .dialect(SubAgentDialect::Background)
        .policy(policy)
        .sub_agent(sub("poet", "Writes one line of verse."))
        .sub_agent(sub("historian", "Knows one fact about anything."))
        .build()
        .unwrap();
    // With transfer_task at hand a small model waits for each of them in turn; here it is to be told by letter.
    lead.toolsets.retain(|toolset| toolset.name() == "background_agents");
    let began = std::time::Instant::now();
    let longhaul = Longhaul::builder(Team::new(lead).unwrap()).start().await.unwrap();

    let mut events = longhaul.chat(PROMPT).await.unwrap();
    let mut root = None;
    while let Some(event) = events.next().await {
        let event = event.unwrap();
        root.get_or_insert(event.task);
        match &event.kind {
            EventKind::Text { text } | EventKind::Reasoning { text } => print!("{text}"),
            EventKind::Call { tool, arguments, .. } => println!("\n[{}] {tool}({arguments})", event.task),
            EventKind::Result { output, .. } => println!("[{}] → {output}", event.task),
            EventKind::Finished { status, output, error, .. } => {
                println!("\n[{}] {status}: {output} {}", event.task, error.as_deref().unwrap_or_default());
            }
            EventKind::Usage { usage, .. } => {
                println!("\n[{}] {usage:?} after {:.0?}", event.task, began.elapsed());
            }
            EventKind::Read { letters } => println!("[{}] reads {letters:?}", event.task),
            _ => {}
        }
    }

    let root = root.unwrap();
    let tree = longhaul.list(TaskFilter::tree(root)).await.unwrap();
    assert!(tree.iter().all(|task| task.status.is_final()), "nothing is left running");
    let children: Vec<_> = tree.iter().filter(|task| task.parent == Some(root)).collect();
    assert!(children.len() >= 2, "two were sent out: {children:#?}");
    for child in children.iter().filter(|child| child.status == Status::Completed) {
        assert!(child.usage.output > 0, "what was used is known");
    }
    let journal = longhaul.store().read(root, Seq(0), 1000).await.unwrap();
    let endings = journal
        .iter()
        .filter(|r| matches!(&r.entry, Entry::Letter(letter) if letter.ending.is_some()))
        .count();
    assert_eq!(endings, children.len(), "each end was told by letter");
    assert_eq!(tree[0].status, Status::Completed, "{:?}", tree[0].error);
    assert!(!longhaul.output(root).await.unwrap().trim().is_empty());
    // Whatever it looked at meanwhile: it read of their ends, and answered after that.
    let place = |is: &dyn Fn(&Entry) -> bool| journal.iter().rposition(|record| is(&record.entry));
    let read = place(&|entry| matches!(entry, Entry::Read { letters, .. } if !letters.is_empty()));
    let collected =
        place(&|entry| matches!(entry, Entry::Returned(returned) if !returned.collected.is_empty()));
    let answered = place(&|entry| matches!(entry, Entry::Replied(_)));
    assert!(
        read.or(collected).is_some() && answered > read.max(collected),
        "{read:?} {collected:?} {answered:?}"
    );
    println!("answered after {:.0?} and {} turns", began.elapsed(), tree[0].turns);
    longhaul.shutdown().await;
}
