//! Two processes on one file: each task is claimed by one of them, once.

use longhaul::Order;
use longhaul::entry::{Entry, TeamRef};

use crate::crash::Options;
use crate::crash::audit::Audit;
use crate::crash::process::Player;
use crate::crash::roles::{block_on, client};

fn submit(dir: &std::path::Path, count: usize) {
    let (_store, client) = client(dir);
    block_on(async {
        let client = client.await;
        for n in 0..count {
            let order = Order::new("counted", format!("task {n}"));
            client.submit_to(TeamRef::Named("counted".into()), order).await.unwrap();
        }
        client.shutdown().await;
    });
}

pub(crate) fn a_thousand(_: &Options) {
    let dir = tempfile::tempdir().unwrap();
    submit(dir.path(), 1000);
    let mut racers = ["one", "two"].map(|name| Player::start("claim", dir.path(), &[name]));
    racers.iter_mut().for_each(|racer| racer.hear("ready"));
    racers.iter_mut().for_each(|racer| racer.say("go"));
    let claimed = racers.each_mut().map(|racer| racer.next_line().unwrap().parse::<usize>().unwrap());
    racers.into_iter().for_each(Player::done);
    println!("  claimed: {claimed:?}");
    assert!(claimed.iter().all(|n| *n > 0), "one of them got nothing: {claimed:?}");
    assert_eq!(claimed.iter().sum::<usize>(), 1000);
    let audit = Audit::of(dir.path());
    assert_eq!(audit.tasks.len(), 1000);
    for id in audit.tasks.keys() {
        assert_eq!(audit.count(*id, |entry| matches!(entry, Entry::Claimed { .. })), 1);
    }
}

pub(crate) fn two_engines(_: &Options) {
    let dir = tempfile::tempdir().unwrap();
    submit(dir.path(), 300);
    let mut engines = ["one", "two"].map(|name| Player::start("count", dir.path(), &[name]));
    engines.iter_mut().for_each(|engine| engine.hear("ready"));
    engines.iter_mut().for_each(|engine| engine.say("go"));
    engines.into_iter().for_each(Player::done);
    let audit = Audit::of(dir.path());
    audit.all_ended_once();
    for (id, (state, _)) in &audit.tasks {
        assert_eq!(state.attempt.0, 1, "{id} was begun more than once");
        let expected = format!("done: {}", state.headline);
        assert_eq!(audit.outcome(*id).unwrap().output().as_ref(), expected);
    }
}
