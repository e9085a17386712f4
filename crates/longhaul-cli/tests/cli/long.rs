//! A journal of 50,000 entries: shown, told and followed whole, and looked at in no more than it has.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use longhaul::TaskId;
use longhaul::entry::{CallResult, Entry, LiveTextKind, Order, Outcome, Submission, TeamRef};
use longhaul::id::{Attempt, CallId, TaskKey, WorkerId};
use longhaul::message::{Block, Call, Reply, Usage};
use longhaul::store::{Batch, ClaimRequest, Fence, SqliteStore, Store};

use crate::kit::{Kit, block_on};

/// How many entries there are.
const ENTRIES: usize = 50_000;

/// Makes a task that has so many entries in its journal: turns of live words, a reply, a call and its result.
async fn long(store: &dyn Store, entries: usize) -> TaskId {
    let key = TaskKey::named("long");
    let id = key.candidate_ids().next().unwrap();
    let team = TeamRef::Named("nobody".into());
    let order = Order::new("writer", "Write a very long story");
    let submitted = Submission::root(id, key, order, team.clone());
    store.append(Batch::one(id, Fence::New, vec![Entry::Submitted(Box::new(submitted))])).await.unwrap();
    let worker = WorkerId::from("w");
    store.renew_lease(worker.clone(), Duration::from_secs(600)).await.unwrap();
    let claim = ClaimRequest {
        worker: worker.clone(),
        teams: vec![team],
        roots: None,
        fresh_only: true,
        except: vec![],
        max: 1,
    };
    assert_eq!(store.claim(claim).await.unwrap().len(), 1);
    let mut left = entries - 3;
    let mut turn = 0;
    let mut batch = Vec::new();
    while left > 0 {
        turn += 1;
        let words =
            format!("In chapter {turn} the hero, who has seen it all, looks once more at what is there. ");
        let call = Call {
            id: format!("c{turn}"),
            tool: "read_file".to_owned(),
            arguments: format!("{{\"path\":\"chapters/{turn}.md\"}}"),
        };
        let usage = Usage { input: 1_000, output: 60, ..Usage::default() };
        let reply = Reply {
            blocks: vec![Block::Text(words.repeat(3)), Block::Call(call)],
            usage,
            model: "m".to_owned(),
            ..Reply::default()
        };
        let call = CallId { turn, index: 0 };
        let said = || Entry::Said { voice: LiveTextKind::Text, text: words.clone() };
        let output = format!("{words}\n").repeat(4);
        let returned = CallResult::new(call, output);
        let entries = [
            said(),
            said(),
            said(),
            Entry::Replied(Arc::new(reply)),
            Entry::Called { call, tool: "read_file".into(), arguments: None, effects: false, foreign: false },
            Entry::Returned(Box::new(returned)),
        ];
        let some = entries.len().min(left);
        batch.extend(entries.into_iter().take(some));
        left -= some;
        if batch.len() > 1000 || left == 0 {
            store
                .append(Batch::one(id, Fence::Attempt(Attempt(1)), std::mem::take(&mut batch)))
                .await
                .unwrap();
        }
    }
    let end = Outcome::Completed { output: "The end.".into(), cut_short: None };
    store
        .append(Batch::one(id, Fence::Attempt(Attempt(1)), vec![Entry::Finished(Box::new(end))]))
        .await
        .unwrap();
    store.retire_worker(worker).await.unwrap();
    id
}

#[test]
fn a_long_journal_is_shown_told_and_followed_whole() {
    let kit = Kit::new();
    let id = block_on(async { long(&*kit.store(), ENTRIES).await }).to_string();
    let shown = kit.run(&["show", &id]).ended(0).out;
    assert!(shown.contains("✓ completed") && shown.ends_with("Output\nThe end.\n"), "{shown}");
    // Though only the end of the journal is looked at, all is as in a look at the whole.
    kit.client(async |longhaul| {
        let id = longhaul.find(&id).await.unwrap();
        let (whole, glance) =
            (longhaul.snapshot(id).await.unwrap(), longhaul.recent_snapshot(id).await.unwrap());
        assert_eq!((&glance.state, &glance.order), (&whole.state, &whole.order));
        assert_eq!((&glance.output, &glance.outcome), (&whole.output, &whole.outcome));
        assert_eq!(glance.events, whole.events);
    });
    assert!(
        shown.contains("calls   read_file(chapters/") && shown.contains("4 lines from read_file"),
        "{shown}"
    );
    let told = kit.run(&["logs", &id, "--json"]).ended(0).out;
    let followed = kit.run(&["logs", "-f", &id, "--json"]).ended(0).out;
    assert_eq!(told, followed);
    let last: serde_json::Value = serde_json::from_str(told.lines().last().unwrap()).unwrap();
    assert_eq!((&last["event"], &last["seq"]), (&"finished".into(), &ENTRIES.into()));
}

/// Not a test: makes a database to be measured with a build that is optimised, in the directory that
/// `LONGHAUL_LONG_JOURNAL` names. `docs/performance.md` has the figures.
#[test]
#[ignore = "makes what is measured by hand"]
fn one_to_be_measured() {
    let dir = std::env::var("LONGHAUL_LONG_JOURNAL").unwrap();
    let store = SqliteStore::open(Path::new(&dir).join("longhaul.db")).unwrap();
    println!("{}", block_on(async { long(&store, ENTRIES).await }));
}
