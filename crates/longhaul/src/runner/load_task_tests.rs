use super::*;
use std::sync::Arc;

use crate::agent::Agent;
use crate::entry::{Order, TeamRef};
use crate::id::TaskKey;
use crate::message::Message;
use crate::store::{Batch, Fence, MemoryStore};
use crate::testing::{FnModel, reply};

/// A conversation may continue for years. Loading it must not use more stack for more tasks.
#[tokio::test]
async fn a_chain_of_ten_thousand_tasks_is_recalled() {
    const LONG: usize = 10_000;
    let model = Arc::new(FnModel::new(|_| reply().text("x")));
    let team = Team::new(Agent::builder("solo").model(model).build().unwrap()).unwrap();
    let home = TeamRef::Named("team".into());
    let store = MemoryStore::new();
    let mut continues = None;
    for n in 0..LONG {
        let key = TaskKey::named(&n.to_string());
        let id = key.candidate_ids().last().unwrap();
        let order = Order::new("solo", format!("order {n}"));
        let submitted = Submission { continues, ..Submission::root(id, key, order, home.clone()) };
        let entry = Entry::Submitted(Box::new(submitted));
        store.append(Batch::one(id, Fence::New, vec![entry])).await.unwrap();
        continues = Some(id);
    }
    let last = continues.unwrap();
    let journal = read_all(&store, last, Seq(0)).await.unwrap();
    let (state, turn, _) = load_task(&store, &team, last, &journal).await.unwrap();
    assert_eq!(state.id, last);
    let conversation = turn.messages();
    assert_eq!(conversation.len(), LONG);
    assert_eq!(conversation[0], Message::User("order 0".into()), "the oldest first");
    assert_eq!(conversation[LONG - 1], Message::User(format!("order {}", LONG - 1).into()));
}
