//! What people should know of is in the journal, once; and what they let a tree use counts.

use std::sync::Arc;

use longhaul::entry::Entry;
use longhaul::model::{Model, ModelRequest};
use longhaul::testing::{FnModel, reply};
use longhaul::toolset::{OpenFuture, Toolset, ToolsetContext, ToolsetError};
use longhaul::{Budget, Longhaul, Order, Status, TaskId};
use serde_json::json;

use crate::engine::stage::*;

async fn warnings(longhaul: &Longhaul, id: TaskId) -> Vec<String> {
    let journal = journal(longhaul, id).await;
    let text = |entry: &Entry| match entry {
        Entry::Warned { text } => Some(text.to_string()),
        _ => None,
    };
    journal.iter().filter_map(|record| text(&record.entry)).collect()
}

/// A model that leaves a tool out, as providers do whose schemas cannot say it, says so with each request.
#[tokio::test]
async fn what_a_model_warns_of_is_told_once() {
    let warns: Arc<dyn Model> = Arc::new(FnModel::new(|request: &ModelRequest<'_>| {
        request.wire_cache.warn("the tool 'odd' is not offered to the model");
        match request.turn {
            0 | 1 => reply().call("nothing", json!({})),
            _ => reply().text("done"),
        }
    }));
    let nothing = tool("nothing", |_, _| async { Ok("nothing".into()) });
    let longhaul = start(agent("solo", &warns).toolset(nothing)).await;
    let id = longhaul.submit(Order::new("solo", "go")).await.unwrap();
    assert_done(&end(&longhaul, id).await);
    assert_eq!(warnings(&longhaul, id).await, ["the tool 'odd' is not offered to the model"]);
    // What continues it is another run: it is told there too, and once.
    let next = longhaul.continue_task(id, "again").await.unwrap();
    assert_done(&end(&longhaul, next).await);
    assert_eq!(warnings(&longhaul, next).await.len(), 1);
}

/// A toolset that cannot be opened.
struct Broken;

impl Toolset for Broken {
    fn name(&self) -> &str {
        "broken"
    }

    fn open<'a>(&'a self, _: &'a ToolsetContext) -> OpenFuture<'a> {
        Box::pin(async {
            Err(ToolsetError { toolset: "broken".to_owned(), why: "its server did not start".to_owned() })
        })
    }
}

#[tokio::test]
async fn a_toolset_that_does_not_open_is_told_of_once() {
    let answers =
        model(|asked| if asked.turn == 0 { reply().call("none", json!({})) } else { reply().text("done") });
    let longhaul = start(agent("solo", &answers).toolset(Broken)).await;
    let id = longhaul.submit(Order::new("solo", "go")).await.unwrap();
    assert_done(&end(&longhaul, id).await);
    let told = warnings(&longhaul, id).await;
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].contains("solo runs without some of its tools") && told[0].contains("did not start"),
        "{told:?}"
    );
}

/// What is added to the budget of a running tree counts for its children too.
#[tokio::test]
async fn a_budget_that_is_added_counts_for_all_below() {
    let gate = Arc::new(Gate::new());
    let spends = gate.model(move |gate, asked| async move {
        match asked.turn {
            0..3 => reply().call("nothing", json!({})).usage(100, 0),
            3 => {
                gate.pass().await;
                reply().call("nothing", json!({})).usage(100, 0)
            }
            _ => reply().text("done").usage(100, 0),
        }
    });
    let nothing = tool("nothing", |_, _| async { Ok("nothing".into()) });
    let longhaul = start(agent("solo", &spends).toolset(nothing)).await;
    let budget = Budget::default().tokens(350);
    let run = async |more: Option<u64>| {
        let id = longhaul.submit(Order::new("solo", "go").tree_budget(budget)).await.unwrap();
        until(&longhaul, id, |state| state.turns == 3).await;
        if let Some(more) = more {
            longhaul.add_budget(id, Budget::default().tokens(more)).await.unwrap();
        }
        gate.open(1);
        end(&longhaul, id).await
    };
    let poor = run(None).await;
    assert_eq!(poor.state.status, Status::Failed);
    assert!(
        poor.state.error.as_deref().unwrap_or_default().contains("400 tokens of 350"),
        "{:?}",
        poor.state.error
    );
    assert_done(&run(Some(1_000)).await);
    let rich = run(Some(50)).await;
    assert!(
        rich.state.error.as_deref().unwrap_or_default().contains("400 tokens of 350"),
        "{:?}",
        rich.state.error
    );
}
